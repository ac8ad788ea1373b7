package safehttp

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"time"
)

// MaxBody is how many bytes of an answer [ReadBody] returns, after decompression.
const MaxBody = 64 << 10

const maxHeader = 64 << 10

// Options of [New], [NewDialer] and [CheckURL]. The zero value allows https to public addresses only.
type Options struct {
	// AllowPrivate opens ranges that are not public, for receivers in one's own network, and http to them. Link-local
	// addresses, cloud metadata, multicast and tunnels stay closed whatever it says.
	AllowPrivate []netip.Prefix
	// AllowAll opens everything AllowPrivate could open, http and names such as localhost: for development and sandboxes.
	AllowAll bool
	// RootCAs replaces the system's certificate authorities when set.
	RootCAs *x509.CertPool

	Timeout        time.Duration // of a whole exchange, up to the last byte read of the answer; default 30 s
	ConnectTimeout time.Duration // of name look-up and TCP connect; default 10 s
	TLSTimeout     time.Duration // of the TLS handshake; default 10 s
	HeaderTimeout  time.Duration // from the request written to the answer's header; default Timeout

	// MaxIdlePerHost is how many connections to one host are kept between requests; default 128. Fewer than there are
	// requests at once to a host without HTTP/2 means a new handshake for the others.
	MaxIdlePerHost int
	// Resolver looks names up; default [net.DefaultResolver].
	Resolver *net.Resolver
}

// Client sends requests. Make one per set of Options and share it: it is safe for concurrent use and keeps connections.
type Client struct {
	guard     guard
	timeout   time.Duration
	transport *http.Transport
}

// New returns a Client. It dials nothing yet.
func New(o Options) *Client {
	c := &Client{guard: newGuard(o), timeout: cmp.Or(o.Timeout, 30*time.Second)}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	c.transport = &http.Transport{
		Proxy:                  nil, // a proxy would dial for us, past the guard
		DialContext:            NewDialer(o).DialContext,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: o.RootCAs},
		TLSHandshakeTimeout:    cmp.Or(o.TLSTimeout, 10*time.Second),
		ResponseHeaderTimeout:  cmp.Or(o.HeaderTimeout, c.timeout),
		MaxResponseHeaderBytes: maxHeader,
		MaxIdleConnsPerHost:    cmp.Or(o.MaxIdlePerHost, 128),
		IdleConnTimeout:        30 * time.Second, // shorter than most servers', who else close just as we write
		Protocols:              protocols,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 10 * time.Second, WriteByteTimeout: 10 * time.Second},
	}
	return c
}

// CloseIdleConnections closes the connections that no request uses.
func (c *Client) CloseIdleConnections() { c.transport.CloseIdleConnections() }

// Do writes req at most once and returns the answer, whatever its status: redirects are answers too. The caller reads
// and closes its body, best with [ReadBody]. Do leaves req as it is but consumes its body.
//
// A failure is an [*Error]; [Classify] says whether the request may have arrived. Besides the context of req the
// Timeout of [Options] applies, also while the body is read.
func (c *Client) Do(req *http.Request) (*http.Response, error) {
	if err := c.guard.url(req.URL); err != nil {
		if req.Body != nil {
			req.Body.Close()
		}
		return nil, &Error{Host: req.URL.Host, Reason: Refused, NotSent: true, Err: err}
	}
	ctx, cancel := context.WithTimeout(req.Context(), c.timeout)
	if req.URL.Scheme == "http" {
		ctx = context.WithValue(ctx, plainKey{}, true)
	}
	var s sending
	out := req.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: s.gotConn, WroteHeaders: s.wroteHeaders}))

	// net/http sends a request again when a kept connection dies before the answer if it has no body, or can get it
	// again, and is a GET or carries Idempotency-Key; over HTTP/2 also after some resets. The receiver may have acted
	// by then. A body that can be read but once rules out all of it, so a request without one gets an empty one.
	out.GetBody = nil
	if out.Body == nil || out.Body == http.NoBody {
		out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(nil)), 0
	}

	resp, err := c.transport.RoundTrip(out)
	if err != nil {
		cancel()
		return nil, s.failed(req, err)
	}
	resp.Request = req
	resp.Body = &body{resp.Body, cancel}
	return resp, nil
}

// body ends the exchange's timer when it is closed.
type body struct {
	io.ReadCloser
	cancel context.CancelFunc
}

func (b *body) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}

// ErrBodyTooLarge is returned by [ReadBody] together with the first [MaxBody] bytes.
var ErrBodyTooLarge = errors.New("safehttp: answer is larger than 64 KiB; its end was cut off")

// ReadBody reads at most [MaxBody] bytes of the body, after decompression, and closes it, so that the connection can be
// used again unless the answer is far larger. What it read is returned with every error: [ErrBodyTooLarge], or an
// [*Error] when the answer broke off. Neither changes that the request arrived.
func ReadBody(resp *http.Response) ([]byte, error) {
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, MaxBody+1))
	if err != nil {
		e := &Error{Reason: reason(err, true), Err: err}
		if resp.Request != nil {
			e.Host = resp.Request.URL.Host
		}
		return b[:min(len(b), MaxBody)], e
	}
	if len(b) > MaxBody {
		_, _ = io.CopyN(io.Discard, resp.Body, MaxBody)
		return b[:MaxBody], ErrBodyTooLarge
	}
	return b, nil
}
