package belfry_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"belfry"
)

var known = []string{"apns", "email", "fcm", "sms", "webhook"}

func note() belfry.Notification {
	return belfry.Notification{
		ID: 1, Project: "p", Recipient: "ana", Category: "price", Subject: "lamp",
		CreatedAt: noon, Due: noon, Deadline: noon.Add(time.Hour), Lane: belfry.Normal,
	}
}

func endpoint(id belfry.ID, channel string) belfry.Endpoint {
	return belfry.Endpoint{ID: id, Project: "p", Recipient: "ana", Channel: channel, Address: belfry.Secret(fmt.Sprint("address of ", id))}
}

// facts are those of a recipient with two phones and a mail address.
func facts(change ...func(f *belfry.Facts)) belfry.Facts {
	category := belfry.Category{Project: "p", Name: "price"}.Resolved()
	f := belfry.Facts{
		Category: &category, Recipient: &belfry.Recipient{Project: "p", ID: "ana"},
		Endpoints: []belfry.Endpoint{endpoint(11, "fcm"), endpoint(12, "email"), endpoint(13, "apns"), endpoint(14, "fcm")},
	}
	for _, c := range change {
		c(&f)
	}
	return f
}

func route(r belfry.Route, channels ...string) func(f *belfry.Facts) {
	return func(f *belfry.Facts) { f.Category.Route, f.Category.Channels = r, channels }
}

func prefers(category, channel string, on bool) func(f *belfry.Facts) {
	return func(f *belfry.Facts) {
		if f.Preferences == nil {
			f.Preferences = belfry.Preferences{}
		}
		if f.Preferences[category] == nil {
			f.Preferences[category] = map[string]bool{}
		}
		f.Preferences[category][channel] = on
	}
}

func suppress(channel string, id belfry.ID) func(f *belfry.Facts) {
	return func(f *belfry.Facts) {
		f.Suppressed = append(f.Suppressed, belfry.Suppression{Project: "p", Channel: channel, Address: endpoint(id, "").Address})
	}
}

func pause(p belfry.Pause) func(f *belfry.Facts) {
	return func(f *belfry.Facts) { f.Pauses = append(f.Pauses, p) }
}

func cooling(mark time.Duration, by belfry.ID) func(f *belfry.Facts) {
	return func(f *belfry.Facts) {
		f.Category.Cooldown = belfry.Duration(time.Hour)
		f.Mark = &belfry.Mark{At: noon.Add(-mark), Notification: by}
	}
}

// told writes a plan as one line.
func told(p belfry.Planned) string {
	switch p.State {
	case belfry.Scheduled:
		return fmt.Sprintf("held %s until %s", p.Reason, p.Hold.Format("15:04"))
	case belfry.Sending:
		var to []string
		for i, d := range p.Deliveries {
			s := fmt.Sprintf("%d:%s", d.ID.N, d.Channel)
			if d.Endpoint != 0 {
				s += fmt.Sprintf("/%d", d.Endpoint)
			}
			if d.Target != 0 {
				s += fmt.Sprintf("#%d", d.Target)
			}
			if d.Sole {
				s += " sole"
			}
			if d.Endpoint != p.Endpoints[i].ID || d.Channel != p.Endpoints[i].Channel {
				s += " MISMATCH"
			}
			to = append(to, s)
		}
		return fmt.Sprintf("%s, stage %d", strings.Join(to, " "), p.Stage)
	}
	return fmt.Sprintf("%s %s", p.State, p.Reason)
}

func TestPlanning(t *testing.T) {
	targets := func(list ...string) func(n *belfry.Notification) {
		return func(n *belfry.Notification) {
			for i, c := range list {
				n.To = append(n.To, belfry.Target{Channel: c, Address: endpoint(belfry.ID(21+i), "").Address})
			}
		}
	}
	for _, c := range []struct {
		what  string
		note  func(n *belfry.Notification)
		facts belfry.Facts
		stage int
		from  int
		now   time.Duration
		want  string
	}{
		{what: "all endpoints, by channel", facts: facts(), want: "1:apns/13 2:email/12 3:fcm/11 4:fcm/14, stage 5"},
		{what: "the category's channels", facts: facts(route(belfry.RouteAll, "email")), want: "1:email/12 sole, stage 1"},
		{what: "the category's media", facts: facts(route(belfry.RouteAll, "push")), want: "1:apns/13 2:fcm/11 3:fcm/14, stage 2"},
		{what: "its own channels win", facts: facts(route(belfry.RouteAll, "email")), note: func(n *belfry.Notification) { n.Channels = []string{"apns"} }, want: "1:apns/13 sole, stage 1"},
		{what: "ordinals go on", facts: facts(route(belfry.RouteAll, "email")), from: 4, want: "5:email/12, stage 1"},

		{what: "first takes the first", facts: facts(route(belfry.RouteFirst, "email", "push")), want: "1:email/12, stage 1"},
		{what: "first takes the first that has an endpoint", facts: facts(route(belfry.RouteFirst, "sms", "email", "push")), want: "1:email/12, stage 2"},
		{what: "first goes on after a failure", facts: facts(route(belfry.RouteFirst, "email", "push")), stage: 1, from: 1, want: "2:apns/13, stage 2"},
		{what: "first goes on to all endpoints of a channel", facts: facts(route(belfry.RouteFirst, "email", "fcm")), stage: 1, from: 1, want: "2:fcm/11 3:fcm/14, stage 2"},
		{what: "first knows its last", facts: facts(route(belfry.RouteFirst, "sms", "email")), want: "1:email/12 sole, stage 2"},
		{what: "first comes to its end", facts: facts(route(belfry.RouteFirst, "email", "sms")), stage: 1, from: 1, want: "dropped no_endpoint"},
		{what: "first passes over what is switched off", facts: facts(route(belfry.RouteFirst, "email", "apns"), prefers("price", "email", false)), want: "1:apns/13 sole, stage 2"},
		{what: "no ordinal is left", facts: facts(route(belfry.RouteFirst, "email", "apns")), stage: 1, from: belfry.MaxDeliveries, want: "dropped no_endpoint"},

		{what: "targets and nowhere else", facts: facts(), note: targets("email", "sms"), want: "1:email#1 2:sms#2, stage 2"},
		{what: "one target", facts: facts(), note: targets("email"), want: "1:email#1 sole, stage 1"},
		{what: "a target on no channel", facts: facts(), note: targets("fax"), want: "dropped channel_gone"},
		{what: "a target keeps its index", facts: facts(), note: targets("fax", "sms"), want: "1:sms#2 sole, stage 2"},
		{what: "a suppressed target", facts: facts(suppress("email", 21)), note: targets("email"), want: "dropped suppressed"},
		{what: "a target that is switched off", facts: facts(prefers("*", "email", false)), note: targets("email"), want: "dropped opted_out"},
		{what: "targets need no recipient", facts: facts(func(f *belfry.Facts) { f.Recipient = nil }), note: targets("email"), want: "1:email#1 sole, stage 1"},

		{what: "past its deadline", facts: facts(), now: time.Hour + 1, want: "missed deadline"},
		{what: "at its deadline", facts: facts(route(belfry.RouteAll, "email")), now: time.Hour, want: "1:email/12 sole, stage 1"},
		{what: "category gone", facts: facts(func(f *belfry.Facts) { f.Category = nil }), want: "dropped category_gone"},
		{what: "recipient gone", facts: facts(func(f *belfry.Facts) { f.Recipient = nil }), want: "dropped recipient_gone"},
		{what: "channel gone", facts: facts(route(belfry.RouteAll, "fax")), want: "dropped channel_gone"},
		{what: "no endpoint", facts: facts(route(belfry.RouteAll, "sms")), want: "dropped no_endpoint"},
		{what: "a retired endpoint is none", facts: facts(route(belfry.RouteAll, "email"), func(f *belfry.Facts) { f.Endpoints[1].RetiredAt = noon }), want: "dropped no_endpoint"},

		{what: "switched off", facts: facts(prefers("price", "*", false)), want: "dropped opted_out"},
		{what: "switched off on one channel", facts: facts(prefers("price", "push", false)), want: "1:email/12 sole, stage 5"},
		{what: "always cannot be switched off", facts: facts(route(belfry.RouteAll, "email"), prefers("price", "*", false), func(f *belfry.Facts) { f.Category.Consent = belfry.Always }), want: "1:email/12 sole, stage 1"},
		{what: "opt-in needs a word", facts: facts(func(f *belfry.Facts) { f.Category.Consent = belfry.OptIn }), want: "dropped opted_out"},
		{what: "opt-in with a word", facts: facts(prefers("price", "apns", true), func(f *belfry.Facts) { f.Category.Consent = belfry.OptIn }), want: "1:apns/13 sole, stage 5"},

		{what: "one address suppressed", facts: facts(route(belfry.RouteAll, "push"), suppress("fcm", 11)), want: "1:apns/13 2:fcm/14, stage 2"},
		{what: "every address suppressed", facts: facts(route(belfry.RouteAll, "email"), suppress("email", 12)), want: "dropped suppressed"},
		{what: "suppressed by medium", facts: facts(route(belfry.RouteAll, "fcm"), suppress("push", 11)), want: "1:fcm/14 sole, stage 1"},
		{what: "suppressed elsewhere", facts: facts(route(belfry.RouteAll, "email"), suppress("sms", 12)), want: "1:email/12 sole, stage 1"},

		{what: "paused", facts: facts(pause(belfry.Pause{})), want: "held paused until 13:00"},
		{what: "paused for a while", facts: facts(pause(belfry.Pause{Project: "p", Category: "price", Until: noon.Add(time.Minute)})), want: "held paused until 12:01"},
		{what: "a pause that is over", facts: facts(route(belfry.RouteAll, "email"), pause(belfry.Pause{Until: noon})), want: "1:email/12 sole, stage 1"},
		{what: "another category paused", facts: facts(route(belfry.RouteAll, "email"), pause(belfry.Pause{Category: "news"})), want: "1:email/12 sole, stage 1"},
		{what: "another project paused", facts: facts(route(belfry.RouteAll, "email"), pause(belfry.Pause{Project: "q"})), want: "1:email/12 sole, stage 1"},
		{what: "a paused channel does not hold the notification", facts: facts(route(belfry.RouteAll, "email"), pause(belfry.Pause{Channel: "email"})), want: "1:email/12 sole, stage 1"},

		{what: "cooling", facts: facts(cooling(59*time.Minute, 9)), want: "dropped cooldown"},
		{what: "cooled", facts: facts(route(belfry.RouteAll, "email"), cooling(time.Hour, 9)), want: "1:email/12 sole, stage 1"},
		{what: "its own mark", facts: facts(route(belfry.RouteAll, "email"), cooling(0, 1)), want: "1:email/12 sole, stage 1"},

		{what: "the deadline before all", facts: facts(pause(belfry.Pause{}), func(f *belfry.Facts) { f.Category = nil }), now: 2 * time.Hour, want: "missed deadline"},
		{what: "a pause before the cooldown", facts: facts(pause(belfry.Pause{}), cooling(0, 9)), want: "held paused until 13:00"},
	} {
		n := note()
		if c.note != nil {
			c.note(&n)
		}
		if got := told(belfry.Plan(n, c.facts, c.stage, c.from, known, noon.Add(c.now))); got != c.want {
			t.Errorf("%s: %s, want %s", c.what, got, c.want)
		}
	}
}

func TestAPlannedDeliveryHasTheTimesAndTheModeOfItsNotification(t *testing.T) {
	n := note()
	p := belfry.Plan(n, facts(route(belfry.RouteAll, "email", "sms"), func(f *belfry.Facts) {
		f.Endpoints = append(f.Endpoints, endpoint(15, "sms"))
	}), 0, 0, known, noon)
	for _, d := range p.Deliveries {
		want := map[string]belfry.Mode{"email": belfry.AtLeastOnce, "sms": belfry.AtMostOnce}[d.Channel]
		if d.State != belfry.Pending || d.ID.Notification != n.ID || !d.Next.Equal(n.Due) || !d.Deadline.Equal(n.Deadline) || d.Mode != want {
			t.Errorf("%+v", d)
		}
	}
}

func TestAThousandEndpointsGetNoMoreThanTheMost(t *testing.T) {
	f := facts(route(belfry.RouteAll, "fcm"), func(f *belfry.Facts) {
		for i := range belfry.MaxDeliveries + 1 {
			f.Endpoints = append(f.Endpoints, endpoint(belfry.ID(100+i), "fcm"))
		}
	})
	p := belfry.Plan(note(), f, 0, 0, known, noon)
	if len(p.Deliveries) != belfry.MaxDeliveries || len(p.Endpoints) != belfry.MaxDeliveries {
		t.Errorf("%d deliveries to %d endpoints", len(p.Deliveries), len(p.Endpoints))
	}
}

func TestPlanningChangesNoFact(t *testing.T) {
	f := facts()
	was := slices.Clone(f.Endpoints)
	belfry.Plan(note(), f, 0, 0, known, noon)
	for i, e := range f.Endpoints {
		if e.ID != was[i].ID {
			t.Errorf("endpoint %d is %d, was %d", i, e.ID, was[i].ID)
		}
	}
}

func TestWhatForbidsADelivery(t *testing.T) {
	d := belfry.Delivery{Channel: "email", Endpoint: 12}
	for _, c := range []struct {
		what  string
		facts belfry.Facts
		want  belfry.Reason
	}{
		{"nothing", facts(), ""},
		{"category gone", facts(func(f *belfry.Facts) { f.Category = nil }), belfry.ReasonCategoryGone},
		{"recipient gone", facts(func(f *belfry.Facts) { f.Recipient = nil }), belfry.ReasonRecipientGone},
		{"switched off", facts(prefers("*", "*", false)), belfry.ReasonOptedOut},
		{"switched off but always", facts(prefers("*", "*", false), func(f *belfry.Facts) { f.Category.Consent = belfry.Always }), ""},
		{"endpoint gone", facts(func(f *belfry.Facts) { f.Endpoints = nil }), belfry.ReasonEndpointRetired},
		{"endpoint retired", facts(func(f *belfry.Facts) { f.Endpoints[1].RetiredAt = noon }), belfry.ReasonEndpointRetired},
		{"endpoint changed hands", facts(func(f *belfry.Facts) { f.Endpoints[1].Recipient = "ben" }), belfry.ReasonEndpointRetired},
		{"suppressed", facts(suppress("email", 12)), belfry.ReasonSuppressed},
		{"cooling", facts(cooling(time.Minute, 9)), belfry.ReasonCooldown},
		{"cooling by itself", facts(cooling(time.Minute, 1)), ""},
		{"in shadow", facts(func(f *belfry.Facts) { f.Category.Shadow = true }), belfry.ReasonShadow},
	} {
		n := note()
		if got := c.facts.Forbids(n, d, c.facts.EndpointOf(n, d), noon); got != c.want {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
	}
}

func TestATargetIsAnEndpointOfItsNotificationAlone(t *testing.T) {
	n := note()
	n.To = []belfry.Target{{Channel: "email", Address: "ana@example.org"}}
	f := facts(func(f *belfry.Facts) { f.Recipient, f.Endpoints = nil, nil })
	e := f.EndpointOf(n, belfry.Delivery{Channel: "email", Target: 1})
	if e == nil || e.Address != "ana@example.org" || e.ID != 0 {
		t.Fatalf("the endpoint is %+v", e)
	}
	if got := f.Forbids(n, belfry.Delivery{Channel: "email", Target: 1}, e, noon); got != "" {
		t.Errorf("forbidden: %s", got)
	}
	if e := f.EndpointOf(n, belfry.Delivery{Channel: "email", Target: 2}); e != nil {
		t.Errorf("a target that is not there has the endpoint %+v", e)
	}
}

func TestWhatAPauseCovers(t *testing.T) {
	for _, c := range []struct {
		pause belfry.Pause
		want  bool
	}{
		{belfry.Pause{}, true},
		{belfry.Pause{Project: "p"}, true},
		{belfry.Pause{Project: "q"}, false},
		{belfry.Pause{Category: "price"}, true},
		{belfry.Pause{Category: "news"}, false},
		{belfry.Pause{Channel: "fcm"}, true},
		{belfry.Pause{Channel: "push"}, true},
		{belfry.Pause{Channel: "email"}, false},
		{belfry.Pause{App: "shop"}, true},
		{belfry.Pause{App: "bank"}, false},
		{belfry.Pause{Until: noon.Add(1)}, true},
		{belfry.Pause{Until: noon}, false},
		{belfry.Pause{Project: "p", Category: "price", Channel: "push", App: "shop", Until: noon.Add(1)}, true},
	} {
		e := endpoint(11, "fcm")
		e.App = "shop"
		f := facts(pause(c.pause))
		if got := f.Paused(note(), belfry.Delivery{Channel: "fcm"}, &e, noon) != nil; got != c.want {
			t.Errorf("%+v: %v", c.pause, got)
		}
	}
}

func TestAPauseWithAWrongFieldIsRefused(t *testing.T) {
	for _, c := range []struct {
		pause belfry.Pause
		want  string
	}{
		{belfry.Pause{Reason: "outage"}, ""},
		{belfry.Pause{Reason: "outage", Channel: "push", Until: noon.Add(1)}, ""},
		{belfry.Pause{}, "reason"},
		{belfry.Pause{Reason: "outage", Channel: "fax"}, "channel"},
		{belfry.Pause{Reason: "outage", Until: noon}, "until"},
	} {
		if got := field(c.pause.Check(known, noon)); got != c.want {
			t.Errorf("%+v: %q, want %q", c.pause, got, c.want)
		}
	}
}
