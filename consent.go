package belfry

// Consent is a category's rule about who gets it when nothing was said.
type Consent string

const (
	OptOut Consent = "opt_out" // on until switched off
	OptIn  Consent = "opt_in"  // off until switched on
	Always Consent = "always"  // cannot be switched off
)

// Preferences are a recipient's own switches: category (or "*") → channel or medium (or "*") → on.
type Preferences map[string]map[string]bool

// Allows says whether a category may use a channel. The narrower category wins over "*"; within it the
// channel over its medium over "*". Where nothing was said the consent decides.
func (p Preferences) Allows(consent Consent, category, channel string) bool {
	if consent == Always {
		return true
	}
	for _, c := range [2]string{category, "*"} {
		switches := p[c]
		if len(switches) == 0 {
			continue
		}
		for _, where := range [3]string{channel, string(MediumOf(channel)), "*"} {
			if on, said := switches[where]; said {
				return on
			}
		}
	}
	return consent != OptIn
}

// PreferenceChange sets (true, false) or clears (nil) one switch.
type PreferenceChange struct {
	Category string // or "*"
	Channel  string // a channel, a medium or "*"
	On       *bool
	Source   string // who said so: user, import, link …
}
