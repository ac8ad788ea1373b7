package model

import (
	"flag"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"belfry"
)

var long = flag.Bool("model.long", false, "explore the large spaces too: minutes, and some GB of memory")

var modes = []belfry.Mode{belfry.AtMostOnce, belfry.AtLeastOnce}

// explore runs the shipped rules and says how large the space was.
func explore(t *testing.T, c Config) Result {
	t.Helper()
	c.Rules = Shipped()
	began := time.Now()
	r := Explore(c)
	t.Logf("%s: attempts %d, throttles %d, crashes %d, pauses %d, setbacks %d: %d states, %d edges, %d violations, %d stuck, %v",
		c.Mode, c.Attempts, c.Throttles, c.Crashes, c.Pauses, c.Setbacks, r.States, r.Edges, len(r.Violations), r.Stuck,
		time.Since(began).Round(time.Millisecond))
	if r.Cut {
		t.Error("the space was cut: nothing is proved")
	}
	for i, n := range r.Violations {
		t.Errorf("broken in %d places: %v", n, i)
	}
	if r.Stuck > 0 {
		t.Errorf("%d states reach no end", r.Stuck)
	}
	if len(r.Trace) > 0 {
		t.Logf("%s:\n  %s", r.Invariant, strings.Join(r.Trace, "\n  "))
	}
	return r
}

func exploreAll(t *testing.T, list []Config) {
	for _, mode := range modes {
		for _, c := range list {
			c.Mode = mode
			t.Run(string(mode), func(t *testing.T) {
				if !*long {
					t.Parallel()
				}
				r := explore(t, c)
				for _, end := range []belfry.State{belfry.Sent, belfry.Dropped, belfry.Failed, belfry.Missed, belfry.Cancelled, belfry.Unknown} {
					if r.Ends[end] == 0 {
						t.Errorf("nothing ended %s: the space is poorer than it should be", end)
					}
				}
			})
		}
	}
}

func TestEveryOrderOfEventsKeepsThePromises(t *testing.T) {
	tries := 2
	if testing.Short() {
		tries = 1
	}
	exploreAll(t, []Config{
		{Attempts: tries, Crashes: 1},
		{Attempts: 1, Throttles: 1, Setbacks: 1},
		{Attempts: 1, Throttles: 1, Pauses: 1},
	})
}

func TestLongEveryOrderOfManyEventsKeepsThePromises(t *testing.T) {
	if !*long {
		t.Skip("needs -model.long")
	}
	exploreAll(t, []Config{
		{Attempts: 2, Crashes: 1, Throttles: 1, Pauses: 1, Setbacks: 1},
		{Attempts: 3, Crashes: 2},
	})
}

func TestInCalmItIsSentOnce(t *testing.T) {
	for _, mode := range modes {
		r := explore(t, Config{Mode: mode, Attempts: 2, Calm: true})
		if ends := slices.Collect(maps.Keys(r.Ends)); !slices.Equal(ends, []belfry.State{belfry.Sent}) {
			t.Errorf("%s: ends are %v, want sent alone", mode, ends)
		}
	}
}

func TestAStateSurvivesItsKey(t *testing.T) {
	c := Config{Rules: Shipped(), Mode: belfry.AtLeastOnce, Attempts: 3, Throttles: 1, Crashes: 2, Pauses: 1, Setbacks: 1}
	c.Rules.LooksEarly = true
	start := state{d: belfry.Delivery{State: belfry.Pending, Next: due.time()}}
	keys := []key{start.pack()}
	seen := map[key]bool{keys[0]: true}
	for i := 0; i < len(keys) && len(keys) < 50_000; i++ {
		keys[i].unpack(c.Mode).steps(c, func(n step) {
			k := n.state.pack()
			if again := k.unpack(c.Mode).pack(); again != k {
				t.Fatalf("%s: %x became %x", n.name, k, again)
			}
			if !seen[k] {
				seen[k], keys = true, append(keys, k)
			}
		})
	}
}
