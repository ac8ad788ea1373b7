package receiver_test

import (
	"bytes"
	"context"
	"log/slog"
	"math"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"belfry"
	"belfry/receiver"
	"belfry/receiver/memory"
)

func TestSpanOfStandardWebhooks(t *testing.T) {
	s := receiver.StandardWebhooks()
	var bare time.Duration
	for _, w := range s.Waits {
		bare += w
	}
	if want := 75*time.Hour + 35*time.Minute + 5*time.Second; bare != want {
		t.Errorf("the schedule takes %v, want %v", bare, want)
	}
	// Ten attempts of at most half a minute, and waits a tenth longer.
	if got, want := s.Span(), bare+bare/10+10*30*time.Second; got != want {
		t.Errorf("span %v, want %v", got, want)
	}
	if receiver.RetentionFor(s) != receiver.RetentionFor(receiver.Sender{}) {
		t.Error("the zero Sender is not Standard Webhooks")
	}
	if got, want := receiver.RetentionFor(s), s.Span()+7*24*time.Hour+5*time.Minute; got != want {
		t.Errorf("retention %v, want %v", got, want)
	}
}

func TestBackoffCoversBelfrysOwnPolicy(t *testing.T) {
	for _, lane := range []belfry.Lane{belfry.Urgent, belfry.Normal, belfry.Bulk} {
		c := belfry.Category{Lane: lane}.Resolved()
		p := c.Retry
		s := receiver.Backoff(time.Duration(p.First), p.Factor, time.Duration(p.Max), p.Attempts)
		s.Timeout, s.Replay, s.Skew = -1, -1, -1
		var longest, shortest time.Duration
		for n := 1; n < p.Attempts; n++ {
			longest += p.Delay(n, 0, 1)
			shortest += p.Delay(n, 0, 0)
		}
		if got := s.Span(); got < longest || got > longest+time.Second || longest < shortest {
			t.Errorf("%s: span %v, the policy itself takes %v to %v", lane, got, shortest, longest)
		}
		if got := receiver.RetentionFor(s); got != s.Span() {
			t.Errorf("%s: %v without replays and skew, the span is %v", lane, got, s.Span())
		}
	}
}

func TestSpanOfAnyList(t *testing.T) {
	none := receiver.Sender{Timeout: -1, Replay: -1, Skew: -1}
	with := func(change func(*receiver.Sender)) receiver.Sender {
		s := none
		change(&s)
		return s
	}
	for name, c := range map[string]struct {
		sender          receiver.Sender
		span, retention time.Duration
	}{
		"one attempt":      {with(func(s *receiver.Sender) { s.Waits = []time.Duration{} }), 0, 0},
		"two":              {with(func(s *receiver.Sender) { s.Waits = []time.Duration{time.Minute} }), time.Minute, time.Minute},
		"jitter":           {with(func(s *receiver.Sender) { s.Waits = []time.Duration{time.Minute, time.Minute}; s.Jitter = 0.5 }), 3 * time.Minute, 3 * time.Minute},
		"ends":             {with(func(s *receiver.Sender) { s.Waits = []time.Duration{time.Hour}; s.Ends = time.Minute }), time.Minute, time.Minute},
		"ends alone":       {with(func(s *receiver.Sender) { s.Ends = time.Minute }), time.Minute, time.Minute},
		"ends later":       {with(func(s *receiver.Sender) { s.Waits = []time.Duration{time.Hour}; s.Ends = time.Hour * 2 }), time.Hour, time.Hour},
		"timeouts":         {with(func(s *receiver.Sender) { s.Waits = []time.Duration{time.Hour}; s.Timeout = time.Minute }), time.Hour + 2*time.Minute, time.Hour + 2*time.Minute},
		"hold":             {with(func(s *receiver.Sender) { s.Waits = []time.Duration{time.Hour}; s.Hold = time.Minute }), time.Hour + time.Minute, time.Hour + time.Minute},
		"replay":           {with(func(s *receiver.Sender) { s.Ends = time.Hour; s.Replay = time.Minute }), time.Hour, time.Hour + time.Minute},
		"skew":             {with(func(s *receiver.Sender) { s.Ends = time.Hour; s.Skew = time.Minute }), time.Hour, time.Hour + time.Minute},
		"belfry":           {receiver.Belfry(0), 24*time.Hour + 30*time.Second, 8*24*time.Hour + 5*time.Minute + 30*time.Second},
		"belfry, a year":   {receiver.Belfry(366 * 24 * time.Hour), 366*24*time.Hour + 30*time.Second, 373*24*time.Hour + 5*time.Minute + 30*time.Second},
		"for ever":         {receiver.Sender{Ends: math.MaxInt64}, math.MaxInt64, math.MaxInt64},
		"backoff, one try": {receiver.Backoff(time.Hour, 2, time.Hour, 1), 30 * time.Second, 30*time.Second + 7*24*time.Hour + 5*time.Minute},
	} {
		if span, keep := c.sender.Span(), receiver.RetentionFor(c.sender); span != c.span || keep != c.retention {
			t.Errorf("%s: span %v, retention %v; want %v, %v", name, span, keep, c.span, c.retention)
		}
	}
}

func TestRetentionsOfThePageAreRight(t *testing.T) {
	page, err := os.ReadFile("../docs/receiving.md")
	if err != nil {
		t.Fatal(err)
	}
	const day = 24 * time.Hour
	for _, c := range []struct {
		row             string
		sender          receiver.Sender
		span, retention time.Duration // not less, and at most an hour more
	}{
		{"| `StandardWebhooks()`, the default | 75 h 35 m, and jitter | 10 days 11 h |", receiver.StandardWebhooks(), 83 * time.Hour, 10*day + 11*time.Hour},
		{"| `Belfry(24 * time.Hour)`: a category that expires after a day | 24 h | 8 days |", receiver.Belfry(day), day, 8 * day},
		{"| `Backoff(30*time.Second, 2, 30*time.Minute, 8)` | 1 h 13 m | 7 days 1 h |", receiver.Backoff(30*time.Second, 2, 30*time.Minute, 8), time.Hour + 13*time.Minute, 7*day + time.Hour},
		{"| `Sender{Ends: 4 * 24 * time.Hour}`: a queue that keeps messages four days | 4 days | 11 days |", receiver.Sender{Ends: 4 * day}, 4 * day, 11 * day},
	} {
		if !strings.Contains(string(page), c.row) {
			t.Errorf("the page does not hold %s", c.row)
		}
		if got := c.sender.Span(); got < c.span || got > c.span+time.Hour {
			t.Errorf("%s: span %v", c.row, got)
		}
		if got := receiver.RetentionFor(c.sender); got < c.retention || got > c.retention+time.Hour {
			t.Errorf("%s: retention %v", c.row, got)
		}
	}
}

func TestARetentionShorterThanTheSenderSendsIsRefused(t *testing.T) {
	least := receiver.RetentionFor(receiver.StandardWebhooks())
	for retention, ok := range map[time.Duration]bool{5 * time.Minute: false, least - 1: false, least: true, 0: true, 2 * least: true, -1: false} {
		_, err := receiver.New(memory.New(), receiver.Options{Retention: retention})
		if (err == nil) != ok {
			t.Errorf("%v: %v", retention, err)
		}
		if err != nil && !strings.Contains(err.Error(), least.String()) {
			t.Errorf("the error does not say how long: %v", err)
		}
	}
	if _, err := receiver.New(memory.New(), receiver.Options{Retention: 24 * time.Hour, Sender: receiver.Sender{Ends: time.Hour, Replay: -1}}); err != nil {
		t.Error(err)
	}
}

func TestKeyKeepsTheBordersOfItsPartsAndShowsNone(t *testing.T) {
	secret := []byte("sixteen bytes or")
	all := map[string][]string{}
	for _, s := range [][]byte{nil, secret, []byte("another secret..")} {
		for _, parts := range [][]string{nil, {""}, {"", ""}, {"ab", "c"}, {"a", "bc"}, {"abc"}, {"a", "b", "c"}, {"ann@example.com", "invoice-17"}, {"invoice-17", "ann@example.com"}, {strings.Repeat("x", 1<<16)}} {
			k := receiver.Key(s, parts...)
			if old, ok := all[k]; ok {
				t.Errorf("%q and %q have one key", parts, old)
			}
			all[k] = parts
			if !regexp.MustCompile(`^[A-Za-z0-9_-]{43}$`).MatchString(k) {
				t.Errorf("key %q", k)
			}
			if k != receiver.Key(s, parts...) {
				t.Error("the same parts have two keys")
			}
			r, err := receiver.New(memory.New(), receiver.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if res, err := r.Handle(t.Context(), receiver.Message{ID: k}, func(context.Context, *memory.Tx) error { return nil }); res != receiver.Applied || err != nil {
				t.Errorf("%s is no id: %v", k, err)
			}
		}
	}
}

func TestWhatWasNotSimplyAppliedIsLogged(t *testing.T) {
	var out bytes.Buffer
	r, err := receiver.New(memory.New(), receiver.Options{Source: "shop", Failures: 2, Log: slog.New(slog.NewTextHandler(&out, nil))})
	if err != nil {
		t.Fatal(err)
	}
	none := func(context.Context, *memory.Tx) error { return nil }
	fail := func(context.Context, *memory.Tx) error { return context.DeadlineExceeded }
	for _, c := range []struct {
		m      receiver.Message
		effect func(context.Context, *memory.Tx) error
		want   []string
	}{
		{receiver.Message{ID: "a", Epoch: 2, Body: []byte("x")}, none, nil},
		{receiver.Message{ID: "a", Epoch: 2, Body: []byte("x")}, none, []string{"level=INFO", "duplicate", "source=shop", "id=a", "epoch=2"}},
		{receiver.Message{ID: "a", Epoch: 1, Body: []byte("x")}, none, []string{"level=INFO", "stale_epoch", "id=a", "epoch=1"}},
		{receiver.Message{ID: "a", Epoch: 3, Body: []byte("y")}, none, []string{"level=WARN", "conflict", "id=a"}},
		{receiver.Message{ID: "b", NotAfter: time.Unix(1, 0)}, none, []string{"level=INFO", "expired", "id=b"}},
		{receiver.Message{ID: "c"}, fail, []string{"level=WARN", "failures=1", "id=c", "deadline exceeded"}},
		{receiver.Message{ID: "c"}, fail, []string{"level=WARN", "failures=2", "level=ERROR", "set_aside", "id=c"}},
	} {
		out.Reset()
		_, _ = r.Handle(t.Context(), c.m, c.effect)
		if len(c.want) == 0 && out.Len() > 0 {
			t.Errorf("logged %s", &out)
		}
		for _, w := range c.want {
			if !strings.Contains(out.String(), w) {
				t.Errorf("%q is not in %s", w, &out)
			}
		}
	}
}
