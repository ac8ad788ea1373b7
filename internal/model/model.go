// Package model walks through every order of events that one delivery can meet, and checks in each of them
// what package belfry promises. It calls the moves of belfry.Delivery themselves, so what it finds holds
// for the code that ships.
//
// Two workers and a rescuer do their work step by step. Between any two steps an adversary may crash a
// worker, take its claim away while it lives, hold a request up, lose the request or its answer, answer
// with every kind of outcome, repeat a settlement whose commit was not answered, deliver receipts early,
// often and without the name of the try, opt the recipient out, delete the category, cancel, pause and lift
// the pause, let the deadline pass and set the clock back.
//
// Claims that nobody remembers are renamed away, so the space is finite without a bound on claims: what is
// bounded is in [Config]. What is taken for granted: one move is one transaction, receipts do not lie, and
// an outcome called definite is true.
package model

import (
	"fmt"
	"slices"
	"time"

	"belfry"
)

// Rules are the moves that are explored, and the two things that a worker does with them. [Shipped] are the
// real ones; a test plants a fault by replacing one.
type Rules struct {
	Take      func(d belfry.Delivery, claim belfry.ID, now time.Time) (belfry.Delivery, bool)
	Release   func(d belfry.Delivery, claim belfry.ID, next time.Time, why belfry.Reason) (belfry.Delivery, bool)
	Drop      func(d belfry.Delivery, claim belfry.ID, why belfry.Reason) (belfry.Delivery, bool)
	Fail      func(d belfry.Delivery, claim belfry.ID, why belfry.Reason) (belfry.Delivery, bool)
	Arm       func(d belfry.Delivery, claim belfry.ID, a belfry.Arming) (belfry.Delivery, bool)
	Settle    func(d belfry.Delivery, claim belfry.ID, answer belfry.Answer, s belfry.Settling) (belfry.Delivery, bool)
	Confirm   func(d belfry.Delivery, claim belfry.ID, now time.Time) (belfry.Delivery, bool)
	TakeOver  func(d belfry.Delivery, claim belfry.ID, alone bool, attempts int, next time.Time) (belfry.Delivery, bool)
	CancelNow func(d belfry.Delivery) (belfry.Delivery, bool)
	Expire    func(d belfry.Delivery, now time.Time, why belfry.Reason) (belfry.Delivery, bool)
	Withdraw  func(d belfry.Delivery, why belfry.Reason) (belfry.Delivery, bool)

	// Send is what happens to the stored delivery before the first byte, and how many requests are written.
	Send func(d belfry.Delivery, claim belfry.ID, now time.Time) (after belfry.Delivery, requests uint8)
	// LooksEarly lets arm believe what its worker saw when it took the delivery.
	LooksEarly bool
}

// Shipped are the moves of package belfry.
func Shipped() Rules {
	return Rules{
		Take: belfry.Delivery.Take, Release: belfry.Delivery.Release, Drop: belfry.Delivery.Drop,
		Fail: belfry.Delivery.Fail, Arm: belfry.Delivery.Arm, Settle: belfry.Delivery.Settle,
		Confirm: belfry.Delivery.Confirm, TakeOver: belfry.Delivery.TakeOver, CancelNow: belfry.Delivery.CancelNow,
		Expire: belfry.Delivery.Expire, Withdraw: belfry.Delivery.Withdraw,
		Send: func(d belfry.Delivery, _ belfry.ID, _ time.Time) (belfry.Delivery, uint8) { return d, 1 },
	}
}

// Config bounds what is explored.
type Config struct {
	Rules     Rules
	Mode      belfry.Mode
	Attempts  int  // most tries that count
	Throttles int  // answers that do not count
	Crashes   int  // of workers
	Pauses    int  // 0 or 1
	Setbacks  int  // of the clock to before the due time, 0 or 1
	Calm      bool // no adversary at all
	Limit     int  // most states; 0: no bound
	First     bool // stop at the first violation
}

// Result is what an exploration found.
type Result struct {
	States, Edges int
	Cut           bool                 // the limit was reached: nothing is proved
	Ends          map[belfry.State]int // states in which the delivery has ended and nothing is in motion
	Violations    map[Invariant]int
	Stuck         int      // states from which no end is reached without the adversary's help
	Invariant     string   // of the trace
	Trace         []string // the shortest way to the first violation, or to a stuck state
}

// Explore visits every state that can be reached. It does not look behind a violation.
func Explore(c Config) Result {
	start := state{d: belfry.Delivery{
		ID: belfry.DeliveryID{Notification: 1, N: 1}, State: belfry.Pending, Mode: c.Mode,
		Next: due.time(), Deadline: deadline.time(),
	}}
	var (
		r       = Result{Ends: map[belfry.State]int{}, Violations: map[Invariant]int{}}
		first   = start.pack()
		number  = map[key]uint32{first: 0}
		keys    = []key{first}
		parents = []uint32{0}
		targets []uint32 // of the steps that need no adversary, state by state
		upTo    []int    // where the targets of a state end
		good    []bool   // an end is reached from here
	)
	violated := func(i Invariant, at uint32, tail ...string) {
		r.Violations[i]++
		if r.Trace == nil {
			r.Invariant, r.Trace = i.String(), append(trace(c, keys, parents, at), tail...)
		}
	}
	for h := 0; h < len(keys) && !(c.First && len(r.Violations) > 0); h++ {
		s := keys[h].unpack(c.Mode)
		bad := s.check(c)
		for _, i := range bad {
			violated(i, uint32(h))
		}
		if s.still() && len(bad) == 0 {
			r.Ends[s.d.State]++
		}
		good = append(good, s.still() || len(bad) > 0)
		if len(bad) == 0 {
			s.steps(c, func(n step) {
				r.Edges++
				if bad := broken(c, s, n.state); len(bad) > 0 {
					for _, i := range bad {
						violated(i, uint32(h), n.name)
					}
					return
				}
				k := n.state.pack()
				to, seen := number[k]
				if !seen {
					if c.Limit > 0 && len(keys) >= c.Limit {
						r.Cut = true
						return
					}
					to = uint32(len(keys))
					number[k], keys, parents = to, append(keys, k), append(parents, uint32(h))
				}
				if !n.hostile {
					targets = append(targets, to)
				}
			})
		}
		upTo = append(upTo, len(targets))
	}
	r.States = len(keys)
	if r.Cut || len(r.Violations) > 0 {
		return r
	}
	number = nil
	for changed := true; changed; {
		changed = false
		for i := len(keys) - 1; i >= 0; i-- {
			from := 0
			if i > 0 {
				from = upTo[i-1]
			}
			if !good[i] && slices.ContainsFunc(targets[from:upTo[i]], func(t uint32) bool { return good[t] }) {
				good[i], changed = true, true
			}
		}
	}
	for i, ok := range good {
		if ok {
			continue
		}
		if r.Stuck++; r.Trace == nil {
			r.Invariant, r.Trace = "an end is reachable", trace(c, keys, parents, uint32(i))
		}
	}
	return r
}

// trace names the steps from the start to a state, with where the delivery stood after each.
func trace(c Config, keys []key, parents []uint32, at uint32) []string {
	if at == 0 {
		return nil
	}
	up := keys[parents[at]].unpack(c.Mode)
	var last string
	up.steps(c, func(n step) {
		if state := n.state.d.State; last == "" && n.state.pack() == keys[at] {
			last = fmt.Sprintf("%s → %s", n.name, state)
		}
	})
	return append(trace(c, keys, parents, parents[at]), last)
}
