package postgres

import (
	"context"
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
	home      *string // of what is parked: the queue it goes back to
	recipient *string // of deliveries and what is parked
	reason    belfry.Reason
	body      *string
}

func (tx *txn) wait(w waitingRow) {
	tx.pending.any = true
	tx.pending.waiting = append(tx.pending.waiting, w)
}

// waitNotification puts a notification that is to be planned into its waiting room.
func (tx *txn) waitNotification(n belfry.Notification, queue string, at time.Time, w store.Wait) error {
	reason := w.Reason
	w.Reason = ""
	b, err := waitBody(w)
	if err != nil {
		return err
	}
	tx.wait(waitingRow{queue: queue, lane: n.Lane, project: n.Project, due: at, id: n.ID, reason: reason, body: b})
	return nil
}

// deliveryBody is a delivery as the waiting rooms have it: its reason stands in a column of its own, where
// [txn.wake] can clear it.
func deliveryBody(d belfry.Delivery) *string {
	d.Reason = ""
	return text(appendDelivery(nil, &d))
}

// waitDelivery puts an open delivery into the waiting room of its channel.
func (tx *txn) waitDelivery(n belfry.Notification, d belfry.Delivery) error {
	tx.wait(waitingRow{
		queue: d.Channel, lane: n.Lane, project: n.Project, due: d.Next, id: d.ID.Notification, n: d.ID.N, recipient: &n.Recipient,
		reason: d.Reason, body: deliveryBody(d),
	})
	return nil
}

// park moves aside what a pause or a cooldown holds, until then.
func (tx *txn) park(n belfry.Notification, home string, until time.Time, d *belfry.Delivery, w store.Wait) (err error) {
	row := waitingRow{queue: store.Parked, lane: n.Lane, project: n.Project, due: until, id: n.ID, home: &home, recipient: &n.Recipient}
	if d == nil {
		row.reason, w.Reason = w.Reason, ""
		row.body, err = waitBody(w)
	} else {
		row.n, row.reason, row.body = d.ID.N, d.Reason, deliveryBody(*d)
	}
	tx.wait(row)
	return err
}

// waitingDelivery reads what deliveryBody wrote.
func waitingDelivery(b *string, reason belfry.Reason) (*belfry.Delivery, error) {
	d := new(belfry.Delivery)
	err := json.Unmarshal([]byte(*b), d)
	d.Reason = reason
	return d, err
}

func waitingWait(b *string, reason belfry.Reason) (w store.Wait, err error) {
	if b != nil {
		err = json.Unmarshal([]byte(*b), &w)
	}
	w.Reason = reason
	return w, err
}

func (s *Store) Heads(ctx context.Context) (heads []store.Head, err error) {
	err = s.view(ctx, func(tx *txn) error {
		heads, err = tx.heads()
		return err
	})
	return heads, err
}

// Each step is one seek in the primary key: to the first that waits in the next queue, lane and project.
const selectHeads = `WITH RECURSIVE head AS (
	(SELECT queue, lane, project, due_at FROM waiting ORDER BY queue, lane, project, due_at LIMIT 1)
	UNION ALL
	SELECT next.* FROM head, LATERAL (
		SELECT w.queue, w.lane, w.project, w.due_at FROM waiting w WHERE (w.queue, w.lane, w.project) > (head.queue, head.lane, head.project)
		ORDER BY w.queue, w.lane, w.project, w.due_at LIMIT 1) next
) SELECT queue, lane, project, due_at FROM head`

// heads hops through the waiting rooms from one queue, lane and project to the next.
func (tx *txn) heads() (heads []store.Head, err error) {
	err = tx.each(selectHeads, func(scan func(...any) error) error {
		var h store.Head
		var lane int
		var due int64
		err := scan(&h.Queue, &lane, &h.Project, &due)
		h.Lane, h.Due = belfry.Lanes[lane], instant(due)
		heads = append(heads, h)
		return err
	})
	return heads, err
}

func (s *Store) Claim(ctx context.Context, now time.Time, owner store.Owner, takes []store.Take) ([]store.Claim, error) {
	var claims []store.Claim
	err := s.do(ctx, lazy, func(tx *txn) error {
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

// The rows are named by where they are: a list of keys would be joined by reading all that wait. What
// another transaction holds is skipped, so that no claim waits for another.
const takeWaiting = `WITH taken AS (
	DELETE FROM waiting WHERE ctid = ANY (ARRAY(
		SELECT ctid FROM waiting WHERE queue = $1 AND lane = $2 AND project = $3 AND due_at <= $4
		ORDER BY due_at, id, n LIMIT $5 FOR UPDATE SKIP LOCKED))
	RETURNING due_at, id, n, home, recipient, reason, body
) SELECT t.due_at, t.n, t.home, t.recipient, t.reason, t.body, ` + notificationColumns + ` FROM taken t JOIN notification n ON n.id = t.id ORDER BY t.due_at, t.id, t.n`

// claim takes the first that are due, up to one that must be claimed alone. What was taken behind that one
// goes back.
func (tx *txn) claim(now time.Time, owner store.Owner, t store.Take) (store.Claim, error) {
	c := store.Claim{ID: t.Claim, Owner: owner.ID}
	h := &held{owner: owner.ID, lease: owner.Lease}
	full := false // a claim of its own ends it, and is not added to one
	err := tx.each(takeWaiting, func(scan func(...any) error) error {
		var item store.Item
		row := waitingRow{queue: t.Queue, lane: t.Lane, project: t.Project}
		var due int64
		err := scanNotification(scan, &item.Notification, &due, &row.n, &row.home, &row.recipient, &row.reason, &row.body)
		if err != nil {
			return err
		}
		row.due, row.id = instant(due), item.Notification.ID
		item.Due = row.due
		home := t.Queue
		if row.home != nil {
			home = *row.home
		}
		alone := false
		if row.n == 0 {
			item.Wait, err = waitingWait(row.body, row.reason)
			alone = item.Wait.Alone
		} else if item.Delivery, err = waitingDelivery(row.body, row.reason); err == nil {
			item.Delivery.Next = item.Due // when it was parked or put off, the row knows better
			alone = item.Delivery.Alone
		}
		if err != nil {
			return err
		}
		if full || alone && len(c.Items) > 0 {
			full = true
			tx.wait(row)
			return nil
		}
		full = alone
		if item.Delivery != nil {
			d, _ := item.Delivery.Take(c.ID, now)
			item.Delivery = &d
		}
		c.Alone = alone
		c.Items = append(c.Items, item)
		h.add(item, home)
		return nil
	}, t.Queue, laneRank(t.Lane), t.Project, micros(now), t.Limit)
	if err != nil || len(c.Items) == 0 {
		return c, err
	}
	h.alone = c.Alone
	tx.setClaim(c.ID, h)
	return c, nil
}
