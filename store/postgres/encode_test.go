package postgres

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"belfry"
)

// anyDelivery draws a delivery with any of its fields set.
var anyDelivery = rapid.Custom(func(t *rapid.T) belfry.Delivery {
	when := rapid.Custom(func(t *rapid.T) time.Time { return instant(rapid.Int64Range(0, 4e15).Draw(t, "µs")) })
	id := rapid.Custom(func(t *rapid.T) belfry.ID { return belfry.ID(rapid.Int64Range(0, 1<<62).Draw(t, "id")) })
	d := belfry.Delivery{
		ID:    belfry.DeliveryID{Notification: 1 + id.Draw(t, "notification"), N: rapid.IntRange(1, belfry.MaxDeliveries).Draw(t, "n")},
		State: belfry.State(rapid.SampledFrom([]string{"pending", "sending", "retry", "sent", "unknown"}).Draw(t, "state")),
		Mode:  belfry.AtMostOnce, Channel: rapid.String().Draw(t, "channel"), Device: rapid.String().Draw(t, "device"),
		Endpoint: id.Draw(t, "endpoint"), Target: rapid.IntRange(0, 3).Draw(t, "target"), Sole: rapid.Bool().Draw(t, "sole"),
		Next: when.Draw(t, "next"), Deadline: when.Draw(t, "deadline"), Claim: id.Draw(t, "claim"), Armed: rapid.Bool().Draw(t, "armed"),
		Cancel: rapid.Bool().Draw(t, "cancel"), Losses: rapid.IntRange(0, 3).Draw(t, "losses"), Alone: rapid.Bool().Draw(t, "alone"),
		Deferrals: rapid.IntRange(0, 3).Draw(t, "deferrals"), Frozen: rapid.Bool().Draw(t, "frozen"),
		Payload: rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "payload"), Reason: belfry.Reason(rapid.String().Draw(t, "reason")),
	}
	for range rapid.IntRange(0, 3).Draw(t, "attempts") {
		d.Attempts = append(d.Attempts, belfry.Attempt{
			Claim: 1 + id.Draw(t, "by"), ArmedAt: when.Draw(t, "armed_at"), Answered: when.Draw(t, "answered"), Lost: rapid.Bool().Draw(t, "lost"),
			Answer: belfry.Answer{
				Outcome: belfry.OutcomeGone, After: time.Duration(rapid.IntRange(0, 1e9).Draw(t, "after")), Status: rapid.IntRange(0, 599).Draw(t, "status"),
				Ref: rapid.String().Draw(t, "ref"), Detail: rapid.String().Draw(t, "detail"), Frozen: rapid.Bool().Draw(t, "answer frozen"),
			},
		})
	}
	return d
})

// The encoder by hand and the standard one are read as the same delivery.
func TestADeliveryIsReadAsItWasWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := anyDelivery.Draw(t, "delivery")
		standard, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		var want, got belfry.Delivery
		if err := json.Unmarshal(standard, &want); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(appendDelivery(nil, &d), &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatal(diff)
		}
	})
}
