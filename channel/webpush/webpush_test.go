package webpush_test

import (
	"context"
	"crypto/ecdh"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"belfry"
	"belfry/channel"
	"belfry/channel/channeltest"
	"belfry/channel/webpush"
	"belfry/sandbox"
)

const (
	vapidKey = "ya-p2EW6dRZrXCFXZ7HWk05Qw9s26JsSe4piKxIPZyE"
	p256dh   = "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4"
	private  = "q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94"
	auth     = "BTBZMqHH6r4Tts7J_aSIgg"
)

var keys = belfry.Keys{"p256dh": p256dh, "auth": auth}

func open(t testing.TB, o webpush.Options) *webpush.Channel {
	t.Helper()
	o.Key, o.Subject, o.AllowAll = vapidKey, "mailto:push@shop.example", true
	c, err := webpush.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestChannel(t *testing.T) {
	const good = "https://updates.push.services.mozilla.com/wpush/v2/gAAAAAB"
	without := func(name string) belfry.Keys {
		k := belfry.Keys{"p256dh": p256dh, "auth": auth}
		delete(k, name)
		return k
	}
	with := func(name, value string) belfry.Keys {
		k := without("")
		k[name] = belfry.Secret(value)
		return k
	}
	b, _ := base64.RawURLEncoding.DecodeString(p256dh)
	offCurve := base64.RawURLEncoding.EncodeToString(append(b[:64:64], b[64]^1))
	channeltest.Run(t, channeltest.Setup{
		Open: func(t testing.TB, p channeltest.Provider) (channel.Channel, belfry.Endpoint) {
			return open(t, webpush.Options{HTTP: p.HTTP}), belfry.Endpoint{
				Channel: "webpush", Address: belfry.Secret(p.URL + "/wpush/v2/t0ken-of-the-subscription"), Keys: keys,
			}
		},
		Secrets: []string{vapidKey},
		Good: []channeltest.Address{
			{Name: "as a browser gives it", Address: good, Keys: keys},
			{Name: "with padding", Address: good, Keys: with("auth", auth+"==")},
			{Name: "standard alphabet", Address: good, Keys: with("p256dh", base64.StdEncoding.EncodeToString(b))},
		},
		Bad: []channeltest.Address{
			{Name: "no URL", Address: "subscription", Keys: keys, Field: "address"},
			{Name: "host after a user name", Address: "https://fcm.googleapis.com@127.0.0.1/", Keys: keys, Field: "address"},
			{Name: "host before a fragment", Address: "https://attacker.example#.mozaws.net/push", Keys: keys, Field: "address"},
			{Name: "cloud metadata", Address: "https://169.254.169.254/", Keys: keys, Field: "address"},
			{Name: "no p256dh", Address: good, Keys: without("p256dh"), Field: "keys.p256dh"},
			{Name: "no auth", Address: good, Keys: without("auth"), Field: "keys.auth"},
			{Name: "short auth", Address: good, Keys: with("auth", "BTBZMqHH6r4Tts7J"), Field: "keys.auth"},
			{Name: "point off the curve", Address: good, Keys: with("p256dh", offCurve), Field: "keys.p256dh"},
			{Name: "no base64", Address: good, Keys: with("p256dh", strings.Repeat("*", 87)), Field: "keys.p256dh"},
			{Name: "unknown key", Address: good, Keys: with("token", "x"), Field: "keys.token"},
		},
	})
}

func message() channel.Message {
	return channel.Message{
		Delivery: belfry.DeliveryID{Notification: 987654321, N: 2}, Category: "price_drop", Subject: "watch-981",
		Content: belfry.Content{Title: "Kettle <b>", Body: "1980 円", Link: "https://shop.example/k?a=1&b=2", Data: json.RawMessage(`{"price": 1980}`)},
	}
}

func armed(t testing.TB, c *webpush.Channel, address string, keys belfry.Keys) channel.Armed {
	t.Helper()
	m := message()
	payload, err := c.Encode(m)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	return channel.Armed{
		Delivery: m.Delivery, Attempt: 1, Endpoint: belfry.Endpoint{Address: belfry.Secret(address), Keys: keys}, Payload: payload,
		Lane: belfry.Urgent, Category: m.Category, Subject: m.Subject, Now: now, Deadline: now.Add(90*time.Second + 500*time.Millisecond),
	}
}

func TestABrowserReadsWhatWasEncoded(t *testing.T) {
	s, err := sandbox.New(sandbox.Options{})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	c := open(t, webpush.Options{})
	sub, err := s.Subscribe(server.URL, c.PublicKey())
	if err != nil {
		t.Fatal(err)
	}
	a := armed(t, c, sub.Endpoint, belfry.Keys{"p256dh": belfry.Secret(sub.Keys.P256dh), "auth": belfry.Secret(sub.Keys.Auth)})
	for range 2 {
		if _, err := c.Send(t.Context(), a); err != nil {
			t.Fatal(err)
		}
	}
	log := s.Log()
	if len(log) != 2 || log[1].Attempt != 2 || log[1].ID != a.Delivery.String() {
		t.Fatalf("%+v", log)
	}
	const want = `{"id":"0000000xdwt5h-2","category":"price_drop","subject":"watch-981","title":"Kettle <b>","body":"1980 円","link":"https://shop.example/k?a=1&b=2","data":{"price":1980}}`
	if got := string(log[0].Body); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if err := s.Unsubscribe(sub.ID); err != nil {
		t.Fatal(err)
	}
	if got := belfry.AnswerOf(c.Send(t.Context(), a)); got.Outcome != belfry.OutcomeGone {
		t.Errorf("after the subscription ended: %+v", got)
	}
}

// service keeps the headers of what it accepts, and answers with status.
func service(t testing.TB, status func(n int) int) (url string, seen func() []http.Header) {
	var mu sync.Mutex
	var all []http.Header
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		mu.Lock()
		all = append(all, r.Header)
		n := len(all)
		mu.Unlock()
		w.WriteHeader(status(n))
	}))
	t.Cleanup(s.Close)
	return s.URL, func() []http.Header {
		mu.Lock()
		defer mu.Unlock()
		return all
	}
}

func created(int) int { return http.StatusCreated }

func TestHeadersFollowRFC8030(t *testing.T) {
	url, seen := service(t, created)
	c := open(t, webpush.Options{UserAgent: "shop/1"})
	type change func(*channel.Armed)
	for i, try := range []struct {
		change
		want map[string]string
	}{
		{func(*channel.Armed) {}, map[string]string{"TTL": "90", "Urgency": "high", "Content-Encoding": "aes128gcm",
			"Content-Type": "application/octet-stream", "User-Agent": "shop/1", "Topic": "gZT-Qf82sS34-qBzkvZC3pqjdOMKq95v", "Prefer": "", "Idempotency-Key": ""}},
		{func(a *channel.Armed) { a.Subject, a.Lane = "", belfry.Normal }, map[string]string{"Topic": "", "Urgency": "normal"}},
		{func(a *channel.Armed) { a.Lane = belfry.Bulk; a.Deadline = a.Now.Add(365 * 24 * time.Hour) }, map[string]string{"TTL": "2419200", "Urgency": "low"}},
		{func(a *channel.Armed) { a.Lane = ""; a.Deadline = a.Now.Add(-time.Hour) }, map[string]string{"TTL": "1", "Urgency": "normal"}},
	} {
		a := armed(t, c, url+"/push/x", keys)
		try.change(&a)
		if _, err := c.Send(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		for name, want := range try.want {
			if got := strings.Join(seen()[i].Values(name), ","); got != want {
				t.Errorf("%d, %s: %q, want %q", i, name, got, want)
			}
		}
	}
}

type claims struct {
	Aud, Sub string
	Exp      int64
}

func read(t testing.TB, h http.Header) (token string, c claims) {
	t.Helper()
	token, _, _ = strings.Cut(strings.TrimPrefix(h.Get("Authorization"), "vapid t="), ", k=")
	b, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
	if err == nil {
		err = json.Unmarshal(b, &c)
	}
	if err != nil {
		t.Fatal(err)
	}
	return token, c
}

func TestTokenIsKeptPerOriginForElevenHours(t *testing.T) {
	url, seen := service(t, created)
	other, alsoSeen := service(t, created)
	c := open(t, webpush.Options{})
	a := armed(t, c, url+"/push/x", keys)
	start := a.Now.Truncate(time.Second)
	for i, after := range []time.Duration{0, 10*time.Hour + 59*time.Minute, 11*time.Hour + time.Minute} {
		a.Now, a.Deadline = start.Add(after), start.Add(after+time.Hour)
		a.Endpoint.Address = belfry.Secret(fmt.Sprint(url, "/push/", i))
		if _, err := c.Send(t.Context(), a); err != nil {
			t.Fatal(err)
		}
	}
	first, claimed := read(t, seen()[0])
	second, _ := read(t, seen()[1])
	third, renewed := read(t, seen()[2])
	if first != second || first == third {
		t.Error("a token with more than an hour left was signed anew, or one with less was not")
	}
	if claimed.Aud != url || claimed.Sub != "mailto:push@shop.example" || claimed.Exp != start.Add(12*time.Hour).Unix() {
		t.Errorf("%+v", claimed)
	}
	if renewed.Exp != start.Add(23*time.Hour+time.Minute).Unix() {
		t.Errorf("%+v", renewed)
	}
	a.Endpoint.Address = belfry.Secret(other + "/push/y")
	if _, err := c.Send(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	if _, c := read(t, alsoSeen()[0]); c.Aud != other {
		t.Errorf("a token for %s went to %s", c.Aud, other)
	}
	a.Now = start.Add(-24 * time.Hour) // a clock that was set back: the token lives too long for it
	a.Endpoint.Address = belfry.Secret(url + "/push/z")
	if _, err := c.Send(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	if _, c := read(t, seen()[3]); c.Exp != a.Now.Add(12*time.Hour).Unix() {
		t.Errorf("%+v", c)
	}
}

func TestAudienceIsTheOriginAlone(t *testing.T) {
	for address, want := range map[string]string{
		"https://web.push.apple.com/QGuQyavXutnMH": "https://web.push.apple.com", "https://FCM.googleapis.com:443/fcm/send/x?y=z": "https://fcm.googleapis.com",
		"https://push.example:8443/x": "https://push.example:8443",
	} {
		var h http.Header
		handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h = r.Header; w.WriteHeader(201) })
		c := open(t, webpush.Options{HTTP: &http.Client{Transport: channeltest.Transport(handler)}})
		if _, err := c.Send(t.Context(), armed(t, c, address, keys)); err != nil {
			t.Fatal(err)
		}
		if _, c := read(t, h); c.Aud != want {
			t.Errorf("%s: %s", address, c.Aud)
		}
	}
}

func TestATokenThatIsNotBelievedIsSignedAnewOnTheNextTry(t *testing.T) {
	for _, status := range []int{401, 403} {
		url, seen := service(t, func(n int) int {
			if n == 1 {
				return status
			}
			return 201
		})
		c := open(t, webpush.Options{})
		a := armed(t, c, url+"/push/x", keys)
		if got := belfry.AnswerOf(c.Send(t.Context(), a)); got.Outcome != belfry.OutcomeMisconfigured || len(seen()) != 1 {
			t.Errorf("%+v after %d requests", got, len(seen()))
		}
		a.Now = a.Now.Add(2 * time.Second)
		if _, err := c.Send(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		first, _ := read(t, seen()[0])
		if second, _ := read(t, seen()[1]); first == second {
			t.Error("the same token was sent again")
		}
	}
}

func TestEveryTryHasItsOwnKeyAndSalt(t *testing.T) {
	var bodies []string
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		bodies = append(bodies, string(b))
		w.WriteHeader(201)
	})
	c := open(t, webpush.Options{HTTP: &http.Client{Transport: channeltest.Transport(handler)}})
	a := armed(t, c, "https://push.example/x", keys)
	for range 2 {
		if _, err := c.Send(t.Context(), a); err != nil {
			t.Fatal(err)
		}
	}
	if bodies[0][:16] == bodies[1][:16] || bodies[0][21:86] == bodies[1][21:86] {
		t.Error("two messages share a salt or a key")
	}
	raw, _ := base64.RawURLEncoding.DecodeString(private)
	secret, _ := base64.RawURLEncoding.DecodeString(auth)
	own, err := ecdh.P256().NewPrivateKey(raw)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range bodies {
		if plain, err := sandbox.Decrypt(own, secret, []byte(b)); err != nil || string(plain) != string(a.Payload) {
			t.Errorf("%q, %v", plain, err)
		}
	}
}

func TestPayloadOf3993BytesIsTheLargest(t *testing.T) {
	c := open(t, webpush.Options{})
	m := message()
	m.Content = belfry.Content{}
	empty, err := c.Encode(m)
	if err != nil {
		t.Fatal(err)
	}
	room := webpush.MaxPayload - len(empty) - len(`,"body":""`)
	m.Content.Body = strings.Repeat("x", room)
	if b, err := c.Encode(m); err != nil || len(b) != 3993 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	m.Content.Body += "x"
	if _, err := c.Encode(m); belfry.CodeOf(err) != belfry.CodeInvalid {
		t.Errorf("%v", err)
	}
}

func TestSubjectIsOneThatEveryServiceTakes(t *testing.T) {
	for subject, ok := range map[string]bool{
		"mailto:push@shop.example": true, "https://shop.example/contact": true, "https://shop.example": true,
		"": false, "push@shop.example": false, "mailto:": false, "mailto:push": false, "mailto: push@shop.example": false, "mailto:<push@shop.example>": false,
		"mailto:push@localhost": false, "https://localhost/": false, "https://localhost:8080": false, "http://shop.example": false, "https://": false,
		"mailto:mailto:push@shop": false, "mailto:a@b@shop.example": false, "mailto:push@shop.example ": false, `mailto:"x"@shop.example`: false, "https://a:b@shop.example": false,
	} {
		if _, err := webpush.New(webpush.Options{Key: vapidKey, Subject: subject}); (err == nil) != ok {
			t.Errorf("%q: %v", subject, err)
		}
	}
}

func TestGeneratedKeysWorkAndBadOnesAreNotShown(t *testing.T) {
	key, err := webpush.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	public, err := webpush.PublicKey(key)
	if b, _ := base64.RawURLEncoding.DecodeString(public); err != nil || len(b) != 65 || b[0] != 4 {
		t.Errorf("%s, %v", public, err)
	}
	if c, err := webpush.New(webpush.Options{Key: key, Subject: "mailto:push@shop.example"}); err != nil || c.PublicKey() != public {
		t.Errorf("%v", err)
	}
	for _, key := range []string{"", "hunter2hunter2", strings.Repeat("A", 43), public, strings.Repeat("_", 43)} {
		if _, err := webpush.New(webpush.Options{Key: belfry.Secret(key), Subject: "mailto:push@shop.example"}); err == nil || key != "" && strings.Contains(err.Error(), key) {
			t.Errorf("%q: %v", key, err)
		}
	}
}

func BenchmarkSend(b *testing.B) {
	url, _ := service(b, created)
	c := open(b, webpush.Options{})
	a := armed(b, c, url+"/push/x", keys)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Send(context.Background(), a); err != nil {
			b.Fatal(err)
		}
	}
}
