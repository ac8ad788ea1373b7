package redis_test

import (
	"context"
	"errors"
	"maps"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"belfry/receiver"
	"belfry/receiver/receivertest"
	"belfry/receiver/redis"
)

var setup = receivertest.Setup[*redis.Tx]{
	Name: "redis",
	New:  serve,
	Open: func(ctx context.Context, socket string) (*receivertest.Fixture[*redis.Tx], error) {
		c, err := dial(socket)
		if err != nil {
			return nil, err
		}
		store, err := redis.Open(ctx, c.do, redis.Options{})
		if err != nil {
			return nil, err
		}
		var mu sync.Mutex
		all := map[string]int{}
		return &receivertest.Fixture[*redis.Tx]{
			Store: store,
			Book: func(_ context.Context, _ *redis.Tx, id string) error {
				mu.Lock()
				defer mu.Unlock()
				all[id]++
				return nil
			},
			Booked: func(context.Context) (map[string]int, error) {
				mu.Lock()
				defer mu.Unlock()
				return maps.Clone(all), nil
			},
			Close: func() { c.c.Close() },
		}, nil
	},
}

func TestMain(m *testing.M) { os.Exit(receivertest.Main(m, setup)) }

func TestStore(t *testing.T) { receivertest.Run(t, setup) }

func BenchmarkOnce(b *testing.B) { receivertest.Bench(b, setup) }

var errDied = errors.New("the process was killed, so to speak")

// TestGap shows both ways in which an effect happens twice.
func TestGap(t *testing.T) {
	c, err := dial(serve(t))
	if err != nil {
		t.Fatal(err)
	}
	booked := 0
	book := func(context.Context, *redis.Tx) error { booked++; return nil }
	open := func(do redis.Do, lease time.Duration) *receiver.Receiver[*redis.Tx] {
		t.Helper()
		store, err := redis.Open(t.Context(), do, redis.Options{Lease: lease})
		if err != nil {
			t.Fatal(err)
		}
		r, err := receiver.New(store, receiver.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}

	t.Run("KilledBetweenTheEffectAndTheID", func(t *testing.T) {
		booked = 0
		dead := false
		// From the effect on, nothing of this process reaches Redis any more.
		dying := func(ctx context.Context, args ...any) (any, error) {
			if dead {
				return nil, errDied
			}
			return c.do(ctx, args...)
		}
		_, err := open(dying, 50*time.Millisecond).Handle(t.Context(), receiver.Message{ID: "a"}, func(ctx context.Context, tx *redis.Tx) error {
			defer func() { dead = true }()
			return book(ctx, tx)
		})
		if !errors.Is(err, errDied) || !errors.Is(err, receiver.ErrOutcomeUnknown) {
			t.Error(err)
		}
		// The copy waits for the lease to end, and then has the effect again.
		if res, err := open(c.do, time.Minute).Handle(t.Context(), receiver.Message{ID: "a"}, book); err != nil || res != receiver.Applied {
			t.Error(res, err)
		}
		if booked != 2 {
			t.Errorf("booked %d times: the gap that the documentation shows is not there", booked)
		}
	})

	t.Run("TheEffectOutlivesItsLease", func(t *testing.T) {
		booked = 0
		slow, fast := open(c.do, 20*time.Millisecond), open(c.do, time.Minute)
		_, err := slow.Handle(t.Context(), receiver.Message{ID: "b"}, func(ctx context.Context, tx *redis.Tx) error {
			if res, err := fast.Handle(ctx, receiver.Message{ID: "b"}, book); err != nil || res != receiver.Applied {
				t.Error(res, err)
			}
			return book(ctx, tx)
		})
		if !errors.Is(err, receiver.ErrOutcomeUnknown) || !strings.Contains(err.Error(), "lease") {
			t.Error(err)
		}
		if booked != 2 {
			t.Errorf("booked %d times: the gap that the documentation shows is not there", booked)
		}
	})
}

func TestARedisThatEvictsIsRefused(t *testing.T) {
	c, err := dial(serve(t))
	if err != nil {
		t.Fatal(err)
	}
	set := func(name, value string) {
		t.Helper()
		if _, err := c.do(t.Context(), "CONFIG", "SET", name, value); err != nil {
			t.Fatal(err)
		}
	}
	open := func() error {
		_, err := redis.Open(t.Context(), c.do, redis.Options{})
		return err
	}
	set("maxmemory-policy", "allkeys-lru")
	if err := open(); err != nil {
		t.Error("without a limit nothing is evicted: ", err)
	}
	set("maxmemory", "100mb")
	if err := open(); err == nil || !strings.Contains(err.Error(), "noeviction") {
		t.Error(err)
	}
	set("maxmemory-policy", "noeviction")
	if err := open(); err != nil {
		t.Error(err)
	}
}

func TestAKeyOfSomebodyElseIsNoID(t *testing.T) {
	c, err := dial(serve(t))
	if err != nil {
		t.Fatal(err)
	}
	store, err := redis.Open(t.Context(), c.do, redis.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := receiver.New(store, receiver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.do(t.Context(), "SET", "receiver:id:7:default:a", "hello"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Handle(t.Context(), receiver.Message{ID: "a"}, nil); err == nil || !strings.Contains(err.Error(), "prefix") {
		t.Error(err)
	}
}
