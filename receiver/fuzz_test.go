package receiver_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"belfry/receiver"
	"belfry/receiver/memory"
	"belfry/signature"
)

// FuzzHandler: whatever comes, only the genuine request has the effect, once, and every answer is one of those that
// are documented.
func FuzzHandler(f *testing.F) {
	const (
		id        = "msg_p5jXN8AQM9LWM0D4loKWxJek"
		timestamp = "1614265330"
		body      = `{"test": 2432232314}`
		genuine   = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
		stranger  = "v1,/485aUtxlie+TIScVpHggMfqOB4so2KWb7+Gf727B44="
	)
	secret, err := signature.ParseSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(id, timestamp, genuine, body, "", "")
	f.Add(id, timestamp, stranger+" "+genuine, body, "7", "1614265330")
	f.Add(id, timestamp, "v1,", body, "-1", "x")
	f.Add(id, timestamp, genuine[:20], body, "9223372036854775808", "-5")
	f.Add(id, timestamp, strings.Repeat(stranger+" ", 199)+genuine, body, "", "")
	f.Add("a.b", "1e9", "v1a,AAAA", `{"not_after":"2026-12-01T09:00:00Z","epoch":1}`, "1", "1")
	f.Add("", "", "", "", "", "")
	f.Add("é\x00\n", "99999999999999999999", " ", "\xff", "\x00", "\n")
	now := func() time.Time { return time.Unix(1614265330, 0) }
	f.Fuzz(func(t *testing.T, gotID, gotTimestamp, list, gotBody, epoch, notAfter string) {
		r, err := receiver.New(memory.New(), receiver.Options{Now: now})
		if err != nil {
			t.Fatal(err)
		}
		effects := 0
		h, err := r.Handler(receiver.HTTP{Secrets: []signature.Secret{secret}, MaxBody: 1 << 16}, func(context.Context, *memory.Tx, receiver.Message) error { effects++; return nil })
		if err != nil {
			t.Fatal(err)
		}
		isGenuine := gotID == id && gotTimestamp == timestamp && gotBody == body
		list2 := strings.Split(list, " ")
		isGenuine = isGenuine && slices.Contains(list2, genuine) && len(list2) <= 16
		for range 2 {
			req := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(gotBody))
			for name, value := range map[string]string{"webhook-id": gotID, "webhook-timestamp": gotTimestamp, "webhook-signature": list, "webhook-epoch": epoch, "webhook-not-after": notAfter} {
				req.Header.Set(name, value)
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, req)
			switch w.Code {
			case 204:
				if !isGenuine {
					t.Errorf("accepted %q %q %q %q", gotID, gotTimestamp, list, gotBody)
				}
			case 400, 401, 413:
				if isGenuine && epoch == "" && notAfter == "" {
					t.Errorf("the genuine request was answered %d: %s", w.Code, w.Body)
				}
			default:
				t.Errorf("status %d", w.Code)
			}
		}
		if effects > 1 || effects == 1 && !isGenuine {
			t.Errorf("%d effects", effects)
		}
	})
}
