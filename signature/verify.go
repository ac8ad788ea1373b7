package signature

import (
	"crypto/ed25519"
	"crypto/hmac"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// DefaultTolerance is how far a timestamp may lie from now, either way, when a [Verifier] says nothing else.
const DefaultTolerance = 5 * time.Minute

// maxSignatures bounds the work one request can cause. A sender needs one per secret, and two while it rotates.
const maxSignatures = 16

// Why a message was not accepted; compare with [errors.Is]. The first three are the request's form (answer 400), the
// others its authenticity (answer 401). A missing timestamp is both ErrMissingHeader and ErrBadTimestamp.
var (
	ErrMissingHeader = errors.New("signature: a webhook header is missing")
	ErrBadID         = errors.New("signature: webhook-id must be visible ASCII without '.'")
	ErrBadTimestamp  = errors.New("signature: webhook-timestamp must be whole Unix seconds")
	ErrTooOld        = errors.New("signature: webhook-timestamp is too old; compare the clocks, or send the message anew")
	ErrTooNew        = errors.New("signature: webhook-timestamp lies in the future; compare the clocks")
	ErrNoMatch       = errors.New("signature: no signature matches; check the secret, and verify the bytes as received, before any middleware parses or rewrites the body")
)

var (
	errNoID        = fmt.Errorf("%w: %s", ErrMissingHeader, HeaderID)
	errNoTimestamp = fmt.Errorf("%w: %s: %w", ErrMissingHeader, HeaderTimestamp, ErrBadTimestamp)
	errNoSignature = fmt.Errorf("%w: %s", ErrMissingHeader, HeaderSignature)
)

// Header is what [Verifier.Verify] reads; [net/http.Header] is one.
type Header interface{ Get(name string) string }

// Verifier tells genuine messages from others. A message is genuine when any of Secrets signed it, so a secret is
// rotated by listing the new and the old one, and revoked by removing it. Safe for concurrent use once set up.
type Verifier struct {
	Secrets   []Secret      // whsec_ for v1; whpk_ or whsk_ for v1a
	Tolerance time.Duration // both into the past and the future; in whole seconds; 0 means [DefaultTolerance]
}

// Verify returns nil when the headers and body are genuine and fresh at now, else one of the errors above.
// body must be the bytes as received. Standard Webhooks 1.0.
func (v Verifier) Verify(now time.Time, h Header, body []byte) error {
	return v.VerifyParts(now, h.Get(HeaderID), h.Get(HeaderTimestamp), h.Get(HeaderSignature), body)
}

// VerifyParts is [Verifier.Verify] for callers whose headers come in another form.
func (v Verifier) VerifyParts(now time.Time, id, timestamp, signatures string, body []byte) error {
	switch {
	case id == "":
		return errNoID
	case timestamp == "":
		return errNoTimestamp
	case signatures == "":
		return errNoSignature
	case !validID(id):
		return ErrBadID
	}
	sec, err := strconv.ParseInt(timestamp, 10, 64)
	// One text per instant: no sign, no leading zero.
	if err != nil || sec < 0 || strconv.FormatInt(sec, 10) != timestamp {
		return ErrBadTimestamp
	}
	tolerance := v.Tolerance
	if tolerance <= 0 {
		tolerance = DefaultTolerance
	}
	// Whole seconds, because time.Unix wraps round for the largest ones.
	switch age, most := now.Unix()-sec, int64(tolerance/time.Second); {
	case age > most:
		return ErrTooOld
	case age < -most:
		return ErrTooNew
	}
	if strings.Count(signatures, " ") >= maxSignatures {
		return ErrNoMatch
	}
	for _, s := range v.Secrets {
		if !s.IsZero() && s.k().matches(id, []byte(timestamp), body, signatures) {
			return nil
		}
	}
	return ErrNoMatch
}

func (k *key) matches(id string, timestamp, body []byte, signatures string) bool {
	if k.public != nil {
		msg := content(nil, id, timestamp, body)
		return anySignature(signatures, v1a, v1aLen, func(sig []byte) bool {
			return ed25519.Verify(k.public, msg, sig)
		})
	}
	m := k.mac()
	defer k.macs.Put(m)
	want := m.sum(id, timestamp, body)
	return anySignature(signatures, v1, v1Len, func(sig []byte) bool { return hmac.Equal(want, sig) })
}

// anySignature reports whether ok holds for one of the decoded signatures of this version. Only the full length is
// ever decoded, so that neither an empty nor a shortened signature is compared at all, and base64 is read strictly,
// so that a signature has one text.
func anySignature(list, version string, length int, ok func([]byte) bool) bool {
	var room [ed25519.SignatureSize + 2]byte
	for one := range strings.SplitSeq(list, " ") {
		if len(one) != length || !strings.HasPrefix(one, version) {
			continue
		}
		sig, err := base64.StdEncoding.Strict().AppendDecode(room[:0], []byte(one[len(version):]))
		if err == nil && ok(sig) {
			return true
		}
	}
	return false
}
