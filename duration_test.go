package belfry_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"belfry"
)

func TestDurationsReadAsPeopleWriteThem(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"0s": 0, "90s": 90 * time.Second, "1m30s": 90 * time.Second, "15m": 15 * time.Minute, "6h": 6 * time.Hour,
		"3d": 72 * time.Hour, "0d": 0, "1.5h": 90 * time.Minute, "250ms": 250 * time.Millisecond,
	} {
		var d belfry.Duration
		if err := d.UnmarshalText([]byte(text)); err != nil || d.Std() != want {
			t.Errorf("%s: %v, %v", text, d.Std(), err)
		}
	}
	for _, text := range []string{"", "1", "-1s", "-1d", "1.5d", "70000d", "d", "1w", "soon", "1d12h", "300000000h"} {
		var d belfry.Duration
		if err := d.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is %v", text, d)
		}
	}
}

func TestDurationsAreWrittenShort(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"0s": 0, "1m30s": 90 * time.Second, "15m": 15 * time.Minute, "6h": 6 * time.Hour, "10h": 10 * time.Hour,
		"1h20m": 80 * time.Minute, "1d": 24 * time.Hour, "36h": 36 * time.Hour, "1h0m1s": time.Hour + time.Second,
	} {
		if got := belfry.Duration(d).String(); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}

func TestADurationSurvivesItsText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		unit := rapid.SampledFrom([]time.Duration{1, time.Millisecond, time.Second, time.Minute, time.Hour, 24 * time.Hour}).Draw(t, "unit")
		d := belfry.Duration(time.Duration(rapid.Int64Range(0, 60_000).Draw(t, "n")) * unit)
		var got belfry.Duration
		if err := got.UnmarshalText([]byte(d.String())); err != nil || got != d {
			t.Fatalf("%s became %v, %v", d, got, err)
		}
	})
}
