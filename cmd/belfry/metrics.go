package main

import (
	"context"
	"maps"
	"runtime"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"belfry"
	"belfry/engine"
)

// metrics counts what the engine tells of. No label holds an id, an address or anything else a caller makes up.
type metrics struct {
	attempts *prometheus.CounterVec
	took     *prometheus.HistogramVec
	late     *prometheus.HistogramVec
	ended    *prometheus.CounterVec
}

func newMetrics() *metrics {
	return &metrics{
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "belfry_attempts_total", Help: "Attempts by channel and what they came to.",
		}, []string{"channel", "outcome"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "belfry_attempt_duration_seconds", Help: "From the first byte of an attempt to its answer.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 8),
		}, []string{"channel"}),
		late: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "belfry_lateness_seconds", Help: "From the due time of a delivery to its first attempt.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 10),
		}, []string{"lane"}),
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "belfry_ended_total", Help: "Deliveries that ended, and notifications that ended without one (no channel), by state and reason.",
		}, []string{"channel", "state", "reason"}),
	}
}

func (m *metrics) observe(e engine.Event) {
	if e.State != "" {
		reason := e.Reason
		if _, ours := belfry.Reasons[reason]; !ours && reason != "" {
			reason = "custom" // a recheck's own word: there could be any number of them
		}
		m.ended.WithLabelValues(e.Channel, string(e.State), string(reason)).Inc()
		return
	}
	m.attempts.WithLabelValues(e.Channel, string(e.Outcome)).Inc()
	m.took.WithLabelValues(e.Channel).Observe(e.Took.Seconds())
	if e.First {
		m.late.WithLabelValues(string(e.Lane)).Observe(max(e.Late, 0).Seconds())
	}
}

func (m *metrics) registry(e *engine.Engine) *prometheus.Registry {
	r := prometheus.NewRegistry()
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "belfry_build_info", Help: "1, with the version of the program.",
		ConstLabels: prometheus.Labels{"version": version(), "go": runtime.Version()},
	})
	info.Set(1)
	r.MustRegister(m.attempts, m.took, m.late, m.ended, info, &standing{e}, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// standing is read when it is asked for.
type standing struct{ engine *engine.Engine }

var (
	waitingDesc = prometheus.NewDesc("belfry_waiting", "Notifications and deliveries that wait.", nil, nil)
	sendingDesc = prometheus.NewDesc("belfry_sending", "Notifications and deliveries that a worker holds.", nil, nil)
	oldestDesc  = prometheus.NewDesc("belfry_oldest_due_age_seconds", "How long the oldest of what is due has waited.", nil, nil)
	busyDesc    = prometheus.NewDesc("belfry_busy_workers", "Sends under way by channel.", []string{"channel"}, nil)
)

func (s *standing) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{waitingDesc, sendingDesc, oldestDesc, busyDesc} {
		to <- d
	}
}

func (s *standing) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	busy := s.engine.Busy()
	for _, channel := range slices.Sorted(maps.Keys(busy)) {
		gauge(busyDesc, float64(busy[channel]), channel)
	}
	stats, err := s.engine.Stats(ctx, "")
	if err != nil {
		return // a store that cannot be read is readyz's to tell
	}
	age := 0.0
	if !stats.Oldest.IsZero() {
		age = max(time.Since(stats.Oldest).Seconds(), 0)
	}
	gauge(waitingDesc, float64(stats.Waiting))
	gauge(sendingDesc, float64(stats.Sending))
	gauge(oldestDesc, age)
}
