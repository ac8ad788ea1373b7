package sandbox_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"belfry"
	"belfry/channel"
	"belfry/channel/channeltest"
	"belfry/channel/webpush"
	"belfry/sandbox"
)

const vapidKey = "ya-p2EW6dRZrXCFXZ7HWk05Qw9s26JsSe4piKxIPZyE"

func subscribe(t testing.TB, url, body string) (sub sandbox.Subscription) {
	t.Helper()
	if err := json.Unmarshal([]byte(want(t, 201, "POST", url+"/webpush/subscriptions", body)), &sub); err != nil {
		t.Fatal(err)
	}
	return sub
}

// push is a genuine request to the subscription, as our own channel makes it, before it was sent.
func push(t testing.TB, sub sandbox.Subscription, key string, now time.Time) *http.Request {
	t.Helper()
	var got *http.Request
	keep := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { got = r })
	c, err := webpush.New(webpush.Options{Key: belfry.Secret(key), Subject: "mailto:a@shop.example", HTTP: &http.Client{Transport: channeltest.Transport(keep)}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Send(t.Context(), channel.Armed{
		Endpoint: belfry.Endpoint{Address: belfry.Secret(sub.Endpoint), Keys: belfry.Keys{"p256dh": belfry.Secret(sub.Keys.P256dh), "auth": belfry.Secret(sub.Keys.Auth)}},
		Payload:  []byte(`{"id":"m-1","title":"Hi"}`), Category: "c", Subject: "s", Now: now, Deadline: now.Add(time.Hour),
	})
	if err != nil {
		t.Fatal(err)
	}
	out, err := http.NewRequestWithContext(t.Context(), "POST", sub.Endpoint, got.Body)
	if err != nil {
		t.Fatal(err)
	}
	out.Header = got.Header
	return out
}

func answer(t testing.TB, r *http.Request) *http.Response {
	t.Helper()
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp
}

func TestPushServiceAnswersAsRealOnesDo(t *testing.T) {
	_, url := serve(t, sandbox.Options{})
	sub := subscribe(t, url, "")
	if sub.Endpoint != url+"/webpush/"+sub.ID || len(sub.Keys.P256dh) != 87 || len(sub.Keys.Auth) != 22 {
		t.Fatalf("%+v", sub)
	}
	resp := answer(t, push(t, sub, vapidKey, time.Now()))
	if resp.StatusCode != 201 || resp.Header.Get("TTL") != "3600" || !strings.HasPrefix(resp.Header.Get("Location"), url) {
		t.Errorf("%d %v", resp.StatusCode, resp.Header)
	}
	other, err := webpush.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		status int
		change func(*http.Request)
	}{
		"no Authorization": {401, func(r *http.Request) { r.Header.Del("Authorization") }},
		"another scheme":   {401, func(r *http.Request) { r.Header.Set("Authorization", "Bearer x") }},
		"changed signature": {403, func(r *http.Request) {
			h := r.Header["Authorization"]
			h[0] = strings.Replace(h[0], ", k=", "A, k=", 1)
		}},
		"changed claims": {403, func(r *http.Request) { h := r.Header["Authorization"]; h[0] = strings.Replace(h[0], ".", ".AA", 1) }},
		"another key": {403, func(r *http.Request) {
			h := r.Header["Authorization"]
			h[0] = h[0][:strings.Index(h[0], "k=")] + "k=" + public(t, other)
		}},
		"no key":                {401, func(r *http.Request) { h := r.Header["Authorization"]; h[0] = h[0][:strings.Index(h[0], ", k=")] }},
		"no TTL":                {400, func(r *http.Request) { r.Header.Del("TTL") }},
		"TTL in words":          {400, func(r *http.Request) { r.Header.Set("TTL", "1h") }},
		"TTL below zero":        {400, func(r *http.Request) { r.Header.Set("TTL", "-1") }},
		"long Topic":            {400, func(r *http.Request) { r.Header.Set("Topic", strings.Repeat("a", 33)) }},
		"odd Topic":             {400, func(r *http.Request) { r.Header.Set("Topic", "a.b") }},
		"two urgencies":         {400, func(r *http.Request) { r.Header.Add("Urgency", "low") }},
		"odd Urgency":           {400, func(r *http.Request) { r.Header.Set("Urgency", "urgent") }},
		"no Content-Encoding":   {400, func(r *http.Request) { r.Header.Del("Content-Encoding") }},
		"another encoding":      {400, func(r *http.Request) { r.Header.Set("Content-Encoding", "aesgcm") }},
		"large body":            {413, func(r *http.Request) { body(r, strings.Repeat("x", 4097)) }},
		"body of something":     {400, func(r *http.Request) { body(r, strings.Repeat("x", 200)) }},
		"empty body":            {400, func(r *http.Request) { body(r, "") }},
		"no such subscription":  {404, func(r *http.Request) { r.URL.Path = "/webpush/nobody" }},
		"zero TTL, no Topic, …": {201, func(r *http.Request) { r.Header.Set("TTL", "0"); r.Header.Del("Topic"); r.Header.Del("Urgency") }},
	} {
		r := push(t, sub, vapidKey, time.Now())
		c.change(r)
		if resp := answer(t, r); resp.StatusCode != c.status {
			t.Errorf("%s: answered %d, want %d", name, resp.StatusCode, c.status)
		}
	}
	for name, r := range map[string]*http.Request{
		"token for yesterday":      push(t, sub, vapidKey, time.Now().Add(-13*time.Hour)),
		"token for the day after":  push(t, sub, vapidKey, time.Now().Add(13*time.Hour)),
		"token for another origin": push(t, sandbox.Subscription{ID: sub.ID, Endpoint: "https://push.example/x", Keys: sub.Keys}, vapidKey, time.Now()),
	} {
		if r.URL, r.Host = push(t, sub, vapidKey, time.Now()).URL, ""; answer(t, r).StatusCode != 403 {
			t.Errorf("%s is believed", name)
		}
	}
	log := entries(t, url+"/log?channel=webpush&to="+sub.ID)
	if len(log) != 2 || log[0]["id"] != "m-1" || log[1]["attempt"] != 2.0 || log[0]["body"].(map[string]any)["title"] != "Hi" {
		t.Errorf("%v", log)
	}
	want(t, 204, "PUT", url+"/script", `{"channel":"webpush","to":"`+sub.ID+`","answers":[{"status":429,"headers":{"Retry-After":"9"}},{"accept_then_drop":true}]}`)
	if resp := answer(t, push(t, sub, vapidKey, time.Now())); resp.StatusCode != 429 || resp.Header.Get("Retry-After") != "9" {
		t.Errorf("%d", resp.StatusCode)
	}
	if _, err := http.DefaultClient.Do(push(t, sub, vapidKey, time.Now())); err == nil {
		t.Error("a connection that was to be cut was answered")
	}
	if n := len(entries(t, url+"/log")); n != 3 {
		t.Errorf("%d accepted", n)
	}
	want(t, 204, "DELETE", url+"/webpush/subscriptions/"+sub.ID, "")
	want(t, 404, "DELETE", url+"/webpush/subscriptions/nobody", "")
	if resp := answer(t, push(t, sub, vapidKey, time.Now())); resp.StatusCode != 410 {
		t.Errorf("%d", resp.StatusCode)
	}
}

func TestSubscriptionBelongsToItsVAPIDKey(t *testing.T) {
	_, url := serve(t, sandbox.Options{})
	other, err := webpush.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	sub := subscribe(t, url, `{"applicationServerKey":"`+public(t, vapidKey)+`"}`)
	if resp := answer(t, push(t, sub, vapidKey, time.Now())); resp.StatusCode != 201 {
		t.Errorf("its own key: %d", resp.StatusCode)
	}
	if resp := answer(t, push(t, sub, other.Reveal(), time.Now())); resp.StatusCode != 403 {
		t.Errorf("another key: %d", resp.StatusCode)
	}
	c, err := webpush.New(webpush.Options{Key: other, Subject: "mailto:a@shop.example", AllowAll: true})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	got := belfry.AnswerOf(c.Send(t.Context(), channel.Armed{Now: now, Deadline: now.Add(time.Hour), Payload: []byte("{}"),
		Endpoint: belfry.Endpoint{Address: belfry.Secret(sub.Endpoint), Keys: belfry.Keys{"p256dh": belfry.Secret(sub.Keys.P256dh), "auth": belfry.Secret(sub.Keys.Auth)}}}))
	if got.Outcome != belfry.OutcomeGone {
		t.Errorf("%+v", got)
	}
}

func public[T ~string](t testing.TB, key T) string {
	t.Helper()
	text, err := webpush.PublicKey(belfry.Secret(key))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func body(r *http.Request, text string) {
	r.Body, r.ContentLength = http.NoBody, 0
	if text != "" {
		fresh, _ := http.NewRequest("POST", "/", strings.NewReader(text))
		r.Body, r.ContentLength, r.GetBody = fresh.Body, fresh.ContentLength, nil
	}
}
