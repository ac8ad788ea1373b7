// Package prom shows the counts of a receiver to Prometheus.
//
//	prometheus.MustRegister(prom.New("payments", in))
package prom

import (
	"github.com/prometheus/client_golang/prometheus"

	"belfry/receiver"
)

type collector struct {
	of   interface{ Counts() receiver.Counts }
	desc *prometheus.Desc
}

// New returns a collector of receiver_messages_total{source, result} for one receiver. The results are those of
// [receiver.Result], "failed" and "refused".
func New(source string, of interface{ Counts() receiver.Counts }) prometheus.Collector {
	return &collector{of, prometheus.NewDesc("receiver_messages_total", "Messages by what became of them.",
		[]string{"result"}, prometheus.Labels{"source": source})}
}

func (c *collector) Describe(to chan<- *prometheus.Desc) { to <- c.desc }

func (c *collector) Collect(to chan<- prometheus.Metric) {
	n := c.of.Counts()
	for result, count := range map[string]uint64{
		string(receiver.Applied): n.Applied, string(receiver.Duplicate): n.Duplicates, string(receiver.Conflict): n.Conflicts,
		string(receiver.Stale): n.Stale, string(receiver.Expired): n.Expired, string(receiver.SetAside): n.SetAside,
		"failed": n.Failed, "refused": n.Refused,
	} {
		to <- prometheus.MustNewConstMetric(c.desc, prometheus.CounterValue, float64(count), result)
	}
}
