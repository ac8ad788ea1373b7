package engine_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"belfry"
	"belfry/engine"
	"belfry/store"
)

// flood enqueues n notifications of a category to one recipient of a project.
func (w *world) flood(project, category string, n int) {
	w.t.Helper()
	for n > 0 {
		batch := make([]store.Request, min(n, 1000))
		for i := range batch {
			batch[i] = store.Request{Request: belfry.Request{Project: project, Recipient: "crowd", Category: category}}
		}
		must[[]store.Enqueued](w.t)(w.Enqueue(w.t.Context(), batch, true))
		n -= len(batch)
	}
}

// inProject makes a project with a category in each lane and a recipient called crowd.
func (w *world) inProject(project string, channels ...string) {
	w.t.Helper()
	w.check(w.store.PutProject(w.t.Context(), time.Now(), project))
	for _, lane := range belfry.Lanes {
		w.check(w.PutCategory(w.t.Context(), belfry.Category{Project: project, Name: string(lane), Lane: lane}))
	}
	must[belfry.Recipient](w.t)(w.PutRecipient(w.t.Context(), belfry.Recipient{Project: project, ID: "crowd"}))
	for _, c := range channels {
		must[store.Registered](w.t)(w.Register(w.t.Context(), project, belfry.Registration{Recipient: "crowd", Channel: c, Address: belfry.Secret(project + c)}))
	}
}

func TestASlowProviderDelaysNoOtherChannel(t *testing.T) {
	virtual(t, func(t *testing.T) {
		slow, quick := &script{name: "webhook"}, &script{name: "email"}
		slow.do = func(c ctx, _ armed) (string, error) { <-c.Done(); return "", c.Err() }
		w := newWorld(t, engine.Options{DefaultWorkers: 8, ClaimBatch: 4}, slow, quick)
		w.category(belfry.Category{Name: "hooks", Channels: []string{"webhook"}})
		w.category(belfry.Category{Name: "mails", Channels: []string{"email"}})
		w.recipient("u1", "webhook", "email")
		w.recipient("crowd", "webhook")
		w.flood("default", "hooks", 500)
		pass(time.Second)
		for range 20 {
			start := time.Now()
			mail := w.enqueue(belfry.Request{Recipient: "u1", Category: "mails"})
			both := w.enqueue(belfry.Request{Recipient: "u1"})
			synctest.Wait()
			w.is(mail, belfry.Sent, "")
			if w.is(both, belfry.Sent, ""); time.Since(start) != 0 {
				t.Errorf("the other channel took %v", time.Since(start))
			}
			pass(3 * time.Second)
		}
	})
}

// Every worker that bulk may have is busy for a second at a time: urgent, normal and another project do not
// wait for them.
func TestAFloodDelaysNeitherUrgentNorNormalNorAnotherProject(t *testing.T) {
	n := 2000
	if testing.Short() {
		n = 400
	}
	virtual(t, func(t *testing.T) {
		var mu sync.Mutex
		late := map[string]time.Duration{}
		c := &script{name: "webhook"}
		c.do = func(_ ctx, a armed) (string, error) { pass(time.Second); return "", nil }
		w := newWorld(t, engine.Options{DefaultWorkers: 16, ClaimBatch: 8, Observe: func(e engine.Event) {
			if e.First {
				mu.Lock()
				defer mu.Unlock()
				key := e.Project + "/" + string(e.Lane)
				late[key] = max(late[key], e.Late)
			}
		}}, c)
		w.inProject("loud", "webhook")
		w.inProject("quiet", "webhook")
		w.flood("loud", "bulk", n)
		for range 20 {
			w.flood("loud", "normal", 1)
			w.flood("quiet", "urgent", 1)
			w.flood("quiet", "bulk", 1)
			pass(1300 * time.Millisecond)
			w.flood("loud", "urgent", 1)
			pass(1300 * time.Millisecond)
		}
		pass(time.Hour)
		mu.Lock()
		defer mu.Unlock()
		for _, key := range []string{"loud/urgent", "quiet/urgent", "loud/normal"} {
			if late[key] != 0 {
				t.Errorf("%s was %v late beside the flood", key, late[key])
			}
		}
		// Its share of the bulk workers comes free within the second that a send takes.
		if late["quiet/bulk"] > time.Second {
			t.Errorf("bulk of the quiet project was %v late, the loud one's %v", late["quiet/bulk"], late["loud/bulk"])
		}
		if late["loud/bulk"] < 20*time.Second {
			t.Errorf("that was no flood: %v", late["loud/bulk"])
		}
	})
}

// lateness enqueues urgent notifications one by one, and says how late each was sent, sorted.
func (w *world) lateness(project string, n int, sent <-chan time.Duration) []time.Duration {
	w.t.Helper()
	out := make([]time.Duration, 0, n)
	for range n {
		must[[]store.Enqueued](w.t)(w.Enqueue(w.t.Context(), []store.Request{{Request: belfry.Request{Project: project, Recipient: "crowd", Category: "urgent"}}}, true))
		select {
		case d := <-sent:
			out = append(out, d)
		case <-time.After(time.Minute):
			w.t.Fatal("an urgent notification was not sent within a minute")
		}
	}
	slices.Sort(out)
	return out
}

// The processor and the disk are shared, so some lateness is the flood's: it must stay far below the flood's
// own length, which is what it would be without lanes and turns.
func TestUrgentBesideAFloodIsAboutAsPromptAsAlone(t *testing.T) {
	n := 100_000
	if testing.Short() {
		n = 3000
	}
	for _, loud := range []string{"default", "another"} {
		t.Run("flood in "+loud, func(t *testing.T) {
			sent := make(chan time.Duration, 1)
			var flooded atomic.Int64
			w := newWorld(t, engine.Options{Observe: func(e engine.Event) {
				switch {
				case e.First && e.Lane == belfry.Urgent:
					sent <- e.Late
				case e.First:
					flooded.Add(1)
				}
			}}, &script{name: "webhook", do: func(ctx, armed) (string, error) { return "", nil }})
			w.inProject("default", "webhook")
			w.inProject("another", "webhook")
			alone := w.lateness("default", 50, sent)
			began := time.Now()
			w.flood(loud, "bulk", n)
			beside := []time.Duration{}
			for flooded.Load() < int64(n) {
				beside = append(beside, w.lateness("default", 5, sent)...)
			}
			took := time.Since(began)
			slices.Sort(beside)
			p := func(d []time.Duration, q int) time.Duration { return d[(len(d)-1)*q/100] }
			figures := fmt.Sprintf("alone p50 %v p99 %v; beside p50 %v p99 %v max %v (of %d); the flood of %d took %v",
				p(alone, 50), p(alone, 99), p(beside, 50), p(beside, 99), p(beside, 100), len(beside), n, took)
			t.Log(figures)
			if p(beside, 50) > 20*p(alone, 50)+took/10 {
				t.Error(figures)
			}
		})
	}
}

func TestNoMoreIsClaimedThanThereIsRoomFor(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var most atomic.Int64
		c := &script{name: "webhook"}
		w := newWorld(t, engine.Options{DefaultWorkers: 16, ClaimBatch: 8}, c, &script{name: "email"})
		c.do = func(ctx, armed) (string, error) {
			st, err := w.Stats(context.Background(), "")
			if err != nil {
				return "", err
			}
			for n := int64(st.Sending); n > most.Load(); {
				most.Store(n)
			}
			pass(10 * time.Millisecond)
			return "", nil
		}
		w.inProject("default", "webhook")
		w.category(belfry.Category{Name: "hooks", Channels: []string{"webhook"}})
		w.flood("default", "hooks", 300) // into the channel's queue
		w.flood("default", "bulk", 300)  // to be planned
		pass(time.Minute)
		if c.count() != 600 {
			t.Fatalf("sent %d", c.count())
		}
		// 16 sends, and 4 batches of 8 that are being planned.
		if n := most.Load(); n > 16+32 {
			t.Errorf("%d were claimed at once", n)
		}
		for ch, n := range w.Busy() {
			if n != 0 {
				t.Errorf("%d slots of %s were not given back", n, ch)
			}
		}
	})
}

func TestEverySlotComesBackWhateverHappens(t *testing.T) {
	virtual(t, func(t *testing.T) {
		c := &script{name: "webhook", encode: func(m channelMessage) ([]byte, error) {
			if m.Subject == "2" {
				panic("poison")
			}
			return nil, nil
		}}
		c.do = func(c ctx, a armed) (string, error) {
			switch a.Subject {
			case "0":
				panic("send")
			case "1":
				<-c.Done()
				return "", c.Err()
			case "3":
				return "", belfry.Gone(410, "")
			}
			return "", nil
		}
		w := newWorld(t, engine.Options{DefaultWorkers: 4, ClaimBatch: 3, Recheck: rechecks{"odd": func(_ ctx, q belfry.Check) (belfry.Verdict, error) {
			switch q.Subject {
			case "4":
				return belfry.Drop("x"), nil
			case "5":
				return belfry.Later(time.Minute), nil
			case "6":
				panic("recheck")
			}
			return belfry.Send(nil), nil
		}}}, c, &script{name: "email"})
		w.category(belfry.Category{Name: "odd", Delivery: belfry.AtMostOnce, ExpiresIn: belfry.Duration(10 * time.Minute)})
		for i := range 40 {
			id := "u" + strconv.Itoa(i)
			w.recipient(id, "webhook", "email")
			w.enqueue(belfry.Request{Recipient: id, Category: "odd", Subject: strconv.Itoa(i % 8)})
		}
		pass(time.Hour)
		for ch, n := range w.Busy() {
			if n != 0 {
				t.Errorf("%d slots of %s were not given back", n, ch)
			}
		}
		if st := must[store.Stats](t)(w.Stats(t.Context(), "")); st.Waiting != 0 || st.Sending != 0 {
			t.Errorf("not all has ended: %+v", st)
		}
	})
}
