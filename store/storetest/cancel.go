package storetest

import (
	"time"

	"belfry"
	"belfry/store"
)

var cancelling = cases{
	{"CancelBeforePlan", func(w *worker) {
		id := w.tell()
		w.same(w.cancel(id), store.Cancelled{Cancelled: []belfry.ID{id}}, "cancel")
		w.stands(id, belfry.Cancelled, belfry.ReasonByCaller)
		w.heads()
		w.same(w.cancel(id), store.Cancelled{Ended: []belfry.ID{id}}, "second cancel")
		_, err := w.Cancel(w.ctx, w.now, store.Filter{Project: shop, ID: w.id()}, false, 1)
		w.refused(err, belfry.CodeNotFound)
	}},
	{"CancelBeforeArm", func(w *worker) {
		w.endpoint(ann, "email", "a@example.com")
		id := w.tell()
		a := w.prepare(w.claim(""))
		w.same(w.cancel(id), store.Cancelled{Cancelled: []belfry.ID{id}}, "cancel of what is claimed")
		w.isNothing(a)
		w.stands(id, belfry.Cancelled, belfry.ReasonByCaller)

		id = w.tell()
		w.settle(w.sendOne(""), belfry.OutcomeNotSent)
		w.after(time.Minute)
		a = w.prepare(w.claim("email"))
		w.same(w.cancel(id), store.Cancelled{Cancelled: []belfry.ID{id}}, "cancel of a delivery that is claimed")
		w.isNothing(a)
		w.stands(id, belfry.Cancelled, belfry.ReasonByCaller)
	}},
	{"CancelWhileArmed", func(w *worker) {
		w.endpoint(ann, "email", "a@example.com")
		for outcome, want := range map[belfry.Outcome]struct {
			belfry.State
			belfry.Reason
		}{
			belfry.OutcomeNotSent:  {belfry.Cancelled, belfry.ReasonByCaller},
			belfry.OutcomeAccepted: {belfry.Sent, ""},
			belfry.OutcomeRefused:  {belfry.Failed, belfry.ReasonRefused},
		} {
			id := w.tell()
			t := w.sendOne("")
			w.same(w.cancel(id), store.Cancelled{InFlight: []belfry.ID{id}}, "cancel")
			w.same(w.cancel(id), store.Cancelled{InFlight: []belfry.ID{id}}, "second cancel")
			w.stands(id, belfry.Sending, "")
			w.is(w.delivery(id, 1, belfry.Sending, "").Armed, "a cancel took it off the wire")
			w.is(w.happened(id, store.EventCancelWant) > 0, "the cancel is not told: %s", tale(w.story(id)))
			w.settle(t, outcome)
			w.stands(id, want.State, want.Reason)
		}
	}},
	{"CancelWhileArmedAndLost", func(w *worker) {
		w.endpoint(ann, "email", "a@example.com")
		id := w.tell()
		w.sendOne("")
		w.cancel(id)
		w.lose()
		w.stands(id, belfry.Unknown, belfry.ReasonByCaller)
		w.heads()
	}},
	{"CancelOfSomeOnTheWireStopsTheOthers", func(w *worker) {
		w.endpoint(ann, "email", "a@example.com")
		w.endpoint(ann, "webpush", "token", "phone")
		id := w.tell()
		tries := w.send("")
		w.settle(tries[0], belfry.OutcomeNotSent)
		w.same(w.cancel(id), store.Cancelled{InFlight: []belfry.ID{id}}, "cancel")
		w.delivery(id, 1, belfry.Cancelled, belfry.ReasonByCaller)
		w.settle(tries[1], belfry.OutcomeNotSent)
		w.stands(id, belfry.Cancelled, belfry.ReasonByCaller)
	}},
	{"CancelByFilterGoesAsFarAsItsLimit", func(w *worker) {
		w.recipient(bob)
		w.category("sales", nil)
		other := w.tell(to(bob))
		another := w.tell(of("sales"))
		want := map[belfry.ID]bool{}
		for range 5 {
			want[w.tell()] = true
		}
		f := store.Filter{Project: shop, Recipient: ann, Category: news}
		dry, err := w.Cancel(w.ctx, w.now, f, true, 100)
		w.ok(err)
		w.is(len(dry.Cancelled) == 5 && !dry.More, "a dry run counts %+v", dry)
		for id := range want {
			w.stands(id, belfry.Scheduled, "")
		}
		for calls := 0; ; calls++ {
			c, err := w.Cancel(w.ctx, w.now, f, false, 2)
			w.ok(err)
			w.is(len(c.Cancelled) <= 2, "one call cancelled %d, the limit was 2", len(c.Cancelled))
			for _, id := range c.Cancelled {
				w.is(want[id], "cancelled %v, which does not match or was cancelled before", id)
				delete(want, id)
			}
			if !c.More {
				break
			}
			if calls == 20 {
				w.Fatalf("Cancel says that there is more for ever")
			}
		}
		w.is(len(want) == 0, "%d were not cancelled", len(want))
		w.stands(other, belfry.Scheduled, "")
		w.stands(another, belfry.Scheduled, "")
	}},
	{"CancelByFilterPassesOverWhatIsOnTheWire", func(w *worker) {
		w.endpoint(ann, "email", "a@example.com")
		armed := w.tell()
		w.sendOne("")
		waiting := w.tell()
		f := store.Filter{Project: shop}
		var all store.Cancelled
		for range 9 {
			c, err := w.Cancel(w.ctx, w.now, f, false, 1)
			w.ok(err)
			all.Cancelled, all.InFlight, all.More = append(all.Cancelled, c.Cancelled...), append(all.InFlight, c.InFlight...), c.More
			if !c.More {
				break
			}
		}
		w.same(all, store.Cancelled{Cancelled: []belfry.ID{waiting}, InFlight: []belfry.ID{armed}}, "cancel in small steps")
	}},
}

// isNothing wants an arm to send nothing: everything was cancelled or withdrawn meanwhile.
func (w *worker) isNothing(a store.Arm) {
	w.Helper()
	out, err := w.Arm(w.ctx, a)
	if err != nil && err != store.ErrGone {
		w.Fatalf("Arm: %v", err)
	}
	for _, t := range out {
		w.is(!t.Delivery.Armed, "armed what had been stopped: %+v", t.Delivery)
	}
}
