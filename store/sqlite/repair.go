package sqlite

import (
	"context"
	"time"

	"belfry"
	"belfry/store"
)

func (s *Store) Repair(ctx context.Context, now time.Time, policy func(project, category string) belfry.RetryPolicy, limit int) (store.Repaired, error) {
	var r store.Repaired
	err := s.doRows(ctx, durable, limit, false, func(tx *txn) error {
		r = store.Repaired{}
		for id, h := range s.claims {
			if r.Claims == limit {
				break
			}
			if !h.lease.Before(now) && !h.dead {
				continue
			}
			r.Claims++
			if err := tx.takeOver(now, id, h, policy, &r); err != nil {
				return err
			}
		}
		return nil
	})
	return r, err
}

// takeOver moves on what a lost claim held.
func (tx *txn) takeOver(now time.Time, id belfry.ID, h *held, policy func(project, category string) belfry.RetryPolicy, r *store.Repaired) error {
	tx.setClaim(id, nil)
	for _, it := range h.items {
		n := it.Notification
		lost := store.Event{At: now, Kind: store.EventLost}
		if it.Delivery == nil {
			tx.event(n.ID, lost)
			w := it.Wait
			if w.Alone = true; h.alone {
				w.Losses++
			}
			if w.Losses >= belfry.MaxLosses {
				r.Poison++
				if err := tx.endPlan(n, belfry.Failed, belfry.ReasonPoison, now); err != nil {
					return err
				}
				continue
			}
			r.Returned++
			if err := tx.waitNotification(n, it.home, now, w); err != nil {
				return err
			}
			continue
		}
		lost.N = it.Delivery.ID.N
		tx.event(n.ID, lost)
		p := policy(n.Project, n.Category)
		next := now
		if it.Delivery.Armed {
			r.Ambiguous++
			next = now.Add(p.Delay(len(it.Delivery.Attempts), 0, 0))
		}
		d, ok := it.Delivery.TakeOver(id, h.alone, p.Attempts, next)
		if !ok {
			continue
		}
		switch {
		case it.Delivery.Armed:
		case d.Reason == belfry.ReasonPoison:
			r.Poison++
		default:
			r.Returned++
		}
		if err := tx.put(n, d, false, now); err != nil {
			return err
		}
	}
	return nil
}
