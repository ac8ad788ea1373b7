package pricewatch

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"belfry"
	"belfry/sandbox"
	"belfry/store"
)

var start = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func at(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }

// accepted is a line of the log: a webhook of lea's about a drop.
func accepted(id string, ms int) sandbox.Entry {
	return sandbox.Entry{At: at(ms), Channel: "webhook", To: "lea", ID: id, Body: []byte(`{"type":"price_drop"}`)}
}

func try(ms int, o belfry.Outcome) belfry.Attempt {
	return belfry.Attempt{ArmedAt: at(ms), Answer: belfry.Answer{Outcome: o}}
}

func TestTheJudgeFindsWhatWasNotKept(t *testing.T) {
	one := belfry.MakeID(start, 0, 1)
	id := one.String() + "-1"
	delivery := belfry.DeliveryID{Notification: one, N: 1}
	sent := []store.Summary{{Notification: belfry.Notification{ID: one}, State: belfry.Sent}}
	ends := func(s belfry.State, why belfry.Reason) []store.Summary {
		return []store.Summary{{Notification: belfry.Notification{ID: one}, State: s, Reason: why}}
	}
	stop := func(o optOut) []optOut {
		o.person, o.answered = "lea", at(100)
		return []optOut{o}
	}
	anything := optOut{category: "*", channel: "*"}
	onTheWire := optOut{category: "*", channel: "*", inFlight: []belfry.DeliveryID{delivery}}
	for _, c := range []struct {
		name     string
		log      []sandbox.Entry
		attempts []belfry.Attempt
		optOuts  []optOut
		cancels  []withdrawal
		ends     []store.Summary
		want     string // what is broken
	}{
		{name: "sent once", log: []sandbox.Entry{accepted(id, 50)}, ends: sent},
		{name: "sent, and nobody got it", ends: sent, want: "1 accepted and said not to be, or the other way round"},
		{name: "dropped, and accepted", log: []sandbox.Entry{accepted(id, 50)}, ends: ends(belfry.Dropped, "x"), want: "1 accepted and said not to be, or the other way round"},
		{name: "unknown may be either", log: []sandbox.Entry{accepted(id, 50)}, ends: ends(belfry.Unknown, "x")},
		{name: "lost", want: "1 acknowledged and lost"},
		{name: "still open", ends: ends(belfry.Scheduled, ""), want: "1 still open at the end"},

		{name: "twice after no answer", log: []sandbox.Entry{accepted(id, 50), accepted(id, 80)},
			attempts: []belfry.Attempt{try(49, belfry.OutcomeAmbiguous), try(79, belfry.OutcomeAccepted)}, ends: sent},
		{name: "twice after a lost worker", log: []sandbox.Entry{accepted(id, 50), accepted(id, 80)},
			attempts: []belfry.Attempt{try(49, belfry.OutcomeOpen), try(79, belfry.OutcomeAccepted)}, ends: sent},
		{name: "twice after a good answer", log: []sandbox.Entry{accepted(id, 50), accepted(id, 80)},
			attempts: []belfry.Attempt{try(49, belfry.OutcomeAccepted), try(79, belfry.OutcomeAccepted)}, ends: sent,
			want: "1 accepted twice without an ambiguous try in between"},
		{name: "twice after an ambiguous try that was not the one", log: []sandbox.Entry{accepted(id, 50), accepted(id, 80)},
			attempts: []belfry.Attempt{try(20, belfry.OutcomeAmbiguous), try(49, belfry.OutcomeNotSent), try(79, belfry.OutcomeAccepted)}, ends: sent,
			want: "1 accepted twice without an ambiguous try in between"},
		{name: "a third time", log: []sandbox.Entry{accepted(id, 50), accepted(id, 80), accepted(id, 90)},
			attempts: []belfry.Attempt{try(49, belfry.OutcomeAmbiguous), try(79, belfry.OutcomeAccepted)}, ends: sent,
			want: "1 accepted twice without an ambiguous try in between"},
		{name: "twice in one try", log: []sandbox.Entry{accepted(id, 50), accepted(id, 51)},
			attempts: []belfry.Attempt{try(49, belfry.OutcomeAccepted)}, ends: sent,
			want: "1 accepted twice without an ambiguous try in between"},
		{name: "twice with other words", log: []sandbox.Entry{accepted(id, 50), {At: at(80), To: "lea", ID: id, Body: []byte(`{}`)}},
			attempts: []belfry.Attempt{try(49, belfry.OutcomeAmbiguous), try(79, belfry.OutcomeAccepted)}, ends: sent,
			want: "1 accepted twice without an ambiguous try in between"},

		{name: "before the opt-out", log: []sandbox.Entry{accepted(id, 100)}, optOuts: stop(anything), ends: sent},
		{name: "after the opt-out", log: []sandbox.Entry{accepted(id, 101)}, optOuts: stop(anything), ends: sent, want: "1 sent after an opt-out"},
		{name: "after it, of this", log: []sandbox.Entry{accepted(id, 101)}, optOuts: stop(optOut{category: PriceDrop, channel: "webhook"}), ends: sent, want: "1 sent after an opt-out"},
		{name: "after it, of another category", log: []sandbox.Entry{accepted(id, 101)}, optOuts: stop(optOut{category: PriceLow, channel: "*"}), ends: sent},
		{name: "after it, of another medium", log: []sandbox.Entry{accepted(id, 101)}, optOuts: stop(optOut{category: "*", channel: "push"}), ends: sent},
		{name: "of another person", log: []sandbox.Entry{accepted(id, 101)}, optOuts: []optOut{{person: "ben", category: "*", channel: "*"}}, ends: sent},
		{name: "on the wire", log: []sandbox.Entry{accepted(id, 101)}, optOuts: stop(onTheWire), attempts: []belfry.Attempt{try(99, belfry.OutcomeAccepted)}, ends: sent},
		{name: "on the wire, and tried again", log: []sandbox.Entry{accepted(id, 140)}, optOuts: stop(onTheWire),
			attempts: []belfry.Attempt{try(99, belfry.OutcomeNotSent), try(139, belfry.OutcomeAccepted)}, ends: sent, want: "1 sent after an opt-out"},

		{name: "after the cancel", log: []sandbox.Entry{accepted(id, 101)}, cancels: []withdrawal{{at(100), store.Cancelled{Cancelled: []belfry.ID{one}}}}, ends: sent, want: "1 sent after a cancel"},
		{name: "on the wire at the cancel", log: []sandbox.Entry{accepted(id, 101)}, cancels: []withdrawal{{at(100), store.Cancelled{InFlight: []belfry.ID{one}}}},
			attempts: []belfry.Attempt{try(99, belfry.OutcomeAccepted)}, ends: sent},
		{name: "tried again after the cancel", log: []sandbox.Entry{accepted(id, 140)}, cancels: []withdrawal{{at(100), store.Cancelled{InFlight: []belfry.ID{one}}}},
			attempts: []belfry.Attempt{try(99, belfry.OutcomeNotSent), try(139, belfry.OutcomeAccepted)}, ends: sent, want: "1 sent after a cancel"},
		{name: "cancelled too late", log: []sandbox.Entry{accepted(id, 101)}, cancels: []withdrawal{{at(100), store.Cancelled{Ended: []belfry.ID{one}}}}, ends: sent},
	} {
		var r Result
		err := judge(t.Context(), evidence{
			acknowledged: []belfry.ID{one}, log: c.log, owner: map[string]string{"lea": "lea"}, optOuts: c.optOuts, cancels: c.cancels, ends: c.ends,
			attempts: func(context.Context, belfry.DeliveryID) ([]belfry.Attempt, error) { return c.attempts, nil },
		}, &r)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if broken := r.Broken(); broken != nil {
			got = broken.Error()
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestAMessageOfSomebodyElseIsAnError(t *testing.T) {
	err := judge(t.Context(), evidence{log: []sandbox.Entry{accepted("hello", 1)}}, new(Result))
	if err == nil || !strings.Contains(err.Error(), "not ours") {
		t.Errorf("%v", err)
	}
}

func TestLatenessIsOfThoseThatWereLate(t *testing.T) {
	var late []time.Duration
	for i := range 200 {
		late = append(late, time.Duration(200-i)*time.Millisecond)
	}
	for _, c := range []struct {
		late []time.Duration
		want Lateness
	}{
		{nil, Lateness{}},
		{[]time.Duration{1250 * time.Microsecond}, Lateness{1.3, 1.3, 1.3}},
		{late, Lateness{100, 198, 200}},
	} {
		if got := latenessOf(c.late); fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%v, want %v", got, c.want)
		}
	}
}
