package storetest

import (
	"time"

	"belfry"
	"belfry/store"
)

var repairing = cases{
	{"RepairReturnsLostClaims", func(w *worker) {
		w.endpoint(ann, "email", "a@example.com")
		id := w.tell()
		w.claim("")
		w.same(w.repair(), store.Repaired{}, "repaired while the lease lasts")
		w.same(w.lose(), store.Repaired{Claims: 1, Returned: 1}, "repaired")
		w.stands(id, belfry.Scheduled, "")
		w.is(w.happened(id, store.EventLost) == 1, "the lost claim is not told")
		w.settle(w.sendOne(""), belfry.OutcomeNotSent)
		w.after(time.Minute)
		w.claim("email")
		w.same(w.lose(), store.Repaired{Claims: 1, Returned: 1}, "repaired")
		d := w.delivery(id, 1, belfry.Retry, "")
		w.is(len(d.Attempts) == 1 && d.Spent() == 1 && d.Losses == 0 && d.Alone, "the lost claim spent something: %+v", d)
		w.sendOne("email")
	}},
	{"ExpiredOwnerLosesItsLease", func(w *worker) {
		w.tell()
		w.claim("")
		w.after(leaseTime)
		w.same(w.repair(), store.Repaired{}, "repaired at the end of the lease")
		w.after(time.Microsecond)
		w.same(w.repair(), store.Repaired{Claims: 1, Returned: 1}, "repaired after it")
		w.same(w.repair(), store.Repaired{}, "repaired again")
	}},
	{"WhatWasArmedIsAmbiguous", func(w *worker) {
		w.endpoint(ann, "email", "a@example.com")
		w.category("amo", func(c *belfry.Category) { c.Delivery = belfry.AtMostOnce })
		least, most := w.tell(), w.tell(of("amo"))
		w.send("")
		w.same(w.lose(), store.Repaired{Claims: 1, Ambiguous: 2}, "repaired")
		w.stands(most, belfry.Unknown, belfry.ReasonWorkerLost)
		d := w.delivery(least, 1, belfry.Retry, "")
		w.is(d.Frozen && d.Attempts[0].Lost && d.Attempts[0].Outcome == belfry.OutcomeOpen && d.Losses == 0, "taken over it is %+v", d)
		w.is(d.Next.Equal(w.now.Add(30*time.Second)), "tried again at %v", d.Next)
		w.after(time.Minute)
		w.sendOne("email")
		w.lose()
		d = w.delivery(least, 1, belfry.Retry, "")
		w.is(d.Next.Equal(w.now.Add(time.Minute)), "tried a third time at %v", d.Next)
		w.after(time.Minute)
		t := w.sendOne("email")
		w.same(t.Armed.Delivery.Payload, payload, "payload of the third try")
		w.settle(t, belfry.OutcomeRefused)
		w.stands(least, belfry.Unknown, belfry.ReasonRefused)
	}},
	{"RepairCountsPoisonOnlyAlone", func(w *worker) {
		id, other := w.tell(), w.tell()
		w.claim("")
		w.same(w.lose(), store.Repaired{Claims: 1, Returned: 2}, "the first loss")
		w.cancel(other)
		want := store.Repaired{Claims: 1, Returned: 1}
		for n := range belfry.MaxLosses {
			c := w.claim("")
			w.is(c.Alone && c.Items[0].Wait.Losses == n, "claimed %+v", c)
			if n == belfry.MaxLosses-1 {
				want = store.Repaired{Claims: 1, Poison: 1}
			}
			w.same(w.lose(), want, "a loss alone")
		}
		w.stands(id, belfry.Failed, belfry.ReasonPoison)
	}},
	{"APoisonedDeliveryFails", func(w *worker) {
		w.endpoint(ann, "email", "a@example.com")
		id := w.tell()
		w.settle(w.sendOne(""), belfry.OutcomeNotSent)
		w.after(time.Minute)
		want := store.Repaired{Claims: 1, Returned: 1}
		for n := range belfry.MaxLosses + 1 {
			w.claim("email")
			if n == belfry.MaxLosses {
				want = store.Repaired{Claims: 1, Poison: 1}
			}
			w.same(w.lose(), want, "repaired")
		}
		w.stands(id, belfry.Failed, belfry.ReasonPoison)
	}},
	{"RepairGoesAsFarAsItsLimit", func(w *worker) {
		for range 5 {
			w.tell()
			w.claim("")
		}
		w.after(leaseTime + time.Second)
		total := 0
		for range 3 {
			done, err := w.Repair(w.ctx, w.now, func(string, string) belfry.RetryPolicy { return policy }, 2)
			w.ok(err)
			w.is(done.Claims <= 2, "one call took over %d claims, the limit was 2", done.Claims)
			total += done.Returned
		}
		w.is(total == 5, "%d of 5 were returned", total)
	}},
	{"RepairAsksForThePolicyOfItsCategory", func(w *worker) {
		w.endpoint(ann, "email", "a@example.com")
		id := w.tell()
		w.send("")
		w.after(leaseTime + time.Second)
		_, err := w.Repair(w.ctx, w.now, func(project, category string) belfry.RetryPolicy {
			w.is(project == shop && category == news, "asked for the policy of %s in %s", category, project)
			return belfry.RetryPolicy{Attempts: 1}
		}, 10)
		w.ok(err)
		w.stands(id, belfry.Unknown, belfry.ReasonAttemptsExhausted)
	}},
}
