package lab

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestABenchTakesTheFiguresItIsAskedFor(t *testing.T) {
	var out bytes.Buffer
	f, err := Bench(t.Context(), BenchOptions{
		Dir: scratch, Binary: program(t), Quick: true, Only: []string{"lives", "early", "start_to_ready"}, JSON: true, Out: &out,
	})
	if err != nil {
		t.Fatal(err)
	}
	var printed Figures
	if err := json.Unmarshal(out.Bytes(), &printed); err != nil || !reflect.DeepEqual(printed, f) {
		t.Errorf("it printed what it did not return: %v\n%s", err, out.String())
	}
	for name, got := range map[string]Figure{
		"lives": f.Lives, "lives_with_enqueue": f.LivesTogether, "enqueue_batch": f.EnqueueBatch, "start_to_ready": f.StartToReady, "lateness_p99": f.LatenessP99,
	} {
		if got.Value <= 0 || got.N == 0 || got.Unit == "" || got.How == "" {
			t.Errorf("%s is %+v", name, got)
		}
	}
	if f.Early.Value != 0 || f.Early.N == 0 {
		t.Errorf("some came before their time: %+v", f.Early)
	}
	if f.Webhooks.N != 0 || f.Resident.N != 0 {
		t.Error("it took figures that nobody asked for")
	}
}

func TestThePageExplainsEveryKey(t *testing.T) {
	page, err := os.ReadFile("../docs/bench.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []reflect.Type{reflect.TypeFor[Figures](), reflect.TypeFor[Machine]()} {
		for i := range v.NumField() {
			if key := v.Field(i).Tag.Get("json"); !strings.Contains(string(page), "`"+key+"`") {
				t.Errorf("docs/bench.md does not explain %s", key)
			}
		}
	}
}

// BenchmarkLives is a whole life, from enqueued to sent on record, with a channel that does nothing.
func BenchmarkLives(b *testing.B) {
	w, err := newWorld(b.Context(), b.TempDir(), 1000, nowhere{}, anywhere)
	if err != nil {
		b.Fatal(err)
	}
	defer w.close()
	if err := w.fill(b.Context(), 0, b.N, 1, func(int64) {}); err != nil {
		b.Fatal(err)
	}
	before := processor()
	b.ResetTimer()
	w.run(b.Context())
	if err := w.await(b.Context(), 1000+b.N); err != nil {
		b.Fatal(err)
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "lives/s")
	b.ReportMetric(float64(processor()-before)/float64(time.Microsecond)/float64(b.N), "cpu-µs/op")
	if err := w.halt(); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkEnqueueBatch is one notification of a library call with a thousand of them.
func BenchmarkEnqueueBatch(b *testing.B) {
	w, err := newWorld(b.Context(), b.TempDir(), 1000, nowhere{}, anywhere)
	if err != nil {
		b.Fatal(err)
	}
	defer w.close()
	before := processor()
	b.ResetTimer()
	if err := w.fill(b.Context(), 0, b.N, 2, func(int64) {}); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(processor()-before)/float64(time.Microsecond)/float64(b.N), "cpu-µs/op")
}

// processor is the time that this process has worked: what an operation costs, also beside others' work.
func processor() time.Duration {
	var r syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &r)
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
