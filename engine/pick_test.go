package engine

import (
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"belfry"
	"belfry/store"
)

var noon = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

func due(queue string, lane belfry.Lane, project string) store.Head {
	return store.Head{Queue: queue, Lane: lane, Project: project, Due: noon}
}

func testSlots(workers int) *slots {
	return newSlots([]string{"a", "b"}, Options{DefaultWorkers: workers, ClaimBatch: 100})
}

// limits are the rooms of the takes, by project.
func limits(takes []store.Take) map[string]int {
	m := map[string]int{}
	for _, t := range takes {
		m[t.Project] += t.Limit
	}
	return m
}

func TestPickSharesARoomAmongProjectsAndBeginsWithAnotherEachRound(t *testing.T) {
	heads := []store.Head{due("a", belfry.Urgent, "p1"), due("a", belfry.Urgent, "p2"), due("a", belfry.Urgent, "p3")}
	total := map[string]int{}
	var first []string
	for round := range 3 {
		takes, _ := pick(heads, noon, testSlots(10), 100, round)
		for p, n := range limits(takes) {
			if total[p] += n; n < 3 || n > 4 {
				t.Errorf("round %d: %s gets %d of 10", round, p, n)
			}
		}
		first = append(first, takes[0].Project)
	}
	if total["p1"] != 10 || total["p2"] != 10 || total["p3"] != 10 {
		t.Errorf("in three rounds: %v", total)
	}
	if slices.Sort(first); !slices.Equal(first, []string{"p1", "p2", "p3"}) {
		t.Errorf("they began with %v", first)
	}
}

func TestPickLetsEveryProjectHaveATurnWhenThereIsLessRoomThanProjects(t *testing.T) {
	var heads []store.Head
	for i := range 20 {
		heads = append(heads, due("a", belfry.Urgent, "p"+strconv.Itoa(i)))
	}
	had := map[string]bool{}
	for round := range 20 {
		takes, _ := pick(heads, noon, testSlots(2), 100, round)
		for p, n := range limits(takes) {
			if had[p] = true; n != 1 {
				t.Errorf("%s gets %d", p, n)
			}
		}
	}
	if len(had) != 20 {
		t.Errorf("%d of 20 had a turn", len(had))
	}
}

func TestPickGoesLaneByLaneAndKeepsRoomForTheMorePressing(t *testing.T) {
	heads := []store.Head{due("a", belfry.Bulk, "p"), due("a", belfry.Normal, "p"), due("a", belfry.Urgent, "q")}
	takes, _ := pick(heads, noon, testSlots(80), 30, 0)
	if len(takes) != 2 || takes[0].Lane != belfry.Urgent || takes[0].Limit != 30 || takes[1].Lane != belfry.Normal || takes[1].Limit != 30 {
		t.Errorf("%+v", takes) // which leaves bulk, that may fill 60, none
	}
	s := testSlots(80)
	bulk, _ := pick(heads[:1], noon, s, 100, 0)
	s.take("a", belfry.Bulk, bulk[0].Limit)
	normal, _ := pick(heads[:2], noon, s, 100, 0)
	s.take("a", belfry.Normal, normal[0].Limit)
	urgent, _ := pick(heads, noon, s, 100, 0)
	if bulk[0].Limit != 60 || normal[0].Limit != 10 || urgent[0].Limit != 10 || len(normal) != 1 || len(urgent) != 1 {
		t.Errorf("bulk %+v, then normal %+v, then urgent %+v", bulk, normal, urgent)
	}
}

func TestPickTakesNothingFromAFullChannelAndAllOfAnother(t *testing.T) {
	s := testSlots(8)
	s.take("a", belfry.Urgent, 8)
	takes, _ := pick([]store.Head{due("a", belfry.Urgent, "p"), due("b", belfry.Urgent, "p")}, noon, s, 100, 0)
	if len(takes) != 1 || takes[0].Queue != "b" || takes[0].Limit != 8 {
		t.Errorf("%+v", takes)
	}
}

func TestPickBoundsQueuesOfOneBoundTogether(t *testing.T) {
	s := testSlots(8)
	heads := []store.Head{due("", belfry.Urgent, "p"), due("foreign", belfry.Urgent, "p"), {Queue: store.Parked, Lane: belfry.Urgent, Project: "p", Due: noon.Add(-time.Hour)}}
	takes, _ := pick(heads, noon, s, 1000, 0)
	if n := limits(takes)["p"]; n != 400 {
		t.Errorf("%d are planned at once, want 4 batches of 100: %+v", n, takes)
	}
}

func TestPickSaysWhenTheNextIsDue(t *testing.T) {
	at := func(d time.Duration, queue string) store.Head {
		return store.Head{Queue: queue, Lane: belfry.Normal, Project: "p", Due: noon.Add(d)}
	}
	for _, c := range []struct {
		heads []store.Head
		takes int
		next  time.Time
	}{
		{nil, 0, time.Time{}},
		{[]store.Head{at(0, "a")}, 1, time.Time{}},
		{[]store.Head{at(time.Microsecond, "a"), at(time.Hour, "b")}, 0, noon.Add(time.Microsecond)},
		{[]store.Head{at(-time.Hour, "a"), at(time.Minute, "b")}, 1, noon.Add(time.Minute)},
		{[]store.Head{at(0, store.Parked)}, 0, noon.Add(time.Microsecond)},
		{[]store.Head{at(-time.Microsecond, store.Parked)}, 1, time.Time{}},
	} {
		takes, next := pick(c.heads, noon, testSlots(8), 100, 0)
		if len(takes) != c.takes || !next.Equal(c.next) {
			t.Errorf("%+v: takes %+v, next %v; want %d and %v", c.heads, takes, next, c.takes, c.next)
		}
	}
}

func TestSlotsAreNeverOverdrawnAndComeBack(t *testing.T) {
	s := testSlots(16)
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			for range 200 {
				lane := belfry.Lanes[i%3]
				n := s.take("a", lane, 1+i%4)
				if busy := s.busy()["a"]; busy < n || busy > 16 {
					t.Errorf("%d of 16 are busy, of them %d mine", busy, n)
				}
				s.give("a", n)
			}
		})
	}
	wg.Wait()
	if s.busy()["a"] != 0 || s.free("a", belfry.Urgent) != 16 || s.free("a", belfry.Normal) != 14 || s.free("a", belfry.Bulk) != 12 {
		t.Errorf("busy %v, free %d %d %d", s.busy(), s.free("a", belfry.Urgent), s.free("a", belfry.Normal), s.free("a", belfry.Bulk))
	}
}

func TestAChannelWithOneWorkerServesEveryLane(t *testing.T) {
	for _, lane := range belfry.Lanes {
		if n := testSlots(1).free("a", lane); n != 1 {
			t.Errorf("%s has %d", lane, n)
		}
	}
}

func TestIdsGrowHoweverTheClockJumps(t *testing.T) {
	now := noon
	g := &ids{now: func() time.Time { return now }, node: 7, last: belfry.ID(0).Time()}
	last := belfry.ID(0)
	for i := range 50_000 {
		switch i % 1000 {
		case 100:
			now = now.Add(-time.Hour)
		case 200:
			now = now.Add(time.Hour + time.Millisecond)
		case 300:
			now = time.Time{}
		case 400:
			now = noon.Add(time.Duration(i) * time.Second)
		}
		id := g.next()
		if id <= last {
			t.Fatalf("%v follows %v at step %d", id, last, i)
		}
		last = id
	}
}

func TestIdsMadeAtOnceDiffer(t *testing.T) {
	g := &ids{now: func() time.Time { return noon }, last: belfry.ID(0).Time()}
	var mu sync.Mutex
	seen := map[belfry.ID]bool{}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			mine := make([]belfry.ID, 5000)
			for i := range mine {
				mine[i] = g.next()
			}
			mu.Lock()
			defer mu.Unlock()
			for _, id := range mine {
				seen[id] = true
			}
		})
	}
	wg.Wait()
	if len(seen) != 40_000 {
		t.Errorf("%d ids of 40000 differ", len(seen))
	}
}

func TestOptionsThatCannotWorkAreRefused(t *testing.T) {
	for name, o := range map[string]Options{
		"node":    {Node: belfry.MaxNode + 1},
		"workers": {Workers: map[string]int{"pigeon": 3}},
	} {
		if _, err := New(nil, nil, o); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}
