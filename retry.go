package belfry

import (
	"math"
	"time"
)

// RetryPolicy says when a try that was not accepted is made again. Zero fields take the lane's default.
type RetryPolicy struct {
	First    Duration `json:"first,omitempty"`    // wait before the second try
	Factor   float64  `json:"factor,omitempty"`   // growth of the wait, 1 to 10
	Max      Duration `json:"max,omitempty"`      // longest wait
	Attempts int      `json:"attempts,omitempty"` // tries that count, 1 to 100
}

const (
	jitterShare = 0.25           // a wait grows by up to a quarter, so that a burst comes back spread out
	maxAfter    = 24 * time.Hour // longest Retry-After that is believed
)

// Delay is the wait after the n-th try (from 1): First·Factor^(n-1), lengthened by jitter (0 to 1) times a
// quarter, at most Max. A Retry-After that is shorter takes the place of First; one that is longer than
// what comes out wins over all of it, jittered upwards by a second at most.
func (p RetryPolicy) Delay(n int, after time.Duration, jitter float64) time.Duration {
	after = min(max(after, 0), maxAfter)
	first := p.First
	if after > 0 {
		first = min(first, Duration(after)) // the provider knows better than our first guess
	}
	wait := float64(first) * math.Pow(p.Factor, float64(max(n, 1)-1)) * (1 + jitterShare*jitter)
	wait = min(wait, float64(p.Max))
	asked := float64(after) + min(jitterShare*float64(after), float64(time.Second))*jitter
	return time.Duration(max(wait, asked))
}

// Check refuses a policy with a field out of range.
func (p RetryPolicy) Check() error {
	switch {
	case p.First < 0 || p.First > Duration(24*time.Hour):
		return Invalid("first", "want 0s to 24h")
	case p.Max < 0 || p.Max > Duration(24*time.Hour):
		return Invalid("max", "want 0s to 24h")
	case p.Factor != 0 && (p.Factor < 1 || p.Factor > 10 || math.IsNaN(p.Factor)):
		return Invalid("factor", "want 1 to 10")
	case p.Attempts < 0 || p.Attempts > 100:
		return Invalid("attempts", "want 1 to 100")
	}
	return nil
}
