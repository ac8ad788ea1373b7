package postgres

import (
	"context"
	"encoding/json"

	"belfry"
	"belfry/store"
)

func (s *Store) Facts(ctx context.Context, items []store.Item) (facts []belfry.Facts, err error) {
	err = s.view(ctx, func(tx *txn) error {
		facts, err = tx.facts(items)
		return err
	})
	return facts, err
}

// facts reads set by set: one query for the recipients of all items, one for their endpoints, and so on.
func (tx *txn) facts(items []store.Item) ([]belfry.Facts, error) {
	facts := make([]belfry.Facts, len(items))
	byProject := map[string][]int{}
	for i, it := range items {
		byProject[it.Notification.Project] = append(byProject[it.Notification.Project], i)
	}
	for project, at := range byProject {
		if err := tx.projectFacts(project, items, at, facts); err != nil {
			return nil, err
		}
	}
	return facts, nil
}

func (tx *txn) projectFacts(project string, items []store.Item, at []int, facts []belfry.Facts) error {
	ids := make([]string, 0, len(at))
	of := map[string][]int{} // recipient → indexes of items
	categories := map[string]*belfry.Category{}
	for _, i := range at {
		n := items[i].Notification
		if of[n.Recipient] == nil {
			ids = append(ids, n.Recipient)
		}
		of[n.Recipient] = append(of[n.Recipient], i)
		c, known := categories[n.Category]
		if !known {
			var err error
			if c, err = tx.resolvedCategory(project, n.Category); err != nil {
				return err
			}
			categories[n.Category] = c
		}
		facts[i].Category = c
	}
	err := tx.peekEach(`SELECT r.id, r.zone, r.zone_source, r.zone_as_of, r.locale, r.attributes, r.created_at, r.updated_at FROM recipient r WHERE r.project = $1 AND r.id = ANY ($2::text[])`,
		func(scan func(...any) error) error {
			r := belfry.Recipient{Project: project}
			var attributes *string
			var asOf, created, updated int64
			if err := scan(&r.ID, &r.Zone, &r.ZoneSource, &asOf, &r.Locale, &attributes, &created, &updated); err != nil {
				return err
			}
			r.ZoneAsOf, r.Attributes, r.CreatedAt, r.UpdatedAt = instant(asOf), raw(attributes), instant(created), instant(updated)
			for _, i := range of[r.ID] {
				facts[i].Recipient = &r
			}
			return nil
		}, project, ids)
	if err != nil {
		return err
	}
	var addresses []string
	err = tx.peekEach(`SELECT `+endpointColumns+` FROM endpoint e WHERE e.project = $1 AND e.recipient = ANY ($2::text[]) AND e.retired_at = 0 ORDER BY e.id`,
		func(scan func(...any) error) error {
			var e belfry.Endpoint
			if err := scanEndpoint(scan, &e); err != nil {
				return err
			}
			for _, i := range of[e.Recipient] {
				facts[i].Endpoints = append(facts[i].Endpoints, e)
			}
			addresses = append(addresses, e.Address.Reveal())
			return nil
		}, project, ids)
	if err != nil {
		return err
	}
	err = tx.peekEach(`SELECT p.recipient, p.category, p.channel, p.is_on FROM preference p WHERE p.project = $1 AND p.recipient = ANY ($2::text[])`,
		func(scan func(...any) error) error {
			var who, category, channel string
			var on bool
			if err := scan(&who, &category, &channel, &on); err != nil {
				return err
			}
			var p belfry.Preferences
			for _, i := range of[who] {
				if p == nil {
					if p = facts[i].Preferences; p == nil {
						p = belfry.Preferences{}
					}
				}
				facts[i].Preferences = p
			}
			if p[category] == nil {
				p[category] = map[string]bool{}
			}
			p[category][channel] = on
			return nil
		}, project, ids)
	if err != nil {
		return err
	}
	for _, i := range at {
		for _, t := range items[i].Notification.To {
			addresses = append(addresses, t.Address.Reveal())
		}
	}
	suppressed, err := tx.suppressed(project, addresses)
	if err != nil {
		return err
	}
	pauses, err := tx.pauses(project)
	if err != nil {
		return err
	}
	for _, i := range at {
		facts[i].Suppressed, facts[i].Pauses = suppressed, pauses
	}
	return tx.marks(project, items, at, facts)
}

// marks reads what was last sent about each item's subject.
func (tx *txn) marks(project string, items []store.Item, at []int, facts []belfry.Facts) error {
	who, categories, subjects := make([]string, len(at)), make([]string, len(at)), make([]string, len(at))
	for j, i := range at {
		n := items[i].Notification
		who[j], categories[j], subjects[j] = n.Recipient, n.Category, n.Subject
	}
	return tx.each(`SELECT j.i - 1, m.at, m.data, m.notification FROM unnest($2::text[], $3::text[], $4::text[]) WITH ORDINALITY AS j (recipient, category, subject, i)
JOIN mark m ON m.project = $1 AND m.recipient = j.recipient AND m.category = j.category AND m.subject = j.subject`,
		func(scan func(...any) error) error {
			var j int
			var sent int64
			var data *string
			m := new(belfry.Mark)
			if err := scan(&j, &sent, &data, &m.Notification); err != nil {
				return err
			}
			m.At, m.Data = instant(sent), raw(data)
			facts[at[j]].Mark = m
			return nil
		}, project, who, categories, subjects)
}

// suppressed is what touches one of the addresses.
func (tx *txn) suppressed(project string, addresses []string) (out []belfry.Suppression, err error) {
	if len(addresses) == 0 {
		return nil, nil
	}
	keys := make([][]byte, len(addresses))
	for i, a := range addresses {
		keys[i] = half(a)
	}
	err = tx.peekEach(`SELECT s.channel, s.address, s.reason, s.at FROM suppression s WHERE s.project = $1 AND s.address_key = ANY ($2::bytea[])`,
		func(scan func(...any) error) error {
			s := belfry.Suppression{Project: project}
			var address string
			var at int64
			err := scan(&s.Channel, &address, &s.Reason, &at)
			s.Address, s.At = belfry.Secret(address), instant(at)
			out = append(out, s)
			return err
		}, project, keys)
	return out, err
}

func (tx *txn) resolvedCategory(project, name string) (*belfry.Category, error) {
	c, ok, err := tx.category(project, name)
	if !ok || err != nil {
		return nil, err
	}
	c = c.Resolved()
	return &c, nil
}

func (tx *txn) category(project, name string) (c belfry.Category, ok bool, err error) {
	var policy string
	ok, err = tx.peek(`SELECT policy FROM category WHERE project = $1 AND name = $2`, []any{project, name}, &policy)
	if !ok && err == nil && name == "default" {
		return belfry.DefaultCategory(project), true, nil
	}
	if ok {
		err = json.Unmarshal([]byte(policy), &c)
		c.Project, c.Name = project, name
	}
	return c, ok, err
}
