package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"time"

	"belfry"
	"belfry/store"
)

// waitingRow is a row of the waiting rooms.
type waitingRow struct {
	queue     string
	lane      belfry.Lane
	project   string
	due       time.Time
	id        belfry.ID
	n         int
	home      any // of what is parked: the queue it goes back to
	recipient any // of deliveries and what is parked
	body      any
}

func (tx *txn) wait(w waitingRow) {
	tx.add(intoWaiting, w.queue, laneRank(w.lane), w.project, micros(w.due), w.id, w.n, w.home, w.recipient, w.body)
}

// waitNotification puts a notification that is to be planned into its waiting room.
func (tx *txn) waitNotification(n belfry.Notification, queue string, at time.Time, w store.Wait) error {
	b, err := waitBody(w)
	if err != nil {
		return err
	}
	tx.wait(waitingRow{queue: queue, lane: n.Lane, project: n.Project, due: at, id: n.ID, body: b})
	return nil
}

// waitDelivery puts an open delivery into the waiting room of its channel.
func (tx *txn) waitDelivery(n belfry.Notification, d belfry.Delivery) error {
	tx.wait(waitingRow{
		queue: d.Channel, lane: n.Lane, project: n.Project, due: d.Next, id: d.ID.Notification, n: d.ID.N, recipient: n.Recipient,
		body: string(appendDelivery(nil, &d)),
	})
	return nil
}

// park moves aside what a pause or a cooldown holds, until then.
func (tx *txn) park(n belfry.Notification, home string, until time.Time, d *belfry.Delivery, w store.Wait) (err error) {
	row := waitingRow{queue: store.Parked, lane: n.Lane, project: n.Project, due: until, id: n.ID, home: home, recipient: n.Recipient}
	if d == nil {
		row.body, err = waitBody(w)
	} else {
		row.n, row.body = d.ID.N, string(appendDelivery(nil, d))
	}
	tx.wait(row)
	return err
}

func (s *Store) Heads(ctx context.Context) (heads []store.Head, err error) {
	err = s.view(ctx, func(tx *txn) error {
		heads, err = tx.heads()
		return err
	})
	return heads, err
}

// heads hops through the index from one (queue, lane, project) to the next. Each hop is a seek: a row
// value comparison over the three would read every row of the one it is to hop over.
func (tx *txn) heads() (heads []store.Head, err error) {
	const first = `SELECT queue, lane, project, due_at FROM waiting WHERE `
	queue, lane, project := "", -1, ""
	for {
		ok := false
		for _, hop := range []struct {
			where string
			args  []any
		}{
			{`queue = ?1 AND lane = ?2 AND project > ?3 ORDER BY project, due_at LIMIT 1`, []any{queue, lane, project}},
			{`queue = ?1 AND lane > ?2 ORDER BY lane, project, due_at LIMIT 1`, []any{queue, lane}},
			{`queue > ?1 ORDER BY queue, lane, project, due_at LIMIT 1`, []any{queue}},
		} {
			var due int64
			if ok, err = tx.one(first+hop.where, hop.args, &queue, &lane, &project, &due); err != nil {
				return nil, err
			}
			if ok {
				heads = append(heads, store.Head{Queue: queue, Lane: belfry.Lanes[lane], Project: project, Due: instant(due)})
				break
			}
		}
		if !ok {
			return heads, nil
		}
	}
}

func (s *Store) Claim(ctx context.Context, now time.Time, owner store.Owner, takes []store.Take) ([]store.Claim, error) {
	var claims []store.Claim
	rows, urgent := 0, false
	for _, t := range takes {
		rows += t.Limit
		urgent = urgent || t.Lane == belfry.Urgent
	}
	err := s.doRows(ctx, lazy, rows, urgent, func(tx *txn) error {
		claims = claims[:0]
		for _, t := range takes {
			c, err := tx.claim(now, owner, t)
			if err != nil {
				return err
			}
			if len(c.Items) > 0 {
				claims = append(claims, c)
			}
		}
		return nil
	})
	return claims, err
}

// claim takes the first that are due, up to one that must be claimed alone.
func (tx *txn) claim(now time.Time, owner store.Owner, t store.Take) (store.Claim, error) {
	c := store.Claim{ID: t.Claim, Owner: owner.ID}
	h := &held{owner: owner.ID, lease: owner.Lease}
	var last waitingRow
	full := false // a claim of its own ends it, and is not added to one
	err := tx.each(`SELECT w.due_at, w.n, w.home, w.body, `+notificationColumns+` FROM waiting w JOIN notification n ON n.id = w.id
WHERE w.queue = ? AND w.lane = ? AND w.project = ? AND w.due_at <= ? ORDER BY w.due_at, w.id, w.n LIMIT ?`,
		func(scan func(...any) error) error {
			if full {
				return nil
			}
			var item store.Item
			var due int64
			var num int
			var home, b sql.NullString
			if err := scanNotification(scan, &item.Notification, &due, &num, &home, &b); err != nil {
				return err
			}
			item.Due = instant(due)
			queue := t.Queue
			if home.Valid {
				queue = home.String
			}
			alone := false
			if num == 0 {
				if b.Valid {
					if err := json.Unmarshal([]byte(b.String), &item.Wait); err != nil {
						return err
					}
				}
				alone = item.Wait.Alone
			} else {
				item.Delivery = new(belfry.Delivery)
				if err := json.Unmarshal([]byte(b.String), item.Delivery); err != nil {
					return err
				}
				item.Delivery.Next = item.Due // when it was parked or put off, the row knows better
				alone = item.Delivery.Alone
			}
			if full = alone; full && len(c.Items) > 0 {
				return nil
			}
			if item.Delivery != nil {
				d, _ := item.Delivery.Take(c.ID, now)
				item.Delivery = &d
			}
			c.Alone = alone
			last = waitingRow{due: item.Due, id: item.Notification.ID, n: num}
			c.Items = append(c.Items, item)
			h.add(item, queue)
			return nil
		}, t.Queue, laneRank(t.Lane), t.Project, micros(now), t.Limit)
	if err != nil || len(c.Items) == 0 {
		return c, err
	}
	err = tx.exec(`DELETE FROM waiting WHERE queue = ? AND lane = ? AND project = ? AND (due_at, id, n) <= (?, ?, ?)`,
		t.Queue, laneRank(t.Lane), t.Project, micros(last.due), last.id, last.n)
	if err != nil {
		return c, err
	}
	h.alone = c.Alone
	tx.setClaim(c.ID, h)
	return c, nil
}
