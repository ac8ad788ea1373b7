// Package duplicates shows what it costs to receive some messages twice, and which memory prevents it: notices with
// amounts, a few of them delivered a second time some delay later, received in four ways at once.
//
// Nothing is guessed: whether a copy gets through follows from the order of what arrived. The same options give the
// same figures. [Run] computes them; with Through set to "http" it also sends every copy for real.
package duplicates

import (
	"cmp"
	"container/list"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// Options of [Run]. The zero value is the experiment as documented.
type Options struct {
	Notices int           // default 1,000
	Rate    float64       // notices a second; default 1
	Dup     float64       // the share that is delivered twice; default 0.05, negative: none
	Delay   Delay         // from the first copy to the second; default mix
	Memory  int           // how many ids the short memory holds; default 100
	Window  time.Duration // how long the timed memory holds an id; default 5 minutes
	Seed    uint64        // default 1
	// Through "http" sends every copy with the webhook channel to a receiver on SQLite, and to a pretend one that
	// takes whatever comes; the first answer for a notice that is delivered twice is dropped after the effect.
	Through string
}

// Way is what came of one way to receive.
type Way struct {
	Name    string `json:"name"`
	Handled int    `json:"handled"` // effects
	Twice   int    `json:"handled_twice"`
	Total   int64  `json:"total"` // of the amounts, in cents
	OffBy   int64  `json:"off_by"`
}

// Bar is how many copies got through if all of them came after one delay.
type Bar struct {
	Delay  time.Duration `json:"delay_ns"`
	Last   int           `json:"last_n"`      // through the short memory
	Busier int           `json:"last_n_busy"` // the same with ten times the traffic
	Timed  int           `json:"timed"`
}

// Result is what [Run] found.
type Result struct {
	Notices int     `json:"notices"`
	Copies  int     `json:"copies"` // notices delivered twice
	Rate    float64 `json:"rate"`
	Delay   string  `json:"delay"`
	Memory  int     `json:"memory"`
	Window  string  `json:"window"`
	Seed    uint64  `json:"seed"`
	Right   int64   `json:"right_total"` // each notice once, in cents
	Ways    []Way   `json:"ways"`
	// Lucky copies were caught by the short memory only because the run ended, with no traffic behind them to push
	// their ids out.
	Lucky int   `json:"lucky"`
	Chart []Bar `json:"chart"`
	Real  []Way `json:"through_http,omitempty"`
}

// Run makes the experiment.
func Run(ctx context.Context, o Options) (Result, error) {
	o, err := o.resolved()
	if err != nil {
		return Result{}, err
	}
	d := o.draw()
	res := Result{
		Notices: o.Notices, Copies: len(d.copies), Rate: o.Rate, Delay: o.Delay.Name, Memory: o.Memory, Window: o.Window.String(),
		Seed: o.Seed, Right: d.right,
	}
	events := arrivals(o.Notices, o.Rate, d.copies, d.delays)
	for _, w := range ways(o) {
		res.Ways = append(res.Ways, receive(w, events, d.amounts, d.right))
	}
	res.Lucky = lucky(o, events)
	for _, wait := range chart {
		same := slices.Repeat([]time.Duration{wait}, len(d.copies))
		now, busy := arrivals(o.Notices, o.Rate, d.copies, same), arrivals(o.Notices, 10*o.Rate, d.copies, same)
		through := func(m memory, events []arrival) int { return receive(way{"", m}, events, d.amounts, d.right).Twice }
		res.Chart = append(res.Chart, Bar{
			Delay: wait, Last: through(newLast(o.Memory), now), Busier: through(newLast(o.Memory), busy),
			Timed: through(timed{map[int]time.Duration{}, o.Window}, now),
		})
		if ctx.Err() != nil {
			return Result{}, ctx.Err()
		}
	}
	if o.Through == "http" {
		if res.Real, err = overHTTP(ctx, events, d.amounts, d.right); err != nil {
			return Result{}, err
		}
	}
	return res, nil
}

func (o Options) resolved() (Options, error) {
	o.Notices = cmp.Or(o.Notices, 1000)
	o.Rate = cmp.Or(o.Rate, 1)
	o.Dup = max(cmp.Or(o.Dup, 0.05), 0)
	o.Memory = cmp.Or(o.Memory, 100)
	o.Window = cmp.Or(o.Window, 5*time.Minute)
	o.Seed = cmp.Or(o.Seed, 1)
	if o.Delay.draw == nil {
		o.Delay = mix
	}
	switch {
	case o.Notices < 1 || o.Notices > 1_000_000:
		return o, errors.New("notices: want 1 to 1,000,000")
	case !(o.Rate > 0 && o.Rate <= 1e6):
		return o, errors.New("rate: want more than 0 and at most 1,000,000 a second")
	case !(o.Dup <= 1):
		return o, errors.New("dup: want a share, 0 to 1")
	case o.Memory < 1 || o.Window < 0:
		return o, errors.New("memory, window: must be positive")
	case o.Through != "" && o.Through != "http":
		return o, fmt.Errorf("through %q: want http, or nothing", o.Through)
	}
	return o, nil
}

// drawn is what chance decides.
type drawn struct {
	amounts []int64
	right   int64
	copies  []int // the notices that are delivered twice
	delays  []time.Duration
}

func (o Options) draw() drawn {
	rng := rand.New(rand.NewPCG(o.Seed, 0))
	d := drawn{amounts: make([]int64, o.Notices)}
	for i := range d.amounts {
		d.amounts[i] = 100 + rng.Int64N(49_900)
		d.right += d.amounts[i]
	}
	d.copies = rng.Perm(o.Notices)[:int(float64(o.Notices)*o.Dup+0.5)]
	slices.Sort(d.copies)
	for range d.copies {
		d.delays = append(d.delays, o.Delay.draw(rng))
	}
	return d
}

var chart = []time.Duration{0, 5 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour}

// arrival is one copy of a notice.
type arrival struct {
	at     time.Duration // since the start
	notice int
	second bool
	twice  bool // the notice has a second copy
}

// arrivals are in the order of time; at the same time, notices come before the copies of earlier ones.
func arrivals(n int, rate float64, copies []int, delays []time.Duration) []arrival {
	at := func(i int) time.Duration { return time.Duration(float64(i) / rate * float64(time.Second)) }
	all := make([]arrival, 0, n+len(copies))
	for i := range n {
		all = append(all, arrival{at: at(i), notice: i})
	}
	for i, c := range copies {
		all[c].twice = true
		all = append(all, arrival{at(c) + delays[i], c, true, true})
	}
	slices.SortStableFunc(all, func(a, b arrival) int { return cmp.Compare(a.at, b.at) })
	return all
}

// way is a way to receive.
type way struct {
	name string
	memory
}

// memory says of each message that arrives whether it is to be handled.
type memory interface {
	fresh(notice int, at time.Duration) bool
}

func ways(o Options) []way {
	return []way{
		{"no defence", nothing{}},
		{fmt.Sprintf("the last %d ids", o.Memory), newLast(o.Memory)},
		{"ids for " + short(o.Window), timed{map[int]time.Duration{}, o.Window}},
		{"every id", every{}},
	}
}

func receive(w way, events []arrival, amounts []int64, right int64) Way {
	out := Way{Name: w.name}
	handled := make([]bool, len(amounts))
	for _, e := range events {
		if !w.fresh(e.notice, e.at) {
			continue
		}
		out.Handled++
		out.Total += amounts[e.notice]
		if handled[e.notice] {
			out.Twice++
		}
		handled[e.notice] = true
	}
	out.OffBy = out.Total - right
	return out
}

type nothing struct{}

func (nothing) fresh(int, time.Duration) bool { return true }

type every map[int]bool

func (m every) fresh(n int, _ time.Duration) bool {
	known := m[n]
	m[n] = true
	return !known
}

// last holds so many ids, and forgets the one that was used the longest ago.
type last struct {
	size  int
	order *list.List // the latest in front
	at    map[int]*list.Element
}

func newLast(size int) *last { return &last{size, list.New(), map[int]*list.Element{}} }

func (m *last) fresh(n int, _ time.Duration) bool {
	if e := m.at[n]; e != nil {
		m.order.MoveToFront(e)
		return false
	}
	m.at[n] = m.order.PushFront(n)
	if m.order.Len() > m.size {
		e := m.order.Back()
		m.order.Remove(e)
		delete(m.at, e.Value.(int))
	}
	return true
}

// timed holds an id from when it was handled until the window has passed.
type timed struct {
	at     map[int]time.Duration
	window time.Duration
}

func (m timed) fresh(n int, at time.Duration) bool {
	if since, known := m.at[n]; known && at-since < m.window {
		return false
	}
	m.at[n] = at
	return true
}

// lucky counts the copies that the short memory caught though, had the traffic gone on, it would have forgotten them.
func lucky(o Options, events []arrival) (n int) {
	m := newLast(o.Memory)
	first := map[int]time.Duration{}
	for _, e := range events {
		if fresh := m.fresh(e.notice, e.at); fresh || !e.second {
			first[e.notice] = e.at
			continue
		}
		if delay := e.at - first[e.notice]; delay.Seconds()*o.Rate > float64(o.Memory) {
			n++
		}
	}
	return n
}
