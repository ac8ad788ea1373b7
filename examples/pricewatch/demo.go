package pricewatch

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"slices"
	"time"
)

// seed of everything that chance decides in a demo, but for the jitter of the engine and its keys.
const seed = 20260101

func dice(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, stream)) }

// DemoOptions of [Demo]. The zero value is the default demo, silently.
type DemoOptions struct {
	For    time.Duration // how long prices come in; default 30 s. What is under way then is waited for
	Speed  float64       // 2 doubles the pace; default 1, five dates a second
	Prices string        // a file, see [ReadCSV]; default a seeded walk of made-up items
	JSON   bool          // print the result only
	Out    io.Writer     // default: nowhere
	Err    io.Writer     // what goes wrong; default: nowhere
}

const (
	pace     = 200 * time.Millisecond // between ticks at speed 1
	maxFor   = time.Hour
	maxSpeed = 100
	// What is enqueued expires after eight seconds, and a last answer takes one more.
	drainFor = 12 * time.Second
	// Whoever interrupts does not want to wait as long.
	hurry = 2 * time.Second
)

func (o *DemoOptions) check() error {
	o.For, o.Speed = cmp.Or(o.For, 30*time.Second), cmp.Or(o.Speed, 1)
	if o.Out == nil {
		o.Out = io.Discard
	}
	if o.Err == nil {
		o.Err = io.Discard
	}
	if o.For < 0 || o.For > maxFor {
		return fmt.Errorf("for is %v: want more than 0s and at most %v", o.For, maxFor)
	}
	if !(o.Speed > 0 && o.Speed <= maxSpeed) {
		return fmt.Errorf("speed is %v: want more than 0 and at most %d", o.Speed, maxSpeed)
	}
	return nil
}

// history is where prices come from.
type history struct {
	about string
	items []string
	ticks iter.Seq[Tick]
}

func (o *DemoOptions) history() (h history, err error) {
	if o.Prices == "" {
		h.about = fmt.Sprintf("a made-up walk of %d items, the same on every run (seed %d); --prices FILE takes real ones", len(catalogue), seed)
		h.ticks = Walk(seed)
		for _, c := range catalogue {
			h.items = append(h.items, c.item)
		}
		return h, nil
	}
	ticks, err := ReadFile(o.Prices)
	if err != nil {
		return h, err
	}
	h.ticks = slices.Values(ticks)
	known := map[string]bool{}
	for _, t := range ticks {
		for _, q := range t.Quotes {
			if !known[q.Item] {
				known[q.Item] = true
				h.items = append(h.items, q.Item)
			}
		}
	}
	slices.Sort(h.items)
	h.about = fmt.Sprintf("%s: %d dates of %d items, %s to %s", o.Prices, len(ticks), len(h.items), ticks[0].Date, ticks[len(ticks)-1].Date)
	return h, nil
}

// Demo runs the application for a while in a fresh folder, against pretend providers that misbehave and
// people who change their minds, and prints what came of it: a table while it runs on a terminal, and one
// JSON object at the end. It fails when a promise was not kept. When ctx ends it stops early.
func Demo(ctx context.Context, o DemoOptions) (err error) {
	if err := o.check(); err != nil {
		return err
	}
	h, err := o.history()
	if err != nil {
		return fmt.Errorf("prices: %w", err)
	}
	interval := time.Duration(float64(pace) / o.Speed)
	var w world
	defer func() { err = errors.Join(err, w.close()) }()
	lasting := context.WithoutCancel(ctx) // what was begun is finished
	if err := w.open(lasting, choose(h.items, dice(0)), interval, o.Err); err != nil {
		return err
	}
	screen := newScreen(&w, o, h)
	defer screen.close()
	interrupted, err := run(ctx, &w, o, h, interval, screen)
	if err != nil {
		return err
	}
	most := drainFor
	if interrupted {
		most = hurry
	}
	screen.phase("finishing what is under way")
	if err := w.drain(lasting, most); err != nil {
		return err
	}
	screen.phase("done")
	screen.close()
	r, err := w.result(lasting)
	if err != nil {
		return err
	}
	if err := r.print(o); err != nil {
		return err
	}
	if interrupted {
		r.StillOpen = 0 // was not given the time
	}
	return r.Broken()
}

// run feeds the prices in, one tick at a time, until the time is over.
func run(ctx context.Context, w *world, o DemoOptions, h history, interval time.Duration, s *screen) (interrupted bool, err error) {
	over := time.NewTimer(o.For)
	defer over.Stop()
	next := time.NewTicker(interval)
	defer next.Stop()
	for t := range h.ticks {
		if err := w.app.Tick(context.WithoutCancel(ctx), t, time.Now()); err != nil {
			return false, err
		}
		s.phase(t.Date)
		select {
		case <-ctx.Done():
			return true, nil
		case <-over.C:
			return false, nil
		case <-next.C:
		}
	}
	return false, nil
}

// print writes the one object.
func (r Result) print(o DemoOptions) error {
	e := json.NewEncoder(o.Out)
	if !o.JSON {
		e.SetIndent("", "  ")
	}
	return e.Encode(r)
}
