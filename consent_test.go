package belfry_test

import (
	"testing"

	"belfry"
)

func TestTheNarrowerWordWins(t *testing.T) {
	type switches = map[string]map[string]bool
	for _, c := range []struct {
		what    string
		said    switches
		optOut  bool
		optIn   bool
		channel string
	}{
		{"nothing was said", nil, true, false, "fcm"},
		{"all off", switches{"*": {"*": false}}, false, false, "fcm"},
		{"all on", switches{"*": {"*": true}}, true, true, "fcm"},
		{"the channel over its medium", switches{"*": {"fcm": true, "push": false}}, true, true, "fcm"},
		{"the medium over all", switches{"*": {"push": false, "*": true}}, false, false, "fcm"},
		{"another channel's word", switches{"*": {"apns": false}}, true, false, "fcm"},
		{"another medium's word", switches{"*": {"email": false}}, true, false, "fcm"},
		{"the category over all", switches{"price": {"*": false}, "*": {"fcm": true}}, false, false, "fcm"},
		{"the category on, all off", switches{"price": {"*": true}, "*": {"*": false}}, true, true, "fcm"},
		{"the category silent about it", switches{"price": {"email": true}, "*": {"push": false}}, false, false, "fcm"},
		{"another category's word", switches{"news": {"*": false}}, true, false, "fcm"},
		{"the channel of a category over its medium", switches{"price": {"fcm": false, "push": true, "*": true}}, false, false, "fcm"},
		{"a channel that is its own medium", switches{"price": {"pager": false}}, false, false, "pager"},
	} {
		for consent, want := range map[belfry.Consent]bool{belfry.OptOut: c.optOut, belfry.OptIn: c.optIn, belfry.Always: true} {
			if got := belfry.Preferences(c.said).Allows(consent, "price", c.channel); got != want {
				t.Errorf("%s, %s: %v, want %v", c.what, consent, got, want)
			}
		}
	}
}
