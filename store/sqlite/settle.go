package sqlite

import (
	"context"
	"encoding/json"
	"time"

	"belfry"
	"belfry/store"
)

func (s *Store) Settle(ctx context.Context, settlements []store.Settlement) ([]store.Settled, error) {
	var out []store.Settled
	err := s.doRows(ctx, durable, len(settlements), false, func(tx *txn) error {
		out = make([]store.Settled, len(settlements))
		for i, st := range settlements {
			settled, err := tx.settle(st)
			if err != nil {
				return err
			}
			out[i] = settled
		}
		return nil
	})
	return out, err
}

func (tx *txn) settle(st store.Settlement) (out store.Settled, err error) {
	id := st.Delivery.ID
	place, found, err := tx.find(id, st.Claim)
	if err != nil || !found {
		return store.Settled{Delivery: st.Delivery, Late: true}, err
	}
	tx.summary = ""
	before := place.d
	out.Late = place.claim != st.Claim
	d, moved := before.Settle(st.Claim, st.Answer, belfry.Settling{Now: st.Now, Policy: st.Policy, Jitter: st.Jitter, Cancel: before.Cancel})
	if !moved {
		out.Delivery = before
		if before.State.Ended() {
			out.Summary, err = tx.summaryOf(id.Notification)
		}
		return out, err
	}
	out.Delivery = d
	erased := place.erased
	if out.Late {
		tx.event(id.Notification, store.Event{At: st.Now, N: id.N, Kind: store.EventLateWord, Detail: string(st.Answer.Outcome)})
	}
	if err := tx.move(st.Notification, place, d, st.Now); err != nil {
		return out, err
	}
	if out.Late && !erased {
		if erased, err = tx.erased(id.Notification); err != nil {
			return out, err
		}
	}
	if d.State == belfry.Sent && before.State != belfry.Sent && !erased {
		tx.moveMark(st.Notification, d.SentAt(), st.MarkData)
	}
	out.Summary = tx.summary
	if out.Summary == "" && before.State.Ended() {
		if out.Summary, err = tx.summaryOf(id.Notification); err != nil {
			return out, err
		}
	}
	retired, err := tx.judgeEndpoint(st)
	if err != nil || !retired {
		return out, err
	}
	// What else waited for the endpoint is gone with it: this delivery, or its siblings.
	if place, _, err = tx.find(id, 0); err != nil {
		return out, err
	}
	out.Delivery = place.d
	out.Summary, err = tx.summaryOf(id.Notification)
	return out, err
}

// erased says that the recipient of a notification was deleted: no answer brings anything of it back.
func (tx *txn) erased(id belfry.ID) (erased bool, err error) {
	_, err = tx.one(`SELECT erased FROM notification WHERE id = ?`, []any{id}, &erased)
	return erased, err
}

// summaryOf is how a notification ended; "" while it is open.
func (tx *txn) summaryOf(id belfry.ID) (state belfry.State, err error) {
	_, err = tx.one(`SELECT state FROM ended WHERE id = ?`, []any{id}, &state)
	return state, err
}

// place is where a delivery stands.
type place struct {
	d      belfry.Delivery
	claim  belfry.ID // that holds it; 0: it waits, or is in the archive
	erased bool      // its recipient was deleted while it was on the wire
}

// find looks where a delivery can stand: in a claim (first the likely one), in a waiting room, in the archive.
func (tx *txn) find(id belfry.DeliveryID, likely belfry.ID) (p place, found bool, err error) {
	if h := tx.s.claims[likely]; h != nil {
		if i := h.find(id.Notification, id.N); i >= 0 {
			return place{*h.items[i].Delivery, likely, h.items[i].erased}, true, nil
		}
	}
	if c, i := tx.s.holding(id.Notification, id.N); c != 0 {
		it := tx.s.claims[c].items[i]
		return place{*it.Delivery, c, it.erased}, true, nil
	}
	var b string
	found, err = tx.one(`SELECT body FROM waiting WHERE id = ?1 AND n = ?2 UNION ALL SELECT body FROM delivery WHERE id = ?1 AND n = ?2`, []any{id.Notification, id.N}, &b)
	if found {
		err = json.Unmarshal([]byte(b), &p.d)
	}
	return p, found, err
}

// holding is the claim that holds a delivery, or a notification to be planned (n = 0); 0 when none does.
func (s *Store) holding(id belfry.ID, n int) (claim belfry.ID, index int) {
	for c, h := range s.claims {
		if i := h.find(id, n); i >= 0 {
			return c, i
		}
	}
	return 0, -1
}

// move takes a delivery from where it stands to where it belongs now.
func (tx *txn) move(n belfry.Notification, from place, d belfry.Delivery, now time.Time) error {
	switch {
	case from.claim != 0 && d.State == belfry.Sending: // stays where it is, changed
		h := tx.own(from.claim)
		i := h.find(d.ID.Notification, d.ID.N)
		changed := *h.items[i]
		changed.Delivery = &d
		changed.raw = appendItem(nil, &changed.Item, changed.home)
		h.items[i] = &changed
		return nil
	case from.claim != 0:
		tx.leave(from.claim, d.ID.Notification, d.ID.N)
	case !from.d.State.Ended() && !d.State.Ended(): // evidence that moves nothing
		return tx.exec(`UPDATE waiting SET body = ? WHERE id = ? AND n = ?`, string(appendDelivery(nil, &d)), d.ID.Notification, d.ID.N)
	case !from.d.State.Ended():
		if err := tx.exec(`DELETE FROM waiting WHERE id = ? AND n = ?`, d.ID.Notification, d.ID.N); err != nil {
			return err
		}
	}
	return tx.put(n, d, from.d.State.Ended(), now)
}

// moveMark moves what was last sent about the subject, forward only.
func (tx *txn) moveMark(n belfry.Notification, at time.Time, data json.RawMessage) {
	if data == nil {
		data = n.Data
	}
	if n.Sensitive {
		data = nil
	}
	tx.add(intoMark, n.Project, n.Recipient, n.Category, n.Subject, micros(at), text(data), n.ID)
}

// judgeEndpoint lets an answer count for or against its endpoint, and says whether it retired it.
func (tx *txn) judgeEndpoint(st store.Settlement) (retired bool, err error) {
	id, n := st.Delivery.Endpoint, st.Notification
	if id == 0 {
		return false, nil
	}
	switch st.Answer.Outcome {
	case belfry.OutcomeAccepted:
		if st.Endpoint.Strikes > 0 {
			return false, tx.exec(`UPDATE endpoint SET strikes = 0 WHERE id = ?`, id)
		}
	case belfry.OutcomeGone:
		var armedAt time.Time
		for _, a := range st.Delivery.Attempts {
			if a.Claim == st.Claim {
				armedAt = a.ArmedAt
			}
		}
		var registered int64
		found, err := tx.one(`SELECT registered_at FROM endpoint WHERE id = ?`, []any{id}, &registered)
		// A registration after the try was armed speaks for a token that the answer did not know.
		if err != nil || !found || registered > micros(armedAt) {
			return false, err
		}
		err = tx.exec(`UPDATE endpoint SET retired_at = ?, reason = ? WHERE id = ? AND retired_at = 0`, micros(st.Now), belfry.ReasonGone, id)
		if err != nil {
			return false, err
		}
		tx.intent = true
		_, err = tx.withdraw(st.Now, n.Project, n.Recipient)
		return true, err
	}
	return false, nil
}
