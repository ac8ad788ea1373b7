// Package webpush reaches browsers through their push services, so that only the browser can read the message and only
// our key can send it. It obeys RFC 8030 (the protocol), RFC 8291 and 8188 (encryption) and RFC 8292 (VAPID), on the
// standard library alone.
//
// An endpoint's address is the subscription's endpoint; its keys are "p256dh" and "auth", all as the browser gave them.
// See [Payload] for what the service worker gets.
package webpush

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ecdh"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"belfry"
	"belfry/channel"
	"belfry/internal/safehttp"
)

// Options of [New]. Key and Subject are required.
type Options struct {
	Key     belfry.Secret // the VAPID key: see [GenerateKey]
	Subject string        // mailto: or https: of whoever runs this, for the push service's operators

	// HTTP sends the requests. It must neither retry nor follow redirects. Default: a client of our own that obeys
	// AllowPrivate and AllowAll.
	HTTP interface {
		Do(*http.Request) (*http.Response, error)
	}
	AllowPrivate []netip.Prefix // ranges that are not public and may be sent to, also over plain http
	AllowAll     bool           // send anywhere that is not forbidden for good; for development
	UserAgent    string         // default "belfry"
	Timeout      time.Duration  // of a whole exchange; default 15 s
}

// Channel sends web push messages. Safe for concurrent use.
type Channel struct {
	o      Options
	signer *signer
	agent  []string
}

var _ channel.Channel = (*Channel)(nil)

// New returns a Channel, or an error when the key or the subject is none. The error does not show the key.
func New(o Options) (*Channel, error) {
	key, err := privateKey(o.Key)
	if err != nil {
		return nil, err
	}
	public, err := publicText(key)
	if err != nil {
		return nil, err
	}
	if err := checkSubject(o.Subject); err != nil {
		return nil, err
	}
	c := &Channel{
		o: o, agent: []string{cmp.Or(o.UserAgent, "belfry")},
		signer: &signer{key: key, public: public, subject: o.Subject, tokens: make(map[string]token)},
	}
	c.o.Timeout = cmp.Or(o.Timeout, 15*time.Second)
	if c.o.HTTP == nil {
		outbound := c.outbound()
		outbound.Timeout = c.o.Timeout
		c.o.HTTP = safehttp.New(outbound)
	}
	return c, nil
}

func (c *Channel) outbound() safehttp.Options {
	return safehttp.Options{AllowPrivate: c.o.AllowPrivate, AllowAll: c.o.AllowAll}
}

// Name is "webpush".
func (c *Channel) Name() string { return "webpush" }

// Budget is the Timeout of [Options].
func (c *Channel) Budget() time.Duration { return c.o.Timeout }

// PublicKey is what browsers want as applicationServerKey, in base64url.
func (c *Channel) PublicKey() string { return c.signer.public }

// Check refuses endpoints that the outbound guard would not contact, and keys nothing can be encrypted for. Keys may be
// in either alphabet of base64, with or without padding.
func (c *Channel) Check(address belfry.Secret, keys belfry.Keys) error {
	if _, err := safehttp.CheckURL(address.Reveal(), c.outbound()); err != nil {
		return belfry.Invalid("address", "%s", strings.TrimPrefix(err.Error(), safehttp.ErrRefused.Error()+": "))
	}
	if _, err := parseKey(keys["p256dh"].Reveal()); err != nil {
		return belfry.Invalid("keys.p256dh", "%v", err)
	}
	if _, err := parseAuth(keys["auth"].Reveal()); err != nil {
		return belfry.Invalid("keys.auth", "%v", err)
	}
	for name := range keys {
		if name != "p256dh" && name != "auth" {
			return belfry.Invalid("keys."+name, "is not one of: p256dh auth")
		}
	}
	return nil
}

// Payload is the JSON that the service worker gets, in this order and without white space; what is empty is left out.
// The id is the same on every try of a delivery: as the tag of a notification it keeps one from being shown twice.
type Payload struct {
	ID       belfry.DeliveryID `json:"id"`
	Category string            `json:"category"`
	Subject  string            `json:"subject,omitempty"`
	Title    string            `json:"title,omitempty"`
	Body     string            `json:"body,omitempty"`
	Link     string            `json:"link,omitempty"`
	Image    string            `json:"image,omitempty"`
	Data     json.RawMessage   `json:"data,omitempty"`
}

// Encode makes the payload, see [Payload]. It refuses one of more than [MaxPayload] bytes.
func (c *Channel) Encode(m channel.Message) ([]byte, error) {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	t := m.Content
	if err := e.Encode(Payload{m.Delivery, m.Category, m.Subject, t.Title, t.Body, t.Link, t.Image, t.Data}); err != nil {
		return nil, belfry.Invalid("data", "cannot be written as JSON") // the error would quote it
	}
	payload := bytes.TrimSuffix(out.Bytes(), []byte("\n"))
	if len(payload) > MaxPayload {
		return nil, belfry.Invalid("data", "the push message with its text and data would have %d bytes, the limit is %d", len(payload), MaxPayload)
	}
	return payload, nil
}

// maxTTL is four weeks: longer ones are refused by some services.
const maxTTL = 28 * 24 * time.Hour

var urgency = map[belfry.Lane]string{belfry.Urgent: "high", belfry.Normal: "normal", belfry.Bulk: "low"}

// Send posts the encrypted payload once. The provider is told not to deliver after the deadline, and to let a message
// replace an older one about the same category and subject that it still holds.
func (c *Channel) Send(ctx context.Context, a channel.Armed) (string, error) {
	body, err := c.seal(a)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, c.o.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.Endpoint.Address.Reveal(), bytes.NewReader(body))
	if err != nil {
		return "", belfry.Refused(0, "the address is not a URL")
	}
	origin := origin(req.URL)
	authorization, err := c.signer.authorization(origin, a.Now)
	if err != nil {
		return "", belfry.Misconfigured(0, "the VAPID key does not sign")
	}
	req.Header = http.Header{
		"Authorization":    {authorization},
		"Content-Encoding": {"aes128gcm"},
		"Content-Type":     {"application/octet-stream"},
		"Ttl":              {strconv.FormatInt(int64(min(a.Left(), maxTTL)/time.Second), 10)},
		"Urgency":          {cmp.Or(urgency[a.Lane], "normal")},
		"User-Agent":       c.agent,
	}
	if a.Subject != "" {
		req.Header["Topic"] = []string{topic(a.Category, a.Subject)}
	}
	resp, err := c.o.HTTP.Do(req)
	if err != nil {
		return "", failed(err)
	}
	text, _ := safehttp.ReadBody(resp)
	err = answer(resp.StatusCode, resp.Header, text, req.URL.Hostname(), a.Now)
	if f, ok := errors.AsType[*belfry.Failure](err); ok && f.Outcome == belfry.OutcomeMisconfigured {
		c.signer.drop(origin, authorization) // should the token be at fault, the next try brings a new one
	}
	return "", err
}

// seal encrypts the payload under a key that is used for it alone (RFC 8291 §3.1).
func (c *Channel) seal(a channel.Armed) ([]byte, error) {
	key, err := parseKey(a.Endpoint.Keys["p256dh"].Reveal())
	if err != nil {
		return nil, belfry.Refused(0, "keys.p256dh "+err.Error())
	}
	auth, err := parseAuth(a.Endpoint.Keys["auth"].Reveal())
	if err != nil {
		return nil, belfry.Refused(0, "keys.auth "+err.Error())
	}
	own, err := ecdh.P256().GenerateKey(rand.Reader)
	if err != nil {
		return nil, belfry.NotSent(0, 0, "no key could be made")
	}
	var salt [saltSize]byte
	_, _ = rand.Read(salt[:]) // never fails
	body, err := encrypt(userAgent{key, auth}, own, salt[:], a.Payload)
	if err != nil {
		return nil, belfry.Refused(0, "the payload cannot be encrypted")
	}
	return body, nil
}

// topic is 32 characters of base64url (RFC 8030 §5.4) that stand for category and subject.
func topic(category, subject string) string {
	sum := sha256.Sum256([]byte(category + "\x00" + subject))
	return base64.RawURLEncoding.EncodeToString(sum[:])[:32]
}

// answer is what a push service's answer means. Three of them say in words what their status does not: that the
// subscription was made for another VAPID key.
func answer(status int, h http.Header, body []byte, host string, now time.Time) error {
	after, named := safehttp.ParseRetryAfter(h, now)
	says := func(text string) bool { return bytes.Contains(body, []byte(text)) }
	switch {
	case status >= 200 && status < 300:
		return nil
	case status == 404, status == 410: // RFC 8030 §7.3
		return belfry.Gone(status, "")
	case status == 400 && says("VapidPkHashMismatch"), // Apple
		status == 403 && (says("VapidPkHashMismatch") || // Apple
			says("do not correspond to the credentials used to create the subscription") || says("does not correspond to the sender ID")): // FCM
		return belfry.Gone(status, "the subscription belongs to another VAPID key")
	case status == 401, status == 403, status == 400 && says("UnauthorizedRegistration"): // the last is FCM's
		return belfry.Misconfigured(status, named401(says))
	case status == 400, status == 413:
		return belfry.Refused(status, "")
	case status == 429, status == 503 && named,
		status == 406 && strings.HasSuffix(strings.ToLower(host), ".notify.windows.com"): // WNS says 406 for 429
		return belfry.Throttled(status, after, "")
	case status < 500, status == 500, status == 502, status == 503, status == 504:
		return belfry.NotSent(status, after, "")
	}
	return belfry.Unsure(status, "the answer says nothing about the message")
}

// named401 is the service's own word for what it dislikes about our token, if it is one that is known.
func named401(says func(string) bool) string {
	for _, word := range [...]string{"BadJwtToken", "ExpiredJwtToken", "UnauthorizedRegistration"} {
		if says(word) {
			return word
		}
	}
	if says(`"errno":109`) || says(`"errno": 109`) {
		return "errno 109"
	}
	return ""
}

// failed says whether a request that got no answer may have arrived. The error itself is not shown: it may hold the
// address.
func failed(err error) error {
	why := "no answer"
	if e, ok := errors.AsType[*safehttp.Error](err); ok {
		why = e.Reason
	}
	if safehttp.Classify(err) {
		return belfry.NotSent(0, 0, why)
	}
	return errors.New("webpush: " + why + ": it may have arrived")
}
