package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"belfry"
	"belfry/store"
)

func (s *Store) Settle(ctx context.Context, settlements []store.Settlement) ([]store.Settled, error) {
	out, err := s.settles.do(ctx, settlements, len(settlements))
	if !errors.Is(err, errLate) {
		return out, err
	}
	err = s.do(ctx, durable, func(tx *txn) error {
		out, err = tx.settleLate(settlements)
		return err
	})
	return out, err
}

// errLate says that a settlement's claim does not hold its delivery any more. Where it stands then can only
// be looked up by who excludes all others that move it.
var errLate = errors.New("postgres: a late word")

// settleAll settles for several calls.
func (s *Store) settleAll(tx *txn, calls []*call[[]store.Settlement, []store.Settled]) error {
	var all []store.Settlement
	for _, c := range calls {
		all = append(all, c.in...)
	}
	if err := tx.settling(all, false); err != nil {
		return err
	}
	for _, c := range calls {
		for _, st := range c.in {
			if h := tx.claims[st.Claim]; h == nil || h.find(st.Delivery.ID.Notification, st.Delivery.ID.N) < 0 {
				return errLate // the calls are tried one by one
			}
		}
	}
	for _, c := range calls {
		var err error
		if c.out, err = tx.settleEach(c.in); err != nil {
			return err
		}
	}
	return nil
}

func (tx *txn) settleLate(list []store.Settlement) ([]store.Settled, error) {
	if err := tx.settling(list, true); err != nil {
		return nil, err
	}
	return tx.settleEach(list)
}

func (tx *txn) settleEach(list []store.Settlement) ([]store.Settled, error) {
	out := make([]store.Settled, len(list))
	for i, st := range list {
		settled, err := tx.settle(st)
		if err != nil {
			return nil, err
		}
		out[i] = settled
	}
	return out, nil
}

// settling locks what the settlements will look at. A dead endpoint is a change of intent, and so is treated
// what is late.
func (tx *txn) settling(list []store.Settlement, late bool) error {
	l := locks{}
	ids := make([]belfry.ID, 0, len(list))
	var several []belfry.ID
	var dead []int64
	for _, st := range list {
		n := st.Notification
		ids = append(ids, st.Claim)
		if late || st.Answer.Outcome == belfry.OutcomeGone {
			l.change(n.Project, n.Recipient)
			dead = append(dead, recipientHash(n))
		} else {
			l.touch(n.Project, n.Recipient)
		}
		if !st.Delivery.Sole {
			several = append(several, st.Delivery.ID.Notification)
		}
	}
	if err := tx.take(l); err != nil {
		return err
	}
	if len(dead) > 0 { // their other claims are locked with these, all in one order
		err := tx.each(whomIsClaimed, func(scan func(...any) error) error {
			var id belfry.ID
			err := scan(&id)
			ids = append(ids, id)
			return err
		}, dead)
		if err != nil {
			return err
		}
	}
	slices.Sort(ids)
	if _, err := tx.load(claimsByID, numbers(slices.Compact(ids))); err != nil {
		return err
	}
	slices.Sort(several)
	return tx.loadFanouts(slices.Compact(several))
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
		if _, err := tx.one(`SELECT erased FROM notification WHERE id = $1`, []any{int64(id.Notification)}, &erased); err != nil {
			return out, err
		}
	}
	if d.State == belfry.Sent && before.State != belfry.Sent && !erased {
		tx.moveMark(st.Notification, d.SentAt(), st.MarkData)
	}
	if out.Summary = tx.summary; out.Summary == "" && before.State.Ended() {
		if out.Summary, err = tx.summaryOf(id.Notification); err != nil {
			return out, err
		}
	}
	withdrew, err := tx.judgeEndpoint(st)
	if err != nil || !withdrew {
		return out, err
	}
	if place, _, err = tx.find(id, st.Claim); err != nil { // it may be among them
		return out, err
	}
	out.Delivery = place.d
	out.Summary, err = tx.summaryOf(id.Notification)
	return out, err
}

// summaryOf is how a notification ended; "" while it is open.
func (tx *txn) summaryOf(id belfry.ID) (state belfry.State, err error) {
	_, err = tx.one(`SELECT state FROM ended WHERE id = $1`, []any{int64(id)}, &state)
	return state, err
}

// place is where a delivery stands.
type place struct {
	d      belfry.Delivery
	claim  belfry.ID // that holds it; 0: it waits, or is in the archive
	erased bool      // its recipient was deleted while it was on the wire
}

// find looks where a delivery can stand: in its claim, a waiting room, another claim, the archive. But for the
// first this needs the exclusive lock of its recipient. Only a claim can move it then, and only out of the
// waiting room: so that is looked at before the claims.
func (tx *txn) find(id belfry.DeliveryID, likely belfry.ID) (p place, found bool, err error) {
	if h := tx.claims[likely]; h != nil {
		if i := h.find(id.Notification, id.N); i >= 0 {
			return place{*h.items[i].Delivery, likely, h.items[i].erased}, true, nil
		}
	}
	var b *string
	var reason belfry.Reason
	found, err = tx.one(`SELECT body, reason FROM waiting WHERE id = $1 AND n = $2 FOR UPDATE`, []any{int64(id.Notification), id.N}, &b, &reason)
	if err != nil {
		return p, false, err
	}
	if found {
		d, err := waitingDelivery(b, reason)
		return place{d: *d}, true, err
	}
	claims, err := tx.load(claimsByItem, []int64{int64(id.Notification)})
	if err != nil {
		return p, false, err
	}
	for _, c := range claims {
		if h := tx.claims[c]; h != nil {
			if i := h.find(id.Notification, id.N); i >= 0 {
				return place{*h.items[i].Delivery, c, h.items[i].erased}, true, nil
			}
		}
	}
	var body string
	var payload []byte
	found, err = tx.one(`SELECT body, payload FROM delivery WHERE id = $1 AND n = $2`, []any{int64(id.Notification), id.N}, &body, &payload)
	if found {
		p.d, err = archivedDelivery(body, payload)
	}
	return p, found, err
}

// move takes a delivery from where it stands to where it belongs now.
func (tx *txn) move(n belfry.Notification, from place, d belfry.Delivery, now time.Time) error {
	switch {
	case from.claim != 0 && d.State == belfry.Sending: // stays where it is, changed
		h := tx.claims[from.claim]
		i := h.find(d.ID.Notification, d.ID.N)
		item, home, erased := h.items[i].Item, h.items[i].home, h.items[i].erased
		item.Delivery = &d
		c := h.without(i)
		c.items = append(c.items, newHeldItem(item, home, erased))
		tx.setClaim(from.claim, c)
		return nil
	case from.claim != 0:
		h := tx.claims[from.claim]
		tx.setClaim(from.claim, h.without(h.find(d.ID.Notification, d.ID.N)))
	case !from.d.State.Ended():
		if err := tx.exec(`DELETE FROM waiting WHERE id = $1 AND n = $2`, int64(d.ID.Notification), d.ID.N); err != nil {
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
	p := &tx.pending
	p.any = true
	if p.marks == nil {
		p.marks = map[markKey]markRow{}
	}
	k := markKey{n.Project, n.Recipient, n.Category, n.Subject}
	if old, ok := p.marks[k]; !ok || micros(at) > old.at {
		p.marks[k] = markRow{micros(at), text(data), int64(n.ID)}
	}
}

// judgeEndpoint lets an answer count for or against its endpoint, and says whether it withdrew something.
func (tx *txn) judgeEndpoint(st store.Settlement) (withdrew bool, err error) {
	id, n := st.Delivery.Endpoint, st.Notification
	if id == 0 {
		return false, nil
	}
	switch st.Answer.Outcome {
	case belfry.OutcomeAccepted:
		if st.Endpoint.Strikes > 0 {
			return false, tx.exec(`UPDATE endpoint SET strikes = 0 WHERE id = $1`, int64(id))
		}
	case belfry.OutcomeGone:
		var armedAt time.Time
		for _, a := range st.Delivery.Attempts {
			if a.Claim == st.Claim {
				armedAt = a.ArmedAt
			}
		}
		// A registration after the try was armed speaks for a token that the answer did not know.
		found, err := tx.endpoints(`e.id = $1 AND e.registered_at <= $2`, int64(id), micros(armedAt))
		if err != nil || len(found) == 0 {
			return false, err
		}
		if found[0].Active() {
			err := tx.exec(`UPDATE endpoint SET retired_at = $1, reason = $2 WHERE id = $3`, micros(st.Now), belfry.ReasonGone, int64(id))
			if err != nil {
				return false, err
			}
		}
		w, err := tx.withdraw(st.Now, n.Project, n.Recipient)
		return w.Withdrawn > 0, err
	}
	return false, nil
}
