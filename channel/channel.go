// Package channel is the seam to the ways out: what the engine asks of one, and what it may rely on.
// channeltest.Run is the contract; a channel is a folder that passes it.
package channel

import (
	"context"
	"time"

	"belfry"
)

// Channel is one way out. All methods are safe for concurrent use.
type Channel interface {
	// Name is the channel's one word in the API, the configuration and the tables.
	Name() string

	// Check refuses an address that cannot work, with a *belfry.Error that names the field (address, or
	// keys and the key's name). It makes no connection; what it let through is checked again when dialled.
	Check(address belfry.Secret, keys belfry.Keys) error

	// Encode makes the payload of one delivery, before signing and encryption. The same message gives the
	// same bytes. It is called before the delivery is armed; the bytes are kept and sent on every try.
	// A *belfry.Error says that no payload can be made of this message; the delivery fails then.
	Encode(m Message) ([]byte, error)

	// Send makes exactly one request for one armed try. It returns nil when the provider accepted it, with
	// the provider's own id if it gave one; an error built by belfry.Gone, Refused, Throttled,
	// Misconfigured or NotSent; or any other error, which counts as ambiguous: it may have been accepted.
	// It must not retry, follow a redirect, or outlive ctx; its errors name no address, token or key.
	Send(ctx context.Context, a Armed) (ref string, err error)

	// Budget is the longest that a Send may take, from connecting to the last byte of the answer.
	Budget() time.Duration
}

// Message is what a payload is made from.
type Message struct {
	Delivery belfry.DeliveryID
	Category string
	Subject  string
	Created  time.Time // when the notification was enqueued
	Content  belfry.Content
}

// Armed is a try that may reach the wire now.
type Armed struct {
	Delivery belfry.DeliveryID // the stable id of every try
	Epoch    belfry.ID         // grows with every try: a receiver may refuse an older one
	Attempt  int               // from 1
	Endpoint belfry.Endpoint
	Payload  []byte
	Lane     belfry.Lane
	Category string
	Subject  string
	Now      time.Time // by the engine's clock
	Deadline time.Time // the provider is told not to deliver after it
}

// Left is the time to the deadline, at least a second: a provider takes 0 for "now or never".
func (a Armed) Left() time.Duration { return max(a.Deadline.Sub(a.Now), time.Second) }
