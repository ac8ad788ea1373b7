package receivertest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"belfry/receiver"
)

// Bench compares Once with the bare effect, each message in a transaction of its own, turn and turn about so that both
// have the same weather: "ratio" is what Once costs.
func Bench[T any](b *testing.B, s Setup[T]) {
	f, err := s.Open(b.Context(), s.New(b))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(f.Close)
	r, err := receiver.New(f.Store, receiver.Options{})
	if err != nil {
		b.Fatal(err)
	}
	var bare, once, again time.Duration
	ctx := b.Context()
	n := 0
	for b.Loop() {
		n++
		id := fmt.Sprintf("msg_%016x", rand.Uint64())
		m := receiver.Message{ID: id, Body: []byte(`{"type":"payment","data":{"amount":1980,"currency":"EUR"}}`)}
		effect := func(ctx context.Context, tx T) error { return f.Book(ctx, tx, id) }
		run := []func(){
			func() {
				defer clock(&bare)()
				if err := f.Store.InTx(ctx, func(tx T) error { return effect(ctx, tx) }); err != nil {
					b.Fatal(err)
				}
			},
			func() {
				defer clock(&once)()
				if _, err := r.Handle(ctx, m, effect); err != nil {
					b.Fatal(err)
				}
			},
		}
		run[n%2]()
		run[1-n%2]()
		func() {
			defer clock(&again)()
			if res, err := r.Handle(ctx, m, effect); err != nil || res != receiver.Duplicate {
				b.Fatal(res, err)
			}
		}()
	}
	b.ReportMetric(0, "ns/op") // of the three together; it says nothing
	b.ReportMetric(float64(bare.Microseconds())/float64(n), "µs/bare")
	b.ReportMetric(float64(once.Microseconds())/float64(n), "µs/once")
	b.ReportMetric(float64(again.Microseconds())/float64(n), "µs/duplicate")
	b.ReportMetric(float64(once)/float64(bare), "ratio")
}

func clock(to *time.Duration) func() {
	start := time.Now()
	return func() { *to += time.Since(start) }
}
