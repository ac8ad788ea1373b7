package api

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"belfry"
	"belfry/store"
	"belfry/tzdb"
)

// Line is one step of a notification's way.
type Line struct {
	At     time.Time `json:"at" doc:"When, in UTC."`
	Local  string    `json:"local" doc:"The same instant on the recipient's clock; in UTC when the zone is not known."`
	What   string    `json:"what" doc:"What happened."`
	Detail string    `json:"detail,omitempty" doc:"Why, or what follows."`
}

// Timeline explains everything that happened to a notification, in the order of time, in words, and on the
// recipient's own clock as far as their zone is known now. It names no address.
func Timeline(s store.Story) []Line {
	t := timeline{loc: zoneOf(s)}
	detail := "to be sent by " + t.local(s.Deadline)
	if s.Recipient == nil && len(s.To) == 0 {
		detail += "; the recipient is not there any more"
	} else if s.Recipient == nil || s.Recipient.Zone == "" {
		detail += "; the recipient's zone is not known, so local times are UTC"
	}
	if s.Duplicates > 0 {
		detail += fmt.Sprintf("; the same fact was enqueued %s more and made nothing new", times(s.Duplicates))
	}
	t.add(s.CreatedAt, fmt.Sprintf("enqueued for %s in category %s", s.Notification.Recipient, s.Category), detail)
	if s.Due.After(s.CreatedAt) {
		t.add(s.Due, "due", "")
	}
	for _, e := range s.Events {
		t.event(s, e)
	}
	for _, d := range s.Deliveries {
		t.delivery(s, d)
	}
	if !s.EndedAt.IsZero() {
		t.add(s.EndedAt, "ended: "+string(s.State), why(s.Reason))
	}
	if !s.State.Ended() && !s.Waits.IsZero() && s.Waits.After(s.Due) {
		t.add(s.Waits, "waits until then", holds(s.Reason))
	}
	slices.SortStableFunc(t.lines, func(a, b Line) int { return cmp.Compare(a.At.UnixNano(), b.At.UnixNano()) })
	return t.lines
}

// zoneOf is the zone of the recipient, UTC when it is not known.
func zoneOf(s store.Story) *time.Location {
	if s.Recipient != nil {
		if loc, err := tzdb.Load(s.Recipient.Zone); err == nil {
			return loc
		}
	}
	return time.UTC
}

type timeline struct {
	loc   *time.Location
	lines []Line
}

func (t *timeline) local(at time.Time) string {
	return at.In(t.loc).Format("Mon 2006-01-02 15:04:05 MST")
}

func (t *timeline) add(at time.Time, what, detail string) {
	t.lines = append(t.lines, Line{at.UTC(), t.local(at), what, detail})
}

func (t *timeline) event(s store.Story, e store.Event) {
	what := map[store.EventKind]string{
		store.EventHeld:       "held",
		store.EventDeferred:   "put off by its recheck",
		store.EventLost:       "its worker was lost",
		store.EventCancelWant: "a cancel was asked for while an attempt may be on the wire",
		store.EventWithdrawn:  "withdrawn",
		store.EventLateWord:   "an answer came late",
		store.EventNextStage:  "went on to the next channel",
		store.EventEnded:      "came to its end",
	}[e.Kind]
	what = cmp.Or(what, string(e.Kind))
	if e.N > 0 {
		what = t.name(s, e.N) + ": " + what
	}
	detail := why(e.Reason)
	if !e.Until.IsZero() {
		detail = holds(e.Reason)
	}
	detail = sentence(detail, e.Detail)
	if !e.Until.IsZero() {
		detail = sentence(detail, "until "+t.local(e.Until))
	}
	t.add(e.At, what, detail)
}

// name is a delivery in words.
func (t *timeline) name(s store.Story, n int) string {
	for _, d := range s.Deliveries {
		if d.ID.N == n {
			return nameOf(s, d)
		}
	}
	return "delivery " + strconv.Itoa(n)
}

func nameOf(s store.Story, d store.DeliveryStory) string {
	name := "delivery " + strconv.Itoa(d.ID.N) + " by " + d.Channel
	if where := cmp.Or(d.Device, hint(s, d)); where != "" && where != "…" {
		name += " to " + where
	}
	return name
}

func (t *timeline) delivery(s store.Story, d store.DeliveryStory) {
	name := nameOf(s, d)
	for i, a := range d.Attempts {
		try := name + ": attempt " + strconv.Itoa(i+1)
		detail := "from here on it may reach the wire"
		if a.Lost {
			detail = sentence(detail, "its worker was lost before it could note an answer")
		}
		t.add(a.ArmedAt, try+" made", detail)
		if a.Answered.IsZero() {
			continue
		}
		t.add(a.Answered, try+": "+meant(a.Outcome), answered(a.Answer))
	}
	switch {
	case !d.EndedAt.IsZero():
		t.add(d.EndedAt, name+": "+string(d.State), why(d.Reason))
	case d.State == belfry.Retry:
		t.add(d.Next, name+": to be tried again", holds(d.Reason))
	case d.State == belfry.Pending && d.Next.After(s.Due):
		t.add(d.Next, name+": waits until then", holds(d.Reason))
	}
}

func meant(o belfry.Outcome) string {
	switch o {
	case belfry.OutcomeAccepted:
		return "accepted by the provider"
	case belfry.OutcomeRefused:
		return "refused by the provider"
	case belfry.OutcomeGone:
		return "the provider says the endpoint is gone"
	case belfry.OutcomeThrottled:
		return "the provider said not now"
	case belfry.OutcomeMisconfigured:
		return "our credentials or settings were not taken"
	case belfry.OutcomeNotSent:
		return "not accepted"
	case belfry.OutcomeAmbiguous:
		return "no clear answer: it may have been accepted"
	}
	return "no answer yet"
}

func answered(a belfry.Answer) string {
	var parts []string
	if a.Status != 0 {
		parts = append(parts, "status "+strconv.Itoa(a.Status))
	}
	if a.Ref != "" {
		parts = append(parts, "its id there is "+a.Ref)
	}
	if a.After > 0 {
		parts = append(parts, "asked to wait "+belfry.Duration(a.After).String())
	}
	if a.Detail != "" {
		parts = append(parts, a.Detail)
	}
	return strings.Join(parts, "; ")
}

// why is a reason in words, with its own word first so that it can be looked for.
func why(r belfry.Reason) string {
	if r == "" {
		return ""
	}
	return string(r) + ": " + explain(r)
}

// holds is the reason for which something waits; in the list of reasons stands why it would end.
func holds(r belfry.Reason) string {
	if text := waits[r]; text != "" {
		return string(r) + ": " + text
	}
	return why(r)
}

var waits = map[belfry.Reason]string{
	belfry.ReasonPaused:         "a pause holds it",
	belfry.ReasonCheck:          "its recheck put it off",
	belfry.ReasonCooldown:       "the one before it is on its way or was just sent",
	belfry.ReasonHeldByCooldown: "the one before it is on its way or was just sent",
}

func sentence(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "; " + b
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return strconv.Itoa(n) + " times"
}
