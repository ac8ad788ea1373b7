package postgres

import (
	"cmp"
	"context"
	"time"

	"belfry"
	"belfry/store"
)

func (s *Store) PutRecipient(ctx context.Context, now time.Time, r belfry.Recipient) (out belfry.Recipient, err error) {
	err = s.do(ctx, durable, func(tx *txn) error {
		l := locks{}
		l.change(r.Project, r.ID)
		if err := tx.take(l); err != nil {
			return err
		}
		out, err = tx.mergeRecipient(now, r)
		return err
	})
	return out, err
}

// mergeRecipient makes a recipient, or changes what is said of it: what is empty stays.
func (tx *txn) mergeRecipient(now time.Time, r belfry.Recipient) (belfry.Recipient, error) {
	old, ok, err := tx.recipient(r.Project, r.ID)
	if err != nil {
		return r, err
	}
	r.CreatedAt, r.UpdatedAt = now, now
	if ok {
		if r.CreatedAt = old.CreatedAt; r.Zone == "" {
			r.Zone, r.ZoneSource, r.ZoneAsOf = old.Zone, old.ZoneSource, old.ZoneAsOf
		}
		r.Locale = cmp.Or(r.Locale, old.Locale)
		if len(r.Attributes) == 0 {
			r.Attributes = old.Attributes
		}
	}
	return r, tx.exec(`INSERT INTO recipient (project, id, zone, zone_source, zone_as_of, locale, attributes, created_at, updated_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
ON CONFLICT (project, id) DO UPDATE SET zone = $3, zone_source = $4, zone_as_of = $5, locale = $6, attributes = $7, updated_at = $9`,
		r.Project, r.ID, r.Zone, r.ZoneSource, micros(r.ZoneAsOf), r.Locale, text(r.Attributes), micros(r.CreatedAt), micros(r.UpdatedAt))
}

func (tx *txn) recipient(project, id string) (r belfry.Recipient, ok bool, err error) {
	var asOf, created, updated int64
	var attributes *string
	r.Project, r.ID = project, id
	ok, err = tx.peek(`SELECT zone, zone_source, zone_as_of, locale, attributes, created_at, updated_at FROM recipient WHERE project = $1 AND id = $2`,
		[]any{project, id}, &r.Zone, &r.ZoneSource, &asOf, &r.Locale, &attributes, &created, &updated)
	r.ZoneAsOf, r.CreatedAt, r.UpdatedAt, r.Attributes = instant(asOf), instant(created), instant(updated), raw(attributes)
	return r, ok, err
}

func (s *Store) Recipient(ctx context.Context, project, id string) (r belfry.Recipient, err error) {
	err = s.view(ctx, func(tx *txn) error {
		var ok bool
		if r, ok, err = tx.recipient(project, id); err == nil && !ok {
			return orNotFound(nil, "recipient")
		}
		return err
	})
	return r, err
}

func (s *Store) DeleteRecipient(ctx context.Context, now time.Time, project, id string) (out store.Withdrawn, err error) {
	err = s.do(ctx, durable, func(tx *txn) error {
		out, err = tx.deleteRecipient(now, project, id)
		return err
	})
	return out, err
}

// erasures overwrite or delete what is personal. Ids, times and outcomes stay.
var erasures = []string{
	`DELETE FROM recipient WHERE project = $1 AND id = $2`,
	`DELETE FROM preference WHERE project = $1 AND recipient = $2`,
	`DELETE FROM consent_log WHERE project = $1 AND recipient = $2`,
	`DELETE FROM endpoint WHERE project = $1 AND recipient = $2`,
	`DELETE FROM mark WHERE project = $1 AND recipient = $2`,
}

func (tx *txn) deleteRecipient(now time.Time, project, id string) (out store.Withdrawn, err error) {
	l := locks{}
	l.change(project, id)
	if err := tx.take(l); err != nil {
		return out, err
	}
	if _, ok, err := tx.recipient(project, id); err != nil || !ok {
		return out, orNotFound(err, "recipient")
	}
	for _, statement := range erasures {
		if err := tx.exec(statement, project, id); err != nil {
			return out, err
		}
	}
	ids, _, err := tx.open(store.Filter{Project: project, Recipient: id}, true, 1<<30)
	if err != nil {
		return out, err
	}
	open, err := tx.pieces(ids)
	if err != nil {
		return out, err
	}
	if err := tx.loadFanouts(ids); err != nil {
		return out, err
	}
	for _, nid := range ids {
		if f := tx.fanouts[nid]; f.Next { // nobody is there for a next channel
			f.Next = false
			tx.setFanout(nid, f)
		}
	}
	for _, nid := range ids {
		o := open[nid]
		for _, p := range o.pieces {
			if err := tx.erasePiece(o.n, p, now, &out); err != nil {
				return out, err
			}
		}
	}
	if err := tx.eraseClaimed(project, id); err != nil {
		return out, err
	}
	err = tx.exec(`UPDATE delivery SET payload = NULL WHERE id IN (SELECT id FROM notification WHERE project = $1 AND recipient = $2) AND payload IS NOT NULL`, project, id)
	if err != nil {
		return out, err
	}
	return out, tx.exec(`UPDATE notification SET data = NULL, targets = NULL, erased = true WHERE project = $1 AND recipient = $2`, project, id)
}

func (s *Store) Preferences(ctx context.Context, project, recipient string) (p belfry.Preferences, err error) {
	err = s.view(ctx, func(tx *txn) error {
		p = belfry.Preferences{}
		return tx.each(`SELECT category, channel, is_on FROM preference WHERE project = $1 AND recipient = $2`, func(scan func(...any) error) error {
			var category, channel string
			var on bool
			if err := scan(&category, &channel, &on); err != nil {
				return err
			}
			if p[category] == nil {
				p[category] = map[string]bool{}
			}
			p[category][channel] = on
			return nil
		}, project, recipient)
	})
	return p, err
}

func (s *Store) ChangePreferences(ctx context.Context, now time.Time, project, recipient string, changes []belfry.PreferenceChange, replace bool) (out store.Withdrawn, err error) {
	err = s.do(ctx, durable, func(tx *txn) error {
		out, err = tx.changePreferences(now, project, recipient, changes, replace)
		return err
	})
	return out, err
}

func (tx *txn) changePreferences(now time.Time, project, recipient string, changes []belfry.PreferenceChange, replace bool) (out store.Withdrawn, err error) {
	l := locks{}
	l.change(project, recipient)
	if err := tx.take(l); err != nil {
		return out, err
	}
	if _, ok, err := tx.recipient(project, recipient); err != nil || !ok {
		return out, orNotFound(err, "recipient")
	}
	if replace {
		err := tx.exec(`INSERT INTO consent_log (project, recipient, category, channel, is_on, source, at)
SELECT project, recipient, category, channel, NULL, 'replaced', $3 FROM preference WHERE project = $1 AND recipient = $2`, project, recipient, micros(now))
		if err != nil {
			return out, err
		}
		if err := tx.exec(`DELETE FROM preference WHERE project = $1 AND recipient = $2`, project, recipient); err != nil {
			return out, err
		}
	}
	for _, c := range changes {
		var on any
		if c.On == nil {
			err = tx.exec(`DELETE FROM preference WHERE project = $1 AND recipient = $2 AND category = $3 AND channel = $4`, project, recipient, c.Category, c.Channel)
		} else {
			on = *c.On
			err = tx.exec(`INSERT INTO preference (project, recipient, category, channel, is_on, source, at) VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (project, recipient, category, channel) DO UPDATE SET is_on = excluded.is_on, source = excluded.source, at = excluded.at`,
				project, recipient, c.Category, c.Channel, on, c.Source, micros(now))
		}
		if err != nil {
			return out, err
		}
		err = tx.exec(`INSERT INTO consent_log (project, recipient, category, channel, is_on, source, at) VALUES ($1, $2, $3, $4, $5, $6, $7)`,
			project, recipient, c.Category, c.Channel, on, c.Source, micros(now))
		if err != nil {
			return out, err
		}
	}
	return tx.withdraw(now, project, recipient)
}

func (s *Store) Marks(ctx context.Context, project, recipient, category, subject string) (marks []store.Mark, err error) {
	err = s.view(ctx, func(tx *txn) error {
		marks = nil
		return tx.each(`SELECT category, subject, at, data, notification FROM mark WHERE project = $1 AND recipient = $2
AND ($3 = '' OR category = $3) AND ($4 = '' OR subject = $4) ORDER BY category, subject`, func(scan func(...any) error) error {
			var m store.Mark
			var at int64
			var data *string
			err := scan(&m.Category, &m.Subject, &at, &data, &m.Notification)
			m.At, m.Data = instant(at), raw(data)
			marks = append(marks, m)
			return err
		}, project, recipient, category, subject)
	})
	return marks, err
}

// erasePiece drops what waits for a recipient that is gone.
func (tx *txn) erasePiece(n belfry.Notification, p piece, now time.Time, out *store.Withdrawn) error {
	if p.delivery == nil {
		out.Withdrawn++
		tx.event(n.ID, store.Event{At: now, Kind: store.EventWithdrawn, Reason: belfry.ReasonRecipientGone})
		if err := tx.remove(n, p); err != nil {
			return err
		}
		return tx.endPlan(n, belfry.Dropped, belfry.ReasonRecipientGone, now)
	}
	d, ok := p.delivery.Withdraw(belfry.ReasonRecipientGone)
	if !ok {
		out.InFlight = append(out.InFlight, d.ID)
		return nil
	}
	out.Withdrawn++
	tx.event(n.ID, store.Event{At: now, N: d.ID.N, Kind: store.EventWithdrawn, Reason: belfry.ReasonRecipientGone})
	return tx.move(n, place{d: *p.delivery, claim: p.claim}, d, now)
}

// eraseClaimed wipes what claims hold of a recipient that is gone. What is on the wire stays held.
func (tx *txn) eraseClaimed(project, recipient string) error {
	claims, err := tx.load(claimsByWhom, []int64{hash(project, recipient)})
	if err != nil {
		return err
	}
	for _, c := range claims {
		h := tx.claims[c]
		if h == nil {
			continue
		}
		for i, it := range h.items {
			if n := it.Notification; n.Project != project || n.Recipient != recipient {
				continue
			}
			item := it.Item
			if item.Delivery != nil {
				d := *item.Delivery
				d.Payload = nil
				item.Delivery = &d
			}
			h = h.copy()
			h.items[i] = newHeldItem(item, it.home, true)
			tx.setClaim(c, h)
		}
	}
	return nil
}
