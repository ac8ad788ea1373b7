package model

import (
	"bytes"

	"belfry"
)

// Invariant is a promise that holds in every state or over every step.
type Invariant int

const (
	I4  Invariant = 4
	I5  Invariant = 5
	I6  Invariant = 6
	I7  Invariant = 7
	I8  Invariant = 8
	I9  Invariant = 9
	I10 Invariant = 10
	I12 Invariant = 12
	I13 Invariant = 13
	I14 Invariant = 14
	I15 Invariant = 15
)

var promises = map[Invariant]string{
	I4:  "I4 a provider sees a request only after its try was written down, and one request per try",
	I5:  "I5 nothing is armed before it is due or while a wait lasts",
	I6:  "I6 nothing is armed past the deadline",
	I7:  "I7 nothing is armed once it is unwanted, cancelled or paused",
	I8:  "I8 at most once is never accepted twice",
	I9:  "I9 a second request is armed only while the first is in doubt; in calm, one is accepted",
	I10: "I10 a try after a doubtful one sends the same bytes",
	I12: "I12 an end stays, but for unknown; so does a definite outcome",
	I13: "I13 what is said is true: sent was accepted, an end after an acceptance was told is sent, no other end hides one",
	I14: "I14 nothing is armed once an acceptance is known",
	I15: "I15 tries and losses are bounded",
}

func (i Invariant) String() string { return promises[i] }

// check names what is broken in a state.
func (s *state) check(c Config) (bad []Invariant) {
	say := func(broken bool, i Invariant) {
		if broken {
			bad = append(bad, i)
		}
	}
	d, accepted := s.d, s.accepted()
	say(c.Mode == belfry.AtMostOnce && accepted > 1, I8)
	say(c.Calm && (accepted > 1 || s.still() && (d.State != belfry.Sent || accepted != 1)), I9)
	honest := true
	switch d.State {
	case belfry.Sent:
		honest = accepted > 0 && noted(d)
	case belfry.Failed, belfry.Dropped, belfry.Missed, belfry.Cancelled:
		honest = accepted == 0 && !noted(d) && !tainted(d)
	case belfry.Unknown:
		honest = tainted(d) && !noted(d)
	}
	say(!honest || s.told && d.State.Ended() && d.State != belfry.Sent, I13)
	say(d.Spent() > c.Attempts || d.Losses > belfry.MaxLosses, I15)
	return bad
}

// broken names what is broken by the step from one state to the next.
func broken(c Config, s, n *state) (bad []Invariant) {
	say := func(broken bool, i Invariant) {
		if broken {
			bad = append(bad, i)
		}
	}
	for _, q := range n.wire {
		if q.flying > s.aloft(q.claim) {
			written := false
			for _, a := range s.d.Attempts {
				written = written || a.Claim == q.claim
			}
			say(!written || q.flying > 1, I4)
		}
	}
	say(s.d.State.Ended() && n.d.State != s.d.State &&
		!(s.d.State == belfry.Unknown && (n.d.State == belfry.Sent || n.d.State == belfry.Failed)), I12)
	for i, a := range s.d.Attempts {
		say(a.Outcome.Definite() && n.d.Attempts[i].Outcome != a.Outcome, I12)
	}
	if len(n.d.Attempts) > len(s.d.Attempts) {
		say(s.now < due || s.d.Next.After(s.now.time()), I5)
		say(s.now > deadline, I6)
		say(s.unwanted || s.paused || s.cancel != notCancelled, I7)
		say(!tainted(s.d) && s.accepted()+s.flying() > 0, I9)
		say(tainted(s.d) && !bytes.Equal(n.d.Payload, s.d.Payload), I10)
		say(s.told || noted(s.d), I14)
	}
	return bad
}
