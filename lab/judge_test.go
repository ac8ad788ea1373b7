package lab

import (
	"slices"
	"strings"
	"testing"
	"time"

	"belfry"
)

var began = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

func at(s float64) time.Time { return began.Add(time.Duration(s * float64(time.Second))) }

// one is a history of one notification with one delivery that goes at least once: acknowledged, sent at the
// second second and accepted. A test changes it.
func one(change func(h *history, f *final)) history {
	d := finalDelivery{
		id: belfry.DeliveryID{Notification: 1, N: 1}, state: belfry.Sent, mode: belfry.AtLeastOnce,
		attempts: []attempt{{epoch: "10", armedAt: at(2), outcome: belfry.OutcomeAccepted}},
	}
	f := final{recipient: "r", category: "c", state: belfry.Sent, deliveries: []finalDelivery{d}}
	h := history{acks: []ack{{"k", 1}}, accepts: []accept{{at(2.1), d.id, "10"}}, finals: map[belfry.ID]final{}}
	change(&h, &f)
	if f.state != "" {
		h.finals[1] = f
	}
	return h
}

// retried makes a second attempt of the delivery, accepted too, after a first one with this outcome.
func retried(h *history, f *final, first belfry.Outcome) {
	d := &f.deliveries[0]
	d.attempts[0].outcome = first
	d.attempts = append(d.attempts, attempt{epoch: "11", armedAt: at(3), outcome: belfry.OutcomeAccepted})
	h.accepts = append(h.accepts, accept{at(3.1), d.id, "11"})
}

func (f *final) ends(s belfry.State) { f.state, f.deliveries[0].state = s, s }

func TestTheJudgeAcquitsWhatIsAllowed(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*history, *final)
		want   Verdict
	}{
		{"sent once", func(*history, *final) {}, Verdict{Accepted: 1}},
		{"nothing was accepted, and it failed", func(h *history, f *final) {
			h.accepts = nil
			f.ends(belfry.Failed)
			f.deliveries[0].attempts[0].outcome = belfry.OutcomeRefused
		}, Verdict{}},
		{"accepted again after a try in doubt", func(h *history, f *final) { retried(h, f, belfry.OutcomeAmbiguous) },
			Verdict{Accepted: 2, Duplicates: 1, DuplicatesExplained: 1}},
		{"accepted again after a lost worker", func(h *history, f *final) {
			retried(h, f, belfry.OutcomeOpen)
			f.deliveries[0].attempts[0].lost = true
		}, Verdict{Accepted: 2, Duplicates: 1, DuplicatesExplained: 1}},
		{"the second request overtook the first", func(h *history, f *final) {
			retried(h, f, belfry.OutcomeAmbiguous)
			slices.Reverse(h.accepts)
		}, Verdict{Accepted: 2, Duplicates: 1, DuplicatesExplained: 1}},
		{"unknown, and accepted", func(h *history, f *final) {
			f.ends(belfry.Unknown)
			f.deliveries[0].attempts[0].outcome = belfry.OutcomeAmbiguous
		}, Verdict{Accepted: 1, Unknown: 1}},
		{"an opt-out that named it as in flight", func(h *history, f *final) {
			h.minds = []mind{{answered: at(2.05), recipient: "r", category: "c", inFlight: []belfry.DeliveryID{f.deliveries[0].id}}}
		}, Verdict{Accepted: 1}},
		{"an opt-out after it arrived", func(h *history, f *final) {
			h.minds = []mind{{answered: at(3), recipient: "r", category: "c"}}
		}, Verdict{Accepted: 1}},
		{"an opt-out that was revoked before", func(h *history, f *final) {
			h.minds = []mind{{answered: at(1), revoked: at(1.5), recipient: "r", category: "c"}}
		}, Verdict{Accepted: 1}},
		{"an opt-out of somebody else", func(h *history, f *final) {
			h.minds = []mind{{answered: at(1), recipient: "other", category: "c"}, {answered: at(1), recipient: "r", category: "other"}}
		}, Verdict{Accepted: 1}},
		{"an opt-out while a lost worker's request was under way", func(h *history, f *final) {
			f.ends(belfry.Unknown)
			f.deliveries[0].attempts[0].outcome, f.deliveries[0].attempts[0].lost = belfry.OutcomeOpen, true
			h.minds = []mind{{answered: at(2.05), recipient: "r", category: "c"}}
		}, Verdict{Accepted: 1, Unknown: 1}},
		{"a cancel that was granted", func(h *history, f *final) {
			h.accepts, f.deliveries = nil, nil
			f.state = belfry.Cancelled
			h.minds = []mind{{answered: at(1), cancelled: 1}}
		}, Verdict{}},
		{"a repeated answer to one key", func(h *history, f *final) { h.acks = append(h.acks, h.acks[0]) }, Verdict{Accepted: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := judge(one(c.change))
			if !got.Kept() {
				t.Error(got.Broken)
			}
			if got.Acknowledged != 1 || got.Found != 1 || len(got.Broken) != 0 || got.Accepted != c.want.Accepted || got.Unknown != c.want.Unknown ||
				got.Duplicates != c.want.Duplicates || got.DuplicatesExplained != c.want.DuplicatesExplained {
				t.Errorf("%+v", got)
			}
		})
	}
}

func TestTheJudgeCatchesEveryBrokenPromise(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*history, *final)
		count  func(Verdict) int
		words  string
	}{
		{"acknowledged and not there", func(h *history, f *final) { h.accepts, f.state = nil, "" }, lost, "not there"},
		{"acknowledged and never ended", func(h *history, f *final) { h.accepts = nil; f.ends(belfry.Retry) }, lost, "retry"},
		{"accepted twice, and the first was refused", func(h *history, f *final) {
			retried(h, f, belfry.OutcomeRefused)
		}, unexplained, "nothing explains it"},
		{"accepted twice, and the first was accepted", func(h *history, f *final) { retried(h, f, belfry.OutcomeAccepted) }, unexplained, "nothing explains it"},
		{"at most once, accepted twice after a try in doubt", func(h *history, f *final) {
			retried(h, f, belfry.OutcomeAmbiguous)
			f.deliveries[0].mode = belfry.AtMostOnce
		}, unexplained, "nothing explains it"},
		{"at most once, armed again after a try in doubt", func(h *history, f *final) {
			retried(h, f, belfry.OutcomeAmbiguous)
			f.deliveries[0].mode = belfry.AtMostOnce
			h.accepts = h.accepts[1:]
		}, dishonest, "armed again"},
		{"one attempt made two requests", func(h *history, f *final) { h.accepts = append(h.accepts, h.accepts[0]) }, dishonest, "two requests"},
		{"armed after an opt-out", func(h *history, f *final) {
			h.minds = []mind{{answered: at(1.9), recipient: "r", category: "c"}}
		}, afterOptout, "armed after it"},
		{"armed again after an opt-out that named it as in flight", func(h *history, f *final) {
			retried(h, f, belfry.OutcomeAmbiguous)
			h.minds = []mind{{answered: at(2.5), recipient: "r", category: "c", inFlight: []belfry.DeliveryID{f.deliveries[0].id}}}
		}, afterOptout, "armed after it"},
		{"arrived after an opt-out that did not name it", func(h *history, f *final) {
			h.minds = []mind{{answered: at(2.05), recipient: "r", category: "c"}}
		}, afterOptout, "did not name it"},
		{"armed during an opt-out, and arrived when it was revoked", func(h *history, f *final) {
			h.minds = []mind{{answered: at(1.9), revoked: at(2.05), recipient: "r", category: "c"}}
		}, afterOptout, "armed after it"},
		{"armed after a cancel was granted", func(h *history, f *final) { h.minds = []mind{{answered: at(1), cancelled: 1}} }, afterOptout, "the cancel of"},
		{"sent, and a cancel had been granted", func(h *history, f *final) { h.minds = []mind{{answered: at(1), cancelled: 1}} }, dishonest, "cancel had been granted"},
		{"sent, and nobody accepted it", func(h *history, f *final) { h.accepts = nil }, dishonest, "nobody accepted it"},
		{"failed, and accepted", func(h *history, f *final) {
			f.ends(belfry.Failed)
			f.deliveries[0].attempts[0].outcome = belfry.OutcomeNotSent
		}, dishonest, "was accepted"},
		{"dropped, with a try in doubt", func(h *history, f *final) {
			h.accepts = nil
			f.ends(belfry.Dropped)
			f.deliveries[0].attempts[0].outcome = belfry.OutcomeOpen
		}, dishonest, "may have been"},
		{"unknown, and every answer is there", func(h *history, f *final) { f.ends(belfry.Unknown) }, dishonest, "every attempt has its answer"},
		{"a try said to be refused was accepted", func(h *history, f *final) {
			retried(h, f, belfry.OutcomeNotSent)
			h.accepts = h.accepts[:1]
		}, dishonest, "said to be not_sent"},
		{"a request without an attempt", func(h *history, f *final) { h.accepts[0].epoch = "9" }, dishonest, "no attempt has"},
		{"a request without a delivery", func(h *history, f *final) { h.accepts[0].id.N = 2 }, dishonest, "no such delivery"},
		{"one key made two notifications", func(h *history, f *final) { h.acks = append(h.acks, ack{"k", 2}) }, dishonest, "key k"},
		{"the summary is not that of the deliveries", func(h *history, f *final) { f.state = belfry.Failed }, dishonest, "its deliveries are"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := judge(one(c.change))
			if c.count(got) == 0 || got.Kept() {
				t.Errorf("it was not caught: %+v", got)
			}
			if !slices.ContainsFunc(got.Broken, func(s string) bool { return strings.Contains(s, c.words) }) {
				t.Errorf("want %q in words: %q", c.words, got.Broken)
			}
		})
	}
}

func lost(v Verdict) int        { return v.Lost }
func unexplained(v Verdict) int { return v.Duplicates - v.DuplicatesExplained }
func afterOptout(v Verdict) int { return v.SentAfterOptout }
func dishonest(v Verdict) int   { return v.Dishonest }
