package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"slices"
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

// facts reads what bears on each item; what several of them share is read once.
func (tx *txn) facts(items []store.Item) ([]belfry.Facts, error) {
	r := reading{tx: tx, projects: map[string]*projectFacts{}, people: map[person]*personFacts{}}
	facts := make([]belfry.Facts, len(items))
	for i := range items {
		if err := r.item(&items[i].Notification, &facts[i]); err != nil {
			return nil, err
		}
	}
	return facts, nil
}

// reading is one call of facts on its way.
type reading struct {
	tx       *txn
	projects map[string]*projectFacts
	people   map[person]*personFacts
}

type projectFacts struct {
	categories map[string]*belfry.Category
	pauses     []belfry.Pause
	suppresses bool // there are suppressions
}

type personFacts struct {
	recipient   *belfry.Recipient
	endpoints   []belfry.Endpoint
	preferences belfry.Preferences
	suppressed  []belfry.Suppression
}

func (r *reading) item(n *belfry.Notification, f *belfry.Facts) error {
	project, err := r.project(n.Project)
	if err != nil {
		return err
	}
	c, known := project.categories[n.Category]
	if !known {
		if c, err = r.tx.resolvedCategory(n.Project, n.Category); err != nil {
			return err
		}
		project.categories[n.Category] = c
	}
	who, err := r.person(project, person{n.Project, n.Recipient})
	if err != nil {
		return err
	}
	f.Category, f.Pauses = c, project.pauses
	f.Recipient, f.Endpoints, f.Preferences, f.Suppressed = who.recipient, slices.Clip(who.endpoints), who.preferences, slices.Clip(who.suppressed)
	if project.suppresses {
		for _, t := range n.To {
			if f.Suppressed, err = r.tx.suppressed(f.Suppressed, n.Project, t.Address); err != nil {
				return err
			}
		}
	}
	f.Mark, err = r.tx.mark(n)
	return err
}

func (r *reading) project(name string) (*projectFacts, error) {
	if p := r.projects[name]; p != nil {
		return p, nil
	}
	p := &projectFacts{categories: map[string]*belfry.Category{}}
	r.projects[name] = p
	var one int
	var err error
	if p.suppresses, err = r.tx.peek(`SELECT 1 FROM suppression WHERE project = ? LIMIT 1`, []any{name}, &one); err != nil {
		return nil, err
	}
	p.pauses, err = r.tx.pauses(name)
	return p, err
}

func (r *reading) person(project *projectFacts, id person) (*personFacts, error) {
	if p := r.people[id]; p != nil {
		return p, nil
	}
	p := &personFacts{}
	r.people[id] = p
	who, ok, err := r.tx.recipient(id.project, id.id)
	if err != nil {
		return nil, err
	}
	if ok {
		p.recipient = &who
	}
	if p.endpoints, err = r.tx.endpoints(`e.project = ? AND e.recipient = ? AND e.retired_at = 0`, id.project, id.id); err != nil {
		return nil, err
	}
	if p.preferences, err = r.tx.preferences(id.project, id.id); err != nil {
		return nil, err
	}
	if project.suppresses {
		for _, e := range p.endpoints {
			if p.suppressed, err = r.tx.suppressed(p.suppressed, id.project, e.Address); err != nil {
				return nil, err
			}
		}
	}
	return p, nil
}

// suppressed adds what touches an address.
func (tx *txn) suppressed(out []belfry.Suppression, project string, address belfry.Secret) ([]belfry.Suppression, error) {
	err := tx.peekEach(`SELECT channel, reason, at FROM suppression WHERE project = ? AND address = ?`, func(scan func(...any) error) error {
		s := belfry.Suppression{Project: project, Address: address}
		var at int64
		err := scan(&s.Channel, &s.Reason, &at)
		s.At = instant(at)
		out = append(out, s)
		return err
	}, project, address.Reveal())
	return out, err
}

// mark is what was last sent about a notification's subject; nil when nothing was.
func (tx *txn) mark(n *belfry.Notification) (*belfry.Mark, error) {
	var at int64
	var data sql.NullString
	var m belfry.Mark
	ok, err := tx.one(`SELECT at, data, notification FROM mark WHERE project = ? AND recipient = ? AND category = ? AND subject = ?`,
		[]any{n.Project, n.Recipient, n.Category, n.Subject}, &at, &data, &m.Notification)
	if !ok || err != nil {
		return nil, err
	}
	m.At, m.Data = instant(at), raw(data)
	return &m, nil
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
