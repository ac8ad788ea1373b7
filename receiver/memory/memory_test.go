package memory_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"belfry/receiver"
	"belfry/receiver/memory"
	"belfry/receiver/receivertest"
)

var setup = receivertest.Setup[*memory.Tx]{
	Name: "memory",
	New:  func(testing.TB) string { return "" },
	Open: func(context.Context, string) (*receivertest.Fixture[*memory.Tx], error) {
		var mu sync.Mutex
		all := map[string]int{}
		return &receivertest.Fixture[*memory.Tx]{
			Store: memory.New(),
			Book: func(_ context.Context, _ *memory.Tx, id string) error {
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
			Close: func() {},
		}, nil
	},
}

func TestMain(m *testing.M) { os.Exit(receivertest.Main(m, setup)) }

func TestStore(t *testing.T) { receivertest.Run(t, setup) }

func BenchmarkOnce(b *testing.B) { receivertest.Bench(b, setup) }

// TestGap: the effect is a file, the memory is the process's; the message comes again after a restart.
func TestGap(t *testing.T) {
	file := t.TempDir() + "/booked"
	book := func(context.Context, *memory.Tx) error {
		f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = f.WriteString("100\n")
		return err
	}
	for range 2 { // lives of the process
		r, err := receiver.New(memory.New(), receiver.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := r.Handle(t.Context(), receiver.Message{ID: "a"}, book); err != nil {
				t.Fatal(err)
			}
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(text) != "100\n100\n" {
		t.Errorf("booked %q: the gap that the documentation shows is not there", text)
	}
	// And what a failing effect did already stays done.
	r, err := receiver.New(memory.New(), receiver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.Handle(t.Context(), receiver.Message{ID: "b"}, func(ctx context.Context, tx *memory.Tx) error {
		_ = book(ctx, tx)
		return os.ErrInvalid
	})
	if err == nil {
		t.Error("no error")
	}
	if text, _ := os.ReadFile(file); len(text) != 12 {
		t.Errorf("booked %q", text)
	}
}

func TestPurgeForgetsWhatIsOldAndNothingElse(t *testing.T) {
	store := memory.New()
	now := time.Date(2026, 12, 1, 9, 0, 0, 0, time.UTC)
	r, err := receiver.New(store, receiver.Options{Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	none := func(context.Context, *memory.Tx) error { return nil }
	seen := map[string]time.Time{}
	const steps = 400
	for i := range steps {
		id := fmt.Sprint(i)
		if res, err := r.Handle(t.Context(), receiver.Message{ID: id}, none); err != nil || res != receiver.Applied {
			t.Fatal(res, err)
		}
		seen[id] = now
		if i%10 == 0 {
			if _, err := r.Purge(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		now = now.Add(r.Retention() / 100)
	}
	young := 0
	for id, at := range seen {
		want := receiver.Applied
		if now.Sub(at) <= r.Retention() {
			want = receiver.Duplicate
			young++
		}
		if res, err := r.Handle(t.Context(), receiver.Message{ID: id}, none); err != nil || res != want {
			t.Errorf("%s, %v old: %q, %v; want %q", id, now.Sub(at), res, err, want)
		}
	}
	if young != 100 {
		t.Errorf("%d young ids", young)
	}
	now = now.Add(r.Retention() + time.Hour)
	if n, err := r.Purge(t.Context()); err != nil || n < steps || n > steps+steps/4 {
		t.Errorf("%d, %v", n, err)
	}
}

// fill remembers ids spread over the whole retention.
func fill(t testing.TB, n int) (*receiver.Receiver[*memory.Tx], func(int) string, float64) {
	t.Helper()
	id := func(i int) string { return fmt.Sprintf("msg_%024d", i) }
	now := time.Date(2026, 12, 1, 9, 0, 0, 0, time.UTC)
	r, err := receiver.New(memory.New(), receiver.Options{Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	step := (r.Retention() - time.Minute) / time.Duration(n)
	for i := range n {
		if res, err := r.Handle(t.Context(), receiver.Message{ID: id(i), Body: []byte("{}")}, func(context.Context, *memory.Tx) error { return nil }); err != nil || res != receiver.Applied {
			t.Fatal(res, err)
		}
		now = now.Add(step)
	}
	perID := float64(heap()-before) / float64(n)
	runtime.KeepAlive(r)
	return r, id, perID
}

func TestAnIDTakesAtMost64Bytes(t *testing.T) {
	// Just after an index has grown it is emptiest; these are such moments and others.
	for _, n := range []int{100_000, 210_000, 420_000} {
		if testing.Short() && n > 100_000 {
			break
		}
		if _, _, got := fill(t, n); got > 64 {
			t.Errorf("%d ids: %.1f bytes each", n, got)
		} else {
			t.Logf("%d ids: %.1f bytes each", n, got)
		}
	}
}

func BenchmarkLookup(b *testing.B) {
	ids := receivertest.IDs()
	r, id, perID := fill(b, ids)
	i := 0
	for b.Loop() {
		i = (i + 7919) % ids
		if res, err := r.Handle(context.Background(), receiver.Message{ID: id(i), Body: []byte("{}")}, nil); err != nil || res != receiver.Duplicate {
			b.Fatal(res, err)
		}
	}
	b.ReportMetric(perID, "bytes/id")
	b.ReportMetric(float64(ids), "ids")
}
