package postgres

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"belfry"
	"belfry/store"
)

func (s *Store) Register(ctx context.Context, now time.Time, project string, id belfry.ID, r belfry.Registration) (out store.Registered, err error) {
	err = s.do(ctx, durable, func(tx *txn) error {
		if err := tx.takeRegistrations(project, []belfry.Registration{r}); err != nil {
			return err
		}
		if _, ok, err := tx.recipient(project, r.Recipient); err != nil || !ok {
			return orNotFound(err, "recipient")
		}
		out, err = tx.register(now, project, id, r)
		return err
	})
	return out, err
}

// leaving lists the active endpoints that make room for a registration: the device's old token, and the
// token's old owner.
func (tx *txn) leaving(project string, r belfry.Registration) (leaving []belfry.Endpoint, err error) {
	medium := belfry.MediumOf(r.Channel)
	if r.Device != "" {
		leaving, err = tx.endpoints(`e.project = $1 AND e.app = $2 AND e.medium = $3 AND e.device = $4 AND e.device <> '' AND e.retired_at = 0`, project, r.App, string(medium), r.Device)
		if err != nil {
			return nil, err
		}
	}
	if !medium.Moves() {
		return leaving, nil
	}
	old, err := tx.endpoints(`e.project = $1 AND e.channel = $2 AND e.address_key = $3 AND e.retired_at = 0 AND e.moves AND e.recipient <> $4`, project, r.Channel, half(r.Address.Reveal()), r.Recipient)
	leaving = append(leaving, old...)
	slices.SortFunc(leaving, func(a, b belfry.Endpoint) int { return cmp.Compare(a.ID, b.ID) })
	return slices.CompactFunc(leaving, func(a, b belfry.Endpoint) bool { return a.ID == b.ID }), err
}

// takeRegistrations takes the locks for registrations: those of whom they are for, and of whom they take an
// endpoint from. The latter are looked up first, and again by [txn.register] when nobody can change them.
func (tx *txn) takeRegistrations(project string, list []belfry.Registration) error {
	l := locks{}
	for _, r := range list {
		l.change(project, r.Recipient)
		old, err := tx.leaving(project, r)
		if err != nil {
			return err
		}
		for _, e := range old {
			l.change(project, e.Recipient)
		}
	}
	return tx.take(l)
}

func (tx *txn) register(now time.Time, project string, id belfry.ID, r belfry.Registration) (out store.Registered, err error) {
	medium := belfry.MediumOf(r.Channel)
	same, err := tx.endpoints(`e.project = $1 AND e.recipient = $2 AND e.channel = $3 AND e.address_key = $4 AND e.retired_at = 0`, project, r.Recipient, r.Channel, half(r.Address.Reveal()))
	if err != nil {
		return out, err
	}
	leaving, err := tx.leaving(project, r)
	if err != nil {
		return out, err
	}
	keys, err := keysColumn(r.Keys)
	if err != nil {
		return out, err
	}
	if len(same) > 0 {
		out.Endpoint = same[0]
		id = same[0].ID
	}
	var replaced []belfry.Endpoint
	for _, e := range leaving {
		if e.ID == id {
			continue
		}
		if !tx.locks.covers(project, e.Recipient) {
			return out, errAgain // it was registered in between
		}
		replaced = append(replaced, e)
		out.Replaced = e.ID
		if err := tx.exec(`UPDATE endpoint SET retired_at = $1, reason = $2 WHERE id = $3`, micros(now), belfry.ReasonEndpointReplaced, int64(e.ID)); err != nil {
			return out, err
		}
	}
	wrote := int64(1)
	if len(same) > 0 {
		err = tx.exec(`UPDATE endpoint SET app = $1, device = CASE WHEN $2 = '' THEN device ELSE $2 END, keys = coalesce($3, keys), registered_at = $4, last_seen = $4, strikes = 0 WHERE id = $5`,
			r.App, r.Device, keys, micros(now), int64(id))
	} else {
		out.Created = true
		wrote, err = tx.change(`INSERT INTO endpoint (id, project, recipient, channel, medium, app, device, address, address_key, keys, moves, registered_at, last_seen, strikes, retired_at, reason)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $12, 0, 0, '') ON CONFLICT DO NOTHING`, int64(id), project, r.Recipient, r.Channel, string(medium), r.App, r.Device,
			r.Address.Reveal(), half(r.Address.Reveal()), keys, medium.Moves(), micros(now))
	}
	if err != nil {
		return out, err
	}
	if wrote == 0 {
		return out, errAgain // the device or the token was registered in between
	}
	now1, err := tx.endpoints(`e.id = $1`, int64(id))
	if err != nil {
		return out, err
	}
	out.Endpoint = now1[0]
	if tx.s == nil { // in a caller's transaction: what waits for a retired endpoint is dropped when it is armed
		return out, nil
	}
	for _, e := range replaced {
		w, err := tx.handOn(now, e, out.Endpoint)
		if err != nil {
			return out, err
		}
		out.Withdrawn.Withdrawn += w.Withdrawn
		out.InFlight = append(out.InFlight, w.InFlight...)
	}
	return out, nil
}

func keysColumn(k belfry.Keys) (*string, error) {
	if len(k) == 0 {
		return nil, nil
	}
	b, err := body(plain(k))
	return &b, err
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
	had, err := tx.hasEndpoint(n.ID, e.ID)
	if err != nil || had {
		return d, err // it has, or had, a delivery of its own
	}
	d.Sole = false
	s := belfry.Delivery{
		ID: belfry.DeliveryID{Notification: n.ID, N: max(f.Last(), d.ID.N) + 1}, State: belfry.Pending, Mode: d.Mode,
		Channel: e.Channel, Endpoint: e.ID, Device: e.Device, Next: now, Deadline: d.Deadline,
	}
	tx.setFanout(n.ID, f.With(d).With(s))
	return d, tx.waitDelivery(n, s)
}

// hasEndpoint says that a notification has, or had, a delivery to an endpoint.
func (tx *txn) hasEndpoint(id, endpoint belfry.ID) (had bool, err error) {
	err = tx.each(`SELECT body FROM waiting WHERE id = $1 AND n > 0 UNION ALL SELECT body FROM delivery WHERE id = $1`, func(scan func(...any) error) error {
		var b string
		if err := scan(&b); err != nil {
			return err
		}
		var d belfry.Delivery
		err := json.Unmarshal([]byte(b), &d)
		had = had || d.Endpoint == endpoint
		return err
	}, int64(id))
	if err != nil || had {
		return had, err
	}
	claims, err := tx.load(claimsByItem, []int64{int64(id)})
	if err != nil {
		return false, err
	}
	for _, c := range claims {
		if h := tx.claims[c]; h != nil && slices.ContainsFunc(h.items, func(it *heldItem) bool {
			return it.Notification.ID == id && it.Delivery != nil && it.Delivery.Endpoint == endpoint
		}) {
			return true, nil
		}
	}
	return false, nil
}

type waitingFor struct {
	n     belfry.Notification
	place place
}

// waitingFor lists the open deliveries to an endpoint.
func (tx *txn) waitingFor(e belfry.Endpoint) (out []waitingFor, err error) {
	ids, _, err := tx.open(store.Filter{Project: e.Project, Recipient: e.Recipient}, true, 1<<30)
	if err != nil {
		return nil, err
	}
	open, err := tx.pieces(ids)
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		for _, p := range open[id].pieces {
			if p.delivery != nil && p.delivery.Endpoint == e.ID {
				out = append(out, waitingFor{open[id].n, place{d: *p.delivery, claim: p.claim}})
			}
		}
	}
	return out, nil
}

// endpoints reads those that match, oldest first.
func (tx *txn) endpoints(where string, args ...any) (out []belfry.Endpoint, err error) {
	err = tx.each(`SELECT `+endpointColumns+` FROM endpoint e WHERE `+where+` ORDER BY e.id`, func(scan func(...any) error) error {
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
		out, err = tx.endpoints(`e.project = $1 AND e.recipient = $2`, project, recipient)
		return err
	})
	return out, err
}

func (s *Store) Retire(ctx context.Context, now time.Time, project, recipient string, id belfry.ID, why belfry.Reason) (out store.Withdrawn, err error) {
	err = s.do(ctx, durable, func(tx *txn) error {
		out = store.Withdrawn{}
		l := locks{}
		l.change(project, recipient)
		if err := tx.take(l); err != nil {
			return err
		}
		found, err := tx.endpoints(`e.id = $1 AND e.project = $2 AND e.recipient = $3`, int64(id), project, recipient)
		if err != nil || len(found) == 0 {
			return orNotFound(err, "endpoint")
		}
		if !found[0].Active() {
			return nil
		}
		if err := tx.exec(`UPDATE endpoint SET retired_at = $1, reason = $2 WHERE id = $3`, micros(now), why, int64(id)); err != nil {
			return err
		}
		out, err = tx.withdraw(now, project, recipient)
		return err
	})
	return out, err
}

func (s *Store) Suppress(ctx context.Context, sup belfry.Suppression) (out store.Withdrawn, err error) {
	err = s.do(ctx, durable, func(tx *txn) error {
		out = store.Withdrawn{}
		if err := tx.takeProject(sup.Project); err != nil {
			return err
		}
		address := sup.Address.Reveal()
		err := tx.exec(`INSERT INTO suppression (project, address_key, channel, address, reason, at) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (project, address_key, channel) DO UPDATE SET reason = excluded.reason`, sup.Project, half(address), sup.Channel, address, sup.Reason, micros(sup.At))
		if err != nil {
			return err
		}
		// Whoever has this address: its owners, and those that named it as a target of what is under way.
		people := map[string]bool{}
		var ids []belfry.ID
		err = tx.each(`SELECT recipient FROM endpoint WHERE project = $1 AND address_key = $2`, func(scan func(...any) error) error {
			var r string
			err := scan(&r)
			people[r] = true
			return err
		}, sup.Project, half(address))
		if err != nil {
			return err
		}
		err = tx.each(`SELECT w.id FROM waiting w WHERE w.project = $1 AND w.recipient IS NOT NULL AND w.n > 0`, func(scan func(...any) error) error {
			var id belfry.ID
			err := scan(&id)
			ids = append(ids, id)
			return err
		}, sup.Project)
		if err != nil {
			return err
		}
		err = tx.each(`SELECT ids FROM claim WHERE people && $1::bigint[]`, func(scan func(...any) error) error {
			var held []int64
			err := scan(&held)
			for _, id := range held {
				ids = append(ids, belfry.ID(id))
			}
			return err
		}, []int64{hash(sup.Project)})
		if err != nil {
			return err
		}
		named := map[belfry.ID]string{}
		err = tx.each(`SELECT n.id, n.recipient, n.targets FROM notification n WHERE n.id = ANY ($1::bigint[]) AND n.project = $2 AND n.targets IS NOT NULL`,
			func(scan func(...any) error) error {
				var id belfry.ID
				var r string
				var targets *string
				if err := scan(&id, &r, &targets); err != nil {
					return err
				}
				o, err := decodeOptions(nil, targets)
				if slices.ContainsFunc(o.To, func(t belfry.Target) bool { return t.Address == sup.Address }) {
					named[id] = r
				}
				return err
			}, numbers(ids), sup.Project)
		if err != nil {
			return err
		}
		open, err := tx.pieces(slices.Sorted(maps.Keys(named))) // what a claim names may have left it
		if err != nil {
			return err
		}
		for id, o := range open {
			if slices.ContainsFunc(o.pieces, func(p piece) bool { return p.delivery != nil }) {
				people[named[id]] = true
			}
		}
		for _, r := range slices.Sorted(maps.Keys(people)) {
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
		if err := tx.takeProject(project); err != nil {
			return err
		}
		gone, err := tx.change(`DELETE FROM suppression WHERE project = $1 AND channel = $2 AND address_key = $3`, project, channel, half(address.Reveal()))
		if err == nil && gone == 0 {
			return orNotFound(nil, "suppression")
		}
		return err
	})
}

func (s *Store) Suppressions(ctx context.Context, project, after string, limit int) (out []belfry.Suppression, err error) {
	err = s.view(ctx, func(tx *txn) error {
		out = nil
		return tx.each(`SELECT channel, address, reason, at FROM suppression WHERE project = $1 AND address > $2 ORDER BY address, channel LIMIT $3`, func(scan func(...any) error) error {
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
