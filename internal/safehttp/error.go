package safehttp

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
)

// What went wrong, coarsely: the part of an [Error] that may be shown to whoever chose the URL, since more would make
// us a scanner of networks.
const (
	Refused       = "refused"        // by the outbound guard
	DNSFailed     = "dns_failed"     // the name has no address
	ConnectFailed = "connect_failed" // nobody accepted the connection
	TLSFailed     = "tls_failed"     // no secure connection, for example a bad certificate
	TimedOut      = "timed_out"      // at any stage
	Cancelled     = "cancelled"      // by our own side
	Invalid       = "invalid"        // a request that cannot be written
	BrokenOff     = "broken_off"     // no complete answer
)

// Error is a request without a complete answer. Its text names the host and the reason. Err is the cause; print it
// nowhere, for an answer that cannot be parsed is quoted in it and may repeat the request.
type Error struct {
	Host    string // and port if the URL had one
	Reason  string // one of the constants above
	NotSent bool   // see [Classify]
	Err     error
}

func (e *Error) Error() string {
	text := "safehttp: request to " + printable(e.Host) + ": " + e.Reason
	if d := detail(e.Err); d != "" {
		text += ": " + d
	}
	if !e.NotSent {
		text += " (it may have arrived)"
	}
	return text
}

func (e *Error) Unwrap() error { return e.Err }

// Classify reports whether the request that failed with err certainly did not reach a server that could act on it, so
// that sending it again cannot make it happen twice: refused by the guard, no address, no connection, no TLS, no
// whole header written, or handed back unprocessed (RFC 9113 §8.7). False means that it may have arrived.
func Classify(err error) (definitelyNotSent bool) {
	e, ok := errors.AsType[*Error](err)
	return ok && e.NotSent
}

// sending watches one request on its way.
type sending struct {
	conn  net.Conn    // set in the goroutine of RoundTrip
	wrote atomic.Bool // the whole header, perhaps only to a buffer; set in the connection's goroutine
}

func (s *sending) gotConn(info httptrace.GotConnInfo) { s.conn = info.Conn }

func (s *sending) wroteHeaders() { s.wrote.Store(true) }

func (s *sending) failed(req *http.Request, err error) error {
	return &Error{
		Host:    req.URL.Host,
		Reason:  reason(err, s.conn != nil),
		NotSent: s.conn == nil || s.incomplete() || handedBack(err),
		Err:     err,
	}
}

// incomplete reports that no whole header left, and on less no server acts (RFC 9112 §8). That is known over HTTP/1
// only, where RoundTrip fails after its writer has stopped: HTTP/2 frames may still be written when it returns.
func (s *sending) incomplete() bool {
	if t, ok := s.conn.(*tls.Conn); ok && t.ConnectionState().NegotiatedProtocol == "h2" {
		return false
	}
	return !s.wrote.Load()
}

// handedBack tells when an HTTP/2 server declared the request unprocessed (RFC 9113 §8.7), or no stream was opened.
// net/http keeps these errors to itself and has put them into the text of another by the time we see them.
func handedBack(err error) bool {
	text := err.Error()
	if text == "http2: client conn not usable" || text == "http2: client conn could not be established" {
		return true
	}
	cause, ok := strings.CutPrefix(text, "http2: Transport: cannot retry err [")
	if !ok {
		return false
	}
	return strings.HasPrefix(cause, "http2: Transport received Server's graceful shutdown GOAWAY]") ||
		strings.HasPrefix(cause, "stream error: stream ID ") && strings.Contains(cause, "; REFUSED_STREAM; received from peer]")
}

func reason(err error, connected bool) string {
	op, _ := errors.AsType[*net.OpError](err)
	timeout, _ := errors.AsType[net.Error](err)
	_, dns := errors.AsType[*net.DNSError](err)
	_, certificate := errors.AsType[*tls.CertificateVerificationError](err)
	_, record := errors.AsType[tls.RecordHeaderError](err)
	switch {
	case errors.Is(err, ErrRefused):
		return Refused
	case errors.Is(err, context.Canceled):
		return Cancelled
	case errors.Is(err, context.DeadlineExceeded), timeout != nil && timeout.Timeout():
		return TimedOut
	case connected:
		return BrokenOff
	case dns:
		return DNSFailed
	case op != nil && op.Op == "dial":
		return ConnectFailed
	case op != nil, certificate, record, errors.Is(err, io.EOF), strings.HasPrefix(err.Error(), "tls: "):
		return TLSFailed
	}
	return Invalid
}

// detail returns the text of causes that are known to quote neither the request nor the answer.
func detail(err error) string {
	var safe error
	if op, ok := errors.AsType[*net.OpError](err); ok {
		safe = op
	} else if c, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		safe = c
	} else if _, ok := errors.AsType[tls.RecordHeaderError](err); ok || errors.Is(err, ErrRefused) {
		safe = err
	}
	if safe == nil {
		return ""
	}
	return printable(safe.Error())
}

// printable keeps what a server or a DNS answer chose to say from forging log lines.
func printable(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
	return s[:min(len(s), 300)]
}
