package belfry_test

import (
	"strings"
	"testing"
	"time"

	"belfry"
)

func TestAVerdictSettles(t *testing.T) {
	failed := belfry.CheckFailed("timeout")
	for _, c := range []struct {
		what      string
		verdict   belfry.Verdict
		onError   belfry.OnCheckError
		deferrals int
		jitter    float64
		want      belfry.VerdictKind
		reason    belfry.Reason
		after     time.Duration
	}{
		{"send", belfry.Send(nil), belfry.CheckErrorDrop, 0, 0, belfry.VerdictSend, "", 0},
		{"drop", belfry.Drop("sold"), belfry.CheckErrorSend, 0, 0, belfry.VerdictDrop, "sold", 0},
		{"drop without a reason", belfry.Verdict{Kind: belfry.VerdictDrop}, belfry.CheckErrorRetry, 0, 0, belfry.VerdictDrop, belfry.ReasonConditionLost, 0},
		{"later", belfry.Later(time.Hour), belfry.CheckErrorDrop, 9, 1, belfry.VerdictLater, "", time.Hour},
		{"later, at once", belfry.Later(0), belfry.CheckErrorDrop, 0, 0, belfry.VerdictLater, "", time.Second},
		{"later, in the past", belfry.Later(-time.Hour), belfry.CheckErrorDrop, 0, 0, belfry.VerdictLater, "", time.Second},

		{"failed, drop", failed, belfry.CheckErrorDrop, 0, 0, belfry.VerdictDrop, belfry.ReasonCheckUnreachable, 0},
		{"failed, send", failed, belfry.CheckErrorSend, 0, 0, belfry.VerdictSend, "", 0},
		{"failed, retry", failed, belfry.CheckErrorRetry, 0, 0, belfry.VerdictLater, "", time.Second},
		{"failed, nothing said", failed, "", 0, 0, belfry.VerdictLater, "", time.Second},
		{"failed again", failed, belfry.CheckErrorRetry, 3, 0, belfry.VerdictLater, "", 8 * time.Second},
		{"failed often", failed, belfry.CheckErrorRetry, 1000, 0, belfry.VerdictLater, "", time.Minute},
		{"failed, jittered", failed, belfry.CheckErrorRetry, 3, 1, belfry.VerdictLater, "", 10 * time.Second},

		{"no verdict", belfry.Verdict{}, belfry.CheckErrorRetry, 0, 0, belfry.VerdictLater, "", time.Second},
		{"no known verdict", belfry.Verdict{Kind: "maybe"}, belfry.CheckErrorDrop, 0, 0, belfry.VerdictDrop, belfry.ReasonCheckUnreachable, 0},
	} {
		got := c.verdict.Settled(c.onError, c.deferrals, c.jitter)
		if got.Kind != c.want || got.Reason != c.reason || got.After != c.after {
			t.Errorf("%s: %s %q after %v, want %s %q after %v", c.what, got.Kind, got.Reason, got.After, c.want, c.reason, c.after)
		}
	}
}

func TestAVerdictIsFreshForFiveSeconds(t *testing.T) {
	v := belfry.Verdict{At: noon}
	for age, want := range map[time.Duration]bool{0: true, 5 * time.Second: true, 5*time.Second + 1: false, -5 * time.Second: true, -5*time.Second - 1: false} {
		if got := v.Fresh(noon.Add(age)); got != want {
			t.Errorf("at the age of %v: %v", age, got)
		}
	}
}

func TestAReasonOfTheCallersOwnIsAWord(t *testing.T) {
	for s, want := range map[string]belfry.Reason{
		"sold_out": "sold_out", "no_2": "no_2", strings.Repeat("x", 64): belfry.Reason(strings.Repeat("x", 64)),
		"": belfry.ReasonConditionLost, "Sold": belfry.ReasonConditionLost, "sold out": belfry.ReasonConditionLost,
		"ausverkauft!": belfry.ReasonConditionLost, "é": belfry.ReasonConditionLost, strings.Repeat("x", 65): belfry.ReasonConditionLost,
	} {
		if got := belfry.Drop(s).Reason; got != want {
			t.Errorf("%q: %q, want %q", s, got, want)
		}
	}
}
