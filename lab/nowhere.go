package lab

import (
	"context"
	"time"

	"belfry"
	"belfry/channel"
)

// nowhere is a channel that does nothing: what is measured with it is the engine alone.
type nowhere struct {
	sent func(belfry.ID) // told of every send; may be nil
}

func (nowhere) Name() string                           { return "nowhere" }
func (nowhere) Check(belfry.Secret, belfry.Keys) error { return nil }
func (nowhere) Budget() time.Duration                  { return time.Second }

func (nowhere) Encode(m channel.Message) ([]byte, error) { return m.Content.Data, nil }

func (n nowhere) Send(_ context.Context, a channel.Armed) (string, error) {
	if n.sent != nil {
		n.sent(a.Delivery.Notification)
	}
	return "", nil
}
