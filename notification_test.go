package belfry_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/google/go-cmp/cmp"

	"belfry"
)

// field is the field that an error names; "" without an error.
func field(err error) string {
	if err == nil {
		return ""
	}
	e, ok := errors.AsType[*belfry.Error](err)
	if !ok {
		return "not for the caller: " + err.Error()
	}
	return e.Field
}

func request() belfry.Request {
	return belfry.Request{Project: "p", Recipient: "ana", Subject: "lamp", Data: json.RawMessage(`{"price":3}`)}
}

func notify(r belfry.Request) (belfry.Notification, error) {
	return belfry.Notify(1, r, belfry.Category{Name: "price", Sensitive: true}.Resolved(), known, noon.Add(123))
}

func TestARequestBecomesANotification(t *testing.T) {
	got, err := notify(request())
	want := belfry.Notification{
		ID: 1, Project: "p", Recipient: "ana", Category: "price", Subject: "lamp", Data: json.RawMessage(`{"price":3}`),
		CreatedAt: noon, Due: noon, Deadline: noon.Add(6 * time.Hour), Lane: belfry.Normal, Sensitive: true,
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
}

func TestABadFieldIsNamed(t *testing.T) {
	long := strings.Repeat("x", 256)
	for _, c := range []struct {
		want   string
		change func(r *belfry.Request)
	}{
		{"recipient", func(r *belfry.Request) { r.Recipient = "" }},
		{"recipient", func(r *belfry.Request) { r.Recipient = long }},
		{"recipient", func(r *belfry.Request) { r.Recipient = "a\x00" }},
		{"recipient", func(r *belfry.Request) { r.Recipient = "\xff" }},
		{"subject", func(r *belfry.Request) { r.Subject = long }},
		{"subject", func(r *belfry.Request) { r.Subject = "a\nb" }},
		{"data", func(r *belfry.Request) { r.Data = json.RawMessage(`[1]`) }},
		{"data", func(r *belfry.Request) { r.Data = json.RawMessage(`{`) }},
		{"data", func(r *belfry.Request) { r.Data = json.RawMessage(`  `) }},
		{"data", func(r *belfry.Request) {
			r.Data = json.RawMessage(`{"a":"` + strings.Repeat("x", belfry.MaxData) + `"}`)
		}},
		{"channels", func(r *belfry.Request) { r.Channels = []string{"fax"} }},
		{"channels", func(r *belfry.Request) { r.Channels = []string{"email", "email"} }},
		{"to", func(r *belfry.Request) { r.To = make([]belfry.Target, belfry.MaxDeliveries+1) }},
		{"to.0.channel", func(r *belfry.Request) { r.To = []belfry.Target{{Channel: "fax", Address: "1"}} }},
		{"to.0.channel", func(r *belfry.Request) { r.To = []belfry.Target{{Channel: "push", Address: "1"}} }},
		{"to.1.address", func(r *belfry.Request) {
			r.To = []belfry.Target{{Channel: "email", Address: "1"}, {Channel: "email"}}
		}},
		{"to.0.address", func(r *belfry.Request) {
			r.To = []belfry.Target{{Channel: "email", Address: belfry.Secret(strings.Repeat("x", belfry.MaxAddress+1))}}
		}},
		{"once.per", func(r *belfry.Request) { r.Once = &belfry.Once{} }},
		{"once.per", func(r *belfry.Request) { r.Once = &belfry.Once{Per: "month"} }},
		{"once.key", func(r *belfry.Request) { r.Once = &belfry.Once{Per: belfry.Ever, Key: long} }},
		{"once.key", func(r *belfry.Request) { r.Once = &belfry.Once{Per: belfry.Ever, Key: "a\x00b"} }},
		{"once.date", func(r *belfry.Request) { r.Once = &belfry.Once{Per: belfry.PerDay, Date: "2026-02-29"} }},
		{"once.date", func(r *belfry.Request) { r.Once = &belfry.Once{Per: belfry.PerHour, Date: "2026-12-01"} }},
		{"once.release_on", func(r *belfry.Request) {
			r.Once = &belfry.Once{Per: belfry.PerDay, ReleaseOn: []belfry.State{belfry.Pending}}
		}},
		{"at", func(r *belfry.Request) { r.At = noon.Add(11 * 366 * 24 * time.Hour) }},
		{"at", func(r *belfry.Request) { r.At = noon.Add(-11 * 366 * 24 * time.Hour) }},
		{"expires_in", func(r *belfry.Request) { r.ExpiresIn = -1 }},
		{"expires_in", func(r *belfry.Request) { r.ExpiresIn = belfry.Duration(367 * 24 * time.Hour) }},
		{"expires_in", func(r *belfry.Request) { r.ExpiresIn, r.Deadline = 1, noon.Add(time.Hour) }},
		{"deadline", func(r *belfry.Request) { r.Deadline = noon }},
		{"deadline", func(r *belfry.Request) { r.Deadline = noon.Add(367 * 24 * time.Hour) }},
		{"deadline", func(r *belfry.Request) { r.At, r.Deadline = noon.Add(2*time.Hour), noon.Add(time.Hour) }},
		{"deadline", func(r *belfry.Request) { r.At = noon.Add(-7 * time.Hour) }},
		{"deadline", func(r *belfry.Request) { r.At, r.Deadline = noon.Add(-7*time.Hour), noon.Add(-time.Hour) }},
	} {
		r := request()
		c.change(&r)
		_, err := notify(r)
		if got := field(err); got != c.want {
			t.Errorf("%v: names %q, want %q", err, got, c.want)
		}
	}
}

func TestTheDeadlineIsTheCallersOrTheCategorys(t *testing.T) {
	for _, c := range []struct {
		what          string
		at            time.Duration
		in            time.Duration
		deadline      time.Duration
		due, expected time.Duration
	}{
		{"now", 0, 0, 0, 0, 6 * time.Hour},
		{"later", time.Hour, 0, 0, time.Hour, 7 * time.Hour},
		{"a little ago", -time.Hour, 0, 0, -time.Hour, 5 * time.Hour},
		{"a life of its own", time.Hour, time.Minute, 0, time.Hour, time.Hour + time.Minute},
		{"a deadline of its own", time.Hour, 0, 2 * time.Hour, time.Hour, 2 * time.Hour},
		{"in years", 9 * 366 * 24 * time.Hour, 0, 0, 9 * 366 * 24 * time.Hour, 9*366*24*time.Hour + 6*time.Hour},
	} {
		r := request()
		if c.at != 0 {
			r.At = noon.Add(c.at).In(time.FixedZone("", 3600))
		}
		if c.deadline != 0 {
			r.Deadline = noon.Add(c.deadline)
		}
		r.ExpiresIn = belfry.Duration(c.in)
		n, err := notify(r)
		if err != nil || n.Due != noon.Add(c.due) || n.Deadline != noon.Add(c.expected) {
			t.Errorf("%s: due %v, deadline %v, %v", c.what, n.Due, n.Deadline, err)
		}
	}
}

func TestFactsAreOneWithinAPeriodAndTwoBeyond(t *testing.T) {
	zone := func(name string) *time.Location {
		loc, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		return loc
	}
	utc, berlin, kolkata, auckland, howe := time.UTC, zone("Europe/Berlin"), zone("Asia/Kolkata"), zone("Pacific/Auckland"), zone("Australia/Lord_Howe")
	for _, c := range []struct {
		what string
		once belfry.Once
		loc  *time.Location
		a, b string
		same bool
	}{
		{"hour", belfry.Once{Per: belfry.PerHour}, utc, "2026-12-01T10:00:00Z", "2026-12-01T10:59:59Z", true},
		{"next hour", belfry.Once{Per: belfry.PerHour}, utc, "2026-12-01T10:59:59Z", "2026-12-01T11:00:00Z", false},
		{"same hour, next day", belfry.Once{Per: belfry.PerHour}, utc, "2026-12-01T10:00:00Z", "2026-12-02T10:00:00Z", false},
		{"an hour of a zone with half hours", belfry.Once{Per: belfry.PerHour}, kolkata, "2026-12-01T10:29:00Z", "2026-12-01T10:30:00Z", false},
		{"an hour that the clock repeats", belfry.Once{Per: belfry.PerHour}, berlin, "2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z", false},
		{"half an hour that the clock repeats", belfry.Once{Per: belfry.PerHour}, howe, "2026-04-04T14:45:00Z", "2026-04-04T15:15:00Z", false},

		{"day", belfry.Once{Per: belfry.PerDay}, utc, "2026-12-01T00:00:00Z", "2026-12-01T23:59:59Z", true},
		{"next day", belfry.Once{Per: belfry.PerDay}, utc, "2026-12-01T23:59:59Z", "2026-12-02T00:00:00Z", false},
		{"day of the zone", belfry.Once{Per: belfry.PerDay}, auckland, "2026-12-01T11:30:00Z", "2026-12-02T10:30:00Z", true},
		{"next day of the zone", belfry.Once{Per: belfry.PerDay}, auckland, "2026-12-01T10:30:00Z", "2026-12-01T11:30:00Z", false},
		{"a day of 25 hours", belfry.Once{Per: belfry.PerDay}, berlin, "2026-10-24T22:00:00Z", "2026-10-25T22:59:59Z", true},
		{"a day of 23 hours", belfry.Once{Per: belfry.PerDay}, berlin, "2026-03-28T23:00:00Z", "2026-03-29T21:59:59Z", true},
		{"after a day of 23 hours", belfry.Once{Per: belfry.PerDay}, berlin, "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z", false},
		{"a day that was named", belfry.Once{Per: belfry.PerDay, Date: "2026-12-01"}, utc, "2026-12-01T10:00:00Z", "2026-12-05T10:00:00Z", true},

		{"week", belfry.Once{Per: belfry.PerWeek}, utc, "2026-11-30T00:00:00Z", "2026-12-06T23:59:59Z", true},
		{"next week", belfry.Once{Per: belfry.PerWeek}, utc, "2026-12-06T23:59:59Z", "2026-12-07T00:00:00Z", false},
		{"the week of new year", belfry.Once{Per: belfry.PerWeek}, utc, "2026-12-28T00:00:00Z", "2027-01-03T00:00:00Z", true},
		{"week of the zone", belfry.Once{Per: belfry.PerWeek}, auckland, "2026-12-06T10:30:00Z", "2026-12-06T11:30:00Z", false},

		{"ever", belfry.Once{Per: belfry.Ever}, utc, "2026-12-01T00:00:00Z", "2036-12-01T00:00:00Z", true},
		{"open", belfry.Once{Per: belfry.WhileOpen}, utc, "2026-12-01T00:00:00Z", "2036-12-01T00:00:00Z", true},
	} {
		fact := func(at string) string {
			n := note()
			due, err := time.Parse(time.RFC3339, at)
			if err != nil {
				t.Fatal(err)
			}
			n.Due = due
			return c.once.Fact(n, c.loc)
		}
		if same := fact(c.a) == fact(c.b); same != c.same {
			t.Errorf("%s: %q and %q", c.what, fact(c.a), fact(c.b))
		}
	}
}

func TestADayNamedByItsDateIsTheSameAsThatDay(t *testing.T) {
	loc := time.FixedZone("", -11*3600)
	named := belfry.Once{Per: belfry.PerDay, Date: "2026-12-01"}.Fact(note(), loc)
	if got := (belfry.Once{Per: belfry.PerDay}).Fact(note(), loc); got != named {
		t.Errorf("%q and %q", got, named)
	}
}

func TestWhatTellsFactsApart(t *testing.T) {
	once := belfry.Once{Per: belfry.PerDay}
	seen := map[string]string{}
	for what, change := range map[string]func(n *belfry.Notification, o *belfry.Once){
		"nothing":   func(*belfry.Notification, *belfry.Once) {},
		"recipient": func(n *belfry.Notification, _ *belfry.Once) { n.Recipient = "ben" },
		"category":  func(n *belfry.Notification, _ *belfry.Once) { n.Category = "news" },
		"subject":   func(n *belfry.Notification, _ *belfry.Once) { n.Subject = "chair" },
		"key":       func(_ *belfry.Notification, o *belfry.Once) { o.Key = "k" },
		"period":    func(_ *belfry.Notification, o *belfry.Once) { o.Per = belfry.Ever },
	} {
		n, o := note(), once
		change(&n, &o)
		fact := o.Fact(n, time.UTC)
		if other, ok := seen[fact]; ok {
			t.Errorf("%s and %s are one fact", what, other)
		}
		seen[fact] = what
	}
	n := note()
	n.ID, n.Channels, n.Data = 99, []string{"sms"}, json.RawMessage(`{}`)
	if _, ok := seen[once.Fact(n, time.UTC)]; !ok {
		t.Error("the id, the channels or the data tell facts apart")
	}
}

func TestWhichEndsFreeAFact(t *testing.T) {
	ends := []belfry.State{belfry.Sent, belfry.Dropped, belfry.Failed, belfry.Missed, belfry.Cancelled, belfry.Unknown}
	for _, c := range []struct {
		what string
		once belfry.Once
		want string
	}{
		{"by default", belfry.Once{Per: belfry.PerDay}, "dropped failed missed cancelled"},
		{"none", belfry.Once{Per: belfry.PerDay, ReleaseOn: []belfry.State{}}, ""},
		{"some", belfry.Once{Per: belfry.Ever, ReleaseOn: []belfry.State{belfry.Sent, belfry.Unknown}}, "sent unknown"},
		{"open", belfry.Once{Per: belfry.WhileOpen, ReleaseOn: []belfry.State{}}, "sent dropped failed missed cancelled unknown"},
	} {
		b, err := json.Marshal(c.once)
		if err != nil {
			t.Fatal(err)
		}
		var kept belfry.Once
		if err := json.Unmarshal(b, &kept); err != nil {
			t.Fatal(err)
		}
		for what, o := range map[string]belfry.Once{c.what: c.once, c.what + ", after JSON": kept} {
			var freed []string
			for _, end := range ends {
				if o.Releases(end) {
					freed = append(freed, string(end))
				}
			}
			if got := strings.Join(freed, " "); got != c.want {
				t.Errorf("%s: freed by %s, want %s", what, got, c.want)
			}
		}
	}
}

func TestTheQueueIsTheChannelWhenItIsCertain(t *testing.T) {
	for _, c := range []struct {
		what     string
		category []string
		options  belfry.Options
		want     string
	}{
		{"any channel", nil, belfry.Options{}, ""},
		{"one channel", []string{"email"}, belfry.Options{}, "email"},
		{"a medium of one", []string{"chat"}, belfry.Options{}, ""},
		{"a medium of several", []string{"push"}, belfry.Options{}, ""},
		{"its own", []string{"push"}, belfry.Options{Channels: []string{"sms"}}, "sms"},
		{"one target", nil, belfry.Options{To: []belfry.Target{{Channel: "sms"}}}, "sms"},
		{"targets on one channel", nil, belfry.Options{To: []belfry.Target{{Channel: "sms"}, {Channel: "sms"}}}, "sms"},
		{"targets on two", nil, belfry.Options{To: []belfry.Target{{Channel: "sms"}, {Channel: "email"}}}, ""},
	} {
		n := note()
		n.Options = c.options
		if got := n.Queue(belfry.Category{Channels: c.category}, known); got != c.want {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
	}
}
