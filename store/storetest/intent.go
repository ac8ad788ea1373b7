package storetest

import (
	"time"

	"belfry"
	"belfry/store"
)

// waits brings notifications of one endpoint to every place where a delivery can stand unarmed, and one to
// the wire. The order is: to be tried again, parked, claimed, armed.
func (w *worker) waits(category string) (waiting []belfry.ID, armed wire) {
	w.Helper()
	stand := func(subject string) belfry.ID {
		id := w.tell(of(category), about(subject))
		w.settle(w.sendOne(""), belfry.OutcomeNotSent)
		return id
	}
	parked := stand("parked")
	w.after(time.Minute)
	c := w.claim("email")
	w.armWait(c, store.Until{At: w.now.Add(lifeTime / 2), Reason: belfry.ReasonPaused})
	claimed := stand("claimed")
	w.after(time.Minute)
	w.claim("email")
	retry := stand("retry")
	w.tell(of(category), about("armed"))
	return []belfry.ID{retry, parked, claimed}, w.sendOne("")
}

// withdrawn wants a change of intent to have stopped what waits, and to name what is on the wire.
func (w *worker) withdrawn(got store.Withdrawn, waiting []belfry.ID, armed wire, reason belfry.Reason) {
	w.Helper()
	w.same(got, store.Withdrawn{Withdrawn: len(waiting), InFlight: []belfry.DeliveryID{armed.Armed.Delivery.ID}}, "withdrawn")
	for _, id := range waiting {
		w.stands(id, belfry.Dropped, reason)
		w.is(w.happened(id, store.EventWithdrawn) == 1, "the withdrawal is not told: %s", tale(w.story(id)))
	}
	w.stands(armed.Notification.ID, belfry.Sending, "")
	w.heads()
}

var intentions = cases{
	{"OptOutWithdrawsWhatWaits", func(w *worker) {
		w.endpoint(ann, "email", "a@example.com")
		waiting, armed := w.waits(news)
		w.withdrawn(w.switchTo(ann, news, "email", false), waiting, armed, belfry.ReasonOptedOut)
	}},
	{"OptOutAfterArmSaysInFlight", func(w *worker) {
		w.endpoint(ann, "email", "a@example.com")
		id := w.tell()
		t := w.sendOne("")
		w.same(w.switchTo(ann, "*", "*", false), store.Withdrawn{InFlight: []belfry.DeliveryID{t.Armed.Delivery.ID}}, "withdrawn")
		w.settle(t, belfry.OutcomeNotSent)
		w.after(time.Minute)
		w.is(len(w.send("email")) == 0, "armed again after the opt-out")
		w.stands(id, belfry.Dropped, belfry.ReasonOptedOut)
	}},
	{"OptOutLeavesWhatItDoesNotForbid", func(w *worker) {
		w.recipient(bob)
		w.category("bills", func(c *belfry.Category) { c.Consent = belfry.Always })
		w.category("sales", nil)
		w.endpoint(ann, "email", "a@example.com")
		w.endpoint(bob, "email", "b@example.com")
		w.endpoint(ann, "webpush", "token", "phone")
		w.tell(via("webpush"))
		w.tell(of("bills"))
		w.tell(of("sales"))
		w.tell(to(bob))
		for _, t := range w.send("") {
			w.settle(t, belfry.OutcomeNotSent)
		}
		w.same(w.switchTo(ann, news, "email", false), store.Withdrawn{}, "withdrawn")
		w.same(w.switchTo(ann, "sales", "push", false), store.Withdrawn{Withdrawn: 1}, "withdrawn")
	}},
	{"OptInWithdrawnIsAnOptOut", func(w *worker) {
		w.category("tips", func(c *belfry.Category) { c.Consent = belfry.OptIn })
		w.endpoint(ann, "email", "a@example.com")
		id := w.tell(of("tips"))
		w.send("")
		w.stands(id, belfry.Dropped, belfry.ReasonOptedOut)
		w.switchTo(ann, "tips", "*", true)
		id = w.tell(of("tips"))
		w.settle(w.sendOne(""), belfry.OutcomeNotSent)
		got, err := w.ChangePreferences(w.ctx, w.now, shop, ann, []belfry.PreferenceChange{{Category: "tips", Channel: "*"}}, false)
		w.ok(err)
		w.same(got, store.Withdrawn{Withdrawn: 1}, "withdrawn by clearing the opt-in")
		w.stands(id, belfry.Dropped, belfry.ReasonOptedOut)
	}},
	{"OptOutOfWhatMayHaveArrivedIsUnknown", func(w *worker) {
		w.endpoint(ann, "email", "a@example.com")
		id := w.tell()
		w.settle(w.sendOne(""), belfry.OutcomeAmbiguous)
		w.same(w.switchTo(ann, news, "email", false), store.Withdrawn{Withdrawn: 1}, "withdrawn")
		w.stands(id, belfry.Unknown, belfry.ReasonOptedOut)
	}},
	{"PreferencesAreKept", func(w *worker) {
		on, off := true, false
		change := func(replace bool, changes ...belfry.PreferenceChange) {
			w.Helper()
			_, err := w.ChangePreferences(w.ctx, w.now, shop, ann, changes, replace)
			w.ok(err)
		}
		want := func(p belfry.Preferences) {
			w.Helper()
			got, err := w.Preferences(w.ctx, shop, ann)
			w.ok(err)
			w.same(got, p, "preferences")
		}
		want(nil)
		change(false, belfry.PreferenceChange{Category: news, Channel: "push", On: &off}, belfry.PreferenceChange{Category: "*", Channel: "email", On: &on})
		want(belfry.Preferences{news: {"push": false}, "*": {"email": true}})
		change(false, belfry.PreferenceChange{Category: news, Channel: "*", On: &on}, belfry.PreferenceChange{Category: "*", Channel: "email"})
		want(belfry.Preferences{news: {"push": false, "*": true}})
		change(false, belfry.PreferenceChange{Category: news, Channel: "push", On: &on})
		want(belfry.Preferences{news: {"push": true, "*": true}})
		change(true, belfry.PreferenceChange{Category: "sales", Channel: "sms", On: &off})
		want(belfry.Preferences{"sales": {"sms": false}})
		change(true)
		want(nil)
		_, err := w.ChangePreferences(w.ctx, w.now, shop, "nobody", nil, false)
		w.refused(err, belfry.CodeNotFound)
	}},
	{"SuppressionWithdraws", func(w *worker) {
		e := w.endpoint(ann, "email", "a@example.com")
		waiting, armed := w.waits(news)
		w.withdrawn(w.suppress(e), waiting, armed, belfry.ReasonSuppressed)
		w.is(w.endpointNow(ann, e.ID).Active(), "a suppression retired the endpoint")
	}},
	{"SuppressionOfATargetWithdraws", func(w *worker) {
		id := w.tell(aimed(belfry.Target{Channel: "sms", Address: "+81"}))
		w.settle(w.sendOne(""), belfry.OutcomeNotSent)
		out, err := w.Suppress(w.ctx, belfry.Suppression{Project: shop, Channel: "sms", Address: "+81", Reason: "stop", At: w.now})
		w.ok(err)
		w.same(out, store.Withdrawn{Withdrawn: 1}, "withdrawn")
		w.stands(id, belfry.Dropped, belfry.ReasonSuppressed)
	}},
	{"SuppressionsAreKept", func(w *worker) {
		w.inProject("other")
		var want []belfry.Suppression
		for _, address := range []belfry.Secret{"c@example.com", "a@example.com", "b@example.com"} {
			x := belfry.Suppression{Project: shop, Channel: "email", Address: address, Reason: "manual", At: w.now}
			_, err := w.Suppress(w.ctx, x)
			w.ok(err)
			want = append(want, x)
		}
		_, err := w.Suppress(w.ctx, belfry.Suppression{Project: "other", Channel: "email", Address: "d@example.com", Reason: "manual", At: w.now})
		w.ok(err)
		want[0].Reason = "complaint"
		_, err = w.Suppress(w.ctx, want[0])
		w.ok(err)
		got, err := w.Suppressions(w.ctx, shop, "", 100)
		w.ok(err)
		w.same(got, []belfry.Suppression{want[1], want[2], want[0]}, "suppressions")
		w.ok(w.Unsuppress(w.ctx, shop, "email", "a@example.com"))
		w.refused(w.Unsuppress(w.ctx, shop, "email", "a@example.com"), belfry.CodeNotFound)
		w.refused(w.Unsuppress(w.ctx, shop, "email", "d@example.com"), belfry.CodeNotFound)
		got, err = w.Suppressions(w.ctx, shop, "", 1)
		w.ok(err)
		w.same(got, want[2:], "first page")
	}},
	{"RetireWithdraws", func(w *worker) {
		e := w.endpoint(ann, "email", "a@example.com")
		waiting, armed := w.waits(news)
		w.withdrawn(w.retire(e), waiting, armed, belfry.ReasonEndpointRetired)
		w.same(w.retire(e), store.Withdrawn{}, "second retirement")
		now := w.endpointNow(ann, e.ID)
		w.is(now.Reason == belfry.ReasonEndpointRetired && now.RetiredAt.Equal(w.now), "endpoint is %+v", now)
	}},
	{"DeleteRecipientErases", func(w *worker) {
		w.recipient(bob)
		w.endpoint(bob, "email", "b@example.com")
		other := w.tell(to(bob))
		w.settle(w.sendOne(""), belfry.OutcomeAccepted)
		w.endpoint(ann, "email", "a@example.com")
		sent := w.tell(data(`{"secret":1}`))
		w.settle(w.sendOne(""), belfry.OutcomeAccepted)
		target := w.tell(aimed(belfry.Target{Channel: "sms", Address: "+81"}))
		w.settle(w.sendOne(""), belfry.OutcomeNotSent)
		waiting, armed := w.waits(news)
		waiting = append(waiting, target)
		unplanned := w.tell(aimed(belfry.Target{Channel: "sms", Address: "+81"}))
		got, err := w.DeleteRecipient(w.ctx, w.now, shop, ann)
		w.ok(err)
		w.withdrawn(store.Withdrawn{Withdrawn: got.Withdrawn - 1, InFlight: got.InFlight}, waiting, armed, belfry.ReasonRecipientGone)
		w.stands(unplanned, belfry.Dropped, belfry.ReasonRecipientGone)
		w.is(w.happened(unplanned, store.EventWithdrawn) == 1, "the withdrawal is not told: %s", tale(w.story(unplanned)))
		w.settle(armed, belfry.OutcomeAccepted)
		w.stands(armed.Notification.ID, belfry.Sent, "")
		for _, id := range append(waiting, unplanned, sent, armed.Notification.ID) {
			s := w.story(id)
			w.is(len(s.Data) == 0 && len(s.To) == 0 && s.Recipient == nil, "personal data is left: %s %v", s.Data, s.Recipient)
			for _, d := range s.Deliveries {
				w.is(len(d.Payload) == 0 && d.Endpoint.Address == "", "personal data is left in a delivery")
			}
		}
		w.stands(sent, belfry.Sent, "")
		_, err = w.Recipient(w.ctx, shop, ann)
		w.refused(err, belfry.CodeNotFound)
		w.is(len(w.marks(ann)) == 0 && len(w.marks(bob)) == 1, "marks %+v and %+v", w.marks(ann), w.marks(bob))
		w.is(len(w.story(other).Data) > 0, "another recipient's data was erased")
		w.is(len(w.marks(ann)) == 0, "an answer brought a mark back: %+v", w.marks(ann))
		_, err = w.DeleteRecipient(w.ctx, w.now, shop, ann)
		w.refused(err, belfry.CodeNotFound)

		w.recipient(ann)
		list, err := w.Endpoints(w.ctx, shop, ann)
		w.ok(err)
		p, err := w.Preferences(w.ctx, shop, ann)
		w.ok(err)
		w.is(len(list) == 0 && len(p) == 0, "a new recipient of the same name inherits %v and %v", list, p)
	}},
	{"ErasureNamesWhatIsOnItsWayToATarget", func(w *worker) {
		w.tell(aimed(belfry.Target{Channel: "sms", Address: "+81"}))
		t := w.sendOne("")
		got, err := w.DeleteRecipient(w.ctx, w.now, shop, ann)
		w.ok(err)
		w.same(got, store.Withdrawn{InFlight: []belfry.DeliveryID{t.Armed.Delivery.ID}}, "withdrawn")
		w.settle(t, belfry.OutcomeNotSent)
		w.after(time.Minute)
		w.is(len(w.send("sms")) == 0, "armed for a recipient that was deleted")
		w.stands(t.Notification.ID, belfry.Dropped, belfry.ReasonRecipientGone)
	}},
	{"ErasureEndsARouteFirst", func(w *worker) {
		w.first()
		w.endpoint(ann, "webpush", "token", "phone")
		w.endpoint(ann, "email", "a@example.com")
		id := w.tell()
		w.settle(w.sendOne(""), belfry.OutcomeNotSent)
		got, err := w.DeleteRecipient(w.ctx, w.now, shop, ann)
		w.ok(err)
		w.same(got, store.Withdrawn{Withdrawn: 1}, "withdrawn")
		w.stands(id, belfry.Dropped, belfry.ReasonRecipientGone)
		w.heads()
	}},
	{"AnErasedRetryIsNotSentAgain", func(w *worker) {
		w.endpoint(ann, "email", "a@example.com")
		id := w.tell()
		t := w.sendOne("")
		_, err := w.DeleteRecipient(w.ctx, w.now, shop, ann)
		w.ok(err)
		w.settle(t, belfry.OutcomeNotSent)
		w.after(time.Minute)
		w.is(len(w.send("email")) == 0, "armed for a recipient that was deleted")
		w.stands(id, belfry.Dropped, belfry.ReasonRecipientGone)
	}},
}
