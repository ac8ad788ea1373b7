package storetest

import (
	"time"

	"belfry"
	"belfry/store"
)

var facts = cases{
	{"SameFactIsOneNotification", func(w *worker) {
		day := once(belfry.Once{Per: belfry.PerDay})
		first := w.tell(day)
		w.after(time.Minute)
		got := w.enqueue(w.entry(day))[0]
		w.same(got, store.Enqueued{ID: first, Duplicate: true, State: belfry.Scheduled, Due: morning, Deadline: morning.Add(lifeTime), Zone: "Asia/Tokyo"}, "answer to the duplicate")
		w.enqueue(w.entry(day))
		w.count(1)
		w.is(w.story(first).Duplicates == 2, "counted %d duplicates, want 2", w.story(first).Duplicates)
	}},
	{"AnotherFactIsAnotherNotification", func(w *worker) {
		w.recipient(bob)
		w.category("sales", nil)
		day := once(belfry.Once{Per: belfry.PerDay})
		w.tell(day)
		for _, e := range []store.Entry{
			w.entry(about("toaster"), day), w.entry(to(bob), day), w.entry(of("sales"), day),
			w.entry(once(belfry.Once{Per: belfry.PerDay, Key: "b"})), w.entry(once(belfry.Once{Per: belfry.Ever})),
			w.entry(due(w.now.Add(24*time.Hour)), day),
		} {
			w.is(!w.enqueue(e)[0].Duplicate, "another fact was taken for the same: %+v", e.Notification)
		}
	}},
	{"TheDayIsTheRecipients", func(w *worker) {
		day := once(belfry.Once{Per: belfry.PerDay})
		w.tell(day, due(time.Date(2026, 12, 1, 14, 59, 0, 0, time.UTC))) // 23:59 in Tokyo
		w.is(!w.enqueue(w.entry(day, due(time.Date(2026, 12, 1, 15, 0, 0, 0, time.UTC))))[0].Duplicate, "the next day in Tokyo was taken for the same")
	}},
	{"TheSameFactInAnotherProjectIsAnotherFact", func(w *worker) {
		w.inProject("other")
		ever := once(belfry.Once{Per: belfry.Ever})
		w.tell(ever)
		w.is(!w.enqueue(w.entry(project("other"), ever))[0].Duplicate, "a fact was found in another project")
	}},
	{"AFactTwiceInABatchIsOneNotification", func(w *worker) {
		day := once(belfry.Once{Per: belfry.PerDay})
		out := w.enqueue(w.entry(day), w.entry(day))
		w.is(!out[0].Duplicate && out[1].Duplicate && out[1].ID == out[0].ID, "answers %+v", out)
		w.count(1)
	}},
	{"ADuplicateKeepsItsKey", func(w *worker) {
		day := once(belfry.Once{Per: belfry.PerDay})
		first := w.tell(day)
		dup := w.enqueue(w.entry(day, keyed("k", "body")))[0]
		again := w.enqueue(w.entry(day, keyed("k", "body")))[0]
		dup.Replayed = true
		w.same(again, dup, "repeated answer of a duplicate")
		w.is(w.story(first).Duplicates == 1, "a replay counted as a duplicate: %d", w.story(first).Duplicates)
		w.refusedEntry(w.entry(day, keyed("k", "other")), belfry.CodeKeyReused)
	}},
	{"WhatReachedNobodyFreesItsFact", func(w *worker) {
		for _, end := range []belfry.State{belfry.Dropped, belfry.Failed, belfry.Missed, belfry.Cancelled} {
			fact := once(belfry.Once{Per: belfry.Ever, Key: string(end)})
			id := w.tell(fact)
			w.end(id, end)
			again := w.enqueue(w.entry(fact))[0]
			w.is(!again.Duplicate, "a notification that was %s keeps its fact", end)
			w.cancel(again.ID)
		}
	}},
	{"WhatMayHaveReachedSomeoneKeepsItsFact", func(w *worker) {
		for _, end := range []belfry.State{belfry.Sent, belfry.Unknown} {
			fact := once(belfry.Once{Per: belfry.Ever, Key: string(end)})
			id := w.tell(fact)
			w.end(id, end)
			got := w.enqueue(w.entry(fact))[0]
			w.is(got.Duplicate && got.ID == id && got.State == end, "after %s the fact gives %+v", end, got)
		}
	}},
	{"AFactIsFreedByTheEndsItNames", func(w *worker) {
		sent := once(belfry.Once{Per: belfry.Ever, ReleaseOn: []belfry.State{belfry.Sent}})
		w.end(w.tell(sent), belfry.Sent)
		w.is(!w.enqueue(w.entry(sent))[0].Duplicate, "release_on [sent] did not free the fact of a sent one")
		never := once(belfry.Once{Per: belfry.Ever, Key: "never", ReleaseOn: []belfry.State{}})
		w.end(w.tell(never), belfry.Cancelled)
		w.is(w.enqueue(w.entry(never))[0].Duplicate, "release_on [] freed the fact")
	}},
	{"WhileOpenLastsUntilTheEnd", func(w *worker) {
		open := once(belfry.Once{Per: belfry.WhileOpen})
		id := w.tell(open)
		w.is(w.enqueue(w.entry(open))[0].Duplicate, "an open fact was told again")
		w.end(id, belfry.Sent)
		w.is(!w.enqueue(w.entry(open))[0].Duplicate, "an ended notification keeps its open fact")
	}},
	{"AFactThatIsTakenAgainStaysWithItsNewTeller", func(w *worker) {
		fact := once(belfry.Once{Per: belfry.Ever})
		w.end(w.tell(fact), belfry.Cancelled)
		second := w.tell(fact)
		got := w.enqueue(w.entry(fact))[0]
		w.is(got.Duplicate && got.ID == second, "the fact belongs to %v, want %v", got.ID, second)
	}},
	{"AnUnknownThatTurnsOutFailedFreesItsFact", func(w *worker) {
		fact := once(belfry.Once{Per: belfry.Ever})
		w.category("amo", func(c *belfry.Category) { c.Delivery = belfry.AtMostOnce })
		w.endpoint(ann, "email", "a@example.com")
		id := w.tell(fact, of("amo"))
		t := w.sendOne("")
		w.lose()
		w.stands(id, belfry.Unknown, belfry.ReasonWorkerLost)
		w.is(w.enqueue(w.entry(fact, of("amo")))[0].Duplicate, "unknown freed the fact")
		w.settle(t, belfry.OutcomeRefused)
		w.stands(id, belfry.Failed, belfry.ReasonRefused)
		w.is(!w.enqueue(w.entry(fact, of("amo")))[0].Duplicate, "the fact of a notification that failed after all was kept")
	}},
}
