package sqlite

import (
	"context"
	"fmt"
	"slices"
	"time"

	"belfry"
	"belfry/store"
)

func (s *Store) Arm(ctx context.Context, a store.Arm) ([]store.Armed, error) {
	if len(a.Steps) != len(a.Claim.Items) {
		return nil, fmt.Errorf("sqlite: arm: %d steps for %d items", len(a.Steps), len(a.Claim.Items))
	}
	urgent := slices.ContainsFunc(a.Claim.Items, func(it store.Item) bool { return it.Notification.Lane == belfry.Urgent })
	var armed []store.Armed
	var gone bool
	err := s.doRows(ctx, durable, len(a.Steps), urgent, func(tx *txn) (err error) {
		armed, gone, err = tx.arm(a)
		return err
	})
	if err == nil && gone {
		return nil, store.ErrGone
	}
	return armed, err
}

// arming is one call of Arm on its way.
type arming struct {
	store.Arm
	was   *held // as the claim was found
	now   *held // what stays in it: the armed
	armed []store.Armed
	done  []bool // items of was that a step dealt with
}

func (tx *txn) arm(a store.Arm) (armed []store.Armed, gone bool, err error) {
	was := tx.s.claims[a.Claim.ID]
	if was == nil || was.owner != a.Owner.ID {
		return nil, true, nil
	}
	facts, err := tx.factsNow(a.Claim.Items)
	if err != nil {
		return nil, false, err
	}
	g := &arming{Arm: a, was: was, done: make([]bool, len(was.items)), now: &held{owner: was.owner, lease: a.Owner.Lease, alone: was.alone, armed: true, items: make([]*heldItem, 0, len(was.items))}}
	for i, step := range a.Steps {
		if err := tx.step(g, i, step, facts[i]); err != nil {
			return nil, false, err
		}
	}
	for i, it := range was.items {
		if !g.done[i] {
			g.now.items = append(g.now.items, it) // armed before, by an earlier call
		}
	}
	tx.setClaim(a.Claim.ID, g.now)
	return g.armed, false, nil
}

// step carries out one step. An item that a cancel or a change of intent took out of the claim is skipped.
func (tx *txn) step(g *arming, i int, step store.Step, f belfry.Facts) error {
	item := g.Claim.Items[i]
	num := 0
	if item.Delivery != nil {
		num = item.Delivery.ID.N
	}
	at := g.was.find(item.Notification.ID, num)
	if at < 0 {
		return nil
	}
	held := g.was.items[at]
	if held.Delivery != nil && held.Delivery.Armed {
		return nil
	}
	g.done[at] = true
	if held.Delivery != nil {
		return tx.stepDelivery(g, i, step, f, *held.Delivery)
	}
	n := held.Notification
	switch {
	case step.End != nil:
		why := missedFor(*step.End, held.Wait.Reason)
		tx.detail(n.ID, 0, step.End.Detail, why, g.Now)
		return tx.endPlan(n, step.End.State, why, g.Now)
	case step.Wait != nil:
		return tx.waitAgain(held, stillPaused(*step.Wait, n, f, g.Now), g.Now)
	}
	return tx.plan(g, i, step, f, held)
}

// missedFor is the reason of an end: what kept it waiting, when it did not come to its turn in time.
func missedFor(e store.End, waits belfry.Reason) belfry.Reason {
	if e.State == belfry.Missed && e.Reason == belfry.ReasonDeadline && waits != "" {
		return waits
	}
	return e.Reason
}

// detail keeps what an end has to say beyond its reason.
func (tx *txn) detail(id belfry.ID, n int, detail string, reason belfry.Reason, now time.Time) {
	if detail == "" {
		return
	}
	tx.event(id, store.Event{At: now, N: n, Kind: store.EventEnded, Reason: reason, Detail: detail})
}

// stillPaused looks at a pause once more: one that was lifted since the worker saw it wakes nobody any more.
func stillPaused(u store.Until, n belfry.Notification, f belfry.Facts, now time.Time) store.Until {
	if u.Reason != belfry.ReasonPaused {
		return u
	}
	p := f.Paused(n, belfry.Delivery{}, nil, now)
	if p == nil {
		return store.Until{At: now}
	}
	u.At = p.Ends(n.Deadline)
	return u
}

// waitAgain puts a notification back: parked by a pause, put off by its recheck, or just given back.
func (tx *txn) waitAgain(it *heldItem, u store.Until, now time.Time) error {
	n, w := it.Notification, it.Wait
	w.Reason = u.Reason
	switch u.Reason {
	case belfry.ReasonPaused:
		tx.event(n.ID, store.Event{At: now, Kind: store.EventHeld, Reason: u.Reason, Until: u.At, Detail: u.Detail})
		return tx.park(n, it.home, u.At, nil, w)
	case belfry.ReasonCheck:
		w.Deferrals++
		tx.event(n.ID, store.Event{At: now, Kind: store.EventDeferred, Reason: u.Reason, Until: u.At, Detail: u.Detail})
	}
	if u.At.After(n.Deadline) {
		why := belfry.ReasonDeadline
		if u.Reason != "" {
			why = u.Reason
		}
		return tx.endPlan(n, belfry.Missed, why, now)
	}
	return tx.waitNotification(n, it.home, u.At, w)
}

// plan makes the deliveries of a notification and arms those that are to be sent now.
func (tx *txn) plan(g *arming, i int, step store.Step, f belfry.Facts, it *heldItem) error {
	n := it.Notification
	if f.Category != nil && f.Category.Cooldown > 0 {
		flies, err := tx.takeOff(n)
		if err != nil {
			return err
		}
		if !flies {
			w := it.Wait
			w.Reason = belfry.ReasonHeldByCooldown
			tx.event(n.ID, store.Event{At: g.Now, Kind: store.EventHeld, Reason: w.Reason, Until: n.Deadline})
			return tx.park(n, it.home, n.Deadline, nil, w)
		}
	}
	if len(step.Tries) == 0 {
		return fmt.Errorf("sqlite: arm: a step has neither an end, a wait nor a try")
	}
	if !step.Tries[0].Delivery.Sole {
		fan, err := tx.fanout(n.ID)
		if err != nil {
			return err
		}
		fan.Stage, fan.Next = step.Stage, f.Category != nil && f.Category.Route == belfry.RouteFirst && len(n.To) == 0
		for _, t := range step.Tries { // all are open until each is put where it belongs
			fan = fan.With(belfry.Delivery{ID: t.Delivery.ID, State: belfry.Pending})
		}
		if err := tx.setFanout(n.ID, fan); err != nil {
			return err
		}
	}
	for j, t := range step.Tries {
		d := t.Delivery
		if t.Send && !d.State.Ended() {
			d, _ = d.Take(g.Claim.ID, g.Now)
		}
		if err := tx.try(g, i, j, step, f, n, it.home, d); err != nil {
			return err
		}
	}
	return nil
}

// takeOff lets one notification about a subject be in flight in a category with a cooldown.
func (tx *txn) takeOff(n belfry.Notification) (bool, error) {
	var holder belfry.ID
	tx.flights = 2
	_, err := tx.one(`INSERT INTO flight (project, recipient, category, subject, id) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (project, recipient, category, subject) DO UPDATE SET id = id RETURNING id`, []any{n.Project, n.Recipient, n.Category, n.Subject, n.ID}, &holder)
	return holder == n.ID, err
}

// stepDelivery is [txn.step] for a delivery that was planned before.
func (tx *txn) stepDelivery(g *arming, i int, step store.Step, f belfry.Facts, d belfry.Delivery) error {
	n := g.Claim.Items[i].Notification
	ok := false
	switch {
	case step.End != nil:
		switch step.End.State {
		case belfry.Dropped:
			d, ok = d.Drop(g.Claim.ID, step.End.Reason)
		case belfry.Failed:
			d, ok = d.Fail(g.Claim.ID, step.End.Reason)
		case belfry.Missed:
			d, ok = d.Expire(g.Now, missedFor(*step.End, d.Reason))
		}
		if !ok {
			return fmt.Errorf("sqlite: arm: delivery %v cannot end as %s", d.ID, step.End.State)
		}
		tx.detail(n.ID, d.ID.N, step.End.Detail, step.End.Reason, g.Now)
		return tx.put(n, d, false, g.Now)
	case step.Wait != nil:
		if step.Wait.Reason == belfry.ReasonCheck {
			tx.event(n.ID, store.Event{At: g.Now, N: d.ID.N, Kind: store.EventDeferred, Reason: step.Wait.Reason, Until: step.Wait.At, Detail: step.Wait.Detail})
			d, _ = d.Defer(g.Claim.ID, step.Wait.At)
		} else {
			d, _ = d.Release(g.Claim.ID, step.Wait.At, step.Wait.Reason)
		}
		return tx.put(n, d, false, g.Now)
	}
	return tx.try(g, i, 0, step, f, n, d.Channel, d)
}

// try judges one delivery, held by the claim if it is to be sent, and puts it where it then belongs.
func (tx *txn) try(g *arming, i, j int, step store.Step, f belfry.Facts, n belfry.Notification, home string, d belfry.Delivery) error {
	t := step.Tries[j]
	tx.detail(n.ID, d.ID.N, t.Detail, t.Delivery.Reason, g.Now)
	var endpoint *belfry.Endpoint
	if t.Send && d.State == belfry.Sending {
		endpoint = f.EndpointOf(n, d)
		arming := belfry.Arming{
			Now: g.Now, Forbidden: f.Forbids(n, d, endpoint, g.Now), Pause: f.Paused(n, d, endpoint, g.Now),
			Cancel: d.Cancel, Checked: step.Checked, Payload: t.Payload,
		}
		if f.Category != nil {
			arming.Attempts = f.Category.Retry.Attempts
		}
		d, _ = d.Arm(g.Claim.ID, arming)
	} else if d.State == belfry.Sending {
		d, _ = d.Release(g.Claim.ID, g.Now, "")
	}
	result := store.Armed{Step: i, Try: j, Delivery: d}
	if endpoint != nil {
		result.Endpoint = *endpoint
	}
	g.armed = append(g.armed, result)
	if !d.Armed {
		return tx.put(n, d, false, g.Now)
	}
	g.now.add(store.Item{Notification: n, Delivery: &d, Due: d.Next}, home)
	return nil
}
