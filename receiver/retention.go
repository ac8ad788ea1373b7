package receiver

import (
	"math"
	"time"
)

const (
	defaultTimeout = 30 * time.Second
	defaultReplay  = 7 * 24 * time.Hour
	defaultSkew    = 5 * time.Minute
)

// Sender is how long somebody keeps sending one message. The zero value is [StandardWebhooks].
type Sender struct {
	// Waits lie between one attempt and the next; empty but not nil: there is one attempt. Jitter is the share of itself by which a wait may be longer.
	Waits  []time.Duration
	Jitter float64
	// Ends is when, counted from the first attempt, the sender makes no more, whatever its waits are: Belfry's
	// deadline, a queue's retention. 0: the waits alone decide. Without Waits, Ends alone decides.
	Ends time.Duration
	// Timeout is how long one attempt may be under way; default 30 s.
	Timeout time.Duration
	// Hold is how long something between the two may keep an attempt back, such as a queue; default 0.
	Hold time.Duration
	// Replay is how long after its last attempt a message may be sent again by hand, or by a sender that was restored
	// from a backup; default 7 days, negative: never.
	Replay time.Duration
	// Skew is how far two clocks may differ; default 5 minutes, negative: not at all.
	Skew time.Duration
}

// StandardWebhooks is the schedule that Standard Webhooks 1.0 recommends: ten attempts within 75 h 35 m 05 s, with
// waits up to a tenth longer.
func StandardWebhooks() Sender {
	return Sender{Jitter: 0.1, Waits: []time.Duration{
		5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour, 10 * time.Hour, 14 * time.Hour,
		20 * time.Hour, 24 * time.Hour,
	}}
}

// Belfry is a Belfry whose notifications expire so long after they are due: it never sends after the deadline, and up
// to there a receiver's own Retry-After can stretch any retry policy. 0 takes the 24 hours of its default category.
func Belfry(expires time.Duration) Sender {
	if expires <= 0 {
		expires = 24 * time.Hour
	}
	return Sender{Ends: expires}
}

// Backoff is a sender that makes so many attempts, with waits of first, first·factor, first·factor², … but none longer
// than max, and up to a quarter longer by jitter: the form of Belfry's own retry policies.
func Backoff(first time.Duration, factor float64, max time.Duration, attempts int) Sender {
	s := Sender{Waits: []time.Duration{}}
	for n := range attempts - 1 {
		wait := float64(first) * math.Pow(factor, float64(n)) * 1.25
		s.Waits = append(s.Waits, time.Duration(min(wait, float64(max))))
	}
	return s
}

func (s Sender) orDefault() Sender {
	if s.Waits == nil && s.Ends == 0 {
		d := StandardWebhooks()
		s.Waits, s.Jitter = d.Waits, d.Jitter
	}
	if s.Timeout == 0 {
		s.Timeout = defaultTimeout
	}
	if s.Replay == 0 {
		s.Replay = defaultReplay
	}
	if s.Skew == 0 {
		s.Skew = defaultSkew
	}
	s.Timeout, s.Replay, s.Skew = max(s.Timeout, 0), max(s.Replay, 0), max(s.Skew, 0)
	return s
}

// Span is the longest time between the arrival of a message's first attempt and that of its last automatic one.
func (s Sender) Span() time.Duration {
	s = s.orDefault()
	var span time.Duration
	for _, w := range s.Waits {
		// The wait begins when the attempt before it has ended.
		span = add(span, add(s.Timeout, add(w, time.Duration(float64(w)*s.Jitter))))
	}
	if s.Waits == nil || s.Ends > 0 && s.Ends < span {
		span = s.Ends
	}
	return add(span, add(s.Timeout, s.Hold))
}

// RetentionFor returns the least time for which the ids of this sender must be remembered, so that no copy of a
// message can come after its id was forgotten: its span, the time for replays, and the difference of the clocks.
func RetentionFor(s Sender) time.Duration {
	span := s.Span()
	s = s.orDefault()
	return add(span, add(s.Replay, s.Skew))
}

// add does not wrap round.
func add(a, b time.Duration) time.Duration {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
