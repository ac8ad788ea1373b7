package mapstore

import (
	"cmp"
	"context"
	"slices"
	"time"

	"belfry"
	"belfry/store"
)

// queued is an item that waits, with what puts it in order.
type queued struct {
	it item
	place
}

func compareItems(a, b item) int {
	return cmp.Or(cmp.Compare(a.Notification, b.Notification), cmp.Compare(a.N, b.N))
}

func inOrder(a, b queued) int { return cmp.Or(a.due.Compare(b.due), compareItems(a.it, b.it)) }

// waiting lists what waits in one head, the first due first.
func (s *Store) waiting(h store.Head) []queued {
	return s.standing(func(it item, p place) bool {
		r, _ := s.rows.get(it.Notification)
		lane := r.Lane == h.Lane || s.is(LanesAreMixed)
		return p.claim == 0 && p.room == h.Queue && lane && r.Project == h.Project
	})
}

// standing lists the items that keep accepts with their places, the first due first.
func (s *Store) standing(keep func(item, place) bool) []queued {
	var list []queued
	for it, p := range s.places.rows {
		if keep(it, p) {
			list = append(list, queued{it, p})
		}
	}
	slices.SortFunc(list, inOrder)
	return list
}

func (s *Store) Heads(ctx context.Context) (heads []store.Head, err error) {
	err = s.tx(ctx, func() error {
		first := map[store.Head]time.Time{}
		for it, p := range s.places.rows {
			if p.claim != 0 || p.room == store.Parked && s.is(ParkedNeverComesUp) {
				continue
			}
			r, _ := s.rows.get(it.Notification)
			h := store.Head{Queue: p.room, Lane: r.Lane, Project: r.Project}
			if due, ok := first[h]; !ok || p.due.Before(due) {
				first[h] = p.due
			}
		}
		for h, due := range first {
			h.Due = due
			heads = append(heads, h)
		}
		return nil
	})
	return heads, err
}

func (s *Store) Claim(ctx context.Context, now time.Time, owner store.Owner, takes []store.Take) (claims []store.Claim, err error) {
	err = s.tx(ctx, func() error {
		for _, t := range takes {
			if c := s.claim(now, owner, t); len(c.Items) > 0 {
				claims = append(claims, c)
			}
		}
		return nil
	})
	return claims, err
}

func (s *Store) claim(now time.Time, owner store.Owner, t store.Take) store.Claim {
	c := store.Claim{ID: t.Claim, Owner: owner.ID}
	for _, q := range s.waiting(store.Head{Queue: t.Queue, Lane: t.Lane, Project: t.Project}) {
		if len(c.Items) == t.Limit || c.Alone || q.due.After(now) && !s.is(ClaimTakesEarly) {
			break
		}
		if s.alone(q.it) {
			if len(c.Items) > 0 {
				break
			}
			c.Alone = !s.is(AloneIsForgotten)
		}
		c.Items = append(c.Items, s.take(q, c.ID, now))
	}
	if len(c.Items) > 0 {
		s.claims.put(c.ID, claim{c.ID, owner.ID, owner.Lease, c.Alone})
	}
	return c
}

func (s *Store) alone(it item) bool {
	if it.N == 0 {
		r, _ := s.rows.get(it.Notification)
		return r.wait.Alone
	}
	d, _ := s.deliveries.get(belfry.DeliveryID(it))
	return d.Alone
}

func (s *Store) take(q queued, claim belfry.ID, now time.Time) store.Item {
	r, _ := s.rows.get(q.it.Notification)
	taken := store.Item{Notification: r.Notification, Due: q.due, Wait: r.wait}
	if q.it.N > 0 {
		d, _ := s.deliveries.get(belfry.DeliveryID(q.it))
		d.Delivery, _ = d.Take(claim, now)
		taken.Delivery, taken.Wait = &d.Delivery, store.Wait{}
		if s.is(ClaimIsNotExclusive) {
			return taken
		}
		s.deliveries.put(d.ID, d)
	}
	if !s.is(ClaimIsNotExclusive) {
		q.claim = claim
		s.places.put(q.it, q.place)
	}
	return taken
}

func (s *Store) Facts(ctx context.Context, items []store.Item) (list []belfry.Facts, err error) {
	err = s.tx(ctx, func() error {
		for _, i := range items {
			list = append(list, s.bearing(i.Notification))
		}
		return nil
	})
	return list, err
}

// bearing reads everything stored that bears on a notification.
func (s *Store) bearing(n belfry.Notification) belfry.Facts {
	var f belfry.Facts
	if c, ok := s.category(n.Project, n.Category); ok {
		c = c.Resolved()
		f.Category = &c
	}
	if r, ok := s.recipients.get(named{n.Project, n.Recipient}); ok {
		f.Recipient = &r
	}
	f.Preferences, _ = s.preferences.get(named{n.Project, n.Recipient})
	f.Endpoints = s.endpoints.where(func(e belfry.Endpoint) bool {
		return e.Project == n.Project && e.Recipient == n.Recipient && e.Active()
	}, endpointOrder)
	f.Suppressed = s.suppressions.where(func(x belfry.Suppression) bool {
		touches := func(e belfry.Endpoint) bool { return x.AppliesTo(e.Channel, e.Address) }
		aims := func(t belfry.Target) bool { return x.AppliesTo(t.Channel, t.Address) }
		return x.Project == n.Project && (slices.ContainsFunc(f.Endpoints, touches) || slices.ContainsFunc(n.To, aims))
	}, suppressionOrder)
	f.Pauses = s.pauses.where(func(p belfry.Pause) bool { return p.Project == "" || p.Project == n.Project }, pauseOrder)
	if m, ok := s.marks.get(subjectOf(n)); ok {
		f.Mark = &m.Mark
	}
	return f
}

func endpointOrder(a, b belfry.Endpoint) int { return cmp.Compare(a.ID, b.ID) }
func pauseOrder(a, b belfry.Pause) int       { return cmp.Compare(a.ID, b.ID) }
func suppressionOrder(a, b belfry.Suppression) int {
	return cmp.Or(cmp.Compare(a.Address, b.Address), cmp.Compare(a.Channel, b.Channel))
}
