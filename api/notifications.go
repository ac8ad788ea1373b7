package api

import (
	"encoding/json"
	"strconv"
	"time"

	"belfry"
	"belfry/store"
)

// Summary is a notification and where it stands.
type Summary struct {
	ID          belfry.ID     `json:"id" doc:"The notification."`
	Recipient   string        `json:"recipient" doc:"Whom it is for."`
	Category    string        `json:"category" doc:"Its kind."`
	Subject     string        `json:"subject,omitempty" doc:"What it is about."`
	State       belfry.State  `json:"state" doc:"Where it stands: the summary of its deliveries."`
	Reason      belfry.Reason `json:"reason,omitempty" doc:"Why it ended or waits."`
	Explanation string        `json:"explanation,omitempty" doc:"The reason in words."`
	Lane        belfry.Lane   `json:"lane" doc:"Which traffic it goes with."`
	CreatedAt   time.Time     `json:"created_at" doc:"When it was enqueued."`
	Due         time.Time     `json:"due_at" doc:"When it is due."`
	Deadline    time.Time     `json:"deadline" doc:"When it is not sent any more."`
	EndedAt     time.Time     `json:"ended_at,omitzero" doc:"When it ended; absent while it is open."`
	WaitsUntil  time.Time     `json:"waits_until,omitzero" doc:"When it is looked at again; absent when it does not wait."`
	Sensitive   bool          `json:"sensitive,omitempty" doc:"Its data is shown to nobody."`
}

func summarize(s store.Summary) Summary {
	return Summary{
		ID: s.ID, Recipient: s.Recipient, Category: s.Category, Subject: s.Subject, State: s.State, Reason: s.Reason,
		Explanation: explainAt(s.State, s.Reason), Lane: s.Lane, CreatedAt: s.CreatedAt.UTC(), Due: s.Due.UTC(), Deadline: s.Deadline.UTC(),
		EndedAt: utc(s.EndedAt), WaitsUntil: utc(s.Waits), Sensitive: s.Sensitive,
	}
}

func utc(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.UTC()
}

// explainAt is a reason in words for something that stands in a state.
func explainAt(s belfry.State, r belfry.Reason) string {
	if text := waits[r]; text != "" && !s.Ended() {
		return text
	}
	return explain(r)
}

// explain is a reason in words. What is not in the list was said by a recheck.
func explain(r belfry.Reason) string {
	if text, ok := belfry.Reasons[r]; ok || r == "" {
		return text
	}
	return "the recheck said so"
}

type NotificationList struct {
	Notifications []Summary `json:"notifications" doc:"The newest first."`
	Next          string    `json:"next,omitempty" doc:"The cursor of the next page; absent on the last one. A page may be empty and not the last."`
}

func (s *server) listNotifications(c *call) (list NotificationList, err error) {
	f := store.Filter{
		Project: c.Project, Recipient: c.query.Get("recipient"), Category: c.query.Get("category"), Subject: c.query.Get("subject"),
		State: belfry.State(c.query.Get("state")), Reason: belfry.Reason(c.query.Get("reason")),
	}
	switch f.State {
	case "", belfry.Scheduled, belfry.Sending, belfry.Sent, belfry.Dropped, belfry.Failed, belfry.Missed, belfry.Cancelled, belfry.Unknown:
	default:
		return list, &Problem{Code: CodeMalformed, Field: "state", Detail: "want scheduled, sending, sent, dropped, failed, missed, cancelled or unknown"}
	}
	if f.Since, err = c.instant("since"); err != nil {
		return list, err
	}
	if f.Until, err = c.instant("until"); err != nil {
		return list, err
	}
	limit, err := c.limit()
	if err != nil {
		return list, err
	}
	var before belfry.ID
	if text := c.query.Get("cursor"); text != "" {
		if before, err = belfry.ParseID(text); err != nil {
			return list, errCursor
		}
	}
	found, next, err := s.Backend.Notifications(c.r.Context(), f, before, limit)
	if err != nil {
		return list, err
	}
	list.Notifications = make([]Summary, 0, len(found))
	for _, n := range found {
		list.Notifications = append(list.Notifications, summarize(n))
	}
	if next != 0 {
		list.Next = next.String()
	}
	return list, nil
}

var errCursor = &Problem{Code: CodeMalformed, Field: "cursor", Detail: "is not one that a page of this list gave; begin without"}

// Notification is the whole story of a notification.
type Notification struct {
	Summary
	DueLocal   string          `json:"due_local" doc:"The due time in the recipient's zone; in UTC when that is not known."`
	Data       json.RawMessage `json:"data,omitempty" doc:"The data it was enqueued with; absent when it is sensitive or was wiped."`
	Channels   []string        `json:"channels,omitempty" doc:"Channels or media it may take."`
	To         []TargetHint    `json:"to,omitempty" doc:"The destinations it was enqueued with."`
	Once       *belfry.Once    `json:"once,omitempty" doc:"How often its fact may be told."`
	Duplicates int             `json:"duplicates,omitempty" doc:"How often the same fact was enqueued again."`
	Deliveries []Delivery      `json:"deliveries" doc:"Its way to each endpoint."`
	Timeline   []Line          `json:"timeline" doc:"Every step in words."`
}

type TargetHint struct {
	Channel string `json:"channel" doc:"The channel."`
	Hint    string `json:"hint" doc:"The end of the address, to tell it from others."`
}

// Delivery is a delivery with its attempts.
type Delivery struct {
	ID       belfry.DeliveryID `json:"id" doc:"The delivery, as the receiver sees it on every attempt."`
	Channel  string            `json:"channel" doc:"The channel."`
	Endpoint belfry.ID         `json:"endpoint,omitempty" doc:"The endpoint; absent with a destination of to."`
	Target   int               `json:"target,omitempty" doc:"Which destination of to, from 1."`
	Device   string            `json:"device,omitempty" doc:"The device."`
	Hint     string            `json:"hint,omitempty" doc:"The end of the address, to tell it from others."`
	State    belfry.State      `json:"state" doc:"Where it stands."`
	Reason   belfry.Reason     `json:"reason,omitempty" doc:"Why it ended or waits."`
	Mode     belfry.Mode       `json:"mode" doc:"What is done when nobody can know whether a try was accepted."`
	Next     time.Time         `json:"next_at,omitzero" doc:"When it is tried, if it waits."`
	EndedAt  time.Time         `json:"ended_at,omitzero" doc:"When it ended."`
	Attempts []Attempt         `json:"attempts" doc:"Every try that may have reached the wire."`
}

type Attempt struct {
	N        int            `json:"n" doc:"The number of the try, from 1."`
	ArmedAt  time.Time      `json:"armed_at" doc:"From when it could reach the wire."`
	Answered time.Time      `json:"answered_at,omitzero" doc:"When its answer was there."`
	Outcome  belfry.Outcome `json:"outcome,omitempty" doc:"What it came to; absent while nobody knows."`
	Status   int            `json:"status,omitempty" doc:"The provider's HTTP or SMTP status."`
	Ref      string         `json:"ref,omitempty" doc:"The provider's own id for it."`
	Detail   string         `json:"detail,omitempty" doc:"More, for people."`
	After    string         `json:"retry_after,omitempty" doc:"How long the provider asked us to wait."`
	Lost     bool           `json:"lost,omitempty" doc:"Its worker was lost before it could note an answer."`
	Epoch    string         `json:"epoch" doc:"The number that a webhook receiver saw as Webhook-Epoch on it."`
}

func (s *server) getNotification(c *call) (Notification, error) {
	id, err := c.id("notification")
	if err != nil {
		return Notification{}, err
	}
	story, err := s.Backend.Notification(c.r.Context(), c.Project, id)
	if err != nil {
		return Notification{}, err
	}
	return tell(story), nil
}

func tell(s store.Story) Notification {
	loc := zoneOf(s)
	v := Notification{
		Summary: summarize(s.Summary), DueLocal: s.Due.In(loc).Format(time.RFC3339Nano), Channels: s.Channels, Once: s.Once,
		Duplicates: s.Duplicates, Deliveries: make([]Delivery, 0, len(s.Deliveries)), Timeline: Timeline(s),
	}
	if !s.Sensitive && len(s.Data) > 0 {
		v.Data = s.Data
	}
	for _, t := range s.To {
		v.To = append(v.To, TargetHint{t.Channel, t.Address.Hint()})
	}
	for _, d := range s.Deliveries {
		v.Deliveries = append(v.Deliveries, tellDelivery(s, d))
	}
	return v
}

func tellDelivery(s store.Story, d store.DeliveryStory) Delivery {
	v := Delivery{
		ID: d.ID, Channel: d.Channel, Endpoint: d.Delivery.Endpoint, Target: d.Target, Device: d.Device, Hint: hint(s, d),
		State: d.State, Reason: d.Reason, Mode: d.Mode, EndedAt: utc(d.EndedAt), Attempts: make([]Attempt, 0, len(d.Attempts)),
	}
	if d.State == belfry.Pending || d.State == belfry.Retry {
		v.Next = utc(d.Next)
	}
	for i, a := range d.Attempts {
		after := ""
		if a.After > 0 {
			after = belfry.Duration(a.After).String()
		}
		v.Attempts = append(v.Attempts, Attempt{i + 1, utc(a.ArmedAt), utc(a.Answered), a.Outcome, a.Status, a.Ref, a.Detail, after, a.Lost, strconv.FormatInt(int64(a.Claim), 10)})
	}
	return v
}

// hint is the end of a delivery's address, "" when it is not known any more.
func hint(s store.Story, d store.DeliveryStory) string {
	switch {
	case d.Target > 0 && d.Target <= len(s.To):
		return s.To[d.Target-1].Address.Hint()
	case d.Endpoint.ID != 0:
		return d.Endpoint.Address.Hint()
	}
	return ""
}

// Cancelled is the answer to a cancel that came in time.
type Cancelled struct {
	ID    belfry.ID    `json:"id" doc:"The notification."`
	State belfry.State `json:"state" enum:"cancelled" doc:"cancelled: it will reach nobody."`
}

// cancelOne answers POST /v1/notifications/{id}/cancel. A repeat is answered alike.
func (s *server) cancelOne(c *call) (v Cancelled, err error) {
	id, err := c.id("notification")
	if err != nil {
		return v, err
	}
	done, err := s.Backend.Cancel(c.r.Context(), store.Filter{Project: c.Project, ID: id}, false)
	switch {
	case err != nil:
		return v, err
	case len(done.Cancelled) > 0:
		return Cancelled{id, belfry.Cancelled}, nil
	case len(done.InFlight) > 0:
		return v, &Problem{
			Code: belfry.CodeInFlight, CancelRequested: true,
			Detail: "an attempt may be on the wire; there will be no other, and if that one is refused it ends cancelled",
		}
	}
	story, err := s.Backend.Notification(c.r.Context(), c.Project, id) // not found, or ended before
	if err != nil {
		return v, err
	}
	if story.State == belfry.Cancelled {
		return Cancelled{id, belfry.Cancelled}, nil
	}
	return v, &Problem{Code: belfry.CodeEnded, State: story.State, Detail: "it has ended already: " + string(story.State)}
}

// CancelRequest says what to cancel: everything that matches all that is given.
type CancelRequest struct {
	Recipient  string `json:"recipient,omitempty" doc:"Only those to this recipient."`
	Category   string `json:"category,omitempty" doc:"Only those of this category."`
	Subject    string `json:"subject,omitempty" doc:"Only those about this subject."`
	Everything bool   `json:"everything,omitempty" doc:"true, alone: all of the project."`
}

type CancelledCount struct {
	Cancelled int         `json:"cancelled" doc:"How many end without reaching anybody."`
	InFlight  []belfry.ID `json:"in_flight" doc:"Those with an attempt that may be on the wire: no promise, but no other attempt."`
	Ended     int         `json:"ended" doc:"How many had ended before."`
	More      bool        `json:"more" doc:"true: there may be others; call again."`
}

func (s *server) cancelMany(c *call, in CancelRequest) (v CancelledCount, err error) {
	dryRun, err := c.flag("dry_run")
	if err != nil {
		return v, err
	}
	some := in.Recipient != "" || in.Category != "" || in.Subject != ""
	if some == in.Everything {
		return v, belfry.Invalid("everything", "say what to cancel: some of recipient, category and subject, or everything alone")
	}
	f := store.Filter{Project: c.Project, Recipient: in.Recipient, Category: in.Category, Subject: in.Subject}
	done, err := s.Backend.Cancel(c.r.Context(), f, dryRun)
	if err != nil {
		return v, err
	}
	return CancelledCount{len(done.Cancelled), listed(done.InFlight), len(done.Ended), done.More}, nil
}

// listed is a list that JSON shows as [] when it is empty.
func listed[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
