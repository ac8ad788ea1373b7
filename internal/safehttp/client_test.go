package safehttp_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"belfry/internal/safehttp"
)

func TestRedirectIsAnAnswer(t *testing.T) {
	var hits atomic.Int32
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hits.Add(1)
		w.Header().Set("Location", r.Header.Get("Want-Location"))
		w.WriteHeader(http.StatusTemporaryRedirect)
	}))
	defer srv.Close()
	for _, location := range []string{srv.URL + "/elsewhere", "http://169.254.169.254/", "http://[::1", ""} {
		hits.Store(0)
		req := post(t, t.Context(), srv.URL, strings.NewReader("x"))
		req.Header.Set("Want-Location", location)
		resp, err := everything(t, nil).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = safehttp.ReadBody(resp)
		if resp.StatusCode != http.StatusTemporaryRedirect || hits.Load() != 1 {
			t.Errorf("to %q: status %d after %d requests", location, resp.StatusCode, hits.Load())
		}
	}
}

// net/http reads these variables once in a process.
func TestMain(m *testing.M) {
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"} {
		os.Setenv(name, "http://127.0.0.1:1")
	}
	os.Exit(m.Run())
}

func TestProxyOfTheEnvironmentIsNotUsed(t *testing.T) {
	srv := httptest.NewServer(http.NotFoundHandler())
	defer srv.Close()
	c := everything(t, func(o *safehttp.Options) { o.Resolver = names(t, netip.MustParseAddr("127.0.0.1")) })
	resp, err := c.Do(post(t, t.Context(), "http://receiver.example.com"+srv.URL[strings.LastIndexByte(srv.URL, ':'):], nil))
	if err != nil {
		t.Fatal(err)
	}
	_, _ = safehttp.ReadBody(resp)
}

// A server acts on a request that came over a kept connection and dies before it answers.
func TestRequestIsNeverSentAgain(t *testing.T) {
	for _, method := range []string{"POST", "PUT", "GET", "HEAD", "DELETE"} {
		for _, header := range []string{"", "Idempotency-Key", "X-Idempotency-Key", "Webhook-Id"} {
			for name, payload := range map[string]func() io.Reader{
				"bytes":  func() io.Reader { return bytes.NewReader([]byte("act")) },
				"string": func() io.Reader { return strings.NewReader("act") },
				"none":   func() io.Reader { return nil },
				"nobody": func() io.Reader { return http.NoBody },
				"opaque": func() io.Reader { return io.NopCloser(strings.NewReader("act")) },
			} {
				t.Run(fmt.Sprintf("%s %s %s", method, header, name), func(t *testing.T) {
					var acted atomic.Int32
					ln := listen(t, func(c net.Conn) {
						for {
							req, _ := receive(c)
							if req == nil {
								return
							}
							if req.Header.Get("Act") != "" {
								acted.Add(1)
								return
							}
							_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
						}
					})
					c := everything(t, nil)
					resp, err := c.Do(post(t, t.Context(), "http://"+ln.Addr().String(), strings.NewReader("warm up")))
					if err != nil {
						t.Fatal(err)
					}
					if b, err := safehttp.ReadBody(resp); err != nil || string(b) != "ok" {
						t.Fatal(err)
					}
					req := post(t, t.Context(), "http://"+ln.Addr().String(), payload())
					req.Method = method
					req.Header.Set("Act", "yes")
					if header != "" {
						req.Header.Set(header, "k1")
					}
					if _, err = c.Do(req); err == nil {
						t.Fatal("a request without an answer succeeded")
					}
					if n := acted.Load(); n != 1 {
						t.Errorf("the server acted %d times", n)
					}
					if safehttp.Classify(err) {
						t.Errorf("called not sent: %v", err)
					}
					leaksNothing(t, err)
				})
			}
		}
	}
}

func TestRequestWithoutBodyArrivesAsSuch(t *testing.T) {
	got := make(chan string, 1)
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		got <- fmt.Sprint(r.Method, " ", string(b), err)
	}))
	srv.EnableHTTP2 = true
	srv.StartTLS()
	defer srv.Close()
	plain := httptest.NewServer(srv.Config.Handler)
	defer plain.Close()
	c := everything(t, func(o *safehttp.Options) { o.RootCAs = roots(srv) })
	for _, url := range []string{srv.URL, plain.URL} {
		for _, method := range []string{"GET", "POST", "DELETE"} {
			req := post(t, t.Context(), url, nil)
			req.Method = method
			resp, err := c.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = safehttp.ReadBody(resp)
			if diff := cmp.Diff(method+" <nil>", <-got); diff != "" {
				t.Error(diff)
			}
		}
	}
}

func roots(srv *httptest.Server) *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(srv.Certificate())
	return p
}

func TestTLS(t *testing.T) {
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Proto) }))
	srv.EnableHTTP2 = true
	srv.StartTLS()
	defer srv.Close()
	old := httptest.NewUnstartedServer(http.NotFoundHandler())
	old.TLS = &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}
	old.Config.ErrorLog = quiet
	old.StartTLS()
	defer old.Close()
	srv.Config.ErrorLog = quiet

	trusting := everything(t, func(o *safehttp.Options) { o.RootCAs = roots(srv) })
	resp, err := trusting.Do(post(t, t.Context(), srv.URL, nil))
	if err != nil {
		t.Fatal(err)
	}
	if b, err := safehttp.ReadBody(resp); err != nil || string(b) != "HTTP/2.0" {
		t.Errorf("%q, %v", b, err)
	}
	for name, do := range map[string]func() (*http.Response, error){
		"unknown authority": func() (*http.Response, error) {
			return everything(t, nil).Do(post(t, t.Context(), srv.URL, nil))
		},
		"TLS 1.1": func() (*http.Response, error) {
			return everything(t, func(o *safehttp.Options) { o.RootCAs = roots(old) }).Do(post(t, t.Context(), old.URL, nil))
		},
	} {
		_, err := do()
		expect(t, name, err, safehttp.TLSFailed, true)
	}
}

func expect(t *testing.T, name string, err error, reason string, notSent bool) {
	t.Helper()
	e, ok := errors.AsType[*safehttp.Error](err)
	if !ok {
		t.Errorf("%s: %v is no *Error", name, err)
		return
	}
	if e.Reason != reason || safehttp.Classify(err) != notSent {
		t.Errorf("%s: reason %s, not sent %t, want %s, %t: %v", name, e.Reason, e.NotSent, reason, notSent, err)
	}
	if safehttp.Classify(fmt.Errorf("webhook: %w", err)) != notSent {
		t.Errorf("%s: wrapping changed the verdict", name)
	}
	leaksNothing(t, err)
}

func TestFailuresBeforeTheRequestLeavesAreNotSent(t *testing.T) {
	silent := listen(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	rude := listen(t, func(net.Conn) {})
	plain := listen(t, func(c net.Conn) { _, _ = io.WriteString(c, "SSH-2.0-OpenSSH_9.0\r\n"); _, _ = io.Copy(io.Discard, c) })
	closed := listen(t, func(net.Conn) {})
	closed.Close()
	lost := listen(t, func(c net.Conn) { receive(c) })
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	noName := func(o *safehttp.Options) { o.Resolver = names(t, netip.Addr{}) }
	hanging := func(o *safehttp.Options) {
		o.ConnectTimeout = 100 * time.Millisecond
		o.Resolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}}
	}
	guarded := func(o *safehttp.Options) { o.AllowAll = false }
	badQuery := post(t, t.Context(), "http://"+lost.Addr().String(), strings.NewReader(token))
	badQuery.URL.RawQuery = token + "\x7f"
	badHeader := post(t, t.Context(), "http://"+lost.Addr().String(), strings.NewReader(token))
	badHeader.Header.Set("X-A", token+"\r\nX-B: 1")

	for _, c := range []struct {
		name   string
		option func(*safehttp.Options)
		req    *http.Request
		reason string
	}{
		{"guard", guarded, post(t, t.Context(), "https://127.0.0.1:1", strings.NewReader(token)), safehttp.Refused},
		{"bad scheme", nil, post(t, t.Context(), "ftp://example.com", nil), safehttp.Refused},
		{"no such name", noName, post(t, t.Context(), "https://receiver.example.com", strings.NewReader(token)), safehttp.DNSFailed},
		{"name server silent", hanging, post(t, t.Context(), "https://receiver.example.com", nil), safehttp.TimedOut},
		{"connection refused", nil, post(t, t.Context(), "http://"+closed.Addr().String(), strings.NewReader(token)), safehttp.ConnectFailed},
		{"TLS handshake hangs", func(o *safehttp.Options) { o.TLSTimeout = 100 * time.Millisecond }, post(t, t.Context(), "https://"+silent.Addr().String(), nil), safehttp.TimedOut},
		{"deadline during TLS handshake", nil, post(t, short(t), "https://"+silent.Addr().String(), strings.NewReader(token)), safehttp.TimedOut},
		{"closed during TLS handshake", nil, post(t, t.Context(), "https://"+rude.Addr().String(), nil), safehttp.TLSFailed},
		{"no TLS spoken", nil, post(t, t.Context(), "https://"+plain.Addr().String(), nil), safehttp.TLSFailed},
		{"cancelled before", nil, post(t, cancelled, "http://"+lost.Addr().String(), strings.NewReader(token)), safehttp.Cancelled},
		{"header with a line break", nil, badHeader, safehttp.Invalid},
		{"control character in the query", nil, badQuery, safehttp.BrokenOff},
	} {
		_, err := everything(t, c.option).Do(c.req)
		expect(t, c.name, err, c.reason, true)
	}
}

func TestFailuresAfterTheRequestMayHaveLeftAreAmbiguous(t *testing.T) {
	deaf := listen(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	answer := func(text string) string {
		return "http://" + listen(t, func(c net.Conn) {
			if req, _ := receive(c); req != nil {
				_, _ = io.WriteString(c, strings.ReplaceAll(text, "<path>", req.RequestURI))
			}
		}).Addr().String()
	}
	reset := "http://" + listen(t, func(c net.Conn) {
		receive(c)
		_ = c.(*net.TCPConn).SetLinger(0)
	}).Addr().String()
	gone, cancel := context.WithCancel(t.Context())
	leave := "http://" + listen(t, func(c net.Conn) { receive(c); cancel(); _, _ = io.Copy(io.Discard, c) }).Addr().String()

	for _, c := range []struct {
		name, url, reason string
		option            func(*safehttp.Options)
		ctx               func(testing.TB) context.Context
		body              io.Reader
	}{
		{name: "no answer before the deadline", url: "http://" + deaf.Addr().String(), ctx: short, reason: safehttp.TimedOut},
		{name: "no answer in Timeout", url: "http://" + deaf.Addr().String(), option: func(o *safehttp.Options) { o.Timeout = 400 * time.Millisecond }, reason: safehttp.TimedOut},
		{name: "no answer in HeaderTimeout", url: "http://" + deaf.Addr().String(), option: func(o *safehttp.Options) { o.HeaderTimeout = 400 * time.Millisecond }, reason: safehttp.TimedOut},
		{name: "cancelled while waiting", url: leave, ctx: func(testing.TB) context.Context { return gone }, reason: safehttp.Cancelled},
		{name: "closed without an answer", url: answer(""), reason: safehttp.BrokenOff},
		{name: "reset without an answer", url: reset, reason: safehttp.BrokenOff},
		{name: "half a header", url: answer("HTTP/1.1 200 OK\r\nContent-"), reason: safehttp.BrokenOff},
		{name: "no HTTP, repeats the request", url: answer("<path>\r\n\r\n"), reason: safehttp.BrokenOff},
		{name: "bad status, repeats the request", url: answer("HTTP/1.1 2<path> OK\r\n\r\n"), reason: safehttp.BrokenOff},
		{name: "bad header, repeats the request", url: answer("HTTP/1.1 200 OK\r\n<path>\r\n\r\n"), reason: safehttp.BrokenOff},
		{name: "header too large", url: answer("HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 70<<10) + "\r\n\r\n"), reason: safehttp.BrokenOff},
		{name: "body fails half-way", url: answer(""), body: io.MultiReader(strings.NewReader(token), broken{}), reason: safehttp.BrokenOff},
	} {
		if c.body == nil {
			c.body = strings.NewReader(token)
		}
		ctx := t.Context()
		if c.ctx != nil {
			ctx = c.ctx(t)
		}
		_, err := everything(t, c.option).Do(post(t, ctx, c.url, c.body))
		expect(t, c.name, err, c.reason, false)
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("disk on fire") }

func TestClassifyKnowsOnlyErrorsOfDo(t *testing.T) {
	for _, err := range []error{nil, io.EOF, context.DeadlineExceeded, safehttp.ErrRefused} {
		if safehttp.Classify(err) {
			t.Errorf("%v was called not sent", err)
		}
	}
}

func TestReadBodyIsBounded(t *testing.T) {
	for _, c := range []struct {
		size, want int
		err        error
	}{{0, 0, nil}, {1, 1, nil}, {safehttp.MaxBody, safehttp.MaxBody, nil}, {safehttp.MaxBody + 1, safehttp.MaxBody, safehttp.ErrBodyTooLarge}, {5 << 20, safehttp.MaxBody, safehttp.ErrBodyTooLarge}} {
		for _, zipped := range []bool{false, true} {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				var out io.Writer = w
				if zipped {
					w.Header().Set("Content-Encoding", "gzip")
					z := gzip.NewWriter(w)
					defer z.Close()
					out = z
				}
				_, _ = out.Write(make([]byte, c.size))
			}))
			resp, err := everything(t, nil).Do(post(t, t.Context(), srv.URL, nil))
			if err != nil {
				t.Fatal(err)
			}
			b, err := safehttp.ReadBody(resp)
			if len(b) != c.want || !errors.Is(err, c.err) {
				t.Errorf("%d bytes, zipped %t: %d, %v", c.size, zipped, len(b), err)
			}
			srv.CloseClientConnections()
			srv.Close()
		}
	}
}

func TestConnectionIsUsedAgainAfterReadBody(t *testing.T) {
	var conns atomic.Int32
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write(make([]byte, 2000)) }))
	srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			conns.Add(1)
		}
	}
	srv.Start()
	defer srv.Close()
	c := everything(t, nil)
	for range 20 {
		resp, err := c.Do(post(t, t.Context(), srv.URL, strings.NewReader("x")))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := safehttp.ReadBody(resp); err != nil {
			t.Fatal(err)
		}
	}
	if n := conns.Load(); n != 1 {
		t.Errorf("%d connections for 20 requests", n)
	}
}

func TestAsManyConnectionsAreKeptAsTheOptionSays(t *testing.T) {
	for most, want := range map[int]int32{0: 8, 3: 8 + 5} {
		var conns atomic.Int32
		var together sync.WaitGroup
		srv := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			together.Done()
			together.Wait()
		}))
		srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
			if s == http.StateNew {
				conns.Add(1)
			}
		}
		srv.Start()
		c := everything(t, func(o *safehttp.Options) { o.MaxIdlePerHost = most })
		for range 2 {
			together.Add(8)
			var done sync.WaitGroup
			for range 8 {
				done.Go(func() {
					resp, err := c.Do(post(t, t.Context(), srv.URL, nil))
					if err != nil {
						t.Error(err)
						return
					}
					_, _ = safehttp.ReadBody(resp)
				})
			}
			done.Wait()
		}
		if n := conns.Load(); n != want {
			t.Errorf("MaxIdlePerHost %d: %d connections, want %d", most, n, want)
		}
		srv.Close()
	}
}

func TestRequestThatCannotBeWrittenToAKeptConnectionIsNotSent(t *testing.T) {
	for _, start := range []func(*httptest.Server){(*httptest.Server).Start, (*httptest.Server).StartTLS} {
		srv := httptest.NewUnstartedServer(http.NotFoundHandler())
		start(srv)
		c := everything(t, func(o *safehttp.Options) {
			if srv.TLS != nil {
				o.RootCAs = roots(srv)
			}
		})
		resp, err := c.Do(post(t, t.Context(), srv.URL, nil))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = safehttp.ReadBody(resp)
		req := post(t, t.Context(), srv.URL, nil)
		req.URL.RawQuery = token + "\x7f"
		_, err = c.Do(req)
		expect(t, srv.URL, err, safehttp.BrokenOff, true)
		srv.Close()
	}
}

func TestBodyThatBreaksOffKeepsWhatCame(t *testing.T) {
	for name, tail := range map[string]string{
		"Content-Length": "Content-Length: 10\r\n\r\nhalf",
		"chunk":          "Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n<path>\r\n",
	} {
		ln := listen(t, func(c net.Conn) {
			if req, _ := receive(c); req != nil {
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n"+strings.ReplaceAll(tail, "<path>", req.RequestURI))
			}
		})
		resp, err := everything(t, nil).Do(post(t, t.Context(), "http://"+ln.Addr().String(), nil))
		if err != nil {
			t.Fatal(err)
		}
		b, err := safehttp.ReadBody(resp)
		if string(b) != "half" {
			t.Errorf("%s: %q", name, b)
		}
		expect(t, name, err, safehttp.BrokenOff, false)
	}
}

func TestTimeoutCoversTheBody(t *testing.T) {
	ln := listen(t, func(c net.Conn) {
		receive(c)
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
		_, _ = io.Copy(io.Discard, c)
	})
	c := everything(t, func(o *safehttp.Options) { o.Timeout = 400 * time.Millisecond })
	resp, err := c.Do(post(t, t.Context(), "http://"+ln.Addr().String(), nil))
	if err != nil {
		t.Fatal(err)
	}
	_, err = safehttp.ReadBody(resp)
	expect(t, "slow body", err, safehttp.TimedOut, false)
}

func TestOneClientServesManyAtOnce(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }))
	defer srv.Close()
	c := everything(t, nil)
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			for j := range 20 {
				want := fmt.Sprint(i, "/", j)
				resp, err := c.Do(post(t, t.Context(), srv.URL, strings.NewReader(want)))
				if err != nil {
					t.Error(err)
					return
				}
				if b, err := safehttp.ReadBody(resp); err != nil || string(b) != want {
					t.Errorf("%q, %v", b, err)
				}
			}
		})
	}
	wg.Wait()
}

func TestDoLeavesTheRequestAsItIs(t *testing.T) {
	srv := httptest.NewServer(http.NotFoundHandler())
	defer srv.Close()
	req := post(t, t.Context(), srv.URL, strings.NewReader("x"))
	resp, err := everything(t, nil).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = safehttp.ReadBody(resp)
	if req.GetBody == nil || resp.Request != req {
		t.Error("the request was changed")
	}
}
