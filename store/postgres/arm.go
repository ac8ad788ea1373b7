package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"belfry"
	"belfry/store"
)

func (s *Store) Arm(ctx context.Context, a store.Arm) ([]store.Armed, error) {
	if len(a.Steps) != len(a.Claim.Items) {
		return nil, fmt.Errorf("postgres: arm: %d steps for %d items", len(a.Steps), len(a.Claim.Items))
	}
	out, err := s.arms.do(ctx, a, len(a.Steps))
	if err == nil && out.gone {
		return nil, store.ErrGone
	}
	return out.list, err
}

var errNoStep = errors.New("postgres: arm: a step has neither an end, a wait nor a try")

// armed is the answer to a call of Arm.
type armed struct {
	list []store.Armed
	gone bool // the claim was taken over
}

// arming is one call of Arm on its way.
type arming struct {
	store.Arm
	was   *held // as the claim was found
	now   *held // what stays in it: the armed
	armed []store.Armed
	done  map[*heldItem]bool // items of was that a step dealt with
}

// armAll arms the claims of several calls. The order is what makes it safe: first the exclusion, then the
// claims, and only then what speaks against a try.
func (s *Store) armAll(tx *txn, calls []*call[store.Arm, armed]) error {
	l, ids := locks{}, make([]belfry.ID, len(calls))
	for i, c := range calls {
		ids[i] = c.in.Claim.ID
		for _, it := range c.in.Claim.Items {
			l.touch(it.Notification.Project, it.Notification.Recipient)
		}
	}
	if err := tx.take(l); err != nil {
		return err
	}
	if _, err := tx.load(claimsByID, numbers(ids)); err != nil {
		return err
	}
	var items []store.Item
	var several []belfry.ID // that have, or may get, more than one delivery
	for _, c := range calls {
		was := tx.claims[c.in.Claim.ID]
		c.out = armed{gone: was == nil || was.owner != c.in.Owner.ID}
		if c.out.gone {
			continue
		}
		items = append(items, c.in.Claim.Items...)
		for i, step := range c.in.Steps {
			item := c.in.Claim.Items[i]
			if item.Delivery != nil && !item.Delivery.Sole || item.Delivery == nil && (len(step.Tries) == 0 || !step.Tries[0].Delivery.Sole) {
				several = append(several, item.Notification.ID)
			}
		}
	}
	facts, err := tx.facts(items)
	if err != nil {
		return err
	}
	if err := tx.loadFanouts(several); err != nil {
		return err
	}
	for _, c := range calls {
		if c.out.gone {
			continue
		}
		if c.out.list, err = tx.arm(c.in, facts[:len(c.in.Claim.Items)]); err != nil {
			return err
		}
		facts = facts[len(c.in.Claim.Items):]
	}
	return nil
}

func (tx *txn) arm(a store.Arm, facts []belfry.Facts) ([]store.Armed, error) {
	was := tx.claims[a.Claim.ID]
	if was == nil { // an earlier call of the group armed, and emptied, it
		return nil, nil
	}
	g := &arming{Arm: a, was: was, done: map[*heldItem]bool{}, now: &held{owner: was.owner, lease: a.Owner.Lease, alone: was.alone, armed: true}}
	at := make(map[belfry.DeliveryID]*heldItem, len(was.items))
	for _, it := range was.items {
		at[belfry.DeliveryID{Notification: it.Notification.ID, N: it.ordinal()}] = it
	}
	for i, step := range a.Steps {
		id := belfry.DeliveryID{Notification: a.Claim.Items[i].Notification.ID}
		if d := a.Claim.Items[i].Delivery; d != nil {
			id.N = d.ID.N
		}
		if err := tx.step(g, i, step, facts[i], at[id]); err != nil {
			return nil, err
		}
	}
	for _, it := range was.items {
		if !g.done[it] {
			g.now.items = append(g.now.items, it) // armed before, by an earlier call
		}
	}
	tx.setClaim(a.Claim.ID, g.now)
	return g.armed, nil
}

// step carries out one step. An item that a cancel or a change of intent took out of the claim is skipped.
func (tx *txn) step(g *arming, i int, step store.Step, f belfry.Facts, held *heldItem) error {
	if held == nil || held.Delivery != nil && held.Delivery.Armed {
		return nil
	}
	g.done[held] = true
	if held.Delivery != nil {
		return tx.stepDelivery(g, i, step, f, *held.Delivery)
	}
	n := g.Claim.Items[i].Notification
	switch {
	case step.End != nil:
		why := missedFor(*step.End, held.Wait.Reason)
		tx.detail(n.ID, 0, step.End.Detail, why, g.Now)
		return tx.endPlan(n, step.End.State, why, g.Now)
	case step.Wait != nil:
		return tx.waitAgain(n, held, stillPaused(*step.Wait, n, f, g.Now), g.Now)
	}
	return tx.plan(g, i, step, f, n, held)
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
func (tx *txn) waitAgain(n belfry.Notification, it *heldItem, u store.Until, now time.Time) error {
	w := it.Wait
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
func (tx *txn) plan(g *arming, i int, step store.Step, f belfry.Facts, n belfry.Notification, it *heldItem) error {
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
		return errNoStep
	}
	if !step.Tries[0].Delivery.Sole {
		fan, err := tx.fanout(n.ID)
		if err != nil {
			return err
		}
		fan.Stage, fan.Next = step.Stage, f.Category != nil && f.Category.Route == belfry.RouteFirst && len(n.To) == 0
		for _, t := range step.Tries {
			d := t.Delivery
			d.State, d.Reason = belfry.Pending, "" // those that ended in preparation end below, one by one
			fan = fan.With(d)
		}
		tx.setFanout(n.ID, fan)
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
	var holder int64
	_, err := tx.one(`INSERT INTO flight (project, recipient, category, subject, id) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (project, recipient, category, subject) DO UPDATE SET id = flight.id RETURNING id`, []any{n.Project, n.Recipient, n.Category, n.Subject, int64(n.ID)}, &holder)
	return holder == int64(n.ID), err
}

// stepDelivery is [txn.step] for a delivery that was planned before.
func (tx *txn) stepDelivery(g *arming, i int, step store.Step, f belfry.Facts, d belfry.Delivery) error {
	n := g.Claim.Items[i].Notification
	ok := false
	if len(step.Tries) > 0 && step.Tries[0].Delivery.State.Ended() { // in preparation
		t := step.Tries[0]
		step.End = &store.End{State: t.Delivery.State, Reason: t.Delivery.Reason, Detail: t.Detail}
	}
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
			d, _ = d.Release(g.Claim.ID, d.Next, "")
			return tx.put(n, d, false, g.Now)
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
	case len(step.Tries) == 0:
		return errNoStep
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
