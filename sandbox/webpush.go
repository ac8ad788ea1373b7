package sandbox

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"math/big"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Subscription is what a browser hands to its application: register its endpoint and keys, and messages for it end up
// in the log, decrypted. The browser counts as reachable, so nothing is held back, replaced by Topic or outlived.
type Subscription struct {
	ID       string `json:"id"`
	Endpoint string `json:"endpoint"`
	Keys     struct {
		P256dh string `json:"p256dh"`
		Auth   string `json:"auth"`
	} `json:"keys"`
}

type subscription struct {
	key    *ecdh.PrivateKey
	auth   []byte
	origin string
	vapid  string // the only key it takes messages from (RFC 8292 §4); empty: any
	gone   bool
}

// Subscribe makes a subscription whose endpoint lies below base, the URL of the sandbox without a final slash. vapid
// is the public key that messages must be signed with, in base64url; empty takes any.
func (s *Sandbox) Subscribe(base, vapid string) (Subscription, error) {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" {
		return Subscription{}, errors.New("sandbox: not a URL to make endpoints of")
	}
	key, err := ecdh.P256().GenerateKey(rand.Reader)
	if err != nil {
		return Subscription{}, err
	}
	sub := &subscription{key: key, auth: make([]byte, 16), origin: strings.ToLower(u.Scheme + "://" + u.Host), vapid: vapid}
	_, _ = rand.Read(sub.auth)
	out := Subscription{ID: strings.ToLower(rand.Text())}
	out.Endpoint = base + "/webpush/" + out.ID
	out.Keys.P256dh = base64.RawURLEncoding.EncodeToString(key.PublicKey().Bytes())
	out.Keys.Auth = base64.RawURLEncoding.EncodeToString(sub.auth)
	s.mu.Lock()
	s.webpush[out.ID] = sub
	s.mu.Unlock()
	return out, nil
}

// Unsubscribe ends a subscription, as when somebody takes the permission back: from now on it answers 410.
func (s *Sandbox) Unsubscribe(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub := s.webpush[id]
	if sub == nil {
		return errors.New("sandbox: no such subscription")
	}
	sub.gone = true
	return nil
}

func (s *Sandbox) postSubscription(w http.ResponseWriter, r *http.Request) error {
	var in struct {
		Key string `json:"applicationServerKey"`
	}
	if err := readJSON(r, &in); err != nil && err != io.EOF {
		return err
	}
	base := s.o.URL
	if base == "" {
		base = "http://" + r.Host
		if r.TLS != nil {
			base = "https://" + r.Host
		}
	}
	sub, err := s.Subscribe(base, in.Key)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	return writeJSON(w, sub)
}

func (s *Sandbox) deleteSubscription(w http.ResponseWriter, r *http.Request) error {
	if err := s.Unsubscribe(r.PathValue("id")); err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return nil
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// postPush is the push service, and the browser behind it.
func (s *Sandbox) postPush(w http.ResponseWriter, r *http.Request) error {
	to := receiver{"webpush", r.PathValue("id")}
	now := s.now()
	s.mu.Lock()
	sub := s.webpush[to.to]
	gone := sub != nil && sub.gone
	s.mu.Unlock()
	switch {
	case sub == nil:
		return s.refuse(w, to.channel, http.StatusNotFound, "no such subscription")
	case gone:
		return s.refuse(w, to.channel, http.StatusGone, "the subscription has ended")
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxPush+1))
	if err != nil {
		return s.refuse(w, to.channel, http.StatusBadRequest, "the body cannot be read")
	}
	if status, why := s.judge(r, sub, body, now); status != 0 {
		return s.refuse(w, to.channel, status, why)
	}
	plain, err := Decrypt(sub.key, sub.auth, body)
	if err != nil {
		return s.refuse(w, to.channel, http.StatusBadRequest, err.Error())
	}
	var payload struct {
		ID string `json:"id"`
	}
	_ = json.Unmarshal(plain, &payload) // other senders may write what they like
	e := Entry{At: now, Channel: to.channel, To: to.to, ID: payload.ID, Attempt: s.count(to, payload.ID), Header: r.Header, Body: plain}
	return s.perform(w, r, s.next(to), e, func(w http.ResponseWriter) {
		s.tally(to.channel, http.StatusCreated)
		w.Header().Set("Location", sub.origin+"/webpush/messages/"+strings.ToLower(rand.Text()))
		w.Header().Set("TTL", r.Header.Get("TTL"))
		w.WriteHeader(http.StatusCreated)
	})
}

const (
	maxPush = 4096           // RFC 8030 §7.2
	maxTTL  = 30 * 24 * 3600 // as Mozilla documents
	maxLife = 24 * time.Hour // of a token, RFC 8292 §2
	maxSeen = 10_000         // tokens whose signature is remembered
)

// judge returns the status of a request that the push service does not take, and 0 for the others.
func (s *Sandbox) judge(r *http.Request, sub *subscription, body []byte, now time.Time) (status int, why string) {
	h := r.Header
	authorization := h.Get("Authorization")
	if authorization == "" {
		return http.StatusUnauthorized, "no Authorization"
	}
	token, key, ok := parseVAPID(authorization)
	if !ok {
		return http.StatusUnauthorized, "Authorization is not: vapid t=…, k=…"
	}
	if err := s.checkToken(token, key, sub, now); err != nil {
		return http.StatusForbidden, err.Error()
	}
	if sub.vapid != "" && sub.vapid != key {
		return http.StatusForbidden, "the VAPID credentials in the authorization header do not correspond to the credentials used to create the subscriptions."
	}
	ttl, err := strconv.ParseUint(h.Get("TTL"), 10, 32)
	switch topic := h.Values("Topic"); {
	case len(body) > maxPush:
		return http.StatusRequestEntityTooLarge, "the body is larger than 4096 bytes"
	case len(h.Values("TTL")) != 1 || err != nil || ttl > maxTTL:
		return http.StatusBadRequest, "TTL is not a number of seconds"
	case len(topic) > 1 || len(topic) == 1 && !isTopic(topic[0]):
		return http.StatusBadRequest, "Topic is not at most 32 characters of base64url"
	case !isUrgency(h.Values("Urgency")):
		return http.StatusBadRequest, "Urgency is not one of very-low, low, normal, high"
	case h.Get("Content-Encoding") != "aes128gcm" || len(h.Values("Content-Encoding")) != 1:
		return http.StatusBadRequest, "Content-Encoding is not aes128gcm"
	}
	return 0, ""
}

func isTopic(s string) bool {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	return len(s) > 0 && len(s) <= 32 && strings.Trim(s, alphabet) == ""
}

func isUrgency(values []string) bool {
	if len(values) == 0 {
		return true
	}
	switch values[0] {
	case "very-low", "low", "normal", "high":
		return len(values) == 1
	}
	return false
}

// parseVAPID reads "vapid t=…, k=…" (RFC 8292 §3).
func parseVAPID(header string) (token, key string, ok bool) {
	scheme, rest, _ := strings.Cut(header, " ")
	if !strings.EqualFold(scheme, "vapid") {
		return "", "", false
	}
	for part := range strings.SplitSeq(rest, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		switch name {
		case "t":
			token = value
		case "k":
			key = value
		}
	}
	return token, key, token != "" && key != ""
}

type claims struct {
	Audience string `json:"aud"`
	Expires  int64  `json:"exp"`
	Subject  string `json:"sub"`
}

func (s *Sandbox) checkToken(token, key string, sub *subscription, now time.Time) error {
	c, err := s.verify(token, key)
	if err != nil {
		return err
	}
	left := time.Unix(c.Expires, 0).Sub(now)
	switch {
	case c.Audience != sub.origin:
		return errors.New("BadJwtToken: aud is not the origin of the endpoint")
	case left < 0 || left > maxLife:
		return errors.New("BadJwtToken: exp has passed or is more than 24 hours away")
	case !strings.HasPrefix(c.Subject, "mailto:") && !strings.HasPrefix(c.Subject, "https://") || strings.ContainsAny(c.Subject, " <>"):
		return errors.New("BadJwtToken: sub is neither mailto: nor https:")
	}
	return nil
}

// verify reads the claims of a token whose signature is right. It remembers them, as push services do.
func (s *Sandbox) verify(token, key string) (claims, error) {
	s.mu.Lock()
	c, ok := s.vapid[token+" "+key]
	s.mu.Unlock()
	if ok {
		return c, nil
	}
	bad := errors.New("BadJwtToken: the token is not signed with ES256 by that key")
	k, err := base64.RawURLEncoding.DecodeString(key)
	if err != nil {
		return c, bad
	}
	public, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), k)
	if err != nil {
		return c, bad
	}
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return c, bad
	}
	var decoded [3][]byte
	for i, p := range parts {
		if decoded[i], err = base64.RawURLEncoding.DecodeString(p); err != nil {
			return c, bad
		}
	}
	var header struct {
		Algorithm string `json:"alg"`
	}
	if json.Unmarshal(decoded[0], &header) != nil || header.Algorithm != "ES256" || json.Unmarshal(decoded[1], &c) != nil || len(decoded[2]) != 64 {
		return c, bad
	}
	digest := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	if !ecdsa.Verify(public, digest[:], new(big.Int).SetBytes(decoded[2][:32]), new(big.Int).SetBytes(decoded[2][32:])) {
		return c, bad
	}
	s.mu.Lock()
	if len(s.vapid) >= maxSeen {
		clear(s.vapid)
	}
	s.vapid[token+" "+key] = c
	s.mu.Unlock()
	return c, nil
}

var errDecrypt = errors.New("the body does not decrypt")

// Decrypt is what a browser does with the body of a push message (RFC 8291 §4): one record of aes128gcm (RFC 8188), for
// the subscription's own key and secret.
func Decrypt(own *ecdh.PrivateKey, auth, body []byte) ([]byte, error) {
	if len(body) < 16+4+1 || len(body) < 16+4+1+int(body[20]) {
		return nil, errors.New("the body is shorter than its header")
	}
	salt, size, id := body[:16], binary.BigEndian.Uint32(body[16:20]), int(body[20])
	sender, record := body[21:21+id], body[21+id:]
	if size < 18 || uint64(len(record)) > uint64(size) {
		return nil, errors.New("the body is not a single record")
	}
	public, err := ecdh.P256().NewPublicKey(sender)
	if err != nil || id != 65 {
		return nil, errors.New("the key id is not a P-256 point")
	}
	shared, err := own.ECDH(public)
	if err != nil {
		return nil, errDecrypt
	}
	ikm, err := hkdf.Key(sha256.New, shared, auth, "WebPush: info\x00"+string(own.PublicKey().Bytes())+string(sender), 32)
	if err != nil {
		return nil, errDecrypt
	}
	cek, err := hkdf.Key(sha256.New, ikm, salt, "Content-Encoding: aes128gcm\x00", 16)
	if err != nil {
		return nil, errDecrypt
	}
	nonce, err := hkdf.Key(sha256.New, ikm, salt, "Content-Encoding: nonce\x00", 12)
	if err != nil {
		return nil, errDecrypt
	}
	block, err := aes.NewCipher(cek)
	if err != nil {
		return nil, errDecrypt
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		return nil, errDecrypt
	}
	plain, err := gcm.Open(nil, nonce, record, nil)
	if err != nil {
		return nil, errDecrypt
	}
	for i := len(plain) - 1; i >= 0; i-- { // zeroes of padding after the delimiter
		if plain[i] == 2 {
			return plain[:i], nil
		}
		if plain[i] != 0 {
			break
		}
	}
	return nil, errors.New("the last record has no delimiter")
}
