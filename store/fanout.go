package store

import (
	"maps"
	"slices"

	"belfry"
)

// Fanout is where the deliveries of a notification stand, for those that have, or may get, more than one.
type Fanout struct {
	Deliveries map[int]FanoutState `json:"deliveries"` // by ordinal
	Stage      int                 `json:"stage,omitempty"`
	Next       bool                `json:"next,omitempty"` // a route first: the next stage follows a failure
}

// FanoutState is where one delivery stands.
type FanoutState struct {
	State  belfry.State  `json:"state"`
	Reason belfry.Reason `json:"reason,omitempty"`
}

// Last is the highest ordinal so far.
func (f Fanout) Last() int {
	last := 0
	for n := range f.Deliveries {
		last = max(last, n)
	}
	return last
}

// With is the fanout after a delivery moved.
func (f Fanout) With(d belfry.Delivery) Fanout {
	f.Deliveries = maps.Clone(f.Deliveries)
	if f.Deliveries == nil {
		f.Deliveries = map[int]FanoutState{}
	}
	f.Deliveries[d.ID.N] = FanoutState{d.State, d.Reason}
	f.Next = f.Next && !d.Cancel // nothing goes on after a cancel, though it came too late for this one
	return f
}

// Open says that a delivery has not ended.
func (f Fanout) Open() bool {
	for _, d := range f.Deliveries {
		if !d.State.Ended() {
			return true
		}
	}
	return false
}

// Summary is the notification's state, and the reason of the first delivery that has it.
func (f Fanout) Summary() FanoutState {
	states := make([]belfry.State, 0, len(f.Deliveries))
	for _, d := range f.Deliveries {
		states = append(states, d.State)
	}
	s := FanoutState{State: belfry.NotificationState(states)}
	for _, n := range slices.Sorted(maps.Keys(f.Deliveries)) {
		if d := f.Deliveries[n]; d.State == s.State {
			s.Reason = d.Reason
			break
		}
	}
	return s
}

// GoesOn says that all deliveries ended without reaching anyone and the next stage of a route first is due.
func (f Fanout) GoesOn() bool {
	s := f.Summary().State
	return f.Next && !f.Open() && (s == belfry.Failed || s == belfry.Dropped)
}
