package belfry_test

import (
	"strings"
	"testing"
	"time"

	"belfry"
)

func TestACategoryTakesTheDefaultsOfItsLane(t *testing.T) {
	for lane, want := range map[belfry.Lane]belfry.RetryPolicy{
		"":            eight,
		belfry.Normal: eight,
		belfry.Bulk:   eight,
		belfry.Urgent: {First: belfry.Duration(2 * time.Second), Factor: 2, Max: belfry.Duration(30 * time.Second), Attempts: 8},
	} {
		got := belfry.Category{Lane: lane}.Resolved()
		if got.Retry != want || got.Route != belfry.RouteAll || got.Consent != belfry.OptOut || got.ExpiresIn <= 0 {
			t.Errorf("%q: %+v", lane, got)
		}
	}
	check := &belfry.CheckPolicy{URL: "https://example.org"}
	c := belfry.Category{Check: check, ExpiresIn: 1, Retry: belfry.RetryPolicy{First: belfry.Duration(2 * time.Hour)}}.Resolved()
	if c.ExpiresIn != 1 || c.Retry.Max != c.Retry.First || c.Check.OnError != belfry.CheckErrorRetry || c.Check.Timeout != belfry.Duration(3*time.Second) {
		t.Errorf("%+v, %+v", c, c.Check)
	}
	if check.Timeout != 0 {
		t.Error("resolving changed the check of the category that it was asked about")
	}
}

func TestTheModeIsTheCategorysOrTheChannels(t *testing.T) {
	for _, c := range []struct {
		category belfry.Category
		channel  string
		want     belfry.Mode
	}{
		{belfry.Category{}, "email", belfry.AtLeastOnce},
		{belfry.Category{}, "sms", belfry.AtMostOnce},
		{belfry.Category{Lane: belfry.Bulk}, "email", belfry.AtMostOnce},
		{belfry.Category{Lane: belfry.Bulk, Delivery: belfry.AtLeastOnce}, "sms", belfry.AtLeastOnce},
		{belfry.Category{Delivery: belfry.AtMostOnce}, "email", belfry.AtMostOnce},
	} {
		if got := c.category.Resolved().ModeOn(c.channel); got != c.want {
			t.Errorf("%+v on %s: %s", c.category, c.channel, got)
		}
	}
}

func TestABadFieldOfACategoryIsNamed(t *testing.T) {
	if err := belfry.DefaultCategory("p").Validate(known); err != nil {
		t.Error(err)
	}
	for _, c := range []struct {
		want   string
		change func(c *belfry.Category)
	}{
		{"", func(c *belfry.Category) { c.Check = &belfry.CheckPolicy{URL: "http://localhost:1/x?y=z"} }},
		{"name", func(c *belfry.Category) { c.Name = "" }},
		{"name", func(c *belfry.Category) { c.Name = strings.Repeat("x", 65) }},
		{"name", func(c *belfry.Category) { c.Name = "a b" }},
		{"channels", func(c *belfry.Category) { c.Channels = []string{"fax"} }},
		{"channels", func(c *belfry.Category) { c.Channels = []string{"push", "push"} }},
		{"route", func(c *belfry.Category) { c.Route = "last" }},
		{"consent", func(c *belfry.Category) { c.Consent = "never" }},
		{"lane", func(c *belfry.Category) { c.Lane = "fast" }},
		{"delivery", func(c *belfry.Category) { c.Delivery = "exactly_once" }},
		{"expires_in", func(c *belfry.Category) { c.ExpiresIn = -1 }},
		{"expires_in", func(c *belfry.Category) { c.ExpiresIn = belfry.Duration(367 * 24 * time.Hour) }},
		{"cooldown", func(c *belfry.Category) { c.Cooldown = -1 }},
		{"retry.factor", func(c *belfry.Category) { c.Retry.Factor = 11 }},
		{"templates.body", func(c *belfry.Category) {
			c.Templates = belfry.Templates{"body": strings.Repeat("x", 16<<10+1)}
		}},
		{"check.url", func(c *belfry.Category) { c.Check = &belfry.CheckPolicy{} }},
		{"check.url", func(c *belfry.Category) { c.Check = &belfry.CheckPolicy{URL: "ftp://example.org"} }},
		{"check.url", func(c *belfry.Category) { c.Check = &belfry.CheckPolicy{URL: "https://ana:pw@example.org"} }},
		{"check.url", func(c *belfry.Category) { c.Check = &belfry.CheckPolicy{URL: "https://example.org#x"} }},
		{"check.timeout", func(c *belfry.Category) {
			c.Check = &belfry.CheckPolicy{URL: "https://example.org", Timeout: belfry.Duration(time.Minute)}
		}},
		{"check.on_error", func(c *belfry.Category) {
			c.Check = &belfry.CheckPolicy{URL: "https://example.org", OnError: "ask"}
		}},
	} {
		category := belfry.Category{Name: "price"}
		c.change(&category)
		if got := field(category.Validate(known)); got != c.want {
			t.Errorf("%+v: %q, want %q", category, got, c.want)
		}
	}
}

func TestABadFieldOfARegistrationIsNamed(t *testing.T) {
	for want, change := range map[string]func(r *belfry.Registration){
		"":          func(*belfry.Registration) {},
		"recipient": func(r *belfry.Registration) { r.Recipient = "" },
		"channel":   func(r *belfry.Registration) { r.Channel = "a b" },
		"app":       func(r *belfry.Registration) { r.App = "a b" },
		"device":    func(r *belfry.Registration) { r.Device = "a\x00" },
		"address":   func(r *belfry.Registration) { r.Address = "" },
	} {
		r := belfry.Registration{Recipient: "ana", Channel: "email", App: "shop", Device: "her phone", Address: "a"}
		change(&r)
		if got := field(r.Check()); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
