package belfry

import (
	"cmp"
	"slices"
	"time"
)

// State is where a delivery, or the summary of a notification, stands.
type State string

const (
	Scheduled State = "scheduled" // a notification that is not planned yet
	Pending   State = "pending"   // planned, no try made
	Sending   State = "sending"   // held by a worker
	Retry     State = "retry"     // tried, to be tried again

	Sent      State = "sent"      // accepted by the provider, with evidence
	Dropped   State = "dropped"   // no longer wanted or true: a normal end
	Failed    State = "failed"    // definitely not accepted
	Missed    State = "missed"    // the deadline passed first
	Cancelled State = "cancelled" // by the caller
	Unknown   State = "unknown"   // it may have been accepted; only evidence moves it, to sent or failed
)

// Ended says that the state is an end.
func (s State) Ended() bool {
	switch s {
	case Scheduled, Pending, Sending, Retry:
		return false
	}
	return true
}

// Delivery is one notification on its way to one endpoint, with the log of every try. Its methods are the
// only moves there are; each returns the delivery after the move and whether the move was allowed.
// A refused move returns the delivery unchanged, but for the wish that CancelNow notes.
//
//	∅ ──Plan──► pending ──Take──► sending ──Arm──► sending(armed) ──Settle──► sent | failed | retry | unknown
//	               ▲                │  ▲                  │
//	               └─Release, lost──┘  └────Take──── retry┘
//
// A delivery that has ended stays as it is, but for unknown, which evidence alone may turn into sent or
// failed.
type Delivery struct {
	ID       DeliveryID `json:"id"`
	State    State      `json:"state"`
	Reason   Reason     `json:"reason,omitempty"`
	Mode     Mode       `json:"mode"`
	Channel  string     `json:"channel"`
	Endpoint ID         `json:"endpoint,omitempty"` // 0: a target of the notification, see Target
	Target   int        `json:"target,omitempty"`   // 1-based index into the notification's To
	Device   string     `json:"device,omitempty"`
	Sole     bool       `json:"sole,omitempty"` // the only one its notification will ever have
	Next     time.Time  `json:"next"`           // not before
	Deadline time.Time  `json:"deadline"`       // not after

	Claim     ID   `json:"claim,omitempty"` // the claim that holds it; it grows with every change of hands
	Armed     bool `json:"armed,omitempty"` // an attempt of this claim may reach the wire
	Cancel    bool `json:"cancel,omitempty"`
	Losses    int  `json:"losses,omitempty"`    // claims lost unarmed while it was claimed alone
	Alone     bool `json:"alone,omitempty"`     // to be claimed alone: a claim with it was lost
	Deferrals int  `json:"deferrals,omitempty"` // how often it was put off by its recheck

	Attempts []Attempt `json:"attempts,omitempty"`
	Payload  []byte    `json:"payload,omitempty"` // before signing and encryption
	Frozen   bool      `json:"frozen,omitempty"`  // the payload may not be made anew
}

// Attempt is one armed try. Once it has a definite outcome it is never changed.
type Attempt struct {
	Claim    ID        `json:"claim"`
	ArmedAt  time.Time `json:"armed_at"`
	Answered time.Time `json:"answered,omitzero"`
	Lost     bool      `json:"lost,omitempty"` // its worker was lost before it could record an answer
	Answer
}

// MaxLosses is how many unarmed claims, held alone, a delivery or notification may lose before it is
// taken for poison.
const MaxLosses = 3

// Spent counts the tries that use up the allowed attempts.
func (d Delivery) Spent() int {
	n := 0
	for _, a := range d.Attempts {
		if a.Outcome.Spends() {
			n++
		}
	}
	return n
}

func (d Delivery) accepted() bool {
	return slices.ContainsFunc(d.Attempts, func(a Attempt) bool { return a.Outcome == OutcomeAccepted })
}

// tainted says that some try has no definite outcome: it may have been accepted.
func (d Delivery) tainted() bool {
	return slices.ContainsFunc(d.Attempts, func(a Attempt) bool { return !a.Outcome.Definite() })
}

// SentAt is when the accepted try was armed; zero when none was.
func (d Delivery) SentAt() time.Time {
	for _, a := range d.Attempts {
		if a.Outcome == OutcomeAccepted {
			return a.ArmedAt
		}
	}
	return time.Time{}
}

// end applies the taint rule: an end other than sent is said only when no try can have been accepted.
func (d Delivery) end(s State, r Reason) Delivery {
	switch {
	case d.accepted():
		s, r = Sent, ""
	case d.tainted():
		s = Unknown
	}
	d.State, d.Reason, d.Claim, d.Armed = s, r, 0, false
	return d
}

// waits is where an open delivery stands when nobody holds it. why, if any, is what it will have been
// missed for when the deadline comes first. A wait is never cut short: the clock may have been set back.
func (d Delivery) waits(next time.Time, why Reason) Delivery {
	d.State, d.Reason = Pending, why
	if len(d.Attempts) > 0 {
		d.State = Retry
	}
	if next.After(d.Next) {
		d.Next = next
	}
	d.Claim, d.Armed = 0, false
	return d
}

// heldBy says that the claim may still decide about the delivery.
func (d Delivery) heldBy(claim ID) bool { return d.State == Sending && d.Claim == claim && claim != 0 }

// Take is T2, pending|retry → sending: a worker's claim takes hold of a delivery that is due.
func (d Delivery) Take(claim ID, now time.Time) (Delivery, bool) {
	if (d.State != Pending && d.State != Retry) || d.Next.After(now) {
		return d, false
	}
	d.State, d.Claim, d.Armed = Sending, claim, false
	return d, true
}

// Release is T3, sending(unarmed) → pending|retry: the worker gives it back, to be looked at again at next.
// why, if any, is what keeps it waiting; past the deadline it is missed for that reason.
func (d Delivery) Release(claim ID, next time.Time, why Reason) (Delivery, bool) {
	if !d.heldBy(claim) || d.Armed {
		return d, false
	}
	if next.After(d.Deadline) {
		return d.end(Missed, cmp.Or(why, ReasonDeadline)), true
	}
	return d.waits(next, why), true
}

// Defer is [Delivery.Release] by the word of a recheck.
func (d Delivery) Defer(claim ID, next time.Time) (Delivery, bool) {
	after, ok := d.Release(claim, next, ReasonCheck)
	if ok {
		after.Deferrals++
	}
	return after, ok
}

// Drop is T4, sending(unarmed) → dropped: the holder found that it must not be sent.
func (d Delivery) Drop(claim ID, why Reason) (Delivery, bool) {
	if !d.heldBy(claim) || d.Armed {
		return d, false
	}
	return d.end(Dropped, why), true
}

// Fail is sending(unarmed) → failed: no payload can be made of it.
func (d Delivery) Fail(claim ID, why Reason) (Delivery, bool) {
	if !d.heldBy(claim) || d.Armed {
		return d, false
	}
	return d.end(Failed, why), true
}

// Arming is what [Delivery.Arm] looks at, read in one snapshot in the transaction that arms.
type Arming struct {
	Now       time.Time
	Attempts  int       // most tries that count
	Forbidden Reason    // see [Facts.Forbids]; "" when nothing forbids
	Pause     *Pause    // see [Facts.Paused]; nil when none holds it
	Cancel    bool      // a cancel was asked for
	Checked   time.Time // when the recheck said send; zero when the category has none
	Payload   []byte
}

// Arm is T5, sending → sending(armed): every reason not to send is looked at once more, and the try that
// may now reach the wire is written down. Where something speaks against it the delivery ends, or waits,
// instead; so look at Armed of what comes back. It is refused when the claim does not hold the delivery.
func (d Delivery) Arm(claim ID, a Arming) (Delivery, bool) {
	if !d.heldBy(claim) || d.Armed {
		return d, false
	}
	switch {
	case d.accepted():
		return d.end(Sent, ""), true
	case a.Cancel || d.Cancel:
		return d.end(Cancelled, ReasonByCaller), true
	case a.Now.After(d.Deadline):
		return d.end(Missed, cmp.Or(d.Reason, ReasonDeadline)), true
	case a.Forbidden != "":
		return d.end(Dropped, a.Forbidden), true
	case a.Now.Before(d.Next):
		return d.waits(d.Next, ""), true
	case a.Pause != nil:
		return d.waits(a.Pause.Ends(d.Deadline), ReasonPaused), true
	case !a.Checked.IsZero() && !(Verdict{At: a.Checked}).Fresh(a.Now):
		return d.waits(a.Now, d.Reason), true
	case d.Spent() >= a.Attempts:
		return d.end(Failed, ReasonAttemptsExhausted), true
	}
	d.Armed, d.Reason = true, ""
	if !d.Frozen {
		d.Payload = a.Payload
	}
	d.Attempts = append(slices.Clip(d.Attempts), Attempt{Claim: claim, ArmedAt: a.Now})
	return d, true
}

// Settling is what [Delivery.Settle] looks at besides the answer.
type Settling struct {
	Now    time.Time
	Policy RetryPolicy
	Jitter float64 // 0 to 1, see [RetryPolicy.Delay]
	Cancel bool    // a cancel was asked for while it was on the wire
}

// Settle is T6 to T9, and T14 and T16 when the claim does not hold the delivery any more: it records what
// the try that claim armed came to. A late word is evidence only: it may settle what is unknown, and turn
// what waits or is held unarmed into sent; it never undoes an end. It is refused when claim armed no try,
// or that try has a definite outcome already.
func (d Delivery) Settle(claim ID, answer Answer, s Settling) (Delivery, bool) {
	if !answer.Outcome.Definite() {
		answer.Outcome = OutcomeAmbiguous
	}
	i := slices.IndexFunc(d.Attempts, func(a Attempt) bool { return a.Claim == claim })
	if i < 0 || d.Attempts[i].Outcome.Definite() ||
		d.Attempts[i].Outcome == OutcomeAmbiguous && answer.Outcome != OutcomeAccepted {
		return d, false
	}
	mine := d.heldBy(claim) && d.Armed
	d.Attempts = slices.Clone(d.Attempts)
	d.Attempts[i].Answer, d.Attempts[i].Answered = answer, s.Now
	d.Frozen = d.Frozen || answer.Frozen || answer.Outcome == OutcomeAmbiguous
	d.Cancel = d.Cancel || s.Cancel
	if !mine {
		return d.late(), true
	}
	switch answer.Outcome {
	case OutcomeAccepted:
		return d.end(Sent, ""), true
	case OutcomeRefused:
		return d.end(Failed, ReasonRefused), true
	case OutcomeGone:
		return d.end(Failed, ReasonGone), true
	case OutcomeAmbiguous:
		if d.Mode == AtMostOnce {
			return d.end(Unknown, ReasonNoAnswer), true
		}
	}
	tries := len(d.Attempts)
	return d.again(s.Now.Add(s.Policy.Delay(tries, answer.After, s.Jitter)), s.Policy.Attempts), true
}

// again goes back to wait for another try, unless something speaks against one.
func (d Delivery) again(next time.Time, attempts int) Delivery {
	switch {
	case d.accepted():
		return d.end(Sent, "")
	case d.Cancel:
		return d.end(Cancelled, ReasonByCaller)
	case d.Spent() >= attempts:
		return d.end(Failed, ReasonAttemptsExhausted)
	case next.After(d.Deadline):
		return d.end(Missed, ReasonDeadline)
	}
	return d.waits(next, "")
}

// late lets evidence from an earlier claim move the delivery: T14 and T16.
func (d Delivery) late() Delivery {
	switch {
	case d.Armed: // a newer try is on the wire: its own answer will find the evidence
	case d.accepted() && (d.State == Unknown || !d.State.Ended()):
		return d.end(Sent, "")
	case d.State == Unknown && !d.tainted():
		why := ReasonAttemptsExhausted
		for _, a := range d.Attempts {
			switch a.Outcome {
			case OutcomeRefused:
				why = ReasonRefused
			case OutcomeGone:
				why = ReasonGone
			}
		}
		return d.end(Failed, why)
	}
	return d
}

// Confirm is T15: a receipt says that the try of a claim was accepted. claim 0 means that it names none:
// the last one that may have been accepted.
func (d Delivery) Confirm(claim ID, now time.Time) (Delivery, bool) {
	if claim == 0 {
		for _, a := range d.Attempts {
			if !a.Outcome.Definite() {
				claim = a.Claim
			}
		}
	}
	i := slices.IndexFunc(d.Attempts, func(a Attempt) bool { return a.Claim == claim })
	if i < 0 {
		return d, false
	}
	if d.heldBy(claim) && d.Armed && d.Attempts[i].Outcome == OutcomeOpen {
		// The receipt came before the answer: the try is over, the answer will be a late word.
		d.Attempts = slices.Clone(d.Attempts)
		d.Attempts[i].Answer, d.Attempts[i].Answered = Answer{Outcome: OutcomeAccepted}, now
		return d.end(Sent, ""), true
	}
	return d.Settle(claim, Answer{Outcome: OutcomeAccepted}, Settling{Now: now})
}

// TakeOver is T10 and T11: the claim was lost. Whoever finds it moves the delivery on; claim is the one
// that was seen, and the move is refused when it does not hold the delivery any more.
func (d Delivery) TakeOver(claim ID, alone bool, attempts int, next time.Time) (Delivery, bool) {
	if !d.heldBy(claim) {
		return d, false
	}
	if !d.Armed {
		if d.Alone = true; alone {
			d.Losses++
		}
		if d.Losses >= MaxLosses {
			return d.end(Failed, ReasonPoison), true
		}
		return d.waits(next, d.Reason), true
	}
	if i := slices.IndexFunc(d.Attempts, func(a Attempt) bool { return a.Claim == claim }); i >= 0 {
		d.Attempts = slices.Clone(d.Attempts)
		d.Attempts[i].Lost = true
	}
	d.Frozen = true
	if d.Mode == AtMostOnce && !d.accepted() {
		return d.end(Unknown, ReasonWorkerLost), true
	}
	return d.again(next, attempts), true
}

// CancelNow is T12: an open delivery that is not on the wire ends; an armed one remembers that it was asked
// for, and the move is refused: it is too late to promise anything.
func (d Delivery) CancelNow() (Delivery, bool) {
	switch {
	case d.State.Ended():
		return d, false
	case d.Armed:
		d.Cancel = true
		return d, false
	}
	return d.end(Cancelled, ReasonByCaller), true
}

// Expire is T13: the deadline passed while nobody had it on the wire.
func (d Delivery) Expire(now time.Time, why Reason) (Delivery, bool) {
	if d.State.Ended() || d.Armed || !now.After(d.Deadline) {
		return d, false
	}
	return d.end(Missed, why), true
}

// Withdraw is T17: a change of intent ends an open delivery that is not on the wire, in the transaction of
// the change.
func (d Delivery) Withdraw(why Reason) (Delivery, bool) {
	if d.State.Ended() || d.Armed {
		return d, false
	}
	return d.end(Dropped, why), true
}
