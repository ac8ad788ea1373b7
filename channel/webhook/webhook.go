// Package webhook tells a program of somebody else's over HTTP, signed as Standard Webhooks 1.0 asks, so that the
// receiver knows who sent it and can act once however often it arrives.
//
// An endpoint's address is its URL. Its keys are "secret" and, while that is being rotated, "secret_old" (both sign);
// an endpoint without a secret is signed for with [Options].Secret. See [Channel.Encode] for the body and [answer] for
// what a status means.
package webhook

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"belfry"
	"belfry/channel"
	"belfry/internal/safehttp"
	"belfry/signature"
)

// MaxPayload is how many bytes a body may have.
const MaxPayload = 128 << 10

// Options of [New]. The zero value sends to public https URLs whose endpoints have a secret of their own.
type Options struct {
	// HTTP sends the requests. It must neither retry nor follow redirects. Default: a client of our own that obeys
	// AllowPrivate and AllowAll.
	HTTP interface {
		Do(*http.Request) (*http.Response, error)
	}
	AllowPrivate []netip.Prefix // ranges that are not public and may be sent to, also over plain http
	AllowAll     bool           // send anywhere that is not forbidden for good; for development
	UserAgent    string         // default "belfry"
	Timeout      time.Duration  // of a whole exchange; default 15 s
	Secret       belfry.Secret  // whsec_… or whsk_…; default: every endpoint needs its own
}

// Channel sends webhooks. Safe for concurrent use.
type Channel struct {
	o      Options
	secret signature.Secret
	agent  []string
}

var _ channel.Channel = (*Channel)(nil)

// New returns a Channel, or an error when the secret is none.
func New(o Options) (*Channel, error) {
	c := &Channel{o: o, agent: []string{cmp.Or(o.UserAgent, "belfry")}}
	c.o.Timeout = cmp.Or(o.Timeout, 15*time.Second)
	if c.o.HTTP == nil {
		outbound := c.outbound()
		outbound.Timeout = c.o.Timeout
		c.o.HTTP = safehttp.New(outbound)
	}
	if o.Secret != "" {
		var err error
		if c.secret, err = secret(o.Secret); err != nil {
			return nil, errors.New("webhook: " + err.Error())
		}
	}
	return c, nil
}

func (c *Channel) outbound() safehttp.Options {
	return safehttp.Options{AllowPrivate: c.o.AllowPrivate, AllowAll: c.o.AllowAll}
}

// Name is "webhook".
func (c *Channel) Name() string { return "webhook" }

// Budget is the Timeout of [Options].
func (c *Channel) Budget() time.Duration { return c.o.Timeout }

// Check refuses URLs that the outbound guard would not contact, and secrets that cannot sign.
func (c *Channel) Check(address belfry.Secret, keys belfry.Keys) error {
	if _, err := safehttp.CheckURL(address.Reveal(), c.outbound()); err != nil {
		return belfry.Invalid("address", "%s", strings.TrimPrefix(err.Error(), safehttp.ErrRefused.Error()+": "))
	}
	for name, text := range keys {
		if name != "secret" && name != "secret_old" {
			return belfry.Invalid("keys."+name, "is not one of: secret secret_old")
		}
		if _, err := secret(text); err != nil {
			return belfry.Invalid("keys."+name, "%v", err)
		}
	}
	if keys["secret"] == "" && (c.secret.IsZero() || keys["secret_old"] != "") {
		return belfry.Invalid("keys.secret", "must not be empty: there is nothing to sign with")
	}
	return nil
}

// secret reads a secret that can sign. No error shows it.
func secret(text belfry.Secret) (signature.Secret, error) {
	s, err := signature.ParseSecret(text.Reveal())
	if err == nil {
		_, err = signature.Sign("x", time.Unix(0, 0), nil, s)
	}
	return s, err
}

// Body is the JSON that a receiver gets. Its members come in this order, without white space between them; title to
// image are left out when the content has none.
type Body struct {
	Type      string          `json:"type"`      // the category
	Timestamp time.Time       `json:"timestamp"` // when the notification was enqueued, UTC, RFC 3339
	Data      json.RawMessage `json:"data"`      // the notification's data as it was given; {} when it has none
	Subject   string          `json:"subject,omitempty"`
	Title     string          `json:"title,omitempty"`
	Body      string          `json:"body,omitempty"`
	Link      string          `json:"link,omitempty"`
	Image     string          `json:"image,omitempty"`
}

// Encode makes the body, see [Body]. It refuses one of more than [MaxPayload] bytes.
func (c *Channel) Encode(m channel.Message) ([]byte, error) {
	b := Body{
		Type: m.Category, Timestamp: m.Created.UTC(), Data: m.Content.Data, Subject: m.Subject,
		Title: m.Content.Title, Body: m.Content.Body, Link: m.Content.Link, Image: m.Content.Image,
	}
	if len(b.Data) == 0 {
		b.Data = json.RawMessage("{}")
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(b); err != nil {
		return nil, belfry.Invalid("data", "cannot be written as JSON") // the error would quote it
	}
	payload := bytes.TrimSuffix(out.Bytes(), []byte("\n"))
	if len(payload) > MaxPayload {
		return nil, belfry.Invalid("data", "the webhook's body would have %d bytes, the limit is %d", len(payload), MaxPayload)
	}
	return payload, nil
}

// Send posts the payload once. webhook-id is the delivery's id on every try, webhook-timestamp the time of this one.
//
// There is no Idempotency-Key: the id says the same, and net/http would send such a request a second time by itself.
func (c *Channel) Send(ctx context.Context, a channel.Armed) (string, error) {
	secrets, err := c.secrets(a.Endpoint.Keys)
	if err != nil {
		return "", belfry.Misconfigured(0, "no secret to sign with")
	}
	id := a.Delivery.String()
	signed, err := signature.Sign(id, a.Now, a.Payload, secrets...)
	if err != nil {
		return "", belfry.Misconfigured(0, err.Error())
	}
	ctx, cancel := context.WithTimeout(ctx, c.o.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.Endpoint.Address.Reveal(), bytes.NewReader(a.Payload))
	if err != nil {
		return "", belfry.Refused(0, "the address is not a URL")
	}
	req.Header = http.Header{
		"Content-Type":      {"application/json"},
		"User-Agent":        c.agent,
		"Webhook-Id":        {id},
		"Webhook-Timestamp": {strconv.FormatInt(a.Now.Unix(), 10)},
		"Webhook-Signature": {signed},
		"Webhook-Epoch":     {strconv.FormatInt(int64(a.Epoch), 10)},
		"Webhook-Not-After": {strconv.FormatInt(a.Deadline.Unix(), 10)},
	}
	resp, err := c.o.HTTP.Do(req)
	if err != nil {
		return "", failed(err)
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, safehttp.MaxBody) // so that the connection can be used again
	return "", answer(resp.StatusCode, resp.Header, a.Now)
}

func (c *Channel) secrets(keys belfry.Keys) ([]signature.Secret, error) {
	if keys["secret"] == "" {
		if c.secret.IsZero() {
			return nil, signature.ErrNoSecret
		}
		return []signature.Secret{c.secret}, nil
	}
	var secrets []signature.Secret
	for _, name := range [...]string{"secret", "secret_old"} {
		if keys[name] == "" {
			continue
		}
		s, err := signature.ParseSecret(keys[name].Reveal())
		if err != nil {
			return nil, err
		}
		secrets = append(secrets, s)
	}
	return secrets, nil
}

// answer is what a status means (Standard Webhooks 1.0): 2xx is accepted, 410 asks for no more, 429, 502, 504 and
// whatever names a Retry-After ask for patience, and the rest is tried again, since receivers get repaired. But for
// 410 and 429 a receiver that said no may have acted all the same, so later tries send the same bytes.
func answer(status int, h http.Header, now time.Time) error {
	after, named := safehttp.ParseRetryAfter(h, now)
	var f *belfry.Failure
	switch {
	case status >= 200 && status < 300:
		return nil
	case status == http.StatusGone:
		return belfry.Gone(status, "")
	case status == http.StatusTooManyRequests:
		return belfry.Throttled(status, after, "")
	case named, status == http.StatusBadGateway, status == http.StatusGatewayTimeout:
		f = belfry.Throttled(status, after, "")
	case status >= 300 && status < 400:
		f = belfry.NotSent(status, 0, "redirects are not followed")
	default:
		f = belfry.NotSent(status, 0, "")
	}
	f.Frozen = true
	return f
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
	return errors.New("webhook: " + why + ": it may have arrived")
}
