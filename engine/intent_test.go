package engine_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"belfry"
	"belfry/engine"
	"belfry/store"
)

// between runs change after a notification was planned and before it is armed: while its recheck is asked.
// It returns where the notification then stands, and what was sent of it.
func between(t *testing.T, change func(w *world, id belfry.ID)) (w *world, id belfry.ID, c *script) {
	c = &script{name: "webpush"}
	var once atomic.Bool
	w = &world{}
	var here *world
	recheck := func(_ ctx, q belfry.Check) (belfry.Verdict, error) {
		if !once.Swap(true) {
			change(here, q.Notification)
		}
		return belfry.Send(nil), nil
	}
	w = newWorld(t, engine.Options{Recheck: rechecks{"price": recheck}}, c)
	here = w
	w.category(belfry.Category{Name: "price", Retry: steady})
	w.recipient("u1", "webpush")
	id = w.enqueue(belfry.Request{Recipient: "u1", Category: "price"})
	synctest.Wait()
	return w, id, c
}

func TestNothingIsArmedAfterAChangeOfIntent(t *testing.T) {
	for name, c := range map[string]struct {
		change func(w *world, id belfry.ID)
		state  belfry.State
		reason belfry.Reason
	}{
		"opt-out": {func(w *world, _ belfry.ID) {
			out, err := w.ChangePreferences(w.t.Context(), "default", "u1", optOut("price"), false)
			if w.check(err); len(out.InFlight) != 0 {
				w.t.Errorf("answered %+v", out)
			}
		}, belfry.Dropped, belfry.ReasonOptedOut},
		"opt-out of everything": {func(w *world, _ belfry.ID) {
			must[store.Withdrawn](w.t)(w.ChangePreferences(w.t.Context(), "default", "u1", optOut("*"), true))
		}, belfry.Dropped, belfry.ReasonOptedOut},
		"cancel": {func(w *world, id belfry.ID) {
			out := must[store.Cancelled](w.t)(w.Cancel(w.t.Context(), store.Filter{Project: "default", ID: id}, false))
			if len(out.Cancelled) != 1 || len(out.InFlight) != 0 {
				w.t.Errorf("answered %+v", out)
			}
		}, belfry.Cancelled, belfry.ReasonByCaller},
		"cancel by filter": {func(w *world, id belfry.ID) {
			out := must[store.Cancelled](w.t)(w.Cancel(w.t.Context(), store.Filter{Project: "default", Recipient: "u1"}, false))
			if len(out.Cancelled) != 1 {
				w.t.Errorf("answered %+v", out)
			}
		}, belfry.Cancelled, belfry.ReasonByCaller},
		"suppression": {func(w *world, _ belfry.ID) {
			must[store.Withdrawn](w.t)(w.Suppress(w.t.Context(), belfry.Suppression{Project: "default", Channel: "push", Address: "address-of-u1-webpush"}))
		}, belfry.Dropped, belfry.ReasonSuppressed},
		"retired endpoint": {func(w *world, _ belfry.ID) {
			e := must[[]belfry.Endpoint](w.t)(w.Endpoints(w.t.Context(), "default", "u1"))
			must[store.Withdrawn](w.t)(w.Retire(w.t.Context(), "default", "u1", e[0].ID))
		}, belfry.Dropped, belfry.ReasonEndpointRetired},
		"token of another person": {func(w *world, _ belfry.ID) {
			w.recipient("u2")
			w.register("u2", "webpush", "address-of-u1-webpush")
		}, belfry.Dropped, belfry.ReasonEndpointRetired},
		"deleted category": {func(w *world, _ belfry.ID) {
			w.check(w.DeleteCategory(w.t.Context(), "default", "price"))
		}, belfry.Dropped, belfry.ReasonCategoryGone},
		"deleted recipient": {func(w *world, _ belfry.ID) {
			must[store.Withdrawn](w.t)(w.DeleteRecipient(w.t.Context(), "default", "u1"))
		}, belfry.Dropped, belfry.ReasonRecipientGone},
		"shadow": {func(w *world, _ belfry.ID) {
			w.category(belfry.Category{Name: "price", Shadow: true})
		}, belfry.Dropped, belfry.ReasonShadow},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				w, id, s := between(t, c.change)
				if w.is(id, c.state, c.reason); s.count() != 0 {
					t.Errorf("sent %d", s.count())
				}
			})
		})
	}
}

func TestAPauseBetweenPlanAndArmHolds(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var p belfry.Pause
		w, id, c := between(t, func(w *world, _ belfry.ID) {
			p = must[belfry.Pause](w.t)(w.PutPause(w.t.Context(), belfry.Pause{Project: "default", Channel: "push", Reason: "provider down"}))
		})
		if w.is(id, belfry.Sending, ""); c.count() != 0 {
			t.Fatalf("sent %d", c.count())
		}
		w.check(w.LiftPause(t.Context(), "default", p.ID))
		synctest.Wait()
		if w.is(id, belfry.Sent, ""); c.count() != 1 {
			t.Errorf("sent %d", c.count())
		}
	})
}

// What waits for another try is withdrawn, and counted; what is on the wire is named.
func TestAnOptOutAnswersWhatItWithdrewAndWhatItCameTooLateFor(t *testing.T) {
	virtual(t, func(t *testing.T) {
		release := make(chan struct{})
		c := &script{name: "webhook"}
		c.do = func(_ ctx, a armed) (string, error) {
			if a.Subject == "waits" {
				return "", belfry.NotSent(503, 0, "")
			}
			<-release
			return "", nil
		}
		w := newWorld(t, engine.Options{}, c)
		w.category(belfry.Category{Name: "news"})
		w.recipient("u1", "webhook")
		waits := w.enqueue(belfry.Request{Recipient: "u1", Category: "news", Subject: "waits"})
		flies := w.enqueue(belfry.Request{Recipient: "u1", Category: "news", Subject: "flies"})
		later := w.enqueue(belfry.Request{Recipient: "u1", Category: "news", At: time.Now().Add(time.Hour)})
		other := w.enqueue(belfry.Request{Recipient: "u1", At: time.Now().Add(time.Hour)})
		synctest.Wait()
		out := must[store.Withdrawn](t)(w.ChangePreferences(t.Context(), "default", "u1", optOut("news"), false))
		if out.Withdrawn != 1 || len(out.InFlight) != 1 || out.InFlight[0].Notification != flies {
			t.Errorf("answered %+v", out)
		}
		w.is(waits, belfry.Dropped, belfry.ReasonOptedOut)
		close(release)
		pass(70 * time.Minute)
		w.is(flies, belfry.Sent, "")
		w.is(later, belfry.Dropped, belfry.ReasonOptedOut)
		w.is(other, belfry.Sent, "")
		if c.count() != 3 {
			t.Errorf("sent %d", c.count())
		}
	})
}

func TestACancelOfWhatIsOnTheWirePromisesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		answer error
		state  belfry.State
		reason belfry.Reason
	}{
		"accepted": {nil, belfry.Sent, ""},
		"not sent": {belfry.NotSent(503, 0, ""), belfry.Cancelled, belfry.ReasonByCaller},
		"doubtful": {errCut, belfry.Unknown, belfry.ReasonByCaller},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				release := make(chan struct{})
				s := &script{name: "webhook"}
				s.do = func(ctx, armed) (string, error) { <-release; return "", c.answer }
				w := newWorld(t, engine.Options{}, s)
				w.recipient("u1", "webhook")
				id := w.enqueue(belfry.Request{Recipient: "u1"})
				synctest.Wait()
				dry := must[store.Cancelled](t)(w.Cancel(t.Context(), store.Filter{Project: "default", Recipient: "u1"}, true))
				out := must[store.Cancelled](t)(w.Cancel(t.Context(), store.Filter{Project: "default", ID: id}, false))
				if len(out.InFlight) != 1 || len(out.Cancelled) != 0 || len(dry.InFlight) != 1 {
					t.Errorf("answered %+v, dry %+v", out, dry)
				}
				close(release)
				pass(time.Hour)
				if w.is(id, c.state, c.reason); s.count() != 1 {
					t.Errorf("sent %d", s.count())
				}
			})
		})
	}
}

func TestACancelByFilterEndsEverythingThatMatchesAndADryRunNothing(t *testing.T) {
	virtual(t, func(t *testing.T) {
		c := &script{name: "webhook"}
		w := newWorld(t, engine.Options{}, c)
		w.recipient("u1", "webhook")
		w.recipient("u2", "webhook")
		sent := w.enqueue(belfry.Request{Recipient: "u1", Subject: "order-1"})
		synctest.Wait()
		var mine, others []store.Request
		for range 1100 { // more than one step of a cancel
			at := time.Now().Add(time.Hour)
			mine = append(mine, store.Request{Request: belfry.Request{Project: "default", Recipient: "u1", Subject: "order-1", At: at}})
		}
		others = append(others, store.Request{Request: belfry.Request{Project: "default", Recipient: "u2", Subject: "order-1", At: time.Now().Add(time.Hour)}})
		must[[]store.Enqueued](t)(w.Enqueue(t.Context(), mine, true))
		kept := must[[]store.Enqueued](t)(w.Enqueue(t.Context(), others, true))[0].ID
		f := store.Filter{Project: "default", Recipient: "u1", Subject: "order-1"}
		if dry := must[store.Cancelled](t)(w.Cancel(t.Context(), f, true)); len(dry.Cancelled) == 0 {
			t.Errorf("a dry run found nothing")
		}
		if out := must[store.Cancelled](t)(w.Cancel(t.Context(), f, false)); len(out.Cancelled) != 1100 || out.More {
			t.Errorf("cancelled %d, more %v", len(out.Cancelled), out.More)
		}
		pass(70 * time.Minute)
		w.is(sent, belfry.Sent, "")
		w.is(kept, belfry.Sent, "")
		if c.count() != 2 {
			t.Errorf("sent %d", c.count())
		}
		ended := must[store.Cancelled](t)(w.Cancel(t.Context(), store.Filter{Project: "default", ID: sent}, false))
		if len(ended.Ended) != 1 {
			t.Errorf("of one that ended: %+v", ended)
		}
		if _, err := w.Cancel(t.Context(), store.Filter{Project: "other", ID: kept}, false); belfry.CodeOf(err) != belfry.CodeNotFound {
			t.Errorf("of another project's: %v", err)
		}
	})
}

// An opt-out at any moment of a burst: what was armed before its commit may arrive, nothing else.
func TestNothingIsSentAfterAnOptOutWheneverItComes(t *testing.T) {
	points := 60
	if testing.Short() {
		points = 12
	}
	virtual(t, func(t *testing.T) {
		c := &script{name: "webhook"}
		c.do = func(ctx, armed) (string, error) {
			pass(3 * time.Millisecond)
			return "", nil
		}
		w := newWorld(t, engine.Options{DefaultWorkers: 8, ClaimBatch: 4}, c)
		w.category(belfry.Category{Name: "news"})
		for point := range points {
			id := "u" + string(rune('A'+point))
			w.recipient(id, "webhook")
			batch := make([]store.Request, 40)
			for i := range batch {
				batch[i] = store.Request{Request: belfry.Request{Project: "default", Recipient: id, Category: "news"}}
			}
			before := c.count()
			must[[]store.Enqueued](t)(w.Enqueue(t.Context(), batch, true))
			pass(time.Duration(point) * 300 * time.Microsecond)
			out := must[store.Withdrawn](t)(w.ChangePreferences(t.Context(), "default", id, optOut("news"), false))
			began := c.count() - before
			pass(time.Minute)
			after := c.count() - before - began
			list, _, err := w.Notifications(t.Context(), store.Filter{Project: "default", Recipient: id}, 0, 100)
			w.check(err)
			states := map[belfry.State]int{}
			for _, n := range list {
				states[n.State]++
			}
			if after > len(out.InFlight) || states[belfry.Sent] != began+after || states[belfry.Sent]+states[belfry.Dropped] != len(batch) {
				t.Errorf("point %d: %d had begun, %d began after it, %d named as in flight, ends %v", point, began, after, len(out.InFlight), states)
			}
		}
	})
}
