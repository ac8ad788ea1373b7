package pricewatch

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"belfry"

	"go.uber.org/goleak"
)

// play runs a demo and reads its object.
func play(t *testing.T, ctx context.Context, o DemoOptions) (r Result) {
	t.Helper()
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	var out, errs bytes.Buffer
	o.JSON, o.Out, o.Err = true, &out, &errs
	if err := Demo(ctx, o); err != nil {
		t.Errorf("%v\n%s", err, out.String())
	}
	if errs.Len() > 0 {
		t.Errorf("it complained: %s", errs.String())
	}
	d := json.NewDecoder(&out)
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		t.Fatal(err)
	}
	if d.Decode(&struct{}{}) != io.EOF {
		t.Error("it printed more than the object")
	}
	return r
}

func (r Result) ended() (n int) {
	n = r.Sent + r.Missed + r.Cancelled + r.Unknown
	for _, c := range r.Dropped {
		n += c
	}
	for _, c := range r.Failed {
		n += c
	}
	return n
}

func TestTheDemoKeepsItsPromisesWhateverHappens(t *testing.T) {
	r := play(t, t.Context(), DemoOptions{For: 6 * time.Second, Speed: 2.5})
	t.Logf("%+v", r)
	if r.ProviderDuplicates != 0 || r.SentAfterOptOut != 0 || r.StillOpen != 0 {
		t.Error("a promise was broken")
	}
	// Once in a while the second detector is so slow that the first one's notification has ended by then, and
	// has reached nobody: then there are two.
	if r.Enqueued != r.ended() || r.Duplicates == 0 || r.Duplicates > r.Enqueued {
		t.Errorf("%d enqueued, %d ended, %d duplicates", r.Enqueued, r.ended(), r.Duplicates)
	}
	for _, why := range []belfry.Reason{"out_of_stock", belfry.ReasonConditionLost, belfry.ReasonOptedOut, belfry.ReasonCooldown, belfry.ReasonNoEndpoint} {
		if r.Dropped[why] == 0 {
			t.Errorf("nothing was dropped for %s", why)
		}
	}
	if r.Failed[belfry.ReasonGone] == 0 || r.Cancelled == 0 || r.Retries == 0 || r.Sent == 0 {
		t.Error("not everything happened that should")
	}
	if r.ProviderAccepted < r.Sent || r.Lateness.P50 <= 0 || r.Lateness.P50 > r.Lateness.P99 || r.Lateness.P99 > r.Lateness.Max {
		t.Error("the figures contradict each other")
	}
}

func TestTheDemoFollowsAFile(t *testing.T) {
	long := 20 * time.Second // it ends with the file
	if testing.Short() {
		long = 3 * time.Second
	}
	r := play(t, t.Context(), DemoOptions{For: long, Speed: 40, Prices: "testdata/crude-daily.csv"})
	if r.Enqueued == 0 || r.Enqueued != r.ended() || r.Sent == 0 {
		t.Errorf("%+v", r)
	}
}

func TestAnInterruptedDemoSaysWhatWasDone(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	start := time.Now()
	r := play(t, ctx, DemoOptions{For: time.Minute, Speed: 5})
	if r.Enqueued != r.ended()+r.StillOpen || time.Since(start) > time.Minute {
		t.Errorf("%+v after %v", r, time.Since(start))
	}
}

func TestWithoutATerminalTheTableIsPrintedOnce(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	var out bytes.Buffer
	if err := Demo(t.Context(), DemoOptions{For: 300 * time.Millisecond, Speed: 5, Out: &out}); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	if !strings.Contains(text, "a made-up walk of 20 items") || strings.Count(text, "enqueued  ") != 1 || strings.Contains(text, "\x1b") || !strings.HasSuffix(text, "}\n") {
		t.Errorf("%s", text)
	}
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) != 0 {
		t.Errorf("it left %v, %v", left, err)
	}
}

func TestBadOptionsOfTheDemoAreRefused(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "none.csv")
	for want, o := range map[string]DemoOptions{
		"for is -1s: want more than 0s and at most 1h0m0s": {For: -time.Second},
		"speed is -1: want more than 0 and at most 100":    {Speed: -1},
		"speed is 101: want more than 0 and at most 100":   {Speed: 101},
		"prices: open " + missing:                          {Prices: missing},
	} {
		var out bytes.Buffer
		o.Out = &out
		if err := Demo(t.Context(), o); err == nil || !strings.HasPrefix(err.Error(), want) || out.Len() > 0 {
			t.Errorf("%v %q, want %s", err, out.String(), want)
		}
	}
}
