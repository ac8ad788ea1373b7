package api_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"belfry"
	"belfry/api"
	"belfry/store"
)

func told(s store.Story) string {
	var b strings.Builder
	for _, l := range api.Timeline(s) {
		b.WriteString(l.At.Format("15:04:05") + " | " + l.Local + " | " + l.What)
		if l.Detail != "" {
			b.WriteString(" | " + l.Detail)
		}
		b.WriteString("\n")
	}
	return b.String()
}

func TestTheTimelineExplainsEveryStep(t *testing.T) {
	at := func(clock string) time.Time {
		v, err := time.Parse("2006-01-02 15:04:05", "2026-12-01 "+clock)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	tokyo := &belfry.Recipient{ID: "u1", Zone: "Asia/Tokyo"}
	n := belfry.Notification{
		ID: 7, Recipient: "u1", Category: "price_drop", CreatedAt: at("00:00:00"), Due: at("00:10:00"), Deadline: at("06:00:00"),
		Options: belfry.Options{To: []belfry.Target{{Channel: "email", Address: "someone@mail.example.com"}}},
	}
	one, two := belfry.DeliveryID{Notification: 7, N: 1}, belfry.DeliveryID{Notification: 7, N: 2}
	answer := func(o belfry.Outcome, a belfry.Answer) belfry.Answer { a.Outcome = o; return a }

	long := store.Story{
		Summary: store.Summary{Notification: n, State: belfry.Sent, EndedAt: at("00:20:00")}, Recipient: tokyo, Duplicates: 3,
		Deliveries: []store.DeliveryStory{
			{EndedAt: at("00:20:00"), Delivery: belfry.Delivery{ID: one, Channel: "email", Target: 1, State: belfry.Sent, Attempts: []belfry.Attempt{
				{ArmedAt: at("00:10:01"), Answered: at("00:10:02"), Answer: answer(belfry.OutcomeThrottled, belfry.Answer{Status: 429, After: 30 * time.Second})},
				{ArmedAt: at("00:11:00"), Lost: true},
				{ArmedAt: at("00:12:00"), Answered: at("00:12:09"), Answer: answer(belfry.OutcomeAmbiguous, belfry.Answer{Detail: "timed_out"})},
				{ArmedAt: at("00:19:59"), Answered: at("00:20:00"), Answer: answer(belfry.OutcomeAccepted, belfry.Answer{Status: 250, Ref: "q1"})},
			}}},
			{EndedAt: at("00:15:00"), Delivery: belfry.Delivery{ID: two, Channel: "webpush", Device: "phone", State: belfry.Dropped, Reason: belfry.ReasonOptedOut}},
		},
		Events: []store.Event{
			{At: at("00:10:00"), Kind: store.EventHeld, Reason: belfry.ReasonPaused, Until: at("00:10:01")},
			{At: at("00:10:01"), Kind: store.EventDeferred, Detail: "not yet", Until: at("00:10:01")},
			{At: at("00:11:30"), N: 1, Kind: store.EventLost},
			{At: at("00:14:00"), Kind: store.EventCancelWant},
			{At: at("00:15:00"), N: 2, Kind: store.EventWithdrawn, Reason: belfry.ReasonOptedOut},
			{At: at("00:16:00"), N: 9, Kind: store.EventLateWord},
			{At: at("00:17:00"), Kind: store.EventNextStage},
			{At: at("00:18:00"), Kind: "something_new"},
		},
	}
	if diff := cmp.Diff(`00:00:00 | Tue 2026-12-01 09:00:00 JST | enqueued for u1 in category price_drop | to be sent by Tue 2026-12-01 15:00:00 JST; the same fact was enqueued 3 times more and made nothing new
00:10:00 | Tue 2026-12-01 09:10:00 JST | due
00:10:00 | Tue 2026-12-01 09:10:00 JST | held | paused: a pause holds it; until Tue 2026-12-01 09:10:01 JST
00:10:01 | Tue 2026-12-01 09:10:01 JST | put off by its recheck | not yet; until Tue 2026-12-01 09:10:01 JST
00:10:01 | Tue 2026-12-01 09:10:01 JST | delivery 1 by email to ….com: attempt 1 made | from here on it may reach the wire
00:10:02 | Tue 2026-12-01 09:10:02 JST | delivery 1 by email to ….com: attempt 1: the provider said not now | status 429; asked to wait 30s
00:11:00 | Tue 2026-12-01 09:11:00 JST | delivery 1 by email to ….com: attempt 2 made | from here on it may reach the wire; its worker was lost before it could note an answer
00:11:30 | Tue 2026-12-01 09:11:30 JST | delivery 1 by email to ….com: its worker was lost
00:12:00 | Tue 2026-12-01 09:12:00 JST | delivery 1 by email to ….com: attempt 3 made | from here on it may reach the wire
00:12:09 | Tue 2026-12-01 09:12:09 JST | delivery 1 by email to ….com: attempt 3: no clear answer: it may have been accepted | timed_out
00:14:00 | Tue 2026-12-01 09:14:00 JST | a cancel was asked for while an attempt may be on the wire
00:15:00 | Tue 2026-12-01 09:15:00 JST | delivery 2 by webpush to phone: withdrawn | opted_out: the recipient has switched this off
00:15:00 | Tue 2026-12-01 09:15:00 JST | delivery 2 by webpush to phone: dropped | opted_out: the recipient has switched this off
00:16:00 | Tue 2026-12-01 09:16:00 JST | delivery 9: an answer came late
00:17:00 | Tue 2026-12-01 09:17:00 JST | went on to the next channel
00:18:00 | Tue 2026-12-01 09:18:00 JST | something_new
00:19:59 | Tue 2026-12-01 09:19:59 JST | delivery 1 by email to ….com: attempt 4 made | from here on it may reach the wire
00:20:00 | Tue 2026-12-01 09:20:00 JST | delivery 1 by email to ….com: attempt 4: accepted by the provider | status 250; its id there is q1
00:20:00 | Tue 2026-12-01 09:20:00 JST | delivery 1 by email to ….com: sent
00:20:00 | Tue 2026-12-01 09:20:00 JST | ended: sent
`, told(long)); diff != "" {
		t.Error(diff)
	}

	n.To = nil
	for want, s := range map[string]store.Story{
		// A zone that is not known.
		`00:00:00 | Tue 2026-12-01 00:00:00 UTC | enqueued for u1 in category price_drop | to be sent by Tue 2026-12-01 06:00:00 UTC; the recipient's zone is not known, so local times are UTC
00:10:00 | Tue 2026-12-01 00:10:00 UTC | due
`: {Summary: store.Summary{Notification: n, State: belfry.Scheduled, Waits: at("00:10:00")}, Recipient: &belfry.Recipient{ID: "u1"}},
		// A recipient who is gone, and a reason of the recheck's own.
		`00:00:00 | Tue 2026-12-01 00:00:00 UTC | enqueued for u1 in category price_drop | to be sent by Tue 2026-12-01 06:00:00 UTC; the recipient is not there any more
00:10:00 | Tue 2026-12-01 00:10:00 UTC | due
00:10:03 | Tue 2026-12-01 00:10:03 UTC | ended: dropped | out_of_stock: the recheck said so
`: {Summary: store.Summary{Notification: n, State: belfry.Dropped, Reason: "out_of_stock", EndedAt: at("00:10:03")}},
		// Waiting still, as a whole and for another try.
		`00:00:00 | Tue 2026-12-01 09:00:00 JST | enqueued for u1 in category price_drop | to be sent by Tue 2026-12-01 15:00:00 JST
00:10:00 | Tue 2026-12-01 09:10:00 JST | due
00:30:00 | Tue 2026-12-01 09:30:00 JST | delivery 1 by email: to be tried again
01:00:00 | Tue 2026-12-01 10:00:00 JST | waits until then | paused: a pause holds it
`: {Summary: store.Summary{Notification: n, State: belfry.Sending, Reason: belfry.ReasonPaused, Waits: at("01:00:00")}, Recipient: tokyo,
			Deliveries: []store.DeliveryStory{{Delivery: belfry.Delivery{ID: one, Channel: "email", State: belfry.Retry, Next: at("00:30:00")}}}},
	} {
		if diff := cmp.Diff(want, told(s)); diff != "" {
			t.Error(diff)
		}
	}
}

func TestTheTimelineKnowsEveryOutcomeAndEvent(t *testing.T) {
	seen := map[string]bool{}
	for _, o := range []belfry.Outcome{belfry.OutcomeAccepted, belfry.OutcomeRefused, belfry.OutcomeGone, belfry.OutcomeThrottled,
		belfry.OutcomeMisconfigured, belfry.OutcomeNotSent, belfry.OutcomeAmbiguous, belfry.OutcomeOpen} {
		now := time.Unix(0, 0)
		text := told(store.Story{Deliveries: []store.DeliveryStory{{Delivery: belfry.Delivery{Attempts: []belfry.Attempt{
			{ArmedAt: now, Answered: now, Answer: belfry.Answer{Outcome: o}},
		}}}}})
		if seen[text] {
			t.Errorf("%q reads like another outcome", o)
		}
		seen[text] = true
	}
	for _, k := range []store.EventKind{store.EventHeld, store.EventDeferred, store.EventLost, store.EventCancelWant, store.EventWithdrawn,
		store.EventLateWord, store.EventNextStage, store.EventEnded} {
		if text := told(store.Story{Events: []store.Event{{Kind: k}}}); strings.Contains(text, "| "+string(k)+"\n") && k != store.EventHeld && k != store.EventWithdrawn {
			t.Errorf("%s is not put in words: %s", k, text)
		}
	}
}

func TestEveryCodeHasAStatusAndAWord(t *testing.T) {
	w := newWorld(t)
	for code, status := range map[belfry.Code]int{
		belfry.CodeInvalid: 422, belfry.CodeUnknownRecipient: 422, belfry.CodeUnknownCategory: 422, belfry.CodeUnknownChannel: 422,
		belfry.CodeUnknownZone: 422, belfry.CodeNotFound: 404, belfry.CodeInFlight: 409, belfry.CodeEnded: 409, belfry.CodeKeyInvalid: 400,
		belfry.CodeKeyReused: 422, belfry.CodeKeyDuplicate: 422, belfry.CodeBusy: 503, belfry.CodeStoreFull: 503, belfry.CodeOutcomeUnknown: 503,
		belfry.CodeConflict: 409, "a_code_of_tomorrow": 500,
	} {
		w.backend.fail(errors.Join(errors.New("context"), &belfry.Error{Code: code, Field: "field", Detail: "what to do"}))
		a := w.do("POST", "/v1/notifications", hello)
		shown := string(code)
		if status == 500 {
			shown = "internal"
		}
		if w.is(a, status, shown); (a.header.Get("Retry-After") != "") != (status == 503) {
			t.Errorf("%s: Retry-After: %q", code, a.header.Get("Retry-After"))
		}
		if status != 500 && (a.part("field") != "field" || a.part("detail") != "what to do") {
			t.Error(a.body)
		}
		if page := w.do("GET", "/docs", "").body; !strings.Contains(page, `id="`+shown+`"`) {
			t.Errorf("the docs do not explain %s", shown)
		}
	}
}
