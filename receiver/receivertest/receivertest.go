// Package receivertest is the contract of a receiver.Store: a driver that passes Run lets each message have its effect
// once, under twins, failures, kills and purges. The cases are named as the facts that they show.
//
//	var setup = receivertest.Setup[*sql.Tx]{Name: "sqlite", Atomic: true, New: …, Open: …}
//
//	func TestMain(m *testing.M)     { os.Exit(receivertest.Main(m, setup)) }
//	func TestStore(t *testing.T)    { receivertest.Run(t, setup) }
//	func BenchmarkOnce(b *testing.B)   { receivertest.Bench(b, setup) }
//	func BenchmarkLookup(b *testing.B) { receivertest.Lookup(b, setup) }
package receivertest

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"belfry/receiver"
)

// Setup says how to get stores.
type Setup[T any] struct {
	// Name tells the setups of one test binary apart.
	Name string
	// Atomic stores keep the id and the effect in one transaction. Others are not asked what they cannot do.
	Atomic bool
	// New makes an empty place for a store and returns its address.
	New func(t testing.TB) (address string)
	// Open opens a store there; the processes of the kill tests call it too.
	Open func(ctx context.Context, address string) (*Fixture[T], error)
}

// Fixture is an open store with an effect to have.
type Fixture[T any] struct {
	Store receiver.Store[T]
	// Book writes the id down, in tx if the store is atomic. The same id can be booked many times.
	Book func(ctx context.Context, tx T, id string) error
	// Booked returns how often each id was booked.
	Booked func(ctx context.Context) (map[string]int, error)
	// Fill remembers, as quickly as it can, the ids [ID] of 0 to n-1 as seen now. Only [Lookup] needs it.
	Fill  func(ctx context.Context, n int) error
	Close func()
}

// Run shows that the stores of the setup keep the contract.
func Run[T any](t *testing.T, s Setup[T]) {
	for _, c := range []struct {
		name   string
		atomic bool // only an atomic store can
		show   func(*bench[T])
	}{
		{"NewMessageHasItsEffect", false, newMessage[T]},
		{"SameIDHasOneEffect", false, sameID[T]},
		{"OtherBodyIsAConflict", false, otherBody[T]},
		{"SourcesDoNotMeet", false, sources[T]},
		{"AFailedEffectLeavesNoID", false, failedEffect[T]},
		{"AFailedEffectLeavesNothing", true, failedEffectLeavesNothing[T]},
		{"APanicLeavesNothing", false, panics[T]},
		{"TheCallersRollbackLeavesNothing", true, callersRollback[T]},
		{"TwiceInOneTransactionIsOnce", false, twiceInOne[T]},
		{"TwentyTwinsHaveOneEffect", false, twins[T]},
		{"ATwinTakesOverWhenTheWinnerRollsBack", false, takeOver[T]},
		{"TwinsOfTwoProcessesHaveOneEffect", true, twoProcesses[T]},
		{"ATwinWaitsNoLongerThanItsContext", false, impatient[T]},
		{"IDsAreRememberedForTheRetention", false, retention[T]},
		{"ExpiredMessagesHaveNoEffect", false, expired[T]},
		{"AnOlderEpochIsIgnored", false, epochs[T]},
		{"PoisonIsSetAside", false, poison[T]},
		{"WhatIsNotTheMessagesFaultIsNotCounted", false, notItsFault[T]},
		{"PurgeTakesTheOldOnly", true, purges[T]},
		{"PurgeAmongCopiesForgetsNoYoungID", false, purgeRaces[T]},
		{"EffectsAreDistinctIDs", false, anyOrder[T]},
		{"OddIDsAreKept", false, oddIDs[T]},
		{"HTTP", false, overHTTP[T]},
		{"KilledBetweenEffectAndCommitHasOneEffect", true, killedAtPoints[T]},
		{"KilledAnywhereHasOneEffect", true, killedAnywhere[T]},
	} {
		if c.atomic && !s.Atomic {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			b := &bench[T]{T: t, setup: s, ctx: t.Context(), address: s.New(t)}
			f, err := s.Open(b.ctx, b.address)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(f.Close)
			b.Fixture = f
			b.clock.Store(time.Date(2026, 12, 1, 9, 0, 0, 0, time.UTC).UnixMilli())
			c.show(b)
		})
	}
}

// bench is one test with its store.
type bench[T any] struct {
	*testing.T
	*Fixture[T]
	setup   Setup[T]
	address string
	ctx     context.Context
	clock   atomic.Int64
}

func (b *bench[T]) now() time.Time          { return time.UnixMilli(b.clock.Load()) }
func (b *bench[T]) advance(d time.Duration) { b.clock.Add(d.Milliseconds()) }

func (b *bench[T]) receiver(o receiver.Options) *receiver.Receiver[T] {
	b.Helper()
	if o.Now == nil {
		o.Now = b.now
	}
	r, err := receiver.New(b.Store, o)
	if err != nil {
		b.Fatal(err)
	}
	return r
}

// handle hands over a message whose effect is to book its id.
func (b *bench[T]) handle(r *receiver.Receiver[T], m receiver.Message, want receiver.Result) {
	b.Helper()
	got, err := r.Handle(b.ctx, m, b.book(m.ID))
	if err != nil || got != want {
		b.Errorf("%s: %q, %v; want %q", m.ID, got, err, want)
	}
}

func (b *bench[T]) book(id string) func(context.Context, T) error {
	return func(ctx context.Context, tx T) error { return b.Book(ctx, tx, id) }
}

// booked compares what was booked.
func (b *bench[T]) booked(want map[string]int) {
	b.Helper()
	got, err := b.Booked(b.ctx)
	if err != nil {
		b.Fatal(err)
	}
	for id, n := range want {
		if got[id] != n {
			b.Errorf("%s was booked %d times, want %d", id, got[id], n)
		}
	}
	for id, n := range got {
		if _, ok := want[id]; !ok {
			b.Errorf("%s was booked %d times, want none", id, n)
		}
	}
}

var errEffect = errors.New("the effect failed, on purpose")

func message(id string) receiver.Message {
	return receiver.Message{ID: id, Body: []byte(`{"id":"` + id + `"}`)}
}
