package belfry

import (
	"errors"
	"fmt"
	"time"
)

// Outcome is what one try came to.
type Outcome string

const (
	OutcomeOpen          Outcome = ""              // armed, and nothing is known yet
	OutcomeAccepted      Outcome = "accepted"      // the provider has it
	OutcomeRefused       Outcome = "refused"       // the provider will never take this message; the endpoint is fine
	OutcomeGone          Outcome = "gone"          // the endpoint does not exist any more
	OutcomeThrottled     Outcome = "throttled"     // not now; the try is not counted
	OutcomeMisconfigured Outcome = "misconfigured" // our credentials or settings are wrong; the try is not counted
	OutcomeNotSent       Outcome = "not_sent"      // provably not accepted: try again
	OutcomeAmbiguous     Outcome = "ambiguous"     // it may have been accepted
)

// Definite says that the outcome rules an acceptance in or out. An outcome that is not in the list does not.
func (o Outcome) Definite() bool {
	switch o {
	case OutcomeAccepted, OutcomeRefused, OutcomeGone, OutcomeThrottled, OutcomeMisconfigured, OutcomeNotSent:
		return true
	}
	return false
}

// Spends says that the outcome uses up one of the allowed attempts.
func (o Outcome) Spends() bool { return o != OutcomeThrottled && o != OutcomeMisconfigured }

// Answer is an outcome with what is worth keeping of it.
type Answer struct {
	Outcome Outcome       `json:"outcome"`
	After   time.Duration `json:"after,omitempty"`  // Retry-After; 0 when the provider named none
	Status  int           `json:"status,omitempty"` // HTTP or SMTP status; 0 when there was none
	Ref     string        `json:"ref,omitempty"`    // the provider's own id for it
	Detail  string        `json:"detail,omitempty"` // for people; no secret, token or address
	Frozen  bool          `json:"frozen,omitempty"` // the other side may have acted: later tries send the same bytes
}

// Failure is the error with which a channel says what a try came to. Build it with [Gone] and its
// siblings; any other error of a channel counts as [OutcomeAmbiguous], the safe default.
type Failure struct{ Answer }

func (f *Failure) Error() string {
	s := string(f.Outcome)
	if f.Status != 0 {
		s = fmt.Sprintf("%s: answered %d", s, f.Status)
	}
	if f.Detail != "" {
		s += ": " + f.Detail
	}
	return s
}

// Gone says the endpoint does not exist any more: it is retired at once.
func Gone(status int, detail string) *Failure {
	return &Failure{Answer{Outcome: OutcomeGone, Status: status, Detail: detail}}
}

// Refused says the provider will never take this message.
func Refused(status int, detail string) *Failure {
	return &Failure{Answer{Outcome: OutcomeRefused, Status: status, Detail: detail}}
}

// Throttled says "not now". after is the provider's Retry-After, 0 when it named none.
func Throttled(status int, after time.Duration, detail string) *Failure {
	return &Failure{Answer{Outcome: OutcomeThrottled, Status: status, After: after, Detail: detail}}
}

// Misconfigured says our own credentials or settings are at fault.
func Misconfigured(status int, detail string) *Failure {
	return &Failure{Answer{Outcome: OutcomeMisconfigured, Status: status, Detail: detail}}
}

// NotSent says the message was provably not accepted and may be tried again.
func NotSent(status int, after time.Duration, detail string) *Failure {
	return &Failure{Answer{Outcome: OutcomeNotSent, Status: status, After: after, Detail: detail}}
}

// Unsure says the message may have been accepted. Any error that is no [Failure] says the same, without
// the status.
func Unsure(status int, detail string) *Failure {
	return &Failure{Answer{Outcome: OutcomeAmbiguous, Status: status, Detail: detail}}
}

// AnswerOf reads what a channel's Send returned: ref and nil mean accepted, a [Failure] speaks for
// itself, every other error is ambiguous and only its text is kept.
func AnswerOf(ref string, err error) Answer {
	if err == nil {
		return Answer{Outcome: OutcomeAccepted, Ref: ref}
	}
	if f, ok := errors.AsType[*Failure](err); ok {
		return f.Answer
	}
	return Answer{Outcome: OutcomeAmbiguous, Detail: err.Error()}
}
