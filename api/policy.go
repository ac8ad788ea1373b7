package api

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"time"

	"belfry"
	"belfry/access"
	"belfry/store"
)

// Category is a category as it is put and shown. What was shown can be put again.
type Category struct {
	Name      string              `json:"name,omitempty" doc:"As in the path."`
	Channels  []string            `json:"channels,omitempty" doc:"Channels or media it may take, the first preferred; absent: all."`
	Route     belfry.Route        `json:"route,omitempty" doc:"all (default): every allowed channel; first: the next one only when the one before had no endpoint or definitely failed."`
	Consent   belfry.Consent      `json:"consent,omitempty" doc:"opt_out (default): on until switched off; opt_in: off until switched on; always: cannot be switched off."`
	Lane      belfry.Lane         `json:"lane,omitempty" doc:"urgent, normal (default) or bulk: which traffic it must not delay."`
	Delivery  belfry.Mode         `json:"delivery,omitempty" doc:"What is done when nobody can know whether a try was accepted: at_least_once tries again, at_most_once does not. Absent: at_most_once in bulk and for SMS, else at_least_once."`
	Check     *belfry.CheckPolicy `json:"check,omitempty" doc:"Whom to ask right before sending whether it is still true."`
	ExpiresIn belfry.Duration     `json:"expires_in,omitempty" doc:"How long after its due time a notification may still be sent; absent: 15m urgent, 6h normal, 1d bulk."`
	Cooldown  belfry.Duration     `json:"cooldown,omitempty" doc:"How long after one was sent about a subject none is sent about it."`
	Retry     *belfry.RetryPolicy `json:"retry,omitempty" doc:"When a try that was not accepted is made again."`
	Sensitive bool                `json:"sensitive,omitempty" doc:"true: data and text are shown nowhere, and wiped at the end."`
	Shadow    bool                `json:"shadow,omitempty" doc:"true: everything is done except the send."`
	Templates belfry.Templates    `json:"templates,omitempty" doc:"Text by part: title, body, link, image."`
	UpdatedAt time.Time           `json:"updated_at,omitzero" readOnly:"true" doc:"When it was put; not used in a request."`
}

func showCategory(c belfry.Category) Category {
	v := Category{
		Name: c.Name, Channels: c.Channels, Route: c.Route, Consent: c.Consent, Lane: c.Lane, Delivery: c.Delivery, Check: c.Check,
		ExpiresIn: c.ExpiresIn, Cooldown: c.Cooldown, Sensitive: c.Sensitive, Shadow: c.Shadow, Templates: c.Templates, UpdatedAt: utc(c.UpdatedAt),
	}
	if c.Retry != (belfry.RetryPolicy{}) {
		v.Retry = &c.Retry
	}
	return v
}

func (s *server) putCategory(c *call, in Category) (Category, error) {
	name := c.r.PathValue("category")
	if in.Name != "" && in.Name != name {
		return in, belfry.Invalid("name", "is not the one in the path")
	}
	category := belfry.Category{
		Project: c.Project, Name: name, Channels: in.Channels, Route: in.Route, Consent: in.Consent, Lane: in.Lane, Delivery: in.Delivery,
		Check: in.Check, ExpiresIn: in.ExpiresIn, Cooldown: in.Cooldown, Sensitive: in.Sensitive, Shadow: in.Shadow, Templates: in.Templates,
	}
	if in.Retry != nil {
		category.Retry = *in.Retry
	}
	if err := s.Backend.PutCategory(c.r.Context(), category); err != nil {
		return in, err
	}
	category, err := s.Backend.Category(c.r.Context(), c.Project, name)
	return showCategory(category), err
}

func (s *server) getCategory(c *call) (Category, error) {
	resolved, err := c.flag("resolved")
	if err != nil {
		return Category{}, err
	}
	category, err := s.Backend.Category(c.r.Context(), c.Project, c.r.PathValue("category"))
	if resolved {
		category = category.Resolved()
	}
	return showCategory(category), err
}

// CategoryList lists categories.
type CategoryList struct {
	Categories []Category `json:"categories" doc:"By name."`
}

func (s *server) listCategories(c *call) (list CategoryList, err error) {
	found, err := s.Backend.Categories(c.r.Context(), c.Project)
	list.Categories = make([]Category, 0, len(found))
	for _, category := range found {
		list.Categories = append(list.Categories, showCategory(category))
	}
	return list, err
}

func (s *server) deleteCategory(c *call) (nothing, error) {
	return nothing{}, s.Backend.DeleteCategory(c.r.Context(), c.Project, c.r.PathValue("category"))
}

// PauseRequest says what to hold: what it does not name, it holds all of.
type PauseRequest struct {
	Category   string           `json:"category,omitempty" doc:"Only this category; absent: all."`
	Channel    string           `json:"channel,omitempty" doc:"Only this channel or medium; absent: all."`
	App        string           `json:"app,omitempty" doc:"Only this app; absent: all."`
	Reason     string           `json:"reason" doc:"Why, for whoever finds it."`
	Until      time.Time        `json:"until,omitzero" doc:"When it ends by itself; absent: when it is lifted."`
	For        *belfry.Duration `json:"for,omitempty" doc:"Instead of until: how long from now."`
	Everywhere bool             `json:"everywhere,omitempty" doc:"true: in every project; for an operator."`
}

// Pause is a pause as it is shown.
type Pause struct {
	ID         belfry.ID `json:"id" doc:"The pause."`
	Category   string    `json:"category,omitempty" doc:"The category it holds; absent: all."`
	Channel    string    `json:"channel,omitempty" doc:"The channel or medium it holds; absent: all."`
	App        string    `json:"app,omitempty" doc:"The app it holds; absent: all."`
	Reason     string    `json:"reason" doc:"Why."`
	At         time.Time `json:"at" doc:"When it was set."`
	Until      time.Time `json:"until,omitzero" doc:"When it ends by itself; absent: when it is lifted."`
	Everywhere bool      `json:"everywhere,omitempty" doc:"true: it holds every project."`
}

func showPause(p belfry.Pause) Pause {
	return Pause{p.ID, p.Category, p.Channel, p.App, p.Reason, p.At.UTC(), utc(p.Until), p.Project == ""}
}

func (s *server) postPause(c *call, in PauseRequest) (Pause, error) {
	p := belfry.Pause{Project: c.Project, Category: in.Category, Channel: in.Channel, App: in.App, Reason: in.Reason, Until: in.Until}
	if in.For != nil {
		if !in.Until.IsZero() {
			return Pause{}, belfry.Invalid("for", "goes without until: give one of them")
		}
		if *in.For <= 0 {
			return Pause{}, belfry.Invalid("for", "want more than 0s")
		}
		p.Until = time.Now().Add(in.For.Std())
	}
	if in.Everywhere {
		if !c.Operator {
			return Pause{}, problem(CodeForbidden, "to pause every project takes an operator's key")
		}
		p.Project = ""
	}
	p, err := s.Backend.PutPause(c.r.Context(), p)
	if err != nil {
		return Pause{}, err
	}
	return showPause(p), nil
}

// PauseList lists pauses.
type PauseList struct {
	Pauses []Pause `json:"pauses" doc:"Those of the project, and those of every project."`
}

func (s *server) listPauses(c *call) (list PauseList, err error) {
	found, err := s.Backend.Pauses(c.r.Context(), c.Project)
	list.Pauses = make([]Pause, 0, len(found))
	for _, p := range found {
		list.Pauses = append(list.Pauses, showPause(p))
	}
	return list, err
}

func (s *server) deletePause(c *call) (nothing, error) {
	id, err := c.id("pause")
	if err != nil {
		return nothing{}, err
	}
	err = s.Backend.LiftPause(c.r.Context(), c.Project, id)
	if belfry.CodeOf(err) == belfry.CodeNotFound && c.Operator {
		err = s.Backend.LiftPause(c.r.Context(), "", id)
	}
	return nothing{}, err
}

// SuppressionRequest is an address never to be used.
type SuppressionRequest struct {
	Channel string        `json:"channel" doc:"The channel or medium."`
	Address belfry.Secret `json:"address" doc:"The address, token or URL."`
	Reason  string        `json:"reason,omitempty" enum:"manual,hard_bounce,complaint,stop" doc:"Why; absent: manual."`
}

// Unsuppression is an address that may be used again.
type Unsuppression struct {
	Channel string        `json:"channel" doc:"The channel or medium it was suppressed on."`
	Address belfry.Secret `json:"address" doc:"The address, token or URL."`
}

// Suppression is a suppressed address as it is shown: without the address.
type Suppression struct {
	Channel string    `json:"channel" doc:"The channel or medium."`
	Hint    string    `json:"hint" doc:"The end of the address, to tell it from others."`
	Reason  string    `json:"reason" doc:"Why."`
	At      time.Time `json:"at" doc:"Since when."`
}

func (s *server) putSuppression(c *call, in SuppressionRequest) (Withdrawn, error) {
	switch in.Reason {
	case "":
		in.Reason = "manual"
	case "manual", "hard_bounce", "complaint", "stop":
	default:
		return Withdrawn{}, belfry.Invalid("reason", "is not one of: manual hard_bounce complaint stop")
	}
	w, err := s.Backend.Suppress(c.r.Context(), belfry.Suppression{
		Project: c.Project, Channel: in.Channel, Address: in.Address, Reason: in.Reason, At: time.Now().UTC(),
	})
	return withdrawn(w), err
}

func (s *server) deleteSuppression(c *call, in Unsuppression) (nothing, error) {
	return nothing{}, s.Backend.Unsuppress(c.r.Context(), c.Project, in.Channel, in.Address)
}

// SuppressionList is a page of suppressed addresses.
type SuppressionList struct {
	Suppressions []Suppression `json:"suppressions" doc:"By address. A page may be longer than its limit by the channels of the last address."`
	Next         string        `json:"next,omitempty" doc:"The cursor of the next page, good until the server starts anew; absent on the last page."`
}

func (s *server) listSuppressions(c *call) (list SuppressionList, err error) {
	limit, err := c.limit()
	if err != nil {
		return list, err
	}
	after := ""
	if text := c.query.Get("cursor"); text != "" {
		if after, err = s.cursors.open(c.Project, text); err != nil {
			return list, err
		}
	}
	// The store goes on behind an address, so one that is suppressed on several channels must not be cut in two.
	const channels = 32
	found, err := s.Backend.Suppressions(c.r.Context(), c.Project, after, limit+channels)
	if err != nil {
		return list, err
	}
	n := min(limit, len(found))
	for n < len(found) && found[n].Address == found[n-1].Address {
		n++
	}
	list.Suppressions = make([]Suppression, 0, n)
	for _, x := range found[:n] {
		list.Suppressions = append(list.Suppressions, Suppression{x.Channel, x.Address.Hint(), x.Reason, x.At.UTC()})
	}
	if n < len(found) {
		list.Next = s.cursors.seal(c.Project, found[n-1].Address.Reveal())
	}
	return list, nil
}

// cursors seals what a list goes on from when that is an address, which no answer may show. The key lives as
// long as the process.
type cursors struct{ aead cipher.AEAD }

func newCursors() cursors {
	var key [32]byte
	_, _ = rand.Read(key[:])
	block, _ := aes.NewCipher(key[:])
	aead, _ := cipher.NewGCMWithRandomNonce(block)
	return cursors{aead}
}

func (c cursors) seal(project, text string) string {
	return base64.RawURLEncoding.EncodeToString(c.aead.Seal(nil, nil, []byte(text), []byte(project)))
}

func (c cursors) open(project, sealed string) (string, error) {
	raw, err := base64.RawURLEncoding.DecodeString(sealed)
	if err != nil {
		return "", errCursor
	}
	text, err := c.aead.Open(nil, nil, raw, []byte(project))
	if err != nil {
		return "", errCursor
	}
	return string(text), nil
}

// KeyRequest is an API key to be made.
type KeyRequest struct {
	Name       string   `json:"name,omitempty" doc:"What it is for, for whoever lists the keys."`
	Scopes     []string `json:"scopes" doc:"What it allows: some of send, read, admin."`
	Everywhere bool     `json:"everywhere,omitempty" doc:"true: for every project, and to make projects; for an operator."`
}

// Key is an API key as it is shown: without its secret.
type Key struct {
	ID        string    `json:"id" doc:"The key: the part of its text between the underscores."`
	Name      string    `json:"name,omitempty" doc:"What it is for."`
	Project   string    `json:"project" doc:"The project it belongs to; *: every one."`
	Scopes    []string  `json:"scopes" doc:"What it allows."`
	CreatedAt time.Time `json:"created_at" doc:"When it was made."`
	RevokedAt time.Time `json:"revoked_at,omitzero" doc:"Since when it is not good any more."`
}

// NewKey is an API key with its text.
type NewKey struct {
	Key
	Text string `json:"key" doc:"The key itself. It is not kept, so nobody can show it again."`
}

func showKey(k store.AccessKey) Key {
	return Key{k.ID, k.Name, k.Project, k.Scopes, k.CreatedAt.UTC(), utc(k.RevokedAt)}
}

func (s *server) postKey(c *call, in KeyRequest) (NewKey, error) {
	if err := access.CheckScopes("scopes", in.Scopes); err != nil {
		return NewKey{}, err
	}
	if in.Name != "" {
		if err := belfry.CheckName("name", in.Name); err != nil {
			return NewKey{}, err
		}
	}
	project := c.Project
	if in.Everywhere {
		if !c.Operator {
			return NewKey{}, problem(CodeForbidden, "to make a key for every project takes an operator's key")
		}
		project = access.EveryProject
	}
	text, k, err := s.Backend.CreateKey(c.r.Context(), project, in.Name, in.Scopes)
	if err != nil {
		return NewKey{}, err
	}
	s.Authenticator.Forget(k.ID)
	return NewKey{showKey(k), text}, nil
}

// KeyList lists API keys.
type KeyList struct {
	Keys []Key `json:"keys" doc:"Those of the project; for an operator also those of every project."`
}

func (s *server) listKeys(c *call) (list KeyList, err error) {
	found, err := s.Backend.Keys(c.r.Context(), c.Project)
	if err != nil {
		return list, err
	}
	if c.Operator {
		every, err := s.Backend.Keys(c.r.Context(), access.EveryProject)
		if err != nil {
			return list, err
		}
		found = append(found, every...)
	}
	list.Keys = make([]Key, 0, len(found))
	for _, k := range found {
		list.Keys = append(list.Keys, showKey(k))
	}
	return list, nil
}

func (s *server) deleteKey(c *call) (nothing, error) {
	id := c.r.PathValue("key")
	err := s.Backend.RevokeKey(c.r.Context(), c.Project, id)
	if belfry.CodeOf(err) == belfry.CodeNotFound && c.Operator {
		err = s.Backend.RevokeKey(c.r.Context(), access.EveryProject, id)
	}
	s.Authenticator.Forget(id)
	return nothing{}, err
}

// ProjectRequest is a project to be made.
type ProjectRequest struct {
	Name string `json:"name" doc:"1 to 64 of a-z, A-Z, 0-9, dot, dash and underscore."`
}

// ProjectList lists projects.
type ProjectList struct {
	Projects []string `json:"projects" doc:"Their names; default is always there."`
}

func (s *server) postProject(c *call, in ProjectRequest) (ProjectRequest, error) {
	if err := belfry.CheckSlug("name", in.Name); err != nil {
		return in, err
	}
	return in, s.Backend.PutProject(c.r.Context(), in.Name)
}

func (s *server) listProjects(c *call) (ProjectList, error) {
	names, err := s.Backend.Projects(c.r.Context())
	return ProjectList{listed(names)}, err
}
