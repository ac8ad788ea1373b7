package storetest

import (
	"time"

	"belfry"
	"belfry/store"
)

// pause stops what a pause names, everything else being as it says.
func (w *worker) pause(change func(*belfry.Pause)) belfry.Pause {
	w.Helper()
	p := belfry.Pause{ID: w.id(), Project: shop, Reason: "stop", At: w.now}
	if change != nil {
		change(&p)
	}
	w.ok(w.PutPause(w.ctx, p))
	return p
}

func (w *worker) parkedHead(due time.Time) store.Head {
	return store.Head{Queue: store.Parked, Lane: belfry.Normal, Project: shop, Due: due}
}

var holds = cases{
	{"PauseParksAndLiftWakes", func(w *worker) {
		w.endpoint(ann, "email", "a@example.com")
		for name, queue := range map[string]string{"a notification": "", "a delivery": "email"} {
			id := w.tell()
			if queue == "email" {
				w.settle(w.sendOne(""), belfry.OutcomeNotSent)
				w.after(time.Minute)
			}
			deadline := w.story(id).Deadline
			p := w.pause(nil)
			w.is(len(w.send(queue)) == 0, "%s was sent in a pause", name)
			w.heads(w.parkedHead(deadline))
			w.is(w.happened(id, store.EventHeld) == 1, "the pause is not told: %s", tale(w.story(id)))
			w.is(w.story(id).Waits.Equal(deadline), "%s waits until %v, want its deadline %v", name, w.story(id).Waits, deadline)
			w.after(time.Minute)
			w.idle(queue)
			w.idle(store.Parked)
			w.ok(w.LiftPause(w.ctx, w.now, shop, p.ID))
			w.settle(w.sendOne(queue), belfry.OutcomeAccepted)
			w.stands(id, belfry.Sent, "")
			w.heads()
		}
	}},
	{"PauseIsSeenByArm", func(w *worker) {
		w.endpoint(ann, "email", "a@example.com")
		id := w.tell()
		a := w.prepare(w.claim(""))
		p := w.pause(func(p *belfry.Pause) { p.Channel = "email" })
		w.is(len(w.arm(a)) == 0, "armed in a pause")
		w.is(w.delivery(id, 1, belfry.Pending, belfry.ReasonPaused).Next.Equal(w.story(id).Deadline), "parked until another time than the deadline")
		w.is(w.happened(id, store.EventHeld) == 1, "the pause is not told: %s", tale(w.story(id)))
		w.ok(w.LiftPause(w.ctx, w.now, shop, p.ID))
		w.settle(w.sendOne("email"), belfry.OutcomeAccepted)
		w.stands(id, belfry.Sent, "")
	}},
	{"APauseLiftedBeforeArmParksNothing", func(w *worker) {
		w.endpoint(ann, "email", "a@example.com")
		id := w.tell()
		p := w.pause(nil)
		a := w.prepare(w.claim(""))
		w.ok(w.LiftPause(w.ctx, w.now, shop, p.ID))
		w.is(len(w.arm(a)) == 0, "armed by a worker that saw a pause")
		w.heads(store.Head{Queue: "", Lane: belfry.Normal, Project: shop, Due: w.now})
		w.is(w.happened(id, store.EventHeld) == 0, "it is told to be held by a pause that was lifted")
		w.settle(w.sendOne(""), belfry.OutcomeAccepted)
		w.stands(id, belfry.Sent, "")
	}},
	{"APauseEndsByItself", func(w *worker) {
		w.endpoint(ann, "email", "a@example.com")
		id := w.tell()
		end := w.now.Add(time.Minute)
		w.pause(func(p *belfry.Pause) { p.Until = end })
		w.send("")
		w.heads(w.parkedHead(end))
		w.after(time.Minute - time.Microsecond)
		w.idle(store.Parked)
		w.after(time.Microsecond)
		w.settle(w.sendOne(store.Parked), belfry.OutcomeAccepted)
		w.stands(id, belfry.Sent, "")
	}},
	{"ParkedExpiresByItsDeadline", func(w *worker) {
		w.endpoint(ann, "email", "a@example.com")
		planned := w.tell()
		w.settle(w.sendOne(""), belfry.OutcomeNotSent)
		unplanned := w.tell(due(w.now.Add(time.Minute)))
		w.pause(nil)
		w.after(time.Minute)
		w.send("")
		w.send("email")
		w.after(lifeTime + time.Second)
		w.drain(store.Parked)
		w.stands(planned, belfry.Missed, belfry.ReasonPaused)
		w.stands(unplanned, belfry.Missed, belfry.ReasonPaused)
	}},
	{"AnotherPauseStillHolds", func(w *worker) {
		w.endpoint(ann, "email", "a@example.com")
		id := w.tell()
		all, one := w.pause(nil), w.pause(func(p *belfry.Pause) { p.Category = news })
		w.send("")
		w.ok(w.LiftPause(w.ctx, w.now, shop, all.ID))
		w.drain("")
		w.stands(id, belfry.Scheduled, "")
		w.ok(w.LiftPause(w.ctx, w.now, shop, one.ID))
		w.sendOne("")
	}},
	{"APauseOfEverythingHoldsEveryProject", func(w *worker) {
		w.endpoint(ann, "email", "a@example.com")
		w.tell()
		p := w.pause(func(p *belfry.Pause) { p.Project = "" })
		w.is(len(w.send("")) == 0, "sent in a pause of everything")
		w.refused(w.LiftPause(w.ctx, w.now, shop, p.ID), belfry.CodeNotFound)
		w.ok(w.LiftPause(w.ctx, w.now, "", p.ID))
		w.sendOne("")
	}},
	{"PausesAreKept", func(w *worker) {
		here := w.pause(func(p *belfry.Pause) { p.Channel, p.App, p.Until = "push", "ios", w.now.Add(time.Hour) })
		everywhere := w.pause(func(p *belfry.Pause) { p.Project, p.Category = "", "sales" })
		w.pause(func(p *belfry.Pause) { p.Project = "other" })
		got, err := w.Pauses(w.ctx, shop)
		w.ok(err)
		w.same(sortedPauses(got), []belfry.Pause{here, everywhere}, "pauses of the shop")
		got, err = w.Pauses(w.ctx, "")
		w.ok(err)
		w.same(got, []belfry.Pause{everywhere}, "pauses of everything")
		w.refused(w.LiftPause(w.ctx, w.now, "other", here.ID), belfry.CodeNotFound)
		w.ok(w.LiftPause(w.ctx, w.now, shop, here.ID))
		w.refused(w.LiftPause(w.ctx, w.now, shop, here.ID), belfry.CodeNotFound)
	}},
	{"CooldownHoldsTheNext", func(w *worker) {
		w.cooling()
		first := w.sendOneOf(w.tell())
		second := w.tell()
		w.is(len(w.send("")) == 0, "two notifications about a subject are in flight")
		w.stands(second, belfry.Scheduled, "")
		w.heads(w.parkedHead(w.story(second).Deadline))
		w.is(w.happened(second, store.EventHeld) == 1, "the hold is not told: %s", tale(w.story(second)))
		w.after(time.Second)
		w.settle(first, belfry.OutcomeNotSent)
		w.idle("")
		w.after(time.Minute)
		first = w.sendOne("email")
		w.settle(first, belfry.OutcomeAccepted)
		w.drain("")
		w.stands(second, belfry.Dropped, belfry.ReasonCooldown)
	}},
	{"CooldownIsFreeAfterADrop", func(w *worker) {
		w.cooling()
		first := w.sendOneOf(w.tell())
		second := w.tell()
		w.send("")
		w.after(time.Second)
		w.settle(first, belfry.OutcomeRefused)
		w.heads(store.Head{Queue: "", Lane: belfry.Normal, Project: shop, Due: w.now})
		w.sendOneOf(second)
	}},
	{"WhatIsPlannedIsInFlight", func(w *worker) {
		w.cooling()
		first := w.tell()
		a := w.prepare(w.claim(""))
		a.Steps[0].Tries[0].Send = false
		w.arm(a)
		second := w.tell()
		w.is(len(w.send("")) == 0, "two notifications about a subject are in flight")
		w.stands(second, belfry.Scheduled, "")
		w.settle(w.sendOne("email"), belfry.OutcomeRefused)
		w.stands(first, belfry.Failed, belfry.ReasonRefused)
		w.sendOneOf(second)
	}},
	{"LiftLeavesWhatACooldownHolds", func(w *worker) {
		w.cooling()
		w.sendOneOf(w.tell())
		second := w.tell()
		w.send("")
		p := w.pause(nil)
		w.ok(w.LiftPause(w.ctx, w.now, shop, p.ID))
		w.idle("")
		w.heads(w.parkedHead(w.story(second).Deadline))
	}},
	{"CooldownHoldsOnlyTheSameSubject", func(w *worker) {
		w.cooling()
		w.recipient(bob)
		w.endpoint(bob, "email", "b@example.com")
		w.category("sales", func(c *belfry.Category) { c.Cooldown = belfry.Duration(time.Hour) })
		w.sendOneOf(w.tell())
		w.sendOneOf(w.tell(about("toaster")))
		w.sendOneOf(w.tell(to(bob)))
		w.sendOneOf(w.tell(of("sales")))
	}},
	{"HeldByCooldownExpiresByItsDeadline", func(w *worker) {
		w.cooling()
		w.sendOneOf(w.tell())
		second := w.tell()
		w.send("")
		w.after(lifeTime + time.Second)
		w.drain(store.Parked)
		w.stands(second, belfry.Missed, belfry.ReasonHeldByCooldown)
	}},
	{"CooldownEndsWithACancelOrALoss", func(w *worker) {
		w.cooling()
		w.category(news, func(c *belfry.Category) {
			c.Cooldown, c.Delivery = belfry.Duration(10*time.Minute), belfry.AtMostOnce
		})
		w.sendOneOf(w.tell())
		second := w.tell()
		w.send("")
		w.lose() // the first is unknown now: it may have arrived, but there is no mark
		t := w.sendOneOf(second)
		third := w.tell()
		w.send("")
		w.settle(t, belfry.OutcomeThrottled)
		w.cancel(second)
		w.sendOneOf(third)
	}},
	{"OwnDeliveriesDoNotHoldEachOther", func(w *worker) {
		w.cooling()
		w.endpoint(ann, "webpush", "token", "phone")
		id := w.tell()
		a := w.prepare(w.claim(""))
		a.Steps[0].Tries[0].Send = false
		c := a.Claim
		for _, t := range w.arm(a) {
			w.settle(wire{c.ID, t, c.Items[0]}, belfry.OutcomeAccepted)
		}
		w.settle(w.sendOne("email"), belfry.OutcomeAccepted)
		w.stands(id, belfry.Sent, "")
	}},
}

// cooling gives news a cooldown of an hour, and ann an address.
func (w *worker) cooling() {
	w.Helper()
	w.category(news, func(c *belfry.Category) { c.Cooldown = belfry.Duration(time.Hour) })
	w.endpoint(ann, "email", "a@example.com")
}

// sendOneOf sends what is due: exactly one try, of this notification, may leave.
func (w *worker) sendOneOf(id belfry.ID) wire {
	w.Helper()
	t := w.sendOne("")
	if t.Notification.ID != id {
		w.Fatalf("sent %v, want %v", t.Notification.ID, id)
	}
	return t
}
