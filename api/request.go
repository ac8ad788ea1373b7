package api

import (
	"encoding/json"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"belfry"
	"belfry/internal/strictjson"
	"belfry/store"
	"belfry/tzdb"
)

// Request is the body of POST /v1/notifications.
type Request struct {
	Recipient RecipientRef     `json:"recipient"`
	Category  string           `json:"category,omitempty" doc:"The kind of notification; absent: default."`
	Subject   string           `json:"subject,omitempty" doc:"What it is about in your own world: a watch, an order."`
	Data      json.RawMessage  `json:"data,omitempty" doc:"An object that the text is made from; up to 64 KiB."`
	At        time.Time        `json:"at,omitzero" doc:"When it is due; absent: now."`
	LocalTime string           `json:"local_time,omitempty" doc:"Instead of at: wall time in the recipient's zone, as 2026-12-01T09:00."`
	ExpiresIn *belfry.Duration `json:"expires_in,omitempty" doc:"How long after the due time it may still be sent; absent: the category's."`
	Deadline  time.Time        `json:"deadline,omitzero" doc:"Instead of expires_in: the instant after which it is not sent."`
	Once      *belfry.Once     `json:"once,omitempty" doc:"Tell this fact at most once."`
	Channels  []string         `json:"channels,omitempty" doc:"Channels or media it may take; absent: the category's."`
	To        []Target         `json:"to,omitempty" doc:"Go there and nowhere else; absent: the recipient's live endpoints."`
	Key       string           `json:"key,omitempty" doc:"The idempotency key, unless the header has it: 1 to 255 printable ASCII characters."`
}

// Target is one of the destinations that a request names.
type Target struct {
	Channel string        `json:"channel" doc:"The channel."`
	Address belfry.Secret `json:"address" doc:"The address, token or URL."`
	Keys    belfry.Keys   `json:"keys,omitempty" doc:"What the channel needs besides the address."`
}

// RecipientRef is a recipient by name, or one to be made or updated with the notification.
type RecipientRef struct {
	id     string
	inline *store.Inline
}

// InlineRecipient is a recipient given with a notification. All its other members are channels.
type InlineRecipient struct {
	ID         string          `json:"id" doc:"Your own name for the recipient."`
	Zone       string          `json:"zone,omitempty" doc:"IANA time zone, as Asia/Tokyo."`
	ZoneSource string          `json:"zone_source,omitempty" doc:"Where the zone is known from, as device or user."`
	ZoneAsOf   time.Time       `json:"zone_as_of,omitzero" doc:"When the zone was known."`
	Locale     string          `json:"locale,omitempty" doc:"BCP 47 language tag."`
	Attributes json.RawMessage `json:"attributes,omitempty" doc:"An object with whatever texts may need."`
}

// Destination is where a recipient can be reached on a channel: an address, or what a browser gives for a
// push subscription.
type Destination struct {
	Address        belfry.Secret    `json:"address,omitempty" doc:"The address, token or URL."`
	Endpoint       belfry.Secret    `json:"endpoint,omitempty" doc:"Instead of address, as browsers call it."`
	ExpirationTime strictjson.Value `json:"expirationTime,omitzero" doc:"Not used; browsers send it."`
	Keys           belfry.Keys      `json:"keys,omitempty" doc:"What the channel needs besides the address: p256dh and auth for web push."`
	App            string           `json:"app,omitempty" doc:"The app it belongs to, which picks the credentials."`
	Device         string           `json:"device,omitempty" doc:"Your own name for the device: a new address of it takes the place of the old one."`
}

func (d Destination) registration(recipient, channel string) (belfry.Registration, error) {
	r := belfry.Registration{Recipient: recipient, Channel: channel, App: d.App, Device: d.Device, Address: d.Address, Keys: d.Keys}
	switch {
	case d.Address != "" && d.Endpoint != "":
		return r, belfry.Invalid("endpoint", "goes without an address: give one of them")
	case d.Address == "":
		r.Address = d.Endpoint
	}
	return r, r.Check()
}

// DecodeStrict reads a name or an object.
func (ref *RecipientRef) DecodeStrict(v strictjson.Value) error {
	switch v.Kind() {
	case strictjson.String:
		ref.id = v.Text()
		return nil
	case strictjson.Object:
	default:
		return &strictjson.Error{Detail: "must be a recipient's name or an object with its id, not " + v.Kind().String()}
	}
	r := belfry.Recipient{}
	ref.inline = &store.Inline{}
	fields := map[string]any{
		"id": &r.ID, "zone": &r.Zone, "zone_source": &r.ZoneSource, "zone_as_of": &r.ZoneAsOf, "locale": &r.Locale, "attributes": &r.Attributes,
	}
	named := map[string]Destination{}
	for name, member := range v.Members() {
		into, ours := fields[name]
		var d Destination
		switch {
		case ours:
		case member.Kind() == strictjson.String:
			into = &d.Address
		case member.Kind() == strictjson.Object:
			into = &d
		default:
			return strictjson.At(name, &strictjson.Error{Detail: "is not known here, and no channel's address"})
		}
		if err := member.Decode(into); err != nil {
			return strictjson.At(name, err)
		}
		if !ours {
			named[name] = d
		}
	}
	if _, given := v.Member("id"); !given {
		return strictjson.At("id", &strictjson.Error{Detail: "is missing"})
	}
	ref.id, ref.inline.Recipient = r.ID, r
	for name := range v.Members() { // in the order they came
		d, ok := named[name]
		if !ok {
			continue
		}
		registration, err := d.registration(r.ID, name)
		if err != nil {
			return strictjson.At(name, flat(err))
		}
		ref.inline.Registrations = append(ref.inline.Registrations, registration)
	}
	return nil
}

// flat is the error of a rule as one of reading.
func flat(err error) error {
	if e, ok := err.(*belfry.Error); ok {
		return &strictjson.Error{Field: e.Field, Detail: e.Detail}
	}
	return err
}

// Schema describes the two forms.
func (RecipientRef) Schema(r huma.Registry) *huma.Schema {
	inline := r.Schema(reflect.TypeFor[InlineRecipient](), false, "")
	object := *inline
	object.AdditionalProperties = &huma.Schema{OneOf: []*huma.Schema{
		{Type: huma.TypeString}, r.Schema(reflect.TypeFor[Destination](), true, ""),
	}}
	object.Description = "Makes or updates the recipient in the same call. Every other member is a channel and where to reach the recipient on it."
	return &huma.Schema{
		Description: "Your own name for the recipient, or an object that makes or updates it.",
		OneOf:       []*huma.Schema{{Type: huma.TypeString}, &object},
	}
}

// request makes what the engine takes of a notification. key is the idempotency key, whichever way it came.
func (n Request) request(project, key string, print [32]byte) (store.Request, error) {
	r := store.Request{Fingerprint: print, LocalTime: n.LocalTime, Inline: n.Recipient.inline}
	r.Request = belfry.Request{
		Project: project, Recipient: n.Recipient.id, Category: n.Category, Subject: n.Subject, Data: n.Data,
		At: n.At, Deadline: n.Deadline, Key: key,
	}
	r.Options = belfry.Options{Channels: n.Channels, Once: n.Once}
	if n.ExpiresIn != nil {
		if r.ExpiresIn = *n.ExpiresIn; r.ExpiresIn <= 0 {
			return r, belfry.Invalid("expires_in", "want more than 0s")
		}
	}
	if n.LocalTime != "" {
		if !n.At.IsZero() {
			return r, belfry.Invalid("local_time", "goes without at: give one of them")
		}
		if !wallTime(n.LocalTime) {
			return r, belfry.Invalid("local_time", "want a wall time without zone, as 2026-12-01T09:00")
		}
	}
	for _, t := range n.To {
		r.To = append(r.To, belfry.Target{Channel: t.Channel, Address: t.Address, Keys: t.Keys})
	}
	if n.To != nil && len(n.To) == 0 {
		return r, belfry.Invalid("to", "is empty: leave it out, or name a destination")
	}
	if n.Once != nil && n.Once.Zone != "" {
		if _, err := tzdb.Load(n.Once.Zone); err != nil {
			return r, belfry.In("once.zone", err)
		}
	}
	if r.Inline == nil {
		return r, nil
	}
	r.Inline.Recipient.Project = project
	return r, belfry.In("recipient", checkRecipient(r.Inline.Recipient))
}

// checkRecipient refuses a recipient that the rules do, or whose zone there is not.
func checkRecipient(r belfry.Recipient) error {
	if err := r.Check(); err != nil {
		return err
	}
	if len(r.ZoneSource) > 64 {
		return belfry.Invalid("zone_source", "is longer than 64 bytes")
	}
	if r.Zone == "" {
		return nil
	}
	if _, err := tzdb.Load(r.Zone); err != nil {
		return belfry.In("zone", err)
	}
	return nil
}

func wallTime(s string) bool {
	for _, form := range [...]string{"2006-01-02T15:04", "2006-01-02T15:04:05"} {
		if _, err := time.Parse(form, s); err == nil && len(s) == len(form) {
			return true
		}
	}
	return false
}

// Enqueued is the answer to a notification that was taken. Of a fact told long ago only the id is known.
type Enqueued struct {
	ID       belfry.ID     `json:"id" doc:"The notification."`
	Result   string        `json:"result" enum:"created,duplicate" doc:"duplicate: the fact was told already, and id is the first notification of it."`
	State    belfry.State  `json:"state,omitempty" doc:"Where it stood when the request was answered first."`
	Reason   belfry.Reason `json:"reason,omitempty" doc:"Why it ended or waits."`
	Due      time.Time     `json:"due_at,omitzero" doc:"When it is due."`
	DueLocal string        `json:"due_local,omitempty" doc:"The same instant in the recipient's zone; in UTC when that is not known."`
	Deadline time.Time     `json:"deadline,omitzero" doc:"When it is not sent any more."`
}

// appendEnqueued writes an Enqueued, or a BatchItem. It writes nothing that a repeat could write otherwise.
func appendEnqueued(b []byte, e store.Enqueued, inBatch bool) []byte {
	const instant = "2006-01-02T15:04:05.999999Z07:00"
	result := "created"
	if e.Duplicate {
		result = "duplicate"
	}
	b = append(append(append(b, `{"id":"`...), e.ID.String()...), `","result":"`...)
	b = append(append(b, result...), '"')
	if e.State != "" {
		b = append(append(append(b, `,"state":"`...), e.State...), '"')
	}
	if e.Reason != "" {
		b = append(append(append(b, `,"reason":"`...), e.Reason...), '"')
	}
	if !e.Due.IsZero() {
		local := e.Due.UTC()
		if loc, err := tzdb.Load(e.Zone); err == nil {
			local = e.Due.In(loc)
		}
		b = e.Due.UTC().AppendFormat(append(b, `,"due_at":"`...), instant)
		b = local.AppendFormat(append(b, `","due_local":"`...), instant)
		b = e.Deadline.UTC().AppendFormat(append(b, `","deadline":"`...), instant)
		b = append(b, '"')
	}
	if inBatch && e.Replayed {
		b = append(b, `,"replayed":true`...)
	}
	return append(b, '}')
}
