package webhook_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"belfry"
	"belfry/channel"
	"belfry/channel/channeltest"
	"belfry/channel/webhook"
	"belfry/signature"
)

const (
	own      = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	old      = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX"
	fallback = "whsec_QkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJC"
)

func open(t testing.TB, o webhook.Options) *webhook.Channel {
	t.Helper()
	o.AllowAll = true
	c, err := webhook.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestChannel(t *testing.T) {
	keys := belfry.Keys{"secret": own}
	channeltest.Run(t, channeltest.Setup{
		Open: func(t testing.TB, p channeltest.Provider) (channel.Channel, belfry.Endpoint) {
			return open(t, webhook.Options{HTTP: p.HTTP, Secret: fallback}), belfry.Endpoint{
				Channel: "webhook", Address: belfry.Secret(p.URL + "/hooks/t0ken-of-the-url?key=k3y-of-the-url"), Keys: belfry.Keys{"secret": own, "secret_old": old},
			}
		},
		Secrets: []string{fallback},
		Good: []channeltest.Address{
			{Name: "https", Address: "https://shop.example/hooks", Keys: keys},
			{Name: "with a port and a query", Address: "https://shop.example:8443/hooks?a=b", Keys: keys},
			{Name: "signed with the default", Address: "https://shop.example/"},
			{Name: "private key", Address: "https://shop.example/", Keys: belfry.Keys{"secret": "whsk_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="}},
		},
		Bad: []channeltest.Address{
			{Name: "no URL", Address: "shop", Keys: keys, Field: "address"},
			{Name: "empty", Address: "", Keys: keys, Field: "address"},
			{Name: "other scheme", Address: "ftp://shop.example/hooks", Keys: keys, Field: "address"},
			{Name: "user name", Address: "https://user:pass@shop.example/hooks", Keys: keys, Field: "address"},
			{Name: "fragment", Address: "https://shop.example/hooks#x", Keys: keys, Field: "address"},
			{Name: "cloud metadata", Address: "http://169.254.169.254/latest/meta-data", Keys: keys, Field: "address"},
			{Name: "number for a host", Address: "http://2130706433/hooks", Keys: keys, Field: "address"},
			{Name: "bad secret", Address: "https://shop.example/", Keys: belfry.Keys{"secret": "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}, Field: "keys.secret"},
			{Name: "short secret", Address: "https://shop.example/", Keys: belfry.Keys{"secret": "whsec_c2hvcnQgc2VjcmV0"}, Field: "keys.secret"},
			{Name: "key that only verifies", Address: "https://shop.example/", Keys: belfry.Keys{"secret": "whpk_A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg="}, Field: "keys.secret"},
			{Name: "bad old secret", Address: "https://shop.example/", Keys: belfry.Keys{"secret": own, "secret_old": "whsec_x"}, Field: "keys.secret_old"},
			{Name: "old secret alone", Address: "https://shop.example/", Keys: belfry.Keys{"secret_old": old}, Field: "keys.secret"},
			{Name: "unknown key", Address: "https://shop.example/", Keys: belfry.Keys{"secret": own, "token": "x"}, Field: "keys.token"},
		},
	})
}

var (
	now      = time.Date(2026, 12, 1, 9, 0, 0, 0, time.UTC)
	delivery = belfry.DeliveryID{Notification: belfry.MakeID(now, 1, 2), N: 3}
)

func armed(url string, keys belfry.Keys, payload string) channel.Armed {
	return channel.Armed{
		Delivery: delivery, Epoch: 12345678901234567, Attempt: 1, Endpoint: belfry.Endpoint{Address: belfry.Secret(url), Keys: keys},
		Payload: []byte(payload), Now: now, Deadline: now.Add(2*time.Hour + time.Millisecond),
	}
}

type got struct {
	header http.Header
	body   string
}

func receiver(t testing.TB, status int) (url string, seen chan got) {
	seen = make(chan got, 10)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		seen <- got{r.Header, string(b)}
		w.WriteHeader(status)
	}))
	t.Cleanup(s.Close)
	return s.URL, seen
}

func TestReceiverCanVerifyAndDedupe(t *testing.T) {
	c := open(t, webhook.Options{UserAgent: "shop/1", Secret: fallback})
	url, seen := receiver(t, 200)
	const payload = `{"test": 2432232314}`
	for _, try := range []struct {
		keys  belfry.Keys
		works []string
		not   string
	}{
		{belfry.Keys{"secret": own}, []string{own}, fallback},
		{belfry.Keys{"secret": own, "secret_old": old}, []string{own, old}, fallback},
		{nil, []string{fallback}, own},
	} {
		for attempt := 1; attempt <= 2; attempt++ {
			a := armed(url, try.keys, payload)
			a.Attempt, a.Now = attempt, now.Add(time.Duration(attempt)*time.Minute)
			if _, err := c.Send(t.Context(), a); err != nil {
				t.Fatal(err)
			}
			r := <-seen
			if r.body != payload {
				t.Errorf("body %s", r.body)
			}
			for _, text := range append(try.works, try.not) {
				s, _ := signature.ParseSecret(text)
				err := signature.Verifier{Secrets: []signature.Secret{s}}.Verify(a.Now, r.header, []byte(r.body))
				if (err == nil) != (text != try.not) {
					t.Errorf("with %.12s: %v", text, err)
				}
			}
			for name, want := range map[string]string{
				"webhook-id": delivery.String(), "webhook-epoch": "12345678901234567", "webhook-not-after": "1796122800",
				"content-type": "application/json", "user-agent": "shop/1", "idempotency-key": "", "x-idempotency-key": "",
			} {
				if have := r.header.Get(name); have != want {
					t.Errorf("%s: %q, want %q", name, have, want)
				}
			}
		}
	}
}

func TestBodyIsDocumentedAndStable(t *testing.T) {
	c := open(t, webhook.Options{Secret: fallback})
	for _, try := range []struct {
		m    channel.Message
		want string
	}{
		{channel.Message{Category: "price_drop", Created: now.Add(1500 * time.Microsecond), Subject: "watch-981", Content: belfry.Content{
			Title: "Kettle <&>", Body: "héllo 👩‍👩‍👧\n", Link: "https://shop.example/?a=1&b=2", Image: "https://shop.example/i.png",
			Data: json.RawMessage("{ \"z\": 1.50, \"a\": [1e3, null],\n \"h\": \"<b>\" }"),
		}}, `{"type":"price_drop","timestamp":"2026-12-01T09:00:00.0015Z","data":{"z":1.50,"a":[1e3,null],"h":"<b>"},"subject":"watch-981",` +
			`"title":"Kettle <&>","body":"héllo 👩‍👩‍👧\n","link":"https://shop.example/?a=1&b=2","image":"https://shop.example/i.png"}`},
		{channel.Message{Category: "ping", Created: now.In(time.FixedZone("", 9*3600))}, `{"type":"ping","timestamp":"2026-12-01T09:00:00Z","data":{}}`},
	} {
		b, err := c.Encode(try.m)
		if err != nil || string(b) != try.want {
			t.Errorf("got  %s, %v\nwant %s", b, err, try.want)
		}
	}
	m := channel.Message{Content: belfry.Content{Data: json.RawMessage(`{"hidden":`)}}
	if _, err := c.Encode(m); belfry.CodeOf(err) != belfry.CodeInvalid || strings.Contains(err.Error(), "hidden") {
		t.Error(err)
	}
}

func TestAReceiverThatSaidNoMayHaveActed(t *testing.T) {
	c := open(t, webhook.Options{Secret: fallback})
	for status, frozen := range map[int]bool{204: false, 302: true, 400: true, 404: true, 410: false, 429: false, 500: true, 502: true, 503: true} {
		url, _ := receiver(t, status)
		if a := belfry.AnswerOf(c.Send(t.Context(), armed(url, nil, "{}"))); a.Frozen != frozen {
			t.Errorf("%d: %+v", status, a)
		}
	}
}

func TestAnAddressOpenedToNobodyIsNotDialled(t *testing.T) {
	url, seen := receiver(t, 200)
	c, err := webhook.New(webhook.Options{Secret: fallback})
	if err != nil {
		t.Fatal(err)
	}
	a := belfry.AnswerOf(c.Send(t.Context(), armed(url, nil, "{}")))
	if a.Outcome != belfry.OutcomeNotSent || len(seen) > 0 {
		t.Errorf("%+v, %d requests", a, len(seen))
	}
	if err := c.Check(belfry.Secret(url), nil); belfry.CodeOf(err) != belfry.CodeInvalid {
		t.Error(err)
	}
}

func TestWithoutAnySecretNothingIsSent(t *testing.T) {
	url, seen := receiver(t, 200)
	c := open(t, webhook.Options{})
	if a := belfry.AnswerOf(c.Send(t.Context(), armed(url, nil, "{}"))); a.Outcome != belfry.OutcomeMisconfigured || len(seen) > 0 {
		t.Errorf("%+v, %d requests", a, len(seen))
	}
	if _, err := webhook.New(webhook.Options{Secret: "hunter2-hunter2"}); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Error(err)
	}
}

func BenchmarkSend(b *testing.B) {
	url, _ := receiverWithoutMemory(b)
	c := open(b, webhook.Options{Secret: fallback})
	a := armed(url, nil, `{"type":"price_drop","data":{"item":"kettle","price":1980}}`)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := c.Send(context.Background(), a); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func receiverWithoutMemory(b *testing.B) (string, *httptest.Server) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	b.Cleanup(s.Close)
	return s.URL, s
}
