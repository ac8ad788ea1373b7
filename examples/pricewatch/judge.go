package pricewatch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"belfry"
	"belfry/sandbox"
	"belfry/store"
)

// Result is what a demo came to. Every notification that was enqueued is in exactly one of Sent to
// StillOpen. The last three lines of numbers are judged from what the providers accepted, not from what the
// engine says.
type Result struct {
	Enqueued   int                   `json:"enqueued"`
	Duplicates int                   `json:"duplicates"` // detections of a fact that was enqueued before
	Sent       int                   `json:"sent"`
	Dropped    map[belfry.Reason]int `json:"dropped"`
	Failed     map[belfry.Reason]int `json:"failed"`
	Missed     int                   `json:"missed"`
	Cancelled  int                   `json:"cancelled"`
	Unknown    int                   `json:"unknown"`
	StillOpen  int                   `json:"still_open,omitempty"`
	Retries    int                   `json:"retries"` // tries after the first of a delivery

	ProviderAccepted   int `json:"provider_accepted"`
	ProviderDuplicates int `json:"provider_duplicates"` // accepted again although no try before was ambiguous
	SentAfterOptOut    int `json:"sent_after_optout"`

	// Left out while zero: what must not happen, and nobody asks for.
	Lost            int `json:"lost,omitempty"` // acknowledged, and not to be found
	SentAfterCancel int `json:"sent_after_cancel,omitempty"`
	Dishonest       int `json:"dishonest,omitempty"` // accepted, and said to have reached nobody; or the other way round

	Lateness Lateness `json:"lateness_ms"`
}

// Lateness is how long after it was due the first try of a delivery began, in milliseconds.
type Lateness struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// Broken names the promises that were not kept.
func (r Result) Broken() error {
	var errs []error
	for _, p := range []struct {
		n    int
		what string
	}{
		{r.ProviderDuplicates, "accepted twice without an ambiguous try in between"},
		{r.SentAfterOptOut, "sent after an opt-out"},
		{r.SentAfterCancel, "sent after a cancel"},
		{r.Lost, "acknowledged and lost"},
		{r.Dishonest, "accepted and said not to be, or the other way round"},
		{r.StillOpen, "still open at the end"},
	} {
		if p.n > 0 {
			errs = append(errs, fmt.Errorf("%d %s", p.n, p.what))
		}
	}
	return errors.Join(errs...)
}

// optOut is a person's word that they want no more of something.
type optOut struct {
	person   string
	category string // or "*"
	channel  string // a channel, a medium or "*"
	answered time.Time
	inFlight []belfry.DeliveryID // answered with it: on the wire at that moment
}

// covers says that the opt-out speaks against a message.
func (o optOut) covers(m message) bool {
	return o.person == m.person && (o.category == "*" || o.category == m.category) && (o.channel == "*" || belfry.Matches(o.channel, m.Channel))
}

// withdrawal is a cancel that was answered.
type withdrawal struct {
	answered time.Time
	store.Cancelled
}

// message is something that a provider accepted.
type message struct {
	sandbox.Entry
	delivery belfry.DeliveryID
	person   string
	category string
}

// evidence is what the judge looks at.
type evidence struct {
	acknowledged []belfry.ID
	log          []sandbox.Entry
	owner        map[string]string // of a receiver: the person
	optOuts      []optOut
	cancels      []withdrawal
	ends         []store.Summary
	// attempts are the engine's own records of a delivery.
	attempts func(context.Context, belfry.DeliveryID) ([]belfry.Attempt, error)
}

// judge counts where everything ended and what was not kept.
func judge(ctx context.Context, e evidence, r *Result) error {
	byID := r.count(e)
	messages := map[belfry.DeliveryID][]message{}
	reached := map[belfry.ID]bool{}
	r.ProviderAccepted = len(e.log)
	for _, entry := range e.log {
		m, err := read(entry, e.owner)
		if err != nil {
			return err
		}
		messages[m.delivery] = append(messages[m.delivery], m)
		reached[m.delivery.Notification] = true
		if late, err := e.late(ctx, m); err != nil {
			return err
		} else if late {
			r.SentAfterOptOut++
		}
		if late, err := e.uncancelled(ctx, m); err != nil {
			return err
		} else if late {
			r.SentAfterCancel++
		}
	}
	for id, state := range byID {
		if state.Ended() && state != belfry.Unknown && reached[id] != (state == belfry.Sent) {
			r.Dishonest++
		}
	}
	for id, accepted := range messages {
		if len(accepted) == 1 {
			continue
		}
		attempts, err := e.attempts(ctx, id)
		if err != nil {
			return err
		}
		r.ProviderDuplicates += unexplained(accepted, attempts)
	}
	return nil
}

// count says where everything ended.
func (r *Result) count(e evidence) map[belfry.ID]belfry.State {
	r.Dropped, r.Failed = map[belfry.Reason]int{}, map[belfry.Reason]int{}
	byID := map[belfry.ID]belfry.State{}
	for _, s := range e.ends {
		byID[s.Notification.ID] = s.State
		switch s.State {
		case belfry.Sent:
			r.Sent++
		case belfry.Dropped:
			r.Dropped[s.Reason]++
		case belfry.Failed:
			r.Failed[s.Reason]++
		case belfry.Missed:
			r.Missed++
		case belfry.Cancelled:
			r.Cancelled++
		case belfry.Unknown:
			r.Unknown++
		default:
			r.StillOpen++
		}
	}
	for _, id := range e.acknowledged {
		if _, found := byID[id]; !found {
			r.Lost++
		}
	}
	return byID
}

func read(e sandbox.Entry, owner map[string]string) (m message, err error) {
	m = message{Entry: e, person: owner[e.To]}
	if m.delivery, err = belfry.ParseDeliveryID(e.ID); err != nil {
		return m, fmt.Errorf("the log has a message that is not ours: %w", err)
	}
	var body struct{ Type, Category string } // of a webhook, of a push message
	err = json.Unmarshal(e.Body, &body)
	m.category = body.Type + body.Category
	return m, err
}

// late says that a message was accepted after an opt-out from it was answered. One that was on the wire then
// is excused, but not a further try of the same delivery.
func (e evidence) late(ctx context.Context, m message) (bool, error) {
	for _, o := range e.optOuts {
		if !o.covers(m) || !m.At.After(o.answered) {
			continue
		}
		if !slices.Contains(o.inFlight, m.delivery) {
			return true, nil
		}
		if again, err := e.armedAfter(ctx, m.delivery, o.answered); again || err != nil {
			return again, err
		}
	}
	return false, nil
}

// uncancelled is late for cancels.
func (e evidence) uncancelled(ctx context.Context, m message) (bool, error) {
	for _, c := range e.cancels {
		if !m.At.After(c.answered) {
			continue
		}
		if slices.Contains(c.Cancelled.Cancelled, m.delivery.Notification) {
			return true, nil
		}
		if slices.Contains(c.InFlight, m.delivery.Notification) {
			if again, err := e.armedAfter(ctx, m.delivery, c.answered); again || err != nil {
				return again, err
			}
		}
	}
	return false, nil
}

func (e evidence) armedAfter(ctx context.Context, d belfry.DeliveryID, at time.Time) (bool, error) {
	attempts, err := e.attempts(ctx, d)
	return slices.ContainsFunc(attempts, func(a belfry.Attempt) bool { return a.ArmedAt.After(at) }), err
}

// unexplained counts the repeats, in the order of the log, that were made although the try that was accepted
// before had a definite answer, or that say something else.
func unexplained(accepted []message, attempts []belfry.Attempt) (n int) {
	for i, m := range accepted[1:] {
		before := accepted[i]
		ambiguous := false
		for _, a := range attempts { // the last that was armed by then is the one
			if !a.ArmedAt.After(before.At) {
				ambiguous = !a.Outcome.Definite()
			}
		}
		if !ambiguous || !bytes.Equal(before.Body, m.Body) {
			n++
		}
	}
	return n
}

// latenessOf sums up; it sorts late.
func latenessOf(late []time.Duration) (l Lateness) {
	if len(late) == 0 {
		return l
	}
	slices.Sort(late)
	at := func(share float64) float64 {
		i := int(math.Ceil(share*float64(len(late)))) - 1
		return math.Round(float64(late[max(i, 0)].Microseconds())/100) / 10
	}
	return Lateness{at(0.5), at(0.99), at(1)}
}
