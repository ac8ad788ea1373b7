package engine

import (
	"context"
	"time"

	"belfry"
	"belfry/store"
	"belfry/tzdb"
)

// PutRecipient makes or updates a recipient; what is empty keeps its old value.
func (e *Engine) PutRecipient(ctx context.Context, r belfry.Recipient) (belfry.Recipient, error) {
	now := e.now()
	if err := e.checkRecipient(&r, now); err != nil {
		return r, err
	}
	return e.store.PutRecipient(ctx, now, r)
}

func (e *Engine) checkRecipient(r *belfry.Recipient, now time.Time) error {
	if err := r.Check(); err != nil {
		return err
	}
	if r.Zone == "" {
		return nil
	}
	if _, err := tzdb.Load(r.Zone); err != nil {
		return atField("zone", err)
	}
	if r.ZoneAsOf.IsZero() {
		r.ZoneAsOf = now
	}
	return nil
}

func (e *Engine) Recipient(ctx context.Context, project, id string) (belfry.Recipient, error) {
	return e.store.Recipient(ctx, project, id)
}

// DeleteRecipient erases a recipient; what waits for it is dropped.
func (e *Engine) DeleteRecipient(ctx context.Context, project, id string) (store.Withdrawn, error) {
	return e.withdrew(e.store.DeleteRecipient(ctx, e.now(), project, id))
}

func (e *Engine) Preferences(ctx context.Context, project, recipient string) (belfry.Preferences, error) {
	if _, err := e.store.Recipient(ctx, project, recipient); err != nil {
		return nil, err
	}
	return e.store.Preferences(ctx, project, recipient)
}

// ChangePreferences applies the changes and withdraws what they forbid. What it answers is what held at
// the commit: nothing that it forbids is armed after it.
func (e *Engine) ChangePreferences(ctx context.Context, project, recipient string, changes []belfry.PreferenceChange, replace bool) (store.Withdrawn, error) {
	for _, c := range changes {
		if c.Category != "*" {
			if err := belfry.CheckSlug("category", c.Category); err != nil {
				return store.Withdrawn{}, err
			}
		}
		if c.Channel == "*" {
			continue
		}
		if err := belfry.CheckChannels(c.Category, []string{c.Channel}, e.names); err != nil {
			return store.Withdrawn{}, err
		}
	}
	return e.withdrew(e.store.ChangePreferences(ctx, e.now(), project, recipient, changes, replace))
}

// withdrew wakes the engine for what may go on now: the next channel of a route, the next about a subject.
func (e *Engine) withdrew(w store.Withdrawn, err error) (store.Withdrawn, error) {
	if w.Withdrawn > 0 {
		e.Wake()
	}
	return w, err
}

// Register makes an endpoint known.
func (e *Engine) Register(ctx context.Context, project string, r belfry.Registration) (store.Registered, error) {
	if err := e.checkRegistration(r); err != nil {
		return store.Registered{}, err
	}
	out, err := e.store.Register(ctx, e.now(), project, e.ids.next(), r)
	e.Wake() // what waited for the device's old token may have moved on
	return out, err
}

func (e *Engine) checkRegistration(r belfry.Registration) error {
	if err := r.Check(); err != nil {
		return err
	}
	c := e.channels[r.Channel]
	if c == nil {
		return &belfry.Error{Code: belfry.CodeUnknownChannel, Field: "channel", Detail: "no channel of this name is configured"}
	}
	return c.Check(r.Address, r.Keys)
}

func (e *Engine) Endpoints(ctx context.Context, project, recipient string) ([]belfry.Endpoint, error) {
	return e.store.Endpoints(ctx, project, recipient)
}

// Retire ends an endpoint; what waits for it is withdrawn.
func (e *Engine) Retire(ctx context.Context, project, recipient string, id belfry.ID) (store.Withdrawn, error) {
	return e.withdrew(e.store.Retire(ctx, e.now(), project, recipient, id, belfry.ReasonEndpointRetired))
}

// Suppress forbids an address; what waits for it is withdrawn.
func (e *Engine) Suppress(ctx context.Context, s belfry.Suppression) (store.Withdrawn, error) {
	if err := belfry.CheckChannels("channel", []string{s.Channel}, e.names); err != nil {
		return store.Withdrawn{}, err
	}
	if len(s.Address) == 0 || len(s.Address) > belfry.MaxAddress {
		return store.Withdrawn{}, belfry.Invalid("address", "want 1 to %d bytes", belfry.MaxAddress)
	}
	if s.Reason == "" {
		s.Reason = "manual"
	}
	s.At = e.now()
	return e.withdrew(e.store.Suppress(ctx, s))
}

func (e *Engine) Unsuppress(ctx context.Context, project, channel string, address belfry.Secret) error {
	return e.store.Unsuppress(ctx, project, channel, address)
}

func (e *Engine) Suppressions(ctx context.Context, project, after string, limit int) ([]belfry.Suppression, error) {
	return e.store.Suppressions(ctx, project, after, limit)
}

func (e *Engine) Marks(ctx context.Context, project, recipient, category, subject string) ([]store.Mark, error) {
	return e.store.Marks(ctx, project, recipient, category, subject)
}
