package engine_test

import (
	"bytes"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"belfry"
	"belfry/engine"
	"belfry/store"
)

// steady is a retry policy whose jitter its Max cuts off: every wait is exactly a minute.
var steady = belfry.RetryPolicy{First: belfry.Duration(time.Minute), Max: belfry.Duration(time.Minute)}

func TestARetryIsMadeExactlyWhenItIsDue(t *testing.T) {
	virtual(t, func(t *testing.T) {
		down := belfry.NotSent(503, 0, "down")
		c := &script{name: "webhook", answers: []error{down, down, down, down, down, down}}
		w := newWorld(t, engine.Options{}, c)
		w.category(belfry.Category{Name: "alert"})
		w.recipient("u1", "webhook")
		start := time.Now()
		id := w.enqueue(belfry.Request{Recipient: "u1", Category: "alert"})
		last := start
		// The default: 30 s, doubled, lengthened by up to a quarter, at most half an hour.
		for n, wait := 1, 30*time.Second; n <= 6; n, wait = n+1, 2*wait {
			synctest.Wait()
			if c.count() != n {
				t.Fatalf("try %d: %d were made", n, c.count())
			}
			next := w.is(id, belfry.Sending, "").Waits
			if d := next.Sub(last); d < wait || d > wait+wait/4 {
				t.Errorf("after try %d it waits %v, want %v to %v", n, d, wait, wait+wait/4)
			}
			pass(time.Until(next) - time.Microsecond)
			synctest.Wait()
			if c.count() != n {
				t.Fatalf("try %d was made early", n+1)
			}
			pass(time.Microsecond)
			last = next
		}
		synctest.Wait()
		st := w.is(id, belfry.Sent, "")
		sent, at := c.list()
		if len(sent) != 7 || !at[6].Equal(last) || len(st.Deliveries[0].Attempts) != 7 {
			t.Errorf("%d tries, the last %v after it was due", len(sent), at[6].Sub(last))
		}
	})
}

func TestUrgentIsTriedAgainInSeconds(t *testing.T) {
	virtual(t, func(t *testing.T) {
		down := belfry.NotSent(503, 0, "")
		c := &script{name: "webhook", answers: []error{down, down, down, down, down, down}}
		w := newWorld(t, engine.Options{}, c)
		w.category(belfry.Category{Name: "code", Lane: belfry.Urgent})
		w.recipient("u1", "webhook")
		w.enqueue(belfry.Request{Recipient: "u1", Category: "code"})
		pass(15 * time.Minute)
		_, at := c.list()
		for n, want := range []time.Duration{2, 4, 8, 16, 30, 30} {
			want *= time.Second
			if d := at[n+1].Sub(at[n]); d < want || d > want+want/4 {
				t.Errorf("wait %d is %v, want %v and up to a quarter", n+1, d, want)
			}
		}
	})
}

func TestARetryAfterIsHeededAndSpendsNothing(t *testing.T) {
	virtual(t, func(t *testing.T) {
		answers := []error{}
		for range 12 {
			answers = append(answers, belfry.Throttled(429, 5*time.Minute, "slow down"))
		}
		c := &script{name: "webhook", answers: answers}
		w := newWorld(t, engine.Options{}, c)
		w.category(belfry.Category{Name: "alert", Retry: belfry.RetryPolicy{First: belfry.Duration(time.Second), Max: belfry.Duration(time.Second), Attempts: 2}})
		w.recipient("u1", "webhook")
		id := w.enqueue(belfry.Request{Recipient: "u1", Category: "alert"})
		pass(3 * time.Hour)
		w.is(id, belfry.Sent, "")
		_, at := c.list()
		for i := range len(at) - 1 {
			if d := at[i+1].Sub(at[i]); d < 5*time.Minute || d > 5*time.Minute+time.Second {
				t.Errorf("it was told to wait 5 minutes and waited %v", d)
			}
		}
		if len(at) != 13 {
			t.Errorf("%d tries", len(at))
		}
	})
}

func TestNothingIsTriedPastItsDeadline(t *testing.T) {
	virtual(t, func(t *testing.T) {
		down := belfry.NotSent(503, 0, "")
		c := &script{name: "webhook", answers: []error{down, down, down, down, down, down, down, down, down}}
		w := newWorld(t, engine.Options{}, c)
		w.category(belfry.Category{Name: "alert", Retry: steady})
		w.recipient("u1", "webhook")
		// The third retry is due at the deadline to the microsecond, which is still in time.
		id := w.enqueue(belfry.Request{Recipient: "u1", Category: "alert", ExpiresIn: belfry.Duration(3 * time.Minute)})
		pass(3 * time.Minute)
		synctest.Wait()
		st := w.is(id, belfry.Missed, belfry.ReasonDeadline)
		if c.count() != 4 || st.Deliveries[0].State != belfry.Missed {
			t.Errorf("%d tries: %+v", c.count(), st.Deliveries[0])
		}
	})
}

func TestARetryAfterPastTheDeadlineMissesAtOnce(t *testing.T) {
	virtual(t, func(t *testing.T) {
		c := &script{name: "webhook", answers: []error{belfry.Throttled(429, 2*time.Hour, "")}}
		w := newWorld(t, engine.Options{}, c)
		w.recipient("u1", "webhook")
		id := w.enqueue(belfry.Request{Recipient: "u1", ExpiresIn: belfry.Duration(time.Hour)})
		synctest.Wait()
		w.is(id, belfry.Missed, belfry.ReasonDeadline)
	})
}

func TestEveryAttemptSpentIsAFailure(t *testing.T) {
	virtual(t, func(t *testing.T) {
		down := belfry.NotSent(503, 0, "")
		c := &script{name: "webhook", answers: []error{down, down, down, down}}
		w := newWorld(t, engine.Options{}, c)
		p := steady
		p.Attempts = 3
		w.category(belfry.Category{Name: "alert", Retry: p})
		w.recipient("u1", "webhook")
		id := w.enqueue(belfry.Request{Recipient: "u1", Category: "alert"})
		pass(time.Hour)
		if w.is(id, belfry.Failed, belfry.ReasonAttemptsExhausted); c.count() != 3 {
			t.Errorf("%d tries", c.count())
		}
	})
}

func TestWhatIsDueLaterGoesExactlyThenAndTheStoreIsNotPolled(t *testing.T) {
	virtual(t, func(t *testing.T) {
		c := &script{name: "webhook"}
		w := newWorld(t, engine.Options{Poll: 1000 * time.Hour}, c)
		w.recipient("u1", "webhook")
		start := time.Now()
		due := []time.Duration{90 * time.Second, time.Hour + 7*time.Microsecond, 3 * time.Hour}
		for _, d := range due {
			w.enqueue(belfry.Request{Recipient: "u1", At: start.Add(d)})
		}
		synctest.Wait()
		looked := w.store.heads.Load()
		pass(4 * time.Hour)
		synctest.Wait()
		_, at := c.list()
		if len(at) != len(due) {
			t.Fatalf("%d were sent", len(at))
		}
		for i, d := range due {
			if late := at[i].Sub(start.Add(d)); late != 0 {
				t.Errorf("due after %v, sent %v later", d, late)
			}
		}
		// One look when it is due, one when it is claimed and gave its slots back, one when it is settled.
		if n := w.store.heads.Load() - looked; n > 5*int64(len(due)) {
			t.Errorf("the store was asked %d times for %d notifications in four hours", n, len(due))
		}
	})
}

func TestAHintWakesAtOnce(t *testing.T) {
	virtual(t, func(t *testing.T) {
		c := &script{name: "webhook"}
		w := newWorld(t, engine.Options{Poll: 1000 * time.Hour}, c)
		w.recipient("u1", "webhook")
		w.enqueue(belfry.Request{Recipient: "u1", At: time.Now().Add(100 * time.Hour)})
		pass(time.Minute)
		start := time.Now()
		w.enqueue(belfry.Request{Recipient: "u1"})
		w.enqueue(belfry.Request{Recipient: "u1", At: start.Add(time.Minute)})
		pass(2 * time.Minute)
		_, at := c.list()
		if len(at) != 2 || !at[0].Equal(start) || !at[1].Equal(start.Add(time.Minute)) {
			t.Errorf("sent at %v, enqueued at %v", at, start)
		}
	})
}

// A hint that comes while the engine has read the store, and does not sleep yet, must not be lost.
func TestAHintInTheMiddleOfALookIsNotLost(t *testing.T) {
	virtual(t, func(t *testing.T) {
		c := &script{name: "webhook"}
		w := &world{t: t}
		st := openStore(t, t.TempDir(), sqliteNormal)
		defer st.Close()
		slow := &slowHeads{Store: st}
		w.store = &watched{Store: slow}
		w.start(engine.Options{Poll: 1000 * time.Hour}, c)
		defer w.stop()
		w.recipient("u1", "webhook")
		synctest.Wait()
		slow.hold.Store(true)
		w.Wake()
		pass(time.Second) // it has looked, and does not know it yet
		start := time.Now()
		w.enqueue(belfry.Request{Recipient: "u1"})
		slow.hold.Store(false)
		pass(time.Minute)
		if _, at := c.list(); len(at) != 1 || at[0].Sub(start) > 10*time.Second {
			t.Errorf("enqueued at %v, sent at %v", start, at)
		}
	})
}

// slowHeads answers what it read ten seconds ago.
type slowHeads struct {
	store.Store
	hold atomic.Bool
}

func (s *slowHeads) Heads(c ctx) ([]store.Head, error) {
	heads, err := s.Store.Heads(c)
	if s.hold.Load() {
		pass(10 * time.Second)
	}
	return heads, err
}

func TestAnEnqueueNobodyToldOfIsFoundByAskingAnyway(t *testing.T) {
	virtual(t, func(t *testing.T) {
		c := &script{name: "webhook"}
		w := newWorld(t, engine.Options{Poll: 2 * time.Second}, c)
		w.recipient("u1", "webhook")
		synctest.Wait()
		start := time.Now()
		entry := must[store.Entry](t)(w.Entry(t.Context(), store.Request{Request: belfry.Request{Project: "default", Recipient: "u1"}}))
		must[[]store.Enqueued](t)(w.store.Enqueue(t.Context(), []store.Entry{entry}, true))
		pass(10 * time.Second)
		if _, at := c.list(); len(at) != 1 || at[0].Sub(start) > 2*time.Second {
			t.Errorf("enqueued at %v, sent at %v", start, at)
		}
	})
}

func TestWhatCannotBeKnownIsSaidAndNotSentAgainAtMostOnce(t *testing.T) {
	virtual(t, func(t *testing.T) {
		c := &script{name: "webhook", answers: []error{errCut}}
		w := newWorld(t, engine.Options{}, c)
		w.category(belfry.Category{Name: "news", Delivery: belfry.AtMostOnce})
		w.recipient("u1", "webhook")
		id := w.enqueue(belfry.Request{Recipient: "u1", Category: "news"})
		pass(time.Hour)
		if w.is(id, belfry.Unknown, belfry.ReasonNoAnswer); c.count() != 1 {
			t.Errorf("%d tries", c.count())
		}
	})
}

func TestWhatCannotBeKnownIsSentAgainWithTheSameIdAndBytes(t *testing.T) {
	virtual(t, func(t *testing.T) {
		c := &script{name: "webhook", answers: []error{errCut, errCut}}
		price := 0
		w := newWorld(t, engine.Options{Recheck: rechecks{"price": func(ctx, belfry.Check) (belfry.Verdict, error) {
			price++
			return belfry.Send([]byte(`{"price":` + string(rune('0'+price)) + `}`)), nil
		}}}, c)
		w.category(belfry.Category{Name: "price", Templates: belfry.Templates{"body": "now {{.price}}"}})
		w.recipient("u1", "webhook")
		id := w.enqueue(belfry.Request{Recipient: "u1", Category: "price"})
		pass(time.Hour)
		w.is(id, belfry.Sent, "")
		sent, _ := c.list()
		if len(sent) != 3 || price != 3 {
			t.Fatalf("sent %d times, rechecked %d times", len(sent), price)
		}
		for i, s := range sent {
			if s.Delivery != sent[0].Delivery || !bytes.Equal(s.Payload, sent[0].Payload) {
				t.Errorf("try %d: %v %s, first %v %s", i+1, s.Delivery, s.Payload, sent[0].Delivery, sent[0].Payload)
			}
			if i > 0 && (s.Epoch <= sent[i-1].Epoch || s.Attempt != i+1) {
				t.Errorf("try %d: epoch %v after %v, attempt %d", i+1, s.Epoch, sent[i-1].Epoch, s.Attempt)
			}
		}
	})
}

func TestEveryAttemptDoubtfulIsUnknown(t *testing.T) {
	virtual(t, func(t *testing.T) {
		p := steady
		p.Attempts = 2
		c := &script{name: "webhook", answers: []error{errCut, belfry.NotSent(503, 0, ""), nil}}
		w := newWorld(t, engine.Options{}, c)
		w.category(belfry.Category{Name: "alert", Retry: p})
		w.recipient("u1", "webhook")
		id := w.enqueue(belfry.Request{Recipient: "u1", Category: "alert"})
		pass(time.Hour)
		w.is(id, belfry.Unknown, belfry.ReasonAttemptsExhausted)
	})
}

// A definite failure leaves the text free: it is made anew from fresh data.
func TestARetryAfterADefiniteFailureTellsTheFreshData(t *testing.T) {
	virtual(t, func(t *testing.T) {
		c := &script{name: "webhook", answers: []error{belfry.NotSent(0, 0, "refused to connect")}}
		price := 0
		w := newWorld(t, engine.Options{Recheck: rechecks{"price": func(_ ctx, q belfry.Check) (belfry.Verdict, error) {
			price++
			if q.Attempt != price {
				return belfry.Verdict{}, errors.New("asked about another attempt")
			}
			return belfry.Send([]byte(`{"price":` + string(rune('0'+price)) + `}`)), nil
		}}}, c)
		w.category(belfry.Category{Name: "price", Templates: belfry.Templates{"body": "now {{.price}}"}})
		w.recipient("u1", "webhook")
		w.enqueue(belfry.Request{Recipient: "u1", Category: "price", Subject: "kettle"})
		pass(time.Hour)
		sent, _ := c.list()
		if len(sent) != 2 || !bytes.Contains(sent[0].Payload, []byte("now 1")) || !bytes.Contains(sent[1].Payload, []byte("now 2")) {
			t.Errorf("sent %+v", sent)
		}
		if m := must[[]store.Mark](t)(w.Marks(t.Context(), "default", "u1", "price", "kettle")); len(m) != 1 || string(m[0].Data) != `{"price":2}` {
			t.Errorf("the mark holds %+v", m)
		}
	})
}

func TestAnEndpointThatIsGoneIsNeverTriedAgain(t *testing.T) {
	virtual(t, func(t *testing.T) {
		c := &script{name: "webpush"}
		w := newWorld(t, engine.Options{}, c)
		w.recipient("u1", "webpush")
		w.register("u1", "webpush", "another")
		c.do = func(_ ctx, a armed) (string, error) {
			if a.Endpoint.Address == "another" {
				return "", belfry.Gone(410, "")
			}
			return "", belfry.NotSent(503, 0, "")
		}
		first := w.enqueue(belfry.Request{Recipient: "u1"})
		pass(time.Minute)
		st := w.story(first)
		if i := slices.IndexFunc(st.Deliveries, func(d store.DeliveryStory) bool { return d.State == belfry.Failed && d.Reason == belfry.ReasonGone }); i < 0 {
			t.Fatalf("%+v", st.Deliveries)
		}
		w.enqueue(belfry.Request{Recipient: "u1"})
		pass(time.Hour)
		gone := 0
		sent, _ := c.list()
		for _, s := range sent {
			if s.Endpoint.Address == "another" {
				gone++
			}
		}
		if gone != 1 {
			t.Errorf("an endpoint that is gone was tried %d times", gone)
		}
		w.register("u1", "webpush", "another")
		c.do = nil
		w.enqueue(belfry.Request{Recipient: "u1"})
		synctest.Wait()
		if sent, _ = c.list(); sent[len(sent)-1].Endpoint.Address != "another" && sent[len(sent)-2].Endpoint.Address != "another" {
			t.Error("an endpoint that registered again is not tried")
		}
	})
}

func TestASendTakesNoLongerThanItsBudgetAndIsDoubtfulThen(t *testing.T) {
	virtual(t, func(t *testing.T) {
		c := &script{name: "webhook", budget: 7 * time.Second}
		c.do = func(c ctx, _ armed) (string, error) { <-c.Done(); return "", c.Err() }
		w := newWorld(t, engine.Options{}, c)
		w.category(belfry.Category{Name: "news", Delivery: belfry.AtMostOnce})
		w.recipient("u1", "webhook")
		id := w.enqueue(belfry.Request{Recipient: "u1", Category: "news"})
		pass(7 * time.Second)
		synctest.Wait()
		w.is(id, belfry.Unknown, belfry.ReasonNoAnswer)
	})
}

// A process that was held up between arming and sending does not send: its delivery may be somebody else's.
func TestATryThatWasHeldUpForLongerThanItsBudgetIsNotMade(t *testing.T) {
	virtual(t, func(t *testing.T) {
		c := &script{name: "webhook"}
		w := newWorld(t, engine.Options{}, c)
		w.recipient("u1", "webhook")
		var held atomic.Bool
		w.store.armed = func(a []store.Armed) {
			if len(a) > 0 && !held.Swap(true) {
				pass(30 * time.Second)
			}
		}
		id := w.enqueue(belfry.Request{Recipient: "u1"})
		pass(5 * time.Minute)
		st := w.is(id, belfry.Sent, "")
		if a := st.Deliveries[0].Attempts; len(a) != 2 || a[0].Outcome != belfry.OutcomeNotSent || c.count() != 1 {
			t.Errorf("sent %d: %+v", c.count(), a)
		}
	})
}

func TestAClockThatGoesBackLosesNothingAndIsReported(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var back atomic.Int64
		c := &script{name: "webhook", answers: []error{nil, belfry.NotSent(503, 0, "")}}
		w := newWorld(t, engine.Options{Now: func() time.Time { return time.Now().Add(-time.Duration(back.Load())) }}, c)
		w.recipient("u1", "webhook")
		ids := []belfry.ID{w.enqueue(belfry.Request{Recipient: "u1"})}
		pass(time.Minute)
		ids = append(ids, w.enqueue(belfry.Request{Recipient: "u1"})) // it waits for its second try
		synctest.Wait()
		if r := w.Ready(t.Context()); len(r) != 0 {
			t.Errorf("not ready: %q", r)
		}
		back.Store(int64(time.Hour))
		w.Wake()
		if r := w.Ready(t.Context()); len(r) != 1 || !bytes.Contains([]byte(r[0]), []byte("clock: it went back by 1h")) {
			t.Errorf("of a clock that went back it says %q", r)
		}
		for range 10 {
			ids = append(ids, w.enqueue(belfry.Request{Recipient: "u1"}))
			pass(time.Second)
		}
		pass(2 * time.Hour)
		synctest.Wait()
		for i, id := range ids {
			if w.is(id, belfry.Sent, ""); i > 0 && id <= ids[i-1] {
				t.Errorf("id %v after %v", id, ids[i-1])
			}
		}
		if c.count() != len(ids)+1 {
			t.Errorf("%d sends for %d notifications", c.count(), len(ids))
		}
		if r := w.Ready(t.Context()); len(r) != 0 {
			t.Errorf("the clock has caught up, and it says %q", r)
		}
	})
}

func TestAClockBeforeTheFirstIdStillMakesNewOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the year 2000
		c := &script{name: "webhook"}
		w := newWorld(t, engine.Options{}, c)
		w.recipient("u1", "webhook")
		seen := map[belfry.ID]bool{}
		for range 3 {
			batch := make([]store.Request, 2000)
			for i := range batch {
				batch[i] = store.Request{Request: belfry.Request{Project: "default", Recipient: "u1", At: time.Now().Add(time.Hour)}}
			}
			for _, out := range must[[]store.Enqueued](t)(w.Enqueue(t.Context(), batch, true)) {
				seen[out.ID] = true
			}
		}
		if len(seen) != 6000 {
			t.Errorf("%d ids for 6000 notifications", len(seen))
		}
	})
}
