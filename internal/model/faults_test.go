package model

import (
	"slices"
	"strings"
	"testing"
	"time"

	"belfry"
)

// fault is a mistake that somebody made before us or might make here, and what must catch it first.
type fault struct {
	name              string
	atMost, atLeast   Invariant
	plant             func(r *Rules)
	setback, throttle bool // the adversary needs these to show it
}

// harmless: in that mode the mistake breaks no promise.
const harmless Invariant = 0

var faults = []fault{
	{name: "an answer settles whoever holds the delivery", atMost: I12, atLeast: I12, plant: func(r *Rules) {
		settle := r.Settle
		r.Settle = func(d belfry.Delivery, claim belfry.ID, answer belfry.Answer, s belfry.Settling) (belfry.Delivery, bool) {
			d.State, d.Claim, d.Armed = belfry.Sending, claim, true
			return settle(d, claim, answer, s)
		}
	}},
	{name: "a rescue asks for no claim", atMost: I12, atLeast: I12, plant: func(r *Rules) {
		takeOver := r.TakeOver
		r.TakeOver = func(d belfry.Delivery, claim belfry.ID, alone bool, attempts int, next time.Time) (belfry.Delivery, bool) {
			d.State, d.Claim = belfry.Sending, claim
			return takeOver(d, claim, alone, attempts, next)
		}
	}},
	{name: "arm asks for no claim", atMost: I8, atLeast: harmless, plant: func(r *Rules) {
		arm := r.Arm
		r.Arm = func(d belfry.Delivery, claim belfry.ID, a belfry.Arming) (belfry.Delivery, bool) {
			if !d.State.Ended() {
				d.State, d.Claim, d.Armed, d.Frozen = belfry.Sending, claim, false, true
			}
			return arm(d, claim, a)
		}
	}},
	{name: "the facts are looked at before arm, not in it", atMost: I6, atLeast: I6, plant: func(r *Rules) { r.LooksEarly = true }},
	{name: "arm does not look at the deadline", atMost: I6, atLeast: I6, plant: armWith(func(d *belfry.Delivery, a *belfry.Arming) {
		if a.Now.After(d.Deadline) {
			a.Now = d.Deadline
		}
	})},
	{name: "arm does not look at what forbids", atMost: I7, atLeast: I7, plant: armWith(func(_ *belfry.Delivery, a *belfry.Arming) { a.Forbidden = "" })},
	{name: "arm does not look at pauses", atMost: I7, atLeast: I7, plant: armWith(func(_ *belfry.Delivery, a *belfry.Arming) { a.Pause = nil })},
	{name: "arm does not look at the due time", setback: true, atMost: I5, atLeast: I5, plant: armWith(func(d *belfry.Delivery, a *belfry.Arming) {
		if a.Now.Before(d.Next) {
			a.Now = d.Next
		}
	})},
	{name: "while it is open nobody looks at late acceptances, arm neither", atMost: harmless, atLeast: I14, plant: func(r *Rules) {
		ignoreLate(r, func(s belfry.State) bool { return !s.Ended() })
		arm := r.Arm
		r.Arm = func(d belfry.Delivery, claim belfry.ID, a belfry.Arming) (belfry.Delivery, bool) {
			kept := d.Attempts
			d.Attempts = slices.Clone(kept)
			for i := range d.Attempts {
				if d.Attempts[i].Outcome == belfry.OutcomeAccepted {
					d.Attempts[i].Outcome = belfry.OutcomeAmbiguous
				}
			}
			after, ok := arm(d, claim, a)
			copy(after.Attempts, kept)
			return after, ok
		}
	}},
	{name: "one try too many is allowed", atMost: I15, atLeast: I15, plant: func(r *Rules) {
		settle, takeOver := r.Settle, r.TakeOver
		armWith(func(_ *belfry.Delivery, a *belfry.Arming) { a.Attempts++ })(r)
		r.Settle = func(d belfry.Delivery, claim belfry.ID, answer belfry.Answer, s belfry.Settling) (belfry.Delivery, bool) {
			s.Policy.Attempts++
			return settle(d, claim, answer, s)
		}
		r.TakeOver = func(d belfry.Delivery, claim belfry.ID, alone bool, attempts int, next time.Time) (belfry.Delivery, bool) {
			return takeOver(d, claim, alone, attempts+1, next)
		}
	}},
	{name: "arm makes the bytes anew", atMost: harmless, atLeast: I10, plant: armWith(func(d *belfry.Delivery, _ *belfry.Arming) { d.Frozen = false })},
	{name: "arm writes no try down", atMost: I4, atLeast: I4, plant: func(r *Rules) {
		arm := r.Arm
		r.Arm = func(d belfry.Delivery, claim belfry.ID, a belfry.Arming) (belfry.Delivery, bool) {
			after, ok := arm(d, claim, a)
			after.Attempts = d.Attempts
			return after, ok
		}
	}},
	{name: "the client sends the request again by itself", atMost: I4, atLeast: I4, plant: func(r *Rules) {
		r.Send = func(d belfry.Delivery, _ belfry.ID, _ time.Time) (belfry.Delivery, uint8) { return d, 2 }
	}},
	{name: "it is called sent before it is", atMost: I13, atLeast: I13, plant: func(r *Rules) {
		confirm := r.Confirm
		r.Send = func(d belfry.Delivery, claim belfry.ID, now time.Time) (belfry.Delivery, uint8) {
			d, _ = confirm(d, claim, now)
			return d, 1
		}
	}},
	{name: "an ambiguous answer is always tried again", atMost: I8, atLeast: harmless, plant: func(r *Rules) {
		settle := r.Settle
		r.Settle = func(d belfry.Delivery, claim belfry.ID, answer belfry.Answer, s belfry.Settling) (belfry.Delivery, bool) {
			mode := d.Mode
			d.Mode = belfry.AtLeastOnce
			d, ok := settle(d, claim, answer, s)
			d.Mode = mode
			return d, ok
		}
	}},
	{name: "a lost try is always tried again", atMost: I8, atLeast: harmless, plant: func(r *Rules) {
		takeOver := r.TakeOver
		r.TakeOver = func(d belfry.Delivery, claim belfry.ID, alone bool, attempts int, next time.Time) (belfry.Delivery, bool) {
			mode := d.Mode
			d.Mode = belfry.AtLeastOnce
			d, ok := takeOver(d, claim, alone, attempts, next)
			d.Mode = mode
			return d, ok
		}
	}},
	{name: "a lost try is taken for not sent", atMost: I9, atLeast: I9, plant: func(r *Rules) {
		settle, takeOver := r.Settle, r.TakeOver
		r.TakeOver = func(d belfry.Delivery, claim belfry.ID, alone bool, attempts int, next time.Time) (belfry.Delivery, bool) {
			if d.Armed && d.Claim == claim {
				return settle(d, claim, belfry.Answer{Outcome: belfry.OutcomeNotSent}, belfry.Settling{Now: next, Policy: belfry.RetryPolicy{Factor: 1, Attempts: attempts}})
			}
			return takeOver(d, claim, alone, attempts, next)
		}
	}},
	{name: "an armed delivery is given back", atMost: I8, atLeast: harmless, plant: func(r *Rules) {
		takeOver := r.TakeOver
		r.TakeOver = func(d belfry.Delivery, claim belfry.ID, alone bool, attempts int, next time.Time) (belfry.Delivery, bool) {
			if d.Claim == claim && d.Armed {
				d.Armed, d.Frozen = false, true
			}
			return takeOver(d, claim, alone, attempts, next)
		}
	}},
	{name: "an end is said in spite of a doubtful try", atMost: I13, atLeast: I13, plant: func(r *Rules) {
		takeOver, settle := r.TakeOver, r.Settle
		r.TakeOver = func(d belfry.Delivery, claim belfry.ID, alone bool, attempts int, next time.Time) (belfry.Delivery, bool) {
			after, ok := takeOver(d, claim, alone, attempts, next)
			return blunt(after), ok
		}
		r.Settle = func(d belfry.Delivery, claim belfry.ID, answer belfry.Answer, s belfry.Settling) (belfry.Delivery, bool) {
			after, ok := settle(d, claim, answer, s)
			return blunt(after), ok
		}
	}},
	{name: "exhausted means failed", atMost: harmless, atLeast: I13, plant: func(r *Rules) {
		takeOver, settle := r.TakeOver, r.Settle
		failed := func(d belfry.Delivery) belfry.Delivery {
			if d.State == belfry.Unknown && d.Reason == belfry.ReasonAttemptsExhausted {
				d.State = belfry.Failed
			}
			return d
		}
		r.TakeOver = func(d belfry.Delivery, claim belfry.ID, alone bool, attempts int, next time.Time) (belfry.Delivery, bool) {
			after, ok := takeOver(d, claim, alone, attempts, next)
			return failed(after), ok
		}
		r.Settle = func(d belfry.Delivery, claim belfry.ID, answer belfry.Answer, s belfry.Settling) (belfry.Delivery, bool) {
			after, ok := settle(d, claim, answer, s)
			return failed(after), ok
		}
	}},
	{name: "a cancel ends an armed delivery", atMost: I13, atLeast: I13, plant: func(r *Rules) {
		cancel := r.CancelNow
		r.CancelNow = func(d belfry.Delivery) (belfry.Delivery, bool) {
			if d.Armed {
				d.State, d.Claim, d.Armed = belfry.Cancelled, 0, false
				return d, true
			}
			return cancel(d)
		}
	}},
	{name: "a cancel of an armed delivery is forgotten", atMost: I7, atLeast: I7, plant: func(r *Rules) {
		cancel := r.CancelNow
		r.CancelNow = func(d belfry.Delivery) (belfry.Delivery, bool) {
			after, ok := cancel(d)
			after.Cancel = false
			return after, ok
		}
	}},
	{name: "a withdrawal ends an armed delivery", atMost: I13, atLeast: I13, plant: func(r *Rules) {
		r.Withdraw = func(d belfry.Delivery, why belfry.Reason) (belfry.Delivery, bool) {
			if !d.State.Ended() {
				d.State, d.Reason, d.Claim, d.Armed = belfry.Dropped, why, 0, false
			}
			return d, true
		}
	}},
	{name: "the deadline ends an armed delivery", atMost: I13, atLeast: I13, plant: func(r *Rules) {
		expire := r.Expire
		r.Expire = func(d belfry.Delivery, now time.Time, why belfry.Reason) (belfry.Delivery, bool) {
			if d.Armed && now.After(d.Deadline) {
				d.State, d.Reason, d.Claim, d.Armed = belfry.Missed, why, 0, false
				return d, true
			}
			return expire(d, now, why)
		}
	}},
	{name: "the deadline ends what has ended", atMost: I12, atLeast: I12, plant: func(r *Rules) {
		r.Expire = func(d belfry.Delivery, now time.Time, why belfry.Reason) (belfry.Delivery, bool) {
			if !d.Armed && now.After(d.Deadline) {
				d.State = belfry.Missed
			}
			return d, true
		}
	}},
	{name: "an answer rewrites what a receipt said", atMost: I12, atLeast: I12, plant: func(r *Rules) {
		settle := r.Settle
		r.Settle = func(d belfry.Delivery, claim belfry.ID, answer belfry.Answer, s belfry.Settling) (belfry.Delivery, bool) {
			d.Attempts = slices.Clone(d.Attempts)
			for i, a := range d.Attempts {
				if a.Claim == claim && d.State == belfry.Sent {
					d.Attempts[i].Answer = belfry.Answer{}
					d.State, d.Claim, d.Armed = belfry.Sending, claim, true
				}
			}
			return settle(d, claim, answer, s)
		}
	}},
	{name: "a late word is ignored", atMost: I13, atLeast: I13, plant: func(r *Rules) {
		ignoreLate(r, func(belfry.State) bool { return true })
	}},
	{name: "a late word undoes an end", atMost: I12, atLeast: I12, plant: func(r *Rules) {
		settle := r.Settle
		r.Settle = func(d belfry.Delivery, claim belfry.ID, answer belfry.Answer, s belfry.Settling) (belfry.Delivery, bool) {
			after, ok := settle(d, claim, answer, s)
			if d.State.Ended() && answer.Outcome == belfry.OutcomeNotSent {
				after.State = belfry.Retry
			}
			return after, ok
		}
	}},
	{name: "a late word ends what is armed anew", atMost: harmless, atLeast: I13, plant: func(r *Rules) {
		settle := r.Settle
		r.Settle = func(d belfry.Delivery, claim belfry.ID, answer belfry.Answer, s belfry.Settling) (belfry.Delivery, bool) {
			after, ok := settle(d, claim, answer, s)
			if ok && d.Armed && d.Claim != claim && answer.Outcome == belfry.OutcomeRefused {
				after.State, after.Claim, after.Armed = belfry.Failed, 0, false
			}
			return after, ok
		}
	}},
	{name: "a receipt that names no try is one for the last", atMost: harmless, atLeast: I13, plant: func(r *Rules) {
		confirm := r.Confirm
		r.Confirm = func(d belfry.Delivery, claim belfry.ID, now time.Time) (belfry.Delivery, bool) {
			if n := len(d.Attempts); claim == 0 && n > 0 {
				claim = d.Attempts[n-1].Claim
			}
			return confirm(d, claim, now)
		}
	}},
	{name: "a wait is cut short", setback: true, atMost: I5, atLeast: I5, plant: func(r *Rules) {
		release := r.Release
		r.Release = func(d belfry.Delivery, claim belfry.ID, next time.Time, why belfry.Reason) (belfry.Delivery, bool) {
			after, ok := release(d, claim, next, why)
			if ok && !after.State.Ended() {
				after.Next = next
			}
			return after, ok
		}
	}},
	{name: "throttled counts as accepted", throttle: true, atMost: I13, atLeast: I13, plant: func(r *Rules) {
		settle := r.Settle
		r.Settle = func(d belfry.Delivery, claim belfry.ID, answer belfry.Answer, s belfry.Settling) (belfry.Delivery, bool) {
			if answer.Outcome == belfry.OutcomeThrottled {
				answer.Outcome = belfry.OutcomeAccepted
			}
			return settle(d, claim, answer, s)
		}
	}},
}

func armWith(change func(d *belfry.Delivery, a *belfry.Arming)) func(r *Rules) {
	return func(r *Rules) {
		arm := r.Arm
		r.Arm = func(d belfry.Delivery, claim belfry.ID, a belfry.Arming) (belfry.Delivery, bool) {
			before := d
			change(&d, &a)
			after, ok := arm(d, claim, a)
			if !ok {
				return before, false
			}
			return after, ok
		}
	}
}

// ignoreLate writes late acceptances down and, where, draws nothing from them.
func ignoreLate(r *Rules, where func(belfry.State) bool) {
	settle, confirm := r.Settle, r.Confirm
	stays := func(d, after belfry.Delivery, claim belfry.ID) belfry.Delivery {
		if d.Armed && d.Claim == claim || !where(d.State) || !noted(after) {
			return after
		}
		d.Attempts = after.Attempts
		return d
	}
	r.Settle = func(d belfry.Delivery, claim belfry.ID, answer belfry.Answer, s belfry.Settling) (belfry.Delivery, bool) {
		after, ok := settle(d, claim, answer, s)
		return stays(d, after, claim), ok
	}
	r.Confirm = func(d belfry.Delivery, claim belfry.ID, now time.Time) (belfry.Delivery, bool) {
		after, ok := confirm(d, claim, now)
		return stays(d, after, claim), ok
	}
}

// blunt says the end that a doubt was put in the place of.
func blunt(d belfry.Delivery) belfry.Delivery {
	if d.State != belfry.Unknown {
		return d
	}
	switch d.Reason {
	case belfry.ReasonNoAnswer, belfry.ReasonWorkerLost:
	case belfry.ReasonByCaller:
		d.State = belfry.Cancelled
	case belfry.ReasonDeadline:
		d.State = belfry.Missed
	default:
		d.State = belfry.Failed
	}
	return d
}

func TestEveryPlantedFaultIsCaught(t *testing.T) {
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			for _, mode := range modes {
				want := map[belfry.Mode]Invariant{belfry.AtMostOnce: f.atMost, belfry.AtLeastOnce: f.atLeast}[mode]
				c := Config{Rules: Shipped(), Mode: mode, Attempts: 2, Crashes: 1, Pauses: 1, First: true, Limit: 400_000}
				if f.setback {
					c.Setbacks = 1
				}
				if f.throttle {
					c.Throttles = 1
				}
				if want == harmless {
					if testing.Short() {
						continue
					}
					c.Pauses, c.Crashes = 0, 0 // the whole space is to be seen
				}
				f.plant(&c.Rules)
				r := Explore(c)
				t.Logf("%s: %v after %d states\n  %s", mode, r.Violations, r.States, strings.Join(r.Trace, "\n  "))
				switch {
				case want == harmless && (len(r.Violations) > 0 || r.Cut):
					t.Errorf("%s: %v, want it harmless", mode, r.Violations)
				case want != harmless && r.Violations[want] == 0:
					t.Errorf("%s: %v, want %v", mode, r.Violations, want)
				}
			}
		})
	}
}
