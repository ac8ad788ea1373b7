package belfry_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"belfry"
)

var noon = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

const (
	mine   belfry.ID = 7
	theirs belfry.ID = 8
	before belfry.ID = 5
)

var eight = belfry.RetryPolicy{First: belfry.Duration(30 * time.Second), Factor: 2, Max: belfry.Duration(30 * time.Minute), Attempts: 8}

// waiting is a delivery that is due at noon and expires at one.
func waiting() belfry.Delivery {
	return belfry.Delivery{
		ID: belfry.DeliveryID{Notification: 1, N: 1}, State: belfry.Pending, Mode: belfry.AtLeastOnce,
		Channel: "email", Endpoint: 3, Next: noon, Deadline: noon.Add(time.Hour),
	}
}

func must(d belfry.Delivery, ok bool) belfry.Delivery {
	if !ok {
		panic(fmt.Sprintf("refused: %+v", d))
	}
	return d
}

func held(claim belfry.ID) belfry.Delivery { return must(waiting().Take(claim, noon)) }

func arming() belfry.Arming {
	return belfry.Arming{Now: noon, Attempts: 8, Payload: []byte("hello")}
}

func armed(claim belfry.ID) belfry.Delivery { return must(held(claim).Arm(claim, arming())) }

func answer(o belfry.Outcome) belfry.Answer { return belfry.Answer{Outcome: o} }

func settling() belfry.Settling { return belfry.Settling{Now: noon, Policy: eight} }

func settled(d belfry.Delivery, claim belfry.ID, o belfry.Outcome) belfry.Delivery {
	return must(d.Settle(claim, answer(o), settling()))
}

// doubtful is open after a try that may have been accepted.
func doubtful() belfry.Delivery { return settled(armed(before), before, belfry.OutcomeAmbiguous) }

// positions are the places that a delivery can stand in, with claim mine wherever one holds it.
func positions() map[string]belfry.Delivery {
	retry := settled(armed(before), before, belfry.OutcomeNotSent)
	lost := doubtful()
	lost.Mode = belfry.AtMostOnce
	again := must(doubtful().Take(mine, doubtful().Next))
	return map[string]belfry.Delivery{
		"pending":   waiting(),
		"sending":   held(mine),
		"armed":     armed(mine),
		"retry":     retry,
		"doubt":     doubtful(),
		"doubt+":    again,
		"sent":      settled(armed(mine), mine, belfry.OutcomeAccepted),
		"dropped":   must(held(mine).Drop(mine, belfry.ReasonOptedOut)),
		"failed":    settled(armed(mine), mine, belfry.OutcomeRefused),
		"missed":    must(waiting().Expire(noon.Add(2*time.Hour), belfry.ReasonDeadline)),
		"cancelled": must(waiting().CancelNow()),
		"unknown":   must(doubtful().CancelNow()),
	}
}

func TestEveryMoveFromEveryStateIsInTheTable(t *testing.T) {
	late := noon.Add(2 * time.Hour)
	soon := noon.Add(time.Minute)
	order := []string{"pending", "sending", "armed", "retry", "doubt", "doubt+", "sent", "dropped", "failed", "missed", "cancelled", "unknown"}
	type move struct {
		name string
		do   func(d belfry.Delivery) (belfry.Delivery, bool)
	}
	settle := func(claim belfry.ID, o belfry.Outcome) func(d belfry.Delivery) (belfry.Delivery, bool) {
		return func(d belfry.Delivery) (belfry.Delivery, bool) { return d.Settle(claim, answer(o), settling()) }
	}
	arm := func(change func(a *belfry.Arming)) func(d belfry.Delivery) (belfry.Delivery, bool) {
		return func(d belfry.Delivery) (belfry.Delivery, bool) {
			a := arming()
			a.Now = soon
			change(&a)
			return d.Arm(mine, a)
		}
	}
	moves := []move{
		{"take", func(d belfry.Delivery) (belfry.Delivery, bool) { return d.Take(mine, soon) }},
		{"take early", func(d belfry.Delivery) (belfry.Delivery, bool) { return d.Take(mine, noon.Add(-1)) }},
		{"release", func(d belfry.Delivery) (belfry.Delivery, bool) { return d.Release(mine, soon, "") }},
		{"release late", func(d belfry.Delivery) (belfry.Delivery, bool) { return d.Release(mine, late, "") }},
		{"release theirs", func(d belfry.Delivery) (belfry.Delivery, bool) { return d.Release(theirs, soon, "") }},
		{"defer", func(d belfry.Delivery) (belfry.Delivery, bool) { return d.Defer(mine, soon) }},
		{"drop", func(d belfry.Delivery) (belfry.Delivery, bool) { return d.Drop(mine, belfry.ReasonConditionLost) }},
		{"drop theirs", func(d belfry.Delivery) (belfry.Delivery, bool) {
			return d.Drop(theirs, belfry.ReasonConditionLost)
		}},
		{"fail", func(d belfry.Delivery) (belfry.Delivery, bool) { return d.Fail(mine, belfry.ReasonBadContent) }},
		{"arm", arm(func(*belfry.Arming) {})},
		{"arm theirs", func(d belfry.Delivery) (belfry.Delivery, bool) { return d.Arm(theirs, arming()) }},
		{"arm cancelled", arm(func(a *belfry.Arming) { a.Cancel = true })},
		{"arm late", arm(func(a *belfry.Arming) { a.Now = late })},
		{"arm forbidden", arm(func(a *belfry.Arming) { a.Forbidden = belfry.ReasonOptedOut })},
		{"arm paused", arm(func(a *belfry.Arming) { a.Pause = &belfry.Pause{} })},
		{"arm too early", arm(func(a *belfry.Arming) { a.Now = noon.Add(-time.Second) })},
		{"arm stale", arm(func(a *belfry.Arming) { a.Checked = soon.Add(-belfry.VerdictLife - 1) })},
		{"arm exhausted", arm(func(a *belfry.Arming) { a.Attempts = 0 })},
		{"accepted", settle(mine, belfry.OutcomeAccepted)},
		{"refused", settle(mine, belfry.OutcomeRefused)},
		{"gone", settle(mine, belfry.OutcomeGone)},
		{"throttled", settle(mine, belfry.OutcomeThrottled)},
		{"not sent", settle(mine, belfry.OutcomeNotSent)},
		{"ambiguous", settle(mine, belfry.OutcomeAmbiguous)},
		{"late accepted", settle(before, belfry.OutcomeAccepted)},
		{"late not sent", settle(before, belfry.OutcomeNotSent)},
		{"receipt", func(d belfry.Delivery) (belfry.Delivery, bool) { return d.Confirm(mine, soon) }},
		{"receipt of one", func(d belfry.Delivery) (belfry.Delivery, bool) { return d.Confirm(0, soon) }},
		{"take over", func(d belfry.Delivery) (belfry.Delivery, bool) { return d.TakeOver(mine, false, 8, soon) }},
		{"take over theirs", func(d belfry.Delivery) (belfry.Delivery, bool) { return d.TakeOver(theirs, false, 8, soon) }},
		{"cancel", belfry.Delivery.CancelNow},
		{"expire", func(d belfry.Delivery) (belfry.Delivery, bool) { return d.Expire(late, belfry.ReasonDeadline) }},
		{"expire early", func(d belfry.Delivery) (belfry.Delivery, bool) { return d.Expire(d.Deadline, belfry.ReasonDeadline) }},
		{"withdraw", func(d belfry.Delivery) (belfry.Delivery, bool) { return d.Withdraw(belfry.ReasonSuppressed) }},
	}
	// A dot is a refusal. doubt is a retry after an ambiguous try, doubt+ the same, held by mine.
	const want = `
                 pending   sending   armed     retry     doubt     doubt+    sent      dropped   failed    missed    cancelled unknown
take             sending   .         .         sending   sending   .         .         .         .         .         .         .
take early       .         .         .         .         .         .         .         .         .         .         .         .
release          .         pending   .         .         .         retry     .         .         .         .         .         .
release late     .         missed    .         .         .         unknown   .         .         .         .         .         .
release theirs   .         .         .         .         .         .         .         .         .         .         .         .
defer            .         pending   .         .         .         retry     .         .         .         .         .         .
drop             .         dropped   .         .         .         unknown   .         .         .         .         .         .
drop theirs      .         .         .         .         .         .         .         .         .         .         .         .
fail             .         failed    .         .         .         unknown   .         .         .         .         .         .
arm              .         armed     .         .         .         armed     .         .         .         .         .         .
arm theirs       .         .         .         .         .         .         .         .         .         .         .         .
arm cancelled    .         cancelled .         .         .         unknown   .         .         .         .         .         .
arm late         .         missed    .         .         .         unknown   .         .         .         .         .         .
arm forbidden    .         dropped   .         .         .         unknown   .         .         .         .         .         .
arm paused       .         pending   .         .         .         retry     .         .         .         .         .         .
arm too early    .         pending   .         .         .         retry     .         .         .         .         .         .
arm stale        .         pending   .         .         .         retry     .         .         .         .         .         .
arm exhausted    .         failed    .         .         .         unknown   .         .         .         .         .         .
accepted         .         .         sent      .         .         .         .         .         .         .         .         .
refused          .         .         failed    .         .         .         .         .         .         .         .         .
gone             .         .         failed    .         .         .         .         .         .         .         .         .
throttled        .         .         retry     .         .         .         .         .         .         .         .         .
not sent         .         .         retry     .         .         .         .         .         .         .         .         .
ambiguous        .         .         retry     .         .         .         .         .         .         .         .         .
late accepted    .         .         .         .         sent      sent      .         .         .         .         .         sent
late not sent    .         .         .         .         .         .         .         .         .         .         .         .
receipt          .         .         sent      .         .         .         .         .         .         .         .         .
receipt of one   .         .         sent      .         sent      sent      .         .         .         .         .         sent
take over        .         pending   retry     .         .         retry     .         .         .         .         .         .
take over theirs .         .         .         .         .         .         .         .         .         .         .         .
cancel           cancelled cancelled .         cancelled unknown   unknown   .         .         .         .         .         .
expire           missed    missed    .         missed    unknown   unknown   .         .         .         .         .         .
expire early     .         .         .         .         .         .         .         .         .         .         .         .
withdraw         dropped   dropped   .         dropped   unknown   unknown   .         .         .         .         .         .
`
	stands := positions()
	var got strings.Builder
	line := func(cells ...string) {
		var b strings.Builder
		for i, c := range cells {
			fmt.Fprintf(&b, "%-*s", []int{17, 10}[min(i, 1)], c)
		}
		fmt.Fprintln(&got, strings.TrimRight(b.String(), " "))
	}
	fmt.Fprintln(&got)
	line(append([]string{""}, order...)...)
	for _, m := range moves {
		cells := []string{m.name}
		for _, from := range order {
			d := stands[from]
			after, ok := m.do(d)
			cell := string(after.State)
			switch {
			case !ok:
				cell = "."
				if m.name == "cancel" {
					d.Cancel = after.Cancel
				}
				if diff := cmp.Diff(d, after); diff != "" {
					t.Errorf("%s from %s was refused and changed the delivery:\n%s", m.name, from, diff)
				}
			case after.Armed:
				cell = "armed"
			}
			if ok && (after.Claim != 0) != (after.State == belfry.Sending) {
				t.Errorf("%s from %s: %s with claim %d", m.name, from, after.State, after.Claim)
			}
			if ok && after.State.Ended() != (after.Reason != "") && after.State != belfry.Sent && !strings.HasPrefix(m.name, "arm paused") && m.name != "defer" {
				t.Errorf("%s from %s: %s for %q", m.name, from, after.State, after.Reason)
			}
			cells = append(cells, cell)
		}
		line(cells...)
	}
	if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(got.String(), "\n")); diff != "" {
		t.Errorf("the moves (-want +got):\n%s", diff)
	}
}

func TestAnEndKeepsTheReasonThatItWouldHaveHad(t *testing.T) {
	late := noon.Add(2 * time.Hour)
	again := must(doubtful().Take(mine, late))
	for _, c := range []struct {
		what string
		d    belfry.Delivery
		want belfry.Reason
	}{
		{"dropped in doubt", must(again.Drop(mine, belfry.ReasonConditionLost)), belfry.ReasonConditionLost},
		{"missed in doubt", must(doubtful().Expire(late, belfry.ReasonDeadline)), belfry.ReasonDeadline},
		{"cancelled in doubt", must(doubtful().CancelNow()), belfry.ReasonByCaller},
		{"withdrawn in doubt", must(doubtful().Withdraw(belfry.ReasonSuppressed)), belfry.ReasonSuppressed},
		{"exhausted in doubt", must(armed(mine).Settle(mine, answer(belfry.OutcomeAmbiguous), belfry.Settling{Now: noon, Policy: belfry.RetryPolicy{Attempts: 1}})), belfry.ReasonAttemptsExhausted},
	} {
		if c.d.State != belfry.Unknown || c.d.Reason != c.want {
			t.Errorf("%s: %s for %s, want unknown for %s", c.what, c.d.State, c.d.Reason, c.want)
		}
	}
}

func TestAtMostOnceStopsWhereAtLeastOnceTriesAgain(t *testing.T) {
	d := armed(mine)
	d.Mode = belfry.AtMostOnce
	if got := settled(d, mine, belfry.OutcomeAmbiguous); got.State != belfry.Unknown || got.Reason != belfry.ReasonNoAnswer {
		t.Errorf("ambiguous: %s for %s", got.State, got.Reason)
	}
	got := must(d.TakeOver(mine, false, 8, noon))
	if got.State != belfry.Unknown || got.Reason != belfry.ReasonWorkerLost || !got.Attempts[0].Lost {
		t.Errorf("lost: %+v", got)
	}
	if got := settled(d, mine, belfry.OutcomeNotSent); got.State != belfry.Retry {
		t.Errorf("not sent: %s", got.State)
	}
	if got := settled(got, mine, belfry.OutcomeAccepted); got.State != belfry.Sent || got.Reason != "" {
		t.Errorf("lost, then accepted: %s for %s", got.State, got.Reason)
	}
	if got := settled(got, mine, belfry.OutcomeRefused); got.State != belfry.Failed || got.Reason != belfry.ReasonRefused {
		t.Errorf("lost, then refused: %s for %s", got.State, got.Reason)
	}
	if got := settled(got, mine, belfry.OutcomeAmbiguous); got.State != belfry.Unknown || got.Reason != belfry.ReasonWorkerLost {
		t.Errorf("lost, then ambiguous: %s for %s", got.State, got.Reason)
	}
}

func TestAnAnswerThatSaysNothingIsAmbiguous(t *testing.T) {
	d := armed(mine)
	d.Mode = belfry.AtMostOnce
	for _, o := range []belfry.Outcome{belfry.OutcomeOpen, "whatever"} {
		if got := settled(d, mine, o); got.State != belfry.Unknown || got.Attempts[0].Outcome != belfry.OutcomeAmbiguous {
			t.Errorf("%q: %s, recorded %q", o, got.State, got.Attempts[0].Outcome)
		}
	}
}

func TestEvidenceReachesATryThatIsOnTheWire(t *testing.T) {
	d := must(must(doubtful().Take(mine, noon.Add(time.Minute))).Arm(mine, belfry.Arming{Now: noon.Add(time.Minute), Attempts: 8}))
	told := settled(d, before, belfry.OutcomeAccepted)
	if told.State != belfry.Sending || !told.Armed || told.Claim != mine {
		t.Fatalf("a late word took the delivery from the one who has it on the wire: %+v", told)
	}
	for _, o := range []belfry.Outcome{belfry.OutcomeAccepted, belfry.OutcomeRefused, belfry.OutcomeGone, belfry.OutcomeThrottled, belfry.OutcomeNotSent, belfry.OutcomeAmbiguous} {
		if got := settled(told, mine, o); got.State != belfry.Sent {
			t.Errorf("then %s: %s", o, got.State)
		}
	}
	if got := must(told.TakeOver(mine, false, 8, noon)); got.State != belfry.Sent {
		t.Errorf("then lost: %s", got.State)
	}
}

func TestAReceiptBeforeTheAnswerMakesTheAnswerALateWord(t *testing.T) {
	d := must(armed(mine).Confirm(mine, noon))
	for _, o := range []belfry.Outcome{belfry.OutcomeAccepted, belfry.OutcomeRefused, belfry.OutcomeAmbiguous} {
		if after, ok := d.Settle(mine, answer(o), settling()); ok || after.State != belfry.Sent {
			t.Errorf("%s: %s, allowed %v", o, after.State, ok)
		}
	}
}

func TestAReceiptThatNamesNoTryIsForTheLastThatMayHaveBeenAccepted(t *testing.T) {
	d := must(doubtful().Take(mine, noon.Add(time.Minute)))
	d = must(d.Arm(mine, belfry.Arming{Now: noon.Add(time.Minute), Attempts: 8}))
	d = settled(d, mine, belfry.OutcomeNotSent)
	d = must(d.Confirm(0, noon))
	if d.State != belfry.Sent || !d.SentAt().Equal(noon) {
		t.Errorf("%s, sent at %v, want the first try of noon", d.State, d.SentAt())
	}
	if _, ok := settled(armed(mine), mine, belfry.OutcomeNotSent).Confirm(0, noon); ok {
		t.Error("a receipt without a try that may have been accepted was taken")
	}
	if _, ok := waiting().Confirm(0, noon); ok {
		t.Error("a receipt without a try was taken")
	}
}

func TestThrottledAndMisconfiguredUseUpNoTry(t *testing.T) {
	d, now := waiting(), noon
	d.Deadline = noon.Add(1000 * time.Hour)
	policy := eight
	policy.Attempts = 2
	for i := range 40 {
		claim := belfry.ID(i + 1)
		d = must(d.Take(claim, now))
		d = must(d.Arm(claim, belfry.Arming{Now: now, Attempts: 2}))
		o := []belfry.Outcome{belfry.OutcomeThrottled, belfry.OutcomeMisconfigured}[i%2]
		d = must(d.Settle(claim, answer(o), belfry.Settling{Now: now, Policy: policy}))
		if d.State != belfry.Retry || d.Spent() != 0 {
			t.Fatalf("after %d: %s, spent %d", i+1, d.State, d.Spent())
		}
		now = d.Next
	}
	for i := range 2 {
		claim := belfry.ID(i + 100)
		d = must(must(d.Take(claim, now)).Arm(claim, belfry.Arming{Now: now, Attempts: 2}))
		d = must(d.Settle(claim, answer(belfry.OutcomeNotSent), belfry.Settling{Now: now, Policy: policy}))
		now = d.Next
	}
	if d.State != belfry.Failed || d.Reason != belfry.ReasonAttemptsExhausted || d.Spent() != 2 {
		t.Errorf("%s for %s, spent %d", d.State, d.Reason, d.Spent())
	}
}

func TestACancelOnTheWireIsRememberedUntilTheAnswer(t *testing.T) {
	asked, ok := armed(mine).CancelNow()
	if ok || !asked.Cancel {
		t.Fatalf("allowed %v, remembered %v", ok, asked.Cancel)
	}
	for o, want := range map[belfry.Outcome]belfry.State{
		belfry.OutcomeAccepted: belfry.Sent, belfry.OutcomeRefused: belfry.Failed, belfry.OutcomeNotSent: belfry.Cancelled,
		belfry.OutcomeThrottled: belfry.Cancelled, belfry.OutcomeAmbiguous: belfry.Unknown,
	} {
		if got := settled(asked, mine, o); got.State != want {
			t.Errorf("%s: %s, want %s", o, got.State, want)
		}
		beside := must(armed(mine).Settle(mine, answer(o), belfry.Settling{Now: noon, Policy: eight, Cancel: true}))
		if beside.State != want {
			t.Errorf("%s, cancel kept beside: %s, want %s", o, beside.State, want)
		}
	}
	if got := must(asked.TakeOver(mine, false, 8, noon)); got.State != belfry.Unknown || got.Reason != belfry.ReasonByCaller {
		t.Errorf("lost: %s for %s", got.State, got.Reason)
	}
	d := held(mine)
	d.Cancel = true
	if got := must(d.Arm(mine, arming())); got.State != belfry.Cancelled {
		t.Errorf("arm overlooked the cancel: %s", got.State)
	}
}

func TestARetryThatWouldComeTooLateIsAMiss(t *testing.T) {
	for o, want := range map[belfry.Outcome]belfry.State{belfry.OutcomeNotSent: belfry.Missed, belfry.OutcomeAmbiguous: belfry.Unknown} {
		d := armed(mine)
		got := must(d.Settle(mine, belfry.Answer{Outcome: o, After: 2 * time.Hour}, settling()))
		if got.State != want || got.Reason != belfry.ReasonDeadline {
			t.Errorf("%s: %s for %s, want %s for deadline", o, got.State, got.Reason, want)
		}
	}
}

func TestThreeLossesAloneArePoison(t *testing.T) {
	d := waiting()
	for i := range 3 {
		claim := belfry.ID(i + 1)
		if d.Alone != (i > 0) {
			t.Fatalf("loss %d: alone %v", i, d.Alone)
		}
		d = must(must(d.Take(claim, noon)).TakeOver(claim, d.Alone, 8, noon))
	}
	if d.State != belfry.Pending || d.Losses != 2 {
		t.Fatalf("%s after %d losses alone", d.State, d.Losses)
	}
	d = must(must(d.Take(9, noon)).TakeOver(9, d.Alone, 8, noon))
	if d.State != belfry.Failed || d.Reason != belfry.ReasonPoison {
		t.Errorf("%s for %s", d.State, d.Reason)
	}
}

func TestTheBytesStayOnceTheOtherSideMayHaveActed(t *testing.T) {
	for _, c := range []struct {
		what string
		d    belfry.Delivery
		want string
	}{
		{"throttled", settled(armed(before), before, belfry.OutcomeThrottled), "fresh"},
		{"not sent", settled(armed(before), before, belfry.OutcomeNotSent), "fresh"},
		{"not sent, but may have acted", must(armed(before).Settle(before, belfry.Answer{Outcome: belfry.OutcomeNotSent, Frozen: true}, settling())), "hello"},
		{"ambiguous", doubtful(), "hello"},
		{"lost", must(armed(before).TakeOver(before, false, 8, noon)), "hello"},
	} {
		now := noon.Add(time.Minute)
		got := must(must(c.d.Take(mine, now)).Arm(mine, belfry.Arming{Now: now, Attempts: 8, Payload: []byte("fresh")}))
		if string(got.Payload) != c.want {
			t.Errorf("%s: sends %q, want %q", c.what, got.Payload, c.want)
		}
	}
}

func TestAWaitIsNeverCutShort(t *testing.T) {
	early := noon.Add(-time.Hour)
	if got := must(held(mine).Release(mine, early, "")); !got.Next.Equal(noon) {
		t.Errorf("released: next %v", got.Next)
	}
	if got := must(armed(mine).TakeOver(mine, false, 8, early)); !got.Next.Equal(noon) {
		t.Errorf("taken over: next %v", got.Next)
	}
	a := arming()
	a.Now, a.Pause = early, &belfry.Pause{}
	if got := must(held(mine).Arm(mine, a)); !got.Next.Equal(noon) || got.Reason != "" {
		t.Errorf("paused before it was due: next %v for %q", got.Next, got.Reason)
	}
}

func TestAPausedDeliveryWaitsForThePauseOrItsDeadline(t *testing.T) {
	for until, want := range map[time.Time]time.Time{
		{}:                       noon.Add(time.Hour),
		noon.Add(time.Minute):    noon.Add(time.Minute),
		noon.Add(24 * time.Hour): noon.Add(time.Hour),
	} {
		a := arming()
		a.Pause = &belfry.Pause{Until: until}
		got := must(held(mine).Arm(mine, a))
		if !got.Next.Equal(want) || got.Reason != belfry.ReasonPaused {
			t.Errorf("until %v: next %v for %s", until, got.Next, got.Reason)
		}
		got = must(got.Take(theirs, want))
		a.Now = noon.Add(2 * time.Hour)
		if got = must(got.Arm(theirs, a)); got.State != belfry.Missed || got.Reason != belfry.ReasonPaused {
			t.Errorf("then past the deadline: %s for %s", got.State, got.Reason)
		}
	}
}

func TestTheDeadlineItselfIsInTime(t *testing.T) {
	a := arming()
	a.Now = noon.Add(time.Hour)
	if got := must(held(mine).Arm(mine, a)); !got.Armed {
		t.Errorf("at the deadline: %s for %s", got.State, got.Reason)
	}
	a.Now = a.Now.Add(1)
	if got := must(held(mine).Arm(mine, a)); got.State != belfry.Missed {
		t.Errorf("past the deadline: %s", got.State)
	}
}

// No move may write into the tries of the delivery it was called on: the caller may still hold them.
func TestMovesLeaveTheirReceiverAlone(t *testing.T) {
	for name, d := range positions() {
		was, _ := json.Marshal(d)
		for _, claim := range []belfry.ID{before, mine, theirs, 0} {
			d.Take(claim, noon)
			d.Arm(claim, arming())
			d.Settle(claim, answer(belfry.OutcomeAccepted), settling())
			d.Settle(claim, answer(belfry.OutcomeAmbiguous), settling())
			d.Confirm(claim, noon)
			d.TakeOver(claim, true, 8, noon)
			d.Release(claim, noon, "")
		}
		d.CancelNow()
		d.Withdraw(belfry.ReasonOptedOut)
		if after, _ := json.Marshal(d); string(after) != string(was) {
			t.Errorf("%s: %s became %s", name, was, after)
		}
	}
}

func TestADeliverySurvivesJSON(t *testing.T) {
	for name, d := range positions() {
		b, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		var got belfry.Delivery
		if err := json.Unmarshal(b, &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(d, got); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
}

// Any receipts and late words, in any order and number, lead to the same end.
func TestTheOrderOfEvidenceDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := must(doubtful().Take(mine, noon.Add(time.Minute)))
		d = must(d.Arm(mine, belfry.Arming{Now: noon.Add(time.Minute), Attempts: 8}))
		d = must(must(d.TakeOver(mine, false, 8, noon)).CancelNow())
		words := []func(d belfry.Delivery) belfry.Delivery{
			func(d belfry.Delivery) belfry.Delivery { d, _ = d.Confirm(before, noon); return d },
			func(d belfry.Delivery) belfry.Delivery { d, _ = d.Confirm(0, noon); return d },
			func(d belfry.Delivery) belfry.Delivery {
				d, _ = d.Settle(mine, answer(belfry.OutcomeNotSent), settling())
				return d
			},
		}
		for _, i := range append(rapid.SliceOfN(rapid.IntRange(0, 2), 0, 6).Draw(t, "words"), rapid.Permutation([]int{0, 1, 2}).Draw(t, "all")...) {
			d = words[i](d)
		}
		if d.State != belfry.Sent {
			t.Fatalf("%s for %s", d.State, d.Reason)
		}
	})
}

func TestASummaryTellsTheBestThatHappened(t *testing.T) {
	all := []belfry.State{belfry.Cancelled, belfry.Dropped, belfry.Missed, belfry.Failed, belfry.Unknown, belfry.Sending, belfry.Sent}
	for i, best := range all {
		if got := belfry.NotificationState(all[:i+1]); got != best {
			t.Errorf("%v: %s, want %s", all[:i+1], got, best)
		}
	}
	for _, open := range []belfry.State{belfry.Pending, belfry.Retry} {
		if got := belfry.NotificationState([]belfry.State{belfry.Failed, open}); got != belfry.Sending {
			t.Errorf("failed and %s: %s", open, got)
		}
	}
}
