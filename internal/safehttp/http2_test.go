package safehttp_test

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"testing"

	"belfry/internal/safehttp"
)

var quiet = log.New(io.Discard, "", 0)

// frame is an HTTP/2 frame (RFC 9113 §4.1) without flags.
func frame(kind byte, stream uint32, payload ...byte) []byte {
	n := len(payload)
	out := []byte{byte(n >> 16), byte(n >> 8), byte(n), kind, 0}
	return append(binary.BigEndian.AppendUint32(out, stream), payload...)
}

// http2Server answers every request, once it has come whole, with what reply makes of its stream.
func http2Server(t *testing.T, requests *atomic.Int32, reply func(stream uint32) []byte) (url string, option func(*safehttp.Options)) {
	donor := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(donor.Close)
	config := &tls.Config{Certificates: donor.TLS.Certificates, NextProtos: []string{"h2"}}
	ln := listen(t, func(raw net.Conn) {
		c := tls.Server(raw, config)
		if _, err := io.ReadFull(c, make([]byte, len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))); err != nil {
			return
		}
		const data, headers, settings, endStream = 0, 1, 4, 1
		_, _ = c.Write(frame(settings, 0))
		for {
			head := make([]byte, 9)
			if _, err := io.ReadFull(c, head); err != nil {
				return
			}
			payload := make([]byte, int(head[0])<<16|int(head[1])<<8|int(head[2]))
			if _, err := io.ReadFull(c, payload); err != nil {
				return
			}
			if (head[3] == data || head[3] == headers) && head[4]&endStream != 0 {
				requests.Add(1)
				_, _ = c.Write(reply(binary.BigEndian.Uint32(head[5:])))
			}
		}
	})
	return "https://" + ln.Addr().String(), func(o *safehttp.Options) { o.RootCAs = roots(donor) }
}

func TestHTTP2ResetIsNotSentOnlyWhenTheServerSaysSo(t *testing.T) {
	const rstStream, goAway = 3, 7
	reset := func(code byte) func(uint32) []byte {
		return func(stream uint32) []byte { return frame(rstStream, stream, 0, 0, 0, code) }
	}
	for _, c := range []struct {
		name    string
		reply   func(uint32) []byte
		notSent bool
	}{
		{"REFUSED_STREAM", reset(7), true},
		{"GOAWAY below our stream", func(uint32) []byte { return frame(goAway, 0, 0, 0, 0, 0, 0, 0, 0, 0) }, true},
		{"INTERNAL_ERROR", reset(2), false},
		{"PROTOCOL_ERROR", reset(1), false}, // net/http would send again
		{"CANCEL", reset(8), false},
		{"unknown code", reset(99), false},
		{"GOAWAY at our stream, repeats the request", func(stream uint32) []byte {
			return frame(goAway, 0, append([]byte{0, 0, 0, byte(stream), 0, 0, 0, 2}, "REFUSED_STREAM "+token...)...)
		}, false},
		{"no HTTP/2", func(uint32) []byte { return []byte(strings.Repeat(token, 10)) }, false},
	} {
		for _, body := range []io.Reader{strings.NewReader(token), nil} {
			t.Run(c.name, func(t *testing.T) {
				var requests atomic.Int32
				url, option := http2Server(t, &requests, c.reply)
				ctx := t.Context()
				if strings.HasPrefix(c.name, "GOAWAY at") {
					ctx = short(t) // the server promised an answer, and none comes
				}
				req := post(t, ctx, url, body)
				req.Header.Set("Idempotency-Key", "k1")
				_, err := everything(t, option).Do(req)
				if err == nil || safehttp.Classify(err) != c.notSent {
					t.Errorf("not sent %t: %v", safehttp.Classify(err), err)
				}
				leaksNothing(t, err)
				if n := requests.Load(); n != 1 {
					t.Errorf("%d requests", n)
				}
			})
		}
	}
}

func TestHTTP2AnswerThatTimesOutIsAmbiguous(t *testing.T) {
	var requests atomic.Int32
	url, option := http2Server(t, &requests, func(uint32) []byte { return nil })
	_, err := everything(t, option).Do(post(t, short(t), url, strings.NewReader(token)))
	expect(t, "HTTP/2", err, safehttp.TimedOut, false)
}

// Over HTTP/2 the frames may still be written after Do has returned, so a request that got as far as a connection is
// never called not sent merely because nothing was written so far.
func TestHTTP2RequestCancelledOnItsConnectionIsAmbiguous(t *testing.T) {
	srv := httptest.NewUnstartedServer(http.NotFoundHandler())
	srv.EnableHTTP2 = true
	srv.StartTLS()
	defer srv.Close()
	c := everything(t, func(o *safehttp.Options) { o.RootCAs = roots(srv) })
	resp, err := c.Do(post(t, t.Context(), srv.URL, nil))
	if err != nil {
		t.Fatal(err)
	}
	_, _ = safehttp.ReadBody(resp)
	ctx, cancel := context.WithCancel(t.Context())
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { cancel() }})
	_, err = c.Do(post(t, ctx, srv.URL, strings.NewReader(token)))
	expect(t, "cancelled", err, safehttp.Cancelled, false)
}
