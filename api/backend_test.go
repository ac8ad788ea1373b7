package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"belfry"
	"belfry/access"
	"belfry/api"
	"belfry/channel"
	"belfry/engine"
	"belfry/store"
	"belfry/store/sqlite"
)

// newStore is the store that all tests of this folder run on.
func newStore(t testing.TB) store.Store {
	s, err := sqlite.Open(t.Context(), t.TempDir(), sqlite.Options{Synchronous: "NORMAL"})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// script is a channel that answers from a list.
type script struct {
	name    string
	mu      sync.Mutex
	answers []error
	arrived chan struct{} // told of every send
	hold    chan struct{} // when set: a send waits for it
}

func (s *script) Name() string                             { return s.name }
func (s *script) Budget() time.Duration                    { return 10 * time.Second }
func (s *script) Encode(m channel.Message) ([]byte, error) { return json.Marshal(m.Content) }

func (s *script) Check(address belfry.Secret, _ belfry.Keys) error {
	if strings.Contains(address.Reveal(), "bad") {
		return belfry.Invalid("address", "cannot work")
	}
	return nil
}

func (s *script) Send(ctx context.Context, _ channel.Armed) (string, error) {
	select {
	case s.arrived <- struct{}{}:
	default:
	}
	if s.hold != nil {
		select {
		case <-s.hold:
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.answers) == 0 {
		return "ref-1", nil
	}
	err := s.answers[0]
	s.answers = s.answers[1:]
	return "", err
}

// backend is the engine with what belongs to keys and projects, which the engine has nothing to do with.
type backend struct {
	*engine.Engine
	store store.Store
}

func (b backend) Projects(ctx context.Context) ([]string, error) { return b.store.Projects(ctx) }
func (b backend) PutProject(ctx context.Context, name string) error {
	return b.store.PutProject(ctx, time.Now(), name)
}

func (b backend) CreateKey(ctx context.Context, project, name string, scopes []string) (string, store.AccessKey, error) {
	text, id, hash, err := access.New(nil)
	if err != nil {
		return "", store.AccessKey{}, err
	}
	k := store.AccessKey{ID: id, Project: project, Name: name, Scopes: scopes, Hash: hash, CreatedAt: time.Now().UTC()}
	return text, k, b.store.PutKey(ctx, k)
}

func (b backend) Keys(ctx context.Context, project string) ([]store.AccessKey, error) {
	return b.store.Keys(ctx, project)
}

func (b backend) RevokeKey(ctx context.Context, project, id string) error {
	return b.store.RevokeKey(ctx, time.Now(), project, id)
}

// faulty is a backend whose next Enqueue fails.
type faulty struct {
	api.Backend
	mu    sync.Mutex
	next  error
	ready []string
}

func (f *faulty) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next = err
}

func (f *faulty) Enqueue(ctx context.Context, r []store.Request, atomic bool) ([]store.Enqueued, error) {
	f.mu.Lock()
	err := f.next
	f.next = nil
	f.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return f.Backend.Enqueue(ctx, r, atomic)
}

func (f *faulty) Ready(ctx context.Context) []string { return append(f.Backend.Ready(ctx), f.ready...) }

// world is a server with everything behind it.
type world struct {
	testing.TB
	url      string
	store    store.Store
	backend  *faulty
	email    *script
	webpush  *script
	keys     map[string]string // by project and scope, as "default/send"
	log      *bytes.Buffer
	registry *prometheus.Registry
	clock    *clock
}

// clock is the engine's; it can be stepped.
type clock struct {
	mu  sync.Mutex
	add time.Duration
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.add)
}

func (c *clock) step(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.add += d
}

// syncWriter makes a buffer safe for a log of several goroutines.
type syncWriter struct {
	mu *sync.Mutex
	w  io.Writer
}

func (s syncWriter) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w.Write(b)
}

func newWorld(t testing.TB, options ...func(*api.Options)) *world {
	t.Helper()
	w := &world{
		TB: t, store: newStore(t), email: &script{name: "email", arrived: make(chan struct{}, 1)}, webpush: &script{name: "webpush"},
		keys: map[string]string{}, log: new(bytes.Buffer), registry: prometheus.NewRegistry(), clock: new(clock),
	}
	log := slog.New(slog.NewTextHandler(syncWriter{new(sync.Mutex), w.log}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	e, err := engine.New(w.store, []channel.Channel{w.email, w.webpush}, engine.Options{Log: log, Now: w.clock.now})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	w.backend = &faulty{Backend: backend{e, w.store}}
	for _, project := range []string{"default", "bank", access.EveryProject} {
		if project == "bank" {
			if err := w.backend.PutProject(ctx, project); err != nil {
				t.Fatal(err)
			}
		}
		for _, scope := range access.Scopes {
			text, _, err := w.backend.CreateKey(ctx, project, string(scope), []string{string(scope)})
			if err != nil {
				t.Fatal(err)
			}
			w.keys[project+"/"+string(scope)] = text
		}
	}
	o := api.Options{Backend: w.backend, Authenticator: access.NewKeys(w.store), Version: "1.2.3", Log: log, Registry: w.registry}
	for _, set := range options {
		set(&o)
	}
	server := httptest.NewServer(api.New(o))
	w.url = server.URL
	t.Cleanup(func() {
		server.Close()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := w.store.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// answer is an answer that has been read.
type answer struct {
	status int
	header http.Header
	body   string
}

// part reads a member of the body, "" when it is not there; a number or other value is in JSON.
func (a answer) part(name string) string {
	var members map[string]json.RawMessage
	if json.Unmarshal([]byte(a.body), &members) != nil {
		return ""
	}
	var text string
	if json.Unmarshal(members[name], &text) == nil {
		return text
	}
	return string(members[name])
}

// do makes a request with the admin key of the default project, unless a header says otherwise. Headers
// are "Name: value"; "Name:" leaves it out.
func (w *world) do(method, path, body string, headers ...string) answer {
	w.Helper()
	a, err := w.try(method, path, body, headers...)
	if err != nil {
		w.Fatal(err)
	}
	return a
}

func (w *world) try(method, path, body string, headers ...string) (answer, error) {
	r, err := http.NewRequest(method, w.url+path, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	r.GetBody = nil
	r.Header.Set("Authorization", "Bearer "+w.keys["default/admin"])
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ":")
		if value = strings.TrimPrefix(value, " "); h == name+":" {
			r.Header.Del(name)
			continue
		}
		if name == "Authorization" && w.keys[value] != "" {
			value = "Bearer " + w.keys[value]
		}
		if name == "Authorization" || name == "Content-Type" {
			r.Header.Set(name, value)
			continue
		}
		r.Header[http.CanonicalHeaderKey(name)] = append(r.Header[http.CanonicalHeaderKey(name)], value)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, response.Header, string(text)}, err
}

// rows counts the notifications of a project.
func (w *world) rows(project string) int {
	w.Helper()
	n, before := 0, belfry.ID(0)
	for {
		list, next, err := w.store.Notifications(context.Background(), store.Filter{Project: project}, before, 500)
		if err != nil {
			w.Fatal(err)
		}
		if n += len(list); next == 0 {
			return n
		}
		before = next
	}
}

// recipient makes a recipient with an e-mail address.
func (w *world) recipient(id string) {
	w.Helper()
	if a := w.do("PUT", "/v1/recipients/"+id, `{"zone":"Asia/Tokyo"}`); a.status != 200 {
		w.Fatal(a)
	}
	if a := w.do("PUT", "/v1/recipients/"+id+"/endpoints", `{"channel":"email","address":"`+id+`@example.com"}`); a.status != 201 {
		w.Fatal(a)
	}
}

// ended waits until a notification has ended.
func (w *world) ended(id string) answer {
	w.Helper()
	return w.until(id, func(a answer) bool { return belfry.State(a.part("state")).Ended() })
}

// until waits until a notification is shown as wanted.
func (w *world) until(id string, wanted func(answer) bool) answer {
	w.Helper()
	timeout := time.After(10 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		a := w.do("GET", "/v1/notifications/"+id, "")
		if wanted(a) {
			return a
		}
		select {
		case <-tick.C:
		case <-timeout:
			w.Fatal("it does not come to it: ", a.body)
		}
	}
}

var errDisk = errors.New("disk /dev/sda1 on fire, token t0ps3cret")

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
