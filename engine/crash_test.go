package engine_test

import (
	"bytes"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"belfry"
	"belfry/engine"
	"belfry/store"
	"belfry/store/sqlite"
)

// A stop at any moment of a burst: every armed try is settled, what was not armed waits, nothing is lost or
// sent twice. That no goroutine is left, the bubble sees.
func TestADrainAtAnyMomentSettlesWhatIsArmedAndLosesNothing(t *testing.T) {
	points := 100
	if testing.Short() {
		points = 12
	}
	virtual(t, func(t *testing.T) {
		st := openStore(t, t.TempDir(), sqliteNormal)
		defer st.Close()
		var took atomic.Int64
		c := &script{name: "webhook"}
		c.do = func(ctx, armed) (string, error) {
			pass(time.Duration(took.Add(1)%7) * time.Millisecond)
			return "", nil
		}
		o := engine.Options{DefaultWorkers: 8, ClaimBatch: 4, Recheck: rechecks{"news": func(c ctx, _ belfry.Check) (belfry.Verdict, error) {
			select {
			case <-time.After(time.Duration(took.Load()%3) * time.Millisecond):
			case <-c.Done():
			}
			return belfry.Send(nil), nil
		}}}
		w := newWorldOn(t, st, o, c)
		w.category(belfry.Category{Name: "news"})
		w.recipient("u1", "webhook")
		w.stop()
		for point := range points {
			w.start(o, c)
			before := c.count()
			batch := make([]store.Request, 30)
			for i := range batch {
				batch[i] = store.Request{Request: belfry.Request{Project: "default", Recipient: "u1", Category: []string{"news", "default"}[i%2]}}
			}
			out := must[[]store.Enqueued](t)(w.Enqueue(t.Context(), batch, true))
			pass(time.Duration(point) * 250 * time.Microsecond)
			stopped := time.Now()
			w.stop()
			if d := time.Since(stopped); d > 20*time.Millisecond {
				t.Errorf("point %d: the drain took %v", point, d)
			}
			stats := must[store.Stats](t)(st.Stats(t.Context(), ""))
			sent := 0
			for _, o := range out {
				story := must[store.Story](t)(st.Notification(t.Context(), "default", o.ID))
				if story.State == belfry.Sent {
					sent++
				}
			}
			if stats.Sending != 0 || stats.Waiting != len(batch)-sent || c.count()-before != sent {
				t.Errorf("point %d: %d sends, %d sent, %+v", point, c.count()-before, sent, stats)
			}
			w.start(o, c)
			pass(time.Second)
			w.stop()
			for _, o := range out {
				story := must[store.Story](t)(st.Notification(t.Context(), "default", o.ID))
				if story.State != belfry.Sent || len(story.Deliveries) != 1 || len(story.Deliveries[0].Attempts) != 1 {
					t.Fatalf("point %d: %+v", point, story)
				}
			}
		}
		if c.count() != 30*points {
			t.Errorf("%d sends for %d notifications", c.count(), 30*points)
		}
	})
}

func TestAStopGivesBackWhatWaitsForItsRecheck(t *testing.T) {
	virtual(t, func(t *testing.T) {
		st := openStore(t, t.TempDir(), sqliteNormal)
		defer st.Close()
		c := &script{name: "webhook"}
		w := newWorldOn(t, st, engine.Options{Recheck: rechecks{"default": func(c ctx, _ belfry.Check) (belfry.Verdict, error) {
			<-c.Done()
			return belfry.Verdict{}, c.Err()
		}}}, c)
		w.recipient("u1", "webhook")
		id := w.enqueue(belfry.Request{Recipient: "u1"})
		synctest.Wait()
		start := time.Now()
		w.stop()
		if d := time.Since(start); d != 0 {
			t.Errorf("the stop waited %v for a recheck", d)
		}
		w.start(engine.Options{}, c)
		synctest.Wait()
		if w.is(id, belfry.Sent, ""); c.count() != 1 {
			t.Errorf("sent %d", c.count())
		}
		w.stop()
	})
}

// kill leaves a store as a process that dies does: what it had claimed, and what of that it had armed, is
// held by nobody.
func kill(t *testing.T, dir string, mode belfry.Mode, armed bool) (ids []belfry.ID) {
	t.Helper()
	st := openStore(t, dir, sqliteNormal)
	c := &script{name: "webhook"}
	w := newWorldOn(t, st, engine.Options{}, c)
	w.category(belfry.Category{Name: "news", Delivery: mode, Retry: steady})
	w.recipient("u1", "webhook")
	w.stop()
	entry := must[store.Entry](t)(w.Entry(t.Context(), store.Request{Request: belfry.Request{Project: "default", Recipient: "u1", Category: "news"}}))
	must[[]store.Enqueued](t)(st.Enqueue(t.Context(), []store.Entry{entry}, true))
	now := time.Now()
	owner := store.Owner{ID: belfry.MakeID(now, 9, 1), Lease: now.Add(time.Hour)}
	claims := must[[]store.Claim](t)(st.Claim(t.Context(), now, owner, []store.Take{{Claim: belfry.MakeID(now, 9, 2), Queue: entry.Queue, Lane: belfry.Normal, Project: "default", Limit: 10}}))
	if len(claims) != 1 || len(claims[0].Items) != 1 {
		t.Fatalf("claimed %+v", claims)
	}
	if armed {
		n := claims[0].Items[0].Notification
		facts := must[[]belfry.Facts](t)(st.Facts(t.Context(), claims[0].Items))
		p := belfry.Plan(n, facts[0], 0, 0, []string{"webhook"}, now)
		must[[]store.Armed](t)(st.Arm(t.Context(), store.Arm{Claim: claims[0], Owner: owner, Now: now, Known: []string{"webhook"}, Steps: []store.Step{
			{Stage: p.Stage, Tries: []store.Try{{Delivery: p.Deliveries[0], Payload: []byte("as it was"), Send: true}}},
		}}))
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	return []belfry.ID{entry.Notification.ID}
}

func TestAfterACrashWhatWasNotArmedGoesAtOnce(t *testing.T) {
	virtual(t, func(t *testing.T) {
		dir := t.TempDir()
		ids := kill(t, dir, belfry.AtMostOnce, false)
		st := openStore(t, dir, sqliteNormal)
		defer st.Close()
		c := &script{name: "webhook"}
		w := newWorldOn(t, st, engine.Options{}, c)
		defer w.stop()
		synctest.Wait()
		s := w.is(ids[0], belfry.Sent, "")
		if c.count() != 1 || len(s.Deliveries[0].Attempts) != 1 || s.Deliveries[0].Losses != 0 {
			t.Errorf("sent %d: %+v", c.count(), s.Deliveries[0])
		}
	})
}

func TestAfterACrashWhatWasArmedIsTriedAgainAtLeastOnceWithTheSameBytes(t *testing.T) {
	virtual(t, func(t *testing.T) {
		dir := t.TempDir()
		ids := kill(t, dir, belfry.AtLeastOnce, true)
		st := openStore(t, dir, sqliteNormal)
		defer st.Close()
		c := &script{name: "webhook"}
		start := time.Now()
		w := newWorldOn(t, st, engine.Options{}, c)
		defer w.stop()
		pass(10 * time.Minute)
		s := w.is(ids[0], belfry.Sent, "")
		sent, at := c.list()
		if len(sent) != 1 || string(sent[0].Payload) != "as it was" || sent[0].Attempt != 2 || at[0].Sub(start) < time.Minute {
			t.Errorf("sent %+v at %v", sent, at)
		}
		if a := s.Deliveries[0].Attempts; !a[0].Lost || a[0].Outcome != belfry.OutcomeOpen {
			t.Errorf("the first try is told as %+v", a[0])
		}
	})
}

func TestAfterACrashWhatWasArmedIsUnknownAtMostOnce(t *testing.T) {
	virtual(t, func(t *testing.T) {
		dir := t.TempDir()
		ids := kill(t, dir, belfry.AtMostOnce, true)
		st := openStore(t, dir, sqliteNormal)
		defer st.Close()
		c := &script{name: "webhook"}
		w := newWorldOn(t, st, engine.Options{}, c)
		defer w.stop()
		pass(time.Hour)
		if w.is(ids[0], belfry.Unknown, belfry.ReasonWorkerLost); c.count() != 0 {
			t.Errorf("sent %d", c.count())
		}
	})
}

func TestAHundredIdleRestartsSendNothing(t *testing.T) {
	virtual(t, func(t *testing.T) {
		st := openStore(t, t.TempDir(), sqliteNormal)
		defer st.Close()
		c := &script{name: "webhook", answers: []error{nil, belfry.NotSent(503, 0, "")}}
		w := newWorldOn(t, st, engine.Options{}, c)
		w.recipient("u1", "webhook")
		w.enqueue(belfry.Request{Recipient: "u1"})
		synctest.Wait()
		waits := w.enqueue(belfry.Request{Recipient: "u1"})
		synctest.Wait()
		next := w.story(waits).Waits
		for range 100 {
			w.stop()
			w.start(engine.Options{}, c)
			synctest.Wait()
		}
		if c.count() != 2 || !w.story(waits).Waits.Equal(next) {
			t.Errorf("sent %d, the retry waits until %v instead of %v", c.count(), w.story(waits).Waits, next)
		}
		w.stop()
	})
}

// A worker that is held up past its lease loses its claim; what its channel then answers is evidence.
func TestAnAnswerAfterTheTakeoverStillCounts(t *testing.T) {
	for name, c := range map[string]struct {
		mode    belfry.Mode
		meant   belfry.State // while nobody knows
		answer  error
		state   belfry.State
		sends   int
		summary string
	}{
		"accepted, at most once":  {mode: belfry.AtMostOnce, meant: belfry.Unknown, state: belfry.Sent, sends: 1},
		"accepted, at least once": {mode: belfry.AtLeastOnce, meant: belfry.Sending, state: belfry.Sent, sends: 1},
		"refused, at most once":   {mode: belfry.AtMostOnce, meant: belfry.Unknown, answer: belfry.Refused(400, ""), state: belfry.Failed, sends: 1},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				s := &script{name: "webhook"}
				var calls atomic.Int64
				s.do = func(ctx, armed) (string, error) {
					if calls.Add(1) == 1 {
						pass(3 * time.Minute) // deaf to its context, as a process that sleeps
					}
					return "", c.answer
				}
				w := newWorld(t, engine.Options{}, s)
				w.category(belfry.Category{Name: "news", Delivery: c.mode, Retry: belfry.RetryPolicy{First: belfry.Duration(time.Hour), Max: belfry.Duration(time.Hour)}})
				w.recipient("u1", "webhook")
				id := w.enqueue(belfry.Request{Recipient: "u1", Category: "news"})
				pass(2 * time.Minute)
				if st := w.story(id); st.State != c.meant {
					t.Errorf("after the takeover it is %s(%s)", st.State, st.Reason)
				}
				pass(70 * time.Minute)
				if st := w.story(id); st.State != c.state || s.count() != c.sends {
					t.Errorf("it is %s(%s), sent %d times: %+v", st.State, st.Reason, s.count(), st.Deliveries)
				}
			})
		})
	}
}

func TestAClaimLostThreeTimesAloneIsPoisonAndItsNeighboursAreSent(t *testing.T) {
	virtual(t, func(t *testing.T) {
		c := &script{name: "webhook"}
		st := openStore(t, t.TempDir(), sqliteNormal)
		defer st.Close()
		lethal := &lethal{Store: st}
		w := newWorldOn(t, lethal, engine.Options{}, c)
		defer w.stop()
		w.recipient("u1", "webhook")
		batch := []store.Request{}
		for i := range 5 {
			batch = append(batch, store.Request{Request: belfry.Request{Project: "default", Recipient: "u1", Subject: []string{"fine", "lethal"}[i/4]}})
		}
		out := must[[]store.Enqueued](t)(w.Enqueue(t.Context(), batch, true))
		pass(15 * time.Minute)
		for i, o := range out {
			if i == 4 {
				w.is(o.ID, belfry.Failed, belfry.ReasonPoison)
			} else {
				w.is(o.ID, belfry.Sent, "")
			}
		}
		if c.count() != 4 || lethal.died != 4 {
			t.Errorf("sent %d, died %d times", c.count(), lethal.died)
		}
	})
}

// lethal panics when it is asked about one subject, as a worker does that dies of it.
type lethal struct {
	store.Store
	died int
}

func (l *lethal) Facts(c ctx, items []store.Item) ([]belfry.Facts, error) {
	for _, it := range items {
		if it.Notification.Subject == "lethal" {
			l.died++
			panic("out of memory")
		}
	}
	return l.Store.Facts(c, items)
}

// Another connection holds the file for minutes: answers wait in memory, Ready says why, and all is written
// when it lets go.
func TestVerdictsWaitInMemoryWhileTheStoreIsHeld(t *testing.T) {
	virtual(t, func(t *testing.T) {
		dir := t.TempDir()
		st := openStore(t, dir, sqlite.Options{Synchronous: "NORMAL", Busy: time.Millisecond})
		defer st.Close()
		release := make(chan struct{})
		c := &script{name: "webhook"}
		c.do = func(ctx, armed) (string, error) { <-release; return "", nil }
		w := newWorldOn(t, st, engine.Options{}, c)
		defer w.stop()
		w.recipient("u1", "webhook")
		id := w.enqueue(belfry.Request{Recipient: "u1"})
		synctest.Wait()
		other, err := sql.Open("sqlite", "file:"+filepath.Join(dir, sqlite.FileName))
		w.check(err)
		defer other.Close()
		conn := must[*sql.Conn](t)(other.Conn(t.Context()))
		defer conn.Close()
		if _, err := conn.ExecContext(t.Context(), "BEGIN IMMEDIATE"); err != nil {
			t.Fatal(err)
		}
		close(release)
		pass(30 * time.Second)
		if r := w.Ready(t.Context()); len(r) != 1 || !strings.Contains(r[0], "held by another connection") {
			t.Errorf("Ready says %q", r)
		}
		if _, err := w.ask(belfry.Request{Recipient: "u1"}); belfry.CodeOf(err) != belfry.CodeBusy {
			t.Errorf("an enqueue meanwhile: %v", err)
		}
		w.is(id, belfry.Sending, "")
		if _, err := conn.ExecContext(t.Context(), "COMMIT"); err != nil {
			t.Fatal(err)
		}
		pass(2 * time.Second)
		w.is(id, belfry.Sent, "")
		if r := w.Ready(t.Context()); len(r) != 0 {
			t.Errorf("Ready still says %q", r)
		}
		if after := w.enqueue(belfry.Request{Recipient: "u1"}); c.count() != 1 {
			synctest.Wait()
			w.is(after, belfry.Sent, "")
		}
	})
}

// failing is a store whose n-th call fails, before or after it did its work.
type failing struct {
	store.Store
	mu    sync.Mutex
	n     int
	after bool
}

func (f *failing) fails() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n--
	return f.n == 0
}

var errDisk = fmt.Errorf("disk I/O error")

func call[T any](f *failing, do func() (T, error)) (T, error) {
	fails := f.fails()
	if fails && !f.after {
		var none T
		return none, errDisk
	}
	out, err := do()
	if fails {
		var none T
		return none, errDisk
	}
	return out, err
}

func (f *failing) Heads(c ctx) ([]store.Head, error) {
	return call(f, func() ([]store.Head, error) { return f.Store.Heads(c) })
}

func (f *failing) Claim(c ctx, now time.Time, o store.Owner, takes []store.Take) ([]store.Claim, error) {
	return call(f, func() ([]store.Claim, error) { return f.Store.Claim(c, now, o, takes) })
}

func (f *failing) Facts(c ctx, items []store.Item) ([]belfry.Facts, error) {
	return call(f, func() ([]belfry.Facts, error) { return f.Store.Facts(c, items) })
}

func (f *failing) Arm(c ctx, a store.Arm) ([]store.Armed, error) {
	return call(f, func() ([]store.Armed, error) { return f.Store.Arm(c, a) })
}

func (f *failing) Settle(c ctx, s []store.Settlement) ([]store.Settled, error) {
	return call(f, func() ([]store.Settled, error) { return f.Store.Settle(c, s) })
}

// Whichever call of the store fails, and whether or not it had done its work: what is at most once is not
// sent twice, and everything ends.
func TestAFailureOfAnyCallOfTheStoreIsSurvived(t *testing.T) {
	calls := 30
	if testing.Short() {
		calls = 8
	}
	for _, after := range []bool{false, true} {
		t.Run("after "+strconv.FormatBool(after), func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				for n := 1; n <= calls; n++ {
					c := &script{name: "webhook", answers: []error{nil, belfry.NotSent(503, 0, "")}}
					st := openStore(t, t.TempDir(), sqliteNormal)
					w := newWorldOn(t, &failing{Store: st, n: n, after: after}, engine.Options{}, c)
					w.category(belfry.Category{Name: "news", Delivery: belfry.AtMostOnce, Retry: steady})
					w.recipient("u1", "webhook")
					var ids []belfry.ID
					for range 4 {
						ids = append(ids, w.enqueue(belfry.Request{Recipient: "u1", Category: "news"}))
						pass(time.Second)
					}
					pass(10 * time.Minute)
					accepted := map[belfry.DeliveryID]int{}
					sent, _ := c.list()
					for i, s := range sent {
						if i != 1 {
							accepted[s.Delivery]++
						}
					}
					for _, id := range ids {
						s := w.story(id)
						if !s.State.Ended() || s.State != belfry.Sent && s.State != belfry.Unknown {
							t.Errorf("call %d: %s(%s)", n, s.State, s.Reason)
						}
						for _, d := range s.Deliveries {
							if accepted[d.ID] > 1 || s.State == belfry.Sent && accepted[d.ID] != 1 {
								t.Errorf("call %d: %s, accepted %d times", n, s.State, accepted[d.ID])
							}
						}
					}
					w.stop()
					w.check(st.Close())
				}
			})
		})
	}
}

// A child process takes notifications in and sends them until it is killed, over and over; the last one
// finishes. What it acknowledged is all there, and what was accepted twice had a doubtful try.
func TestKilledAtAnyMomentNothingAcknowledgedIsLost(t *testing.T) {
	if dir := os.Getenv("BELFRY_KILLED_IN"); dir != "" {
		untilKilled(t, dir)
		return
	}
	kills := 25
	if testing.Short() {
		kills = 5
	}
	dir := t.TempDir()
	for range kills {
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), "BELFRY_KILLED_IN="+dir)
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		pass(time.Duration(100+rand.IntN(400)) * time.Millisecond)
		cmd.Process.Kill()
		if err := cmd.Wait(); cmd.ProcessState.Exited() {
			t.Fatalf("the child ended by itself: %v\n%s", err, out.Bytes())
		}
	}
	st := openStore(t, dir, sqlite.Options{})
	defer st.Close()
	c := logging(t, dir)
	w := newWorldOn(t, st, engine.Options{}, c)
	defer w.stop()
	acknowledged, accepted := lines(t, dir, "acknowledged"), func() map[string]int { return lines(t, dir, "accepted") }
	if len(acknowledged) == 0 {
		t.Skip("the machine is too slow: no child came to acknowledge anything")
	}
	doubtful := 0
	for text := range acknowledged {
		id, err := belfry.ParseID(text)
		w.check(err)
		s := w.ended(id)
		if len(s.Deliveries) != 1 || s.State != belfry.Sent {
			t.Fatalf("%+v", s)
		}
		d := s.Deliveries[0]
		n, most := accepted()[d.ID.String()], 1
		for _, a := range d.Attempts {
			if !a.Outcome.Definite() {
				most, doubtful = most+1, doubtful+1
			}
		}
		if n == 0 || n > most {
			t.Errorf("%v was accepted %d times: %+v", d.ID, n, d.Attempts)
		}
	}
	t.Logf("%d kills, %d acknowledged, %d doubtful tries", kills, len(acknowledged), doubtful)
}

// logging is a channel that writes down what it accepts, where a kill cannot undo it.
func logging(t *testing.T, dir string) *script {
	c := &script{name: "webhook"}
	accepted := appendTo(t, dir, "accepted")
	c.do = func(_ ctx, a armed) (string, error) {
		accepted(a.Delivery.String())
		pass(time.Millisecond)
		return "", nil
	}
	return c
}

func untilKilled(t *testing.T, dir string) {
	st := openStore(t, dir, sqlite.Options{})
	c := logging(t, dir)
	w := newWorldOn(t, st, engine.Options{ClaimBatch: 8}, c)
	w.category(belfry.Category{Name: "fast", Retry: belfry.RetryPolicy{First: belfry.Duration(10 * time.Millisecond), Max: belfry.Duration(10 * time.Millisecond), Attempts: 100}})
	w.recipient("u1", "webhook")
	acknowledged := appendTo(t, dir, "acknowledged")
	for {
		acknowledged(w.enqueue(belfry.Request{Recipient: "u1", Category: "fast"}).String())
	}
}

func appendTo(t *testing.T, dir, name string) func(line string) {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return func(line string) {
		if _, err := f.WriteString(line + "\n"); err != nil {
			t.Error(err)
		}
	}
}

func lines(t *testing.T, dir, name string) map[string]int {
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	n := map[string]int{}
	for line := range strings.Lines(string(b)) {
		n[strings.TrimSpace(line)]++
	}
	return n
}

// A send may take longer than a lease: arming adds its channel's budget to it.
func TestASendWithinItsBudgetIsNotTakenOver(t *testing.T) {
	virtual(t, func(t *testing.T) {
		c := &script{name: "webhook", budget: time.Minute}
		c.do = func(ctx, armed) (string, error) { pass(55 * time.Second); return "", nil }
		w := newWorld(t, engine.Options{Lease: 10 * time.Second}, c)
		w.recipient("u1", "webhook")
		id := w.enqueue(belfry.Request{Recipient: "u1"})
		pass(10 * time.Minute)
		if a := w.is(id, belfry.Sent, "").Deliveries[0].Attempts; len(a) != 1 || a[0].Lost || c.count() != 1 {
			t.Errorf("sent %d: %+v", c.count(), a)
		}
	})
}
