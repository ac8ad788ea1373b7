// Package engine runs the rules: it takes notifications in, wakes exactly when one is due, plans, rechecks,
// arms, sends and settles, and repairs what a crash left behind. Nothing else in the project has a loop, a
// clock or a goroutine of this work.
//
// What it decides, package belfry decides; what it remembers, a store remembers; what it sends, a channel
// sends. An engine holds in memory only what its channels have room to send.
package engine

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"belfry"
	"belfry/channel"
	"belfry/store"
)

// RecheckFunc asks whether a notification is still true, and with which data. It is called for one
// notification at a time, concurrently, and must heed ctx. An error counts as no answer: the category's
// on_error decides, which is to ask again later unless it says otherwise.
type RecheckFunc func(ctx context.Context, c belfry.Check) (belfry.Verdict, error)

// Checker rechecks over the wire, for categories with a check URL: one verdict per check, in their order.
type Checker interface {
	Recheck(ctx context.Context, policy belfry.CheckPolicy, checks []belfry.Check) []belfry.Verdict
}

// Options of an engine. The zero value works.
type Options struct {
	Log     *slog.Logger           // default: discard
	Now     func() time.Time       // default: time.Now; call Wake when it was stepped
	Observe func(Event)            // told of every attempt and end; must not block
	Checker Checker                // of categories with a check URL; without one they are put off
	Recheck map[string]RecheckFunc // by category, in every project: instead of a check URL

	// Workers is how many sends a channel has under way at most, by channel; Default is that of the rest.
	// An eighth of them is kept for urgent, another eighth from bulk.
	Workers        map[string]int
	DefaultWorkers int // default 128
	// ClaimBatch is the most deliveries that are claimed and armed together: what a crash can leave
	// ambiguous at once. Default 256.
	ClaimBatch int
	// Lease is how long a claim is believed when its process is not heard of; default 1 min. A send's
	// budget is added when it is armed.
	Lease time.Duration
	// Poll is how often the store is asked although nothing is due, in case a hint was lost; default 2 s.
	Poll time.Duration
	// Node tells engines on one store apart, 0 to 1023.
	Node uint16
	// KeepContent and KeepRows are how long ended notifications keep their content and their rows; default
	// 30 and 90 days.
	KeepContent, KeepRows time.Duration
}

// Engine is a running notification delivery engine. All methods are safe for concurrent use.
type Engine struct {
	store    store.Store
	channels map[string]channel.Channel
	names    []string // of the channels, sorted: what belfry calls known
	options  Options
	log      *slog.Logger
	ids      *ids
	owner    belfry.ID
	slots    *slots
	settler  *settler
	policies policies
	texts    texts
	lanes    []*dispatcher
	work     sync.WaitGroup
	health   health
}

// New makes an engine on a store with its channels. Run starts it.
func New(st store.Store, channels []channel.Channel, o Options) (*Engine, error) {
	o.DefaultWorkers = cmp.Or(o.DefaultWorkers, 128)
	o.ClaimBatch = cmp.Or(o.ClaimBatch, 256)
	o.Lease = cmp.Or(o.Lease, time.Minute)
	o.Poll = cmp.Or(o.Poll, 2*time.Second)
	o.KeepContent = cmp.Or(o.KeepContent, 30*24*time.Hour)
	o.KeepRows = cmp.Or(o.KeepRows, 90*24*time.Hour)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Observe == nil {
		o.Observe = func(Event) {}
	}
	if o.Node > belfry.MaxNode {
		return nil, fmt.Errorf("engine: node is %d: want 0 to %d", o.Node, belfry.MaxNode)
	}
	e := &Engine{store: st, channels: map[string]channel.Channel{}, options: o, log: o.Log}
	e.lanes = newDispatchers(e)
	for _, c := range channels {
		name := c.Name()
		if _, twice := e.channels[name]; twice || name == "" || name == store.Parked {
			return nil, fmt.Errorf("engine: channel %q is given twice, or has no proper name", name)
		}
		e.channels[name] = c
	}
	e.names = slices.Sorted(maps.Keys(e.channels))
	for name := range o.Workers {
		if e.channels[name] == nil {
			return nil, fmt.Errorf("engine: workers are set for channel %q, which is not configured", name)
		}
	}
	e.ids = &ids{now: o.Now, node: o.Node, last: belfry.ID(0).Time()}
	e.owner = e.ids.next()
	e.slots = newSlots(e.names, o)
	e.settler = newSettler(e)
	e.policies = policies{store: st, now: o.Now, known: map[categoryKey]cachedCategory{}}
	e.texts.compiled = map[categoryKey]compiledTemplates{}
	return e, nil
}

// Run works until ctx ends, then claims nothing more, finishes what is on the wire and returns. What was
// claimed and not armed is given back.
func (e *Engine) Run(ctx context.Context) error {
	if err := e.resume(ctx); err != nil && ctx.Err() == nil {
		return fmt.Errorf("engine: take over what an earlier process left: %w", err)
	}
	settling, stopSettling := context.WithCancel(context.WithoutCancel(ctx))
	defer stopSettling()
	var loops sync.WaitGroup
	loops.Go(func() { e.settler.run(settling) })
	var keeping sync.WaitGroup
	keeping.Go(func() { e.keep(ctx) })
	var dispatching sync.WaitGroup
	for _, d := range e.lanes {
		dispatching.Go(func() { d.run(ctx) })
	}
	dispatching.Wait()
	keeping.Wait()
	e.work.Wait()
	e.settler.drain()
	stopSettling()
	loops.Wait()
	return nil
}

// Wake makes the engine look at once, for work that it was not told of: an enqueue in a caller's own
// transaction, a stepped clock.
func (e *Engine) Wake() {
	for _, d := range e.lanes {
		d.look()
	}
}

// hint wakes the engine when something is due before it would look anyway.
func (e *Engine) hint(due time.Time) {
	for _, d := range e.lanes {
		if d.next.before(due) {
			d.look()
		}
	}
}

// room wakes those that wait for a slot, and those of the lanes, where something may have been put back.
func (e *Engine) room(in func(belfry.Lane) bool) {
	for _, d := range e.lanes {
		if in(d.lane) || d.next.needsRoom() {
			d.look()
		}
	}
}

// wakeTime is when a dispatcher looks next; the zero time while it looks: everything wakes it then, since
// what it has read may lack what the hint is about.
type wakeTime struct {
	mu   sync.Mutex
	at   time.Time
	full bool // something is due and has no slot
}

func (w *wakeTime) set(at time.Time, full bool) {
	w.mu.Lock()
	w.at, w.full = at, full
	w.mu.Unlock()
}

func (w *wakeTime) before(due time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.at.IsZero() || due.Before(w.at)
}

func (w *wakeTime) needsRoom() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.at.IsZero() || w.full
}

func (e *Engine) now() time.Time { return e.options.Now().UTC().Truncate(time.Microsecond) }

func (e *Engine) lease(budget time.Duration) store.Owner {
	return store.Owner{ID: e.owner, Lease: e.now().Add(e.options.Lease + budget)}
}

func jitter() float64 { return rand.Float64() }

// ids makes ids that grow, however the clock jumps. last begins with the first instant that an id can hold,
// for a clock that was never set.
type ids struct {
	now  func() time.Time
	node uint16
	mu   sync.Mutex
	last time.Time
	seq  uint16
}

// after lets the ids go on after one that was given before.
func (g *ids) after(id belfry.ID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if at := id.Time(); !at.Before(g.last) {
		g.last, g.seq = at, belfry.MaxSeq // of whatever node: the next one is of the next millisecond
	}
}

func (g *ids) next() belfry.ID {
	g.mu.Lock()
	defer g.mu.Unlock()
	if now := g.now().Truncate(time.Millisecond); now.After(g.last) {
		g.last, g.seq = now, 0
	} else if g.seq++; g.seq > belfry.MaxSeq {
		g.last, g.seq = g.last.Add(time.Millisecond), 0
	}
	return belfry.MakeID(g.last, g.node, g.seq)
}
