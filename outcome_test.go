package belfry_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"belfry"
)

func TestWhatAChannelReturnedIsAnAnswer(t *testing.T) {
	for _, c := range []struct {
		what string
		err  error
		want belfry.Answer
	}{
		{"nil", nil, belfry.Answer{Outcome: belfry.OutcomeAccepted, Ref: "r"}},
		{"gone", belfry.Gone(410, "gone"), belfry.Answer{Outcome: belfry.OutcomeGone, Status: 410, Detail: "gone"}},
		{"refused", belfry.Refused(400, "bad"), belfry.Answer{Outcome: belfry.OutcomeRefused, Status: 400, Detail: "bad"}},
		{"throttled", belfry.Throttled(429, time.Minute, ""), belfry.Answer{Outcome: belfry.OutcomeThrottled, Status: 429, After: time.Minute}},
		{"misconfigured", belfry.Misconfigured(401, ""), belfry.Answer{Outcome: belfry.OutcomeMisconfigured, Status: 401}},
		{"not sent", belfry.NotSent(503, time.Second, ""), belfry.Answer{Outcome: belfry.OutcomeNotSent, Status: 503, After: time.Second}},
		{"wrapped", fmt.Errorf("webhook: %w", belfry.Gone(410, "")), belfry.Answer{Outcome: belfry.OutcomeGone, Status: 410}},
		{"joined", errors.Join(errors.New("a"), belfry.Gone(410, "")), belfry.Answer{Outcome: belfry.OutcomeGone, Status: 410}},
		{"any other", errors.New("reset"), belfry.Answer{Outcome: belfry.OutcomeAmbiguous, Detail: "reset"}},
	} {
		if diff := cmp.Diff(c.want, belfry.AnswerOf("r", c.err)); diff != "" {
			t.Errorf("%s:\n%s", c.what, diff)
		}
	}
}

func TestWhatAnOutcomeMeans(t *testing.T) {
	for _, c := range []struct {
		outcome          belfry.Outcome
		definite, spends bool
	}{
		{belfry.OutcomeOpen, false, true},
		{belfry.OutcomeAccepted, true, true},
		{belfry.OutcomeRefused, true, true},
		{belfry.OutcomeGone, true, true},
		{belfry.OutcomeThrottled, true, false},
		{belfry.OutcomeMisconfigured, true, false},
		{belfry.OutcomeNotSent, true, true},
		{belfry.OutcomeAmbiguous, false, true},
		{"whatever", false, true},
	} {
		if c.outcome.Definite() != c.definite || c.outcome.Spends() != c.spends {
			t.Errorf("%q: definite %v, spends %v", c.outcome, c.outcome.Definite(), c.outcome.Spends())
		}
	}
}

func TestAFailureTellsItsStatus(t *testing.T) {
	for want, err := range map[string]error{
		"gone: answered 410":            belfry.Gone(410, ""),
		"refused: answered 400: no":     belfry.Refused(400, "no"),
		"not_sent: connection refused":  belfry.NotSent(0, 0, "connection refused"),
		"throttled: answered 429: slow": belfry.Throttled(429, time.Second, "slow"),
	} {
		if err.Error() != want {
			t.Errorf("%q, want %q", err, want)
		}
	}
}
