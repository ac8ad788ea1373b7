package model

import (
	"fmt"
	"slices"
	"time"

	"belfry"
)

// instant is one of the few points in time that matter.
type instant uint8

const (
	early instant = iota
	due
	deadline
	past
)

// Far enough apart that no wait but the one asked for with afterDeadline leads from one to the next.
const tick = time.Hour

const afterDeadline = 10 * tick

func (i instant) time() time.Time { return time.Unix(0, 0).UTC().Add(time.Duration(i) * tick) }

func instantOf(t time.Time) instant {
	for i := early; i <= past; i++ {
		if i.time().Equal(t) {
			return i
		}
	}
	panic(fmt.Sprintf("model: no instant %v", t))
}

// facts are what speaks for and against a send.
type facts struct {
	now      instant
	unwanted bool
	paused   bool
	cancel   cancel
}

// cancel says where the wish to cancel was written down.
type cancel uint8

const (
	notCancelled cancel = iota
	within              // in the delivery, by CancelNow
	beside              // where the store keeps it, to be given to Arm and Settle
)

type phase uint8

const (
	idle    phase = iota
	holding       // has taken the delivery
	armed         // is about to write
	waiting       // has written, waits for the answer
	knowing       // knows the outcome, has not recorded it
)

type worker struct {
	phase  phase
	claim  belfry.ID
	answer belfry.Outcome
	long   bool  // the answer asks for a wait that outlives the deadline
	saw    facts // with Rules.LooksEarly
}

// request is what one claim has put on the wire, as the provider sees it.
type request struct {
	claim            belfry.ID
	flying, accepted uint8
}

// state is everything there is: the stored delivery, those who work on it, the wire and the world.
type state struct {
	d       belfry.Delivery
	workers [2]worker
	seen    belfry.ID // the claim that the rescuer read and has not taken over yet
	wire    []request
	facts
	told     bool // somebody told the store of an acceptance
	crashes  uint8
	pauses   uint8
	setbacks uint8
}

// aloft counts the requests of a claim that are on their way.
func (s *state) aloft(claim belfry.ID) uint8 {
	for _, q := range s.wire {
		if q.claim == claim {
			return q.flying
		}
	}
	return 0
}

func (s *state) write(claim belfry.ID, requests uint8) {
	for i := range s.wire {
		if s.wire[i].claim == claim {
			s.wire[i].flying += requests
			return
		}
	}
	s.wire = append(s.wire, request{claim: claim, flying: requests})
}

func (s *state) accepted() (n int) {
	for _, q := range s.wire {
		n += int(q.accepted)
	}
	return n
}

func (s *state) flying() (n int) {
	for _, q := range s.wire {
		n += int(q.flying)
	}
	return n
}

func (s *state) fresh() belfry.ID {
	top := max(s.d.Claim, s.seen, s.workers[0].claim, s.workers[1].claim)
	for _, a := range s.d.Attempts {
		top = max(top, a.Claim)
	}
	return top + 1
}

func (s *state) alive(claim belfry.ID) bool {
	return s.workers[0].claim == claim || s.workers[1].claim == claim
}

// still says that the delivery has ended and nothing is in motion any more.
func (s *state) still() bool {
	return s.d.State.Ended() && s.workers[0].phase == idle && s.workers[1].phase == idle && s.seen == 0 && s.flying() == 0
}

func noted(d belfry.Delivery) bool {
	return slices.ContainsFunc(d.Attempts, func(a belfry.Attempt) bool { return a.Outcome == belfry.OutcomeAccepted })
}

func tainted(d belfry.Delivery) bool {
	return slices.ContainsFunc(d.Attempts, func(a belfry.Attempt) bool { return !a.Outcome.Definite() })
}

// key is a state in few bytes, the same for states that differ only in the names of their claims, in which
// worker is which, or in what no move looks at: reasons, the time of a try, whether its worker was lost,
// and once it has ended all but the tries.
type key [24]byte

const (
	maxAttempts = 7
	headBytes   = 10
)

var (
	stateCodes   = []belfry.State{belfry.Pending, belfry.Sending, belfry.Retry, belfry.Sent, belfry.Dropped, belfry.Failed, belfry.Missed, belfry.Cancelled, belfry.Unknown}
	outcomeCodes = []belfry.Outcome{belfry.OutcomeOpen, belfry.OutcomeAccepted, belfry.OutcomeRefused, belfry.OutcomeGone, belfry.OutcomeThrottled, belfry.OutcomeMisconfigured, belfry.OutcomeNotSent, belfry.OutcomeAmbiguous}
)

func code[T comparable](codes []T, v T) byte {
	if i := slices.Index(codes, v); i >= 0 {
		return byte(i)
	}
	panic(fmt.Sprintf("model: no code for %v", v))
}

func bit(b bool, at uint) byte {
	if b {
		return 1 << at
	}
	return 0
}

func (f facts) bits() byte {
	return byte(f.now) | bit(f.unwanted, 2) | bit(f.paused, 3) | byte(f.cancel)<<4
}

func factsOf(b byte) facts {
	return facts{instant(b & 3), b&4 != 0, b&8 != 0, cancel(b >> 4 & 3)}
}

// pack forgets what the key leaves out; the state is of no further use.
func (s *state) pack() (k key) {
	wire := slices.DeleteFunc(s.wire, func(q request) bool { return q.flying == 0 && q.accepted == 0 })
	if len(s.d.Attempts) > maxAttempts || len(wire) > maxAttempts {
		panic("model: more tries than a key can hold")
	}
	if s.workers[0].claim > s.workers[1].claim {
		s.workers[0], s.workers[1] = s.workers[1], s.workers[0]
	}
	if s.d.State.Ended() {
		s.d.Cancel, s.d.Alone, s.d.Frozen, s.d.Losses, s.d.Next = false, false, false, 0, early.time()
		s.facts, s.pauses, s.setbacks = facts{now: due}, 0, 0
		for i := range s.workers {
			s.workers[i].saw = facts{}
		}
	}
	var name [32]byte
	for _, c := range [4]belfry.ID{s.d.Claim, s.seen, s.workers[0].claim, s.workers[1].claim} {
		name[c] = 1
	}
	for _, a := range s.d.Attempts {
		name[a.Claim] = 1
	}
	for _, q := range wire {
		name[q.claim] = 1
	}
	name[0] = 0
	for i, n := 1, byte(0); i < len(name); i++ {
		n += name[i]
		name[i] *= n
	}
	k[0] = code(stateCodes, s.d.State) | name[s.d.Claim]<<4
	k[1] = bit(s.d.Armed, 0) | bit(s.d.Cancel, 1) | bit(s.d.Alone, 2) | bit(s.d.Frozen, 3) | byte(s.d.Losses)<<4 | byte(instantOf(s.d.Next))<<6
	k[2] = s.facts.bits() | bit(s.told, 6)
	k[3] = s.crashes | s.pauses<<4 | s.setbacks<<5
	for i, w := range s.workers {
		k[4+2*i] = byte(w.phase) | name[w.claim]<<4 | bit(w.long, 3)
		k[5+2*i] = code(outcomeCodes, w.answer)<<6>>6 | w.saw.bits()<<2
		k[8] |= code(outcomeCodes, w.answer) >> 2 << i
	}
	k[8] |= name[s.seen] << 4
	k[9] = byte(len(s.d.Attempts)) | byte(len(wire))<<4
	for i, a := range s.d.Attempts {
		k[headBytes+i] = name[a.Claim] | code(outcomeCodes, a.Outcome)<<4
	}
	for i, q := range wire {
		k[headBytes+maxAttempts+i] = name[q.claim] | q.flying<<4 | q.accepted<<6
	}
	return k
}

// The payload of a try that was made before, and that of one to come.
var kept, anew = []byte("kept"), []byte("anew")

func (k key) unpack(mode belfry.Mode) *state {
	s := &state{
		d: belfry.Delivery{
			ID: belfry.DeliveryID{Notification: 1, N: 1}, Mode: mode, Deadline: deadline.time(),
			State: stateCodes[k[0]&15], Claim: belfry.ID(k[0] >> 4),
			Armed: k[1]&1 != 0, Cancel: k[1]&2 != 0, Alone: k[1]&4 != 0, Frozen: k[1]&8 != 0,
			Losses: int(k[1] >> 4 & 3), Next: instant(k[1] >> 6).time(),
		},
		facts: factsOf(k[2]), told: k[2]&64 != 0,
		crashes: k[3] & 15, pauses: k[3] >> 4 & 1, setbacks: k[3] >> 5 & 1,
		seen: belfry.ID(k[8] >> 4),
	}
	for i := range s.workers {
		s.workers[i] = worker{
			phase: phase(k[4+2*i] & 7), long: k[4+2*i]&8 != 0, claim: belfry.ID(k[4+2*i] >> 4),
			answer: outcomeCodes[k[5+2*i]&3|k[8]>>i&1<<2], saw: factsOf(k[5+2*i] >> 2),
		}
	}
	s.d.Attempts = make([]belfry.Attempt, 0, k[9]&15)
	for i := range int(k[9] & 15) {
		b := k[headBytes+i]
		a := belfry.Attempt{Claim: belfry.ID(b & 15)}
		a.Outcome = outcomeCodes[b>>4]
		s.d.Attempts, s.d.Payload = append(s.d.Attempts, a), kept
	}
	for i := range int(k[9] >> 4) {
		b := k[headBytes+maxAttempts+i]
		s.wire = append(s.wire, request{belfry.ID(b & 15), b >> 4 & 3, b >> 6})
	}
	return s
}
