package sandbox_test

import (
	"bytes"
	"crypto/ecdh"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"belfry/channel/channeltest"
	"belfry/sandbox"
	"belfry/signature"
)

func serve(t testing.TB, o sandbox.Options) (*sandbox.Sandbox, string) {
	t.Helper()
	s, err := sandbox.New(o)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(s)
	t.Cleanup(func() {
		server.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, server.URL
}

// do makes one request; the status is 0 when there was no answer.
func do(t testing.TB, method, url, body string, header ...string) (status int, answer string, h http.Header) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", nil
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b), resp.Header
}

func want(t testing.TB, status int, method, url, body string, header ...string) string {
	t.Helper()
	got, answer, _ := do(t, method, url, body, header...)
	if got != status {
		t.Fatalf("%s %s: answered %d %q, want %d", method, url, got, answer, status)
	}
	return answer
}

func entries(t testing.TB, url string) (all []map[string]any) {
	t.Helper()
	if err := json.Unmarshal([]byte(want(t, 200, "GET", url, "")), &all); err != nil {
		t.Fatal(err)
	}
	return all
}

func TestLogIsWhatWasAccepted(t *testing.T) {
	at := time.Date(2026, 12, 1, 9, 0, 0, 0, time.UTC)
	_, url := serve(t, sandbox.Options{Clock: func() time.Time { return at }})
	if got := want(t, 200, "GET", url+"/log", ""); got != "[]\n" {
		t.Errorf("an empty log is %q", got)
	}
	want(t, 204, "PUT", url+"/script", `{"channel":"webhook","to":"shop","answers":[{"status":503,"headers":{"Retry-After":"1"},"body":"no"},{"status":202}]}`)
	_, answer, h := do(t, "POST", url+"/webhook/shop", `{"n":1}`, "webhook-id", "m-1")
	if answer != "no" || h.Get("Retry-After") != "1" {
		t.Errorf("%q, %v", answer, h)
	}
	want(t, 202, "POST", url+"/webhook/shop", `{"n": 1, "x": "<&>"}`, "webhook-id", "m-1", "webhook-epoch", "7")
	want(t, 202, "POST", url+"/webhook/shop", "plain", "webhook-id", "m-2")
	want(t, 200, "POST", url+"/webhook/other", `{}`, "webhook-id", "m-1")
	log := entries(t, url+"/log")
	if len(log) != 3 {
		t.Fatalf("%v", log)
	}
	first := log[0]
	if first["at"] != "2026-12-01T09:00:00Z" || first["channel"] != "webhook" || first["to"] != "shop" || first["id"] != "m-1" || first["attempt"] != 2.0 ||
		first["headers"].(map[string]any)["webhook-epoch"] != "7" || first["body"].(map[string]any)["x"] != "<&>" {
		t.Errorf("%v", first)
	}
	if log[1]["body"] != "plain" || log[1]["attempt"] != 1.0 || log[2]["attempt"] != 1.0 {
		t.Errorf("%v", log[1:])
	}
	for query, n := range map[string]int{"channel=webhook": 3, "channel=webpush": 0, "to=shop": 2, "to=shop&id=m-1": 1, "since=2026-12-01T09:00:00Z": 3, "since=2026-12-01T10:00:01%2B01:00": 0} {
		if got := len(entries(t, url+"/log?"+query)); got != n {
			t.Errorf("%s: %d", query, got)
		}
	}
	want(t, 400, "GET", url+"/log?since=yesterday", "")
	var stats map[string]map[string]int
	if err := json.Unmarshal([]byte(want(t, 200, "GET", url+"/stats", "")), &stats); err != nil {
		t.Fatal(err)
	}
	if s := stats["webhook"]; s["503"] != 1 || s["202"] != 2 || s["200"] != 1 || stats["log"]["kept"] != 3 {
		t.Errorf("%v", stats)
	}
	want(t, 204, "DELETE", url+"/log", "")
	want(t, 202, "POST", url+"/webhook/shop", "", "webhook-id", "m-1")
	if log := entries(t, url+"/log"); len(log) != 1 || log[0]["attempt"] != 1.0 {
		t.Errorf("%v", log)
	}
}

func TestScriptsMisbehave(t *testing.T) {
	s, url := serve(t, sandbox.Options{})
	for _, c := range []struct {
		answer   string
		status   int
		accepted int
	}{
		{`{}`, 200, 1}, {`{"status":204}`, 204, 1}, {`{"status":410}`, 410, 0}, {`{"status":302}`, 302, 0},
		{`{"drop":true}`, 0, 0}, {`{"accept_then_drop":true}`, 0, 1}, {`{"hang_ms":1}`, 0, 0}, {`{"hang_ms":1,"status":200}`, 200, 1},
		{`{"delay_ms":1}`, 200, 1}, {`{"delay_ms":1,"drop":true}`, 0, 0},
	} {
		if err := s.Clear(); err != nil {
			t.Fatal(err)
		}
		want(t, 204, "PUT", url+"/script", `{"channel":"webhook","to":"x","answers":[`+c.answer+`]}`)
		status, _, _ := do(t, "POST", url+"/webhook/x", "{}")
		if status != c.status || len(s.Log()) != c.accepted {
			t.Errorf("%s: answered %d, accepted %d", c.answer, status, len(s.Log()))
		}
	}
	want(t, 204, "PUT", url+"/script", `{"channel":"webhook","to":"x","answers":[{"status":500},{"status":501}]}`)
	want(t, 204, "PUT", url+"/script", `{"channel":"webhook","to":"a","answers":[{"drop":true}]}`)
	for _, status := range []int{500, 501, 501, 501} {
		want(t, status, "POST", url+"/webhook/x", "")
	}
	if got := want(t, 200, "GET", url+"/script", ""); got != `[{"channel":"webhook","to":"a","answers":[{"drop":true}]},{"channel":"webhook","to":"x","answers":[{"status":500},{"status":501}]}]`+"\n" {
		t.Error(got)
	}
	want(t, 204, "PUT", url+"/script", `{"channel":"webhook","to":"x","answers":[]}`)
	want(t, 200, "POST", url+"/webhook/x", "")
	for _, bad := range []string{
		``, `{}`, `{"channel":"webhook","to":"x","answers":[{"status":99}]}`, `{"channel":"webhook","to":"x","answers":[{"hang_ms":-1}]}`,
		`{"channel":"webhook","to":"x","answers":[{"drop":true,"status":200}]}`, `{"channel":"webhook","to":"x","answers":[{"hang":1}]}`,
		`{"channel":"webhook","to":"x","secret":"nonsense","answers":[]}`,
	} {
		want(t, 400, "PUT", url+"/script", bad)
	}
}

// TestHangsTakeTheirTime runs in a bubble, in which they take none.
func TestHangsTakeTheirTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := sandbox.New(sandbox.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Script(sandbox.Script{Channel: "webhook", To: "x", Answers: []sandbox.Answer{{HangMS: 20_000}, {DelayMS: 500}}}); err != nil {
			t.Fatal(err)
		}
		client := &http.Client{Transport: channeltest.Transport(s)}
		start := time.Now()
		if _, err := client.Post("http://sandbox/webhook/x", "", nil); err == nil || time.Since(start) != 20*time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		start = time.Now()
		resp, err := client.Post("http://sandbox/webhook/x", "", nil)
		if err != nil || resp.StatusCode != 200 || time.Since(start) != 500*time.Millisecond {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		resp.Body.Close()
		if len(s.Log()) != 1 {
			t.Errorf("%d accepted", len(s.Log()))
		}
	})
}

func TestReceiverThatKnowsTheSecretVerifies(t *testing.T) {
	const text = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	secret, err := signature.ParseSecret(text)
	if err != nil {
		t.Fatal(err)
	}
	_, url := serve(t, sandbox.Options{})
	signed := func(at time.Time, body string) []string {
		sig, err := signature.Sign("m-1", at, []byte(body), secret)
		if err != nil {
			t.Fatal(err)
		}
		return []string{"webhook-id", "m-1", "webhook-timestamp", fmt.Sprint(at.Unix()), "webhook-signature", sig}
	}
	hook := url + "/webhook/shop"
	want(t, 204, "PUT", hook+"/secret", `{"secret":"`+text+`"}`)
	want(t, 200, "POST", hook, "{}", signed(time.Now(), "{}")...)
	want(t, 401, "POST", hook, "{ }", signed(time.Now(), "{}")...)
	want(t, 401, "POST", hook, "{}", signed(time.Now().Add(-6*time.Minute), "{}")...)
	want(t, 400, "POST", hook, "{}")
	want(t, 200, "PUT", url+"/clock", `{"now":"2027-01-01T00:00:00Z"}`)
	want(t, 200, "POST", hook, "{}", signed(time.Date(2027, 1, 1, 0, 1, 0, 0, time.UTC), "{}")...)
	if log := entries(t, url+"/log"); len(log) != 2 || !strings.HasPrefix(log[1]["at"].(string), "2027-01-01T00:00:0") {
		t.Errorf("%v", log)
	}
	want(t, 204, "PUT", hook+"/secret", text+"\n")
	want(t, 400, "POST", hook, "{}")
	want(t, 204, "PUT", hook+"/secret", `{"secret":""}`)
	want(t, 200, "POST", hook, "{}")
	want(t, 400, "PUT", hook+"/secret", `{"secret":"hunter2"}`)
}

func TestLogFileHoldsEveryAcceptanceBeforeItIsAnswered(t *testing.T) {
	name := filepath.Join(t.TempDir(), "log")
	s, url := serve(t, sandbox.Options{LogFile: name})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 20 {
				id := fmt.Sprint(i, "-", j)
				status, _, _ := do(t, "POST", url+"/webhook/x", `{"a":`+fmt.Sprint(j)+`}`, "webhook-id", id)
				b, err := os.ReadFile(name)
				if status != 200 || err != nil || !bytes.Contains(b, []byte(`"id":"`+id+`"`)) {
					t.Errorf("%s was answered %d before it was in the file, %v", id, status, err)
				}
			}
		})
	}
	wg.Wait()
	// A line that was cut short by a crash does not count: nobody was told that it is there.
	f, err := os.OpenFile(name, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = f.WriteString(`{"at":"2026-12`)
	f.Close()
	again, _ := serve(t, sandbox.Options{LogFile: name})
	if a, b := len(s.Log()), len(again.Log()); a != 160 || b != 160 {
		t.Errorf("%d accepted, %d after opening the file again", a, b)
	}
	for i, e := range again.Log() {
		if e.Attempt != 1 || e.Header.Get("webhook-id") != e.ID || !json.Valid(e.Body) || !bytes.HasPrefix(e.Body, []byte(`{"a":`)) {
			t.Fatalf("%d: %+v", i, e)
		}
	}
	if err := again.Clear(); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(name); err != nil || len(b) != 0 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	if err := os.WriteFile(name, []byte("something else\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := sandbox.New(sandbox.Options{LogFile: name}); err == nil {
		t.Error("a file that is no log was taken for one")
	}
}

func TestMemoryIsBounded(t *testing.T) {
	s, url := serve(t, sandbox.Options{Keep: 10, Lean: true})
	for i := range 45 {
		want(t, 200, "POST", url+"/webhook/x", "{}", "webhook-id", fmt.Sprint(i))
	}
	log := s.Log()
	if len(log) < 10 || len(log) >= 20 || log[len(log)-1].ID != "44" || log[0].Header != nil || log[0].Body != nil {
		t.Errorf("%d kept: %+v", len(log), log[0])
	}
	want(t, 413, "POST", url+"/webhook/x", strings.Repeat("x", 1<<20+1))
}

// The messages of these tests are the example of RFC 8291 §5, sent to a subscription with the example's keys.
func TestDecryptFollowsRFC8291(t *testing.T) {
	b64 := func(s string) []byte { b, _ := base64.RawURLEncoding.DecodeString(s); return b }
	own, err := ecdh.P256().NewPrivateKey(b64("q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94"))
	if err != nil {
		t.Fatal(err)
	}
	auth := b64("BTBZMqHH6r4Tts7J_aSIgg")
	body := b64("DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN")
	plain, err := sandbox.Decrypt(own, auth, body)
	if err != nil || string(plain) != "When I grow up, I want to be a watermelon" {
		t.Errorf("%q, %v", plain, err)
	}
	for i := range body {
		changed := bytes.Clone(body)
		changed[i] ^= 1
		// The record size is not authenticated, only bounded.
		if plain, err := sandbox.Decrypt(own, auth, changed); err == nil && (i < 16 || i > 19) {
			t.Errorf("byte %d changed, and it still reads %q", i, plain)
		}
		if plain, err := sandbox.Decrypt(own, auth, body[:i]); err == nil {
			t.Errorf("the first %d bytes read %q", i, plain)
		}
	}
}

func BenchmarkWebhook(b *testing.B) {
	s, err := sandbox.New(sandbox.Options{Lean: true})
	if err != nil {
		b.Fatal(err)
	}
	body := []byte(`{"type":"price_drop","data":{"item":"kettle","price":1980}}`)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		i++
		r := httptest.NewRequest("POST", "/webhook/shop", bytes.NewReader(body))
		r.Header.Set("webhook-id", fmt.Sprint(i))
		w := httptest.NewRecorder()
		if s.ServeHTTP(w, r); w.Code != 200 {
			b.Fatal(w.Code)
		}
	}
}
