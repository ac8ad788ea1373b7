package mapstore

import (
	"cmp"
	"context"
	"time"

	"belfry"
	"belfry/store"
)

func (s *Store) Arm(ctx context.Context, a store.Arm) (armed []store.Armed, err error) {
	if s.is(ArmJudgesAnOldSnapshot) {
		s.look(a)
	}
	err = s.tx(ctx, func() error {
		c, held := s.claims.get(a.Claim.ID)
		if !held && !s.is(ArmNeedsNoClaim) {
			return store.ErrGone
		}
		if c.lease.Before(a.Owner.Lease) && !s.is(ArmLeavesTheLease) {
			c.lease = a.Owner.Lease
		}
		if held {
			s.claims.put(c.id, c)
		}
		for i, step := range a.Steps {
			it := itemOf(a.Claim.Items[i])
			if p, ok := s.places.get(it); ok && p.claim == a.Claim.ID {
				s.carryOut(a, it, step)
			}
			for j, t := range step.Tries {
				armed = append(armed, s.armed(i, j, t))
			}
		}
		s.letGo(a.Claim.ID)
		return nil
	})
	return armed, err
}

func itemOf(i store.Item) item {
	if i.Delivery != nil {
		return item(i.Delivery.ID)
	}
	return item{i.Notification.ID, 0}
}

// armed tells where a try stands now: as it was given when it was not taken up.
func (s *Store) armed(step, try int, t store.Try) store.Armed {
	out := store.Armed{Step: step, Try: try, Delivery: t.Delivery}
	if d, ok := s.deliveries.get(t.Delivery.ID); ok {
		out.Delivery = d.Delivery
	}
	out.Endpoint, _ = s.endpointOf(out.Delivery)
	return out
}

// endpointOf is the endpoint of a delivery as it stands now, retired or not.
func (s *Store) endpointOf(d belfry.Delivery) (belfry.Endpoint, bool) {
	if d.Target == 0 {
		return s.endpoints.get(d.Endpoint)
	}
	r, _ := s.rows.get(d.ID.Notification)
	if e := (belfry.Facts{}).EndpointOf(r.Notification, d); e != nil {
		return *e, true
	}
	return belfry.Endpoint{}, false
}

// letGo forgets a claim that holds nothing any more.
func (s *Store) letGo(id belfry.ID) {
	for _, p := range s.places.rows {
		if p.claim == id {
			return
		}
	}
	s.claims.drop(id)
}

// carryOut does with one item what was prepared for it.
func (s *Store) carryOut(a store.Arm, it item, step store.Step) {
	r, _ := s.rows.get(it.Notification)
	switch {
	case step.End != nil:
		end := *step.End
		if end.State == belfry.Missed && end.Reason == belfry.ReasonDeadline {
			end.Reason = cmp.Or(s.waitsFor(it), end.Reason)
		}
		s.carryOutEnd(it, end, a.Claim.ID, a.Now)
	case step.Wait != nil:
		s.carryOutWait(it, *step.Wait, a.Claim.ID, a.Now)
	case it.N == 0 && !s.takeOff(r):
		r.wait.Reason = belfry.ReasonHeldByCooldown
		s.rows.put(r.ID, r)
		s.park(it, r.wait.Reason, r.Deadline, a.Now)
	case it.N == 0:
		category, known := s.category(r.Project, r.Category)
		r.planned, r.stage = true, step.Stage
		r.goesOn = known && category.Route == belfry.RouteFirst && (len(r.To) == 0 || s.is(TargetsAreTriedAgain)) && !step.Tries[0].Delivery.Sole
		s.rows.put(r.ID, r)
		s.places.drop(it)
		for _, t := range step.Tries {
			s.move(s.firstTry(a, r, step, t), a.Now)
		}
	default:
		for _, t := range step.Tries {
			s.nextTry(a, r, it, step, t)
		}
	}
	s.resolve(it.Notification, a.Now)
}

// waitsFor is what kept an item waiting past its due time, if anything did.
func (s *Store) waitsFor(it item) belfry.Reason {
	if it.N == 0 {
		r, _ := s.rows.get(it.Notification)
		return r.wait.Reason
	}
	d, _ := s.deliveries.get(belfry.DeliveryID(it))
	return d.Reason
}

// takeOff lets one notification about a subject be in flight, in a category with a cooldown: from its plan
// to its end.
func (s *Store) takeOff(r row) bool {
	if category, ok := s.category(r.Project, r.Category); !ok || category.Cooldown == 0 || s.is(CooldownLetsTwoFly) {
		return true
	}
	key := subjectOf(r.Notification)
	holder := s.flightOf(key)
	if holder == 0 {
		s.flights.put(key, r.ID)
	}
	return holder == 0 || holder == r.ID
}

// firstTry is a planned delivery after its first try was, or was not, armed.
func (s *Store) firstTry(a store.Arm, r row, step store.Step, t store.Try) belfry.Delivery {
	d := t.Delivery
	if d.State.Ended() {
		s.detail(d, t.Detail, a.Now)
		return d
	}
	if !t.Send {
		return d
	}
	if taken, ok := d.Take(a.Claim.ID, a.Now); ok {
		return s.armOne(a, r, step, t, taken)
	}
	return d
}

// nextTry moves on a delivery that waited.
func (s *Store) nextTry(a store.Arm, r row, it item, step store.Step, t store.Try) {
	d, _ := s.deliveries.get(belfry.DeliveryID(it))
	switch {
	case t.Delivery.State.Ended():
		s.carryOutEnd(it, store.End{State: t.Delivery.State, Reason: t.Delivery.Reason, Detail: t.Detail}, a.Claim.ID, a.Now)
	case !t.Send:
		s.giveBack(it, a.Now, "", a.Claim.ID, a.Now)
	default:
		s.move(s.armOne(a, r, step, t, d.Delivery), a.Now)
	}
}

// armOne judges a delivery that is held once more, and arms it or not.
func (s *Store) armOne(a store.Arm, r row, step store.Step, t store.Try, d belfry.Delivery) belfry.Delivery {
	f, old := s.old[r.ID]
	if !old {
		f = s.bearing(r.Notification)
	}
	e := f.EndpointOf(r.Notification, d)
	arming := belfry.Arming{
		Now: a.Now, Cancel: r.cancel || d.Cancel, Checked: step.Checked, Payload: t.Payload,
		Forbidden: f.Forbids(r.Notification, d, e, a.Now),
		Pause:     f.Paused(r.Notification, d, e, a.Now),
	}
	if f.Category != nil {
		arming.Attempts = f.Category.Retry.Attempts
	}
	s.spoil(&arming, r, d)
	if s.is(PayloadIsNotFrozen) {
		d.Frozen = false
	}
	d, _ = d.Arm(a.Claim.ID, arming)
	return d
}

// carryOutEnd ends an item whose worker found that it must not be sent. What the rules do not allow is
// given back.
func (s *Store) carryOutEnd(it item, end store.End, claim belfry.ID, now time.Time) {
	if it.N == 0 {
		s.endPlan(it.Notification, end.State, end.Reason, now)
		s.detail(belfry.Delivery{ID: belfry.DeliveryID(it), State: end.State, Reason: end.Reason}, end.Detail, now)
		return
	}
	d, _ := s.deliveries.get(belfry.DeliveryID(it))
	after, ok := d.Delivery, false
	switch end.State {
	case belfry.Dropped:
		after, ok = d.Drop(claim, end.Reason)
	case belfry.Failed:
		after, ok = d.Fail(claim, end.Reason)
	case belfry.Missed:
		after, ok = d.Expire(now, end.Reason)
	}
	if !ok {
		s.giveBack(it, d.Next, "", claim, now)
		return
	}
	s.move(after, now)
	s.detail(after, end.Detail, now)
}

// detail keeps what is worth keeping about an end.
func (s *Store) detail(d belfry.Delivery, text string, now time.Time) {
	if text != "" {
		s.event(d.ID.Notification, store.Event{At: now, N: d.ID.N, Kind: store.EventEnded, Reason: d.Reason, Detail: text})
	}
}

// carryOutWait puts an item back into a waiting room.
func (s *Store) carryOutWait(it item, w store.Until, claim belfry.ID, now time.Time) {
	if w.Reason == belfry.ReasonCheck {
		s.event(it.Notification, store.Event{At: now, N: it.N, Kind: store.EventDeferred, Reason: w.Reason, Until: w.At, Detail: w.Detail})
	}
	if it.N > 0 {
		s.giveBack(it, w.At, w.Reason, claim, now)
		return
	}
	r, _ := s.rows.get(it.Notification)
	if w.Reason == belfry.ReasonPaused && !s.is(ALiftedPauseStillParks) { // a pause that was lifted in between wakes nobody any more
		w = store.Until{At: now}
		if p := s.bearing(r.Notification).Paused(r.Notification, belfry.Delivery{}, nil, now); p != nil {
			w = store.Until{At: p.Ends(r.Deadline), Reason: belfry.ReasonPaused}
		}
	}
	if r.wait.Reason = w.Reason; w.Reason == belfry.ReasonCheck && !s.is(DeferralsAreNotCounted) {
		r.wait.Deferrals++
	}
	s.rows.put(r.ID, r)
	switch {
	case w.At.After(r.Deadline):
		s.endPlan(r.ID, belfry.Missed, cmp.Or(w.Reason, belfry.ReasonDeadline), now)
	case w.Reason == belfry.ReasonPaused:
		s.park(it, w.Reason, w.At, now)
	default:
		s.places.put(it, place{room: r.queue, due: w.At})
	}
}

// giveBack lets go of a delivery that is held unarmed.
func (s *Store) giveBack(it item, next time.Time, why belfry.Reason, claim belfry.ID, now time.Time) {
	d, _ := s.deliveries.get(belfry.DeliveryID(it))
	after, _ := d.Release(claim, next, why)
	if why == belfry.ReasonCheck {
		after, _ = d.Defer(claim, next)
	}
	s.move(after, now)
}
