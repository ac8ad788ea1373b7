package postgres

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"belfry"
	"belfry/store"
)

func (s *Store) Repair(ctx context.Context, now time.Time, policy func(project, category string) belfry.RetryPolicy, limit int) (store.Repaired, error) {
	var lost []belfry.ID
	err := s.view(ctx, func(tx *txn) error {
		lost = nil
		return tx.each(`SELECT id FROM claim WHERE lease_until < $1 ORDER BY lease_until, id LIMIT $2`, func(scan func(...any) error) error {
			var id belfry.ID
			err := scan(&id)
			lost = append(lost, id)
			return err
		}, micros(now), limit)
	})
	var r store.Repaired
	for _, id := range lost { // each in a transaction of its own: one that cannot be taken over keeps no other
		if err != nil {
			break
		}
		var one store.Repaired
		err = s.do(ctx, durable, func(tx *txn) (err error) {
			one, err = tx.repair(now, id, policy)
			return err
		})
		if err == nil {
			r.Claims, r.Returned, r.Ambiguous, r.Poison = r.Claims+one.Claims, r.Returned+one.Returned, r.Ambiguous+one.Ambiguous, r.Poison+one.Poison
		}
	}
	return r, err
}

// repair takes over one claim, if it is still lost. Whom it bears on is read before it is locked: the items
// of a claim only become fewer.
func (tx *txn) repair(now time.Time, id belfry.ID, policy func(project, category string) belfry.RetryPolicy) (r store.Repaired, err error) {
	l := locks{}
	err = tx.peekEach(`SELECT items FROM claim WHERE id = $1`, func(scan func(...any) error) error {
		var items string
		if err := scan(&items); err != nil {
			return err
		}
		var rows []itemRow
		err := json.Unmarshal([]byte(items), &rows)
		for _, row := range rows {
			l.touch(row.Project, row.Recipient)
		}
		return err
	}, int64(id))
	if err != nil {
		return r, err
	}
	if err := tx.take(l); err != nil {
		return r, err
	}
	if _, err := tx.load(claimsByID, []int64{int64(id)}); err != nil {
		return r, err
	}
	h := tx.claims[id]
	if h == nil || !h.lease.Before(now) {
		return r, nil
	}
	r.Claims = 1
	return r, tx.takeOver(now, id, h, policy, &r)
}

// takeOver moves on what a lost claim held.
func (tx *txn) takeOver(now time.Time, id belfry.ID, h *held, policy func(project, category string) belfry.RetryPolicy, r *store.Repaired) error {
	tx.setClaim(id, nil)
	ids := make([]belfry.ID, len(h.items))
	for i, it := range h.items {
		ids[i] = it.Notification.ID
	}
	notifications, err := tx.notifications(ids)
	if err != nil {
		return err
	}
	slices.Sort(ids)
	if err := tx.loadFanouts(slices.Compact(ids)); err != nil {
		return err
	}
	for _, it := range h.items {
		n, ok := notifications[it.Notification.ID]
		if !ok {
			continue
		}
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
