package channeltest

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"belfry"
)

// Row is one documented answer of a provider and what it means. The file is a JSON list of them.
type Row struct {
	Channel string            `json:"channel,omitempty"` // in a file for several channels
	Name    string            `json:"name"`
	Host    string            `json:"host,omitempty"` // of the provider, where that matters
	Status  int               `json:"status,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
	Body    string            `json:"body,omitempty"`
	// Error takes the place of an answer: dns, refused, tls (no connection), timeout, reset, eof (after the request
	// was read), cut (in the midst of the header), garbage (no HTTP).
	Error      string         `json:"error,omitempty"`
	Outcome    belfry.Outcome `json:"outcome"`
	RetryAfter *float64       `json:"retry_after_s,omitempty"` // absent: not compared
}

func rows(t testing.TB, s Setup) []Row {
	file := os.Getenv("BELFRY_ANSWERS")
	if file == "" {
		return read(t, s.own())
	}
	ch, _ := s.Open(t, Provider{URL: "http://127.0.0.1:1"})
	var mine []Row
	for _, row := range read(t, file) {
		if row.Channel == ch.Name() {
			mine = append(mine, row)
		}
	}
	return mine
}

func (s Setup) own() string { return cmp.Or(s.Answers, "testdata/answers.json") }

func read(t testing.TB, file string) (all []Row) {
	b, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(b, &all)
	}
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// accepted is the first answer of the driver's own rows that is an acceptance.
func accepted(t testing.TB, s Setup) http.HandlerFunc {
	for _, row := range read(t, s.own()) {
		if row.Outcome == belfry.OutcomeAccepted && row.Status != 0 && row.Host == "" {
			return row.answer
		}
	}
	t.Fatal("no row of the answers is an acceptance")
	return nil
}

func (r Row) answer(w http.ResponseWriter, _ *http.Request) {
	for name, value := range r.Headers {
		w.Header().Set(name, value)
	}
	w.WriteHeader(r.Status)
	_, _ = w.Write([]byte(r.Body))
}

func play(t testing.TB, s Setup, row Row) {
	got := row.send(t, s)
	if got.Outcome != row.Outcome {
		t.Errorf("outcome %q, want %q", got.Outcome, row.Outcome)
	}
	if got.Outcome.Definite() && got.Outcome != belfry.OutcomeAccepted && got.Status != row.Status {
		t.Errorf("status %d, want %d", got.Status, row.Status)
	}
	if row.RetryAfter != nil && got.After.Seconds() != *row.RetryAfter {
		t.Errorf("to be tried again after %v, want %v s", got.After, *row.RetryAfter)
	}
}

func (r Row) send(t testing.TB, s Setup) belfry.Answer {
	ctx := t.Context()
	switch {
	case r.Host != "":
		client := &http.Client{Transport: Transport(http.HandlerFunc(r.answer))}
		return send(t, ctx, s, Provider{URL: "https://" + r.Host, HTTP: client})
	case r.Error == "":
		return send(t, ctx, s, Provider{URL: serve(t, r.answer).URL})
	}
	return fail(t, s, r.Error)
}

// fail plays a failure and returns what the channel made of it.
func fail(t testing.TB, s Setup, how string) belfry.Answer {
	t.Helper()
	url, ctx := "", t.Context()
	switch how {
	case "dns":
		url = "http://provider.invalid" // RFC 6761 §6.4
	case "refused":
		p := serve(t, nil)
		p.Close()
		url = p.URL
	case "tls":
		p := httptest.NewUnstartedServer(http.NotFoundHandler())
		p.Config.ErrorLog = discard
		p.StartTLS() // with a certificate that nobody trusts
		t.Cleanup(p.Close)
		url = p.URL
	case "timeout":
		late := newLateContext(ctx)
		ctx = late
		url = serve(t, func(w http.ResponseWriter, r *http.Request) {
			late.expire()
			<-r.Context().Done()
		}).URL
	case "reset":
		url = serve(t, func(w http.ResponseWriter, _ *http.Request) { reset(w) }).URL
	case "eof":
		url = serve(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }).URL
	case "cut":
		url = serve(t, func(w http.ResponseWriter, _ *http.Request) { raw(w, "HTTP/1.1 200 OK\r\nContent-Le") }).URL
	case "garbage":
		url = serve(t, func(w http.ResponseWriter, _ *http.Request) { raw(w, "220 mail ready\r\n\r\n") }).URL
	default:
		t.Fatalf("no such error: %q", how)
	}
	return send(t, ctx, s, Provider{URL: url})
}

// lateContext is a context whose deadline passes when it is told to.
type lateContext struct {
	context.Context
	cancel context.CancelFunc
}

func newLateContext(parent context.Context) *lateContext {
	ctx, cancel := context.WithCancel(parent)
	return &lateContext{ctx, cancel}
}

func (c *lateContext) expire() { c.cancel() }

func (c *lateContext) Deadline() (time.Time, bool) { return time.Now().Add(time.Hour), true }

func (c *lateContext) Err() error {
	if c.Context.Err() != nil {
		return context.DeadlineExceeded
	}
	return nil
}

// Value hides that the context below is one of the standard library's, whose error would be taken for ours.
func (c *lateContext) Value(any) any { return nil }
