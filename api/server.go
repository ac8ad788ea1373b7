package api

import (
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/time/rate"

	"belfry"
	"belfry/store"
)

// Stats counts the notifications of a project.
type Stats struct {
	Waiting int          `json:"waiting" doc:"How many notifications and deliveries wait."`
	Sending int          `json:"sending" doc:"How many are being worked on."`
	Oldest  time.Time    `json:"oldest_due,omitzero" doc:"Since when the oldest that is due has waited; absent: none is due."`
	Ended   []EndedCount `json:"ended" doc:"How many ended, by state and reason."`
}

// EndedCount counts notifications that ended alike.
type EndedCount struct {
	State       belfry.State  `json:"state" doc:"The state they ended in."`
	Reason      belfry.Reason `json:"reason,omitempty" doc:"Why."`
	Explanation string        `json:"explanation,omitempty" doc:"The reason in words."`
	Count       int           `json:"count" doc:"How many."`
}

func (s *server) stats(c *call) (v Stats, err error) {
	var found store.Stats
	if found, err = s.Backend.Stats(c.r.Context(), c.Project); err != nil {
		return v, err
	}
	v = Stats{found.Waiting, found.Sending, utc(found.Oldest), make([]EndedCount, 0, len(found.Ended))}
	for _, e := range found.Ended {
		v.Ended = append(v.Ended, EndedCount{e.State, e.Reason, explain(e.Reason), e.Count})
	}
	return v, nil
}

// Health says that the process lives, and nothing else: a probe of it must not restart a process whose
// store is slow.
type Health struct {
	OK bool `json:"ok" doc:"true."`
}

func (s *server) health(*call) (Health, error) { return Health{true}, nil }

// Readiness says whether requests can be taken.
type Readiness struct {
	Ready   bool     `json:"ready" doc:"true: send requests here."`
	Reasons []string `json:"reasons" doc:"Why not."`
}

func (s *server) ready(c *call) error {
	reasons := listed(s.Backend.Ready(c.r.Context()))
	if len(reasons) > 0 {
		c.status = http.StatusServiceUnavailable
	}
	return c.reply(Readiness{len(reasons) == 0, reasons})
}

// Version is the version of the program.
type Version struct {
	Version string `json:"version" doc:"The version of the program."`
}

func (s *server) version(*call) (Version, error) { return Version{s.Options.Version}, nil }

func (s *server) showMetrics(c *call) error {
	if s.Registry == nil {
		return belfry.Errorf(belfry.CodeNotFound, "no metrics are kept here")
	}
	promhttp.HandlerFor(s.Registry, promhttp.HandlerOpts{}).ServeHTTP(c.w, c.r)
	return nil
}

// metrics counts requests by route, never by anything that a caller chose.
type metrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

func newMetrics(registry *prometheus.Registry) *metrics {
	if registry == nil {
		return nil
	}
	return &metrics{
		registered(registry, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "belfry_http_requests_total", Help: "Requests answered, by route and status.",
		}, []string{"route", "status"})),
		registered(registry, prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "belfry_http_request_duration_seconds", Help: "Time from a request's header to its answer, by route.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"route"})),
	}
}

// registered is the collector, or the one that another handler over the same registry has made.
func registered[C prometheus.Collector](registry *prometheus.Registry, c C) C {
	err := registry.Register(c)
	if have, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		return have.ExistingCollector.(C)
	}
	return c
}

// route is what is told about every request to a route.
func (m *metrics) route(r *route) func(status int, took time.Duration) {
	if m == nil {
		return func(int, time.Duration) {}
	}
	name := r.name()
	if r.method == "" {
		name = "none"
	}
	// Made when they are first needed, so that a scrape is not full of routes that nobody calls.
	duration := sync.OnceValue(func() prometheus.Observer { return m.duration.WithLabelValues(name) })
	usual := sync.OnceValue(func() prometheus.Counter { return m.requests.WithLabelValues(name, strconv.Itoa(r.status)) })
	return func(status int, took time.Duration) {
		duration().Observe(took.Seconds())
		if status == r.status {
			usual().Inc()
			return
		}
		m.requests.WithLabelValues(name, strconv.Itoa(status)).Inc()
	}
}

// limits holds the token bucket of every key. Keys are few: only good ones get here.
type limits struct {
	rate  rate.Limit
	burst int
	mu    *sync.Mutex
	keys  map[string]*rate.Limiter
}

func newLimits(o Options) limits {
	burst := o.Burst
	if burst <= 0 {
		burst = max(int(o.Rate), 1)
	}
	return limits{o.Rate, burst, new(sync.Mutex), map[string]*rate.Limiter{}}
}

// wait takes a token of the key's, or says how long there will be none. Callers without a key are not limited.
func (l limits) wait(key string) time.Duration {
	if l.rate <= 0 || key == "" {
		return 0
	}
	l.mu.Lock()
	limiter, ok := l.keys[key]
	if !ok {
		limiter = rate.NewLimiter(l.rate, l.burst)
		l.keys[key] = limiter
	}
	l.mu.Unlock()
	token := limiter.Reserve()
	if wait := token.Delay(); wait > 0 {
		token.Cancel()
		return wait
	}
	return 0
}
