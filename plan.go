package belfry

import (
	"cmp"
	"slices"
	"time"
)

// Facts is everything stored that bears on whether, where and how something is sent, read in one
// snapshot. A nil pointer means: there is none (any more).
type Facts struct {
	Category    *Category // resolved
	Recipient   *Recipient
	Preferences Preferences
	Endpoints   []Endpoint    // the recipient's active ones
	Suppressed  []Suppression // those of the project that touch one of the endpoints or targets
	Pauses      []Pause       // those of the project and of everything, whatever their end
	Mark        *Mark         // what was last sent about the subject
}

// Pause is the stop button: what it covers waits, and expires by its own deadline.
type Pause struct {
	ID       ID        `json:"id"`
	Project  string    `json:"-"`                  // empty: every project
	Category string    `json:"category,omitempty"` // empty: every category
	Channel  string    `json:"channel,omitempty"`  // a channel or a medium; empty: every channel
	App      string    `json:"app,omitempty"`      // empty: every app
	Reason   string    `json:"reason"`
	Until    time.Time `json:"until,omitzero"` // zero: until it is lifted
	At       time.Time `json:"at"`
}

// Covers says that the pause holds a send. An empty channel asks about the notification as a whole, which
// a pause of one channel or app does not hold.
func (p Pause) Covers(project, category, channel, app string, now time.Time) bool {
	return (p.Project == "" || p.Project == project) &&
		(p.Category == "" || p.Category == category) &&
		(p.Channel == "" || channel != "" && Matches(p.Channel, channel)) &&
		(p.App == "" || channel != "" && p.App == app) &&
		(p.Until.IsZero() || now.Before(p.Until))
}

// Check refuses a pause with a wrong field.
func (p Pause) Check(known []string, now time.Time) error {
	if p.Reason == "" || len(p.Reason) > MaxName {
		return Invalid("reason", "want 1 to %d bytes", MaxName)
	}
	if p.Channel != "" {
		if err := CheckChannels("channel", []string{p.Channel}, known); err != nil {
			return err
		}
	}
	if !p.Until.IsZero() && !p.Until.After(now) {
		return Invalid("until", "has passed already")
	}
	return nil
}

func (f Facts) paused(n Notification, channel, app string, now time.Time) *Pause {
	for i, p := range f.Pauses {
		if p.Covers(n.Project, n.Category, channel, app, now) {
			return &f.Pauses[i]
		}
	}
	return nil
}

func (f Facts) suppressed(channel string, address Secret) bool {
	return slices.ContainsFunc(f.Suppressed, func(s Suppression) bool { return s.AppliesTo(channel, address) })
}

// Planned is what [Plan] decided for a notification that is due.
type Planned struct {
	State      State     // Scheduled: see Hold; an end: see Reason; Sending: see Deliveries
	Reason     Reason    // why it ended or is held
	Hold       time.Time // when held: when to look again; its deadline at the latest
	Stage      int       // with route first: the channel to begin with when these deliveries fail
	Deliveries []Delivery
	Endpoints  []Endpoint // the endpoint of each delivery
}

// Plan decides what becomes of a notification at its due time, from what holds then. stage is how many
// channels of a route first have been tried, from is the number of deliveries it has had. known lists the
// configured channels. A notification that is not due yet is planned as if it were: see [Delivery.Arm].
func Plan(n Notification, f Facts, stage, from int, known []string, now time.Time) Planned {
	end := func(s State, r Reason) Planned { return Planned{State: s, Reason: r} }
	if now.After(n.Deadline) {
		return end(Missed, ReasonDeadline)
	}
	if f.Category == nil {
		return end(Dropped, ReasonCategoryGone)
	}
	if f.Recipient == nil && len(n.To) == 0 {
		return end(Dropped, ReasonRecipientGone)
	}
	if p := f.paused(n, "", "", now); p != nil {
		return Planned{State: Scheduled, Reason: ReasonPaused, Hold: p.Ends(n.Deadline)}
	}
	if f.cooling(n, now) {
		return end(Dropped, ReasonCooldown)
	}
	channels := n.route(*f.Category, known)
	if len(n.To) > 0 {
		return planTargets(n, f, known)
	}
	if len(channels) == 0 {
		return end(Dropped, ReasonChannelGone)
	}
	wanted := slices.ContainsFunc(channels, func(channel string) bool { return f.allows(n, channel) })
	if !wanted {
		return end(Dropped, ReasonOptedOut)
	}
	why := ReasonNoEndpoint
	var picked []Endpoint
	for i, channel := range channels {
		if i < stage || !f.allows(n, channel) {
			continue
		}
		for _, e := range f.Endpoints {
			switch {
			case e.Channel != channel || !e.Active():
			case f.suppressed(e.Channel, e.Address):
				why = ReasonSuppressed
			default:
				picked = append(picked, e)
			}
		}
		if f.Category.Route == RouteFirst && len(picked) > 0 {
			return deliver(n, f, picked, from, i+1, i+1 == len(channels))
		}
	}
	if len(picked) == 0 {
		return end(Dropped, why)
	}
	return deliver(n, f, picked, from, len(channels), true)
}

// planTargets plans the deliveries of a notification whose destinations its caller named.
func planTargets(n Notification, f Facts, known []string) Planned {
	why := ReasonChannelGone
	p := Planned{State: Sending, Stage: len(n.To)}
	for i, t := range n.To {
		switch {
		case !slices.Contains(known, t.Channel):
		case !f.allows(n, t.Channel):
			why = ReasonOptedOut
		case f.suppressed(t.Channel, t.Address):
			why = ReasonSuppressed
		default:
			d := f.delivery(n, n.target(i+1), len(p.Deliveries)+1)
			d.Target = i + 1
			p.Endpoints, p.Deliveries = append(p.Endpoints, n.target(i+1)), append(p.Deliveries, d)
		}
	}
	if len(p.Deliveries) == 0 {
		return Planned{State: Dropped, Reason: why}
	}
	p.Deliveries[0].Sole = len(p.Deliveries) == 1
	return p
}

// target is the endpoint that the i-th destination of the notification stands for. It has no id.
func (n Notification) target(i int) Endpoint {
	t := n.To[i-1]
	return Endpoint{Project: n.Project, Recipient: n.Recipient, Channel: t.Channel, Address: t.Address, Keys: t.Keys, RegisteredAt: n.CreatedAt}
}

// Ends is when a pause stops holding something with this deadline: at its own end, or with the deadline.
func (p Pause) Ends(deadline time.Time) time.Time {
	if p.Until.IsZero() || p.Until.After(deadline) {
		return deadline
	}
	return p.Until
}

// deliver plans one delivery per endpoint. last says that no stage of a route first is left after this one.
func deliver(n Notification, f Facts, endpoints []Endpoint, from, stage int, last bool) Planned {
	slices.SortStableFunc(endpoints, func(a, b Endpoint) int { return cmp.Compare(a.Channel, b.Channel) })
	room := MaxDeliveries - from
	if room <= 0 {
		return Planned{State: Dropped, Reason: ReasonNoEndpoint}
	}
	endpoints = endpoints[:min(room, len(endpoints))]
	p := Planned{State: Sending, Stage: stage, Endpoints: endpoints, Deliveries: make([]Delivery, len(endpoints))}
	for i, e := range endpoints {
		p.Deliveries[i] = f.delivery(n, e, from+i+1)
	}
	p.Deliveries[0].Sole = last && from == 0 && len(endpoints) == 1
	return p
}

// delivery is T1, ∅ → pending: the ordinal-th delivery of a notification, to one endpoint.
func (f Facts) delivery(n Notification, e Endpoint, ordinal int) Delivery {
	return Delivery{
		ID: DeliveryID{n.ID, ordinal}, State: Pending, Mode: f.Category.ModeOn(e.Channel),
		Channel: e.Channel, Endpoint: e.ID, Device: e.Device, Next: n.Due, Deadline: n.Deadline,
	}
}

func (f Facts) allows(n Notification, channel string) bool {
	return f.Preferences.Allows(f.Category.Consent, n.Category, channel)
}

// Forbids says why a delivery that was planned must not be sent as things stand now, or "".
// endpoint is its endpoint as it stands now, nil when it is gone.
func (f Facts) Forbids(n Notification, d Delivery, endpoint *Endpoint, now time.Time) Reason {
	switch {
	case f.Category == nil:
		return ReasonCategoryGone
	case f.Recipient == nil && len(n.To) == 0:
		return ReasonRecipientGone
	case !f.allows(n, d.Channel):
		return ReasonOptedOut
	case endpoint == nil || !endpoint.Active() || endpoint.Recipient != n.Recipient:
		return ReasonEndpointRetired
	case f.suppressed(d.Channel, endpoint.Address):
		return ReasonSuppressed
	case f.cooling(n, now):
		return ReasonCooldown
	case f.Category.Shadow:
		return ReasonShadow
	}
	return ""
}

// Paused is the pause that holds a delivery now, or nil.
func (f Facts) Paused(n Notification, d Delivery, endpoint *Endpoint, now time.Time) *Pause {
	app := ""
	if endpoint != nil {
		app = endpoint.App
	}
	return f.paused(n, d.Channel, app, now)
}

// EndpointOf is the endpoint of a delivery as the facts have it: the recipient's, or the target that the
// notification names. Nil when it is not there any more.
func (f Facts) EndpointOf(n Notification, d Delivery) *Endpoint {
	if d.Target > 0 {
		if d.Target > len(n.To) {
			return nil
		}
		e := n.target(d.Target)
		return &e
	}
	for i := range f.Endpoints {
		if f.Endpoints[i].ID == d.Endpoint {
			return &f.Endpoints[i]
		}
	}
	return nil
}

// cooling says that another notification about the subject was sent within the category's cooldown. A
// notification never sees its own mark, so its other deliveries go on after the first was sent.
func (f Facts) cooling(n Notification, now time.Time) bool {
	return f.Category.Cooldown > 0 && f.Mark != nil && f.Mark.Notification != n.ID &&
		now.Before(f.Mark.At.Add(f.Category.Cooldown.Std()))
}
