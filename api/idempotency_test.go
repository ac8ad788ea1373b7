package api_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"belfry"
	"belfry/api"
)

const hello = `{"recipient":"u1","data":{"title":"a","n":1}}`

// key is the header of an idempotency key.
func key(k string) string { return "Idempotency-Key: " + k }

// is checks an answer.
func (w *world) is(a answer, status int, code string) answer {
	w.Helper()
	if a.status != status || a.part("code") != code {
		w.Errorf("answered %d %q, want %d %q: %s", a.status, a.part("code"), status, code, a.body)
	}
	if a.header.Get("Request-Id") == "" {
		w.Error("no Request-Id")
	}
	if status >= 400 {
		if a.header.Get("Content-Type") != "application/problem+json" || a.part("instance") != a.header.Get("Request-Id") ||
			a.part("status") != fmt.Sprint(status) || a.part("title") == "" || a.part("detail") == "" || !strings.HasPrefix(a.part("type"), "/docs#") {
			w.Errorf("not a problem: %v", a)
		}
	}
	return a
}

// counts checks how many notifications the default project has.
func (w *world) counts(rows int) {
	w.Helper()
	if n := w.rows("default"); n != rows {
		w.Errorf("%d notifications are stored, want %d", n, rows)
	}
}

func linked(a answer) bool {
	return a.header.Get("Link") == `</docs#idempotency>; rel="describedby"`
}

// raw sends bytes as they are and reads the answer.
func (w *world) raw(text string) (*http.Response, error) {
	conn, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, text); err != nil {
		return nil, err
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err == nil {
		_, err = io.ReadAll(response.Body)
	}
	return response, err
}

func (w *world) message(body string, headers ...string) string {
	return "POST /v1/notifications HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + w.keys["default/admin"] +
		"\r\nContent-Type: application/json\r\n" + strings.Join(append(headers, ""), "\r\n") +
		fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body)
}

// Every row is one of a request, its status, what its answer says, and how many notifications there are then.
func TestIdempotency(t *testing.T) {
	row := func(name string, run func(t *testing.T, w *world), options ...func(*api.Options)) {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, options...)
			w.recipient("u1")
			run(t, w)
		})
	}

	row("K1", func(t *testing.T, w *world) { // a key is optional
		first := w.is(w.do("POST", "/v1/notifications", hello), 202, "")
		second := w.is(w.do("POST", "/v1/notifications", hello), 202, "")
		if first.part("id") == second.part("id") || first.header["Idempotency-Key"] != nil || first.header["Idempotency-Expires"] != nil {
			t.Error(first, second)
		}
		w.counts(2)
	})

	row("K2", func(t *testing.T, w *world) { // not 1 to 255 printable ASCII characters
		long := strings.Repeat("k", 256)
		for _, bad := range []string{"", `""`, `"  "`, long, `"` + long + `"`, "a\tb", `"a` + "\t" + `b"`, "schlüssel", `"schlüssel"`,
			`"open`, `"a\b"`, `"a"b"`, "a b", "a,b", "a;b", `a"b`, `a\b`} {
			a := w.is(w.do("POST", "/v1/notifications", hello, key(bad)), 400, "idempotency_key_invalid")
			if !linked(a) || a.part("field") != "Idempotency-Key" {
				t.Errorf("%q: %v", bad, a)
			}
		}
		for _, bad := range []string{`""`, `"  "`, `"` + long + `"`, `"a\u0001b"`, `"a\r\nb"`, `"schlüssel"`, `7`, `null`, `{}`} {
			a := w.is(w.do("POST", "/v1/notifications", `{"recipient":"u1","key":`+bad+`}`), 400, "idempotency_key_invalid")
			if !linked(a) || a.part("field") != "key" {
				t.Errorf("%s: %v", bad, a)
			}
		}
		for _, bad := range []string{"Idempotency-Key: a\rb", "Idempotency-Key: a\x00b", "Idempotency-Key: a\r\n b"} {
			response, err := w.raw(w.message(hello, bad))
			if err != nil || response.StatusCode != 400 {
				t.Errorf("%q: %v %v", bad, response, err)
			}
		}
		w.counts(0)
		w.is(w.do("POST", "/v1/notifications", hello, key(long[:255])), 202, "")
		w.is(w.do("POST", "/v1/notifications", hello, key(`"`+long[:255]+`"`)), 202, "")
		w.counts(1)
	})

	row("K3", func(t *testing.T, w *world) { // quoted and bare are the same key
		bare := w.is(w.do("POST", "/v1/notifications", hello, key(`abc`)), 202, "")
		quoted := w.is(w.do("POST", "/v1/notifications", hello, key(`"abc"`)), 202, "")
		inBody := w.is(w.do("POST", "/v1/notifications", strings.TrimSuffix(hello, "}")+`,"key":"abc"}`), 202, "")
		for _, a := range []answer{quoted, inBody} {
			if a.body != bare.body || a.header.Get("Idempotent-Replayed") != "true" {
				t.Error(bare, a)
			}
		}
		if bare.header.Get("Idempotency-Key") != "abc" || quoted.header.Get("Idempotency-Key") != `"abc"` || inBody.header.Get("Idempotency-Key") != `"abc"` {
			t.Error("the key is not echoed")
		}
		odd := w.is(w.do("POST", "/v1/notifications", hello, key(`"a \"b\" \\ c, d; e"`)), 202, "")
		same := w.is(w.do("POST", "/v1/notifications", `{"recipient":"u1","data":{"title":"a","n":1},"key":"a \"b\" \\ c, d; e"}`), 202, "")
		if odd.body != same.body || same.header.Get("Idempotency-Key") != `"a \"b\" \\ c, d; e"` {
			t.Error(odd, same)
		}
		w.counts(2)
	})

	row("K4", func(t *testing.T, w *world) { // parameters, two headers, two keys
		for _, headers := range [][]string{{key(`"abc";p=1`)}, {key(`"abc" `), key(`"abc"`)}, {key("a"), key("b")}, {key(`"a", "b"`)}} {
			if a := w.is(w.do("POST", "/v1/notifications", hello, headers...), 400, "idempotency_key_invalid"); !linked(a) {
				t.Error(a)
			}
		}
		w.is(w.do("POST", "/v1/notifications", `{"recipient":"u1","key":"b"}`, key("a")), 400, "idempotency_key_invalid")
		w.counts(0)
		w.is(w.do("POST", "/v1/notifications", `{"recipient":"u1","key":"a"}`, key("a")), 202, "")
		w.counts(1)
	})

	row("K5", func(t *testing.T, w *world) { // other methods ignore a key and say so
		for _, c := range [][3]string{
			{"GET", "/v1/notifications", ""}, {"PUT", "/v1/recipients/u1", "{}"}, {"DELETE", "/v1/recipients/u1", ""},
			{"POST", "/v1/notifications/cancel", `{"everything":true}`},
		} {
			if a := w.is(w.do(c[0], c[1], c[2], key("abc")), 200, ""); a.header.Get("Idempotency-Status") != "ignored" {
				t.Error(c, a)
			}
		}
	})

	row("F1", func(t *testing.T, w *world) {
		a := w.is(w.do("POST", "/v1/notifications", `{"recipient":"u1","at":"2026-12-24T09:00:00Z","expires_in":"2h"}`, key(`"k"`)), 202, "")
		if a.part("state") != "scheduled" || a.part("result") != "created" || a.part("due_at") != "2026-12-24T09:00:00Z" ||
			a.part("due_local") != "2026-12-24T18:00:00+09:00" || a.part("deadline") != "2026-12-24T11:00:00Z" {
			t.Error(a.body)
		}
		if a.header.Get("Location") != "/v1/notifications/"+a.part("id") || a.header.Get("Idempotency-Key") != `"k"` || a.header["Idempotent-Replayed"] != nil {
			t.Error(a.header)
		}
		w.is(w.do("GET", a.header.Get("Location"), ""), 200, "")
		w.counts(1)
	})

	row("F2", func(t *testing.T, w *world) {
		first := w.is(w.do("POST", "/v1/notifications", hello, key("k")), 202, "")
		second := w.is(w.do("POST", "/v1/notifications", hello, key("k")), 202, "")
		if first.body != second.body || second.header.Get("Idempotent-Replayed") != "true" ||
			first.header.Get("Location") != second.header.Get("Location") || first.header.Get("Request-Id") == second.header.Get("Request-Id") {
			t.Error(first, second)
		}
		w.counts(1)
	})

	row("F3", func(t *testing.T, w *world) { // whatever has become of it
		for _, c := range []struct {
			state, body string
			answer      error
			category    string
		}{
			{"sent", hello, nil, ""},
			{"failed", hello, belfry.Refused(400, "no"), ""},
			{"cancelled", `{"recipient":"u1","at":"2027-01-01T00:00:00Z"}`, nil, ""},
			{"sent", `{"recipient":"u1","category":"gone"}`, nil, "gone"},
		} {
			if c.category != "" {
				w.is(w.do("PUT", "/v1/categories/"+c.category, `{}`), 200, "")
			}
			w.email.mu.Lock()
			w.email.answers = []error{c.answer}
			w.email.mu.Unlock()
			first := w.is(w.do("POST", "/v1/notifications", c.body, key(c.state+c.category)), 202, "")
			if c.state == "cancelled" {
				w.is(w.do("POST", first.header.Get("Location")+"/cancel", ""), 200, "")
			}
			if a := w.ended(first.part("id")); a.part("state") != c.state {
				t.Error(a.body)
			}
			if c.category != "" {
				w.is(w.do("DELETE", "/v1/categories/"+c.category, ""), 204, "")
			}
			again := w.is(w.do("POST", "/v1/notifications", c.body, key(c.state+c.category)), 202, "")
			if again.body != first.body || again.header.Get("Idempotent-Replayed") != "true" {
				t.Error(first, again)
			}
		}
		w.counts(4)
	})

	row("F4", func(t *testing.T, w *world) { // the same request written otherwise
		first := w.is(w.do("POST", "/v1/notifications", hello, key("k")), 202, "")
		for _, body := range []string{
			`{"data":{"n":1,"title":"a"},"recipient":"u1"}`, "\n{ \"recipient\" : \"u1\" ,\t\"data\":{\"title\":\"a\",\"n\":1}}\r\n",
			`{"recipient":"u1","data":{"title":"a","n":1.0}}`, `{"recipient":"u1","data":{"title":"a","n":10e-1}}`,
			`{"recipient":"\u00751","data":{"\u0074itle":"\u0061","n":1}}`,
		} {
			if a := w.is(w.do("POST", "/v1/notifications", body, key("k")), 202, ""); a.body != first.body {
				t.Error(body, a)
			}
		}
		w.counts(1)
	})

	row("F5", func(t *testing.T, w *world) {
		id := w.is(w.do("POST", "/v1/notifications", hello, key("k")), 202, "").part("id")
		for _, body := range []string{
			`{"recipient":"u1","data":{"title":"b","n":1}}`, `{"recipient":"u1","data":{"title":"a","n":1.5}}`, `{"recipient":"u1"}`,
			`{"recipient":"u1","data":{"title":"a","n":"1"}}`, `{"recipient":"u1","data":{"title":"a","n":1},"subject":"s"}`,
		} {
			a := w.is(w.do("POST", "/v1/notifications", body, key("k")), 422, "idempotency_key_reused")
			if !linked(a) || strings.Contains(a.body, id) || strings.Contains(a.body, `"n"`) { // nothing of what it was used for
				t.Error(a)
			}
		}
		w.counts(1)
	})

	row("F6", func(t *testing.T, w *world) { // another request that is itself not valid
		w.is(w.do("POST", "/v1/notifications", hello, key("k")), 202, "")
		for _, body := range []string{
			`{}`, `{"recipient":"nobody"}`, `{"recipient":"u1","unknown":1}`, `{"recipient":7}`, `{"recipient":"u1","category":"none"}`,
			`{"recipient":"u1","expires_in":"soon"}`, `{"recipient":"u1","deadline":"2020-01-01T00:00:00Z"}`,
		} {
			w.is(w.do("POST", "/v1/notifications", body, key("k")), 422, "idempotency_key_reused")
		}
		for _, body := range []string{`{`, `{"recipient":"u1","recipient":"u1"}`, `nonsense`, `{"recipient":"` + "\xff" + `"}`} {
			w.is(w.do("POST", "/v1/notifications", body, key("k")), 400, "malformed")
		}
		w.counts(1)
	})

	row("F7", func(t *testing.T, w *world) { // single or in a batch, enqueueing is one operation; a dry run is none
		first := w.is(w.do("POST", "/v1/notifications?dry_run=true", hello, key("k")), 200, "")
		if first.header["Idempotency-Key"] != nil {
			t.Error(first)
		}
		w.counts(0)
		single := w.is(w.do("POST", "/v1/notifications", hello, key("k")), 202, "")
		batch := w.is(w.do("POST", "/v1/notifications/batch", `{"notifications":[`+strings.TrimSuffix(hello, "}")+`,"key":"k"}]}`), 202, "")
		if !strings.Contains(batch.body, single.part("id")) || batch.part("replayed") != "1" {
			t.Error(batch.body)
		}
		w.counts(1)
	})

	row("F8", func(t *testing.T, w *world) { // keys of projects have nothing to do with each other
		w.is(w.do("PUT", "/v1/recipients/u1", `{}`, "Authorization: bank/admin"), 200, "")
		first := w.is(w.do("POST", "/v1/notifications", hello, key("k")), 202, "")
		second := w.is(w.do("POST", "/v1/notifications", hello, key("k"), "Authorization: bank/send"), 202, "")
		third := w.is(w.do("POST", "/v1/notifications", `{"recipient":"u1"}`, key("other"), "Authorization: bank/send"), 202, "")
		if first.part("id") == second.part("id") || second.header["Idempotent-Replayed"] != nil || third.status != 202 {
			t.Error(first, second)
		}
		w.counts(1)
		if n := w.rows("bank"); n != 2 {
			t.Error(n)
		}
	})

	row("F10", func(t *testing.T, w *world) { // rights come before any look-up
		w.is(w.do("POST", "/v1/notifications", hello, key("k")), 202, "")
		w.is(w.do("POST", "/v1/notifications", hello, key("k"), "Authorization: default/read"), 403, "forbidden")
		w.is(w.do("POST", "/v1/notifications", hello, key("k"), "Authorization:"), 401, "unauthorized")
		w.counts(1)
	})

	row("C1", func(t *testing.T, w *world) {
		ids := map[string]int{}
		for _, a := range parallel(w, 50, func(int) string { return hello }) {
			if w.is(a, 202, ""); a.header.Get("Idempotent-Replayed") != "true" {
				ids["first"]++
			}
			ids[a.body]++
		}
		if len(ids) != 2 || ids["first"] != 1 {
			t.Error(ids)
		}
		w.counts(1)
	})

	row("C2", func(t *testing.T, w *world) { // a store that cannot take it now
		w.backend.fail(belfry.Errorf(belfry.CodeBusy, "the store is busy: try again"))
		if a := w.is(w.do("POST", "/v1/notifications", hello, key("k")), 503, "store_busy"); a.header.Get("Retry-After") != "1" {
			t.Error(a)
		}
		w.backend.fail(fmt.Errorf("engine: %w", context.DeadlineExceeded))
		w.is(w.do("POST", "/v1/notifications", hello, key("k")), 503, "outcome_unknown")
		w.backend.fail(fmt.Errorf("engine: %w", context.Canceled)) // at shutdown: the client is still there
		w.is(w.do("POST", "/v1/notifications", hello, key("k")), 503, "outcome_unknown")
		w.counts(0)
	})

	row("C4", func(t *testing.T, w *world) { // 25 of one body, 25 of another
		other := `{"recipient":"u1","data":{"title":"b"}}`
		won := map[string]int{}
		for i, a := range parallel(w, 50, func(i int) string { return []string{hello, other}[i%2] }) {
			if a.status == 202 {
				won[fmt.Sprint(i%2, a.body)]++
			} else {
				w.is(a, 422, "idempotency_key_reused")
			}
		}
		for _, n := range won {
			if len(won) != 1 || n != 25 {
				t.Error(won)
			}
		}
		w.counts(1)
	})

	row("C5", func(t *testing.T, w *world) { // the client is gone after every byte of the exchange
		text := w.message(hello, key("k"))
		for n := 1; n <= len(text); n++ {
			conn, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.WriteString(conn, text[:n])
			conn.Close()
		}
		a := w.is(w.do("POST", "/v1/notifications", hello, key("k")), 202, "")
		for n := range 400 {
			conn, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.WriteString(conn, text)
			_, _ = io.ReadFull(conn, make([]byte, n))
			conn.Close()
		}
		if again := w.is(w.do("POST", "/v1/notifications", hello, key("k")), 202, ""); again.body != a.body {
			t.Error(a, again)
		}
		w.counts(1)
	})

	row("C7", func(t *testing.T, w *world) { // the commit was not answered
		w.backend.fail(belfry.Errorf(belfry.CodeOutcomeUnknown, "it may have been written: repeat with the same key"))
		a := w.is(w.do("POST", "/v1/notifications", hello, key("k")), 503, "outcome_unknown")
		if a.header.Get("Retry-After") == "" || !linked(a) || strings.Contains(a.body, "failed") {
			t.Error(a)
		}
		w.is(w.do("POST", "/v1/notifications", hello, key("k")), 202, "")
		w.counts(1)
	})

	row("E1", func(t *testing.T, w *world) { // what was refused is not remembered
		w.is(w.do("POST", "/v1/notifications", `{"recipient":"u1","data":[]}`, key("k")), 422, "invalid")
		w.is(w.do("POST", "/v1/notifications", `{"recipient":"nobody"}`, key("k")), 422, "unknown_recipient")
		w.is(w.do("POST", "/v1/notifications", `{"recipient":"u1","date":{}}`, key("k")), 400, "malformed")
		w.counts(0)
		if a := w.is(w.do("POST", "/v1/notifications", hello, key("k")), 202, ""); a.header["Idempotent-Replayed"] != nil {
			t.Error(a)
		}
		w.counts(1)
	})

	row("E2", func(t *testing.T, w *world) {
		w.is(w.do("POST", "/v1/notifications", hello, key("k"), "Authorization:"), 401, "unauthorized")
		w.is(w.do("POST", "/v1/notifications", hello, key("k"), "Authorization: default/read"), 403, "forbidden")
		w.is(w.do("POST", "/v1/notifications", `{"recipient":"u1","data":{"x":"`+strings.Repeat("x", api.MaxBody)+`"}}`, key("k")), 413, "too_large")
		w.is(w.do("POST", "/v1/notifications", hello, key("k"), "Content-Type: text/plain"), 415, "unsupported_media_type")
		w.backend.fail(belfry.Errorf(belfry.CodeStoreFull, "no room is left"))
		w.is(w.do("POST", "/v1/notifications", hello, key("k")), 503, "store_full")
		w.backend.fail(errDisk)
		w.is(w.do("POST", "/v1/notifications", hello, key("k")), 500, "internal")
		w.counts(0)
		if a := w.is(w.do("POST", "/v1/notifications", hello, key("k")), 202, ""); a.header["Idempotent-Replayed"] != nil {
			t.Error(a)
		}
		w.counts(1)
	})

	row("E2 429", func(t *testing.T, w *world) {
		w.is(w.do("POST", "/v1/notifications", hello, key("k"), "Authorization: default/send"), 202, "")
		w.is(w.do("POST", "/v1/notifications", hello, key("k"), "Authorization: default/send"), 202, "")
		a := w.is(w.do("POST", "/v1/notifications", hello, key("l"), "Authorization: default/send"), 429, "rate_limited")
		for range 5 { // asking too often does not make the wait longer
			a = w.is(w.do("POST", "/v1/notifications", hello, key("l"), "Authorization: default/send"), 429, "rate_limited")
		}
		if wait, err := strconv.Atoi(a.header.Get("Retry-After")); err != nil || wait < 1 || wait > 100 {
			t.Error(a)
		}
		w.is(w.do("POST", "/v1/notifications", hello, key("l"), "Authorization: */send"), 202, "")
		w.counts(2)
	}, func(o *api.Options) { o.Rate, o.Burst = 0.01, 2 })

	row("E3", func(t *testing.T, w *world) { // nobody is told: a result, not an error
		w.is(w.do("PUT", "/v1/suppressions", `{"channel":"email","address":"u1@example.com"}`), 200, "")
		a := w.is(w.do("POST", "/v1/notifications", hello, key("k")), 202, "")
		if end := w.ended(a.part("id")); end.part("state") != "dropped" || end.part("reason") != "suppressed" {
			t.Error(end.body)
		}
		if again := w.is(w.do("POST", "/v1/notifications", hello, key("k")), 202, ""); again.body != a.body {
			t.Error(again)
		}
		w.counts(1)
	})

	row("L1", func(t *testing.T, w *world) { // up to the date it was told, and not after
		first := w.is(w.do("POST", "/v1/notifications", hello, key("k")), 202, "")
		until, err := http.ParseTime(first.header.Get("Idempotency-Expires"))
		deadline, _ := time.Parse(time.RFC3339, first.part("deadline"))
		if err != nil || until.Before(deadline.Add(89*24*time.Hour)) {
			t.Fatal(first.header)
		}
		w.ended(first.part("id"))
		w.clock.step(time.Until(until) - time.Second)
		if a := w.is(w.do("POST", "/v1/notifications", hello, key("k")), 202, ""); a.body != first.body {
			t.Error(a)
		}
		w.counts(1)
		w.clock.step(2 * time.Second)
		if a := w.is(w.do("POST", "/v1/notifications", hello, key("k")), 202, ""); a.part("id") == first.part("id") || a.header["Idempotent-Replayed"] != nil {
			t.Error(a)
		}
	})

	row("L2", func(t *testing.T, w *world) {
		due := time.Now().Add(90 * 24 * time.Hour).UTC().Format(time.RFC3339)
		body := `{"recipient":"u1","at":"` + due + `"}`
		first := w.is(w.do("POST", "/v1/notifications", body, key("k")), 202, "")
		w.clock.step(60 * 24 * time.Hour)
		if a := w.is(w.do("POST", "/v1/notifications", body, key("k")), 202, ""); a.body != first.body {
			t.Error(a)
		}
		w.counts(1)
	})

	row("L3", func(t *testing.T, w *world) { // erased
		body := `{"recipient":{"id":"u2","zone":"Asia/Tokyo","email":"private@example.com"},"data":{"title":"private"}}`
		first := w.is(w.do("POST", "/v1/notifications", body, key("k")), 202, "")
		w.ended(first.part("id"))
		w.is(w.do("DELETE", "/v1/recipients/u2", ""), 200, "")
		a := w.is(w.do("POST", "/v1/notifications", body, key("k")), 202, "")
		if a.body != first.body || strings.Contains(a.body, "private") || strings.Contains(a.body, "u2") {
			t.Error(a)
		}
		w.is(w.do("GET", "/v1/recipients/u2", ""), 404, "not_found")
		w.counts(1)
	})

	row("B1", func(t *testing.T, w *world) {
		a := w.is(w.do("POST", "/v1/notifications/batch", batchOf(100, func(i int) string {
			if i == 41 {
				return `{"recipient":"nobody"}`
			}
			return hello
		})), 422, "unknown_recipient")
		if a.part("field") != "notifications.41.recipient" || !strings.Contains(a.part("errors"), `"index":41`) {
			t.Error(a.body)
		}
		a = w.is(w.do("POST", "/v1/notifications/batch", batchOf(100, func(i int) string {
			if i > 97 {
				return `{"recipient":"u1","nonsense":1}`
			}
			return hello
		})), 422, "malformed")
		if a.part("field") != "notifications.98.nonsense" || strings.Count(a.part("errors"), `"index"`) != 2 {
			t.Error(a.body)
		}
		w.counts(0)
	})

	row("B2", func(t *testing.T, w *world) {
		for i := range 3 {
			w.is(w.do("POST", "/v1/notifications", hello, key(fmt.Sprint("k", i))), 202, "")
		}
		body := batchOf(100, func(i int) string { return strings.TrimSuffix(hello, "}") + fmt.Sprintf(`,"key":"k%d"}`, i) })
		a := w.is(w.do("POST", "/v1/notifications/batch", body), 202, "")
		if a.part("created") != "97" || a.part("replayed") != "3" || strings.Count(a.body, `"replayed":true`) != 3 {
			t.Error(a.body)
		}
		w.counts(100)
		again := w.is(w.do("POST", "/v1/notifications/batch", body), 202, "")
		if again.part("created") != "0" || again.part("replayed") != "100" {
			t.Error(again.body)
		}
		if ids(a) != ids(again) {
			t.Error("the repeat names others")
		}
		w.counts(100)
	})

	row("B3", func(t *testing.T, w *world) {
		w.is(w.do("POST", "/v1/notifications", hello, key("k7")), 202, "")
		a := w.is(w.do("POST", "/v1/notifications/batch", batchOf(10, func(i int) string {
			return fmt.Sprintf(`{"recipient":"u1","key":"k%d"}`, i)
		})), 422, "idempotency_key_reused")
		if a.part("field") != "notifications.7.key" || !linked(a) {
			t.Error(a.body)
		}
		w.counts(1)
	})

	row("B4", func(t *testing.T, w *world) {
		for _, mode := range []string{"refuse", "skip"} {
			body := `{"on_invalid":"` + mode + `","notifications":[{"recipient":"u1","key":"a"},{"recipient":"u1"},{"recipient":"u1"},{"recipient":"u1","key":"a"}]}`
			a := w.is(w.do("POST", "/v1/notifications/batch", body), 422, "duplicate_key_in_batch")
			if a.part("field") != "notifications.3.key" || !linked(a) {
				t.Error(a.body)
			}
		}
		w.is(w.do("POST", "/v1/notifications/batch", `{"notifications":[{"recipient":"u1"}]}`, key("k")), 400, "idempotency_key_invalid")
		w.counts(0)
	})

	row("X1", func(t *testing.T, w *world) {
		a := w.is(w.do("POST", "/v1/notifications", `{"recipient":"u1","at":"2027-01-01T00:00:00Z"}`), 202, "")
		first := w.is(w.do("POST", a.header.Get("Location")+"/cancel", ""), 200, "")
		second := w.is(w.do("POST", a.header.Get("Location")+"/cancel", ""), 200, "")
		if first.part("state") != "cancelled" || first.body != second.body {
			t.Error(first, second)
		}
	})

	row("X2", func(t *testing.T, w *world) { // too late to promise anything
		w.email.hold = make(chan struct{})
		w.email.answers = []error{belfry.NotSent(503, 0, "busy")}
		a := w.is(w.do("POST", "/v1/notifications", hello), 202, "")
		<-w.email.arrived
		cancel := w.is(w.do("POST", a.header.Get("Location")+"/cancel", ""), 409, "in_flight")
		if cancel.part("cancel_requested") != "true" {
			t.Error(cancel.body)
		}
		close(w.email.hold)
		if end := w.ended(a.part("id")); end.part("state") != "cancelled" {
			t.Error(end.body)
		}
	})

	row("X3", func(t *testing.T, w *world) {
		a := w.is(w.do("POST", "/v1/notifications", hello), 202, "")
		w.ended(a.part("id"))
		path := a.header.Get("Location") + "/cancel"
		if late := w.is(w.do("POST", path, ""), 409, "ended"); late.part("state") != "sent" {
			t.Error(late.body)
		}
		w.is(w.do("POST", "/v1/notifications/"+belfry.MakeID(time.Now(), 9, 9).String()+"/cancel", ""), 404, "not_found")
		w.is(w.do("POST", "/v1/notifications/nonsense/cancel", ""), 404, "not_found")
		w.is(w.do("POST", path, "", "Authorization: bank/admin"), 404, "not_found")
	})

	row("P1", func(t *testing.T, w *world) {
		pad := func(n int) string { return hello[:len(hello)-1] + strings.Repeat(" ", n-len(hello)) + "}" }
		w.is(w.do("POST", "/v1/notifications", pad(api.MaxBody+1)), 413, "too_large")
		w.is(w.do("POST", "/v1/notifications/batch", `{"notifications":[`+hello+`]`+strings.Repeat(" ", api.MaxBatchBody)+`}`), 413, "too_large")
		for _, c := range []struct{ body, field string }{
			{`{"recipient":"u1","data":` + strings.Repeat(`{"a":`, 32) + `1` + strings.Repeat("}", 33), "data" + strings.Repeat(".a", 31)},
			{`{"recipient":"u1","recipient":"u2"}`, "recipient"},
			{`{"recipient":"u1","Recipient":"u2"}`, "Recipient"},
			{`{"recipient":"u1","data":{"a":{"b":1,"b":2}}}`, "data.a.b"},
			{`{"recipient":"u1","to":[{"channel":"email","address":"a@example.com","Address":"b@example.com"}]}`, "to.0.Address"},
			{`{"recipient":"u1","unknown":1}`, "unknown"},
			{`{"recipient":"u1","once":{"per":"day","unknown":1}}`, "once.unknown"},
			{`{"recipient":"` + "\xff" + `"}`, "recipient"},
			{`{"recipient":"\ud800"}`, "recipient"},
			{`{"recipient":"u1","data":{"n":NaN}}`, "data.n"},
			{`{"recipient":9007199254740993}`, "recipient"},
			{`{"recipient":"u1","subject":null}`, "subject"},
			{`{"recipient":"u1","at":"tomorrow"}`, "at"},
			{`{"recipient":"u1"`, ""}, {``, ""}, {`[]`, ""}, {`null`, ""}, {`"u1"`, ""}, {`{"recipient":"u1"}{}`, ""},
		} {
			a := w.do("POST", "/v1/notifications", c.body, "Content-Type: application/json")
			if w.is(a, 400, "malformed"); a.part("field") != c.field {
				t.Errorf("%.80s: %s", c.body, a.body)
			}
		}
		w.counts(0)
		w.is(w.do("POST", "/v1/notifications", pad(api.MaxBody)), 202, "")
		w.counts(1)
	})

	row("P2", func(t *testing.T, w *world) {
		w.is(w.do("POST", "/v1/notifications", hello, "Content-Encoding: gzip"), 415, "unsupported_media_type")
		// Chunks without end: reading stops at the limit.
		conn, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		head := strings.Replace(w.message(""), "Content-Length: 0", "Transfer-Encoding: chunked", 1)
		if _, err := io.WriteString(conn, head); err != nil {
			t.Fatal(err)
		}
		sent := 0
		go func() {
			for {
				n, err := io.WriteString(conn, "1000\r\n"+strings.Repeat(" ", 0x1000)+"\r\n")
				if sent += n; err != nil {
					return
				}
			}
		}()
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || response.StatusCode != 413 {
			t.Error(response, err)
		}
		// A body that does not come.
		text := w.message(hello)
		response, err = w.raw(text[:len(text)-1])
		if err != nil || response.StatusCode != 408 || !response.Close {
			t.Error(response, err)
		}
		w.counts(0)
	}, func(o *api.Options) { o.BodyTimeout = 200 * time.Millisecond })
}

func batchOf(n int, item func(i int) string) string {
	items := make([]string, n)
	for i := range items {
		items[i] = item(i)
	}
	return `{"notifications":[` + strings.Join(items, ",") + `]}`
}

// ids lists the notifications that a batch's answer names.
func ids(a answer) string {
	var b api.BatchAnswer
	if err := json.Unmarshal([]byte(a.body), &b); err != nil {
		return err.Error()
	}
	var list []string
	for _, r := range b.Results {
		list = append(list, r.ID.String())
	}
	return strings.Join(list, " ")
}

// parallel makes n requests with one key at once.
func parallel(w *world, n int, body func(i int) string) []answer {
	answers := make([]answer, n)
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			var err error
			if answers[i], err = w.try("POST", "/v1/notifications", body(i), key("k")); err != nil {
				w.Error(err)
			}
		})
	}
	close(start)
	wg.Wait()
	return answers
}
