package mapstore

import (
	"cmp"
	"context"
	"time"

	"belfry"
	"belfry/store"
)

func (s *Store) Settle(ctx context.Context, list []store.Settlement) (settled []store.Settled, err error) {
	err = s.tx(ctx, func() error {
		for _, one := range list {
			settled = append(settled, s.settle(one))
		}
		return nil
	})
	return settled, err
}

func (s *Store) settle(one store.Settlement) store.Settled {
	id := one.Delivery.ID
	before, ok := s.deliveries.get(id)
	if !ok {
		return store.Settled{Delivery: one.Delivery, Late: true}
	}
	late := before.Claim != one.Claim || !before.Armed
	if late && s.is(LateWordIsLost) {
		return s.settled(id, late)
	}
	d := before.Delivery
	if late && s.is(SettleNeedsNoClaim) {
		d.State, d.Claim, d.Armed = belfry.Sending, one.Claim, true
	}
	after, ok := d.Settle(one.Claim, one.Answer, belfry.Settling{Now: one.Now, Policy: one.Policy, Jitter: one.Jitter, Cancel: d.Cancel})
	if !ok {
		return s.settled(id, true)
	}
	if after.State == before.State && after.Claim == before.Claim {
		before.Delivery = after // evidence that moves nothing
		s.deliveries.put(id, before)
	} else {
		s.move(after, one.Now)
	}
	if late {
		s.event(id.Notification, store.Event{At: one.Now, N: id.N, Kind: store.EventLateWord, Detail: string(one.Answer.Outcome)})
	}
	if before.State != belfry.Sent && after.State == belfry.Sent || s.is(MarkMovesOnFailure) {
		s.moveMark(after, one.MarkData)
	}
	s.learn(after, one)
	s.resolve(id.Notification, one.Now)
	s.letGo(one.Claim)
	return s.settled(id, late)
}

func (s *Store) settled(id belfry.DeliveryID, late bool) store.Settled {
	d, _ := s.deliveries.get(id)
	r, _ := s.rows.get(id.Notification)
	if s.is(SummaryIsTheDeliverys) && d.State.Ended() {
		r.state = d.State
	}
	return store.Settled{Delivery: d.Delivery, Late: late, Summary: r.state}
}

// moveMark remembers what was sent last, by the time that it was armed.
func (s *Store) moveMark(d belfry.Delivery, data []byte) {
	r, _ := s.rows.get(d.ID.Notification)
	key := subjectOf(r.Notification)
	old, marked := s.marks.get(key)
	if r.erased && !s.is(ErasureForgetsLateMarks) || marked && !d.SentAt().After(old.At) && !s.is(MarkMovesBack) {
		return
	}
	if data == nil {
		data = r.Data
	}
	if r.Sensitive {
		data = nil
	}
	s.marks.put(key, store.Mark{Category: r.Category, Subject: r.Subject, Mark: belfry.Mark{At: d.SentAt(), Data: data, Notification: r.ID}})
}

// learn draws from an answer what it says about the endpoint.
func (s *Store) learn(d belfry.Delivery, one store.Settlement) {
	e, ok := s.endpoints.get(d.Endpoint)
	if !ok || d.Target > 0 {
		return
	}
	switch one.Answer.Outcome {
	case belfry.OutcomeAccepted:
		e.Strikes = 0
		s.endpoints.put(e.ID, e)
	case belfry.OutcomeGone:
		for _, a := range d.Attempts {
			if a.Claim == one.Claim && (!e.RegisteredAt.After(a.ArmedAt) || s.is(GoneRetiresTheNewRegistration)) {
				s.retire(e, belfry.ReasonGone, one.Now)
				s.withdraw(one.Now, e.Project, e.Recipient)
			}
		}
	}
}

func (s *Store) Repair(ctx context.Context, now time.Time, policy func(project, category string) belfry.RetryPolicy, limit int) (done store.Repaired, err error) {
	err = s.tx(ctx, func() error {
		lost := s.claims.where(func(c claim) bool { return c.lease.Before(now) || s.is(RepairTakesTheLiving) },
			func(a, b claim) int { return cmp.Compare(a.id, b.id) })
		for _, c := range lost[:min(limit, len(lost))] {
			done.Claims++
			held := s.standing(func(_ item, p place) bool { return p.claim == c.id })
			s.claims.drop(c.id)
			for _, q := range held {
				s.takeOver(c, q, now, policy, &done)
			}
		}
		return nil
	})
	return done, err
}

// takeOver moves on one item of a claim that was lost.
func (s *Store) takeOver(c claim, q queued, now time.Time, policy func(project, category string) belfry.RetryPolicy, done *store.Repaired) {
	r, _ := s.rows.get(q.it.Notification)
	alone := c.alone || s.is(EveryLossCountsAsPoison)
	if q.it.N == 0 {
		s.event(r.ID, store.Event{At: now, Kind: store.EventLost})
		s.takeOverPlan(q, alone, now, done)
		return
	}
	d, _ := s.deliveries.get(belfry.DeliveryID(q.it))
	s.event(r.ID, store.Event{At: now, N: q.it.N, Kind: store.EventLost})
	retry, next := policy(r.Project, r.Category), now
	if s.is(RepairForgetsTheArm) {
		d.Armed = false
	}
	if d.Armed {
		next = now.Add(retry.Delay(len(d.Attempts), 0, 0))
	}
	after, _ := d.TakeOver(c.id, alone, retry.Attempts, next)
	switch {
	case d.Armed:
		done.Ambiguous++
	case after.Reason == belfry.ReasonPoison:
		done.Poison++
	default:
		done.Returned++
	}
	s.move(after, now)
	s.resolve(r.ID, now)
}

// takeOverPlan is what belfry.Delivery.TakeOver is for a delivery, for a notification to be planned.
func (s *Store) takeOverPlan(q queued, alone bool, now time.Time, done *store.Repaired) {
	r, _ := s.rows.get(q.it.Notification)
	r.wait.Alone = true
	if alone {
		r.wait.Losses++
	}
	s.rows.put(r.ID, r)
	if r.wait.Losses >= belfry.MaxLosses {
		done.Poison++
		s.endPlan(r.ID, belfry.Failed, belfry.ReasonPoison, now)
		return
	}
	done.Returned++
	s.places.put(q.it, place{room: r.queue, due: now})
}
