package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"sync"

	"belfry"
	"belfry/store"
)

func (s *Store) Facts(ctx context.Context, items []store.Item) (facts []belfry.Facts, err error) {
	st := s.facts.stamp(s)
	err = s.view(ctx, func(tx *txn) error {
		facts, err = tx.facts(items)
		return err
	})
	if err == nil {
		s.facts.put(st, items, facts)
	}
	return facts, err
}

// factCache spares Arm the second reading of what Facts read a moment ago, when nothing that Facts reads
// was changed in between: by this store (intent) or by another connection (data_version).
type factCache struct {
	mu      sync.Mutex
	version int64 // data_version as the writer last saw it
	read    map[belfry.ID]stampedFacts
}

type stamp struct {
	intent  uint64
	version int64
}

type stampedFacts struct {
	stamp
	belfry.Facts
}

const maxFacts = 20_000 // entries; a claim that is never armed leaves its own behind

func (c *factCache) init() { c.read = map[belfry.ID]stampedFacts{} }

func (c *factCache) stamp(s *Store) stamp {
	c.mu.Lock()
	defer c.mu.Unlock()
	return stamp{s.intent.Load(), c.version}
}

func (c *factCache) put(st stamp, items []store.Item, facts []belfry.Facts) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.read) > maxFacts {
		clear(c.read)
	}
	for i, it := range items {
		c.read[it.Notification.ID] = stampedFacts{st, facts[i]}
	}
}

// take returns the facts of all items, or nil when some may have changed since they were read.
func (c *factCache) take(now stamp, items []store.Item) []belfry.Facts {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.version = now.version
	facts := make([]belfry.Facts, len(items))
	fresh := true
	for i, it := range items {
		f, ok := c.read[it.Notification.ID]
		// A mark moves with every send: a category that looks at it reads it again.
		fresh = fresh && ok && f.stamp == now && (f.Category == nil || f.Category.Cooldown == 0)
		facts[i] = f.Facts
	}
	for _, it := range items {
		delete(c.read, it.Notification.ID)
	}
	if !fresh {
		return nil
	}
	return facts
}

// factsNow is what bears on the items as this transaction sees it.
func (tx *txn) factsNow(items []store.Item) ([]belfry.Facts, error) {
	var version int64
	if _, err := tx.peek(`PRAGMA data_version`, nil, &version); err != nil {
		return nil, err
	}
	facts := tx.s.facts.take(stamp{tx.s.intent.Load(), version}, items)
	if facts != nil && !tx.intent {
		return facts, nil
	}
	return tx.facts(items)
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
	people := list(ids)
	err := tx.peekEach(`SELECT r.id, r.zone, r.zone_source, r.zone_as_of, r.locale, r.attributes, r.created_at, r.updated_at FROM json_each(?2) j CROSS JOIN recipient r WHERE r.project = ?1 AND r.id = j.value`,
		func(scan func(...any) error) error {
			r := belfry.Recipient{Project: project}
			var attributes sql.NullString
			var asOf, created, updated int64
			if err := scan(&r.ID, &r.Zone, &r.ZoneSource, &asOf, &r.Locale, &attributes, &created, &updated); err != nil {
				return err
			}
			r.ZoneAsOf, r.Attributes, r.CreatedAt, r.UpdatedAt = instant(asOf), raw(attributes), instant(created), instant(updated)
			for _, i := range of[r.ID] {
				facts[i].Recipient = &r
			}
			return nil
		}, project, people)
	if err != nil {
		return err
	}
	var addresses []string
	err = tx.peekEach(`SELECT `+endpointColumns+` FROM json_each(?2) j CROSS JOIN endpoint e WHERE e.project = ?1 AND e.recipient = j.value AND e.retired_at = 0 ORDER BY e.id`,
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
		}, project, people)
	if err != nil {
		return err
	}
	err = tx.peekEach(`SELECT p.recipient, p.category, p.channel, p.is_on FROM json_each(?2) j CROSS JOIN preference p WHERE p.project = ?1 AND p.recipient = j.value`,
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
		}, project, people)
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
	keys := make([][3]string, len(at))
	for j, i := range at {
		n := items[i].Notification
		keys[j] = [3]string{n.Recipient, n.Category, n.Subject}
	}
	return tx.each(`SELECT j.key, m.at, m.data, m.notification FROM json_each(?2) j CROSS JOIN mark m
WHERE m.project = ?1 AND m.recipient = j.value ->> 0 AND m.category = j.value ->> 1 AND m.subject = j.value ->> 2`,
		func(scan func(...any) error) error {
			var j int
			var sent int64
			var data sql.NullString
			m := new(belfry.Mark)
			if err := scan(&j, &sent, &data, &m.Notification); err != nil {
				return err
			}
			m.At, m.Data = instant(sent), raw(data)
			facts[at[j]].Mark = m
			return nil
		}, project, list(keys))
}

// suppressed is what touches one of the addresses; the table is empty for most.
func (tx *txn) suppressed(project string, addresses []string) (out []belfry.Suppression, err error) {
	var one int
	if ok, err := tx.peek(`SELECT 1 FROM suppression LIMIT 1`, nil, &one); err != nil || !ok || len(addresses) == 0 {
		return nil, err
	}
	err = tx.peekEach(`SELECT s.channel, s.address, s.reason, s.at FROM json_each(?2) j CROSS JOIN suppression s WHERE s.project = ?1 AND s.address = j.value`,
		func(scan func(...any) error) error {
			s := belfry.Suppression{Project: project}
			var address string
			var at int64
			err := scan(&s.Channel, &address, &s.Reason, &at)
			s.Address, s.At = belfry.Secret(address), instant(at)
			out = append(out, s)
			return err
		}, project, list(addresses))
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
	ok, err = tx.peek(`SELECT policy FROM category WHERE project = ? AND name = ?`, []any{project, name}, &policy)
	if !ok && err == nil && name == "default" {
		return belfry.DefaultCategory(project), true, nil
	}
	if ok {
		err = json.Unmarshal([]byte(policy), &c)
		c.Project, c.Name = project, name
	}
	return c, ok, err
}
