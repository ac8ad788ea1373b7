// Package signature signs and verifies webhooks so that a receiver can tell who sent a message, when, and that not one
// byte of it changed. It obeys Standard Webhooks 1.0: v1 (HMAC-SHA256) and v1a (Ed25519).
//
// A signature proves origin and freshness, not that a message is new: remember the id to act once. It does no HTTP of
// its own and reads no clock.
package signature

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"strconv"
	"time"
)

// Header names. The first three are those of Standard Webhooks 1.0; HTTP compares them without regard to case.
const (
	HeaderID        = "webhook-id"        // the same on every attempt of one message
	HeaderTimestamp = "webhook-timestamp" // Unix seconds of this attempt
	HeaderSignature = "webhook-signature" // one or more "version,base64", separated by single spaces

	// The next two are ours and stand outside the signed content, as the standard signs only id, timestamp and body.
	HeaderEpoch    = "webhook-epoch"     // decimal; of two attempts with one id, the higher is the younger
	HeaderNotAfter = "webhook-not-after" // Unix seconds after which the message no longer matters
)

const (
	v1  = "v1,"
	v1a = "v1a,"

	v1Len  = len(v1) + 44  // base64 of 32 bytes
	v1aLen = len(v1a) + 88 // base64 of 64 bytes
)

// Errors of [Sign] and [AppendSignatures].
var (
	ErrNoSecret   = errors.New("signature: no secret to sign with; give at least one")
	ErrVerifyOnly = errors.New("signature: a whpk_ key can only verify; sign with its whsk_ key")
)

// Sign returns the value of [HeaderSignature] for one attempt: one signature per secret, in the order given. While a
// secret is being rotated give the new and the old one.
//
// The id must be visible ASCII without '.', else [ErrBadID]; at is cut to seconds and must not lie before 1970, else
// [ErrBadTimestamp]. body must be the very bytes that are sent. Safe for concurrent use. Standard Webhooks 1.0.
func Sign(id string, at time.Time, body []byte, secrets ...Secret) (header string, err error) {
	var room [2*v1aLen + 1]byte
	out, err := AppendSignatures(room[:0], id, at, body, secrets...)
	return string(out), err
}

// AppendSignatures is [Sign] for hot paths: it appends the header value to dst and returns the extended slice, or dst
// as it was with an error.
func AppendSignatures(dst []byte, id string, at time.Time, body []byte, secrets ...Secret) ([]byte, error) {
	if !validID(id) {
		return dst, ErrBadID
	}
	if at.Unix() < 0 {
		return dst, ErrBadTimestamp
	}
	if len(secrets) == 0 {
		return dst, ErrNoSecret
	}
	var digits [20]byte
	timestamp := strconv.AppendInt(digits[:0], at.Unix(), 10)
	out := dst
	for i, s := range secrets {
		if i > 0 {
			out = append(out, ' ')
		}
		if s.IsZero() {
			return dst, ErrNoSecret
		}
		switch k := s.k(); {
		case k.private != nil:
			out = append(out, v1a...)
			out = base64.StdEncoding.AppendEncode(out, ed25519.Sign(k.private, content(nil, id, timestamp, body)))
		case k.public != nil:
			return dst, ErrVerifyOnly
		default:
			m := k.mac()
			out = append(out, v1...)
			out = base64.StdEncoding.AppendEncode(out, m.sum(id, timestamp, body))
			k.macs.Put(m)
		}
	}
	return out, nil
}

// content appends what Standard Webhooks 1.0 signs: "{id}.{timestamp}.{body}".
func content(dst []byte, id string, timestamp, body []byte) []byte {
	return append(prefix(dst, id, timestamp), body...)
}

func prefix(dst []byte, id string, timestamp []byte) []byte {
	dst = append(dst, id...)
	dst = append(dst, '.')
	dst = append(dst, timestamp...)
	return append(dst, '.')
}

// validID refuses '.', because "a.1" at 2 and "a" at "1.2" would be signed alike.
func validID(id string) bool {
	for i := range len(id) {
		if c := id[i]; c <= ' ' || c > '~' || c == '.' {
			return false
		}
	}
	return id != ""
}
