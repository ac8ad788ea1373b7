package receivertest

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
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
	ctx := b.Context()
	var bare, once, again []time.Duration
	for b.Loop() {
		id := fmt.Sprintf("msg_%016x", rand.Uint64())
		m := receiver.Message{ID: id, Body: []byte(`{"type":"payment","data":{"amount":1980,"currency":"EUR"}}`)}
		effect := func(ctx context.Context, tx T) error { return f.Book(ctx, tx, id) }
		handle := func(want receiver.Result) func() {
			return func() {
				if res, err := r.Handle(ctx, m, effect); err != nil || res != want {
					b.Fatal(res, err)
				}
			}
		}
		without := func() {
			if err := f.Store.InTx(ctx, func(tx T) error { return effect(ctx, tx) }); err != nil {
				b.Fatal(err)
			}
		}
		if len(bare)%2 == 0 {
			bare = append(bare, timed(without))
			once = append(once, timed(handle(receiver.Applied)))
		} else {
			once = append(once, timed(handle(receiver.Applied)))
			bare = append(bare, timed(without))
		}
		again = append(again, timed(handle(receiver.Duplicate)))
	}
	b.ReportMetric(0, "ns/op") // of the three together; it says nothing
	b.ReportMetric(micros(bare), "µs/bare")
	b.ReportMetric(micros(once), "µs/once")
	b.ReportMetric(micros(again), "µs/duplicate")
	b.ReportMetric(micros(once)/micros(bare), "ratio")
}

func timed(f func()) time.Duration {
	start := time.Now()
	f()
	return time.Since(start)
}

// micros is the median: one slow flush of the disk outweighs hundreds of others in a mean.
func micros(all []time.Duration) float64 {
	slices.Sort(all)
	return float64(all[len(all)/2].Nanoseconds()) / 1000
}

var ids = flag.Int("ids", 100_000, "how many ids are remembered for the figures of lookups")

// IDs is the number of ids for figures, the flag -ids.
func IDs() int { return *ids }

// ID is the i-th of the ids that [Fixture].Fill remembers.
func ID(i int) string { return fmt.Sprintf("msg_%012d", i) }

// Lookup measures a duplicate and a new message in transactions of their own, among as many ids as the flag -ids says.
func Lookup[T any](b *testing.B, s Setup[T]) {
	f, err := s.Open(b.Context(), s.New(b))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(f.Close)
	r, err := receiver.New(f.Store, receiver.Options{})
	if err != nil {
		b.Fatal(err)
	}
	ctx := b.Context()
	start := time.Now()
	if err := f.Fill(ctx, *ids); err != nil {
		b.Fatal(err)
	}
	b.Logf("filled with %d ids in %v", *ids, time.Since(start).Round(time.Second))
	var duplicate, fresh []time.Duration
	none := func(context.Context, T) error { return nil }
	handle := func(id string, want receiver.Result) func() {
		return func() {
			if res, err := r.Handle(ctx, receiver.Message{ID: id}, none); err != nil || res != want {
				b.Fatal(id, res, err)
			}
		}
	}
	for b.Loop() {
		duplicate = append(duplicate, timed(handle(ID(rand.IntN(*ids)), receiver.Duplicate)))
		fresh = append(fresh, timed(handle(fmt.Sprintf("msg_%012d_%016x", rand.IntN(*ids), rand.Uint64()), receiver.Applied)))
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(micros(duplicate), "µs/duplicate")
	b.ReportMetric(micros(fresh), "µs/new")
	b.ReportMetric(float64(*ids), "ids")
}
