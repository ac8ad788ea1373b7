package belfry

import (
	"crypto/subtle"
	"fmt"
	"io"
)

// Secret is text that must not appear in a log line, an error, a metric or a JSON document: a device
// token, an address, a signing key. Every way of printing it shows "[redacted]"; [Secret.Reveal] is the
// one way to its text, so that each use can be found. (slog prints it through MarshalText or String.) An
// unexported field is out of reach for that, as is a %w, which go vet refuses: neither must be printed.
type Secret string

const redacted = "[redacted]"

// Reveal is the text itself.
func (s Secret) Reveal() string { return string(s) }

// Equal compares in constant time for texts of equal length.
func (s Secret) Equal(t Secret) bool { return subtle.ConstantTimeCompare([]byte(s), []byte(t)) == 1 }

func (s Secret) String() string               { return redacted }
func (s Secret) GoString() string             { return redacted }
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// Format is there because fmt shows the bare text for a verb that does not fit, such as %d.
func (s Secret) Format(f fmt.State, _ rune) { io.WriteString(f, redacted) }

// Hint shows the last four characters of a long secret, enough for a person to tell two apart.
func (s Secret) Hint() string {
	if len(s) < 16 {
		return "…"
	}
	return "…" + string(s[len(s)-4:])
}
