package receivertest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"belfry/receiver"
)

func newMessage[T any](b *bench[T]) {
	r := b.receiver(receiver.Options{})
	b.handle(r, message("a"), receiver.Applied)
	b.handle(r, receiver.Message{ID: "only-an-id"}, receiver.Applied)
	b.booked(map[string]int{"a": 1, "only-an-id": 1})
	for _, id := range []string{"", " ", "a b", "a\n", "é", "a\x00", strings.Repeat("x", receiver.MaxID+1)} {
		if _, err := r.Handle(b.ctx, receiver.Message{ID: id}, b.book("bad")); !errors.Is(err, receiver.ErrBadID) {
			b.Errorf("id %q: %v", id, err)
		}
	}
	b.booked(map[string]int{"a": 1, "only-an-id": 1})
}

func sameID[T any](b *bench[T]) {
	r := b.receiver(receiver.Options{})
	b.handle(r, message("a"), receiver.Applied)
	for range 3 {
		b.advance(time.Hour)
		b.handle(r, message("a"), receiver.Duplicate)
	}
	b.booked(map[string]int{"a": 1})
	if got := r.Counts(); got != (receiver.Counts{Applied: 1, Duplicates: 3}) {
		b.Errorf("%+v", got)
	}
}

func otherBody[T any](b *bench[T]) {
	r := b.receiver(receiver.Options{})
	b.handle(r, message("a"), receiver.Applied)
	b.handle(r, receiver.Message{ID: "a", Body: []byte("other")}, receiver.Conflict)
	b.handle(r, receiver.Message{ID: "a", Body: []byte{}}, receiver.Conflict)
	b.handle(r, receiver.Message{ID: "a"}, receiver.Duplicate) // a body that is not known is not compared
	b.handle(r, message("a"), receiver.Duplicate)
	b.booked(map[string]int{"a": 1})
	if got := r.Counts(); got != (receiver.Counts{Applied: 1, Duplicates: 2, Conflicts: 2}) {
		b.Errorf("%+v", got)
	}
}

func sources[T any](b *bench[T]) {
	shop, bank := b.receiver(receiver.Options{Source: "shop"}), b.receiver(receiver.Options{Source: "bank"})
	odd := b.receiver(receiver.Options{Source: "shop:a"})
	b.handle(shop, message("a"), receiver.Applied)
	b.handle(bank, message("a"), receiver.Applied)
	b.handle(shop, message("a:b"), receiver.Applied)
	b.handle(odd, message("b"), receiver.Applied)
	b.handle(bank, message("a"), receiver.Duplicate)
	b.booked(map[string]int{"a": 2, "a:b": 1, "b": 1})
	if _, err := receiver.New(b.Store, receiver.Options{Source: "a shop"}); err == nil {
		b.Error("a source with a space is taken")
	}
}

func failedEffect[T any](b *bench[T]) {
	r := b.receiver(receiver.Options{})
	got, err := r.Handle(b.ctx, message("a"), func(context.Context, T) error { return errEffect })
	if !errors.Is(err, errEffect) || got != "" {
		b.Errorf("%q, %v", got, err)
	}
	b.handle(r, message("a"), receiver.Applied)
	b.booked(map[string]int{"a": 1})
	if got := r.Counts(); got != (receiver.Counts{Applied: 1, Failed: 1}) {
		b.Errorf("%+v", got)
	}
}

func failedEffectLeavesNothing[T any](b *bench[T]) {
	r := b.receiver(receiver.Options{})
	if _, err := r.Handle(b.ctx, message("a"), func(ctx context.Context, tx T) error {
		if err := b.Book(ctx, tx, "a"); err != nil {
			return err
		}
		return errEffect
	}); !errors.Is(err, errEffect) {
		b.Error(err)
	}
	b.booked(nil)
	b.handle(r, message("a"), receiver.Applied)
	b.booked(map[string]int{"a": 1})
}

func panics[T any](b *bench[T]) {
	r := b.receiver(receiver.Options{})
	_, err := r.Handle(b.ctx, message("a"), func(context.Context, T) error { panic("on purpose") })
	if err == nil || !strings.Contains(err.Error(), "on purpose") {
		b.Error(err)
	}
	b.handle(r, message("a"), receiver.Applied)
	// Once leaves panics to the caller, whose transaction it is.
	func() {
		defer func() { _ = recover() }()
		_ = b.Store.InTx(b.ctx, func(tx T) error {
			_, err := r.Once(b.ctx, tx, message("b"), func(T) error { panic("on purpose") })
			return err
		})
	}()
	b.handle(r, message("b"), receiver.Applied)
	b.booked(map[string]int{"a": 1, "b": 1})
}

func callersRollback[T any](b *bench[T]) {
	r := b.receiver(receiver.Options{})
	err := b.Store.InTx(b.ctx, func(tx T) error {
		got, err := r.Once(b.ctx, tx, message("a"), func(tx T) error { return b.Book(b.ctx, tx, "a") })
		if err != nil || got != receiver.Applied {
			b.Errorf("%q, %v", got, err)
		}
		return errEffect
	})
	if !errors.Is(err, errEffect) {
		b.Error(err)
	}
	b.booked(nil)
	b.handle(r, message("a"), receiver.Applied)
	b.booked(map[string]int{"a": 1})
}

func twiceInOne[T any](b *bench[T]) {
	r := b.receiver(receiver.Options{})
	err := b.Store.InTx(b.ctx, func(tx T) error {
		for i, want := range []receiver.Result{receiver.Applied, receiver.Duplicate, receiver.Applied} {
			m := message([]string{"a", "a", "b"}[i])
			got, err := r.Once(b.ctx, tx, m, func(tx T) error { return b.Book(b.ctx, tx, m.ID) })
			if err != nil || got != want {
				b.Errorf("%d: %q, %v; want %q", i, got, err, want)
			}
		}
		return nil
	})
	if err != nil {
		b.Error(err)
	}
	b.booked(map[string]int{"a": 1, "b": 1})
}

func twins[T any](b *bench[T]) {
	r := b.receiver(receiver.Options{})
	const n = 20
	var ready, all sync.WaitGroup
	ready.Add(n)
	for range n {
		all.Go(func() {
			ready.Done()
			if _, err := r.Handle(b.ctx, message("a"), func(ctx context.Context, tx T) error {
				ready.Wait() // the winner holds the id until all the others are on their way
				return b.Book(ctx, tx, "a")
			}); err != nil {
				b.Error(err)
			}
		})
	}
	all.Wait()
	b.booked(map[string]int{"a": 1})
	if got := r.Counts(); got != (receiver.Counts{Applied: 1, Duplicates: n - 1}) {
		b.Errorf("%+v", got)
	}
}

func takeOver[T any](b *bench[T]) {
	r := b.receiver(receiver.Options{})
	const n = 20
	var ready, all sync.WaitGroup
	ready.Add(n)
	var mu sync.Mutex
	runs, failures := 0, 0
	for range n {
		all.Go(func() {
			ready.Done()
			_, err := r.Handle(b.ctx, message("a"), func(ctx context.Context, tx T) error {
				ready.Wait()
				mu.Lock()
				runs++
				first := runs == 1
				mu.Unlock()
				if first {
					return errEffect
				}
				return b.Book(ctx, tx, "a")
			})
			if errors.Is(err, errEffect) {
				mu.Lock()
				failures++
				mu.Unlock()
			} else if err != nil {
				b.Error(err)
			}
		})
	}
	all.Wait()
	b.booked(map[string]int{"a": 1})
	if runs != 2 || failures != 1 {
		b.Errorf("the effect ran %d times, %d callers saw its error", runs, failures)
	}
	if got := r.Counts(); got != (receiver.Counts{Applied: 1, Duplicates: n - 2, Failed: 1}) {
		b.Errorf("%+v", got)
	}
}

// twoProcesses: two stores that share nothing but the database.
func twoProcesses[T any](b *bench[T]) {
	other, err := b.setup.Open(b.ctx, b.address)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(other.Close)
	fixtures := []*Fixture[T]{b.Fixture, other}
	const n = 10
	var ready, all sync.WaitGroup
	ready.Add(n)
	for i := range n {
		f := fixtures[i%2]
		r, err := receiver.New(f.Store, receiver.Options{Now: b.now})
		if err != nil {
			b.Fatal(err)
		}
		all.Go(func() {
			ready.Done()
			if _, err := r.Handle(b.ctx, message("a"), func(ctx context.Context, tx T) error {
				ready.Wait()
				return f.Book(ctx, tx, "a")
			}); err != nil {
				b.Error(err)
			}
		})
	}
	all.Wait()
	b.booked(map[string]int{"a": 1})
}

func impatient[T any](b *bench[T]) {
	r := b.receiver(receiver.Options{})
	held, release := make(chan struct{}), make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		if _, err := r.Handle(b.ctx, message("a"), func(ctx context.Context, tx T) error {
			close(held)
			<-release
			return b.Book(ctx, tx, "a")
		}); err != nil {
			b.Error(err)
		}
	})
	<-held
	ctx, cancel := context.WithTimeout(b.ctx, 100*time.Millisecond)
	defer cancel()
	if got, err := r.Handle(ctx, message("a"), b.book("a")); err == nil {
		b.Errorf("%q without waiting for the winner", got)
	}
	close(release)
	all.Wait()
	b.handle(r, message("a"), receiver.Duplicate)
	b.booked(map[string]int{"a": 1})
}

func retention[T any](b *bench[T]) {
	r := b.receiver(receiver.Options{})
	b.handle(r, message("a"), receiver.Applied)
	b.advance(r.Retention())
	b.handle(r, message("a"), receiver.Duplicate)
	b.advance(time.Millisecond)
	b.handle(r, message("a"), receiver.Applied) // nothing was purged: the age alone decides
	b.handle(r, message("a"), receiver.Duplicate)
	b.booked(map[string]int{"a": 2})
}

func expired[T any](b *bench[T]) {
	r := b.receiver(receiver.Options{})
	m := message("a")
	m.NotAfter = b.now()
	b.advance(time.Second)
	b.handle(r, m, receiver.Expired)
	b.advance(-time.Second)
	b.handle(r, m, receiver.Applied) // it was not remembered, and that very second still counts
	b.booked(map[string]int{"a": 1})
}

func epochs[T any](b *bench[T]) {
	r := b.receiver(receiver.Options{})
	of := func(epoch int64, body string) receiver.Message {
		return receiver.Message{ID: "a", Epoch: epoch, Body: []byte(body)}
	}
	b.handle(r, of(7, "new"), receiver.Applied)
	b.handle(r, of(6, "new"), receiver.Stale)
	b.handle(r, of(6, "old"), receiver.Stale) // made before, so no conflict
	b.handle(r, of(7, "new"), receiver.Duplicate)
	b.handle(r, of(8, "new"), receiver.Duplicate)
	b.handle(r, of(8, "other"), receiver.Conflict)
	b.handle(r, of(0, "new"), receiver.Duplicate)
	b.booked(map[string]int{"a": 1})
	if got := r.Counts(); got != (receiver.Counts{Applied: 1, Duplicates: 3, Stale: 2, Conflicts: 1}) {
		b.Errorf("%+v", got)
	}
	big := receiver.Message{ID: "b", Epoch: 1<<63 - 1}
	b.handle(r, big, receiver.Applied)
	big.Epoch--
	b.handle(r, big, receiver.Stale)
	if _, err := r.Handle(b.ctx, receiver.Message{ID: "c", Epoch: -1}, b.book("c")); err == nil {
		b.Error("a negative epoch is taken")
	}
}

func poison[T any](b *bench[T]) {
	r := b.receiver(receiver.Options{})
	m := message("a")
	fail := func(ctx context.Context, tx T) error {
		if b.setup.Atomic {
			if err := b.Book(ctx, tx, "a"); err != nil {
				return err
			}
		}
		return fmt.Errorf("%w \xff\x00", errEffect) // bytes that a database may not take
	}
	for i := range 9 {
		if got, err := r.Handle(b.ctx, m, fail); !errors.Is(err, errEffect) {
			b.Fatalf("failure %d: %q, %v", i+1, got, err)
		}
	}
	if got, err := r.Handle(b.ctx, m, fail); err != nil || got != receiver.SetAside {
		b.Errorf("failure 10: %q, %v", got, err)
	}
	b.handle(r, m, receiver.Duplicate)
	b.booked(nil)
	if got := r.Counts(); got != (receiver.Counts{Failed: 10, SetAside: 1, Duplicates: 1}) {
		b.Errorf("%+v", got)
	}
	all, err := r.Asides(b.ctx, 10)
	if err != nil || len(all) != 1 {
		b.Fatalf("%+v, %v", all, err)
	}
	if a := all[0]; a.ID != "a" || string(a.Body) != string(m.Body) || a.Failures != 10 || !strings.Contains(a.Reason, "on purpose") || !a.At.Equal(b.now()) {
		b.Errorf("%+v", a)
	}
	if was, err := r.Forget(b.ctx, "a"); err != nil || !was {
		b.Errorf("%t, %v", was, err)
	}
	if was, err := r.Forget(b.ctx, "a"); err != nil || was {
		b.Errorf("%t, %v", was, err)
	}
	if got, err := r.Handle(b.ctx, m, fail); !errors.Is(err, errEffect) {
		b.Errorf("the failures were not forgotten: %q, %v", got, err)
	}
	b.handle(r, m, receiver.Applied)
	b.booked(map[string]int{"a": 1})

	// What was set aside long ago starts to count anew.
	for range 10 {
		_, _ = r.Handle(b.ctx, message("b"), fail)
	}
	b.advance(r.Retention() + time.Millisecond)
	if got, err := r.Handle(b.ctx, message("b"), fail); !errors.Is(err, errEffect) {
		b.Errorf("%q, %v", got, err)
	}
}

func notItsFault[T any](b *bench[T]) {
	r := b.receiver(receiver.Options{Failures: 1})
	for range 3 {
		if _, err := r.Handle(b.ctx, message("a"), func(context.Context, T) error { return receiver.Later(time.Minute, errEffect) }); !errors.Is(err, errEffect) {
			b.Error(err)
		}
	}
	ctx, cancel := context.WithCancel(b.ctx)
	if _, err := r.Handle(ctx, message("a"), func(context.Context, T) error { cancel(); return ctx.Err() }); !errors.Is(err, context.Canceled) {
		b.Error(err)
	}
	b.handle(r, message("a"), receiver.Applied)
	never := b.receiver(receiver.Options{Failures: -1, Source: "never"})
	for range 12 {
		if _, err := never.Handle(b.ctx, message("b"), func(context.Context, T) error { return errEffect }); !errors.Is(err, errEffect) {
			b.Error(err)
		}
	}
	b.booked(map[string]int{"a": 1})
}

func purges[T any](b *bench[T]) {
	r, other := b.receiver(receiver.Options{}), b.receiver(receiver.Options{Source: "other"})
	const old, young = 2500, 7
	err := b.Store.InTx(b.ctx, func(tx T) error {
		for i := range old {
			if _, err := r.Once(b.ctx, tx, message(fmt.Sprint("old-", i)), func(T) error { return nil }); err != nil {
				return err
			}
		}
		_, err := other.Once(b.ctx, tx, message("old-0"), func(T) error { return nil })
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	if _, err := r.Handle(b.ctx, message("failing"), func(context.Context, T) error { return errEffect }); err == nil {
		b.Error("no error")
	}
	b.advance(time.Minute)
	for i := range young {
		b.handle(r, message(fmt.Sprint("young-", i)), receiver.Applied)
	}
	b.advance(r.Retention() - time.Minute)
	if n, err := r.Purge(b.ctx); err != nil || n != 0 {
		b.Errorf("purged %d, %v, though all are young", n, err)
	}
	b.advance(time.Millisecond)
	if n, err := r.Purge(b.ctx); err != nil || n != old {
		b.Errorf("purged %d, %v, want %d", n, err, old)
	}
	for i := range young {
		b.handle(r, message(fmt.Sprint("young-", i)), receiver.Duplicate)
	}
	if n, err := r.Purge(b.ctx); err != nil || n != 0 {
		b.Errorf("purged %d more, %v", n, err)
	}
	if n, err := other.Purge(b.ctx); err != nil || n != 1 {
		b.Errorf("the other source lost its id to a purge that was not its own: %d, %v", n, err)
	}
}

// purgeRaces renews ids at the very moment at which they are old, purges all the time, and expects every copy that
// comes within the retention to be known.
func purgeRaces[T any](b *bench[T]) {
	r := b.receiver(receiver.Options{})
	ctx, cancel := context.WithCancel(b.ctx)
	var purging sync.WaitGroup
	purging.Go(func() {
		for ctx.Err() == nil {
			if _, err := r.Purge(ctx); err != nil && ctx.Err() == nil {
				b.Error(err)
			}
		}
	})
	const ids, rounds = 8, 6
	for range rounds {
		var copies sync.WaitGroup
		for i := range ids {
			for range 3 {
				copies.Go(func() {
					if _, err := r.Handle(b.ctx, message(fmt.Sprint(i)), b.book(fmt.Sprint(i))); err != nil {
						b.Error(err)
					}
				})
			}
		}
		copies.Wait()
		b.advance(r.Retention() + time.Millisecond)
	}
	cancel()
	purging.Wait()
	want := map[string]int{}
	for i := range ids {
		want[fmt.Sprint(i)] = rounds
	}
	b.booked(want)
}

// anyOrder: whatever the order and the multiplicity, with twenty at a time and effects that fail now and then.
func anyOrder[T any](b *bench[T]) {
	seed := uint64(time.Now().UnixNano())
	b.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	r := b.receiver(receiver.Options{Failures: -1})
	const ids = 60
	var copies []string
	want := map[string]int{}
	for i := range ids {
		id := fmt.Sprint("id-", i)
		want[id] = 1
		for range 1 + rng.IntN(6) {
			copies = append(copies, id)
		}
	}
	rng.Shuffle(len(copies), func(i, j int) { copies[i], copies[j] = copies[j], copies[i] })
	fails := make(map[string]bool) // once, before it succeeds
	for id := range want {
		fails[id] = rng.IntN(4) == 0
	}
	var mu sync.Mutex
	queue := make(chan string)
	var writers sync.WaitGroup
	for range 20 {
		writers.Go(func() {
			for id := range queue {
				for {
					_, err := r.Handle(b.ctx, message(id), func(ctx context.Context, tx T) error {
						mu.Lock()
						fail := fails[id]
						fails[id] = false
						mu.Unlock()
						if fail {
							return errEffect
						}
						return b.Book(ctx, tx, id)
					})
					if err == nil {
						break
					}
					if !errors.Is(err, errEffect) {
						b.Error(err)
						break
					}
				}
			}
		})
	}
	for _, id := range copies {
		queue <- id
	}
	close(queue)
	writers.Wait()
	b.booked(want)
	if c := r.Counts(); c.Applied != ids || c.Duplicates != uint64(len(copies)-ids) {
		b.Errorf("%+v of %d copies", c, len(copies))
	}
}

func oddIDs[T any](b *bench[T]) {
	r := b.receiver(receiver.Options{})
	ids := []string{"'", `"`, "%", "_", "a'; DROP TABLE receiver_inbox; --", "A", "a", "0", "00", "1e3", "NULL", `\`, `\0`, "{}", "*", "$1", "?", strings.Repeat("~", receiver.MaxID)}
	want := map[string]int{}
	for _, id := range ids {
		id = strings.ReplaceAll(id, " ", "+")
		b.handle(r, message(id), receiver.Applied)
		b.handle(r, message(id), receiver.Duplicate)
		want[id] = 1
	}
	b.booked(want)
}
