package model

import (
	"slices"
	"time"

	"belfry"
)

// step is one thing that may happen next. A hostile one is the adversary's: progress must not need it.
type step struct {
	name    string
	hostile bool
	state   *state
}

// policy never waits, so that what may be tried again may be tried at once.
func (c Config) policy() belfry.RetryPolicy {
	return belfry.RetryPolicy{Factor: 1, Attempts: c.Attempts}
}

// steps visits everything that may happen next. The state of a step is good until the next one.
func (s *state) steps(c Config, visit func(step)) {
	var (
		next state
		wire [maxAttempts + 1]request
	)
	try := func(name string, hostile bool, do func(n *state)) {
		next = *s
		next.wire = append(wire[:0], s.wire...)
		do(&next)
		visit(step{name, hostile, &next})
	}
	friendly := func(name string, do func(n *state)) { try(name, false, do) }
	hostile := func(name string, do func(n *state)) {
		if !c.Calm {
			try(name, true, do)
		}
	}
	s.world(c, friendly, hostile)
	s.rescue(c, friendly, hostile)
	s.receipts(c, hostile)
	s.provider(c, friendly, hostile)
	for i, w := range s.workers {
		if w.phase == idle {
			if d, ok := c.Rules.Take(s.d, s.fresh(), s.now.time()); ok && (i == 0 || s.workers[0].phase != idle) {
				friendly("take", func(n *state) {
					n.workers[i] = worker{phase: holding, claim: s.fresh()}
					if c.Rules.LooksEarly {
						n.workers[i].saw = s.facts
					}
					n.d = d
				})
			}
			continue
		}
		if int(s.crashes) < c.Crashes {
			hostile("crash", func(n *state) { n.workers[i] = worker{}; n.crashes++ })
		}
		switch w.phase {
		case holding:
			s.holds(c, i, friendly, hostile)
		case armed:
			friendly("write the request", func(n *state) {
				var requests uint8
				n.d, requests = c.Rules.Send(n.d, w.claim, s.now.time())
				n.workers[i].phase = waiting
				n.write(w.claim, requests)
			})
			hostile("cannot connect", func(n *state) {
				n.workers[i].phase, n.workers[i].answer = knowing, belfry.OutcomeNotSent
			})
		case waiting:
			give := hostile
			if s.aloft(w.claim) == 0 {
				give = friendly // nothing will come any more
			}
			give("give up waiting", func(n *state) {
				n.workers[i].phase, n.workers[i].answer = knowing, belfry.OutcomeAmbiguous
			})
		case knowing:
			settle := func(n *state) {
				answer := belfry.Answer{Outcome: w.answer}
				if w.long {
					answer.After = afterDeadline
				}
				n.told = n.told || w.answer == belfry.OutcomeAccepted
				n.d, _ = c.Rules.Settle(n.d, w.claim, answer, belfry.Settling{Now: s.now.time(), Policy: c.policy(), Cancel: s.cancel == beside})
			}
			friendly("record "+string(w.answer), func(n *state) { settle(n); n.workers[i] = worker{} })
			hostile("record "+string(w.answer)+", commit not answered", settle)
		}
	}
}

type take = func(name string, do func(n *state))

// world is what happens to the facts.
func (s *state) world(c Config, friendly, hostile take) {
	if s.d.State.Ended() {
		// No fact matters any more; that an end withstands every change of them still does.
		hostile("expire", func(n *state) { n.d, _ = c.Rules.Expire(n.d, past.time(), belfry.ReasonDeadline) })
		hostile("opt out", func(n *state) { n.d, _ = c.Rules.Withdraw(n.d, belfry.ReasonOptedOut) })
		hostile("cancel", func(n *state) { n.d, _ = c.Rules.CancelNow(n.d) })
		return
	}
	switch {
	case s.now == early:
		friendly("fall due", func(n *state) { n.now = due })
	case s.now == due:
		hostile("pass the deadline", func(n *state) { n.now = past })
		if int(s.setbacks) < c.Setbacks {
			hostile("set the clock back", func(n *state) { n.now = early; n.setbacks++ })
		}
	}
	if d, ok := c.Rules.Expire(s.d, s.now.time(), belfry.ReasonDeadline); ok {
		friendly("expire", func(n *state) { n.d = d })
	}
	if !s.unwanted {
		hostile("opt out", func(n *state) { n.unwanted = true; n.d, _ = c.Rules.Withdraw(n.d, belfry.ReasonOptedOut) })
		hostile("delete the category", func(n *state) { n.unwanted = true })
	}
	if s.cancel == notCancelled {
		hostile("cancel", func(n *state) { n.cancel = within; n.d, _ = c.Rules.CancelNow(n.d) })
		hostile("cancel, kept beside", func(n *state) {
			n.cancel = beside
			if d, ok := c.Rules.CancelNow(n.d); ok {
				n.d = d
			}
		})
	}
	if int(s.pauses) < c.Pauses {
		hostile("pause", func(n *state) { n.paused = true; n.pauses++ })
	}
	if s.paused {
		friendly("lift the pause", func(n *state) {
			n.paused = false
			if (n.d.State == belfry.Pending || n.d.State == belfry.Retry) && n.d.Next.Equal(deadline.time()) {
				n.d.Next = max(s.now, due).time()
			}
		})
	}
}

// rescue is the rescuer's: it reads, and later writes. That it may read at any time stands for a lease that
// ends at any time.
func (s *state) rescue(c Config, friendly, hostile take) {
	if s.seen != 0 {
		friendly("take over", func(n *state) {
			n.d, _ = c.Rules.TakeOver(n.d, s.seen, s.d.Alone, c.Attempts, s.now.time())
			n.seen = 0
		})
		return
	}
	if s.d.State != belfry.Sending {
		return
	}
	find := friendly
	if s.alive(s.d.Claim) {
		find = hostile
	}
	find("find the lease ended", func(n *state) { n.seen = s.d.Claim })
}

// receipts come for what was accepted, at any time and any number of times.
func (s *state) receipts(c Config, hostile take) {
	confirm := func(name string, claim belfry.ID) {
		hostile(name, func(n *state) { n.told = true; n.d, _ = c.Rules.Confirm(n.d, claim, s.now.time()) })
	}
	for _, q := range s.wire {
		if q.accepted > 0 {
			confirm("receipt", q.claim)
		}
	}
	if s.accepted() > 0 {
		confirm("receipt that names no try", 0)
	}
}

// provider is what becomes of requests on the wire, possibly long after anybody waits for them.
func (s *state) provider(c Config, friendly, hostile take) {
	for r, q := range s.wire {
		if q.flying == 0 {
			continue
		}
		answer := func(o belfry.Outcome, long bool) func(n *state) {
			return func(n *state) {
				n.wire[r].flying--
				if o == belfry.OutcomeAccepted {
					n.wire[r].accepted++
				}
				for i, w := range n.workers {
					if w.phase == waiting && w.claim == q.claim {
						n.workers[i].phase, n.workers[i].answer, n.workers[i].long = knowing, o, long
					}
				}
			}
		}
		friendly("accept", answer(belfry.OutcomeAccepted, false))
		hostile("accept, answer lost", func(n *state) { n.wire[r].flying--; n.wire[r].accepted++ })
		hostile("lose the request", func(n *state) { n.wire[r].flying-- })
		if !slices.ContainsFunc(s.workers[:], func(w worker) bool { return w.phase == waiting && w.claim == q.claim }) {
			continue // nobody hears an answer: the request is as good as lost
		}
		hostile("refuse", answer(belfry.OutcomeRefused, false))
		hostile("answer not sent", answer(belfry.OutcomeNotSent, false))
		hostile("answer not sent, wait long", answer(belfry.OutcomeNotSent, true))
		if s.throttled() < c.Throttles {
			hostile("throttle", answer(belfry.OutcomeThrottled, false))
			hostile("throttle for long", answer(belfry.OutcomeThrottled, true))
		}
	}
}

func (s *state) throttled() (n int) {
	for _, a := range s.d.Attempts {
		if a.Outcome == belfry.OutcomeThrottled {
			n++
		}
	}
	for _, w := range s.workers {
		if w.answer == belfry.OutcomeThrottled {
			n++
		}
	}
	return n
}

// holds is what the worker may do that has taken the delivery and not armed it.
func (s *state) holds(c Config, i int, friendly, hostile take) {
	w := s.workers[i]
	friendly("arm", func(n *state) {
		f := s.facts
		if c.Rules.LooksEarly {
			f = w.saw
		}
		a := belfry.Arming{Now: f.now.time(), Attempts: c.Attempts, Cancel: f.cancel == beside, Payload: anew}
		if f.unwanted {
			a.Forbidden = belfry.ReasonOptedOut
		}
		if f.paused {
			a.Pause = &belfry.Pause{}
		}
		var ok bool
		n.d, ok = c.Rules.Arm(n.d, w.claim, a)
		n.workers[i] = worker{}
		if ok && n.d.Armed {
			n.workers[i] = worker{phase: armed, claim: w.claim}
		}
	})
	back := func(name string, next time.Time) {
		hostile(name, func(n *state) {
			n.d, _ = c.Rules.Release(n.d, w.claim, next, belfry.ReasonDeadline)
			n.workers[i] = worker{}
		})
	}
	back("give back", s.now.time())
	back("give back until after the deadline", past.time())
	hostile("drop", func(n *state) {
		n.d, _ = c.Rules.Drop(n.d, w.claim, belfry.ReasonConditionLost)
		n.workers[i] = worker{}
	})
	hostile("fail", func(n *state) {
		n.d, _ = c.Rules.Fail(n.d, w.claim, belfry.ReasonBadContent)
		n.workers[i] = worker{}
	})
}
