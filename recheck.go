package belfry

import (
	"cmp"
	"encoding/json"
	"time"
)

// Check is the question "is it still true?", asked right before a notification is sent.
type Check struct {
	Notification ID              `json:"notification"`
	Project      string          `json:"-"`
	Recipient    string          `json:"recipient"`
	Category     string          `json:"category"`
	Subject      string          `json:"subject,omitempty"`
	Data         json.RawMessage `json:"data,omitempty"`
	Attempt      int             `json:"attempt"`             // the try this verdict is for, from 1
	LastSent     *Mark           `json:"last_sent,omitempty"` // nil when nothing was sent about the subject yet
}

// Mark is what was last sent about a subject to a recipient in a category. It moves only when a delivery
// becomes sent, and only forward.
type Mark struct {
	At   time.Time       `json:"at"` // when the attempt that was accepted was armed
	Data json.RawMessage `json:"data,omitempty"`
	// Notification is the one that moved the mark.
	Notification ID `json:"notification,omitempty"`
}

// VerdictKind is what a recheck decided.
type VerdictKind string

const (
	VerdictSend   VerdictKind = "send"
	VerdictDrop   VerdictKind = "drop"
	VerdictLater  VerdictKind = "later"
	VerdictFailed VerdictKind = "failed" // no usable answer; the category's on_error decides
)

// Verdict is the answer to a [Check].
type Verdict struct {
	Kind   VerdictKind
	Data   json.RawMessage // with send: fresh data that the text is made from; nil keeps the old
	Reason Reason          // with drop
	After  time.Duration   // with later: how long from now
	Detail string          // with failed: why, for people
	At     time.Time       // when it was given
}

// Send, Drop and Later make the verdicts a recheck function returns. Data may be nil: the notification's
// own data stands then.
func Send(data json.RawMessage) Verdict { return Verdict{Kind: VerdictSend, Data: data} }
func Drop(reason string) Verdict        { return Verdict{Kind: VerdictDrop, Reason: CustomReason(reason)} }
func Later(after time.Duration) Verdict { return Verdict{Kind: VerdictLater, After: after} }
func CheckFailed(detail string) Verdict { return Verdict{Kind: VerdictFailed, Detail: detail} }

// VerdictLife is how long a verdict may be acted upon; an older one is asked for again.
const VerdictLife = 5 * time.Second

// Fresh says that the verdict may still be acted upon.
func (v Verdict) Fresh(now time.Time) bool {
	return now.Sub(v.At) <= VerdictLife && !now.Before(v.At.Add(-VerdictLife))
}

// OnCheckError is what a category does with a recheck that gave no usable answer.
type OnCheckError string

const (
	CheckErrorRetry OnCheckError = "retry" // ask again, until the deadline
	CheckErrorDrop  OnCheckError = "drop"
	CheckErrorSend  OnCheckError = "send" // send with the data it was enqueued with
)

// Settled turns a failed verdict, or one of no known kind, into what the category wants. deferrals is how often the notification
// was put off already, jitter is 0 to 1. Waits grow from 1 s to 1 min; the deadline bounds them all.
func (v Verdict) Settled(onError OnCheckError, deferrals int, jitter float64) Verdict {
	const first, most = time.Second, time.Minute
	switch v.Kind {
	case VerdictSend:
	case VerdictDrop:
		v.Reason = cmp.Or(v.Reason, ReasonConditionLost)
	case VerdictLater:
		v.After = max(v.After, first)
	default:
		switch onError {
		case CheckErrorDrop:
			v.Kind, v.Reason = VerdictDrop, ReasonCheckUnreachable
		case CheckErrorSend:
			v.Kind = VerdictSend
		default:
			wait := min(first<<min(deferrals, 6), most)
			v.Kind, v.After = VerdictLater, wait+time.Duration(jitterShare*jitter*float64(wait))
		}
	}
	return v
}
