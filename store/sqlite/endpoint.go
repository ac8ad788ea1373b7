package sqlite

import (
	"context"
	"maps"
	"time"

	"belfry"
	"belfry/store"
)

func (s *Store) Register(ctx context.Context, now time.Time, project string, id belfry.ID, r belfry.Registration) (out store.Registered, err error) {
	err = s.do(ctx, durable, func(tx *txn) error {
		if _, ok, err := tx.recipient(project, r.Recipient); err != nil || !ok {
			return orNotFound(err, "recipient")
		}
		out, err = tx.register(now, project, id, r)
		return err
	})
	return out, err
}

func (tx *txn) register(now time.Time, project string, id belfry.ID, r belfry.Registration) (out store.Registered, err error) {
	medium := belfry.MediumOf(r.Channel)
	same, err := tx.endpoints(`e.project = ? AND e.recipient = ? AND e.channel = ? AND e.address = ? AND e.retired_at = 0`, project, r.Recipient, r.Channel, r.Address.Reveal())
	if err != nil {
		return out, err
	}
	// The device's old token, and the token's old owner, make room in this transaction.
	var leaving []belfry.Endpoint
	if r.Device != "" {
		old, err := tx.endpoints(`e.project = ? AND e.app = ? AND e.medium = ? AND e.device = ? AND e.retired_at = 0`, project, r.App, medium, r.Device)
		if err != nil {
			return out, err
		}
		leaving = append(leaving, old...)
	}
	if medium.Moves() {
		old, err := tx.endpoints(`e.project = ? AND e.channel = ? AND e.address = ? AND e.retired_at = 0 AND e.recipient <> ?`, project, r.Channel, r.Address.Reveal(), r.Recipient)
		if err != nil {
			return out, err
		}
		leaving = append(leaving, old...)
	}
	keys, err := keysColumn(r.Keys)
	if err != nil {
		return out, err
	}
	if len(same) > 0 {
		out.Endpoint = same[0]
		id = same[0].ID
	}
	gone := map[belfry.ID]bool{}
	for _, e := range leaving {
		if e.ID == id || gone[e.ID] {
			continue
		}
		gone[e.ID] = true
		out.Replaced = e.ID
		if err := tx.exec(`UPDATE endpoint SET retired_at = ?, reason = ? WHERE id = ?`, micros(now), belfry.ReasonEndpointReplaced, e.ID); err != nil {
			return out, err
		}
		tx.intent = true
	}
	if len(same) > 0 {
		was := same[0]
		tx.intent = tx.intent || r.App != was.App || r.Device != "" && r.Device != was.Device || len(r.Keys) > 0 && !maps.Equal(r.Keys, was.Keys)
		err = tx.exec(`UPDATE endpoint SET app = ?, device = iif(?2 = '', device, ?2), keys = coalesce(?3, keys), registered_at = ?4, last_seen = ?4, strikes = 0 WHERE id = ?5`,
			r.App, r.Device, keys, micros(now), id)
	} else {
		out.Created = true
		tx.intent = true
		err = tx.exec(`INSERT INTO endpoint (id, project, recipient, channel, medium, app, device, address, keys, moves, registered_at, last_seen, strikes, retired_at, reason)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0, '')`, id, project, r.Recipient, r.Channel, medium, r.App, r.Device, r.Address.Reveal(), keys, medium.Moves(), micros(now), micros(now))
	}
	if err != nil {
		return out, err
	}
	now1, err := tx.endpoints(`e.id = ?`, id)
	if err != nil {
		return out, err
	}
	out.Endpoint = now1[0]
	if tx.s == nil { // in a caller's transaction: what waits for a retired endpoint is dropped when it is armed
		return out, nil
	}
	for _, e := range leaving {
		if !gone[e.ID] {
			continue
		}
		delete(gone, e.ID) // it may leave on two grounds
		w, err := tx.handOn(now, e, out.Endpoint)
		if err != nil {
			return out, err
		}
		out.Withdrawn.Withdrawn += w.Withdrawn
		out.InFlight = append(out.InFlight, w.InFlight...)
	}
	return out, nil
}

func keysColumn(k belfry.Keys) (any, error) {
	if len(k) == 0 {
		return nil, nil
	}
	return body(plain(k))
}

// handOn withdraws what waits for a retired endpoint. A device's new token takes over: a successor is
// planned for each delivery that nobody can have got, in its own notification.
func (tx *txn) handOn(now time.Time, old, successor belfry.Endpoint) (out store.Withdrawn, err error) {
	waiting, err := tx.waitingFor(old)
	if err != nil {
		return out, err
	}
	for _, f := range waiting {
		why := belfry.ReasonEndpointReplaced
		if successor.Recipient != old.Recipient {
			why = belfry.ReasonEndpointRetired
		}
		d, ok := f.place.d.Withdraw(why)
		if !ok {
			out.InFlight = append(out.InFlight, d.ID)
			continue
		}
		out.Withdrawn++
		tx.event(f.n.ID, store.Event{At: now, N: d.ID.N, Kind: store.EventWithdrawn, Reason: why})
		if why == belfry.ReasonEndpointReplaced && d.State == belfry.Dropped {
			if d, err = tx.succeed(now, f.n, d, successor); err != nil {
				return out, err
			}
		}
		if err := tx.move(f.n, f.place, d, now); err != nil {
			return out, err
		}
	}
	return out, nil
}

// succeed plans the successor of a withdrawn delivery and returns that one as one of several.
func (tx *txn) succeed(now time.Time, n belfry.Notification, d belfry.Delivery, e belfry.Endpoint) (belfry.Delivery, error) {
	f, err := tx.fanout(n.ID)
	if err != nil {
		return d, err
	}
	var had int
	ok, err := tx.one(`SELECT 1 FROM (SELECT body FROM waiting WHERE id = ?1 AND n > 0 UNION ALL SELECT body FROM delivery WHERE id = ?1) WHERE body ->> 'endpoint' = ?2`,
		[]any{n.ID, e.ID.String()}, &had)
	if err != nil || ok || tx.s.holdsEndpoint(n.ID, e.ID) {
		return d, err // it has, or had, a delivery of its own
	}
	d.Sole = false
	s := belfry.Delivery{
		ID: belfry.DeliveryID{Notification: n.ID, N: max(f.Last(), d.ID.N) + 1}, State: belfry.Pending, Mode: d.Mode,
		Channel: e.Channel, Endpoint: e.ID, Device: e.Device, Next: now, Deadline: d.Deadline,
	}
	if err := tx.setFanout(n.ID, f.With(d).With(s)); err != nil {
		return d, err
	}
	return d, tx.waitDelivery(n, s)
}

func (s *Store) holdsEndpoint(id, endpoint belfry.ID) bool {
	for _, h := range s.claims {
		for _, it := range h.items {
			if it.Notification.ID == id && it.Delivery != nil && it.Delivery.Endpoint == endpoint {
				return true
			}
		}
	}
	return false
}

type waitingFor struct {
	n     belfry.Notification
	place place
}

// waitingFor lists the open deliveries to an endpoint.
func (tx *txn) waitingFor(e belfry.Endpoint) (out []waitingFor, err error) {
	ids, _, err := tx.open(store.Filter{Project: e.Project, Recipient: e.Recipient}, false, 1<<30)
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		n, _, err := tx.notification(id)
		if err != nil {
			return nil, err
		}
		pieces, err := tx.pieces(n)
		if err != nil {
			return nil, err
		}
		for _, p := range pieces {
			if p.delivery != nil && p.delivery.Endpoint == e.ID {
				out = append(out, waitingFor{n, place{d: *p.delivery, claim: p.claim}})
			}
		}
	}
	return out, nil
}

// endpoints reads those that match, oldest first.
func (tx *txn) endpoints(where string, args ...any) (out []belfry.Endpoint, err error) {
	err = tx.peekEach(`SELECT `+endpointColumns+` FROM endpoint e WHERE `+where+` ORDER BY e.id`, func(scan func(...any) error) error {
		var e belfry.Endpoint
		err := scanEndpoint(scan, &e)
		out = append(out, e)
		return err
	}, args...)
	return out, err
}

func (s *Store) Endpoints(ctx context.Context, project, recipient string) (out []belfry.Endpoint, err error) {
	err = s.view(ctx, func(tx *txn) error {
		if _, ok, err := tx.recipient(project, recipient); err != nil || !ok {
			return orNotFound(err, "recipient")
		}
		out, err = tx.endpoints(`e.project = ? AND e.recipient = ?`, project, recipient)
		return err
	})
	return out, err
}

func (s *Store) Retire(ctx context.Context, now time.Time, project, recipient string, id belfry.ID, why belfry.Reason) (out store.Withdrawn, err error) {
	err = s.do(ctx, durable, func(tx *txn) error {
		out = store.Withdrawn{}
		found, err := tx.endpoints(`e.id = ? AND e.project = ? AND e.recipient = ?`, id, project, recipient)
		if err != nil || len(found) == 0 {
			return orNotFound(err, "endpoint")
		}
		if !found[0].Active() {
			return nil
		}
		tx.intent = true
		if err := tx.exec(`UPDATE endpoint SET retired_at = ?, reason = ? WHERE id = ?`, micros(now), why, id); err != nil {
			return err
		}
		out, err = tx.withdraw(now, project, recipient)
		return err
	})
	return out, err
}

func (s *Store) Suppress(ctx context.Context, sup belfry.Suppression) (out store.Withdrawn, err error) {
	err = s.do(ctx, durable, func(tx *txn) error {
		tx.intent = true
		out = store.Withdrawn{}
		err := tx.exec(`INSERT INTO suppression (project, address, channel, reason, at) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (project, address, channel) DO UPDATE SET reason = excluded.reason`, sup.Project, sup.Address.Reveal(), sup.Channel, sup.Reason, micros(sup.At))
		if err != nil {
			return err
		}
		// Whoever has this address: its owners, and those that named it as a target.
		people := map[string]bool{}
		err = tx.each(`SELECT recipient FROM endpoint WHERE project = ?1 AND address = ?2 UNION
SELECT n.recipient FROM waiting w JOIN notification n ON n.id = w.id WHERE w.project = ?1 AND w.n > 0 AND instr(n.options, json_quote(?2)) > 0`,
			func(scan func(...any) error) error {
				var r string
				err := scan(&r)
				people[r] = true
				return err
			}, sup.Project, sup.Address.Reveal())
		if err != nil {
			return err
		}
		for _, h := range s.claims {
			for _, it := range h.items {
				if it.Delivery == nil { // judged when it is planned
					continue
				}
				for _, t := range it.Notification.To {
					if t.Address == sup.Address {
						people[it.Notification.Recipient] = true
					}
				}
			}
		}
		for r := range people {
			w, err := tx.withdraw(sup.At, sup.Project, r)
			if err != nil {
				return err
			}
			out.Withdrawn += w.Withdrawn
			out.InFlight = append(out.InFlight, w.InFlight...)
		}
		return nil
	})
	return out, err
}

func (s *Store) Unsuppress(ctx context.Context, project, channel string, address belfry.Secret) error {
	return s.do(ctx, durable, func(tx *txn) error {
		tx.intent = true
		gone, err := tx.change(`DELETE FROM suppression WHERE project = ? AND channel = ? AND address = ?`, project, channel, address.Reveal())
		if err == nil && gone == 0 {
			return orNotFound(nil, "suppression")
		}
		return err
	})
}

func (s *Store) Suppressions(ctx context.Context, project, after string, limit int) (out []belfry.Suppression, err error) {
	err = s.view(ctx, func(tx *txn) error {
		out = nil
		return tx.each(`SELECT channel, address, reason, at FROM suppression WHERE project = ? AND address > ? ORDER BY address, channel LIMIT ?`, func(scan func(...any) error) error {
			s := belfry.Suppression{Project: project}
			var address string
			var at int64
			err := scan(&s.Channel, &address, &s.Reason, &at)
			s.Address, s.At = belfry.Secret(address), instant(at)
			out = append(out, s)
			return err
		}, project, after, limit)
	})
	return out, err
}
