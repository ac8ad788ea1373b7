package storetest

import (
	"errors"
	"time"

	"belfry"
	"belfry/store"
)

var arming = cases{
	{"ArmWritesTheAttemptDown", func(w *worker) {
		e := w.endpoint(ann, "email", "a@example.com")
		id := w.tell()
		c := w.claim("")
		armed := w.arm(w.prepare(c))
		if len(armed) != 1 {
			w.Fatalf("%d tries were armed, want 1", len(armed))
		}
		w.same(armed[0].Endpoint, e, "endpoint")
		d := armed[0].Delivery
		w.same(d.Attempts, []belfry.Attempt{{Claim: c.ID, ArmedAt: w.now}}, "attempts")
		w.same(w.delivery(id, 1, belfry.Sending, ""), d, "what is stored")
		w.same(d.Payload, payload, "payload")
		w.stands(id, belfry.Sending, "")
		w.heads()
	}},
	{"FanOutIsOneDeliveryPerEndpoint", func(w *worker) {
		w.endpoint(ann, "email", "a@example.com")
		w.endpoint(ann, "webpush", "token", "phone")
		id := w.tell()
		w.is(len(w.send("")) == 2, "not both endpoints were armed")
		for i, d := range w.story(id).Deliveries {
			w.is(d.ID == belfry.DeliveryID{Notification: id, N: i + 1}, "delivery %d has id %v", i+1, d.ID)
		}
	}},
	{"WhatHasNoRoomWaitsInTheQueueOfItsChannel", func(w *worker) {
		w.endpoint(ann, "email", "a@example.com")
		w.endpoint(ann, "webpush", "token", "phone")
		id := w.tell()
		a := w.prepare(w.claim(""))
		for i, t := range a.Steps[0].Tries {
			a.Steps[0].Tries[i].Send = t.Delivery.Channel == "webpush"
		}
		w.is(len(w.arm(a)) == 1, "what had no room was armed")
		w.stands(id, belfry.Sending, "")
		t := w.sendOne("email")
		w.is(t.Armed.Delivery.Channel == "email", "sent on %s", t.Armed.Delivery.Channel)
	}},
	{"ARetryWithoutRoomGoesBack", func(w *worker) {
		w.endpoint(ann, "email", "a@example.com")
		id := w.tell()
		w.settle(w.sendOne(""), belfry.OutcomeNotSent)
		w.after(time.Minute)
		a := w.prepare(w.claim("email"))
		a.Steps[0].Tries[0].Send = false
		w.is(len(w.arm(a)) == 0, "what had no room was armed")
		w.delivery(id, 1, belfry.Retry, "")
		w.sendOne("email")
	}},
	{"ArmJudgesOnceMore", func(w *worker) {
		for _, c := range []struct {
			name   string
			change func(e belfry.Endpoint)
			state  belfry.State
			reason belfry.Reason
		}{
			{"opted out", func(belfry.Endpoint) { w.switchTo(ann, news, "email", false) }, belfry.Dropped, belfry.ReasonOptedOut},
			{"suppressed", func(e belfry.Endpoint) { w.suppress(e) }, belfry.Dropped, belfry.ReasonSuppressed},
			{"retired", func(e belfry.Endpoint) { w.retire(e) }, belfry.Dropped, belfry.ReasonEndpointRetired},
			{"category gone", func(belfry.Endpoint) { w.ok(w.DeleteCategory(w.ctx, shop, news)) }, belfry.Dropped, belfry.ReasonCategoryGone},
			{"shadow", func(belfry.Endpoint) { w.category(news, func(c *belfry.Category) { c.Shadow = true }) }, belfry.Dropped, belfry.ReasonShadow},
			{"past its hour", func(belfry.Endpoint) { w.after(lifeTime + time.Microsecond) }, belfry.Missed, belfry.ReasonDeadline},
			{"in its hour", func(belfry.Endpoint) { w.after(lifeTime) }, belfry.Sending, ""},
			{"nothing at all", func(belfry.Endpoint) {}, belfry.Sending, ""},
		} {
			w.category(news, nil)
			w.switchTo(ann, news, "email", true)
			e := w.endpoint(ann, "email", c.name+"@example.com")
			id := w.tell()
			claim := w.claim("")
			a := w.prepare(claim)
			c.change(e)
			a.Now = w.now
			armed := w.arm(a)
			w.is((len(armed) == 1) == (c.state == belfry.Sending), "%s: %d tries were armed", c.name, len(armed))
			w.delivery(id, 1, c.state, c.reason)
			w.stands(id, c.state, c.reason)
			if w.retire(e); len(armed) == 1 {
				w.settle(wire{claim.ID, armed[0], claim.Items[0]}, belfry.OutcomeAccepted)
			}
		}
	}},
	{"ArmAsksForAFreshVerdict", func(w *worker) {
		w.endpoint(ann, "email", "a@example.com")
		id := w.tell()
		a := w.prepare(w.claim(""))
		a.Steps[0].Checked = w.now
		w.after(belfry.VerdictLife + time.Microsecond)
		a.Now = w.now
		w.is(len(w.arm(a)) == 0, "an old verdict was acted upon")
		w.delivery(id, 1, belfry.Pending, "")
		a = w.prepare(w.claim("email"))
		a.Steps[0].Checked = w.now
		w.after(belfry.VerdictLife)
		a.Now = w.now
		w.is(len(w.arm(a)) == 1, "a fresh verdict was not acted upon")
	}},
	{"ArmNeedsTheClaim", func(w *worker) {
		w.endpoint(ann, "email", "a@example.com")
		id := w.tell()
		a := w.prepare(w.claim(""))
		w.lose()
		a.Now, a.Owner = w.now, w.lease()
		_, err := w.Arm(w.ctx, a)
		w.is(errors.Is(err, store.ErrGone), "error %v, want ErrGone", err)
		w.is(len(w.story(id).Deliveries) == 0, "a lost claim made deliveries")
		w.sendOne("")
		_, err = w.Arm(w.ctx, a)
		w.is(errors.Is(err, store.ErrGone), "after another worker took it: error %v, want ErrGone", err)
		w.is(len(w.delivery(id, 1, belfry.Sending, "").Attempts) == 1, "it was armed twice")
	}},
	{"AClaimIsArmedOnce", func(w *worker) {
		w.endpoint(ann, "email", "a@example.com")
		id := w.tell()
		a := w.prepare(w.claim(""))
		w.arm(a)
		if out, err := w.Arm(w.ctx, a); err == nil {
			for _, t := range out {
				w.is(len(t.Delivery.Attempts) <= 1, "the second arm made another attempt")
			}
		}
		d := w.delivery(id, 1, belfry.Sending, "")
		w.is(d.Armed && len(d.Attempts) == 1, "after the second arm: armed %v, %d attempts", d.Armed, len(d.Attempts))
		w.is(len(w.story(id).Deliveries) == 1, "the second arm planned again")
	}},
	{"ArmExtendsTheLease", func(w *worker) {
		w.endpoint(ann, "email", "a@example.com")
		w.tell()
		a := w.prepare(w.claim(""))
		w.after(leaseTime / 2)
		a.Now, a.Owner = w.now, w.lease()
		w.arm(a)
		w.after(leaseTime)
		w.same(w.repair(), store.Repaired{}, "repaired within the lease of the arm")
		w.after(time.Microsecond)
		w.same(w.repair(), store.Repaired{Claims: 1, Ambiguous: 1}, "repaired after it")
	}},
	{"ThePayloadIsFrozenByDoubt", func(w *worker) {
		w.endpoint(ann, "email", "a@example.com")
		id := w.tell()
		again := func(outcome belfry.Outcome, fresh, want string) {
			w.after(time.Hour / 4)
			a := w.prepare(w.claim("email"))
			a.Steps[0].Tries[0].Payload = []byte(fresh)
			t := w.arm(a)[0]
			w.same(string(t.Delivery.Payload), want, "payload after "+string(outcome))
		}
		w.settle(w.sendOne(""), belfry.OutcomeNotSent)
		again(belfry.OutcomeNotSent, "fresh", "fresh")
		w.lose()
		again(belfry.OutcomeAmbiguous, "fresher", "fresh")
		w.delivery(id, 1, belfry.Sending, "")
	}},
	{"EndsWriteTheirReason", func(w *worker) {
		w.endpoint(ann, "email", "a@example.com")
		for _, end := range []store.End{
			{State: belfry.Dropped, Reason: "out_of_stock", Detail: "none left"},
			{State: belfry.Dropped, Reason: belfry.ReasonNoEndpoint},
			{State: belfry.Failed, Reason: belfry.ReasonBadContent},
			{State: belfry.Missed, Reason: belfry.ReasonDeadline},
		} {
			id := w.tell()
			w.armEnd("", end)
			w.stands(id, end.State, end.Reason)
			w.is(w.story(id).EndedAt.Equal(w.now), "ended at %v, want %v", w.story(id).EndedAt, w.now)
			w.is(w.happened(id, store.EventEnded) == len(end.Detail)/len("none left"), "detail %q: %s", end.Detail, tale(w.story(id)))

			id = w.tell()
			w.settle(w.sendOne(""), belfry.OutcomeThrottled)
			w.after(lifeTime + time.Second)
			w.armEnd("email", end)
			w.stands(id, end.State, end.Reason)
		}
	}},
	{"ATryThatEndedInPreparationIsKept", func(w *worker) {
		w.endpoint(ann, "email", "a@example.com")
		w.endpoint(ann, "webpush", "token", "phone")
		id := w.tell()
		c := w.claim("")
		a := w.prepare(c)
		t := &a.Steps[0].Tries[0]
		taken, _ := t.Delivery.Take(c.ID, w.now)
		t.Delivery, _ = taken.Fail(c.ID, belfry.ReasonBadContent)
		t.Detail = "no title"
		w.is(len(w.arm(a)) == 1, "the other try was not armed")
		w.delivery(id, 1, belfry.Failed, belfry.ReasonBadContent)
		w.delivery(id, 2, belfry.Sending, "")
		w.is(w.happened(id, store.EventEnded) == 1, "the detail is lost")
	}},
	{"AnEndOfWhatMayHaveArrivedIsUnknown", func(w *worker) {
		w.endpoint(ann, "email", "a@example.com")
		id := w.tell()
		w.settle(w.sendOne(""), belfry.OutcomeAmbiguous)
		w.after(time.Minute)
		w.armEnd("email", store.End{State: belfry.Dropped, Reason: belfry.ReasonConditionLost})
		w.stands(id, belfry.Unknown, belfry.ReasonConditionLost)
	}},
	{"ADeferredNotificationComesBack", func(w *worker) {
		id := w.tell()
		for n := range 3 {
			c := w.claim("")
			w.is(c.Items[0].Wait.Deferrals == n, "deferred %d times, want %d", c.Items[0].Wait.Deferrals, n)
			w.armWait(c, store.Until{At: w.now.Add(time.Minute), Reason: belfry.ReasonCheck, Detail: "later"})
			w.stands(id, belfry.Scheduled, "")
			w.after(time.Minute - time.Microsecond)
			w.idle("")
			w.after(time.Microsecond)
		}
		w.is(w.happened(id, store.EventDeferred) == 3, "deferrals told: %s", tale(w.story(id)))
		w.armWait(w.claim(""), store.Until{At: w.now.Add(lifeTime), Reason: belfry.ReasonCheck})
		w.stands(id, belfry.Missed, belfry.ReasonCheck)
	}},
	{"ADeferredDeliveryComesBack", func(w *worker) {
		w.endpoint(ann, "email", "a@example.com")
		id := w.tell()
		w.settle(w.sendOne(""), belfry.OutcomeNotSent)
		w.after(time.Minute)
		w.armWait(w.claim("email"), store.Until{At: w.now.Add(time.Minute), Reason: belfry.ReasonCheck})
		w.is(w.delivery(id, 1, belfry.Retry, belfry.ReasonCheck).Deferrals == 1, "the deferral was not counted")
		w.idle("email")
		w.after(time.Minute)
		w.armWait(w.claim("email"), store.Until{At: w.now.Add(lifeTime), Reason: belfry.ReasonCheck})
		w.stands(id, belfry.Missed, belfry.ReasonCheck)
	}},
	{"WhatIsGivenBackHasSpentNothing", func(w *worker) {
		w.endpoint(ann, "email", "a@example.com")
		id := w.tell()
		w.armWait(w.claim(""), store.Until{At: w.now})
		c := w.claim("")
		w.same(c.Items[0].Wait, store.Wait{}, "what it has behind it")
		w.settle(w.sendClaim(c)[0], belfry.OutcomeNotSent)
		w.after(time.Minute)
		w.armWait(w.claim("email"), store.Until{At: w.now})
		d := w.delivery(id, 1, belfry.Retry, "")
		w.is(d.Deferrals == 0 && d.Losses == 0 && !d.Alone && len(d.Attempts) == 1, "given back it is %+v", d)
		w.sendOne("email")
	}},
	{"ShadowNeverArms", func(w *worker) {
		w.endpoint(ann, "email", "a@example.com")
		w.category(news, func(c *belfry.Category) { c.Shadow = true })
		id := w.tell()
		w.is(len(w.send("")) == 0, "a notification of a shadow category was armed")
		w.stands(id, belfry.Dropped, belfry.ReasonShadow)
		w.is(len(w.marks(ann)) == 0, "shadow moved the mark")
	}},
	{"OptOutBeforeArmAlwaysWins", func(w *worker) {
		w.endpoint(ann, "email", "a@example.com")
		planned := w.tell()
		a := w.prepare(w.claim(""))
		w.switchTo(ann, "*", "*", false)
		w.is(len(w.arm(a)) == 0, "armed after the opt-out had returned")
		w.stands(planned, belfry.Dropped, belfry.ReasonOptedOut)
	}},
	{"StepsAreCarriedOutOneByOne", func(w *worker) {
		w.endpoint(ann, "email", "a@example.com")
		dropped, deferred, sent := w.tell(about("1")), w.tell(about("2")), w.tell(about("3"))
		a := w.prepare(w.claim(""))
		a.Steps[0] = store.Step{End: &store.End{State: belfry.Dropped, Reason: belfry.ReasonConditionLost}}
		a.Steps[1] = store.Step{Wait: &store.Until{At: w.now.Add(time.Minute), Reason: belfry.ReasonCheck}}
		armed := w.arm(a)
		w.is(len(armed) == 1 && armed[0].Step == 2 && armed[0].Try == 0, "armed %+v", armed)
		w.stands(dropped, belfry.Dropped, belfry.ReasonConditionLost)
		w.stands(deferred, belfry.Scheduled, "")
		w.stands(sent, belfry.Sending, "")
	}},
}

func (w *worker) suppress(e belfry.Endpoint) store.Withdrawn {
	w.Helper()
	out, err := w.Suppress(w.ctx, belfry.Suppression{Project: e.Project, Channel: e.Channel, Address: e.Address, Reason: "manual", At: w.now})
	w.ok(err)
	return out
}

func (w *worker) retire(e belfry.Endpoint) store.Withdrawn {
	w.Helper()
	out, err := w.Retire(w.ctx, w.now, e.Project, e.Recipient, e.ID, belfry.ReasonEndpointRetired)
	w.ok(err)
	return out
}

// armEnd claims the one item that is due in a queue, and ends it.
func (w *worker) armEnd(queue string, end store.End) {
	w.Helper()
	w.arm(store.Arm{Claim: w.claim(queue), Owner: w.lease(), Now: w.now, Known: w.known, Steps: []store.Step{{End: &end}}})
}

// armWait puts the one item of a claim back.
func (w *worker) armWait(c store.Claim, until store.Until) {
	w.Helper()
	w.arm(store.Arm{Claim: c, Owner: w.lease(), Now: w.now, Known: w.known, Steps: []store.Step{{Wait: &until}}})
}
