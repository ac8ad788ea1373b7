package storetest

import (
	"time"

	"belfry"
	"belfry/store"
)

var archives = cases{
	{"StoryTellsEverything", func(w *worker) {
		w.endpoint(ann, "email", "a@example.com")
		e := w.endpoint(ann, "webpush", "token", "phone")
		n := w.entry(via("push", "email"), data(`{"item":"kettle"}`))
		w.enqueue(n)
		tries := w.send("")
		w.settle(tries[0], belfry.OutcomeRefused)
		w.after(time.Second)
		w.settle(tries[1], belfry.OutcomeAccepted)
		s := w.story(n.Notification.ID)
		w.same(s.Notification, n.Notification, "notification")
		w.is(s.State == belfry.Sent && s.Reason == "" && s.EndedAt.Equal(w.now) && s.Waits.IsZero(), "summary %+v", s.Summary)
		w.is(s.Recipient != nil && s.Recipient.Zone == "Asia/Tokyo", "recipient %+v", s.Recipient)
		if len(s.Deliveries) != 2 {
			w.Fatalf("%d deliveries", len(s.Deliveries))
		}
		w.same(s.Deliveries[1].Endpoint, e, "endpoint")
		w.is(len(s.Deliveries[0].Attempts) == 1 && len(s.Deliveries[1].Attempts) == 1, "attempts are missing")
		w.retire(e)
		w.is(!w.story(n.Notification.ID).Deliveries[1].Endpoint.Active(), "the story does not know that the endpoint was retired")
		_, err := w.Notification(w.ctx, shop, w.id())
		w.refused(err, belfry.CodeNotFound)
	}},
	{"StoryTellsDeliveriesInTheOrderOfTheirNumbers", func(w *worker) {
		for _, channel := range []string{"email", "webpush", "fcm", "webhook"} {
			w.endpoint(ann, channel, "address")
		}
		id := w.tell()
		a := w.prepare(w.claim(""))
		a.Steps[0].Tries[2].Send = false
		c, tries := a.Claim, w.arm(a)
		w.settle(wire{c.ID, tries[1], c.Items[0]}, belfry.OutcomeAccepted)
		for i, d := range w.story(id).Deliveries {
			w.is(d.ID.N == i+1, "delivery %d is told as the %d-th", d.ID.N, i+1)
		}
	}},
	{"NewestIsTheHighestIdOfAnyProject", func(w *worker) {
		id, err := w.Newest(w.ctx)
		w.ok(err)
		w.is(id == 0, "of an empty store it is %v", id)
		older, newer := w.entry(), w.entry()
		w.enqueue(newer)
		w.enqueue(older)
		id, err = w.Newest(w.ctx)
		w.ok(err)
		w.is(id == newer.Notification.ID, "it is %v, want %v", id, newer.Notification.ID)
	}},
	{"ListPages", func(w *worker) {
		var all []belfry.ID
		for n := range 7 {
			all = append([]belfry.ID{w.tell(about(string(rune('a' + n%2))))}, all...)
		}
		for _, limit := range []int{1, 2, 3, 7, 100} {
			w.same(w.list(store.Filter{Project: shop}, limit), all, "list, the newest first")
		}
		w.same(w.list(store.Filter{Project: shop, Subject: "b"}, 2), []belfry.ID{all[1], all[3], all[5]}, "list of a subject")
	}},
	{"FiltersPick", func(w *worker) {
		w.recipient(bob)
		w.category("sales", nil)
		w.endpoint(ann, "email", "a@example.com")
		sent := w.tell()
		w.settle(w.sendOne(""), belfry.OutcomeAccepted)
		dropped := w.tell(to(bob))
		w.drain("")
		w.after(time.Minute)
		sale := w.tell(of("sales"), about("x"), due(w.now.Add(time.Hour)))
		for name, c := range map[string]struct {
			f    store.Filter
			want []belfry.ID
		}{
			"id":        {store.Filter{ID: sent}, []belfry.ID{sent}},
			"recipient": {store.Filter{Recipient: ann}, []belfry.ID{sale, sent}},
			"category":  {store.Filter{Category: "sales"}, []belfry.ID{sale}},
			"subject":   {store.Filter{Subject: "x"}, []belfry.ID{sale}},
			"state":     {store.Filter{State: belfry.Dropped}, []belfry.ID{dropped}},
			"scheduled": {store.Filter{State: belfry.Scheduled}, []belfry.ID{sale}},
			"reason":    {store.Filter{Reason: belfry.ReasonNoEndpoint}, []belfry.ID{dropped}},
			"since":     {store.Filter{Since: w.now}, []belfry.ID{sale}},
			"until":     {store.Filter{Until: w.now}, []belfry.ID{dropped, sent}},
			"nothing":   {store.Filter{State: belfry.Sent, Recipient: bob}, nil},
			"both":      {store.Filter{State: belfry.Sent, Recipient: ann}, []belfry.ID{sent}},
		} {
			c.f.Project = shop
			w.same(w.list(c.f, 2), c.want, "filter by "+name)
		}
	}},
	{"StatsAreConserved", func(w *worker) {
		w.inProject("other")
		w.endpoint(ann, "email", "a@example.com")
		enqueued := 0
		check := func(waiting, sending int, about string) {
			w.Helper()
			got, err := w.Stats(w.ctx, shop)
			w.ok(err)
			w.is(got.Waiting == waiting && got.Sending == sending, "%s: %d waiting, %d sending, want %d and %d", about, got.Waiting, got.Sending, waiting, sending)
			sum := got.Waiting + got.Sending
			for _, e := range got.Ended {
				sum += e.Count
			}
			w.is(sum == enqueued, "%s: %d are counted, %d were enqueued: %+v", about, sum, enqueued, got)
		}
		tell := func(changes ...change) belfry.ID { enqueued++; return w.tell(changes...) }
		w.tell(project("other"))
		w.claimAs("other", "", belfry.Normal, 1)
		tell()
		tell(due(w.now.Add(-time.Minute)))
		stats, err := w.Stats(w.ctx, shop)
		w.ok(err)
		w.is(stats.Oldest.Equal(w.now.Add(-time.Minute)), "the oldest due is %v", stats.Oldest)
		check(2, 0, "enqueued")
		tries := w.send("")
		check(0, 2, "sending")
		w.settle(tries[0], belfry.OutcomeAccepted)
		w.settle(tries[1], belfry.OutcomeNotSent)
		check(1, 0, "settled")
		w.cancel(tell())
		check(1, 0, "cancelled")
		tell(to(ann), via("sms"))
		w.drain("")
		check(1, 0, "dropped")
		w.after(lifeTime + time.Second)
		w.drain("email")
		check(0, 0, "missed")
		tell()
		w.claim("")
		check(0, 1, "claimed")
		w.lose()
		check(1, 0, "repaired")
		w.sendOne("")
		w.lose()
		check(1, 0, "repaired again")
		stats, err = w.Stats(w.ctx, shop)
		w.ok(err)
		w.same(sortedCounts(stats.Ended), []store.EndedCount{
			{Project: shop, State: belfry.Cancelled, Reason: belfry.ReasonByCaller, Count: 1},
			{Project: shop, State: belfry.Dropped, Reason: belfry.ReasonNoEndpoint, Count: 1},
			{Project: shop, State: belfry.Missed, Reason: belfry.ReasonDeadline, Count: 1},
			{Project: shop, State: belfry.Sent, Count: 1},
		}, "ended")
	}},
	{"StatsFollowAnUnknownThatIsSettled", func(w *worker) {
		w.category(news, func(c *belfry.Category) { c.Delivery = belfry.AtMostOnce })
		w.endpoint(ann, "email", "a@example.com")
		w.tell()
		t := w.sendOne("")
		w.lose()
		w.settle(t, belfry.OutcomeAccepted)
		got, err := w.Stats(w.ctx, shop)
		w.ok(err)
		w.same(got, store.Stats{Ended: []store.EndedCount{{Project: shop, State: belfry.Sent, Count: 1}}}, "stats")
	}},
	{"StatsOfEveryProject", func(w *worker) {
		w.inProject("other")
		w.cancel(w.tell())
		w.tell(project("other"))
		got, err := w.Stats(w.ctx, "")
		w.ok(err)
		w.is(got.Waiting == 1 && len(got.Ended) == 1, "stats of everything: %+v", got)
	}},
	{"PurgeKeepsKeysAndFacts", func(w *worker) {
		ever := once(belfry.Once{Per: belfry.Ever})
		long := func(e *store.Entry) {
			keyed("k", "body")(e)
			e.Key.Expires = w.now.Add(1000 * time.Hour)
		}
		w.endpoint(ann, "email", "a@example.com")
		first := w.enqueue(w.entry(ever, long))[0]
		w.settle(w.sendOne(""), belfry.OutcomeAccepted)
		w.after(100 * time.Hour)
		w.purge(w.now, w.now)
		_, err := w.Notification(w.ctx, shop, first.ID)
		w.refused(err, belfry.CodeNotFound)
		got := w.enqueue(w.entry(ever))[0]
		w.is(got.Duplicate && got.ID == first.ID, "after the purge the fact gives %+v", got)
		again := w.enqueue(w.entry(ever, long))[0]
		w.is(again.Replayed && again.ID == first.ID, "after the purge the key gives %+v", again)
		w.is(len(w.marks(ann)) == 1, "the purge took the mark")
		w.count(0)
	}},
	{"PurgeTakesOnlyWhatEndedBefore", func(w *worker) {
		w.endpoint(ann, "email", "a@example.com")
		old := w.tell()
		w.settle(w.sendOne(""), belfry.OutcomeAccepted)
		w.after(time.Hour)
		middle := w.tell()
		w.settle(w.sendOne(""), belfry.OutcomeAccepted)
		w.after(time.Hour)
		young := w.tell()
		w.settle(w.sendOne(""), belfry.OutcomeAccepted)
		open := w.tell()
		w.settle(w.sendOne(""), belfry.OutcomeNotSent)
		w.purge(w.now.Add(-30*time.Minute), w.now.Add(-90*time.Minute))
		_, err := w.Notification(w.ctx, shop, old)
		w.refused(err, belfry.CodeNotFound)
		for id, kept := range map[belfry.ID]bool{middle: false, young: true, open: true} {
			s := w.story(id)
			w.is((len(s.Data) > 0) == kept && (len(s.Deliveries[0].Payload) > 0) == kept, "content of %v is kept %v, want %v", id, len(s.Data) > 0, kept)
			w.is(len(s.Deliveries[0].Attempts) == 1, "the purge of content took an attempt")
		}
	}},
	{"PurgeGoesAsFarAsItsLimit", func(w *worker) {
		for range 5 {
			w.cancel(w.tell())
		}
		w.after(time.Hour)
		left := 5
		for left > 0 {
			n, err := w.Purge(w.ctx, w.now, w.now, w.now, 2)
			w.ok(err)
			list, _, err := w.Notifications(w.ctx, store.Filter{Project: shop}, 0, 100)
			w.ok(err)
			if n == 0 || len(list) < left-2 || len(list) > left {
				w.Fatalf("a purge of at most 2 says %d, and left %d of %d", n, len(list), left)
			}
			left = len(list)
		}
	}},
	{"PurgeForgetsExpiredKeys", func(w *worker) {
		w.enqueue(w.entry(keyed("k", "body")))
		w.after(25 * time.Hour)
		w.is(w.purge(w.now.Add(-100*time.Hour), w.now.Add(-100*time.Hour)) == 1, "the expired key was not purged")
	}},
	{"SensitiveIsWiped", func(w *worker) {
		w.endpoint(ann, "email", "a@example.com")
		sensitive := func(e *store.Entry) { e.Notification.Sensitive = true }
		id := w.tell(sensitive)
		t := w.sendOne("")
		w.is(len(w.story(id).Data) > 0, "data was wiped before the end")
		w.settle(t, belfry.OutcomeAccepted)
		s := w.story(id)
		w.is(len(s.Data) == 0 && len(s.Deliveries[0].Payload) == 0, "left at the end: %s and %s", s.Data, s.Deliveries[0].Payload)
		w.is(len(w.marks(ann)) == 1 && len(w.marks(ann)[0].Data) == 0, "left in the mark: %s", w.marks(ann)[0].Data)
		id = w.tell(sensitive)
		w.cancel(id)
		w.is(len(w.story(id).Data) == 0, "data of a cancelled one is left")
	}},
}

// list reads all pages of a list.
func (w *worker) list(f store.Filter, limit int) (ids []belfry.ID) {
	w.Helper()
	for before := belfry.ID(0); ; {
		page, next, err := w.Notifications(w.ctx, f, before, limit)
		w.ok(err)
		w.is(len(page) <= limit, "a page of %d holds %d", limit, len(page))
		for _, s := range page {
			ids = append(ids, s.ID)
		}
		if next == 0 {
			return ids
		}
		if before != 0 && next >= before {
			w.Fatalf("the list does not go on: next is %v after %v", next, before)
		}
		before = next
	}
}

// purge deletes what ended before rows and wipes what ended before content, and says how much that was.
func (w *worker) purge(content, rows time.Time) (touched int) {
	w.Helper()
	for range 100 {
		n, err := w.Purge(w.ctx, w.now, content, rows, 100)
		w.ok(err)
		if touched += n; n == 0 {
			return touched
		}
	}
	w.Fatalf("a purge never ends")
	return touched
}
