package receiver

import "sync/atomic"

// Counts says how often what happened since the start.
type Counts struct {
	Applied, Duplicates, Conflicts, Stale, Expired, SetAside uint64 // by [Result]
	Failed                                                   uint64 // effects that failed and were rolled back
	Refused                                                  uint64 // requests that were not genuine or not well formed
}

type counters struct {
	applied, duplicates, conflicts, stale, expired, setAside, failed, refused atomic.Uint64
}

func (c *counters) of(r Result) *atomic.Uint64 {
	switch r {
	case Applied:
		return &c.applied
	case Duplicate:
		return &c.duplicates
	case Conflict:
		return &c.conflicts
	case Stale:
		return &c.stale
	case Expired:
		return &c.expired
	}
	return &c.setAside
}

// Counts returns the counts of this receiver. Those of [Receiver.Once] count before the caller's commit.
func (r *Receiver[T]) Counts() Counts {
	c := &r.counts
	return Counts{
		Applied: c.applied.Load(), Duplicates: c.duplicates.Load(), Conflicts: c.conflicts.Load(), Stale: c.stale.Load(),
		Expired: c.expired.Load(), SetAside: c.setAside.Load(), Failed: c.failed.Load(), Refused: c.refused.Load(),
	}
}
