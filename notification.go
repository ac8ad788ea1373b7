package belfry

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Notification is one thing to tell one recipient. It is never changed after it was enqueued; what
// becomes of it is written beside it.
type Notification struct {
	ID        ID              `json:"id"`
	Project   string          `json:"-"`
	Recipient string          `json:"recipient"`
	Category  string          `json:"category"`
	Subject   string          `json:"subject,omitempty"`
	Data      json.RawMessage `json:"data,omitempty"`
	CreatedAt time.Time       `json:"created_at"`
	Due       time.Time       `json:"due_at"`
	Deadline  time.Time       `json:"deadline"`
	Lane      Lane            `json:"lane"`
	Sensitive bool            `json:"sensitive,omitempty"`
	Options
}

// Options are the parts of a notification that few have.
type Options struct {
	Channels []string `json:"channels,omitempty"` // channels or media; empty: the category's
	To       []Target `json:"to,omitempty"`       // frozen destinations; empty: the recipient's endpoints
	Once     *Once    `json:"once,omitempty"`
}

// Target is a destination named by the caller: a notification with targets goes there and nowhere else.
type Target struct {
	Channel string
	Address Secret
	Keys    Keys
}

// Once says that a fact is told at most once: per (category, subject, recipient, key) and period.
type Once struct {
	Per       Period  `json:"per"`
	Zone      string  `json:"zone,omitempty"`      // whose calendar; empty: the recipient's
	Date      string  `json:"date,omitempty"`      // the calendar day it counts for; empty: that of the due time
	Key       string  `json:"key,omitempty"`       // tells facts about one subject apart
	ReleaseOn []State `json:"release_on,omitzero"` // ends that free the fact; nil: all that reached nobody; none is not nil
}

// Period is how long a fact counts as told.
type Period string

const (
	PerHour   Period = "hour"
	PerDay    Period = "day"
	PerWeek   Period = "week" // ISO 8601, Monday to Sunday
	Ever      Period = "ever"
	WhileOpen Period = "open" // until the notification ends, however it ends
)

var releaseByDefault = []State{Dropped, Failed, Missed, Cancelled}

// Releases says that a notification which ends in this state frees its fact.
func (o Once) Releases(end State) bool {
	switch {
	case o.Per == WhileOpen:
		return true
	case o.ReleaseOn == nil:
		return slices.Contains(releaseByDefault, end)
	}
	return slices.Contains(o.ReleaseOn, end)
}

// Fact is the text that two notifications of the same fact share. loc is the zone of the calendar.
func (o Once) Fact(n Notification, loc *time.Location) string {
	at, period := n.Due.In(loc), ""
	if o.Date != "" {
		at, _ = time.Parse(time.DateOnly, o.Date)
	}
	switch o.Per {
	case PerHour:
		// The offset tells the two passes of an hour that the clock repeats apart.
		period = at.Format("2006-01-02T15Z07:00")
	case PerDay:
		period = at.Format(time.DateOnly)
	case PerWeek:
		year, week := at.ISOWeek()
		period = fmt.Sprintf("%04d-W%02d", year, week)
	}
	return strings.Join([]string{n.Category, n.Subject, n.Recipient, o.Key, string(o.Per), period}, "\x00")
}

// Check refuses a once with a wrong field. Whether the zone exists is for the caller to ask.
func (o Once) Check() error {
	if err := oneOf("per", o.Per, PerHour, PerDay, PerWeek, Ever, WhileOpen); err != nil {
		return err
	}
	if o.Key != "" {
		if err := CheckName("key", o.Key); err != nil {
			return err
		}
	}
	if o.Date != "" {
		if o.Per != PerDay && o.Per != PerWeek {
			return Invalid("date", "goes with per day or week only")
		}
		if _, err := time.Parse(time.DateOnly, o.Date); err != nil {
			return Invalid("date", "is not a date: want for example 2026-12-01")
		}
	}
	for _, s := range o.ReleaseOn {
		if err := oneOf("release_on", s, Sent, Dropped, Failed, Missed, Cancelled, Unknown); err != nil {
			return err
		}
	}
	return nil
}

// Request is what a caller asks to enqueue.
type Request struct {
	Project   string
	Recipient string
	Category  string // empty: default
	Subject   string
	Data      json.RawMessage
	At        time.Time // zero: now
	ExpiresIn Duration  // after the due time; zero: Deadline, else the category's
	Deadline  time.Time
	Key       string // idempotency key; optional
	Options
}

const maxAhead = 10 * 366 * 24 * time.Hour

// Notify makes the notification that a request asks for, or says what is wrong with it. category is the
// one it names, resolved; known lists the configured channels. The recipient's existence and the names
// of zones are for the caller to ask.
func Notify(id ID, r Request, category Category, known []string, now time.Time) (Notification, error) {
	now = now.UTC().Truncate(time.Microsecond)
	n := Notification{
		ID: id, Project: r.Project, Recipient: r.Recipient, Category: category.Name, Subject: r.Subject,
		Data: r.Data, CreatedAt: now, Due: now, Lane: category.Lane, Sensitive: category.Sensitive, Options: r.Options,
	}
	if err := CheckName("recipient", r.Recipient); err != nil {
		return n, err
	}
	if r.Subject != "" {
		if err := CheckName("subject", r.Subject); err != nil {
			return n, err
		}
	}
	if err := CheckObject("data", r.Data); err != nil {
		return n, err
	}
	if err := CheckChannels("channels", r.Channels, known); err != nil {
		return n, err
	}
	if len(r.To) > MaxDeliveries {
		return n, Invalid("to", "names more than %d destinations", MaxDeliveries)
	}
	for i, t := range r.To {
		field := "to." + strconv.Itoa(i)
		if !slices.Contains(known, t.Channel) {
			return n, &Error{CodeUnknownChannel, field + ".channel", "no channel " + quote(t.Channel) + " is configured"}
		}
		if len(t.Address) == 0 || len(t.Address) > MaxAddress {
			return n, Invalid(field+".address", "want 1 to %d bytes", MaxAddress)
		}
	}
	if r.Once != nil {
		if err := r.Once.Check(); err != nil {
			return n, In("once", err)
		}
	}
	return n, n.timed(r, category)
}

// timed settles the due time and the deadline.
func (n *Notification) timed(r Request, category Category) error {
	now := n.CreatedAt
	if !r.At.IsZero() {
		n.Due = r.At.UTC().Truncate(time.Microsecond)
	}
	if n.Due.After(now.Add(maxAhead)) || n.Due.Before(now.Add(-maxAhead)) {
		return Invalid("at", "is more than ten years away")
	}
	switch {
	case r.ExpiresIn != 0 && !r.Deadline.IsZero():
		return Invalid("expires_in", "goes without a deadline: give one of them")
	case r.ExpiresIn < 0 || r.ExpiresIn > maxExpiry:
		return Invalid("expires_in", "want more than 0s and at most %v", maxExpiry)
	case r.ExpiresIn > 0:
		n.Deadline = n.Due.Add(r.ExpiresIn.Std())
	case !r.Deadline.IsZero():
		n.Deadline = r.Deadline.UTC().Truncate(time.Microsecond)
		if n.Deadline.After(n.Due.Add(maxExpiry.Std())) {
			return Invalid("deadline", "is more than %v after the due time", maxExpiry)
		}
	default:
		n.Deadline = n.Due.Add(category.ExpiresIn.Std())
	}
	if !n.Deadline.After(n.Due) {
		return Invalid("deadline", "is not after the due time")
	}
	if !n.Deadline.After(now) {
		return Invalid("deadline", "has passed already")
	}
	return nil
}

// Queue is where the notification waits for its turn: the channel it will take when that is certain to be
// a single one, else "". It is a hint that spares work; [Plan] decides.
func (n Notification) Queue(category Category, known []string) string {
	if len(n.To) > 0 {
		first := n.To[0].Channel
		if slices.ContainsFunc(n.To, func(t Target) bool { return t.Channel != first }) {
			return ""
		}
		return first
	}
	channels := n.route(category, known)
	if len(channels) == 1 {
		return channels[0]
	}
	return ""
}

// route lists the channels the notification may take, the first preferred.
func (n Notification) route(category Category, known []string) []string {
	names := n.Channels
	if len(names) == 0 {
		names = category.Channels
	}
	if len(names) == 0 {
		return known
	}
	var channels []string
	for _, name := range names {
		for _, channel := range known {
			if Matches(name, channel) && !slices.Contains(channels, channel) {
				channels = append(channels, channel)
			}
		}
	}
	return channels
}

// NotificationState is the summary of a notification's own state and its deliveries: any sent → sent;
// else any open → sending; else any unknown → unknown; else the worst of failed, missed, dropped, cancelled.
func NotificationState(deliveries []State) State {
	rank := func(s State) int {
		switch s {
		case Sent:
			return 7
		case Pending, Sending, Retry:
			return 6
		case Unknown:
			return 5
		case Failed:
			return 4
		case Missed:
			return 3
		case Dropped:
			return 2
		}
		return 1
	}
	best := Cancelled
	for _, s := range deliveries {
		if rank(s) > rank(best) {
			best = s
		}
	}
	if rank(best) == 6 {
		return Sending
	}
	return best
}

func quote(s string) string { return strconv.Quote(s) }
