package channeltest

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"belfry"
	"belfry/channel"
)

func addressesAreChecked(t testing.TB, s Setup) {
	p := serve(t, accepted(t, s))
	ch, e := s.Open(t, Provider{URL: p.URL})
	if ch.Name() == "" || ch.Budget() <= 0 {
		t.Errorf("name %q, budget %v", ch.Name(), ch.Budget())
	}
	for _, a := range append(s.Good, Address{Name: "that of the test", Address: e.Address.Reveal(), Keys: e.Keys}) {
		if err := ch.Check(belfry.Secret(a.Address), a.Keys); err != nil {
			t.Errorf("%s is refused: %v", a.Name, err)
		}
	}
	if len(s.Bad) == 0 {
		t.Error("the driver names no address that is refused")
	}
	for _, a := range s.Bad {
		err := ch.Check(belfry.Secret(a.Address), a.Keys)
		if refusal, ok := err.(*belfry.Error); !ok || refusal.Field != a.Field {
			t.Errorf("%s: got %v, want a refusal that names %s", a.Name, err, a.Field)
			continue
		}
		for name, key := range a.Keys {
			if len(key) >= 8 && strings.Contains(err.Error(), key.Reveal()) {
				t.Errorf("%s: the refusal shows keys.%s", a.Name, name)
			}
		}
		if len(a.Address) >= 8 && strings.Contains(err.Error(), a.Address) {
			t.Errorf("%s: the refusal shows the address", a.Name)
		}
	}
	if n := len(p.seen()); n > 0 {
		t.Errorf("Check made %d requests", n)
	}
}

func encodeIsDeterministic(t testing.TB, s Setup) {
	p := Provider{URL: "http://127.0.0.1:1"}
	ch, _ := s.Open(t, p)
	first, err := ch.Encode(message())
	if err != nil {
		t.Fatal(err)
	}
	for range 50 {
		again, _ := s.Open(t, p)
		if b, err := again.Encode(message()); err != nil || !bytes.Equal(b, first) {
			t.Fatalf("the same message became %q, then %q, %v", first, b, err)
		}
	}
	if bytes.Contains(first, []byte("\\u0026")) {
		t.Errorf("a character takes six bytes: %s", first)
	}
}

func encodeRefusesWhatIsTooLarge(t testing.TB, s Setup) {
	ch, _ := s.Open(t, Provider{URL: "http://127.0.0.1:1"})
	m := message()
	m.Content.Body = strings.Repeat(secretText, 50000)
	b, err := ch.Encode(m)
	if _, ok := errors.AsType[*belfry.Error](err); !ok {
		t.Fatalf("a body of 1 MB became a payload of %d bytes, %v", len(b), err)
	}
	if strings.Contains(err.Error(), secretText) {
		t.Errorf("the refusal quotes the message: %.200v", err)
	}
}

func deadProviderIsNotSent(t testing.TB, s Setup) {
	for _, how := range []string{"dns", "refused", "tls"} {
		if got := fail(t, s, how); got.Outcome != belfry.OutcomeNotSent {
			t.Errorf("%s: %q", how, got.Outcome)
		}
	}
}

func noAnswerIsAmbiguous(t testing.TB, s Setup) {
	for _, how := range []string{"timeout", "reset", "eof", "cut", "garbage"} {
		if got := fail(t, s, how); got.Outcome != belfry.OutcomeAmbiguous {
			t.Errorf("%s: %q", how, got.Outcome)
		}
	}
}

func cancelledBeforeIsNotSent(t testing.TB, s Setup) {
	p := serve(t, accepted(t, s))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := send(t, ctx, s, Provider{URL: p.URL}); got.Outcome != belfry.OutcomeNotSent || len(p.seen()) > 0 {
		t.Errorf("%q after %d requests", got.Outcome, len(p.seen()))
	}
}

// cancelledMidwayLeaksNothing cancels when the provider has read the request.
func cancelledMidwayLeaksNothing(t testing.TB, s Setup) {
	var cancel context.CancelFunc
	p := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	})
	ch, e := s.Open(t, Provider{URL: p.URL})
	once := func() {
		var ctx context.Context
		ctx, cancel = context.WithCancel(t.Context())
		defer cancel()
		if got := try(t, ctx, s, ch, arm(t, ch, e)); got.Outcome != belfry.OutcomeAmbiguous {
			t.Errorf("%q", got.Outcome)
		}
	}
	once()
	before := runtime.NumGoroutine()
	for range 20 {
		once()
	}
	// What the last tries left behind ends in its own time.
	end := time.Now().Add(patience)
	for tick := time.NewTicker(time.Millisecond); runtime.NumGoroutine() > before+5; <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("20 cancelled tries left %d goroutines behind", runtime.NumGoroutine()-before)
		}
	}
}

func redirectIsNotFollowed(t testing.TB, s Setup) {
	elsewhere := serve(t, accepted(t, s))
	for _, status := range []int{301, 302, 303, 307, 308} {
		p := serve(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere.URL, status) })
		got := send(t, t.Context(), s, Provider{URL: p.URL})
		if got.Outcome == belfry.OutcomeAccepted || len(p.seen()) != 1 || len(elsewhere.seen()) > 0 {
			t.Errorf("%d: %q after %d requests and %d elsewhere", status, got.Outcome, len(p.seen()), len(elsewhere.seen()))
		}
	}
}

func sendIsOneRequest(t testing.TB, s Setup) {
	ok := accepted(t, s)
	for _, status := range []int{0, 400, 401, 403, 404, 408, 410, 425, 429, 500, 502, 503, 504} {
		p := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if status == 0 {
				ok(w, r)
				return
			}
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(status)
		})
		got := send(t, t.Context(), s, Provider{URL: p.URL})
		if n := len(p.seen()); n != 1 || (got.Outcome == belfry.OutcomeAccepted) != (status == 0) {
			t.Errorf("%d: %q after %d requests", status, got.Outcome, n)
		}
	}
}

// dyingConnectionIsOneRequest: net/http is tempted to send again when a connection dies that was used before.
func dyingConnectionIsOneRequest(t testing.TB, s Setup) {
	ok := accepted(t, s)
	var tries atomic.Int64
	p := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if tries.Load() > 1 {
			panic(http.ErrAbortHandler)
		}
		ok(w, r)
	})
	ch, e := s.Open(t, Provider{URL: p.URL})
	a := arm(t, ch, e)
	for n := 1; n <= 4; n++ {
		tries.Store(int64(n))
		got := try(t, t.Context(), s, ch, a)
		want := belfry.OutcomeAmbiguous
		if n == 1 {
			want = belfry.OutcomeAccepted
		}
		if len(p.seen()) != n || got.Outcome != want {
			t.Fatalf("%d tries: %q after %d requests", n, got.Outcome, len(p.seen()))
		}
	}
}

// flood is how large the answers are of which almost nothing may be taken.
const flood = 32 << 20

// floods answers with the chunk n times; together they are a body of that size once they are decompressed.
func floods(t testing.TB, s Setup, status int, encoding string, chunk []byte, n int) {
	t.Helper()
	var written atomic.Int64
	done := make(chan struct{})
	p := serve(t, func(w http.ResponseWriter, r *http.Request) {
		defer close(done)
		w.Header().Set("Content-Encoding", encoding)
		w.WriteHeader(status)
		for range n {
			n, err := w.Write(chunk)
			if written.Add(int64(n)); err != nil {
				return
			}
		}
	})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got := send(t, t.Context(), s, Provider{URL: p.URL})
	runtime.ReadMemStats(&after)
	<-done
	if (got.Outcome == belfry.OutcomeAccepted) != (status == 200) {
		t.Errorf("%d: %q", status, got.Outcome)
	}
	if n := after.TotalAlloc - before.TotalAlloc; n > flood/4 {
		t.Errorf("%d: an answer of %d MiB took %d MiB of memory", status, flood>>20, n>>20)
	}
	if n := written.Load(); n > flood/2 {
		t.Errorf("%d: %d MiB of an answer were read", status, n>>20)
	}
}

func largeAnswerIsCut(t testing.TB, s Setup) {
	const chunk = 32 << 10
	for _, status := range []int{200, 400, 500} {
		floods(t, s, status, "identity", bytes.Repeat([]byte("x"), chunk), flood/chunk)
	}
}

// bomb is made once: that takes longer than all the rest.
var bomb = sync.OnceValue(func() []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	zeroes := make([]byte, 1<<20)
	for range flood / len(zeroes) {
		_, _ = z.Write(zeroes)
	}
	_ = z.Close()
	return b.Bytes()
})

func gzipBombIsCut(t testing.TB, s Setup) {
	for _, status := range []int{200, 400} {
		floods(t, s, status, "gzip", bomb(), 1)
	}
}

// brokenBodyKeepsTheStatus: the verdict of a provider is its status.
func brokenBodyKeepsTheStatus(t testing.TB, s Setup) {
	p := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		raw(w, "HTTP/1.1 429 Too Many Requests\r\nContent-Length: 100\r\nRetry-After: 7\r\n\r\n{\"half\":")
	})
	if got := send(t, t.Context(), s, Provider{URL: p.URL}); got.Outcome != belfry.OutcomeThrottled || got.After != 7*time.Second {
		t.Errorf("%q, to be tried again after %v", got.Outcome, got.After)
	}
}

func retryAfterIsRead(t testing.TB, s Setup) {
	for _, c := range []struct {
		value    string
		min, max time.Duration
	}{
		{"", 0, 0}, {"0", 0, 0}, {"7", 7 * time.Second, 7 * time.Second},
		{time.Now().Add(90 * time.Second).UTC().Format(http.TimeFormat), 60 * time.Second, 90 * time.Second},
		{"Sun, 06 Nov 1994 08:49:37 GMT", 0, 0},
		{"315360000", time.Hour, 24 * time.Hour}, // ten years
		{"99999999999999999999", time.Hour, 24 * time.Hour},
		{"-5", 0, 0}, {"soon", 0, 0}, {"1.5", 0, 0}, {"7 s", 0, 0},
	} {
		p := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			if c.value != "" {
				w.Header().Set("Retry-After", c.value)
			}
			w.WriteHeader(http.StatusTooManyRequests)
		})
		got := send(t, t.Context(), s, Provider{URL: p.URL})
		if got.Outcome != belfry.OutcomeThrottled || got.After < c.min || got.After > c.max {
			t.Errorf("%q: %q, to be tried again after %v", c.value, got.Outcome, got.After)
		}
	}
}

// noTextHoldsASecret lets the provider throw everything back that it was sent.
func noTextHoldsASecret(t testing.TB, s Setup) {
	for _, status := range []int{302, 400, 401, 403, 404, 410, 413, 429, 500, 503} {
		setup := s
		p := serve(t, nil)
		p.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			setup.Secrets = append(setup.Secrets[:len(setup.Secrets):len(setup.Secrets)], r.Header.Get("Authorization"))
			all := fmt.Sprint(p.URL, r.RequestURI, " ", r.Header, " ", string(body), " ", strings.Join(s.Secrets, " "))
			w.Header().Set("Location", p.URL+r.RequestURI)
			w.WriteHeader(status)
			b, _ := json.Marshal(map[string]any{"error": all, "reason": all, "message": all, "code": status})
			_, _ = w.Write(b)
		})
		ch, e := setup.Open(t, Provider{URL: p.URL})
		got := try(t, t.Context(), setup, ch, arm(t, ch, e))
		setup.leaks(t, arm(t, ch, e), fmt.Sprintf("the detail after a %d", status), got.Detail+got.Ref)
	}
}

func sendIsConcurrent(t testing.TB, s Setup) {
	p := serve(t, accepted(t, s))
	ch, e := s.Open(t, Provider{URL: p.URL})
	a := arm(t, ch, e)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 10 {
				if _, err := ch.Send(t.Context(), a); err != nil {
					t.Errorf("%v", err)
				}
				if b, err := ch.Encode(message()); err != nil || !bytes.Equal(b, a.Payload) {
					t.Errorf("%q, %v", b, err)
				}
				_ = ch.Check(e.Address, e.Keys)
			}
		})
	}
	wg.Wait()
	if n := len(p.seen()); n != 80 {
		t.Errorf("80 tries made %d requests", n)
	}
}

// budgetIsKept runs in a bubble: nobody waits for the time that passes.
func budgetIsKept(t testing.TB, s Setup) {
	hang := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	ch, e := s.Open(t, Provider{URL: "https://provider.example", HTTP: &http.Client{Transport: Transport(hang)}})
	a := arm(t, ch, e)
	start := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	ref, err := ch.Send(ctx, a)
	if took := time.Since(start); took > ch.Budget() {
		t.Errorf("a provider that hangs was waited for %v, the budget is %v", took, ch.Budget())
	}
	if got := belfry.AnswerOf(ref, err); got.Outcome != belfry.OutcomeAmbiguous {
		t.Errorf("%q", got.Outcome)
	}
}

// leaks looks for what must not be in a text.
func (s Setup) leaks(t testing.TB, a channel.Armed, where, text string) {
	t.Helper()
	secrets := append([]string{a.Endpoint.Address.Reveal(), secretText}, s.Secrets...)
	for _, key := range a.Endpoint.Keys {
		secrets = append(secrets, key.Reveal())
	}
	if u, err := url.Parse(a.Endpoint.Address.Reveal()); err == nil && u.Host != "" {
		secrets = append(secrets, u.Host, u.Path, u.RawQuery)
	}
	for _, secret := range secrets {
		if len(secret) < 6 { // "/" and the like
			continue
		}
		b := []byte(secret)
		for _, form := range []string{
			secret, url.QueryEscape(secret), url.PathEscape(secret), hex.EncodeToString(b),
			base64.StdEncoding.EncodeToString(b), base64.RawURLEncoding.EncodeToString(b),
		} {
			if strings.Contains(text, form) {
				t.Errorf("%s shows %q", where, form)
				return
			}
		}
	}
}

// capture collects what is logged until the function it returns is called.
func capture(to io.Writer) (restore func()) {
	w, flags, logger := log.Writer(), log.Flags(), slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(to, nil)))
	log.SetOutput(to)
	return func() {
		slog.SetDefault(logger)
		log.SetOutput(w)
		log.SetFlags(flags)
	}
}
