package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"time"

	"belfry"
	"belfry/channel"
	"belfry/engine"
	"belfry/store"
	"belfry/store/sqlite"
)

// script is a channel that answers from a list, and remembers what it was asked to send.
type script struct {
	name    string
	mu      sync.Mutex
	answers []error
	sent    []channel.Armed
	at      []time.Time
	hold    chan struct{} // when set: a send waits for it
}

func (s *script) Name() string                             { return s.name }
func (s *script) Check(belfry.Secret, belfry.Keys) error   { return nil }
func (s *script) Budget() time.Duration                    { return 10 * time.Second }
func (s *script) Encode(m channel.Message) ([]byte, error) { return json.Marshal(m.Content) }
func (s *script) Send(ctx context.Context, a channel.Armed) (string, error) {
	if s.hold != nil {
		select {
		case <-s.hold:
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent, s.at = append(s.sent, a), append(s.at, time.Now())
	if len(s.answers) == 0 {
		return "", nil
	}
	err := s.answers[0]
	s.answers = s.answers[1:]
	return "", err
}

func (s *script) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sent)
}

// world is an engine on a real store.
type world struct {
	*engine.Engine
	t     *testing.T
	store store.Store
}

func newWorld(t *testing.T, o engine.Options, channels ...channel.Channel) *world {
	t.Helper()
	st, err := sqlite.Open(t.Context(), t.TempDir(), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.New(st, channels, o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	return &world{e, t, st}
}

func (w *world) recipient(id string, channels ...string) {
	w.t.Helper()
	if _, err := w.PutRecipient(w.t.Context(), belfry.Recipient{Project: "default", ID: id}); err != nil {
		w.t.Fatal(err)
	}
	for _, c := range channels {
		if _, err := w.Register(w.t.Context(), "default", belfry.Registration{Recipient: id, Channel: c, Address: belfry.Secret("address-of-" + id + "-" + c)}); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *world) enqueue(r belfry.Request) belfry.ID {
	w.t.Helper()
	r.Project = "default"
	out, err := w.Enqueue(w.t.Context(), []store.Request{{Request: r}}, true)
	if err == nil {
		err = out[0].Err
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return out[0].ID
}

// ended waits until a notification has ended.
func (w *world) ended(id belfry.ID) store.Story {
	w.t.Helper()
	for range 2000 {
		st, err := w.Notification(w.t.Context(), "default", id)
		if err != nil {
			w.t.Fatal(err)
		}
		if st.State.Ended() {
			return st
		}
		<-time.After(5 * time.Millisecond)
	}
	st, _ := w.Notification(w.t.Context(), "default", id)
	w.t.Fatalf("notification %v has not ended: %+v", id, st)
	return st
}

func TestANotificationIsSent(t *testing.T) {
	c := &script{name: "webhook"}
	w := newWorld(t, engine.Options{}, c)
	w.recipient("u1", "webhook")
	id := w.enqueue(belfry.Request{Recipient: "u1", Data: json.RawMessage(`{"title":"hello"}`)})
	st := w.ended(id)
	if st.State != belfry.Sent || len(st.Deliveries) != 1 || len(st.Deliveries[0].Attempts) != 1 {
		t.Fatalf("%+v", st)
	}
	if got := c.sent[0].Delivery.Notification; got != id {
		t.Errorf("sent %v, want %v", got, id)
	}
}

func TestARefusedTryIsMadeAgain(t *testing.T) {
	c := &script{name: "webhook", answers: []error{belfry.NotSent(500, 0, ""), errors.New("cut")}}
	w := newWorld(t, engine.Options{}, c)
	if err := w.PutCategory(t.Context(), belfry.Category{Project: "default", Name: "fast", Retry: belfry.RetryPolicy{First: belfry.Duration(time.Millisecond), Max: belfry.Duration(time.Millisecond)}}); err != nil {
		t.Fatal(err)
	}
	w.recipient("u1", "webhook")
	st := w.ended(w.enqueue(belfry.Request{Recipient: "u1", Category: "fast"}))
	if st.State != belfry.Sent || len(st.Deliveries[0].Attempts) != 3 {
		t.Fatalf("%+v", st)
	}
}
