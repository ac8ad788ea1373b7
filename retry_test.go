package belfry_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"belfry"
)

func TestWaitsDoubleFromHalfAMinuteToHalfAnHour(t *testing.T) {
	policy := belfry.Category{}.Resolved().Retry
	want := []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 16 * time.Minute, 30 * time.Minute, 30 * time.Minute}
	for i, w := range want {
		if got := policy.Delay(i+1, 0, 0); got != w {
			t.Errorf("after try %d: %v, want %v", i+1, got, w)
		}
	}
	for _, n := range []int{-1, 0} {
		if got := policy.Delay(n, 0, 0); got != want[0] {
			t.Errorf("after try %d: %v", n, got)
		}
	}
	if got := policy.Delay(100_000, 0, 1); got != 30*time.Minute {
		t.Errorf("after very many tries: %v", got)
	}
}

func TestAWaitThatWasAskedForIsHonoured(t *testing.T) {
	for _, c := range []struct {
		what   string
		n      int
		after  time.Duration
		jitter float64
		want   time.Duration
	}{
		{"shorter than ours", 1, 5 * time.Second, 0, 5 * time.Second},
		{"shorter again and again", 4, 5 * time.Second, 0, 40 * time.Second},
		{"longer than ours", 1, time.Hour, 0, time.Hour},
		{"longer, jittered by a second at most", 1, time.Hour, 1, time.Hour + time.Second},
		{"no wait", 2, 0, 0, time.Minute},
		{"in the past", 2, -time.Hour, 0, time.Minute},
		{"in ten years", 1, 10 * 366 * 24 * time.Hour, 0, 24 * time.Hour},
	} {
		if got := eight.Delay(c.n, c.after, c.jitter); got != c.want {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
}

func TestJitterOnlyLengthens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		policy := belfry.RetryPolicy{
			First:  belfry.Duration(rapid.Int64Range(1, int64(24*time.Hour)).Draw(t, "first")),
			Factor: rapid.Float64Range(1, 10).Draw(t, "factor"),
			Max:    belfry.Duration(rapid.Int64Range(1, int64(24*time.Hour)).Draw(t, "max")),
		}
		n := rapid.IntRange(1, 1000).Draw(t, "n")
		after := time.Duration(rapid.Int64Range(0, int64(48*time.Hour)).Draw(t, "after"))
		plain, jittered := policy.Delay(n, after, 0), policy.Delay(n, after, rapid.Float64Range(0, 1).Draw(t, "jitter"))
		asked := min(after, 24*time.Hour)
		switch {
		case plain < asked || jittered < asked:
			t.Fatalf("%v and %v are before the %v that was asked for", plain, jittered, asked)
		case jittered < plain:
			t.Fatalf("%v is jittered to %v", plain, jittered)
		case plain > max(policy.Max.Std(), asked) || jittered > max(policy.Max.Std(), asked+time.Second):
			t.Fatalf("%v and %v are longer than %v and %v", plain, jittered, policy.Max, asked)
		case policy.Delay(n+1, after, 0) < plain:
			t.Fatalf("the next wait is shorter than %v", plain)
		}
	})
}

func TestAPolicyOutOfRangeIsRefused(t *testing.T) {
	for want, list := range map[string][]belfry.RetryPolicy{
		"":         {{}, eight, {Factor: 1, Attempts: 1}, {Factor: 10, Attempts: 100, First: belfry.Duration(24 * time.Hour)}},
		"first":    {{First: -1}, {First: belfry.Duration(25 * time.Hour)}},
		"max":      {{Max: -1}, {Max: belfry.Duration(25 * time.Hour)}},
		"factor":   {{Factor: 0.5}, {Factor: 10.5}, {Factor: -1}, {Factor: math.NaN()}, {Factor: math.Inf(1)}},
		"attempts": {{Attempts: -1}, {Attempts: 101}},
	} {
		for _, p := range list {
			if got := field(p.Check()); got != want {
				t.Errorf("%+v: %q, want %q", p, got, want)
			}
		}
	}
}
