package belfry

import (
	"bytes"
	"encoding/json"
	"time"
	"unicode/utf8"
)

// Recipient is someone who can be told things, under the caller's own name for them.
type Recipient struct {
	Project    string          `json:"-"`
	ID         string          `json:"id"`
	Zone       string          `json:"zone,omitempty"` // IANA name; empty: UTC until somebody says better
	ZoneSource string          `json:"zone_source,omitempty"`
	ZoneAsOf   time.Time       `json:"zone_as_of,omitzero"`
	Locale     string          `json:"locale,omitempty"` // BCP 47
	Attributes json.RawMessage `json:"attributes,omitempty"`
	CreatedAt  time.Time       `json:"created_at,omitzero"`
	UpdatedAt  time.Time       `json:"updated_at,omitzero"`
}

// Limits on what is given by name.
const (
	MaxName       = 255      // bytes of a recipient, subject, category or project name
	MaxData       = 64 << 10 // bytes of a notification's data or a recipient's attributes
	MaxAddress    = 4096     // bytes of an address, token or URL
	MaxDeliveries = 999      // deliveries of one notification
	MaxBatch      = 1000     // notifications in one request
)

// CheckName refuses names that are empty, too long, not UTF-8 or hold control characters.
func CheckName(field, s string) error {
	switch {
	case s == "":
		return Invalid(field, "must not be empty")
	case len(s) > MaxName:
		return Invalid(field, "is %d bytes long, the limit is %d", len(s), MaxName)
	case !utf8.ValidString(s):
		return Invalid(field, "is not valid UTF-8")
	}
	for _, r := range s {
		if r < 0x20 || r == 0x7f {
			return Invalid(field, "holds a control character")
		}
	}
	return nil
}

// CheckSlug refuses names of categories, projects, apps and the like that are not 1 to 64 of a-z A-Z 0-9 . _ -.
func CheckSlug(field, s string) error {
	if len(s) == 0 || len(s) > 64 {
		return Invalid(field, "want 1 to 64 characters")
	}
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' && c != '-' && c != '.' {
			return Invalid(field, "want only a-z, A-Z, 0-9, dot, dash and underscore")
		}
	}
	return nil
}

// CheckObject refuses data that is not a JSON object or too large. Empty is fine.
func CheckObject(field string, data json.RawMessage) error {
	if len(data) == 0 {
		return nil
	}
	if len(data) > MaxData {
		return Invalid(field, "is %d bytes long, the limit is %d", len(data), MaxData)
	}
	if !json.Valid(data) {
		return Invalid(field, "is not valid JSON")
	}
	if bytes.TrimLeft(data, " \t\r\n")[0] != '{' {
		return Invalid(field, "must be a JSON object")
	}
	return nil
}

// Check refuses a recipient with a wrong field. Whether the zone exists is for the caller to ask.
func (r Recipient) Check() error {
	if err := CheckName("id", r.ID); err != nil {
		return err
	}
	if len(r.Locale) > 64 {
		return Invalid("locale", "is longer than 64 bytes")
	}
	return CheckObject("attributes", r.Attributes)
}
