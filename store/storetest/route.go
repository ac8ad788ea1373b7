package storetest

import (
	"time"

	"belfry"
	"belfry/store"
)

// first makes news take one channel after another: push, then e-mail.
func (w *worker) first() {
	w.Helper()
	w.category(news, func(c *belfry.Category) {
		c.Route, c.Channels = belfry.RouteFirst, []string{"push", "email"}
	})
}

var routes = cases{
	{"RouteFirstGoesOnAfterFailure", func(w *worker) {
		w.first()
		w.endpoint(ann, "webpush", "token", "phone")
		w.endpoint(ann, "email", "a@example.com")
		id := w.tell()
		got := w.settle(w.sendOne(""), belfry.OutcomeRefused)
		w.is(got.Summary == "", "after the first channel failed it ended %s", got.Summary)
		w.stands(id, belfry.Sending, "")
		w.is(w.happened(id, store.EventNextStage) == 1, "the next channel is not told")
		c := w.claim("")
		w.is(c.Items[0].Wait.From == 1 && c.Items[0].Wait.Stage > 0, "it has behind it %+v", c.Items[0].Wait)
		t := w.sendClaim(c)
		w.is(len(t) == 1 && t[0].Armed.Delivery.Channel == "email" && t[0].Armed.Delivery.ID.N == 2, "the next channel: %+v", t)
		got = w.settle(t[0], belfry.OutcomeAccepted)
		w.is(got.Summary == belfry.Sent, "summary %s", got.Summary)
		w.stands(id, belfry.Sent, "")
	}},
	{"RouteFirstGoesOnAfterWithdrawal", func(w *worker) {
		w.first()
		e := w.endpoint(ann, "webpush", "token", "phone")
		w.endpoint(ann, "email", "a@example.com")
		id := w.tell()
		w.settle(w.sendOne(""), belfry.OutcomeNotSent)
		w.retire(e)
		w.stands(id, belfry.Sending, "")
		w.settle(w.sendOne(""), belfry.OutcomeAccepted)
		w.stands(id, belfry.Sent, "")
	}},
	{"RouteFirstEndsWithItsLastChannel", func(w *worker) {
		w.first()
		w.endpoint(ann, "webpush", "token", "phone")
		w.endpoint(ann, "email", "a@example.com")
		id := w.tell()
		w.settle(w.sendOne(""), belfry.OutcomeGone)
		w.settle(w.sendOne(""), belfry.OutcomeRefused)
		w.drain("")
		w.stands(id, belfry.Failed, belfry.ReasonGone)
	}},
	{"RouteFirstWithNothingLeftEndsAsItStood", func(w *worker) {
		w.first()
		w.endpoint(ann, "webpush", "token", "phone")
		id := w.tell()
		w.settle(w.sendOne(""), belfry.OutcomeRefused)
		w.drain("")
		w.stands(id, belfry.Failed, belfry.ReasonRefused)
	}},
	{"RouteFirstStopsAtAnythingElse", func(w *worker) {
		w.category(news, func(c *belfry.Category) {
			c.Route, c.Channels, c.Delivery = belfry.RouteFirst, []string{"push", "email"}, belfry.AtMostOnce
		})
		w.endpoint(ann, "webpush", "token", "phone")
		w.endpoint(ann, "email", "a@example.com")
		for outcome, state := range map[belfry.Outcome]belfry.State{belfry.OutcomeAccepted: belfry.Sent, belfry.OutcomeAmbiguous: belfry.Unknown} {
			id := w.tell()
			w.settle(w.sendOne(""), outcome)
			w.is(w.story(id).State == state, "after %s it is %s", outcome, w.story(id).State)
			w.idle("")
		}
		missed := w.tell()
		w.settle(w.sendOne(""), belfry.OutcomeThrottled)
		w.after(lifeTime + time.Second)
		w.drain("webpush")
		w.stands(missed, belfry.Missed, belfry.ReasonDeadline)
		cancelled := w.tell()
		t := w.sendOne("")
		w.cancel(cancelled)
		w.settle(t, belfry.OutcomeRefused)
		w.stands(cancelled, belfry.Failed, belfry.ReasonRefused)
		w.idle("")
	}},
	{"TargetsAreTriedOnce", func(w *worker) {
		w.first()
		id := w.tell(aimed(belfry.Target{Channel: "email", Address: "x"}, belfry.Target{Channel: "email", Address: "y"}))
		for _, t := range w.send("") {
			w.settle(t, belfry.OutcomeRefused)
		}
		w.stands(id, belfry.Failed, belfry.ReasonRefused)
		w.idle("")
	}},
	{"ASoleDeliveryIsTheEnd", func(w *worker) {
		w.category(news, func(c *belfry.Category) { c.Route, c.Channels = belfry.RouteFirst, []string{"email"} })
		w.endpoint(ann, "email", "a@example.com")
		id := w.tell(queued("email"))
		t := w.sendOne("email")
		w.is(t.Armed.Delivery.Sole, "the only delivery there will be is not sole")
		got := w.settle(t, belfry.OutcomeRefused)
		w.is(got.Summary == belfry.Failed, "summary %s", got.Summary)
		w.stands(id, belfry.Failed, belfry.ReasonRefused)
	}},
	{"FanOutEndsWithItsLastDelivery", func(w *worker) {
		for _, c := range []struct {
			first, second belfry.Outcome
			state         belfry.State
			reason        belfry.Reason
		}{
			{belfry.OutcomeAccepted, belfry.OutcomeRefused, belfry.Sent, ""},
			{belfry.OutcomeRefused, belfry.OutcomeAccepted, belfry.Sent, ""},
			{belfry.OutcomeRefused, belfry.OutcomeGone, belfry.Failed, belfry.ReasonRefused},
			{belfry.OutcomeAmbiguous, belfry.OutcomeRefused, belfry.Unknown, belfry.ReasonAttemptsExhausted},
			{belfry.OutcomeAccepted, belfry.OutcomeAmbiguous, belfry.Sent, ""},
		} {
			w.endpoint(ann, "email", "a@example.com")
			w.endpoint(ann, "webpush", "token", "phone")
			id := w.tell()
			tries := w.send("")
			if len(tries) != 2 {
				w.Fatalf("%d tries were armed, want 2", len(tries))
			}
			one, two := w.settlement(tries[0], c.first), w.settlement(tries[1], c.second)
			one.Policy.Attempts, two.Policy.Attempts = 1, 1
			got := w.settleAll(one)[0]
			w.is(got.Summary == "", "it ended %s with a delivery open", got.Summary)
			w.is(w.story(id).EndedAt.IsZero(), "it ended with a delivery open")
			want := belfry.Sending
			if c.first == belfry.OutcomeAccepted {
				want = belfry.Sent
			}
			w.stands(id, want, "")
			got = w.settleAll(two)[0]
			w.is(got.Summary == c.state, "summary %s, want %s", got.Summary, c.state)
			w.stands(id, c.state, c.reason)
		}
	}},
	{"AnEndWithoutDeliveriesIsThePlans", func(w *worker) {
		id := w.tell()
		w.drain("")
		w.stands(id, belfry.Dropped, belfry.ReasonNoEndpoint)
	}},
}

// drain does what is due in a queue until nothing is; nothing may be armed.
func (w *worker) drain(queue string) {
	w.Helper()
	for range 10 {
		c, ok := w.claimAs(shop, queue, belfry.Normal, 100)
		if !ok {
			return
		}
		w.is(len(w.sendClaim(c)) == 0, "something was sent from queue %q", queue)
	}
	w.Fatalf("queue %q does not drain", queue)
}
