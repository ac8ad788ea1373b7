package storetest

import (
	"errors"
	"time"

	"belfry"
	"belfry/store"
)

var enqueueing = cases{
	{"AnEnqueuedNotificationIsThere", func(w *worker) {
		e := w.entry(data(`{"a":1}`))
		got := w.enqueue(e)[0]
		w.same(got, store.Enqueued{ID: e.Notification.ID, State: belfry.Scheduled, Due: w.now, Deadline: w.now.Add(lifeTime), Zone: "Asia/Tokyo"}, "answer")
		s := w.story(e.Notification.ID)
		w.same(s.Notification, e.Notification, "what is stored")
		w.stands(e.Notification.ID, belfry.Scheduled, "")
		w.is(s.Waits.Equal(w.now), "it waits until %v, want %v", s.Waits, w.now)
	}},
	{"SameKeyIsOneNotification", func(w *worker) {
		first := w.enqueue(w.entry(keyed("k", "body")))[0]
		again := w.enqueue(w.entry(keyed("k", "body")))[0]
		w.is(again.Replayed && !first.Replayed, "replayed: %v then %v", first.Replayed, again.Replayed)
		w.is(again.ID == first.ID, "the key led to %v and then to %v", first.ID, again.ID)
		w.count(1)
	}},
	{"ARepeatedKeyGetsTheFirstAnswer", func(w *worker) {
		first := w.enqueue(w.entry(keyed("k", "body")))[0]
		w.is(first.Expires.Equal(w.now.Add(24*time.Hour)), "the answer expires at %v", first.Expires)
		w.armEnd("", store.End{State: belfry.Dropped, Reason: belfry.ReasonNoEndpoint})
		w.after(time.Minute)
		w.recipientIn(ann, "Europe/Berlin")
		again := w.enqueue(w.entry(keyed("k", "body")))[0]
		first.Replayed = true
		w.same(again, first, "second answer")
	}},
	{"KeyWithAnotherBodyIsRefused", func(w *worker) {
		w.enqueue(w.entry(keyed("k", "body")))
		w.refusedEntry(w.entry(keyed("k", "other")), belfry.CodeKeyReused)
		w.count(1)
	}},
	{"AKeyIsFreeOnceItExpired", func(w *worker) {
		w.enqueue(w.entry(keyed("k", "body")))
		w.after(24*time.Hour - time.Second)
		w.is(w.enqueue(w.entry(keyed("k", "body")))[0].Replayed, "the key was forgotten before it expired")
		w.after(time.Second)
		w.is(!w.enqueue(w.entry(keyed("k", "other")))[0].Replayed, "the key still counts although it expired")
		w.count(2)
	}},
	{"AKeyTwiceInABatchIsRefused", func(w *worker) {
		out, err := w.Enqueue(w.ctx, []store.Entry{w.entry(keyed("k", "body")), w.entry(keyed("k", "body"))}, true)
		w.ok(err)
		w.refused(out[1].Err, belfry.CodeKeyDuplicate)
		w.count(0)
	}},
	{"ARefusedRequestLeavesItsKeyFree", func(w *worker) {
		w.refusedEntry(w.entry(keyed("k", "body"), to("nobody")), belfry.CodeUnknownRecipient)
		w.is(!w.enqueue(w.entry(keyed("k", "other")))[0].Replayed, "the key of a refused request was kept")
	}},
	{"TheSameKeyInAnotherProjectIsAnotherKey", func(w *worker) {
		w.inProject("other")
		w.enqueue(w.entry(keyed("k", "body")))
		w.is(!w.enqueue(w.entry(keyed("k", "another"), project("other")))[0].Replayed, "a key was found in another project")
	}},
	{"BatchIsAllOrNothing", func(w *worker) {
		once := once(belfry.Once{Per: belfry.PerDay})
		bad := w.entry()
		bad.Fact = func(string) (string, error) { return "", belfry.Invalid("once", "is wrong") }
		bad.Notification.Once = &belfry.Once{Per: belfry.PerDay}
		for name, wrong := range map[string]store.Entry{"unknown recipient": w.entry(to("nobody")), "no fact": bad} {
			inline := w.entry(to("new"), about("x"))
			inline.Inline = &store.Inline{Recipient: belfry.Recipient{Project: shop, ID: "new"}}
			out, err := w.Enqueue(w.ctx, []store.Entry{w.entry(keyed("k", "body"), once), inline, wrong, w.entry()}, true)
			w.ok(err)
			for i, o := range out {
				w.is((o.Err != nil) == (i == 2), "%s: entry %d has error %v", name, i, o.Err)
			}
			w.count(0)
			_, err = w.Recipient(w.ctx, shop, "new")
			w.refused(err, belfry.CodeNotFound)
		}
		got := w.enqueue(w.entry(keyed("k", "other"), once))[0]
		w.is(!got.Replayed && !got.Duplicate, "the refused batch left its key or its fact behind: %+v", got)
	}},
	{"WithoutAtomicTheGoodAreTaken", func(w *worker) {
		out, err := w.Enqueue(w.ctx, []store.Entry{w.entry(), w.entry(to("nobody")), w.entry()}, false)
		w.ok(err)
		w.is(out[0].Err == nil && out[2].Err == nil, "good entries were refused: %v, %v", out[0].Err, out[2].Err)
		w.refused(out[1].Err, belfry.CodeUnknownRecipient)
		w.count(2)
	}},
	{"UnknownRecipientIsRefused", func(w *worker) {
		w.refusedEntry(w.entry(to("nobody")), belfry.CodeUnknownRecipient)
		w.enqueue(w.entry(to("nobody"), aimed(belfry.Target{Channel: "email", Address: "n@example.com"})))
	}},
	{"InlineMakesTheRecipient", func(w *worker) {
		e := w.entry(to("new"))
		e.Inline = &store.Inline{
			Recipient:     belfry.Recipient{Project: shop, ID: "new", Zone: "Europe/Paris", Locale: "fr"},
			Registrations: []belfry.Registration{{Recipient: "new", Channel: "email", Address: "new@example.com"}},
			IDs:           []belfry.ID{w.id()},
		}
		w.is(w.enqueue(e)[0].Zone == "Europe/Paris", "the zone of the new recipient was not used")
		list, err := w.Endpoints(w.ctx, shop, "new")
		w.ok(err)
		w.is(len(list) == 1 && list[0].Channel == "email" && list[0].Address == "new@example.com", "endpoints %v", list)
	}},
	{"InlineKeepsWhatItDoesNotSay", func(w *worker) {
		_, err := w.PutRecipient(w.ctx, w.now, belfry.Recipient{Project: shop, ID: ann, Zone: "Asia/Tokyo", Locale: "ja", Attributes: []byte(`{"vip":true}`)})
		w.ok(err)
		e := w.entry()
		e.Inline = &store.Inline{Recipient: belfry.Recipient{Project: shop, ID: ann, Locale: "en"}}
		w.is(w.enqueue(e)[0].Zone == "Asia/Tokyo", "the answer lost the zone")
		r, err := w.Recipient(w.ctx, shop, ann)
		w.ok(err)
		w.is(r.Zone == "Asia/Tokyo" && r.Locale == "en" && string(r.Attributes) == `{"vip":true}`, "recipient is %+v", r)
	}},
	{"ARefusedInlineMakesNobody", func(w *worker) {
		w.enqueue(w.entry(keyed("k", "body")))
		refused := w.entry(to("new"), keyed("k", "other"))
		refused.Inline = &store.Inline{Recipient: belfry.Recipient{Project: shop, ID: "new"}}
		out, err := w.Enqueue(w.ctx, []store.Entry{refused, w.entry(to("new"))}, false)
		w.ok(err)
		w.refused(out[0].Err, belfry.CodeKeyReused)
		w.refused(out[1].Err, belfry.CodeUnknownRecipient)
		w.count(1)
	}},
	{"EntriesAreTakenInTheirOrder", func(w *worker) {
		inline := w.entry(to("new"))
		inline.Inline = &store.Inline{Recipient: belfry.Recipient{Project: shop, ID: "new"}}
		out, err := w.Enqueue(w.ctx, []store.Entry{w.entry(to("new")), inline, w.entry(to("new"))}, false)
		w.ok(err)
		w.refused(out[0].Err, belfry.CodeUnknownRecipient)
		w.is(out[1].Err == nil && out[2].Err == nil, "the recipient was not there after it was given: %v, %v", out[1].Err, out[2].Err)
	}},
	{"AReplayedRequestDoesNotTouchItsRecipient", func(w *worker) {
		e := w.entry(keyed("k", "body"))
		e.Inline = &store.Inline{Recipient: belfry.Recipient{Project: shop, ID: ann, Locale: "ja"}}
		w.enqueue(e)
		_, err := w.PutRecipient(w.ctx, w.now, belfry.Recipient{Project: shop, ID: ann, Locale: "fr"})
		w.ok(err)
		w.enqueue(e)
		r, err := w.Recipient(w.ctx, shop, ann)
		w.ok(err)
		w.is(r.Locale == "fr", "a replay changed the recipient: %+v", r)
	}},
	{"ACancelledContextWritesNothing", func(w *worker) {
		ctx, cancel := contextCancelled(w.ctx)
		defer cancel()
		_, err := w.Enqueue(ctx, []store.Entry{w.entry()}, true)
		w.is(errors.Is(err, ctx.Err()), "error %v, want %v", err, ctx.Err())
		w.count(0)
	}},
}
