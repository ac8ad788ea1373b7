package signature

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"hash"
	"io"
	"log/slog"
	"strings"
	"sync"
)

// The kinds of secret of Standard Webhooks 1.0.
const (
	symmetric  = "whsec_" // 24 to 64 random bytes; signs and verifies v1
	privateKey = "whsk_"  // an Ed25519 seed (32 bytes) or seed and public key (64); signs and verifies v1a
	publicKey  = "whpk_"  // an Ed25519 public key (32 bytes); verifies v1a
)

// ErrBadSecret is what [ParseSecret] returns; its text never holds any part of the secret.
var ErrBadSecret = errors.New("signature: not a secret")

// Secret is a key that signs or verifies. It does not appear in any output: formatting (every verb), logging and
// marshalling give "whsec_[redacted]", and [Secret.Reveal] is the only way to its text. Use one secret per endpoint.
// The zero Secret signs and verifies nothing. Safe for concurrent use; copies share one key.
type Secret struct {
	// A function, because whoever prints by reflection an unexported field that holds a Secret asks none of our
	// methods, and fmt follows pointers on a verb it cannot apply.
	k func() *key
}

type key struct {
	kind    string
	raw     []byte
	private ed25519.PrivateKey // of whsk_
	public  ed25519.PublicKey  // of whsk_ and whpk_
	macs    sync.Pool          // of *mac: with the key schedule done
}

// NewSecret draws a whsec_ secret of 32 bytes from random, or from [crypto/rand.Reader] when random is nil.
func NewSecret(random io.Reader) (Secret, error) {
	if random == nil {
		random = rand.Reader
	}
	raw := make([]byte, 32)
	if _, err := io.ReadFull(random, raw); err != nil {
		return Secret{}, fmt.Errorf("signature: draw a secret: %w", err)
	}
	return newSecret(symmetric, raw)
}

// ParseSecret reads the text form: "whsec_" and 24 to 64 bytes, "whsk_" and 32 or 64 bytes, or "whpk_" and 32 bytes,
// in padded standard base64. Errors are [ErrBadSecret] and say what is wrong without showing the secret.
func ParseSecret(text string) (Secret, error) {
	kind, b64, ok := strings.Cut(text, "_")
	if !ok {
		return Secret{}, fmt.Errorf("%w: it must begin with whsec_, whsk_ or whpk_", ErrBadSecret)
	}
	raw, err := base64.StdEncoding.DecodeString(b64)
	// Encoding again catches what the decoder forgives: line breaks and stray bits.
	if err != nil || base64.StdEncoding.EncodeToString(raw) != b64 {
		return Secret{}, fmt.Errorf("%w: what follows the prefix must be padded standard base64", ErrBadSecret)
	}
	return newSecret(kind+"_", raw)
}

func newSecret(kind string, raw []byte) (Secret, error) {
	k := &key{kind: kind, raw: raw}
	switch n := len(raw); kind {
	case symmetric:
		if n < 24 || n > 64 {
			return Secret{}, fmt.Errorf("%w: a whsec_ secret has 24 to 64 bytes, this one has %d", ErrBadSecret, n)
		}
	case privateKey:
		if n != ed25519.SeedSize && n != ed25519.PrivateKeySize {
			return Secret{}, fmt.Errorf("%w: a whsk_ key has 32 or 64 bytes, this one has %d", ErrBadSecret, n)
		}
		k.private = ed25519.NewKeyFromSeed(raw[:ed25519.SeedSize])
		if n == ed25519.PrivateKeySize && subtle.ConstantTimeCompare(k.private, raw) != 1 {
			return Secret{}, fmt.Errorf("%w: the two halves of this whsk_ key do not belong together", ErrBadSecret)
		}
		k.public = k.private.Public().(ed25519.PublicKey)
	case publicKey:
		if n != ed25519.PublicKeySize {
			return Secret{}, fmt.Errorf("%w: a whpk_ key has 32 bytes, this one has %d", ErrBadSecret, n)
		}
		k.public = ed25519.PublicKey(raw)
	default:
		return Secret{}, fmt.Errorf("%w: it must begin with whsec_, whsk_ or whpk_", ErrBadSecret)
	}
	return hide(k), nil
}

func hide(k *key) Secret { return Secret{func() *key { return k }} }

// Reveal returns the text form, for storing it sealed or showing it once to its owner; "" for the zero Secret.
func (s Secret) Reveal() string {
	if s.k == nil {
		return ""
	}
	return s.k().kind + base64.StdEncoding.EncodeToString(s.k().raw)
}

// Public returns the whpk_ key that verifies what a whsk_ key signs, and false for a whsec_ secret.
func (s Secret) Public() (Secret, bool) {
	if s.k == nil || s.k().public == nil {
		return Secret{}, false
	}
	p := s.k().public
	return hide(&key{kind: publicKey, raw: p, public: p}), true
}

// IsZero reports whether s is the zero Secret.
func (s Secret) IsZero() bool { return s.k == nil }

// Equal reports in constant time whether both have the same text form.
func (s Secret) Equal(t Secret) bool {
	return subtle.ConstantTimeCompare([]byte(s.Reveal()), []byte(t.Reveal())) == 1
}

// String returns the redacted form, such as "whsec_[redacted]".
func (s Secret) String() string {
	if s.k == nil {
		return "[no secret]"
	}
	return s.k().kind + "[redacted]"
}

// Format writes the redacted form for every verb; %d and %x would otherwise reach the bytes.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// GoString is [Secret.String].
func (s Secret) GoString() string { return s.String() }

// LogValue is [Secret.String] for log/slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText is [Secret.String]; what it writes cannot be parsed back, on purpose.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// MarshalJSON is [Secret.String] as a JSON string.
func (s Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + s.String() + `"`), nil }

// mac is an HMAC-SHA256 under one key with room to work in, so that signing allocates nothing.
type mac struct {
	hash hash.Hash
	buf  []byte
}

func (k *key) mac() *mac {
	if m, ok := k.macs.Get().(*mac); ok {
		return m
	}
	return &mac{hash: hmac.New(sha256.New, k.raw)}
}

// sum returns the MAC of the signed content, valid until the mac is given back.
func (m *mac) sum(id string, timestamp, body []byte) []byte {
	m.hash.Reset()
	m.buf = prefix(m.buf[:0], id, timestamp)
	m.hash.Write(m.buf)
	m.hash.Write(body)
	m.buf = m.hash.Sum(m.buf[:0])
	return m.buf
}
