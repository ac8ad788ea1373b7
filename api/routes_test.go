package api_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"belfry"
	"belfry/api"
	"belfry/internal/strictjson"
)

// shape checks that an answer is what the document says of T, no more and no less, and reads it.
func shape[T any](t testing.TB, a answer) (v T) {
	t.Helper()
	doc, err := strictjson.Parse([]byte(strings.TrimSpace(a.body)))
	if err == nil {
		err = doc.Decode(&v)
	}
	if err != nil {
		t.Errorf("%v: %s", err, a.body)
	}
	return v
}

// ask is one row: a request, its status and code, and a part of its answer.
type ask struct {
	method, path, body string
	status             int
	part               string // of the body
	headers            []string
}

func (w *world) all(rows []ask) {
	w.Helper()
	for _, r := range rows {
		a := w.do(r.method, r.path, r.body, r.headers...)
		if a.status != r.status || !strings.Contains(a.body, r.part) {
			w.Errorf("%s %s %s: %d %s, want %d …%s…", r.method, r.path, r.body, a.status, a.body, r.status, r.part)
		}
	}
}

func TestWhatIsEnqueuedIsWhatWasAskedFor(t *testing.T) {
	w := newWorld(t)
	w.recipient("u1")
	a := w.is(w.do("POST", "/v1/notifications", `{
		"recipient": "u1", "category": "default", "subject": "watch-981", "data": {"item": "kettle", "price": 1980},
		"at": "2030-12-01T00:00:00Z", "expires_in": "2h", "once": {"per": "day", "key": "k"}, "channels": ["email"],
		"to": [{"channel": "email", "address": "someone.else@example.com"}]}`), 202, "")
	shape[api.Enqueued](t, a)
	n := shape[api.Notification](t, w.do("GET", a.header.Get("Location"), ""))
	if n.Recipient != "u1" || n.Subject != "watch-981" || string(n.Data) != `{"item":"kettle","price":1980}` || n.Once == nil || n.Once.Key != "k" ||
		!n.Deadline.Equal(time.Date(2030, 12, 1, 2, 0, 0, 0, time.UTC)) || len(n.Channels) != 1 || len(n.To) != 1 || n.To[0].Hint != "….com" {
		t.Errorf("%+v", n)
	}
	// The same fact again.
	again := shape[api.Enqueued](t, w.is(w.do("POST", "/v1/notifications",
		`{"recipient":"u1","subject":"watch-981","at":"2030-12-01T03:00:00Z","once":{"per":"day","key":"k"}}`), 202, ""))
	if again.Result != "duplicate" || again.ID != n.ID {
		t.Errorf("%+v", again)
	}
	local := shape[api.Enqueued](t, w.is(w.do("POST", "/v1/notifications", `{"recipient":"u1","local_time":"2030-12-01T09:00"}`), 202, ""))
	if local.DueLocal != "2030-12-01T09:00:00+09:00" || !local.Due.Equal(time.Date(2030, 12, 1, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("%+v", local)
	}
	w.counts(2)
}

func TestARecipientCanComeWithItsNotification(t *testing.T) {
	w := newWorld(t)
	a := w.is(w.do("POST", "/v1/notifications", `{"recipient":{"id":"u9","zone":"Europe/Berlin","locale":"de","attributes":{"name":"Ada"},
		"email":"ada@example.com","webpush":{"endpoint":"https://push.example/abcdefghijklmnop","keys":{"p256dh":"BK","auth":"x"},"expirationTime":null,"device":"phone"}},
		"data":{"title":"hi"}}`), 202, "")
	w.ended(a.part("id"))
	r := shape[api.Recipient](t, w.do("GET", "/v1/recipients/u9", ""))
	if r.Zone != "Europe/Berlin" || r.Locale != "de" || string(r.Attributes) != `{"name":"Ada"}` {
		t.Errorf("%+v", r)
	}
	list := shape[api.EndpointList](t, w.do("GET", "/v1/recipients/u9/endpoints", ""))
	if len(list.Endpoints) != 2 {
		t.Errorf("%+v", list)
	}
	w.all([]ask{
		{method: "POST", path: "/v1/notifications", body: `{"recipient":{"id":"u8","zonee":"Asia/Tokyo"}}`, status: 422, part: `"field":"recipient.zonee`},
		{method: "POST", path: "/v1/notifications", body: `{"recipient":{"id":"u8","zone":"asia/tokyo"}}`, status: 422, part: "Asia/Tokyo"},
		{method: "POST", path: "/v1/notifications", body: `{"recipient":{"id":"u8","zone":7}}`, status: 400, part: `"field":"recipient.zone"`},
		{method: "POST", path: "/v1/notifications", body: `{"recipient":{"zone":"UTC"}}`, status: 400, part: `"field":"recipient.id"`},
		{method: "POST", path: "/v1/notifications", body: `{"recipient":{"id":""}}`, status: 422, part: `"field":"recipient`},
		{method: "POST", path: "/v1/notifications", body: `{"recipient":{"id":"u8","email":["a"]}}`, status: 400, part: `"field":"recipient.email"`},
		{method: "POST", path: "/v1/notifications", body: `{"recipient":{"id":"u8","email":{"address":"a","endpoint":"b"}}}`, status: 400, part: `"field":"recipient.email.endpoint"`},
		{method: "POST", path: "/v1/notifications", body: `{"recipient":{"id":"u8","email":{}}}`, status: 400, part: `"field":"recipient.email.address"`},
		{method: "POST", path: "/v1/notifications", body: `{"recipient":{"id":"u8","attributes":[]}}`, status: 422, part: `"field":"recipient.attributes"`},
		{method: "GET", path: "/v1/recipients/u8", status: 404},
	})
	w.counts(1)
}

func TestARequestThatIsNotValidChangesNothingAndNamesTheField(t *testing.T) {
	w := newWorld(t)
	w.recipient("u1")
	var rows []ask
	for _, c := range [][3]string{
		{`"category":"none"`, "unknown_category", "category"},
		{`"channels":["pigeon"]`, "unknown_channel", "channels"},
		{`"data":[1]`, "invalid", "data"},
		{`"data":"x"`, "invalid", "data"},
		{`"data":{"x":"` + strings.Repeat("x", belfry.MaxData) + `"}`, "invalid", "data"},
		{`"expires_in":"0s"`, "invalid", "expires_in"},
		{`"expires_in":"9999d"`, "invalid", "expires_in"},
		{`"expires_in":"1h","deadline":"2030-01-01T00:00:00Z"`, "invalid", "expires_in"},
		{`"deadline":"2020-01-01T00:00:00Z"`, "invalid", "deadline"},
		{`"at":"2990-01-01T00:00:00Z"`, "invalid", "at"},
		{`"at":"2030-01-01T00:00:00Z","local_time":"2030-01-01T00:00"`, "invalid", "local_time"},
		{`"local_time":"2030-01-01"`, "invalid", "local_time"},
		{`"local_time":"2030-01-01T09:00Z"`, "invalid", "local_time"},
		{`"local_time":"2030-02-30T09:00"`, "invalid", "local_time"},
		{`"once":{"per":"fortnight"}`, "invalid", "once.per"},
		{`"once":{}`, "malformed", "once.per"},
		{`"once":{"per":"day","zone":"Mars/Phobos"}`, "unknown_zone", "once.zone"},
		{`"subject":"` + strings.Repeat("s", 256) + `"`, "invalid", "subject"},
		{`"to":[]`, "invalid", "to"},
		{`"to":[{"channel":"email"}]`, "malformed", "to.0.address"},
		{`"to":[{"channel":"pigeon","address":"x"}]`, "unknown_channel", "to.0.channel"},
		{`"to":[{"channel":"email","address":"bad"}]`, "invalid", "to.0.address"},
		{`"to":[{"channel":"email","address":7}]`, "malformed", "to.0.address"},
		{`"channels":"push"`, "malformed", "channels"},
		{`"expires_in":3600`, "malformed", "expires_in"},
	} {
		status := 422
		if c[1] == "malformed" {
			status = 400
		}
		body := `{"recipient":"u1",` + c[0] + `}`
		rows = append(rows, ask{method: "POST", path: "/v1/notifications", body: body, status: status, part: fmt.Sprintf(`"code":%q,"field":%q`, c[1], c[2])})
		rows = append(rows, ask{method: "POST", path: "/v1/notifications?dry_run=true", body: body, status: status, part: fmt.Sprintf(`"field":%q`, c[2])})
		rows = append(rows, ask{
			method: "POST", path: "/v1/notifications/batch", body: `{"notifications":[{"recipient":"u1"},` + body + `]}`, status: 422,
			part: fmt.Sprintf(`"field":"notifications.1.%s"`, c[2]),
		})
	}
	w.all(rows)
	w.all([]ask{
		{method: "POST", path: "/v1/notifications", body: `{}`, status: 400, part: `"field":"recipient"`},
		{method: "POST", path: "/v1/notifications", body: `{"recipient":""}`, status: 422, part: `"field":"recipient"`},
		{method: "POST", path: "/v1/notifications", body: `{"recipient":"nobody"}`, status: 422, part: `"code":"unknown_recipient","field":"recipient"`},
		{method: "POST", path: "/v1/notifications?dryrun=true", body: hello, status: 400, part: `"field":"dryrun"`},
		{method: "POST", path: "/v1/notifications?dry_run=1", body: hello, status: 400, part: `"field":"dry_run"`},
		{method: "POST", path: "/v1/notifications?dry_run=true&dry_run=false", body: hello, status: 400, part: `"field":"dry_run"`},
		{method: "POST", path: "/v1/notifications?dry_run=%zz", body: hello, status: 400},
		{method: "POST", path: "/v1/notifications/batch", body: `{"notifications":[]}`, status: 422, part: `"field":"notifications"`},
		{method: "POST", path: "/v1/notifications/batch", body: `{}`, status: 400, part: `"field":"notifications"`},
		{method: "POST", path: "/v1/notifications/batch", body: `{"notifications":[{"recipient":"u1"}],"on_invalid":"maybe"}`, status: 422, part: `"field":"on_invalid"`},
		{method: "POST", path: "/v1/notifications/batch", body: batchOf(1001, func(int) string { return `{"recipient":"u1"}` }), status: 422, part: `"field":"notifications"`},
		{method: "POST", path: "/v1/notifications", body: hello, headers: []string{"Content-Type: text/json"}, status: 415},
		{method: "POST", path: "/v1/notifications", body: hello, headers: []string{"Content-Type:"}, status: 415},
		{method: "POST", path: "/v1/notifications", body: hello, headers: []string{"Content-Type: application/merge-patch+json"}, status: 415},
	})
	w.counts(0)
	w.all([]ask{
		{method: "POST", path: "/v1/notifications", body: hello, headers: []string{"Content-Type: Application/JSON; charset=utf-8"}, status: 202},
		{method: "POST", path: "/v1/notifications/batch", body: batchOf(1000, func(int) string { return `{"recipient":"u1"}` }), status: 202},
	})
	w.counts(1001)
}

func TestABatchCanSkipWhatIsNotValid(t *testing.T) {
	w := newWorld(t)
	w.recipient("u1")
	w.is(w.do("POST", "/v1/notifications", hello, key("known")), 202, "")
	a := shape[api.BatchAnswer](t, w.is(w.do("POST", "/v1/notifications/batch", `{"on_invalid":"skip","notifications":[
		{"recipient":"u1","key":"a"}, {"recipient":"nobody"}, {"recipient":"u1","nonsense":1}, {"recipient":"u1","key":"known"},
		`+hello[:len(hello)-1]+`,"key":"known2"}, {"recipient":7,"key":"known3"}, {"recipient":"u1","key":""},
		{"recipient":"u1","once":{"per":"ever"}}, {"recipient":"u1","once":{"per":"ever"}}, `+hello+`]}`), 202, ""))
	if a.Created != 4 || a.Duplicates != 1 || a.Refused != 5 || a.Replayed != 0 || len(a.Results) != 10 {
		t.Errorf("%+v", a)
	}
	for i, code := range []belfry.Code{"", "unknown_recipient", "malformed", "idempotency_key_reused", "", "malformed", "idempotency_key_invalid", "", "", ""} {
		switch r := a.Results[i]; {
		case code == "" && (r.Error != nil || r.ID == 0):
			t.Errorf("%d: %+v", i, r)
		case code != "" && (r.Error == nil || r.Error.Code != code || r.Error.Index != i || r.ID != 0):
			t.Errorf("%d: %+v", i, r)
		}
	}
	if a.Results[8].Result != "duplicate" || a.Results[8].ID != a.Results[7].ID {
		t.Errorf("%+v", a.Results)
	}
	w.counts(5)
}

func TestADryRunSaysWhatWouldHappenAndWritesNothing(t *testing.T) {
	w := newWorld(t)
	w.recipient("u1")
	f := shape[api.Forecast](t, w.is(w.do("POST", "/v1/notifications?dry_run=true", hello, key("k")), 200, ""))
	if f.State != belfry.Sending || len(f.Deliveries) != 1 || f.Deliveries[0].Channel != "email" {
		t.Errorf("%+v", f)
	}
	w.is(w.do("PATCH", "/v1/recipients/u1/preferences", `{"default":{"*":false}}`), 200, "")
	f = shape[api.Forecast](t, w.is(w.do("POST", "/v1/notifications?dry_run=true", hello), 200, ""))
	if f.State != belfry.Dropped || f.Reason != belfry.ReasonOptedOut || f.Explanation == "" || len(f.Deliveries) != 0 {
		t.Errorf("%+v", f)
	}
	w.is(w.do("POST", "/v1/notifications?dry_run=true", `{"recipient":"nobody"}`), 422, "unknown_recipient")
	w.counts(0)
	w.is(w.do("POST", "/v1/notifications?dry_run=false", hello, key("k")), 202, "")
	w.counts(1)
}

func TestNotificationsAreListedAndCancelledByFilter(t *testing.T) {
	w := newWorld(t)
	w.recipient("u1")
	w.recipient("u2")
	w.is(w.do("PUT", "/v1/categories/news", `{}`), 200, "")
	for i := range 7 {
		w.is(w.do("POST", "/v1/notifications", fmt.Sprintf(`{"recipient":"u%d","category":"news","subject":"s%d","at":"2031-01-01T00:00:00Z"}`, i%2+1, i)), 202, "")
	}
	sent := w.is(w.do("POST", "/v1/notifications", `{"recipient":"u1","subject":"now"}`), 202, "")
	w.ended(sent.part("id"))

	var subjects []string
	path := "/v1/notifications?limit=3&category=news"
	for pages := 1; ; pages++ {
		list := shape[api.NotificationList](t, w.is(w.do("GET", path, ""), 200, ""))
		for _, n := range list.Notifications {
			subjects = append(subjects, n.Subject)
		}
		if list.Next == "" {
			if pages != 3 {
				t.Errorf("%d pages", pages)
			}
			break
		}
		path = "/v1/notifications?limit=3&category=news&cursor=" + list.Next
	}
	if got := strings.Join(subjects, " "); got != "s6 s5 s4 s3 s2 s1 s0" {
		t.Error(got)
	}
	count := func(query string) int {
		return len(shape[api.NotificationList](t, w.is(w.do("GET", "/v1/notifications?"+query, ""), 200, "")).Notifications)
	}
	for query, want := range map[string]int{
		"": 8, "recipient=u1": 5, "recipient=u1&category=news": 4, "subject=s3": 1, "state=sent": 1, "state=scheduled": 7, "state=dropped": 0,
		"since=2020-01-01T00:00:00Z": 8, "until=2020-01-01T00:00:00Z": 0, "since=2099-01-01T00:00:00Z": 0, "reason=opted_out": 0, "recipient=": 8,
	} {
		if n := count(query); n != want {
			t.Errorf("%s: %d, want %d", query, n, want)
		}
	}
	w.all([]ask{
		{method: "GET", path: "/v1/notifications?state=sleeping", status: 400, part: `"field":"state"`},
		{method: "GET", path: "/v1/notifications?since=yesterday", status: 400, part: `"field":"since"`},
		{method: "GET", path: "/v1/notifications?limit=0", status: 400, part: `"field":"limit"`},
		{method: "GET", path: "/v1/notifications?limit=501", status: 400, part: `"field":"limit"`},
		{method: "GET", path: "/v1/notifications?cursor=nonsense", status: 400, part: `"field":"cursor"`},
		{method: "GET", path: "/v1/notifications?project=bank", status: 400, part: `"field":"project"`},

		{method: "POST", path: "/v1/notifications/cancel", body: `{}`, status: 422, part: `"field":"everything"`},
		{method: "POST", path: "/v1/notifications/cancel", body: `{"everything":false}`, status: 422, part: `"field":"everything"`},
		{method: "POST", path: "/v1/notifications/cancel", body: `{"everything":true,"subject":"s1"}`, status: 422, part: `"field":"everything"`},
		{method: "POST", path: "/v1/notifications/cancel", body: `{"recipent":"u1"}`, status: 400, part: `"field":"recipent"`},
		{method: "POST", path: "/v1/notifications/cancel?dry_run=true", body: `{"recipient":"u2"}`, status: 200, part: `{"cancelled":3,"in_flight":[],"ended":0,"more":false}`},
	})
	if n := count("state=cancelled"); n != 0 {
		t.Errorf("a dry run cancelled %d", n)
	}
	w.all([]ask{
		{method: "POST", path: "/v1/notifications/cancel", body: `{"recipient":"u2","subject":"s1"}`, status: 200, part: `{"cancelled":1,`},
		{method: "POST", path: "/v1/notifications/cancel", body: `{"recipient":"u2"}`, status: 200, part: `{"cancelled":2,`},
		{method: "POST", path: "/v1/notifications/cancel", body: `{"everything":true}`, status: 200, part: `{"cancelled":4,`},
	})
	if n := count("state=cancelled"); n != 7 {
		t.Errorf("%d are cancelled", n)
	}
	stats := shape[api.Stats](t, w.is(w.do("GET", "/v1/stats", ""), 200, ""))
	if len(stats.Ended) != 2 || stats.Ended[0].State != belfry.Cancelled || stats.Ended[0].Count != 7 || stats.Ended[0].Explanation == "" || stats.Waiting != 0 {
		t.Errorf("%+v", stats)
	}
}

func TestRecipientsArePutPatchedAndErased(t *testing.T) {
	w := newWorld(t)
	w.all([]ask{
		{method: "GET", path: "/v1/recipients/u1", status: 404, part: `"code":"not_found"`},
		{method: "PATCH", path: "/v1/recipients/u1", body: `{"zone":"UTC"}`, status: 404},
		{method: "DELETE", path: "/v1/recipients/u1", status: 404},
		{method: "PUT", path: "/v1/recipients/u1", body: `{"id":"u2"}`, status: 422, part: `"field":"id"`},
		{method: "PUT", path: "/v1/recipients/u1", body: `{"zone":"Local"}`, status: 422, part: `"code":"unknown_zone","field":"zone"`},
		{method: "PUT", path: "/v1/recipients/u1", body: `{"attributes":7}`, status: 422, part: `"field":"attributes"`},
		{method: "PUT", path: "/v1/recipients/u1", body: `{"quiet":1}`, status: 400, part: `"field":"quiet"`},
		{method: "PUT", path: "/v1/recipients/" + strings.Repeat("x", 256), body: `{}`, status: 422, part: `"field":"id"`},
		{method: "PUT", path: "/v1/recipients/a%00b", body: `{}`, status: 422, part: `"field":"id"`},
		{method: "PUT", path: "/v1/recipients/u1", body: `{"zone":"Asia/Tokyo","zone_source":"device","zone_as_of":"2026-01-01T00:00:00Z","locale":"ja","attributes":{"a":1,"b":{"c":2,"d":3}}}`, status: 200, part: `"zone_source":"device"`},
		{method: "PATCH", path: "/v1/recipients/u1", body: `{"attributes":{"a":null,"b":{"c":4},"e":[1,2]}}`, status: 200, part: `"attributes":{"b":{"c":4,"d":3},"e":[1,2]}`},
		{method: "PATCH", path: "/v1/recipients/u1", body: `{"locale":"en"}`, headers: []string{"Content-Type: application/merge-patch+json"}, status: 200, part: `"zone_source":"device"`},
		{method: "PATCH", path: "/v1/recipients/u1", body: `{"zone":"Europe/Paris"}`, status: 200, part: `"zone":"Europe/Paris","zone_as_of"`},
		{method: "PATCH", path: "/v1/recipients/u1", body: `{"zone":"paris"}`, status: 422, part: `"field":"zone"`},
		{method: "PATCH", path: "/v1/recipients/u1", body: `{"zone":7}`, status: 400, part: `"field":"zone"`},
		{method: "PATCH", path: "/v1/recipients/u1", body: `{"zone":null}`, status: 400, part: `"field":"zone"`},
		{method: "PATCH", path: "/v1/recipients/u1", body: `{"zone_source":"user"}`, status: 422, part: `"field":"zone"`},
		{method: "PATCH", path: "/v1/recipients/u1", body: `{"zonee":null}`, status: 400, part: `"field":"zonee"`},
		{method: "PATCH", path: "/v1/recipients/u1", body: `{"attributes":7}`, status: 422, part: `"field":"attributes"`},
		{method: "PATCH", path: "/v1/recipients/u1", body: `[]`, status: 400},
		{method: "PATCH", path: "/v1/recipients/u1", body: `{}`, status: 200, part: `"attributes":{"b":{"c":4,"d":3},"e":[1,2]}`},
		{method: "PATCH", path: "/v1/recipients/u1", body: `{"attributes":null}`, status: 200, part: `"attributes":{}`},
	})
	r := shape[api.Recipient](t, w.do("GET", "/v1/recipients/u1", ""))
	if r.Locale != "en" || r.Zone != "Europe/Paris" || r.ZoneSource != "" || string(r.Attributes) != "{}" || r.ID != "u1" {
		t.Errorf("%+v", r)
	}
	// What was shown can be put again.
	w.is(w.do("PUT", "/v1/recipients/u1", w.do("GET", "/v1/recipients/u1", "").body), 200, "")
	// Names are the caller's own.
	for _, id := range []string{"a%2Fb", "%E3%81%82", "a%20b", "user:1", "..."} {
		w.is(w.do("PUT", "/v1/recipients/"+id, `{"zone":"UTC"}`), 200, "")
		w.is(w.do("GET", "/v1/recipients/"+id, ""), 200, "")
	}
	w.is(w.do("POST", "/v1/notifications", `{"recipient":"u1","at":"2031-01-01T00:00:00Z"}`), 202, "")
	if gone := shape[api.Withdrawn](t, w.is(w.do("DELETE", "/v1/recipients/u1", ""), 200, "")); gone.Withdrawn != 1 || len(gone.InFlight) != 0 {
		t.Errorf("%+v", gone)
	}
	w.is(w.do("GET", "/v1/recipients/u1", ""), 404, "not_found")
}

func TestPreferencesAreReplacedAndMerged(t *testing.T) {
	w := newWorld(t)
	w.recipient("u1")
	const path = "/v1/recipients/u1/preferences"
	w.all([]ask{
		{method: "GET", path: path, status: 200, part: `{}`},
		{method: "GET", path: "/v1/recipients/nobody/preferences", status: 404},
		{method: "PATCH", path: "/v1/recipients/nobody/preferences", body: `{"a":{"email":false}}`, status: 404},
		{method: "PUT", path: path, body: `{"price_drop":{"email":false,"push":true},"*":{"*":false},"source":"user"}`, status: 200, part: `{"withdrawn":0,"in_flight":[]}`},
		{method: "GET", path: path, status: 200, part: `{"*":{"*":false},"price_drop":{"email":false,"push":true}}`},
		{method: "PATCH", path: path, body: `{"price_drop":{"email":null},"news":{"email":true}}`, status: 200},
		{method: "GET", path: path, status: 200, part: `{"*":{"*":false},"news":{"email":true},"price_drop":{"push":true}}`},
		{method: "PATCH", path: path, body: `{"price_drop":null,"*":null}`, status: 200},
		{method: "GET", path: path, status: 200, part: `{"news":{"email":true}}`},
		{method: "PUT", path: path, body: `{"source":{"email":false}}`, status: 200},
		{method: "GET", path: path, status: 200, part: `{"source":{"email":false}}`},
		{method: "PUT", path: path, body: `{"news":{"email":null}}`, status: 400, part: `"field":"news.email"`},
		{method: "PUT", path: path, body: `{"news":null}`, status: 400, part: `"field":"news"`},
		{method: "PATCH", path: path, body: `{"news":{"email":"no"}}`, status: 400, part: `"field":"news.email"`},
		{method: "PATCH", path: path, body: `{"news":false}`, status: 400, part: `"field":"news"`},
		{method: "PATCH", path: path, body: `{"news":{"pigeon":false}}`, status: 422, part: `"code":"unknown_channel"`},
		{method: "PATCH", path: path, body: `{"a b":{"email":false}}`, status: 400, part: `"field":"a b"`},
		{method: "PATCH", path: path, body: `{"source":""}`, status: 400, part: `"field":"source"`},
		{method: "GET", path: path, status: 200, part: `{"source":{"email":false}}`},
	})
}

func TestAnOptOutSaysWhatItCameInTimeFor(t *testing.T) {
	w := newWorld(t)
	w.recipient("u1")
	w.email.hold = make(chan struct{})
	first := w.is(w.do("POST", "/v1/notifications", hello), 202, "")
	<-w.email.arrived
	off := shape[api.Withdrawn](t, w.is(w.do("PUT", "/v1/recipients/u1/preferences", `{"*":{"email":false}}`), 200, ""))
	if len(off.InFlight) != 1 || off.InFlight[0].Notification.String() != first.part("id") {
		t.Errorf("%+v", off)
	}
	close(w.email.hold)
	w.ended(first.part("id"))
}

func TestEndpointsAreRegisteredAndNeverShown(t *testing.T) {
	w := newWorld(t)
	w.is(w.do("PUT", "/v1/recipients/u1", `{}`), 200, "")
	w.is(w.do("PUT", "/v1/recipients/u2", `{}`), 200, "")
	const path = "/v1/recipients/u1/endpoints"
	const token, other = "https://push.example/t0ps3cret-aaaa-1111", "https://push.example/t0ps3cret-bbbb-2222"
	first := w.is(w.do("PUT", path, `{"channel":"webpush","endpoint":"`+token+`","expirationTime":null,"keys":{"p256dh":"BKt0ps3cret","auth":"t0ps3cret"},"device":"phone","app":"shop"}`), 201, "")
	e := shape[api.Registered](t, first)
	if e.Hint != "…1111" || e.Device != "phone" || e.App != "shop" || !e.Created || e.State != "active" {
		t.Errorf("%+v", e)
	}
	same := shape[api.Registered](t, w.is(w.do("PUT", path, `{"channel":"webpush","address":"`+token+`","keys":{"p256dh":"BKt0ps3cret","auth":"t0ps3cret"},"device":"phone","app":"shop"}`), 200, ""))
	if same.Created || same.ID != e.ID {
		t.Errorf("%+v", same)
	}
	next := shape[api.Registered](t, w.is(w.do("PUT", path, `{"channel":"webpush","address":"`+other+`","device":"phone","app":"shop"}`), 201, ""))
	if next.Replaced != e.ID {
		t.Errorf("%+v", next)
	}
	moved := shape[api.Registered](t, w.is(w.do("PUT", "/v1/recipients/u2/endpoints", `{"channel":"webpush","address":"`+other+`","device":"tablet","app":"shop"}`), 201, ""))
	w.all([]ask{
		{method: "PUT", path: path, body: `{"channel":"email","address":"u1@example.com"}`, status: 201},
		{method: "PUT", path: path, body: `{"channel":"email"}`, status: 422, part: `"field":"address"`},
		{method: "PUT", path: path, body: `{"address":"a"}`, status: 400, part: `"field":"channel"`},
		{method: "PUT", path: path, body: `{"channel":"email","address":"a","endpoint":"b"}`, status: 422, part: `"field":"endpoint"`},
		{method: "PUT", path: path, body: `{"channel":"pigeon","address":"a"}`, status: 422, part: `"code":"unknown_channel"`},
		{method: "PUT", path: path, body: `{"channel":"email","address":"bad"}`, status: 422, part: `"field":"address"`},
		{method: "PUT", path: path, body: `{"channel":"webpush","address":"a","keys":{"auth":7}}`, status: 400, part: `"field":"keys.auth"`},
		{method: "PUT", path: "/v1/recipients/nobody/endpoints", body: `{"channel":"email","address":"a"}`, status: 404},
		{method: "DELETE", path: "/v1/recipients/u2/endpoints/" + moved.ID.String(), status: 200, part: `{"withdrawn":0,"in_flight":[]}`},
		{method: "DELETE", path: path + "/" + moved.ID.String(), status: 404},
		{method: "DELETE", path: path + "/nonsense", status: 404},
	})
	list := shape[api.EndpointList](t, w.is(w.do("GET", path, ""), 200, ""))
	active := 0
	for _, e := range list.Endpoints {
		if e.State == "active" {
			active++
		}
	}
	if active != 1 {
		t.Errorf("%+v", list)
	}
	for _, where := range []string{path, "/v1/recipients/u2/endpoints", "/v1/recipients/u1"} {
		if a := w.do("GET", where, ""); strings.Contains(a.body, "t0ps3cret") || strings.Contains(a.body, "@example.com") {
			t.Errorf("%s shows an address: %s", where, a.body)
		}
	}
}

func TestAMarkShowsWhatWasLastSent(t *testing.T) {
	w := newWorld(t)
	w.recipient("u1")
	a := w.is(w.do("POST", "/v1/notifications", `{"recipient":"u1","subject":"watch-981","data":{"price":1}}`), 202, "")
	w.ended(a.part("id"))
	list := shape[api.MarkList](t, w.is(w.do("GET", "/v1/recipients/u1/marks?category=default&subject=watch-981", ""), 200, ""))
	if len(list.Marks) != 1 || list.Marks[0].Notification.String() != a.part("id") || string(list.Marks[0].Data) != `{"price":1}` {
		t.Errorf("%+v", list)
	}
	if none := shape[api.MarkList](t, w.is(w.do("GET", "/v1/recipients/u1/marks?subject=other", ""), 200, "")); len(none.Marks) != 0 {
		t.Errorf("%+v", none)
	}
}

func TestCategoriesArePutAsTheyAreShown(t *testing.T) {
	w := newWorld(t)
	full := `{"channels":["push","email"],"route":"first","consent":"opt_in","lane":"bulk","delivery":"at_most_once",
		"check":{"url":"https://shop.example/checks","timeout":"5s","on_error":"drop"},"expires_in":"6h","cooldown":"1d",
		"retry":{"first":"30s","factor":2,"max":"30m","attempts":8},"sensitive":true,"shadow":true,"templates":{"title":"{{.item}}"}}`
	w.all([]ask{
		{method: "GET", path: "/v1/categories", status: 200, part: `{"categories":[{"name":"default","expires_in":"1d"}]}`},
		{method: "GET", path: "/v1/categories/price_drop", status: 404, part: `"code":"not_found"`},
		{method: "PUT", path: "/v1/categories/price_drop", body: full, status: 200, part: `"check":{"url":"https://shop.example/checks","timeout":"5s","on_error":"drop"}`},
		{method: "PUT", path: "/v1/categories/price_drop", body: `{"name":"other"}`, status: 422, part: `"field":"name"`},
		{method: "PUT", path: "/v1/categories/price_drop", body: `{"lane":"fast"}`, status: 422, part: `"field":"lane"`},
		{method: "PUT", path: "/v1/categories/price_drop", body: `{"lane":7}`, status: 400, part: `"field":"lane"`},
		{method: "PUT", path: "/v1/categories/price_drop", body: `{"channels":["pigeon"]}`, status: 422, part: `"code":"unknown_channel"`},
		{method: "PUT", path: "/v1/categories/price_drop", body: `{"check":{}}`, status: 400, part: `"field":"check.url"`},
		{method: "PUT", path: "/v1/categories/price_drop", body: `{"check":{"url":"ftp://x"}}`, status: 422, part: `"field":"check.url"`},
		{method: "PUT", path: "/v1/categories/price_drop", body: `{"retry":{"attempts":1000}}`, status: 422, part: `"field":"retry.attempts"`},
		{method: "PUT", path: "/v1/categories/price_drop", body: `{"retry":{"attempt":1}}`, status: 400, part: `"field":"retry.attempt"`},
		{method: "PUT", path: "/v1/categories/a%20b", body: `{}`, status: 422, part: `"field":"name"`},
	})
	shown := w.is(w.do("GET", "/v1/categories/price_drop", ""), 200, "")
	again := w.is(w.do("PUT", "/v1/categories/price_drop", shown.body), 200, "")
	one, two := shape[api.Category](t, shown), shape[api.Category](t, again)
	one.UpdatedAt, two.UpdatedAt = time.Time{}, time.Time{}
	if a, b := fmt.Sprintf("%+v %+v %+v", one, one.Check, one.Retry), fmt.Sprintf("%+v %+v %+v", two, two.Check, two.Retry); len(a) != len(b) {
		t.Errorf("%s\n%s", a, b)
	}
	w.all([]ask{
		{method: "PUT", path: "/v1/categories/news", body: `{}`, status: 200},
		{method: "GET", path: "/v1/categories/news", status: 200, part: `{"name":"news","updated_at":`},
		{method: "GET", path: "/v1/categories/news?resolved=true", status: 200, part: `"route":"all","consent":"opt_out","lane":"normal"`},
		{method: "DELETE", path: "/v1/categories/news", status: 204},
		{method: "DELETE", path: "/v1/categories/news", status: 404},
	})
}

func TestAPauseHoldsUntilItIsLifted(t *testing.T) {
	w := newWorld(t)
	w.recipient("u1")
	w.all([]ask{
		{method: "POST", path: "/v1/pauses", body: `{}`, status: 400, part: `"field":"reason"`},
		{method: "POST", path: "/v1/pauses", body: `{"reason":""}`, status: 422, part: `"field":"reason"`},
		{method: "POST", path: "/v1/pauses", body: `{"reason":"x","until":"2020-01-01T00:00:00Z"}`, status: 422, part: `"field":"until"`},
		{method: "POST", path: "/v1/pauses", body: `{"reason":"x","until":"2030-01-01T00:00:00Z","for":"1h"}`, status: 422, part: `"field":"for"`},
		{method: "POST", path: "/v1/pauses", body: `{"reason":"x","for":"0s"}`, status: 422, part: `"field":"for"`},
		{method: "POST", path: "/v1/pauses", body: `{"reason":"x","channel":"pigeon"}`, status: 422, part: `"field":"channel"`},
		{method: "POST", path: "/v1/pauses", body: `{"reason":"x","everywhere":true}`, status: 403},
		{method: "POST", path: "/v1/pauses", body: `{"reason":"x","everywhere":true,"for":"1h"}`, headers: []string{"Authorization: */admin"}, status: 201, part: `"everywhere":true`},
		{method: "GET", path: "/v1/pauses", status: 200, part: `"everywhere":true`},
	})
	list := shape[api.PauseList](t, w.do("GET", "/v1/pauses", ""))
	if len(list.Pauses) != 1 {
		t.Fatalf("%+v", list)
	}
	everywhere := "/v1/pauses/" + list.Pauses[0].ID.String()
	w.is(w.do("DELETE", everywhere, ""), 404, "not_found")
	w.is(w.do("DELETE", everywhere, "", "Authorization: */admin"), 204, "")

	p := shape[api.Pause](t, w.is(w.do("POST", "/v1/pauses", `{"reason":"wrong price"}`), 201, ""))
	a := w.is(w.do("POST", "/v1/notifications", hello), 202, "")
	f := shape[api.Forecast](t, w.is(w.do("POST", "/v1/notifications?dry_run=true", hello), 200, ""))
	if f.State != belfry.Scheduled || f.Reason != belfry.ReasonPaused || f.Explanation != "a pause holds it" {
		t.Errorf("%+v", f)
	}
	w.until(a.part("id"), func(a answer) bool { return strings.Contains(a.part("timeline"), "a pause holds it") })
	w.is(w.do("DELETE", "/v1/pauses/"+p.ID.String(), ""), 204, "")
	w.is(w.do("DELETE", "/v1/pauses/"+p.ID.String(), ""), 404, "not_found")
	if end := w.ended(a.part("id")); end.part("state") != "sent" {
		t.Error(end.body)
	}
}

func TestSuppressedAddressesAreListedWithoutShowingThem(t *testing.T) {
	w := newWorld(t)
	for _, channel := range []string{"push", "webpush"} { // one address in two ways, at the end of a page
		w.is(w.do("PUT", "/v1/suppressions", `{"channel":"`+channel+`","address":"t0ps3cret-2@mail.example"}`), 200, "")
	}
	for i := range 7 {
		w.is(w.do("PUT", "/v1/suppressions", fmt.Sprintf(`{"channel":"email","address":"t0ps3cret-%d@mail.example","reason":"complaint"}`, i)), 200, "")
	}
	seen := 0
	path := "/v1/suppressions?limit=3"
	for range 3 {
		a := w.is(w.do("GET", path, ""), 200, "")
		list := shape[api.SuppressionList](t, a)
		if strings.Contains(a.body, "t0ps3cret") {
			t.Error(a.body)
		}
		seen += len(list.Suppressions)
		path = "/v1/suppressions?limit=3&cursor=" + list.Next
		if list.Next != "" {
			w.is(w.do("GET", path, "", "Authorization: bank/admin"), 400, "malformed") // it is another project's
		}
	}
	if seen != 9 || !strings.HasSuffix(path, "cursor=") {
		t.Errorf("%d are listed, %s", seen, path)
	}
	w.all([]ask{
		{method: "PUT", path: "/v1/suppressions", body: `{"channel":"email","address":"a","reason":"mood"}`, status: 422, part: `"field":"reason"`},
		{method: "PUT", path: "/v1/suppressions", body: `{"channel":"email","address":""}`, status: 422, part: `"field":"address"`},
		{method: "PUT", path: "/v1/suppressions", body: `{"channel":"pigeon","address":"a"}`, status: 422, part: `"field":"channel"`},
		{method: "GET", path: "/v1/suppressions?cursor=AAAA", status: 400, part: `"field":"cursor"`},
		{method: "DELETE", path: "/v1/suppressions", body: `{"channel":"email","address":"t0ps3cret-1@mail.example"}`, status: 204},
		{method: "DELETE", path: "/v1/suppressions", body: `{"channel":"email","address":"t0ps3cret-1@mail.example"}`, status: 404},
	})
}

func TestKeysAreMadeListedAndRevokedAtOnce(t *testing.T) {
	w := newWorld(t)
	w.all([]ask{
		{method: "POST", path: "/v1/keys", body: `{}`, status: 400, part: `"field":"scopes"`},
		{method: "POST", path: "/v1/keys", body: `{"scopes":[]}`, status: 422, part: `"field":"scopes"`},
		{method: "POST", path: "/v1/keys", body: `{"scopes":["root"]}`, status: 422, part: `"field":"scopes"`},
		{method: "POST", path: "/v1/keys", body: `{"scopes":["admin"],"everywhere":true}`, status: 403},
	})
	k := shape[api.NewKey](t, w.is(w.do("POST", "/v1/keys", `{"name":"shop","scopes":["read","send"]}`), 201, ""))
	auth := "Authorization: Bearer " + k.Text
	w.is(w.do("GET", "/v1/stats", "", auth), 200, "")
	list := w.is(w.do("GET", "/v1/keys", ""), 200, "")
	if strings.Contains(list.body, k.Text) || !strings.Contains(list.body, k.ID) || strings.Contains(strings.ToLower(list.body), "hash") {
		t.Error(list.body)
	}
	w.is(w.do("DELETE", "/v1/keys/"+k.ID, "", "Authorization: bank/admin"), 404, "not_found")
	w.is(w.do("GET", "/v1/stats", "", auth), 200, "")
	w.is(w.do("DELETE", "/v1/keys/"+k.ID, ""), 204, "")
	w.is(w.do("GET", "/v1/stats", "", auth), 401, "unauthorized")
	w.is(w.do("DELETE", "/v1/keys/nonsense", ""), 404, "not_found")

	every := shape[api.NewKey](t, w.is(w.do("POST", "/v1/keys", `{"scopes":["admin"],"everywhere":true}`, "Authorization: */admin"), 201, ""))
	w.is(w.do("POST", "/v1/projects", `{"name":"new"}`, "Authorization: Bearer "+every.Text), 201, "")
	w.is(w.do("GET", "/v1/keys", "", "Authorization: */admin"), 200, "")
	w.is(w.do("DELETE", "/v1/keys/"+every.ID, ""), 404, "not_found")
	w.is(w.do("DELETE", "/v1/keys/"+every.ID, "", "Authorization: */admin"), 204, "")
	w.is(w.do("GET", "/v1/projects", "", "Authorization: Bearer "+every.Text), 401, "unauthorized")
}

func TestOperatorsPickTheProject(t *testing.T) {
	w := newWorld(t)
	const operator = "Authorization: */admin"
	w.all([]ask{
		{method: "GET", path: "/v1/projects", status: 403},
		{method: "POST", path: "/v1/projects", body: `{"name":"x"}`, status: 403},
		{method: "GET", path: "/v1/projects", headers: []string{operator}, status: 200, part: `{"projects":["bank","default"]}`},
		{method: "POST", path: "/v1/projects", body: `{"name":"a b"}`, headers: []string{operator}, status: 422, part: `"field":"name"`},
		{method: "POST", path: "/v1/projects", body: `{"name":"*"}`, headers: []string{operator}, status: 422, part: `"field":"name"`},
		{method: "PUT", path: "/v1/recipients/u1", body: `{}`, headers: []string{operator, "Belfry-Project: bank"}, status: 200},
		{method: "GET", path: "/v1/recipients/u1", headers: []string{operator}, status: 404},
		{method: "GET", path: "/v1/recipients/u1", headers: []string{"Authorization: bank/read"}, status: 200},
		{method: "GET", path: "/v1/stats", headers: []string{operator, "Belfry-Project: nowhere"}, status: 404},
		{method: "GET", path: "/v1/stats", headers: []string{operator, "Belfry-Project: a b"}, status: 422},
		{method: "GET", path: "/v1/stats", headers: []string{"Belfry-Project: bank"}, status: 403},
		{method: "GET", path: "/v1/stats", headers: []string{"Belfry-Project: default"}, status: 200},
	})
}

func TestProbesNeedNoKey(t *testing.T) {
	w := newWorld(t)
	none := []string{"Authorization:"}
	w.all([]ask{
		{method: "GET", path: "/healthz", headers: none, status: 200, part: `{"ok":true}`},
		{method: "GET", path: "/readyz", headers: none, status: 200, part: `{"ready":true,"reasons":[]}`},
		{method: "GET", path: "/version", headers: none, status: 200, part: `{"version":"1.2.3"}`},
		{method: "GET", path: "/metrics", headers: none, status: 200, part: `belfry_http_requests_total{route="GET /healthz",status="200"} 1`},
		{method: "HEAD", path: "/healthz", headers: none, status: 200},
		{method: "GET", path: "/openapi.json", headers: none, status: 200, part: `"openapi":"3.1.0"`},
		{method: "GET", path: "/docs", headers: none, status: 200, part: `id="idempotency"`},
		{method: "GET", path: "/", headers: none, status: 404, part: `"code":"not_found"`},
		{method: "GET", path: "/v1", headers: none, status: 404},
		{method: "POST", path: "/healthz", headers: none, status: 405, part: `"code":"method_not_allowed"`},
	})
	w.backend.ready = []string{"store: the disk is full"}
	w.all([]ask{
		{method: "GET", path: "/readyz", headers: none, status: 503, part: `{"ready":false,"reasons":["store: the disk is full"]}`},
		{method: "GET", path: "/healthz", headers: none, status: 200},
	})
	if a := w.do("DELETE", "/v1/notifications/batch", ""); a.status != 405 || a.header.Get("Allow") != "GET, POST" && a.header.Get("Allow") != "POST" {
		t.Error(a)
	}
}

func TestWhatIsSensitiveIsNotShown(t *testing.T) {
	w := newWorld(t)
	w.recipient("u1")
	w.is(w.do("PUT", "/v1/categories/reset", `{"sensitive":true}`), 200, "")
	a := w.is(w.do("POST", "/v1/notifications", `{"recipient":"u1","category":"reset","data":{"code":"t0ps3cret"},"at":"2031-01-01T00:00:00Z"}`), 202, "")
	if shown := w.do("GET", a.header.Get("Location"), ""); strings.Contains(shown.body, "t0ps3cret") || shown.part("sensitive") != "true" {
		t.Error(shown.body)
	}
}

func TestNothingOfASecretReachesTheLogOrAnErrorOrTheMetrics(t *testing.T) {
	w := newWorld(t)
	w.is(w.do("PUT", "/v1/recipients/u1", `{}`), 200, "")
	var said []string
	say := func(a answer) { said = append(said, a.body) }
	say(w.do("PUT", "/v1/recipients/u1/endpoints", `{"channel":"email","address":"t0ps3cret-bad@example.com"}`))
	say(w.do("PUT", "/v1/recipients/u1/endpoints", `{"channel":"email","address":["t0ps3cret"]}`))
	say(w.do("PUT", "/v1/recipients/u1/endpoints", `{"channel":"email","address":"a","keys":{"auth":"t0ps3cret"}}`))
	say(w.do("PUT", "/v1/suppressions", `{"channel":"email","address":"t0ps3cret@example.com"}`))
	say(w.do("POST", "/v1/notifications", `{"recipient":"u1","to":[{"channel":"email","address":"t0ps3cret-bad@example.com"}]}`))
	say(w.do("POST", "/v1/notifications", `{"recipient":"u1","at":"t0ps3cret","data":{"x":"t0ps3cret"}}`))
	say(w.do("POST", "/v1/notifications", `{"recipient":"u1","expires_in":"t0ps3cret"}`))
	say(w.do("GET", "/v1/stats", "", "Authorization: Bearer bf_t0ps3cret_t0ps3cret"))
	say(w.do("GET", "/v1/notifications?since=t0ps3cret", ""))
	say(w.do("GET", "/v1/notifications/t0ps3cret", ""))
	w.backend.fail(errDisk)
	say(w.do("POST", "/v1/notifications", hello))
	if !strings.Contains(said[len(said)-1], `"code":"internal"`) {
		t.Error(said[len(said)-1])
	}
	say(w.do("GET", "/metrics", ""))
	for _, text := range said {
		if strings.Contains(text, "t0ps3cret") || strings.Contains(text, "disk") {
			t.Error(text)
		}
	}
	log := strings.ReplaceAll(w.log.String(), errDisk.Error(), "") // what a driver says goes to the log as it is
	for name, k := range w.keys {
		if strings.Contains(log, k) {
			t.Errorf("the log has the key %s", name)
		}
	}
	if strings.Contains(log, "t0ps3cret") {
		t.Error(log)
	}
}

func TestAHandlerThatPanicsAnswersAndTellsTheLogOnly(t *testing.T) {
	w := newWorld(t, func(o *api.Options) { o.Backend = broken{o.Backend} })
	a := w.is(w.do("GET", "/v1/stats", ""), 500, "internal")
	if strings.Contains(a.body, "t0ps3cret") {
		t.Error(a.body)
	}
	w.is(w.do("GET", "/v1/projects", "", "Authorization: */admin"), 500, "internal")
	if log := w.log.String(); strings.Contains(log, "t0ps3cret") || !strings.Contains(log, a.part("instance")) || !strings.Contains(log, "index out of range") {
		t.Error(log)
	}
}

// document is the part of the OpenAPI document that the tests read.
type document struct {
	Paths map[string]map[string]struct {
		Security   []map[string][]string
		Parameters []struct{ Name, In string }
		Responses  map[string]any
	}
	Components struct {
		Schemas map[string]struct {
			Properties map[string]struct{ Description string }
		}
	}
}

func (w *world) document() (d document) {
	w.Helper()
	if err := json.Unmarshal([]byte(w.do("GET", "/openapi.json", "").body), &d); err != nil {
		w.Fatal(err)
	}
	if len(d.Paths) < 20 {
		w.Fatalf("%d paths", len(d.Paths))
	}
	return d
}

func TestEverythingIsDescribed(t *testing.T) {
	w := newWorld(t)
	d := w.document()
	for name, schema := range d.Components.Schemas {
		for property, p := range schema.Properties {
			if p.Description == "" {
				t.Errorf("%s.%s is not described", name, property)
			}
		}
	}
	page := w.do("GET", "/docs", "").body
	for path, methods := range d.Paths {
		for method := range methods {
			if !strings.Contains(page, strings.ToUpper(method)+" "+path+"</b>") {
				t.Errorf("the page does not show %s %s", method, path)
			}
		}
		// Other methods are refused, and those there are named.
		for _, method := range []string{"get", "post", "put", "patch", "delete"} {
			if _, ok := methods[method]; ok || strings.HasSuffix(path, "/batch") || strings.HasSuffix(path, "/cancel") {
				continue
			}
			a := w.do(strings.ToUpper(method), strings.NewReplacer("{", "", "}", "").Replace(path), "")
			if allowed := strings.ToUpper(strings.Join(sorted(methods), " ")); a.status != 405 || !sameWords(a.header.Get("Allow"), allowed) {
				t.Errorf("%s %s: %d, Allow: %s, want %s", method, path, a.status, a.header.Get("Allow"), allowed)
			}
		}
	}
	if strings.Contains(page, "http://") || strings.Contains(page, "https://") && !strings.Contains(page, "https://…") || strings.Contains(page, "<script") {
		t.Error("the page needs something from elsewhere")
	}
	csp := w.do("GET", "/docs", "").header.Get("Content-Security-Policy")
	_, style, _ := strings.Cut(page, "<style>")
	style, _, _ = strings.Cut(style, "</style>")
	sum := sha256.Sum256([]byte(style))
	if !strings.Contains(csp, "default-src 'none'") || strings.Contains(csp, "unsafe") || !strings.Contains(csp, base64.StdEncoding.EncodeToString(sum[:])) {
		t.Error(csp)
	}
}

func sameWords(a, b string) bool {
	x, y := strings.Fields(strings.ReplaceAll(a, ",", " ")), strings.Fields(b)
	slices.Sort(x)
	slices.Sort(y)
	return slices.Equal(x, y)
}
