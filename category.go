package belfry

import (
	"net/url"
	"slices"
	"time"
)

// Category is a kind of notification and the policy that hangs on it. Zero fields take the defaults that
// [Category.Resolved] fills in.
type Category struct {
	Project   string       `json:"-"`
	Name      string       `json:"name"`
	Channels  []string     `json:"channels,omitempty"` // channels or media, the first preferred; empty: all
	Route     Route        `json:"route,omitempty"`
	Consent   Consent      `json:"consent,omitempty"`
	Lane      Lane         `json:"lane,omitempty"`
	Delivery  Mode         `json:"delivery,omitempty"` // empty: at_least_once, but at_most_once in bulk and for SMS
	Check     *CheckPolicy `json:"check,omitempty"`
	ExpiresIn Duration     `json:"expires_in,omitempty"`
	Cooldown  Duration     `json:"cooldown,omitempty"`
	Retry     RetryPolicy  `json:"retry,omitzero"`
	Sensitive bool         `json:"sensitive,omitempty"` // data and text are hidden everywhere and wiped at the end
	Shadow    bool         `json:"shadow,omitempty"`    // do everything except the send
	Templates Templates    `json:"templates,omitempty"`
	UpdatedAt time.Time    `json:"updated_at,omitzero"`
}

// Templates are the text templates of a category by field of [Content]: title, body, link, image.
type Templates map[string]string

// CheckPolicy says how a category's notifications are rechecked over HTTP.
type CheckPolicy struct {
	URL     string       `json:"url"`
	Timeout Duration     `json:"timeout,omitempty"`  // default 3s, at most 30s
	OnError OnCheckError `json:"on_error,omitempty"` // default retry
}

// Route says how many channels a notification takes.
type Route string

const (
	RouteAll   Route = "all"   // every allowed channel
	RouteFirst Route = "first" // the next channel only when the one before had no endpoint or definitely failed
)

// Lane keeps kinds of traffic from delaying each other.
type Lane string

const (
	Urgent Lane = "urgent"
	Normal Lane = "normal"
	Bulk   Lane = "bulk"
)

// Lanes lists the lanes, the most pressing first. A lane's index is its rank.
var Lanes = []Lane{Urgent, Normal, Bulk}

// Mode is what to do when nobody can know whether a try was accepted.
type Mode string

const (
	AtLeastOnce Mode = "at_least_once" // try again, with the same id and bytes: it may arrive twice
	AtMostOnce  Mode = "at_most_once"  // stop, and say unknown: it may not have arrived
)

var laneDefaults = map[Lane]struct {
	expires Duration
	retry   RetryPolicy
}{
	Urgent: {Duration(15 * time.Minute), RetryPolicy{Duration(2 * time.Second), 2, Duration(30 * time.Second), 8}},
	Normal: {Duration(6 * time.Hour), RetryPolicy{Duration(30 * time.Second), 2, Duration(30 * time.Minute), 8}},
	Bulk:   {Duration(24 * time.Hour), RetryPolicy{Duration(30 * time.Second), 2, Duration(30 * time.Minute), 8}},
}

const (
	defaultCheckTimeout = Duration(3 * time.Second)
	maxCheckTimeout     = Duration(30 * time.Second)
	maxExpiry           = Duration(366 * 24 * time.Hour)
	maxTemplate         = 16 << 10
)

// DefaultCategory is the category that every project has from the start.
func DefaultCategory(project string) Category {
	return Category{Project: project, Name: "default", ExpiresIn: Duration(24 * time.Hour)}
}

// Resolved is the category with every default filled in.
func (c Category) Resolved() Category {
	set := func(to *Duration, d Duration) {
		if *to == 0 {
			*to = d
		}
	}
	if c.Lane == "" {
		c.Lane = Normal
	}
	if c.Route == "" {
		c.Route = RouteAll
	}
	if c.Consent == "" {
		c.Consent = OptOut
	}
	d := laneDefaults[c.Lane]
	set(&c.ExpiresIn, d.expires)
	set(&c.Retry.First, d.retry.First)
	set(&c.Retry.Max, max(d.retry.Max, c.Retry.First))
	if c.Retry.Factor == 0 {
		c.Retry.Factor = d.retry.Factor
	}
	if c.Retry.Attempts == 0 {
		c.Retry.Attempts = d.retry.Attempts
	}
	if c.Check != nil {
		check := *c.Check
		set(&check.Timeout, defaultCheckTimeout)
		if check.OnError == "" {
			check.OnError = CheckErrorRetry
		}
		c.Check = &check
	}
	return c
}

// ModeOn is the delivery mode of the category on a channel: its own, else at_most_once for SMS and in the
// bulk lane, else at_least_once.
func (c Category) ModeOn(channel string) Mode {
	switch {
	case c.Delivery != "":
		return c.Delivery
	case MediumOf(channel) == "sms" || c.Lane == Bulk:
		return AtMostOnce
	}
	return AtLeastOnce
}

// Validate refuses a category with a wrong field. known lists the channels that are configured; a category may
// name those or their media.
func (c Category) Validate(known []string) error {
	if err := CheckSlug("name", c.Name); err != nil {
		return err
	}
	if err := CheckChannels("channels", c.Channels, known); err != nil {
		return err
	}
	if err := oneOf("route", c.Route, "", RouteAll, RouteFirst); err != nil {
		return err
	}
	if err := oneOf("consent", c.Consent, "", OptOut, OptIn, Always); err != nil {
		return err
	}
	if err := oneOf("lane", c.Lane, "", Urgent, Normal, Bulk); err != nil {
		return err
	}
	if err := oneOf("delivery", c.Delivery, "", AtLeastOnce, AtMostOnce); err != nil {
		return err
	}
	if c.ExpiresIn < 0 || c.ExpiresIn > maxExpiry {
		return Invalid("expires_in", "want more than 0s and at most %v", maxExpiry)
	}
	if c.Cooldown < 0 || c.Cooldown > maxExpiry {
		return Invalid("cooldown", "want 0s to %v", maxExpiry)
	}
	if err := c.Retry.Check(); err != nil {
		return In("retry", err)
	}
	for name, text := range c.Templates {
		if len(text) > maxTemplate {
			return Invalid("templates."+name, "is %d bytes long, the limit is %d", len(text), maxTemplate)
		}
	}
	if c.Check == nil {
		return nil
	}
	u, err := url.Parse(c.Check.URL)
	if err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Host == "" || u.User != nil || u.Fragment != "" {
		return Invalid("check.url", "want an http or https URL without user or fragment")
	}
	if c.Check.Timeout < 0 || c.Check.Timeout > maxCheckTimeout {
		return Invalid("check.timeout", "want more than 0s and at most %v", maxCheckTimeout)
	}
	return oneOf("check.on_error", c.Check.OnError, "", CheckErrorRetry, CheckErrorDrop, CheckErrorSend)
}

// CheckChannels refuses names that are neither a known channel nor the medium of one, and repeats.
func CheckChannels(field string, names, known []string) error {
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			return Invalid(field, "names %q twice", name)
		}
		if !slices.ContainsFunc(known, func(channel string) bool { return Matches(name, channel) }) {
			return &Error{CodeUnknownChannel, field, "no channel or medium " + quote(name) + " is configured"}
		}
	}
	return nil
}

func oneOf[T ~string](field string, v T, allowed ...T) error {
	if slices.Contains(allowed, v) {
		return nil
	}
	list := ""
	for _, a := range allowed {
		if a != "" {
			list += " " + string(a)
		}
	}
	return Invalid(field, "is not one of:%s", list)
}
