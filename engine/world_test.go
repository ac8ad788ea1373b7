package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"belfry"
	"belfry/channel"
	"belfry/engine"
	"belfry/store"
	"belfry/store/sqlite"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// virtual runs f where time moves only when everything waits for it, from a Monday noon on. Ids count from
// 2024, so a bubble's own first instant is too early.
func virtual(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		pass(time.Until(time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)))
		f(t)
	})
}

// pass lets time go by.
func pass(d time.Duration) { <-time.After(d) }

// script is a channel that answers from a list, the last answer for ever accepted, and remembers what it
// was asked to send, when and with which bytes.
type script struct {
	name   string
	budget time.Duration                                                // default 10 s
	encode func(channel.Message) ([]byte, error)                        // default: the content as JSON
	do     func(context.Context, channel.Armed) (ref string, err error) // instead of answers

	mu      sync.Mutex
	answers []error
	sent    []channel.Armed
	at      []time.Time
}

func (s *script) Name() string                           { return s.name }
func (s *script) Check(belfry.Secret, belfry.Keys) error { return nil }

func (s *script) Budget() time.Duration {
	if s.budget == 0 {
		return 10 * time.Second
	}
	return s.budget
}

func (s *script) Encode(m channel.Message) ([]byte, error) {
	if s.encode != nil {
		return s.encode(m)
	}
	return json.Marshal(m.Content)
}

func (s *script) Send(ctx context.Context, a channel.Armed) (string, error) {
	s.mu.Lock()
	s.sent, s.at = append(s.sent, a), append(s.at, time.Now())
	var err error
	if len(s.answers) > 0 {
		err, s.answers = s.answers[0], s.answers[1:]
	}
	s.mu.Unlock()
	if s.do != nil {
		return s.do(ctx, a)
	}
	return "", err
}

func (s *script) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sent)
}

// list is what was sent so far, and when.
func (s *script) list() ([]channel.Armed, []time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]channel.Armed(nil), s.sent...), append([]time.Time(nil), s.at...)
}

// watched is a real store with someone looking on, who may hold a call up.
type watched struct {
	store.Store
	heads    atomic.Int64
	armed    func([]store.Armed)      // after the commit of an arm
	settling func([]store.Settlement) // before a settle
}

func (w *watched) Heads(ctx context.Context) ([]store.Head, error) {
	w.heads.Add(1)
	return w.Store.Heads(ctx)
}

func (w *watched) Arm(ctx context.Context, a store.Arm) ([]store.Armed, error) {
	armed, err := w.Store.Arm(ctx, a)
	if w.armed != nil {
		w.armed(armed)
	}
	return armed, err
}

func (w *watched) Settle(ctx context.Context, s []store.Settlement) ([]store.Settled, error) {
	if w.settling != nil {
		w.settling(s)
	}
	return w.Store.Settle(ctx, s)
}

// world is an engine on a real store.
type world struct {
	*engine.Engine
	t     *testing.T
	store *watched
	stop  func() // once: the engine drains; the store stays open
}

func openStore(t *testing.T, dir string, o sqlite.Options) store.Store {
	t.Helper()
	st, err := sqlite.Open(t.Context(), dir, o)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// newWorld is a running engine on a store of its own.
func newWorld(t *testing.T, o engine.Options, channels ...channel.Channel) *world {
	t.Helper()
	st := openStore(t, t.TempDir(), sqliteNormal)
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	return newWorldOn(t, st, o, channels...)
}

// newWorldOn is a running engine on a store that is closed by whoever opened it.
func newWorldOn(t *testing.T, st store.Store, o engine.Options, channels ...channel.Channel) *world {
	t.Helper()
	w := &world{t: t, store: &watched{Store: st}}
	w.start(o, channels...)
	return w
}

func (w *world) start(o engine.Options, channels ...channel.Channel) {
	w.t.Helper()
	if o.Poll == 0 {
		o.Poll = 10 * time.Minute // so that nothing here is found by asking anyway
	}
	e, err := engine.New(w.store, channels, o)
	if err != nil {
		w.t.Fatal(err)
	}
	w.Engine = e
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	w.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Error(err)
		}
	})
	w.t.Cleanup(w.stop)
}

// must is the value of a call that cannot fail here.
func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func (w *world) check(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) recipient(id string, channels ...string) {
	w.t.Helper()
	must[belfry.Recipient](w.t)(w.PutRecipient(w.t.Context(), belfry.Recipient{Project: "default", ID: id}))
	for _, c := range channels {
		w.register(id, c, "address-of-"+id+"-"+c)
	}
}

func (w *world) register(id, channel, address string) belfry.Endpoint {
	w.t.Helper()
	r := must[store.Registered](w.t)(w.Register(w.t.Context(), "default", belfry.Registration{Recipient: id, Channel: channel, Address: belfry.Secret(address)}))
	return r.Endpoint
}

// category puts a category of the project default.
func (w *world) category(c belfry.Category) {
	w.t.Helper()
	c.Project = "default"
	w.check(w.PutCategory(w.t.Context(), c))
}

func (w *world) enqueue(r belfry.Request) belfry.ID {
	w.t.Helper()
	return w.try(r).ID
}

// try enqueues one that must not be refused.
func (w *world) try(r belfry.Request) store.Enqueued {
	w.t.Helper()
	out, err := w.ask(r)
	w.check(err)
	return out
}

// ask enqueues one that may be refused.
func (w *world) ask(r belfry.Request) (store.Enqueued, error) {
	w.t.Helper()
	if r.Project == "" {
		r.Project = "default"
	}
	out, err := w.Enqueue(w.t.Context(), []store.Request{{Request: r}}, true)
	if err != nil {
		return store.Enqueued{}, err
	}
	return out[0], out[0].Err
}

func (w *world) story(id belfry.ID) store.Story {
	w.t.Helper()
	return must[store.Story](w.t)(w.Notification(w.t.Context(), "default", id))
}

// ended waits until a notification has ended.
func (w *world) ended(id belfry.ID) store.Story {
	w.t.Helper()
	for wait, waited := 5*time.Millisecond, time.Duration(0); waited < 20*time.Second; waited += wait {
		if st := w.story(id); st.State.Ended() {
			return st
		}
		pass(wait)
	}
	w.t.Fatalf("notification %v has not ended: %+v", id, w.story(id))
	return store.Story{}
}

// is fails unless a notification stands where it should.
func (w *world) is(id belfry.ID, state belfry.State, reason belfry.Reason) store.Story {
	w.t.Helper()
	st := w.story(id)
	if st.State != state || st.Reason != reason {
		w.t.Fatalf("it is %s(%s), want %s(%s): %+v", st.State, st.Reason, state, reason, st)
	}
	return st
}

func on(b bool) *bool { return &b }

func optOut(category string) []belfry.PreferenceChange {
	return []belfry.PreferenceChange{{Category: category, Channel: "*", On: on(false)}}
}

var errCut = errors.New("the connection was cut")

// sqliteNormal spares the tests the syncs: no power is cut here.
var sqliteNormal = sqlite.Options{Synchronous: "NORMAL"}

// Short names, for functions written in place.
type (
	ctx            = context.Context
	channelMessage = channel.Message
	armed          = channel.Armed
	rechecks       = map[string]engine.RecheckFunc
)
