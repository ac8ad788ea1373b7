package check_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"belfry"
	"belfry/check"
	"belfry/internal/safehttp"
	"belfry/signature"
)

var (
	now     = time.Date(2026, 12, 1, 9, 0, 0, 0, time.UTC)
	one     = belfry.MakeID(now, 1, 1)
	two     = belfry.MakeID(now, 1, 2)
	foreign = belfry.MakeID(now, 1, 3)
)

func questions() []belfry.Check {
	return []belfry.Check{
		{Notification: one, Project: "shop", Recipient: "user-42", Category: "price_drop", Subject: "watch-981",
			Data: json.RawMessage(`{"price": 1980}`), Attempt: 1},
		{Notification: two, Project: "shop", Recipient: "user-43", Category: "price_drop", Attempt: 2,
			LastSent: &belfry.Mark{At: now.Add(-time.Hour), Data: json.RawMessage(`{"price":2100}`), Notification: foreign}},
	}
}

func secret(t *testing.T) signature.Secret {
	t.Helper()
	s, err := signature.NewSecret(nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func client(t *testing.T, s signature.Secret) *check.Client {
	t.Helper()
	out := safehttp.New(safehttp.Options{AllowAll: true})
	t.Cleanup(out.CloseIdleConnections)
	return check.New(check.Options{HTTP: out, Secret: s, Now: func() time.Time { return now }})
}

func TestTheQuestionIsSignedAndComplete(t *testing.T) {
	s := secret(t)
	var body string
	var header http.Header
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		if err := (signature.Verifier{Secrets: []signature.Secret{s}}).Verify(now, r.Header, b); err != nil {
			t.Error(err)
		}
		body, header = string(b), r.Header
		fmt.Fprintf(w, `{"results":[{"notification":%q,"verdict":"send"},{"notification":%q,"verdict":"send"}]}`, two, one)
	}))
	defer server.Close()
	verdicts := client(t, s).Recheck(t.Context(), belfry.CheckPolicy{URL: server.URL + "/checks?token=t0ps3cret"}, questions())
	for i, v := range verdicts {
		if v.Kind != belfry.VerdictSend || !v.At.Equal(now) {
			t.Errorf("%d: %+v", i, v)
		}
	}
	want := fmt.Sprintf(`{"checks":[{"notification":%q,"recipient":"user-42","category":"price_drop","subject":"watch-981","data":{"price":1980},"attempt":1},`+
		`{"notification":%q,"recipient":"user-43","category":"price_drop","attempt":2,"last_sent":{"at":"2026-12-01T08:00:00Z","data":{"price":2100}}}]}`, one, two)
	if diff := cmp.Diff(want, body); diff != "" {
		t.Error(diff)
	}
	if header.Get("Content-Type") != "application/json" || header.Get("Idempotency-Key") != "" {
		t.Error(header)
	}
}

func TestEveryRequestHasAnIDOfItsOwn(t *testing.T) {
	ids := map[string]bool{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ids[r.Header.Get(signature.HeaderID)] = true
		io.WriteString(w, `{"results":[]}`)
	}))
	defer server.Close()
	c := client(t, secret(t))
	for range 3 {
		c.Recheck(t.Context(), belfry.CheckPolicy{URL: server.URL}, questions())
	}
	if len(ids) != 3 {
		t.Error(ids)
	}
}

// Each answer is given for a question about one and two; verdicts are "kind reason after data" or "failed: …".
func TestAnswers(t *testing.T) {
	result := func(id belfry.ID, rest string) string { return fmt.Sprintf(`{"notification":%q%s}`, id, rest) }
	results := func(r ...string) string { return `{"results":[` + strings.Join(r, ",") + `]}` }
	good := result(two, `,"verdict":"send"`)
	about := func(rest string) string { return results(result(one, rest), good) }
	data := func(n int) string { return `{"x":"` + strings.Repeat("x", n-len(`{"x":""}`)) + `"}` }
	const send, fails = "send", "failed: recheck: "
	for _, c := range []struct {
		name       string
		status     int
		body       string
		first, two string
	}{
		{"send without data", 200, about(`,"verdict":"send"`), "send", send},
		{"send with data", 200, about(`,"verdict":"send","data":{"price":1 }`), `send {"price":1 }`, send},
		{"nulls are nothing", 200, about(`,"verdict":"send","data":null,"reason":null,"after":null`), "send", send},
		{"another 2xx", 201, about(`,"verdict":"send"`), "send", send},
		{"drop", 200, about(`,"verdict":"drop","reason":"out_of_stock"`), "drop out_of_stock", send},
		{"drop without reason", 200, about(`,"verdict":"drop"`), "drop condition_lost", send},
		{"drop with a reason for nobody", 200, about(`,"verdict":"drop","reason":"Out of stock!"`), "drop condition_lost", send},
		{"later", 200, about(`,"verdict":"later","after":"10m"`), "later 10m0s", send},
		{"later in seconds", 200, about(`,"verdict":"later","after":1.5`), "later 1.5s", send},
		{"later in days", 200, about(`,"verdict":"later","after":"2d"`), "later 48h0m0s", send},
		{"largest data", 200, about(`,"verdict":"send","data":` + data(belfry.MaxData)), "send " + data(belfry.MaxData), send},

		{"the whole call is not there", 404, "no", fails + "answered 404", fails + "answered 404"},
		{"the whole call is gone", 410, about(`,"verdict":"send"`), fails + "answered 410", fails + "answered 410"},
		{"broken", 500, about(`,"verdict":"send"`), fails + "answered 500", fails + "answered 500"},
		{"redirect", 307, "", fails + "answered 307", fails + "answered 307"},
		{"no content", 204, "", fails + "the answer: is empty", fails + "the answer: is empty"},
		{"HTML", 200, "<html>", fails + "the answer: is not valid JSON", fails + "the answer: is not valid JSON"},
		{"two documents", 200, about(`,"verdict":"send"`) + `{}`, fails + "the answer: is not valid JSON", fails + "the answer: is not"},
		{"a list", 200, `[]`, fails + "the answer: must be an object", fails + "the answer: must be an object"},
		{"no results", 200, `{}`, fails + "the answer: results: is missing", fails + "the answer: results: is missing"},
		{"results null", 200, `{"results":null}`, fails + "the answer: results: must not be null", fails + "the answer: results"},
		{"another member", 200, `{"results":[],"t0ps3cret":1}`, fails + "the answer: is not known here", fails + "the answer: is not"},
		{"a member twice", 200, `{"results":[],"results":[]}`, fails + "the answer: results: occurs twice", fails + "the answer: results: occurs twice"},
		{"too deep", 200, strings.Repeat("[", 100), fails + "the answer: is nested deeper", fails + "the answer: is nested"},
		{"missing result", 200, results(good), fails + "the answer has no result for it", send},
		{"not asked about", 200, results(result(foreign, `,"verdict":"send"`), good), fails + "the answer: results.0: names a notification that was not asked about", fails + "the answer: results.0"},
		{"no notification", 200, results(`{"verdict":"send"}`, good), fails + "the answer: results.0: names no notification", fails + "the answer"},
		{"a number for a notification", 200, results(good, `{"notification":1,"verdict":"send"}`), fails + "the answer: results.1: names something", fails + "the answer"},
		{"null for a result", 200, results(good, `null`), fails + "the answer: results.1", fails + "the answer"},
		{"two results", 200, results(result(one, `,"verdict":"send"`), result(one, `,"verdict":"drop"`), good), fails + "the answer has two results for it", send},
		{"three results", 200, results(result(one, `,"verdict":"send"`), result(one, `,"verdict":"send"`), result(one, `,"verdict":"send"`), good), fails + "the answer has two results", send},
		{"boolean verdict", 200, about(`,"verdict":true`), fails + "its result: verdict: must be a string, not a boolean", send},
		{"yes", 200, about(`,"verdict":"yes"`), fails + "its result: verdict: must be send, drop or later", send},
		{"another case", 200, about(`,"verdict":"Send"`), fails + "its result: verdict: must be", send},
		{"failed is not an answer", 200, about(`,"verdict":"failed"`), fails + "its result: verdict: must be", send},
		{"no verdict", 200, about(``), fails + "its result: verdict: is missing", send},
		{"allow instead", 200, about(`,"allow":"yes"`), fails + "its result: is not known here", send},
		{"unknown member", 200, about(`,"verdict":"send","t0ps3cret":1`), fails + "its result: is not known here", send},
		{"member in another case", 200, about(`,"Verdict":"send"`), fails + "its result: is not known here; write it verdict", send},
		{"data is a list", 200, about(`,"verdict":"send","data":[1]`), fails + "its result: data: must be a JSON object", send},
		{"too much data", 200, about(`,"verdict":"send","data":` + data(belfry.MaxData+1)), fails + "its result: data: is 65537 bytes long", send},
		{"data with drop", 200, about(`,"verdict":"drop","data":{}`), fails + "its result: data goes with send only", send},
		{"reason with send", 200, about(`,"verdict":"send","reason":"x"`), fails + "its result: reason goes with drop only", send},
		{"after with send", 200, about(`,"verdict":"send","after":"1m"`), fails + "its result: after goes with later only", send},
		{"reason is a number", 200, about(`,"verdict":"drop","reason":1`), fails + "its result: reason: must be a string", send},
		{"later without after", 200, about(`,"verdict":"later"`), fails + "its result: after: is missing", send},
		{"negative after", 200, about(`,"verdict":"later","after":-1`), fails + "its result: after: must be 0", send},
		{"negative text after", 200, about(`,"verdict":"later","after":"-1s"`), fails + "its result: after: not a duration", send},
		{"endless after", 200, about(`,"verdict":"later","after":1e300`), fails + "its result: after: must be 0", send},
		{"endless text after", 200, about(`,"verdict":"later","after":"60000d"`), fails + "its result: after: must be 0", send},
		{"after is a boolean", 200, about(`,"verdict":"later","after":true`), fails + "its result: after: must be", send},
		{"too long", 200, results(good) + strings.Repeat(" ", 1<<20), fails + "answered with more than 1048576 bytes", fails + "answered with more"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var requests atomic.Int32
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				requests.Add(1)
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(c.status)
				io.WriteString(w, c.body)
			}))
			defer server.Close()
			url := server.URL + "/t0ps3cret?key=t0ps3cret"
			for i, v := range client(t, secret(t)).Recheck(t.Context(), belfry.CheckPolicy{URL: url}, questions()) {
				want := [...]string{c.first, c.two}[i]
				got := string(v.Kind)
				switch v.Kind {
				case belfry.VerdictFailed:
					got += ": " + v.Detail
					if strings.HasPrefix(got, want) {
						want = got
					}
				case belfry.VerdictDrop:
					got += " " + string(v.Reason)
				case belfry.VerdictLater:
					got += " " + v.After.String()
				case belfry.VerdictSend:
					if v.Data != nil {
						got += " " + string(v.Data)
					}
				}
				if got != want {
					t.Errorf("%d: %.200s, want %.200s", i, got, want)
				}
				if strings.Contains(v.Detail, "t0ps3cret") {
					t.Errorf("%d: the detail tells too much: %s", i, v.Detail)
				}
			}
			if requests.Load() != 1 {
				t.Errorf("%d requests", requests.Load())
			}
		})
	}
}

func TestALongAnswerAboutManyIsRead(t *testing.T) {
	var checks []belfry.Check
	var results []string
	data := `{"x":"` + strings.Repeat("x", belfry.MaxData-len(`{"x":""}`)) + `"}`
	for i := range check.Most {
		id := belfry.MakeID(now, 2, uint16(i))
		checks = append(checks, belfry.Check{Notification: id, Recipient: "r", Category: "c", Attempt: 1})
		results = append(results, fmt.Sprintf(`{"notification":%q,"verdict":"send","data":%s}`, id, data))
	}
	requests := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests++
		io.WriteString(w, `{"results":[`+strings.Join(results, ",")+`]}`)
	}))
	defer server.Close()
	c := client(t, secret(t))
	policy := belfry.CheckPolicy{URL: server.URL, Timeout: belfry.Duration(30 * time.Second)}
	for i, v := range c.Recheck(t.Context(), policy, checks) {
		if v.Kind != belfry.VerdictSend || len(v.Data) != belfry.MaxData {
			t.Fatalf("%d: %s %s", i, v.Kind, v.Detail)
		}
	}
	for _, v := range c.Recheck(t.Context(), policy, append(checks, belfry.Check{Notification: one})) {
		if v.Kind != belfry.VerdictFailed {
			t.Fatal("more than the limit were asked about at once")
		}
	}
	if c.Recheck(t.Context(), policy, nil) != nil || requests != 1 {
		t.Errorf("%d requests", requests)
	}
}

func TestAServerThatHangsOrIsNotThereIsAFailure(t *testing.T) {
	release := make(chan struct{})
	hang := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			io.WriteString(w, `{"results":[`)
			w.(http.Flusher).Flush()
		}
		<-release
	}))
	defer hang.Close()
	defer close(release)
	cut := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "100")
		io.WriteString(w, `{"results":`)
		panic(http.ErrAbortHandler)
	}))
	defer cut.Close()
	dead := httptest.NewServer(nil)
	dead.Close()
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		name, url, want string
		ctx             context.Context
	}{
		{"hangs before the header", hang.URL, "timed_out", t.Context()},
		{"hangs in the body", hang.URL + "/slow", "timed_out", t.Context()},
		{"cut off", cut.URL, "broken_off", t.Context()},
		{"nobody there", dead.URL, "connect_failed", t.Context()},
		{"not a URL", "http://%zz/t0ps3cret", "the category's check.url is not a URL", t.Context()},
		{"another scheme", "ftp://example.com/t0ps3cret", "refused", t.Context()},
		{"shutdown", hang.URL, "cancelled", cancelled},
	} {
		policy := belfry.CheckPolicy{URL: c.url, Timeout: belfry.Duration(100 * time.Millisecond)}
		for _, v := range client(t, secret(t)).Recheck(c.ctx, policy, questions()) {
			if v.Kind != belfry.VerdictFailed || v.Detail != "recheck: "+c.want {
				t.Errorf("%s: %s %s", c.name, v.Kind, v.Detail)
			}
		}
	}
	if v := check.New(check.Options{HTTP: safehttp.New(safehttp.Options{AllowAll: true})}).Recheck(t.Context(), belfry.CheckPolicy{URL: hang.URL}, questions()); v[0].Kind != belfry.VerdictFailed {
		t.Error("a question was asked without a signature")
	}
}

func TestTheAddressesOfOurOwnNetworkAreNotAsked(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("asked") }))
	defer server.Close()
	c := check.New(check.Options{HTTP: safehttp.New(safehttp.Options{}), Secret: secret(t)})
	for _, v := range c.Recheck(t.Context(), belfry.CheckPolicy{URL: server.URL}, questions()) {
		if v.Kind != belfry.VerdictFailed || v.Detail != "recheck: refused" {
			t.Errorf("%+v", v)
		}
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add(fmt.Sprintf(`{"results":[{"notification":%q,"verdict":"send","data":{}},{"notification":%q,"verdict":"later","after":"10m"}]}`, one, two))
	f.Add(`{"results":[{"notification":"","verdict":null}]}`)
	var answer string
	c := check.New(check.Options{HTTP: doer(func() string { return answer }), Secret: must()})
	f.Fuzz(func(t *testing.T, text string) {
		answer = text
		for _, v := range c.Recheck(t.Context(), belfry.CheckPolicy{URL: "https://example.com"}, questions()) {
			switch v.Kind {
			case belfry.VerdictSend:
				if v.Data != nil && (!json.Valid(v.Data) || v.Data[0] != '{') {
					t.Errorf("data %q", v.Data)
				}
			case belfry.VerdictDrop:
				if v.Reason == "" {
					t.Error("dropped without reason")
				}
			case belfry.VerdictLater:
				if v.After < 0 {
					t.Error("later than never")
				}
			case belfry.VerdictFailed:
				if v.Detail == "" {
					t.Error("failed without detail")
				}
			default:
				t.Errorf("verdict %q", v.Kind)
			}
		}
	})
}

type doer func() string

func (d doer) Do(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader(d()))}, nil
}

func must() signature.Secret {
	s, err := signature.NewSecret(nil)
	if err != nil {
		panic(err)
	}
	return s
}
