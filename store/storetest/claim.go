package storetest

import (
	"slices"
	"time"

	"belfry"
	"belfry/store"
)

var claiming = cases{
	{"HeadsNameTheFirstDue", func(w *worker) {
		w.inProject("other")
		later := w.now.Add(time.Hour)
		w.tell(due(later))
		w.tell(due(later.Add(time.Hour)))
		w.tell(due(later.Add(2*time.Hour)), in(belfry.Bulk))
		w.tell(due(later.Add(3*time.Hour)), queued("email"))
		w.tell(due(later.Add(4*time.Hour)), project("other"))
		w.heads(
			store.Head{Queue: "", Lane: belfry.Normal, Project: shop, Due: later},
			store.Head{Queue: "", Lane: belfry.Bulk, Project: shop, Due: later.Add(2 * time.Hour)},
			store.Head{Queue: "email", Lane: belfry.Normal, Project: shop, Due: later.Add(3 * time.Hour)},
			store.Head{Queue: "", Lane: belfry.Normal, Project: "other", Due: later.Add(4 * time.Hour)},
		)
	}},
	{"HeadsDoNotNameWhatIsHeld", func(w *worker) {
		w.tell()
		w.claim("")
		w.heads()
	}},
	{"ClaimTakesOnlyWhatIsDue", func(w *worker) {
		first := w.tell()
		w.tell(due(w.now.Add(time.Second)))
		w.same(held(w.claim("")), []belfry.ID{first}, "what was claimed")
		w.idle("")
		w.after(time.Second - time.Microsecond)
		w.idle("")
		w.after(time.Microsecond)
		w.claim("")
	}},
	{"ClaimTakesTheFirstDueFirst", func(w *worker) {
		third := w.tell(due(w.now.Add(-time.Second)))
		second := w.tell(due(w.now.Add(-2 * time.Second)))
		first := w.tell(due(w.now.Add(-3 * time.Second)))
		c, _ := w.claimAs(shop, "", belfry.Normal, 2)
		w.same(held(c), []belfry.ID{first, second}, "what a take of 2 got")
		w.same(held(w.claim("")), []belfry.ID{third}, "what the next take got")
	}},
	{"ClaimTellsWhatItHolds", func(w *worker) {
		e := w.entry(via("email"), aimed(belfry.Target{Channel: "email", Address: "x@example.com", Keys: belfry.Keys{"k": "v"}}), once(belfry.Once{Per: belfry.PerDay, Zone: "UTC"}))
		w.enqueue(e)
		c := w.claim("")
		w.is(c.Owner == w.owner && !c.Alone, "claim of %v, alone %v", c.Owner, c.Alone)
		w.same(c.Items, []store.Item{{Notification: e.Notification, Due: w.now}}, "items")
	}},
	{"ClaimIsExclusive", func(w *worker) {
		w.tell()
		w.claim("")
		w.idle("")
	}},
	{"EveryTakeIsAClaimOfItsOwn", func(w *worker) {
		a, b := w.tell(), w.tell(in(belfry.Urgent))
		takes := []store.Take{
			{Claim: w.id(), Lane: belfry.Bulk, Project: shop, Limit: 9},
			{Claim: w.id(), Lane: belfry.Normal, Project: shop, Limit: 9},
			{Claim: w.id(), Lane: belfry.Urgent, Project: shop, Limit: 9},
		}
		claims, err := w.Claim(w.ctx, w.now, w.lease(), takes)
		w.ok(err)
		if len(claims) != 2 {
			w.Fatalf("three takes, two of which found something, made %d claims", len(claims))
		}
		w.same([]belfry.ID{claims[0].ID, claims[1].ID}, []belfry.ID{takes[1].Claim, takes[2].Claim}, "ids of the claims")
		w.same(slices.Concat(held(claims[0]), held(claims[1])), []belfry.ID{a, b}, "what was claimed")
	}},
	{"LanesAndProjectsAreClaimedApart", func(w *worker) {
		w.inProject("other")
		bulk, other := w.tell(in(belfry.Bulk)), w.tell(project("other"))
		w.idle("")
		c, _ := w.claimAs(shop, "", belfry.Bulk, 9)
		w.same(held(c), []belfry.ID{bulk}, "what the bulk lane got")
		c, _ = w.claimAs("other", "", belfry.Normal, 9)
		w.same(held(c), []belfry.ID{other}, "what the other project got")
	}},
	{"ANotificationWaitsInItsQueue", func(w *worker) {
		id := w.tell(queued("email"))
		w.idle("")
		w.same(held(w.claim("email")), []belfry.ID{id}, "what the queue of its channel got")
	}},
	{"ARetryWaitsInTheQueueOfItsChannel", func(w *worker) {
		w.endpoint(ann, "email", "a@example.com")
		id := w.tell()
		w.settle(w.sendOne(""), belfry.OutcomeNotSent)
		w.after(30*time.Second - time.Microsecond)
		w.idle("email")
		w.after(time.Microsecond)
		c := w.claim("email")
		w.same(held(c), []belfry.ID{id}, "what was claimed")
		d := c.Items[0].Delivery
		if d == nil || d.State != belfry.Sending || d.Claim != c.ID || d.Armed || len(d.Attempts) != 1 || string(d.Payload) != string(payload) {
			w.Errorf("claimed delivery is %+v", d)
		}
	}},
	{"AloneIsClaimedAlone", func(w *worker) {
		lost := w.tell()
		w.claim("")
		w.lose()
		w.tell(due(w.now.Add(-time.Hour)))
		w.tell()
		c := w.claim("")
		w.is(!c.Alone && len(c.Items) == 1, "a claim of %d items, alone %v, want 1 up to the one that was lost", len(c.Items), c.Alone)
		c = w.claim("")
		w.is(c.Alone, "a notification whose claim was lost is not claimed alone")
		w.same(held(c), []belfry.ID{lost}, "what was claimed alone")
		w.is(c.Items[0].Wait.Alone, "the item does not say that it is to be claimed alone")
		c = w.claim("")
		w.is(!c.Alone && len(c.Items) == 1, "the others: %d items, alone %v", len(c.Items), c.Alone)
	}},
	{"FactsAreWhatIsStored", func(w *worker) {
		c := w.category(news, func(c *belfry.Category) { c.Cooldown = belfry.Duration(time.Hour); c.Channels = []string{"email"} })
		e := w.endpoint(ann, "email", "a@example.com")
		old := w.endpoint(ann, "email", "old@example.com")
		_, err := w.Retire(w.ctx, w.now, shop, ann, old.ID, belfry.ReasonEndpointRetired)
		w.ok(err)
		w.switchTo(ann, "sales", "push", false)
		touching := belfry.Suppression{Project: shop, Channel: "email", Address: "a@example.com", Reason: "manual", At: w.now}
		target := belfry.Suppression{Project: shop, Channel: "sms", Address: "+81", Reason: "stop", At: w.now}
		for _, x := range []belfry.Suppression{touching, target, {Project: shop, Channel: "email", Address: "else@example.com", Reason: "manual", At: w.now}} {
			_, err := w.Suppress(w.ctx, x)
			w.ok(err)
		}
		everywhere := belfry.Pause{ID: w.id(), Reason: "all", Category: "x", At: w.now}
		here := belfry.Pause{ID: w.id(), Project: shop, Channel: "sms", Reason: "here", At: w.now, Until: w.now.Add(time.Minute)}
		for _, p := range []belfry.Pause{here, everywhere, {ID: w.id(), Project: "other", Reason: "there", At: w.now}} {
			w.ok(w.PutPause(w.ctx, p))
		}
		id := w.tell(aimed(belfry.Target{Channel: "sms", Address: "+81"}))
		got, err := w.Facts(w.ctx, w.claim("").Items)
		w.ok(err)
		who := belfry.Recipient{Project: shop, ID: ann, Zone: "Asia/Tokyo"}
		resolved := c.Resolved()
		w.same(sorted(got[0]), sorted(belfry.Facts{
			Category: &resolved, Recipient: &who, Preferences: belfry.Preferences{"sales": {"push": false}},
			Endpoints: []belfry.Endpoint{e}, Suppressed: []belfry.Suppression{touching, target}, Pauses: []belfry.Pause{everywhere, here},
		}), "facts")
		w.cancel(id)
	}},
	{"FactsOfNobodyAreEmpty", func(w *worker) {
		w.tell(to("nobody"), of("none"), aimed(belfry.Target{Channel: "email", Address: "n@example.com"}))
		got, err := w.Facts(w.ctx, w.claim("").Items)
		w.ok(err)
		w.same(got, []belfry.Facts{{}}, "facts")
	}},
	{"FactsKnowWhatWasSentLast", func(w *worker) {
		w.endpoint(ann, "email", "a@example.com")
		first := w.tell()
		w.settle(w.sendOne(""), belfry.OutcomeAccepted)
		w.tell()
		got, err := w.Facts(w.ctx, w.claim("").Items)
		w.ok(err)
		if got[0].Mark == nil {
			w.Fatalf("facts know no mark")
		}
		w.same(*got[0].Mark, belfry.Mark{At: w.now, Data: []byte(`{"told":true}`), Notification: first}, "mark")
	}},
}

// held lists the notifications of a claim's items.
func held(c store.Claim) (ids []belfry.ID) {
	for _, i := range c.Items {
		ids = append(ids, i.Notification.ID)
	}
	return ids
}

// heads wants these heads, in any order.
func (w *worker) heads(want ...store.Head) {
	w.Helper()
	got, err := w.Heads(w.ctx)
	w.ok(err)
	w.same(sortedHeads(got), sortedHeads(want), "heads")
}
