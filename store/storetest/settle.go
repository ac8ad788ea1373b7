package storetest

import (
	"time"

	"belfry"
	"belfry/store"
)

var settling = cases{
	{"AnAnswerEndsTheDelivery", func(w *worker) {
		w.endpoint(ann, "email", "a@example.com")
		for _, c := range []struct {
			outcome belfry.Outcome
			state   belfry.State
			reason  belfry.Reason
		}{
			{belfry.OutcomeAccepted, belfry.Sent, ""},
			{belfry.OutcomeRefused, belfry.Failed, belfry.ReasonRefused},
		} {
			id := w.tell()
			t := w.sendOne("")
			w.after(time.Second)
			got := w.settle(t, c.outcome)
			w.is(!got.Late && got.Summary == c.state && got.Delivery.State == c.state, "%s settled as %+v", c.outcome, got)
			w.stands(id, c.state, c.reason)
			s := w.story(id)
			w.is(s.EndedAt.Equal(w.now) && s.Deliveries[0].EndedAt.Equal(w.now), "ended at %v and %v, want %v", s.EndedAt, s.Deliveries[0].EndedAt, w.now)
			a := s.Deliveries[0].Attempts[0]
			w.is(a.Outcome == c.outcome && a.Answered.Equal(w.now) && a.ArmedAt.Equal(w.now.Add(-time.Second)), "attempt %+v", a)
		}
		w.heads()
		w.same(w.lose(), store.Repaired{}, "claims left behind")
	}},
	{"AnAnswerIsKeptAsItWas", func(w *worker) {
		w.endpoint(ann, "email", "a@example.com")
		id := w.tell()
		s := w.settlement(w.sendOne(""), "")
		s.Answer = belfry.Answer{Outcome: belfry.OutcomeThrottled, After: 90 * time.Second, Status: 429, Ref: "r-1", Detail: "slow down", Frozen: true}
		w.settleAll(s)
		w.same(w.delivery(id, 1, belfry.Retry, "").Attempts[0].Answer, s.Answer, "answer")
	}},
	{"WhatWasNotAcceptedIsTriedAgain", func(w *worker) {
		w.endpoint(ann, "email", "a@example.com")
		id := w.tell()
		got := w.settle(w.sendOne(""), belfry.OutcomeNotSent)
		w.is(got.Summary == "" && !got.Late, "settled as %+v", got)
		w.stands(id, belfry.Sending, "")
		next := w.now.Add(30 * time.Second)
		w.is(w.delivery(id, 1, belfry.Retry, "").Next.Equal(next), "next try at %v, want %v", w.delivery(id, 1, belfry.Retry, "").Next, next)
		w.is(w.story(id).Waits.Equal(next), "waits until %v, want %v", w.story(id).Waits, next)
		w.heads(store.Head{Queue: "email", Lane: belfry.Normal, Project: shop, Due: next})
		for range 2 {
			w.after(30 * time.Minute / 2)
			got = w.settle(w.sendOne("email"), belfry.OutcomeNotSent)
		}
		w.is(got.Summary == belfry.Failed, "after the last try: %+v", got)
		w.stands(id, belfry.Failed, belfry.ReasonAttemptsExhausted)
	}},
	{"DoubtEndsAtMostOnceAndRetriesAtLeastOnce", func(w *worker) {
		w.endpoint(ann, "email", "a@example.com")
		w.category("amo", func(c *belfry.Category) { c.Delivery = belfry.AtMostOnce })
		least := w.tell()
		w.settle(w.sendOne(""), belfry.OutcomeAmbiguous)
		w.stands(least, belfry.Sending, "")
		most := w.tell(of("amo"))
		w.settle(w.sendOne(""), belfry.OutcomeAmbiguous)
		w.stands(most, belfry.Unknown, belfry.ReasonNoAnswer)
		w.after(time.Minute)
		w.settle(w.sendOne("email"), belfry.OutcomeRefused)
		w.stands(least, belfry.Unknown, belfry.ReasonRefused)
	}},
	{"SettleNeedsTheClaim", func(w *worker) {
		w.endpoint(ann, "email", "a@example.com")
		id := w.tell()
		t := w.sendOne("")
		w.lose()
		got := w.settle(t, belfry.OutcomeRefused)
		w.is(got.Late && got.Summary == "", "a late word settled as %+v", got)
		d := w.delivery(id, 1, belfry.Retry, "")
		w.is(d.Attempts[0].Outcome == belfry.OutcomeRefused && d.Attempts[0].Lost, "the late word was not written to its attempt: %+v", d.Attempts[0])
		w.is(w.happened(id, store.EventLateWord) == 1, "the late word is not told: %s", tale(w.story(id)))
	}},
	{"AnAnswerIsWrittenOnce", func(w *worker) {
		w.endpoint(ann, "email", "a@example.com")
		id := w.tell()
		t := w.sendOne("")
		w.settle(t, belfry.OutcomeAccepted)
		got := w.settle(t, belfry.OutcomeRefused)
		w.is(got.Late && got.Delivery.State == belfry.Sent && got.Summary == belfry.Sent, "the second answer gave %+v", got)
		w.stands(id, belfry.Sent, "")
		w.is(w.delivery(id, 1, belfry.Sent, "").Attempts[0].Outcome == belfry.OutcomeAccepted, "the first answer was overwritten")
		again := w.settleAll(w.settlement(t, belfry.OutcomeAccepted), w.settlement(t, belfry.OutcomeAccepted))
		w.is(again[0].Late && again[1].Late && len(w.marks(ann)) == 1, "repeated answers gave %+v", again)
	}},
	{"LateWordSettlesUnknown", func(w *worker) {
		w.category("amo", func(c *belfry.Category) { c.Delivery = belfry.AtMostOnce })
		w.endpoint(ann, "email", "a@example.com")
		for outcome, state := range map[belfry.Outcome]belfry.State{belfry.OutcomeAccepted: belfry.Sent, belfry.OutcomeRefused: belfry.Failed} {
			id := w.tell(of("amo"))
			t := w.sendOne("")
			w.lose()
			w.stands(id, belfry.Unknown, belfry.ReasonWorkerLost)
			got := w.settle(t, outcome)
			w.is(got.Late && got.Summary == state && got.Delivery.State == state, "late %s settled as %+v", outcome, got)
			w.is(w.story(id).State == state, "after a late %s it is %s", outcome, w.story(id).State)
		}
		w.is(len(w.marks(ann)) == 1, "a late acceptance did not move the mark")
	}},
	{"LateWordTurnsRetryIntoSent", func(w *worker) {
		w.endpoint(ann, "email", "a@example.com")
		id := w.tell()
		t := w.sendOne("")
		w.lose()
		w.settle(t, belfry.OutcomeAccepted)
		w.stands(id, belfry.Sent, "")
		w.after(time.Hour)
		w.idle("email")
		w.heads()
	}},
	{"LateWordStopsTheNextTry", func(w *worker) {
		w.endpoint(ann, "email", "a@example.com")
		id := w.tell()
		t := w.sendOne("")
		w.lose()
		w.after(time.Minute)
		a := w.prepare(w.claim("email"))
		w.settle(t, belfry.OutcomeAccepted)
		w.isNothing(a)
		w.stands(id, belfry.Sent, "")
	}},
	{"LateWordBesideANewerTryIsKept", func(w *worker) {
		w.endpoint(ann, "email", "a@example.com")
		id := w.tell()
		first := w.sendOne("")
		w.lose()
		w.after(time.Minute)
		second := w.sendOne("email")
		got := w.settle(first, belfry.OutcomeAccepted)
		w.is(got.Late && got.Delivery.Armed, "the older word took the newer try off the wire: %+v", got)
		w.settle(second, belfry.OutcomeRefused)
		w.stands(id, belfry.Sent, "")
	}},
	{"MarkMovesOnlyOnSent", func(w *worker) {
		w.endpoint(ann, "email", "a@example.com")
		w.tell()
		w.settle(w.sendOne(""), belfry.OutcomeRefused)
		w.tell()
		w.settle(w.sendOne(""), belfry.OutcomeNotSent)
		w.is(len(w.marks(ann)) == 0, "a mark moved although nothing was sent: %+v", w.marks(ann))
		w.after(time.Minute)
		armedAt := w.now
		t := w.sendOne("email")
		w.after(time.Second)
		w.settle(t, belfry.OutcomeAccepted)
		w.same(w.marks(ann), []store.Mark{{Category: news, Subject: "kettle", Mark: belfry.Mark{At: armedAt, Data: []byte(`{"told":true}`), Notification: t.Notification.ID}}}, "marks")
	}},
	{"MarkMovesOnlyForward", func(w *worker) {
		w.endpoint(ann, "email", "a@example.com")
		w.tell()
		older := w.sendOne("")
		w.after(time.Second)
		w.tell()
		newer := w.sendOne("")
		w.settle(newer, belfry.OutcomeAccepted)
		w.settle(older, belfry.OutcomeAccepted)
		w.is(len(w.marks(ann)) == 1 && w.marks(ann)[0].Notification == newer.Notification.ID, "marks %+v, want that of %v", w.marks(ann), newer.Notification.ID)
		w.after(time.Second)
		w.tell(about("toaster"))
		w.settle(w.sendOne(""), belfry.OutcomeAccepted)
		w.is(len(w.marks(ann)) == 2, "another subject has no mark of its own: %+v", w.marks(ann))
	}},
	{"GoneRetiresTheEndpoint", func(w *worker) {
		e := w.endpoint(ann, "webpush", "token", "phone")
		waiting, gone := w.tell(about("1")), w.tell(about("2"))
		tries := w.send("")
		w.settle(tries[0], belfry.OutcomeNotSent)
		w.settle(tries[1], belfry.OutcomeGone)
		w.stands(gone, belfry.Failed, belfry.ReasonGone)
		w.stands(waiting, belfry.Dropped, belfry.ReasonEndpointRetired)
		now := w.endpointNow(ann, e.ID)
		w.is(!now.Active() && now.Reason == belfry.ReasonGone && now.RetiredAt.Equal(w.now), "endpoint is %+v", now)
		w.heads()
	}},
	{"GoneRetiresOnlyTheRegistrationItMeant", func(w *worker) {
		e := w.endpoint(ann, "webpush", "token", "phone")
		id := w.tell()
		t := w.sendOne("")
		w.after(time.Second)
		w.is(w.endpoint(ann, "webpush", "token", "phone").ID == e.ID, "the same registration made another endpoint")
		w.settle(t, belfry.OutcomeGone)
		w.stands(id, belfry.Failed, belfry.ReasonGone)
		w.is(w.endpointNow(ann, e.ID).Active(), "a gone for an older registration retired the endpoint")
		w.after(time.Second)
		w.tell()
		w.settle(w.sendOne(""), belfry.OutcomeGone)
		w.is(!w.endpointNow(ann, e.ID).Active(), "a gone for this registration did not retire the endpoint")
	}},
	{"ALateGoneCountsToo", func(w *worker) {
		e := w.endpoint(ann, "webpush", "token", "phone")
		id := w.tell()
		t := w.sendOne("")
		w.lose()
		w.settle(t, belfry.OutcomeGone)
		w.is(!w.endpointNow(ann, e.ID).Active(), "a late gone did not retire the endpoint")
		w.stands(id, belfry.Dropped, belfry.ReasonEndpointRetired)
	}},
	{"ManySettleAtOnce", func(w *worker) {
		w.endpoint(ann, "email", "a@example.com")
		var ids []belfry.ID
		for range 3 {
			ids = append(ids, w.tell())
		}
		tries := w.send("")
		got := w.settleAll(w.settlement(tries[2], belfry.OutcomeAccepted), w.settlement(tries[0], belfry.OutcomeRefused))
		w.is(got[0].Delivery.State == belfry.Sent && got[1].Delivery.State == belfry.Failed, "results are out of order: %+v", got)
		w.stands(ids[1], belfry.Sending, "")
		w.same(w.lose(), store.Repaired{Claims: 1, Ambiguous: 1}, "what was left of the claim")
	}},
	{"AnAnswerAboutWhatIsNotThereChangesNothing", func(w *worker) {
		w.endpoint(ann, "email", "a@example.com")
		w.tell()
		s := w.settlement(w.sendOne(""), belfry.OutcomeAccepted)
		s.Delivery.ID.N = 7
		w.is(w.settleAll(s)[0].Late, "an answer about no delivery is not late")
		w.is(len(w.marks(ann)) == 0, "an answer about no delivery moved a mark")
	}},
}
