package belfry

import "time"

// Endpoint is one place where a recipient can be reached on one channel: a device token, a push
// subscription, a mail address, a URL.
type Endpoint struct {
	ID        ID     `json:"id"`
	Project   string `json:"-"`
	Recipient string `json:"recipient"`
	Channel   string `json:"channel"`
	App       string `json:"app,omitempty"`    // picks the credentials; empty: the project's only app
	Device    string `json:"device,omitempty"` // the caller's name for the device, if it is one
	Address   Secret `json:"-"`
	Keys      Keys   `json:"-"` // what the channel needs besides the address
	// RegisteredAt is when the client last said that this is its endpoint. A "gone" for an attempt armed
	// before it does not count against it.
	RegisteredAt time.Time `json:"registered_at,omitzero"`
	LastSeen     time.Time `json:"last_seen,omitzero"`
	Strikes      int       `json:"strikes,omitempty"` // doubtful answers in a row
	RetiredAt    time.Time `json:"retired_at,omitzero"`
	Reason       Reason    `json:"reason,omitempty"` // why it was retired
}

// Keys are the secrets that belong to an endpoint, by the channel's own names.
type Keys map[string]Secret

// Active says that the endpoint may be sent to.
func (e Endpoint) Active() bool { return e.RetiredAt.IsZero() }

// Medium is what a person understands by a channel.
type Medium string

var media = map[string]Medium{
	"webpush": "push", "expo": "push", "fcm": "push", "apns": "push",
	"email": "email", "sms": "sms", "webhook": "webhook", "inbox": "inbox",
	"slack": "chat", "discord": "chat", "telegram": "chat", "ntfy": "chat",
}

// MediumOf is the medium of a channel. A channel that is not in the list is a medium of its own.
func MediumOf(channel string) Medium {
	if m, ok := media[channel]; ok {
		return m
	}
	return Medium(channel)
}

// Moves says that an address of this medium is unique in its project and belongs to whoever registered
// it last, as push tokens do. Other addresses are unique per recipient only and never move.
func (m Medium) Moves() bool { return m == "push" }

// Matches says that name, a channel or a medium, covers the channel.
func Matches(name, channel string) bool { return name == channel || Medium(name) == MediumOf(channel) }

// Registration is a request to make an endpoint known.
type Registration struct {
	Recipient string
	Channel   string
	App       string
	Device    string
	Address   Secret
	Keys      Keys
}

// Check refuses a registration with a wrong field; the shape of the address is the channel's to check.
func (r Registration) Check() error {
	if err := CheckName("recipient", r.Recipient); err != nil {
		return err
	}
	if err := CheckSlug("channel", r.Channel); err != nil {
		return err
	}
	if r.App != "" {
		if err := CheckSlug("app", r.App); err != nil {
			return err
		}
	}
	if r.Device != "" {
		if err := CheckName("device", r.Device); err != nil {
			return err
		}
	}
	if len(r.Address) == 0 || len(r.Address) > MaxAddress {
		return Invalid("address", "want 1 to %d bytes", MaxAddress)
	}
	return nil
}

// Suppression is an address that must not be used, whatever anyone prefers.
type Suppression struct {
	Project string    `json:"-"`
	Channel string    `json:"channel"` // a channel or a medium
	Address Secret    `json:"-"`
	Reason  string    `json:"reason"` // hard_bounce, complaint, stop, manual
	At      time.Time `json:"at"`
}

// AppliesTo says that the suppression covers an address on a channel.
func (s Suppression) AppliesTo(channel string, address Secret) bool {
	return Matches(s.Channel, channel) && s.Address == address
}
