package engine

import (
	"cmp"
	"context"
	"slices"
	"time"

	"belfry"
	"belfry/store"
)

// dispatcher claims what is due in one lane. Every lane has its own: a claim waits for its commit, and what is
// urgent must not wait for a claim of hundreds in bulk.
type dispatcher struct {
	*Engine
	lane belfry.Lane
	wake chan struct{}
	next wakeTime
}

func newDispatchers(e *Engine) (all []*dispatcher) {
	for _, lane := range belfry.Lanes {
		all = append(all, &dispatcher{Engine: e, lane: lane, wake: make(chan struct{}, 1)})
	}
	return all
}

// run claims as far as there is room, and sleeps until the next is due, a hint comes, a slot is given back, or
// the poll interval is over.
func (e *dispatcher) run(ctx context.Context) {
	for round := 0; ctx.Err() == nil; round++ {
		e.next.set(time.Time{}, false) // a hint that comes while we look is kept in wake
		heads, err := e.store.Heads(ctx)
		if err != nil {
			if ctx.Err() == nil {
				e.health.storeFailed(err)
				e.log.Error("the store cannot be read", "err", err)
			}
			e.sleep(ctx, e.now().Add(time.Second), false)
			continue
		}
		heads = slices.DeleteFunc(heads, func(h store.Head) bool { return h.Lane != e.lane })
		now := e.now()
		takes, next := pick(heads, now, e.slots, e.options.ClaimBatch, round)
		if len(takes) == 0 {
			if limit := now.Add(e.options.Poll); next.IsZero() || next.After(limit) {
				next = limit
			}
			full := slices.ContainsFunc(heads, func(h store.Head) bool { return !looked(h).After(now) })
			e.sleep(ctx, next, full)
			continue
		}
		for i := range takes {
			takes[i].Claim = e.ids.next()
			takes[i].Limit = e.slots.take(takes[i].Queue, takes[i].Lane, takes[i].Limit)
		}
		claims, err := e.store.Claim(ctx, now, e.lease(0), takes)
		if err != nil {
			for _, t := range takes {
				e.slots.give(t.Queue, t.Limit)
			}
			if ctx.Err() == nil {
				e.health.storeFailed(err)
				e.log.Warn("nothing could be claimed", "err", err)
			}
			e.sleep(ctx, e.now().Add(100*time.Millisecond), false)
			continue
		}
		e.health.storeWorks()
		for _, t := range takes {
			i := slices.IndexFunc(claims, func(c store.Claim) bool { return c.ID == t.Claim })
			if i < 0 {
				e.slots.give(t.Queue, t.Limit)
				continue
			}
			e.slots.give(t.Queue, t.Limit-len(claims[i].Items))
			n := len(claims[i].Items)
			p := &preparation{e: e.Engine, claim: claims[i], queue: t.Queue, lane: t.Lane, slots: map[string]int{e.slots.pool(t.Queue): n}, spare: n}
			e.work.Go(func() { p.run(ctx) })
		}
	}
}

// look wakes it.
func (e *dispatcher) look() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// sleep waits until the instant, or until woken; full says that it is a slot that is waited for.
func (e *dispatcher) sleep(ctx context.Context, until time.Time, full bool) {
	e.next.set(until, full)
	wait := time.NewTimer(max(until.Sub(e.now()), 0))
	defer wait.Stop()
	select {
	case <-ctx.Done():
	case <-e.wake:
	case <-wait.C:
	}
}

// looked is when a head is looked at.
func looked(h store.Head) time.Time {
	if h.Queue == store.Parked {
		// Up to its deadline, and in that instant, it is held: to look then would park it again at once.
		return h.Due.Add(time.Microsecond)
	}
	return h.Due
}

// pick decides what to claim: for every queue, lane by lane, the room that is left is shared among the
// projects with something due, beginning with another project in every round. next is when the first of
// what is not due yet falls due; zero when nothing waits.
func pick(heads []store.Head, now time.Time, slots *slots, batch, round int) (takes []store.Take, next time.Time) {
	type group struct {
		queue string
		lane  belfry.Lane
	}
	due := map[group][]store.Head{}
	var order []group
	for _, h := range heads {
		if at := looked(h); at.After(now) {
			if next.IsZero() || at.Before(next) {
				next = at
			}
			continue
		}
		g := group{h.Queue, h.Lane}
		if due[g] == nil {
			order = append(order, g)
		}
		due[g] = append(due[g], h)
	}
	slices.SortStableFunc(order, func(a, b group) int {
		return cmp.Compare(slices.Index(belfry.Lanes, a.lane), slices.Index(belfry.Lanes, b.lane))
	})
	taken := map[string]int{}
	for _, g := range order {
		projects := due[g]
		room := slots.free(g.queue, g.lane) - taken[slots.pool(g.queue)]
		for i := range projects {
			if room <= 0 {
				break
			}
			h := projects[(i+round)%len(projects)]
			share := (room + len(projects) - i - 1) / (len(projects) - i)
			limit := min(share, batch)
			takes = append(takes, store.Take{Queue: h.Queue, Lane: h.Lane, Project: h.Project, Limit: limit})
			taken[slots.pool(g.queue)] += limit
			room -= limit
		}
	}
	return takes, next
}
