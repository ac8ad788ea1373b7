package duplicates

import (
	"bytes"
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func run(t *testing.T, o Options) Result {
	t.Helper()
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func delay(t *testing.T, text string) Delay {
	t.Helper()
	d, err := ParseDelay(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// The order of Result.Ways.
const (
	none = iota
	short100
	for5m
	all
)

// An LRU memory of N ids forgets an id exactly when at least N others were used since. So a copy leaks if that many
// different notices arrived between the two copies; no memory has to be acted out for that.
func TestFiguresAgreeWithDistances(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	for range 40 {
		n := 1 + rng.IntN(400)
		copies := rng.Perm(n)[:rng.IntN(n+1)]
		delays := make([]time.Duration, len(copies))
		for i := range delays {
			delays[i] = time.Duration(rng.ExpFloat64() * float64(time.Duration(1+rng.IntN(200))*time.Second))
		}
		rate := []float64{0.3, 1, 7}[rng.IntN(3)]
		size, window := 1+rng.IntN(60), time.Duration(rng.IntN(300))*time.Second
		events := arrivals(n, rate, copies, delays)
		amounts := make([]int64, n)
		var right int64
		for i := range amounts {
			amounts[i] = 1 << (i % 40)
			right += amounts[i]
		}

		byLast, byTime, offLast, offTime := 0, 0, int64(0), int64(0)
		for j, second := range events {
			if !second.second {
				continue
			}
			between := map[int]bool{}
			i := j - 1
			for ; events[i].notice != second.notice; i-- {
				between[events[i].notice] = true
			}
			if len(between) >= size {
				byLast++
				offLast += amounts[second.notice]
			}
			if second.at-events[i].at >= window {
				byTime++
				offTime += amounts[second.notice]
			}
		}
		o := Options{Memory: size, Window: window}
		got := []Way{}
		for _, w := range ways(o) {
			got = append(got, receive(w, events, amounts, right))
		}
		want := []Way{
			{got[none].Name, n + len(copies), len(copies), right + sum(amounts, copies), sum(amounts, copies)},
			{got[short100].Name, n + byLast, byLast, right + offLast, offLast},
			{got[for5m].Name, n + byTime, byTime, right + offTime, offTime},
			{got[all].Name, n, 0, right, 0},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
}

func sum(amounts []int64, of []int) (n int64) {
	for _, i := range of {
		n += amounts[i]
	}
	return n
}

// The means over many seeds, against those that another program found for the same laws (rounded to a tenth; 300 seeds),
// and against a formula where there is one.
func TestMeansAgreeWithAnotherProgram(t *testing.T) {
	// Four standard errors of a mean, at most 3.5 leaks wide each.
	seeds, far := 300, 1.0
	if testing.Short() {
		seeds, far = 50, 2.0
	}
	for _, c := range []struct {
		delay       string
		rate        float64
		last, timed float64
	}{
		{"immediate", 1, 0, 0},
		{"5s", 10, 0, 0},
		{"300500ms", 1, 45.7, 50},
		{"300500ms", 10, 47.3, 50},
		{"30m", 1, 47.3, 50},
		{"exp:60s", 1, 8.9, 0.3},
		{"exp:60s", 10, 38.8, 0.3},
		{"exp:10m", 1, 38.8, 30.3},
		{"exp:10m", 10, 45.2, 30.3},
		{"mix", 1, 36.7, 40.1},
		{"mix", 10, 36.9, 40.1},
	} {
		o, err := Options{Rate: c.rate, Delay: delay(t, c.delay)}.resolved()
		if err != nil {
			t.Fatal(err)
		}
		var mean [4]float64
		for seed := range seeds {
			o.Seed = uint64(seed + 1)
			d := o.draw()
			events := arrivals(o.Notices, o.Rate, d.copies, d.delays)
			for i, w := range ways(o) {
				mean[i] += float64(receive(w, events, d.amounts, d.right).Twice)
			}
		}
		for i := range mean {
			mean[i] /= float64(seeds)
		}
		if mean[none] != 50 || mean[all] != 0 {
			t.Errorf("%s: %v", c.delay, mean)
		}
		if d := math.Abs(mean[short100] - c.last); d > far {
			t.Errorf("%s, %v/s, last 100: %.2f, want %.1f", c.delay, c.rate, mean[short100], c.last)
		}
		if d := math.Abs(mean[for5m] - c.timed); d > far {
			t.Errorf("%s, %v/s, 5 minutes: %.2f, want %.1f", c.delay, c.rate, mean[for5m], c.timed)
		}
		if m, ok := strings.CutPrefix(c.delay, "exp:"); ok {
			d, _ := time.ParseDuration(m)
			if want := 50 * math.Exp(-5*time.Minute.Seconds()/d.Seconds()); math.Abs(mean[for5m]-want) > far {
				t.Errorf("%s, 5 minutes: %.2f, and by formula %.2f", c.delay, mean[for5m], want)
			}
		}
	}
}

func TestBothTruths(t *testing.T) {
	soon := run(t, Options{Delay: delay(t, "immediate")})
	if w := soon.Ways; w[short100].Twice != 0 || w[short100].OffBy != 0 || w[none].Twice != 50 {
		t.Errorf("with immediate repeats the short memory is not perfect: %+v", w)
	}
	late := run(t, Options{Delay: delay(t, "5m5s,35m5s,2h35m5s,7h35m5s")})
	busy := run(t, Options{Delay: delay(t, "exp:1m"), Rate: 10})
	quiet := run(t, Options{Delay: delay(t, "exp:1m")})
	// What it still catches came at the end of the run.
	if w := late.Ways; w[short100].Twice+late.Lucky != 50 || w[short100].Twice < 40 {
		t.Errorf("with the waits of a real schedule the short memory leaks only %d of 50", w[short100].Twice)
	}
	if busy.Ways[short100].Twice < 3*quiet.Ways[short100].Twice {
		t.Errorf("%d leaks in ten times the traffic, %d before", busy.Ways[short100].Twice, quiet.Ways[short100].Twice)
	}
	for _, r := range []Result{soon, late, busy, quiet} {
		for i, w := range r.Ways {
			if (w.OffBy == 0) != (w.Handled == r.Notices) || w.Total != r.Right+w.OffBy || (i == all) && w.OffBy != 0 {
				t.Errorf("%+v", w)
			}
		}
	}
}

func TestTheSameSeedGivesTheSameFigures(t *testing.T) {
	a, b := run(t, Options{Delay: delay(t, "exp:10m"), Seed: 5}), run(t, Options{Delay: delay(t, "exp:10m"), Seed: 5})
	if diff := cmp.Diff(a, b); diff != "" {
		t.Error(diff)
	}
	if cmp.Equal(a, run(t, Options{Delay: delay(t, "exp:10m"), Seed: 6})) {
		t.Error("another seed gives the same figures")
	}
}

func TestForReal(t *testing.T) {
	r := run(t, Options{Notices: 200, Through: "http"})
	if len(r.Real) != 2 {
		t.Fatalf("%+v", r.Real)
	}
	naive, receiver := r.Real[0], r.Real[1]
	if naive.Handled != 210 || naive.Twice != 10 || naive.OffBy != r.Ways[none].OffBy {
		t.Errorf("%+v", naive)
	}
	if receiver.Handled != 200 || receiver.Twice != 0 || receiver.Total != r.Right || receiver.OffBy != 0 {
		t.Errorf("%+v", receiver)
	}
}

func TestDelaysAreRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "delays.csv")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("delay,count\n5s,1\n\"90\",2\n0.5\n")
	for text, want := range map[string][]time.Duration{
		"immediate": {0}, "5s": {5 * time.Second}, "1s, 2s": {time.Second, 2 * time.Second},
		"csv:" + file: {5 * time.Second, 90 * time.Second, 500 * time.Millisecond},
		"mix":         {5 * time.Second, 305 * time.Second, 2105 * time.Second, 9305 * time.Second, 27305 * time.Second},
	} {
		d, rng := delay(t, text), rand.New(rand.NewPCG(1, 1))
		seen := map[time.Duration]bool{}
		for range 200 {
			seen[d.draw(rng)] = true
		}
		for _, w := range want {
			if !seen[w] {
				t.Errorf("%s: %v was never drawn", text, w)
			}
		}
		if len(seen) != len(want) {
			t.Errorf("%s: %v", text, seen)
		}
	}
	for _, text := range []string{"", "soon", "-5s", "exp:", "exp:-1s", "exp:0", "1s,", "csv:", "csv:" + file + ".none", "9999999h"} {
		if _, err := ParseDelay(text); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
	for _, text := range []string{"", "delay\n", "delay\nsoon\n", "1\n-2\n", "1\n1e300\n", "1\nNaN\n"} {
		write(text)
		if _, err := ParseDelay("csv:" + file); err == nil {
			t.Errorf("the file %q is taken", text)
		}
	}
}

func TestOptionsOutOfRangeAreRefused(t *testing.T) {
	for _, o := range []Options{{Notices: -1}, {Notices: 2_000_000}, {Rate: -1}, {Rate: math.NaN()}, {Rate: math.Inf(1)}, {Dup: 1.1}, {Dup: math.NaN()}, {Memory: -1}, {Window: -1}, {Through: "queue"}} {
		if _, err := Run(t.Context(), o); err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
}

func TestResultIsPrinted(t *testing.T) {
	r := run(t, Options{Delay: delay(t, "5m")})
	var b bytes.Buffer
	if err := r.Print(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"1,000 notices, 1 a second; 50 of them", "no defence               1,050        50", "every id                 1,000         0", "0.00", "the last 100 ids", "at once     0 ················", "5h0m"} {
		if want = strings.ReplaceAll(want, "5h0m", "       5h   "); !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in\n%s", want, &b)
		}
	}
	if strings.Contains(b.String(), " \n") {
		t.Error("white space at the end of a line")
	}
	text, err := json.Marshal(r)
	if err != nil || !strings.Contains(string(text), `"handled_twice":50`) {
		t.Errorf("%s, %v", text, err)
	}
	none := run(t, Options{Dup: -1})
	b.Reset()
	if err := none.Print(&b); err != nil || none.Ways[0].Twice != 0 || none.Copies != 0 {
		t.Errorf("%+v, %v", none.Ways, err)
	}
}
