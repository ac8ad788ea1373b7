package receivertest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"time"

	"belfry/receiver"
	"belfry/signature"
)

// request is one as a sender would make it.
type request struct {
	id, timestamp, signature, body string
	header                         map[string]string
}

type answer struct {
	status     int
	result     string
	retryAfter string
	body       string
}

func (b *bench[T]) secret(fill byte) signature.Secret {
	b.Helper()
	s, err := signature.NewSecret(bytes.NewReader(bytes.Repeat([]byte{fill}, 32)))
	if err != nil {
		b.Fatal(err)
	}
	return s
}

// sign makes a genuine request.
func (b *bench[T]) sign(id, body string, at time.Time, secrets ...signature.Secret) request {
	b.Helper()
	s, err := signature.Sign(id, at, []byte(body), secrets...)
	if err != nil {
		b.Fatal(err)
	}
	return request{id: id, timestamp: strconv.FormatInt(at.Unix(), 10), signature: s, body: body}
}

func (b *bench[T]) post(s *httptest.Server, r request) answer {
	b.Helper()
	req, err := http.NewRequestWithContext(b.ctx, http.MethodPost, s.URL, strings.NewReader(r.body))
	if err != nil {
		b.Fatal(err)
	}
	for name, value := range map[string]string{"webhook-id": r.id, "webhook-timestamp": r.timestamp, "webhook-signature": r.signature} {
		if value != "" {
			req.Header.Set(name, value)
		}
	}
	for name, value := range r.header {
		req.Header.Set(name, value)
	}
	resp, err := s.Client().Do(req)
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		b.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header.Get(receiver.HeaderResult), resp.Header.Get("Retry-After"), string(text)}
}

func (b *bench[T]) serve(r *receiver.Receiver[T], o receiver.HTTP, effect func(context.Context, T, receiver.Message) error) *httptest.Server {
	b.Helper()
	h, err := r.Handler(o, effect)
	if err != nil {
		b.Fatal(err)
	}
	s := httptest.NewServer(h)
	b.Cleanup(s.Close)
	return s
}

func overHTTP[T any](b *bench[T]) {
	secret, second, stranger := b.secret(1), b.secret(2), b.secret(3)
	r := b.receiver(receiver.Options{})
	effect := func(ctx context.Context, tx T, m receiver.Message) error { return b.Book(ctx, tx, m.ID) }
	s := b.serve(r, receiver.HTTP{Secrets: []signature.Secret{secret, second}, MaxBody: 1000}, effect)
	expect := func(name string, q request, status int, result receiver.Result) {
		b.Helper()
		if a := b.post(s, q); a.status != status || a.result != string(result) {
			b.Errorf("%s: %+v, want %d %q", name, a, status, result)
		}
	}
	const body = `{"amount":100}`
	now := b.now()
	good := b.sign("good", body, now, secret)
	expect("new", good, 204, receiver.Applied)
	expect("same again", good, 204, receiver.Duplicate)
	b.advance(time.Minute)
	expect("same id, later timestamp", b.sign("good", body, b.now(), secret), 204, receiver.Duplicate)
	b.advance(-time.Minute)
	expect("other body", b.sign("good", `{"amount":1}`, now, secret), 409, receiver.Conflict)
	expect("second secret", b.sign("second", body, now, second), 204, receiver.Applied)
	expect("both secrets", b.sign("both", body, now, stranger, second), 204, receiver.Applied)
	expect("no longer a secret", b.sign("x1", body, now, stranger), 401, "")
	expect("299 s old", b.sign("old", body, now.Add(-299*time.Second), secret), 204, receiver.Applied)
	expect("299 s ahead", b.sign("ahead", body, now.Add(299*time.Second), secret), 204, receiver.Applied)
	expect("301 s old", b.sign("x2", body, now.Add(-301*time.Second), secret), 401, "")
	expect("301 s ahead", b.sign("x2", body, now.Add(301*time.Second), secret), 401, "")
	expect("largest body", b.sign("large", strings.Repeat("x", 1000), now, secret), 204, receiver.Applied)
	expect("larger body", b.sign("x3", strings.Repeat("x", 1001), now, secret), 413, "")

	// Changes to a genuine request, which must not have an effect.
	fresh := b.sign("fresh", body, now, secret)
	for name, c := range map[string]struct {
		change func(*request)
		status int
	}{
		"no id":                     {func(q *request) { q.id = "" }, 400},
		"no timestamp":              {func(q *request) { q.timestamp = "" }, 400},
		"no signature":              {func(q *request) { q.signature = "" }, 400},
		"timestamp 1e9":             {func(q *request) { q.timestamp = "1e9" }, 400},
		"timestamp of 20 digits":    {func(q *request) { q.timestamp = strings.Repeat("9", 20) }, 400},
		"timestamp no number":       {func(q *request) { q.timestamp = "now" }, 400},
		"timestamp with a fraction": {func(q *request) { q.timestamp += ".0" }, 400},
		"negative timestamp":        {func(q *request) { q.timestamp = "-" + q.timestamp }, 400},
		"other timestamp":           {func(q *request) { q.timestamp = strconv.FormatInt(now.Unix()-1, 10) }, 401},
		"empty signature":           {func(q *request) { q.signature = "v1," }, 401},
		"truncated signature":       {func(q *request) { q.signature = q.signature[:20] }, 401},
		"signature without end":     {func(q *request) { q.signature = strings.TrimRight(q.signature, "=") }, 401},
		"other version":             {func(q *request) { q.signature = "v2" + q.signature[2:] }, 401},
		"200 signatures": {func(q *request) {
			q.signature = strings.Repeat(b.sign("other", body, now, stranger).signature+" ", 199) + q.signature
		}, 401},
		"other id":           {func(q *request) { q.id = "fresh2" }, 401},
		"dot in the id":      {func(q *request) { q.id = "fresh." + q.timestamp }, 400},
		"space in the id":    {func(q *request) { q.id = "fr esh" }, 400},
		"other body":         {func(q *request) { q.body = `{"amount": 100}` }, 401},
		"epoch no number":    {func(q *request) { q.header = map[string]string{"webhook-epoch": "x"} }, 400},
		"negative epoch":     {func(q *request) { q.header = map[string]string{"webhook-epoch": "-1"} }, 400},
		"deadline no number": {func(q *request) { q.header = map[string]string{"webhook-not-after": "tomorrow"} }, 400},
	} {
		q := fresh
		c.change(&q)
		expect(name, q, c.status, "")
	}
	long := strings.Repeat("i", receiver.MaxID+1)
	expect("id too long", b.sign(long, body, now, secret), 400, "")
	rewritten := fresh
	rewritten.body = "{\n\"amount\": 100}"
	if a := b.post(s, rewritten); !strings.Contains(a.body, "before any middleware") {
		b.Errorf("no hint at a middleware that rewrote the body: %q", a.body)
	}
	before := r.Counts().Refused
	if before < 25 {
		b.Errorf("%d requests were counted as refused", before)
	}
	b.booked(map[string]int{"good": 1, "second": 1, "both": 1, "old": 1, "ahead": 1, "large": 1})

	b.httpFences(s, secret)
	b.httpFailures(secret)
}

func (b *bench[T]) httpFences(s *httptest.Server, secret signature.Secret) {
	b.Helper()
	now := b.now()
	seconds := func(t time.Time) string { return strconv.FormatInt(t.Unix(), 10) }
	past, ahead := now.Add(-2*time.Second), now.Add(time.Hour)
	for _, c := range []struct {
		id, body, epoch, notAfter string
		result                    receiver.Result
	}{
		{"f1", `{}`, "7", seconds(ahead), receiver.Applied},
		{"f1", `{}`, "6", seconds(ahead), receiver.Stale},
		{"f1", `{}`, "7", seconds(ahead), receiver.Duplicate},
		{"f2", `{}`, "1", seconds(past), receiver.Expired},
		{"f2", `{}`, "1", seconds(now), receiver.Applied},
		// What is signed counts more than what is not, but only of a sender that speaks of it in the headers too.
		{"f3", `{"not_after":` + seconds(past) + `}`, "", seconds(ahead), receiver.Expired},
		{"f4", `{"not_after":"` + past.UTC().Format(time.RFC3339) + `"}`, "", seconds(ahead), receiver.Expired},
		{"f5", `{"not_after":` + seconds(ahead) + `}`, "", seconds(past), receiver.Applied},
		{"f6", `{"not_after":` + seconds(past) + `}`, "", "", receiver.Applied},
		{"f7", `{"epoch":9}`, "3", "", receiver.Applied},
		{"f7", `{"epoch":8}`, "30", "", receiver.Stale},
		{"f8", `{"epoch":"stone","not_after":[]}`, "3", seconds(ahead), receiver.Applied},
		{"f8", `{"epoch":"stone","not_after":[]}`, "2", seconds(ahead), receiver.Stale},
		{"f9", `not JSON`, "3", seconds(past), receiver.Expired},
	} {
		q := b.sign(c.id, c.body, now, secret)
		q.header = map[string]string{}
		if c.epoch != "" {
			q.header["webhook-epoch"] = c.epoch
		}
		if c.notAfter != "" {
			q.header["webhook-not-after"] = c.notAfter
		}
		if a := b.post(s, q); a.status != 204 || a.result != string(c.result) {
			b.Errorf("%s %s epoch %q not after %q: %+v, want %q", c.id, c.body, c.epoch, c.notAfter, a, c.result)
		}
	}
}

func (b *bench[T]) httpFailures(secret signature.Secret) {
	b.Helper()
	now := b.now()
	r := b.receiver(receiver.Options{Source: "failures", Failures: 3})
	var mu sync.Mutex
	effect := func(context.Context, T, receiver.Message) error { return nil }
	say := func(e func(context.Context, T, receiver.Message) error) {
		mu.Lock()
		effect = e
		mu.Unlock()
	}
	s := b.serve(r, receiver.HTTP{Secrets: []signature.Secret{secret}, AcceptConflicts: true, Timeout: 300 * time.Millisecond}, func(ctx context.Context, tx T, m receiver.Message) error {
		mu.Lock()
		e := effect
		mu.Unlock()
		return e(ctx, tx, m)
	})
	const leak = "password=hunter2"
	say(func(context.Context, T, receiver.Message) error { return fmt.Errorf("cannot reach db: %s", leak) })
	for i, want := range []answer{{status: 500}, {status: 500}, {status: 204, result: "set_aside"}, {status: 204, result: "duplicate"}} {
		a := b.post(s, b.sign("poison", "p", now, secret))
		if a.status != want.status || a.result != want.result || strings.Contains(a.body, leak) {
			b.Errorf("failure %d: %+v", i+1, a)
		}
	}
	say(func(context.Context, T, receiver.Message) error {
		return receiver.Later(90*time.Second, fmt.Errorf("%s", leak))
	})
	for range 4 {
		if a := b.post(s, b.sign("later", "p", now, secret)); a.status != 503 || a.retryAfter != "90" || strings.Contains(a.body, leak) {
			b.Errorf("%+v", a)
		}
	}
	// Too slow is the message's own fault.
	say(func(ctx context.Context, _ T, _ receiver.Message) error { <-ctx.Done(); return ctx.Err() })
	for i, want := range []int{500, 500, 204} {
		if a := b.post(s, b.sign("slow", "p", now, secret)); a.status != want {
			b.Errorf("slow %d: %+v", i, a)
		}
	}
	// A copy that waits for the winner longer than a request may take is to come again.
	held, release := make(chan struct{}), make(chan struct{})
	var winner sync.WaitGroup
	winner.Go(func() {
		if _, err := r.Handle(b.ctx, receiver.Message{ID: "held"}, func(context.Context, T) error { close(held); <-release; return nil }); err != nil {
			b.Error(err)
		}
	})
	<-held
	if a := b.post(s, b.sign("held", "p", now, secret)); a.status != 503 || a.retryAfter == "" {
		b.Errorf("%+v", a)
	}
	close(release)
	winner.Wait()
	say(func(context.Context, T, receiver.Message) error { return nil })
	for _, want := range []string{"applied", "conflict"} {
		if a := b.post(s, b.sign("conflict", want, now, secret)); a.status != 204 || a.result != want {
			b.Errorf("%+v", a)
		}
	}
	if _, err := r.Handler(receiver.HTTP{}, nil); err == nil {
		b.Error("a handler without a secret")
	}
	if _, err := r.Handler(receiver.HTTP{Secrets: make([]signature.Secret, 1)}, nil); err == nil {
		b.Error("a handler with an empty secret")
	}
}
