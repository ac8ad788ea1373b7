package api

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"belfry"
	"belfry/internal/strictjson"
	"belfry/store"
)

// Recipient is a recipient as it is put and shown. What was shown can be put again; what is left out keeps
// its value.
type Recipient struct {
	ID         string          `json:"id,omitempty" doc:"Your own name for the recipient; as in the path."`
	Zone       string          `json:"zone,omitempty" doc:"IANA time zone, as Asia/Tokyo; absent: UTC until somebody says better."`
	ZoneSource string          `json:"zone_source,omitempty" doc:"Where the zone is known from, as device or user."`
	ZoneAsOf   time.Time       `json:"zone_as_of,omitzero" doc:"When the zone was known."`
	Locale     string          `json:"locale,omitempty" doc:"BCP 47 language tag."`
	Attributes json.RawMessage `json:"attributes,omitempty" doc:"An object with whatever texts may need; up to 64 KiB."`
	CreatedAt  time.Time       `json:"created_at,omitzero" readOnly:"true" doc:"When it was made; not used in a request."`
	UpdatedAt  time.Time       `json:"updated_at,omitzero" readOnly:"true" doc:"When it was last changed; not used in a request."`
}

func showRecipient(r belfry.Recipient) Recipient {
	return Recipient{r.ID, r.Zone, r.ZoneSource, utc(r.ZoneAsOf), r.Locale, r.Attributes, utc(r.CreatedAt), utc(r.UpdatedAt)}
}

// of is the recipient that a body asks for.
func (in Recipient) of(c *call) (belfry.Recipient, error) {
	r := belfry.Recipient{
		Project: c.Project, ID: c.r.PathValue("recipient"), Zone: in.Zone, ZoneSource: in.ZoneSource, ZoneAsOf: in.ZoneAsOf,
		Locale: in.Locale, Attributes: in.Attributes,
	}
	if in.ID != "" && in.ID != r.ID {
		return r, belfry.Invalid("id", "is not the one in the path")
	}
	return r, checkRecipient(r)
}

func (s *server) putRecipient(c *call, in Recipient) (Recipient, error) {
	r, err := in.of(c)
	if err != nil {
		return in, err
	}
	r, err = s.Backend.PutRecipient(c.r.Context(), r)
	return showRecipient(r), err
}

func (s *server) getRecipient(c *call) (Recipient, error) {
	r, err := s.Backend.Recipient(c.r.Context(), c.Project, c.r.PathValue("recipient"))
	return showRecipient(r), missing(err)
}

// RecipientPatch is what to change of a recipient. Attributes are merged, RFC 7396: null takes one away, or
// all. The zone and the locale can be changed and not taken away.
type RecipientPatch struct {
	Zone       string           `json:"zone,omitempty" doc:"IANA time zone."`
	ZoneSource string           `json:"zone_source,omitempty" doc:"Where this zone is known from."`
	ZoneAsOf   time.Time        `json:"zone_as_of,omitzero" doc:"When this zone was known; absent: now."`
	Locale     string           `json:"locale,omitempty" doc:"BCP 47 language tag."`
	Attributes strictjson.Value `json:"attributes,omitzero" doc:"Attributes to set; null takes one away, or all of them."`
}

// patchRecipient changes what is given and nothing else. Attributes alone are read and written back: of two
// patches of them at once one may be lost.
func (s *server) patchRecipient(c *call, in RecipientPatch) (Recipient, error) {
	old, err := s.Backend.Recipient(c.r.Context(), c.Project, c.r.PathValue("recipient"))
	if err != nil {
		return Recipient{}, missing(err)
	}
	if in.Zone == "" && (in.ZoneSource != "" || !in.ZoneAsOf.IsZero()) {
		return Recipient{}, belfry.Invalid("zone", "goes with zone_source and zone_as_of: give it too")
	}
	change := Recipient{Zone: in.Zone, ZoneSource: in.ZoneSource, ZoneAsOf: in.ZoneAsOf, Locale: in.Locale}
	if !in.Attributes.IsZero() {
		if kind := in.Attributes.Kind(); kind != strictjson.Object && kind != strictjson.Null {
			return Recipient{}, belfry.Invalid("attributes", "must be a JSON object")
		}
		if change.Attributes, err = merge(old.Attributes, in.Attributes); err != nil {
			return Recipient{}, err
		}
	}
	r, err := change.of(c)
	if err != nil {
		return Recipient{}, err
	}
	r, err = s.Backend.PutRecipient(c.r.Context(), r)
	return showRecipient(r), err
}

// merge applies a patch to a JSON value, RFC 7396 §2.
func merge(target json.RawMessage, patch strictjson.Value) (json.RawMessage, error) {
	switch patch.Kind() {
	case strictjson.Null: // at the top: of all attributes none is left
		return json.RawMessage("{}"), nil
	case strictjson.Object:
	default:
		return patch.Raw(), nil
	}
	members := map[string]json.RawMessage{}
	if len(target) > 0 && target[0] == '{' {
		if err := json.Unmarshal(target, &members); err != nil {
			return nil, err
		}
	}
	for name, member := range patch.Members() {
		if member.Kind() == strictjson.Null {
			delete(members, name)
			continue
		}
		m, err := merge(members[name], member)
		if err != nil {
			return nil, err
		}
		members[name] = m
	}
	return json.Marshal(members)
}

// Withdrawn says what a change came in time for, and what it came too late for.
type Withdrawn struct {
	Withdrawn int                 `json:"withdrawn" doc:"How many that waited will not be sent because of it."`
	InFlight  []belfry.DeliveryID `json:"in_flight" doc:"Deliveries with an attempt that may be on the wire: too late for those."`
}

func withdrawn(w store.Withdrawn) Withdrawn { return Withdrawn{w.Withdrawn, listed(w.InFlight)} }

func (s *server) deleteRecipient(c *call) (Withdrawn, error) {
	w, err := s.Backend.DeleteRecipient(c.r.Context(), c.Project, c.r.PathValue("recipient"))
	return withdrawn(w), missing(err)
}

func (s *server) getPreferences(c *call) (belfry.Preferences, error) {
	p, err := s.Backend.Preferences(c.r.Context(), c.Project, c.r.PathValue("recipient"))
	if p == nil {
		p = belfry.Preferences{}
	}
	return p, missing(err)
}

// PreferenceBody is a recipient's switches: category, or "*", to channel, medium or "*", to on or off. Its
// member "source" says who said so; a category of that name is told from it by being an object.
type PreferenceBody struct {
	source  string
	changes []belfry.PreferenceChange
	cleared []string // categories to be cleared whole
}

// DecodeStrict reads the switches; null stands for clearing one, or a category of them.
func (p *PreferenceBody) DecodeStrict(v strictjson.Value) error {
	if v.Kind() != strictjson.Object {
		return &strictjson.Error{Detail: "must be an object of categories, not " + v.Kind().String()}
	}
	for category, switches := range v.Members() {
		if category == "source" && switches.Kind() == strictjson.String {
			if p.source = switches.Text(); p.source == "" || len(p.source) > 64 {
				return strictjson.At("source", errors.New("want 1 to 64 bytes"))
			}
			continue
		}
		if err := starOrSlug(category); err != nil {
			return strictjson.At(category, err)
		}
		switch switches.Kind() {
		case strictjson.Null:
			p.cleared = append(p.cleared, category)
			continue
		case strictjson.Object:
		default:
			return strictjson.At(category, errors.New("must be an object of channels, not "+switches.Kind().String()))
		}
		for channel, on := range switches.Members() {
			change := belfry.PreferenceChange{Category: category, Channel: channel}
			if err := starOrSlug(channel); err != nil {
				return strictjson.At(category, strictjson.At(channel, err))
			}
			if err := on.Decode(&change.On); err != nil {
				return strictjson.At(category, strictjson.At(channel, err))
			}
			p.changes = append(p.changes, change)
		}
	}
	if p.source == "" {
		p.source = "api"
	}
	for i := range p.changes {
		p.changes[i].Source = p.source
	}
	return nil
}

func starOrSlug(name string) error {
	if name == "*" || belfry.CheckSlug("", name) == nil {
		return nil
	}
	return errors.New("is not a name: want *, or 1 to 64 of a-z, A-Z, 0-9, dot, dash and underscore")
}

// Schema describes the switches.
func (PreferenceBody) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{
		Type:        huma.TypeObject,
		Description: `By category, or "*" for all. The narrower category wins, then the channel over its medium over "*".`,
		Properties: map[string]*huma.Schema{
			"source": {Type: huma.TypeString, Description: "Who said so, as user, import or link; absent: api."},
		},
		AdditionalProperties: &huma.Schema{
			Type: huma.TypeObject, Nullable: true, Description: `By channel or medium, or "*" for all.`,
			AdditionalProperties: &huma.Schema{Type: huma.TypeBoolean, Nullable: true},
		},
	}
}

func (s *server) putPreferences(c *call, in PreferenceBody) (Withdrawn, error) {
	for _, change := range in.changes {
		if change.On == nil {
			return Withdrawn{}, &strictjson.Error{Field: change.Category + "." + change.Channel, Detail: "must not be null: leave it out, all is replaced"}
		}
	}
	if len(in.cleared) > 0 {
		return Withdrawn{}, &strictjson.Error{Field: in.cleared[0], Detail: "must not be null: leave it out, all is replaced"}
	}
	return s.changePreferences(c, in.changes, true)
}

func (s *server) patchPreferences(c *call, in PreferenceBody) (Withdrawn, error) {
	if len(in.cleared) > 0 {
		p, err := s.Backend.Preferences(c.r.Context(), c.Project, c.r.PathValue("recipient"))
		if err != nil {
			return Withdrawn{}, missing(err)
		}
		for _, category := range in.cleared {
			for channel := range p[category] {
				in.changes = append(in.changes, belfry.PreferenceChange{Category: category, Channel: channel, Source: in.source})
			}
		}
	}
	return s.changePreferences(c, in.changes, false)
}

func (s *server) changePreferences(c *call, changes []belfry.PreferenceChange, replace bool) (Withdrawn, error) {
	w, err := s.Backend.ChangePreferences(c.r.Context(), c.Project, c.r.PathValue("recipient"), changes, replace)
	return withdrawn(w), missing(err)
}

// Registration is an endpoint to be made known.
type Registration struct {
	Channel string `json:"channel" doc:"The channel."`
	Destination
}

// Endpoint is an endpoint as it is shown: without its address.
type Endpoint struct {
	ID           belfry.ID     `json:"id" doc:"The endpoint."`
	Channel      string        `json:"channel" doc:"The channel."`
	App          string        `json:"app,omitempty" doc:"The app it belongs to."`
	Device       string        `json:"device,omitempty" doc:"The device."`
	Hint         string        `json:"hint" doc:"The end of the address, to tell it from others."`
	State        string        `json:"state" enum:"active,retired" doc:"retired: nothing is sent there any more."`
	Reason       belfry.Reason `json:"reason,omitempty" doc:"Why it was retired."`
	RegisteredAt time.Time     `json:"registered_at,omitzero" doc:"When the client last said that it is its own."`
	LastSeen     time.Time     `json:"last_seen,omitzero" doc:"When it was last known to live."`
	Strikes      int           `json:"strikes,omitempty" doc:"Doubtful answers in a row."`
	RetiredAt    time.Time     `json:"retired_at,omitzero" doc:"When it was retired."`
}

func showEndpoint(e belfry.Endpoint) Endpoint {
	state := "active"
	if !e.Active() {
		state = "retired"
	}
	return Endpoint{e.ID, e.Channel, e.App, e.Device, e.Address.Hint(), state, e.Reason, utc(e.RegisteredAt), utc(e.LastSeen), e.Strikes, utc(e.RetiredAt)}
}

// Registered is what a registration came to.
type Registered struct {
	Endpoint
	Created  bool      `json:"created" doc:"false: it was known already."`
	Replaced belfry.ID `json:"replaced,omitempty" doc:"The endpoint of the same device, or the same token of another recipient, that it took the place of."`
	Withdrawn
}

func (s *server) putEndpoint(c *call, in Registration) (Registered, error) {
	r, err := in.registration(c.r.PathValue("recipient"), in.Channel)
	if err != nil {
		return Registered{}, err
	}
	done, err := s.Backend.Register(c.r.Context(), c.Project, r)
	if done.Created {
		c.status = 201
	}
	return Registered{showEndpoint(done.Endpoint), done.Created, done.Replaced, withdrawn(done.Withdrawn)}, missing(err)
}

// EndpointList lists a recipient's endpoints.
type EndpointList struct {
	Endpoints []Endpoint `json:"endpoints" doc:"The active ones, and those that were retired as long as they are known."`
}

func (s *server) listEndpoints(c *call) (list EndpointList, err error) {
	found, err := s.Backend.Endpoints(c.r.Context(), c.Project, c.r.PathValue("recipient"))
	list.Endpoints = make([]Endpoint, 0, len(found))
	for _, e := range found {
		list.Endpoints = append(list.Endpoints, showEndpoint(e))
	}
	return list, missing(err)
}

func (s *server) deleteEndpoint(c *call) (Withdrawn, error) {
	id, err := c.id("endpoint")
	if err != nil {
		return Withdrawn{}, err
	}
	w, err := s.Backend.Retire(c.r.Context(), c.Project, c.r.PathValue("recipient"), id)
	return withdrawn(w), missing(err)
}

// Mark is what was last sent to a recipient about a subject.
type Mark struct {
	Category     string          `json:"category" doc:"The category."`
	Subject      string          `json:"subject" doc:"The subject; may be empty."`
	At           time.Time       `json:"at" doc:"When the attempt that was accepted was made."`
	Data         json.RawMessage `json:"data,omitempty" doc:"The data it was made from; absent when none is kept."`
	Notification belfry.ID       `json:"notification,omitempty" doc:"The notification that was sent."`
}

// MarkList lists marks.
type MarkList struct {
	Marks []Mark `json:"marks" doc:"One per category and subject."`
}

func (s *server) listMarks(c *call) (list MarkList, err error) {
	found, err := s.Backend.Marks(c.r.Context(), c.Project, c.r.PathValue("recipient"), c.query.Get("category"), c.query.Get("subject"))
	list.Marks = make([]Mark, 0, len(found))
	for _, m := range found {
		list.Marks = append(list.Marks, Mark{m.Category, m.Subject, m.At.UTC(), m.Data, m.Notification})
	}
	return list, missing(err)
}
