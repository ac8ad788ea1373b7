package api_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"belfry"
	"belfry/access"
	"belfry/api"
	"belfry/store"
)

// instant is a backend that takes everything at once: what is measured is the API alone.
type instantly struct{ api.Backend }

var answered = []store.Enqueued{{
	ID: belfry.MakeID(time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC), 1, 1), State: belfry.Scheduled, Zone: "Asia/Tokyo",
	Due: time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC), Deadline: time.Date(2026, 12, 1, 6, 0, 0, 0, time.UTC),
	Expires: time.Date(2027, 3, 1, 6, 0, 0, 0, time.UTC),
}}

func (instantly) Enqueue(_ context.Context, r []store.Request, _ bool) ([]store.Enqueued, error) {
	return answered[:len(r)], nil
}

type oneKey struct{ k store.AccessKey }

func (o oneKey) Key(context.Context, string) (store.AccessKey, error) { return o.k, nil }

const small = `{"recipient":"user-42","category":"price_drop","subject":"watch-981","data":{"item":"kettle","price":1980},
	"at":"2026-12-01T00:00:00Z","expires_in":"2h","once":{"per":"day"},"channels":["push"]}`

// discard is an answer that nobody reads.
type discard struct {
	header http.Header
	status int
}

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) WriteHeader(status int)      { d.status = status }
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }

func handler(b *testing.B) (http.Handler, string) {
	text, id, hash, err := access.New(nil)
	if err != nil {
		b.Fatal(err)
	}
	keys := access.NewKeys(oneKey{store.AccessKey{ID: id, Project: "default", Scopes: []string{"send"}, Hash: hash}})
	return api.New(api.Options{Backend: instantly{}, Authenticator: keys, Registry: prometheus.NewRegistry()}), text
}

func request(path, key, body string) *http.Request {
	r := httptest.NewRequest("POST", path, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+key)
	r.Header.Set("Content-Type", "application/json")
	return r
}

// One notification, without the connection.
func BenchmarkEnqueue(b *testing.B) {
	h, key := handler(b)
	r := request("/v1/notifications", key, small)
	r.Header.Set("Idempotency-Key", `"7b0f"`)
	body := strings.NewReader(small)
	r.Body = struct {
		*strings.Reader
		nothingToClose
	}{body, nothingToClose{}}
	w := &discard{header: http.Header{}}
	b.ReportAllocs()
	for b.Loop() {
		body.Reset(small)
		clear(w.header)
		if h.ServeHTTP(w, r); w.status != http.StatusAccepted {
			b.Fatal(w.status)
		}
	}
}

type nothingToClose struct{}

func (nothingToClose) Close() error { return nil }

// A batch of 1,000, without the connection; per notification.
func BenchmarkEnqueueBatch(b *testing.B) {
	h, key := handler(b)
	for len(answered) < 1000 {
		answered = append(answered, answered[0])
	}
	defer func() { answered = answered[:1] }()
	text := `{"notifications":[` + strings.TrimSuffix(strings.Repeat(small+",", 1000), ",") + `]}`
	b.ReportAllocs()
	for b.Loop() {
		w := &discard{header: http.Header{}}
		if h.ServeHTTP(w, request("/v1/notifications/batch", key, text)); w.status != http.StatusAccepted {
			b.Fatal(w.status)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/notification")
}

// One notification over a connection, client and all.
func BenchmarkEnqueueOverHTTP(b *testing.B) {
	h, key := handler(b)
	server := httptest.NewServer(h)
	defer server.Close()
	var once sync.Once
	b.ReportAllocs()
	for b.Loop() {
		r, _ := http.NewRequest("POST", server.URL+"/v1/notifications", strings.NewReader(small))
		r.Header.Set("Authorization", "Bearer "+key)
		r.Header.Set("Content-Type", "application/json")
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			b.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != http.StatusAccepted {
			once.Do(func() { b.Error(response.StatusCode) })
		}
	}
}
