package mapstore

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"belfry"
	"belfry/store"
)

func (s *Store) PutRecipient(ctx context.Context, now time.Time, r belfry.Recipient) (out belfry.Recipient, err error) {
	err = s.tx(ctx, func() error {
		out = s.putRecipient(now, r)
		return nil
	})
	return out, err
}

// putRecipient makes or updates a recipient: what is empty keeps its old value.
func (s *Store) putRecipient(now time.Time, r belfry.Recipient) belfry.Recipient {
	key := named{r.Project, r.ID}
	r.CreatedAt, r.UpdatedAt = now, now
	if old, ok := s.recipients.get(key); ok {
		r.CreatedAt = old.CreatedAt
		if r.Zone == "" {
			r.Zone, r.ZoneSource, r.ZoneAsOf = old.Zone, old.ZoneSource, old.ZoneAsOf
		}
		r.Locale = cmp.Or(r.Locale, old.Locale)
		if len(r.Attributes) == 0 {
			r.Attributes = old.Attributes
		}
	}
	s.recipients.put(key, r)
	return r
}

func (s *Store) Recipient(ctx context.Context, project, id string) (out belfry.Recipient, err error) {
	err = s.tx(ctx, func() error {
		var ok bool
		if out, ok = s.recipients.get(named{project, id}); !ok {
			return notFound("recipient")
		}
		return nil
	})
	return out, err
}

func (s *Store) DeleteRecipient(ctx context.Context, now time.Time, project, id string) (w store.Withdrawn, err error) {
	err = s.tx(ctx, func() error {
		key := named{project, id}
		if _, ok := s.recipients.get(key); !ok {
			return notFound("recipient")
		}
		s.recipients.drop(key)
		s.preferences.drop(key)
		for _, r := range s.notificationsOf(project, id) {
			r.erased = true
			s.rows.put(r.ID, r)
			if r.state == "" && !r.planned {
				s.event(r.ID, store.Event{At: now, Kind: store.EventWithdrawn, Reason: belfry.ReasonRecipientGone})
				s.endPlan(r.ID, belfry.Dropped, belfry.ReasonRecipientGone, now)
				w.Withdrawn++
			}
		}
		for _, d := range s.deliveries.where(isOpen, byNumber) {
			if r, _ := s.rows.get(d.ID.Notification); r.Project == project && r.Recipient == id {
				s.withdrawOne(&w, d.Delivery, belfry.ReasonRecipientGone, now)
			}
		}
		if !s.is(ErasureLeavesTheData) {
			s.erase(project, id)
		}
		return nil
	})
	return w, err
}

func (s *Store) notificationsOf(project, recipient string) []row {
	return s.rows.where(func(r row) bool { return r.Project == project && r.Recipient == recipient }, byID)
}

// erase forgets everything personal about a recipient.
func (s *Store) erase(project, id string) {
	for _, r := range s.notificationsOf(project, id) {
		s.wipe(r.ID)
		r, _ := s.rows.get(r.ID)
		r.To = nil
		s.rows.put(r.ID, r)
	}
	for _, e := range s.endpoints.where(func(e belfry.Endpoint) bool { return e.Project == project && e.Recipient == id }, endpointOrder) {
		s.endpoints.drop(e.ID)
	}
	for key := range s.marks.rows {
		if key.project == project && key.recipient == id {
			s.marks.drop(key)
		}
	}
}

func (s *Store) Preferences(ctx context.Context, project, recipient string) (out belfry.Preferences, err error) {
	err = s.tx(ctx, func() error {
		p, _ := s.preferences.get(named{project, recipient})
		out = copyOf(p)
		return nil
	})
	return out, err
}

func (s *Store) ChangePreferences(ctx context.Context, now time.Time, project, recipient string, changes []belfry.PreferenceChange, replace bool) (w store.Withdrawn, err error) {
	err = s.tx(ctx, func() error {
		key := named{project, recipient}
		if _, ok := s.recipients.get(key); !ok {
			return notFound("recipient")
		}
		p := belfry.Preferences{}
		if !replace {
			old, _ := s.preferences.get(key)
			p = copyOf(old)
		}
		for _, c := range changes {
			switch switches := p[c.Category]; {
			case c.On == nil:
				if delete(switches, c.Channel); len(switches) == 0 {
					delete(p, c.Category)
				}
			case switches == nil:
				p[c.Category] = map[string]bool{c.Channel: *c.On}
			default:
				switches[c.Channel] = *c.On
			}
		}
		s.preferences.put(key, p)
		w = s.withdraw(now, project, recipient)
		return nil
	})
	return w, err
}

func copyOf(p belfry.Preferences) belfry.Preferences {
	c := belfry.Preferences{}
	for category, switches := range p {
		c[category] = maps.Clone(switches)
	}
	return c
}

// intents are what a change of intent withdraws for. The others are for arm to see.
var intents = []belfry.Reason{belfry.ReasonOptedOut, belfry.ReasonSuppressed, belfry.ReasonEndpointRetired, belfry.ReasonRecipientGone}

// withdraw ends the open deliveries of a recipient that its intent speaks against now, and lists those that
// it came too late for.
func (s *Store) withdraw(now time.Time, project, recipient string) (w store.Withdrawn) {
	for _, d := range s.deliveries.where(isOpen, byNumber) {
		r, _ := s.rows.get(d.ID.Notification)
		if r.Project != project || r.Recipient != recipient {
			continue
		}
		f := s.bearing(r.Notification)
		why := f.Forbids(r.Notification, d.Delivery, f.EndpointOf(r.Notification, d.Delivery), now)
		if !slices.Contains(intents, why) || s.leaves(why) {
			continue
		}
		s.withdrawOne(&w, d.Delivery, why, now)
	}
	return w
}

func byNumber(a, b delivery) int { return compareItems(item(a.ID), item(b.ID)) }

func (s *Store) withdrawOne(w *store.Withdrawn, d belfry.Delivery, why belfry.Reason, now time.Time) {
	after, ok := d.Withdraw(why)
	if !ok {
		w.InFlight = append(w.InFlight, d.ID)
		return
	}
	w.Withdrawn++
	s.move(after, now)
	s.event(d.ID.Notification, store.Event{At: now, N: d.ID.N, Kind: store.EventWithdrawn, Reason: why})
	s.resolve(d.ID.Notification, now)
}

func (s *Store) Suppress(ctx context.Context, x belfry.Suppression) (w store.Withdrawn, err error) {
	err = s.tx(ctx, func() error {
		s.suppressions.put(addressed{x.Project, x.Channel, x.Address}, x)
		for _, recipient := range s.whoHas(x.Project, x.Address) {
			more := s.withdraw(x.At, x.Project, recipient)
			w.Withdrawn += more.Withdrawn
			w.InFlight = append(w.InFlight, more.InFlight...)
		}
		return nil
	})
	return w, err
}

// whoHas lists the recipients that have, or had, an address, or have something on its way there.
func (s *Store) whoHas(project string, address belfry.Secret) []string {
	who := map[string]bool{}
	for _, e := range s.endpoints.rows {
		if e.Project == project && e.Address == address {
			who[e.Recipient] = true
		}
	}
	for _, d := range s.deliveries.where(isOpen, byNumber) {
		r, _ := s.rows.get(d.ID.Notification)
		if r.Project == project && slices.ContainsFunc(r.To, func(t belfry.Target) bool { return t.Address == address }) {
			who[r.Recipient] = true
		}
	}
	return slices.Sorted(maps.Keys(who))
}

func (s *Store) Unsuppress(ctx context.Context, project, channel string, address belfry.Secret) error {
	return s.tx(ctx, func() error {
		key := addressed{project, channel, address}
		if _, ok := s.suppressions.get(key); !ok {
			return notFound("suppression")
		}
		s.suppressions.drop(key)
		return nil
	})
}

func (s *Store) Suppressions(ctx context.Context, project string, after string, limit int) (list []belfry.Suppression, err error) {
	err = s.tx(ctx, func() error {
		list = s.suppressions.where(func(x belfry.Suppression) bool { return x.Project == project && x.Address.Reveal() > after }, suppressionOrder)
		list = list[:min(limit, len(list))]
		return nil
	})
	return list, err
}

func (s *Store) Marks(ctx context.Context, project, recipient, category, about string) (list []store.Mark, err error) {
	err = s.tx(ctx, func() error {
		for key, m := range s.marks.rows {
			if (key.project == project || s.is(ReadsIgnoreTheProject)) && key.recipient == recipient && (category == "" || key.category == category) && (about == "" || key.subject == about) {
				list = append(list, m)
			}
		}
		slices.SortFunc(list, func(a, b store.Mark) int {
			return cmp.Or(cmp.Compare(a.Category, b.Category), cmp.Compare(a.Subject, b.Subject))
		})
		return nil
	})
	return list, err
}
