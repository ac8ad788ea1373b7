package webpush

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/asn1"
	"encoding/base64"
	"encoding/json"
	"errors"
	"math/big"
	"net/url"
	"strings"
	"sync"
	"time"

	"belfry"
)

// GenerateKey makes a VAPID key, as [Options].Key takes it. Keep it: subscriptions are bound to it.
func GenerateKey() (belfry.Secret, error) {
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", err
	}
	b, err := k.Bytes()
	return belfry.Secret(base64.RawURLEncoding.EncodeToString(b)), err
}

// PublicKey is what browsers want as applicationServerKey, in base64url. The error does not show the key.
func PublicKey(key belfry.Secret) (string, error) {
	k, err := privateKey(key)
	if err != nil {
		return "", err
	}
	return publicText(k)
}

func publicText(k *ecdsa.PrivateKey) (string, error) {
	b, err := k.PublicKey.Bytes()
	return base64.RawURLEncoding.EncodeToString(b), err
}

func privateKey(text belfry.Secret) (*ecdsa.PrivateKey, error) {
	b, err := decode(text.Reveal())
	if err == nil {
		if k, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), b); err == nil {
			return k, nil
		}
	}
	return nil, errors.New("webpush: the VAPID key is not a P-256 private key of 32 bytes in base64url")
}

// checkSubject is stricter than RFC 8292 §2.1, since Apple is.
func checkSubject(subject string) error {
	bad := errors.New("webpush: the subject is neither mailto:someone@host.example nor https://host.example/")
	host := ""
	if address, ok := strings.CutPrefix(subject, "mailto:"); ok {
		local, domain, _ := strings.Cut(address, "@")
		if local == "" {
			return bad
		}
		host = domain
	} else if u, err := url.Parse(subject); err == nil && u.Scheme == "https" && u.User == nil {
		host = u.Hostname()
	}
	odd := func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`<>"\,;`, r) }
	noHost := func(r rune) bool {
		return r != '.' && r != '-' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	}
	if strings.ContainsFunc(subject, odd) || strings.ContainsFunc(host, noHost) ||
		!strings.Contains(strings.Trim(host, "."), ".") || strings.HasSuffix(host, ".localhost") {
		return bad
	}
	return nil
}

// Life of a token: RFC 8292 §2 allows 24 hours.
const (
	tokenLife  = 12 * time.Hour
	tokenSpare = time.Hour
	maxTokens  = 1024 // whoever registers endpoints chooses the origins
)

// signer keeps a token per origin, so that a push service need not verify a new one with each message. Safe for
// concurrent use.
type signer struct {
	key     *ecdsa.PrivateKey
	public  string
	subject string

	mu     sync.Mutex
	tokens map[string]token
}

type token struct {
	header  string // of Authorization
	expires time.Time
}

// authorization is the value of the header for an origin.
func (s *signer) authorization(origin string, now time.Time) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, ok := s.tokens[origin]
	if left := t.expires.Sub(now); ok && left >= tokenSpare && left <= tokenLife {
		return t.header, nil
	}
	expires := now.Add(tokenLife).Truncate(time.Second)
	jwt, err := s.sign(origin, expires)
	if err != nil {
		return "", err
	}
	if len(s.tokens) >= maxTokens {
		clear(s.tokens)
	}
	t = token{"vapid t=" + jwt + ", k=" + s.public, expires}
	s.tokens[origin] = t
	return t.header, nil
}

// drop forgets a token that was not believed.
func (s *signer) drop(origin, header string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tokens[origin].header == header {
		delete(s.tokens, origin)
	}
}

var jwtHeader = base64.RawURLEncoding.EncodeToString([]byte(`{"typ":"JWT","alg":"ES256"}`))

// sign makes a token of RFC 8292 §2: ES256, deterministic (RFC 6979).
func (s *signer) sign(origin string, expires time.Time) (string, error) {
	claims, err := json.Marshal(struct {
		Audience string `json:"aud"`
		Expires  int64  `json:"exp"`
		Subject  string `json:"sub"`
	}{origin, expires.Unix(), s.subject})
	if err != nil {
		return "", err
	}
	text := jwtHeader + "." + base64.RawURLEncoding.EncodeToString(claims)
	digest := sha256.Sum256([]byte(text))
	der, err := s.key.Sign(nil, digest[:], crypto.SHA256)
	if err != nil {
		return "", err
	}
	var sig struct{ R, S *big.Int }
	if _, err := asn1.Unmarshal(der, &sig); err != nil {
		return "", err
	}
	var raw [64]byte // RFC 7518 §3.4
	sig.R.FillBytes(raw[:32])
	sig.S.FillBytes(raw[32:])
	return text + "." + base64.RawURLEncoding.EncodeToString(raw[:]), nil
}

// origin is the ASCII form of RFC 6454 §6.2: no default port, no path, no final slash.
func origin(u *url.URL) string {
	host := strings.ToLower(u.Host)
	switch u.Scheme {
	case "https":
		host = strings.TrimSuffix(host, ":443")
	case "http":
		host = strings.TrimSuffix(host, ":80")
	}
	return u.Scheme + "://" + host
}
