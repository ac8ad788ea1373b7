package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"belfry"
	"belfry/channel"
	"belfry/store"
)

// preparation carries one claim from the waiting room to the wire: facts, plan, recheck, payloads, arm.
type preparation struct {
	e     *Engine
	claim store.Claim
	queue string
	lane  belfry.Lane
	slots map[string]int // held, by pool
	spare int            // of those that came with the claim: not promised to a try yet
	facts []belfry.Facts
	steps []store.Step
	fresh []belfry.Verdict // of the recheck, by item
}

// run prepares, arms and starts the sends. Slots that no send took are given back. When ctx ends before it
// arms, the claim is given back.
func (p *preparation) run(ctx context.Context) {
	defer p.giveBack()
	defer func() {
		if r := recover(); r != nil {
			// The claim stays in the store and is taken over when its lease ends: three such losses,
			// alone, are poison. To give it back here would try it again at once, for ever.
			p.e.log.Error("a claim could not be prepared", "claim", p.claim.ID, "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
			p.e.abandon(p.claim)
		}
	}()
	switch err := p.prepare(ctx); {
	case ctx.Err() != nil:
		p.release(p.e.now())
	case err != nil:
		p.e.log.Warn("a claim is given back", "claim", p.claim.ID, "items", len(p.claim.Items), "err", err)
		p.release(p.e.now().Add(time.Second))
	}
	p.arm(context.WithoutCancel(ctx))
}

func (p *preparation) giveBack() {
	for pool, n := range p.slots {
		if n != 0 {
			p.e.slots.give(pool, n)
		}
	}
	p.e.room(func(l belfry.Lane) bool { return l == p.lane })
}

// release turns every step into one that gives its item back.
func (p *preparation) release(at time.Time) {
	p.steps = make([]store.Step, len(p.claim.Items))
	for i := range p.steps {
		p.steps[i] = store.Step{Wait: &store.Until{At: at}}
	}
}

func (p *preparation) prepare(ctx context.Context) (err error) {
	if p.facts, err = p.e.store.Facts(ctx, p.claim.Items); err != nil {
		return err
	}
	now := p.e.now()
	p.steps = make([]store.Step, len(p.claim.Items))
	p.fresh = make([]belfry.Verdict, len(p.claim.Items))
	for i, item := range p.claim.Items {
		if item.Delivery == nil {
			p.plan(i, item, now)
		} else {
			p.again(i, item, now)
		}
	}
	p.recheck(ctx)
	for i := range p.steps {
		p.encode(i)
	}
	return nil
}

// plan decides where a notification goes.
func (p *preparation) plan(i int, item store.Item, now time.Time) {
	n := item.Notification
	planned := belfry.Plan(n, p.facts[i], item.Wait.Stage, item.Wait.From, p.e.names, now)
	switch planned.State {
	case belfry.Scheduled:
		p.steps[i].Wait = &store.Until{At: planned.Hold, Reason: planned.Reason}
	case belfry.Sending:
		p.steps[i].Stage = planned.Stage
		for _, d := range planned.Deliveries {
			p.steps[i].Tries = append(p.steps[i].Tries, store.Try{Delivery: d, Send: p.slot(d.Channel)})
		}
	default:
		if planned.Reason == belfry.ReasonChannelGone {
			p.steps[i].Wait = &store.Until{At: now.Add(foreign), Reason: planned.Reason}
			return
		}
		if planned.Reason == belfry.ReasonDeadline && item.Wait.Reason != "" {
			planned.Reason = item.Wait.Reason
		}
		p.steps[i].End = &store.End{State: planned.State, Reason: planned.Reason}
	}
}

// foreign is how long something waits for a channel that this engine does not have: another engine may, or
// this one after a change of its configuration. An engine ends nothing that it cannot handle.
const foreign = time.Minute

// again decides about a delivery that was planned before. What arm would refuse needs no recheck and no
// payload; arm says so itself.
func (p *preparation) again(i int, item store.Item, now time.Time) {
	d := *item.Delivery
	if p.e.channels[d.Channel] == nil {
		p.steps[i].Wait = &store.Until{At: now.Add(foreign), Reason: belfry.ReasonChannelGone}
		return
	}
	p.steps[i].Tries = []store.Try{{Delivery: d, Send: p.slot(d.Channel)}}
}

// slot takes a slot of a channel: one that came with the claim, or another that is free.
func (p *preparation) slot(channel string) bool {
	if p.queue == channel && p.spare > 0 {
		p.spare--
		return true
	}
	if p.e.slots.take(channel, p.lane, 1) == 0 {
		return false
	}
	p.slots[channel]++
	return true
}

// sends says that a step has a try that is to be sent now.
func sends(s store.Step) bool {
	for _, t := range s.Tries {
		if t.Send {
			return true
		}
	}
	return false
}

// encode makes the payloads of a step's tries. One that cannot be made fails its delivery.
func (p *preparation) encode(i int) {
	step, item := &p.steps[i], p.claim.Items[i]
	if !sends(*step) {
		return
	}
	n, now := item.Notification, p.e.now()
	text, err := p.e.texts.render(p.facts[i], n, p.fresh[i].Data)
	for j := range step.Tries {
		t := &step.Tries[j]
		if !t.Send || t.Delivery.Frozen {
			continue
		}
		wrong := err
		if wrong == nil {
			t.Payload, wrong = encodeSafely(p.e.channels[t.Delivery.Channel], channel.Message{
				Delivery: t.Delivery.ID, Category: n.Category, Subject: n.Subject, Created: n.CreatedAt, Content: text,
			})
		}
		if wrong == nil {
			continue
		}
		if item.Delivery != nil {
			*step = store.Step{End: &store.End{State: belfry.Failed, Reason: belfry.ReasonBadContent, Detail: wrong.Error()}}
			return
		}
		d, _ := t.Delivery.Take(p.claim.ID, now)
		t.Delivery, _ = d.Fail(p.claim.ID, belfry.ReasonBadContent)
		t.Detail = wrong.Error()
	}
}

// encodeSafely keeps a payload that a channel stumbles over from stopping the others of its claim.
func encodeSafely(c channel.Channel, m channel.Message) (b []byte, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%s: the payload cannot be made: %v", c.Name(), r)
		}
	}()
	return c.Encode(m)
}

// arm commits what was prepared and hands what may be sent to the wire.
func (p *preparation) arm(ctx context.Context) {
	var budget time.Duration
	for _, s := range p.steps {
		for _, t := range s.Tries {
			if c := p.e.channels[t.Delivery.Channel]; c != nil {
				budget = max(budget, c.Budget())
			}
		}
	}
	a := store.Arm{Claim: p.claim, Known: p.e.names, Steps: p.steps, Jitter: jitter()}
	armed, at, err := p.tryArm(ctx, a, budget)
	if err != nil {
		if errors.Is(err, store.ErrGone) {
			p.e.log.Warn("a claim was taken over before it was armed", "claim", p.claim.ID)
			return
		}
		// Whether the commit came through is not known: nothing may be sent. The claim is taken over
		// when its lease ends.
		p.e.log.Error("a claim could not be armed", "claim", p.claim.ID, "err", err)
		p.e.abandon(p.claim)
		return
	}
	for _, a := range armed {
		p.report(a)
		if !a.Delivery.Armed {
			continue
		}
		p.slots[a.Delivery.Channel]--
		s := sending{
			Settlement: store.Settlement{
				Claim: p.claim.ID, Notification: p.claim.Items[a.Step].Notification, Delivery: a.Delivery, Endpoint: a.Endpoint,
				MarkData: p.fresh[a.Step].Data,
			},
			lane: p.lane, due: p.claim.Items[a.Step].Due, armed: at,
		}
		if c := p.facts[a.Step].Category; c != nil {
			s.Policy = c.Retry
		}
		p.e.work.Go(func() { p.e.send(ctx, s) })
	}
	for i, s := range p.steps {
		if s.End != nil {
			p.e.observeEnd(p.claim.Items[i].Notification, s.End.State, s.End.Reason)
		}
	}
}

// tryArm arms, again while the store is busy: nothing was written then, and the lease allows for it. at is
// when the call that counts began, by the monotonic clock.
func (p *preparation) tryArm(ctx context.Context, a store.Arm, budget time.Duration) (armed []store.Armed, at time.Time, err error) {
	for {
		at = time.Now()
		a.Now, a.Owner = p.e.now(), p.e.lease(budget)
		armed, err = p.e.store.Arm(ctx, a)
		switch belfry.CodeOf(err) {
		case belfry.CodeBusy, belfry.CodeStoreFull:
			p.e.health.storeFailed(err)
			pause(time.Second / 10)
			continue
		}
		return armed, at, err
	}
}

// report tells of a try that came to its end, or back to the waiting room, in arming.
func (p *preparation) report(a store.Armed) {
	if d := a.Delivery; d.State.Ended() {
		p.e.observeEnd(p.claim.Items[a.Step].Notification, d.State, d.Reason)
	} else if !d.Armed {
		p.e.hint(d.Next)
	}
}

func pause(d time.Duration) { <-time.After(d) }
