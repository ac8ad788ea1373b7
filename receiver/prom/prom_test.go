package prom_test

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"belfry/receiver"
	"belfry/receiver/prom"
)

type counts receiver.Counts

func (c counts) Counts() receiver.Counts { return receiver.Counts(c) }

func TestEveryCountIsShown(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(prom.New("shop", counts{Applied: 1, Duplicates: 2, Conflicts: 3, Stale: 4, Expired: 5, SetAside: 6, Failed: 7, Refused: 8}))
	r.MustRegister(prom.New("bank", counts{}))
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			got[f.GetName()+" "+strings.Join(labels, " ")] = m.GetCounter().GetValue()
		}
	}
	for result, n := range map[string]float64{"applied": 1, "duplicate": 2, "conflict": 3, "stale_epoch": 4, "expired": 5, "set_aside": 6, "failed": 7, "refused": 8} {
		if v, ok := got["receiver_messages_total "+result+" shop"]; !ok || v != n {
			t.Errorf("%s: %v, want %v", result, v, n)
		}
	}
	if len(got) != 16 {
		t.Errorf("%v", got)
	}
}
