package postgres

import (
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"time"

	"belfry"
	"belfry/store"
)

// held is a claim as the table has it: exactly the items its worker holds. It is never changed, only
// replaced, so that a transaction can be undone.
type held struct {
	owner belfry.ID
	lease time.Time
	alone bool
	armed bool // it went through Arm: when its last item leaves, it is done with
	items []*heldItem
}

// heldItem is an item; of its notification only what itemRow has is known.
type heldItem struct {
	store.Item
	home string // the queue it goes back to
	raw  []byte // as it stands in the table
	// erased: the recipient is gone, and what the answer brings is not to be kept.
	erased bool
}

func newHeldItem(item store.Item, home string, erased bool) *heldItem {
	n := item.Notification
	item.Notification = belfry.Notification{ID: n.ID, Project: n.Project, Recipient: n.Recipient}
	return &heldItem{Item: item, home: home, erased: erased, raw: appendItem(make([]byte, 0, 256), &item, home, erased)}
}

// itemRow is an item in the column claim.items.
type itemRow struct {
	ID        belfry.ID        `json:"id"`
	Project   string           `json:"project"`
	Recipient string           `json:"recipient"`
	Home      string           `json:"home,omitempty"`
	Due       int64            `json:"due"`
	Erased    bool             `json:"erased,omitempty"`
	Wait      *store.Wait      `json:"wait,omitempty"`
	Delivery  *belfry.Delivery `json:"delivery,omitempty"`
}

func (r itemRow) item() *heldItem {
	it := &heldItem{home: r.Home, erased: r.Erased, Item: store.Item{
		Notification: belfry.Notification{ID: r.ID, Project: r.Project, Recipient: r.Recipient}, Due: instant(r.Due), Delivery: r.Delivery,
	}}
	if r.Wait != nil {
		it.Wait = *r.Wait
	}
	it.raw = appendItem(nil, &it.Item, it.home, it.erased)
	return it
}

func (h *held) add(item store.Item, home string) {
	h.items = append(h.items, newHeldItem(item, home, false))
}

func (h *held) json() string {
	b := []byte{'['}
	for i, it := range h.items {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, it.raw...)
	}
	return string(append(b, ']'))
}

// counts are its items by project, for the statistics.
func (h *held) counts() string {
	n := map[string]int{}
	for _, it := range h.items {
		n[it.Notification.Project]++
	}
	b, _ := json.Marshal(n) // of numbers by name: cannot fail
	return string(b)
}

// about lists what a claim is looked up by.
func (h *held) about() (ids, people []int64) {
	who := map[int64]bool{}
	for _, it := range h.items {
		ids = append(ids, int64(it.Notification.ID))
		who[recipientHash(it.Notification)], who[hash(it.Notification.Project)] = true, true
	}
	slices.Sort(ids)
	return slices.Compact(ids), slices.Sorted(maps.Keys(who))
}

// find is the index of an item, n = 0 for a notification to be planned; -1 when it is not held.
func (h *held) find(id belfry.ID, n int) int {
	return slices.IndexFunc(h.items, func(it *heldItem) bool { return it.is(id, n) })
}

func (it *heldItem) is(id belfry.ID, n int) bool {
	return it.Notification.ID == id && it.ordinal() == n
}

func (it *heldItem) ordinal() int {
	if it.Delivery == nil {
		return 0
	}
	return it.Delivery.ID.N
}

func (h *held) copy() *held {
	c := *h
	c.items = slices.Clone(h.items)
	return &c
}

// without is the claim less one item.
func (h *held) without(i int) *held {
	c := h.copy()
	c.items = slices.Delete(c.items, i, i+1)
	return c
}

// setClaim replaces a claim; nil, or armed and without items, it is gone. One that lost its items before it
// was armed stays until its worker comes. The row is written before the commit.
func (tx *txn) setClaim(id belfry.ID, h *held) {
	if _, saved := tx.was[id]; !saved {
		tx.was[id] = tx.claims[id]
	}
	if h == nil || h.armed && len(h.items) == 0 {
		tx.claims[id] = nil
		return
	}
	tx.claims[id] = h
}

const insertClaims = `INSERT INTO claim (id, owner, lease_until, alone, armed, version, counts, ids, people, items, gone) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, '{}')
ON CONFLICT (id) DO UPDATE SET lease_until = excluded.lease_until, armed = excluded.armed, version = excluded.version, counts = excluded.counts,
ids = excluded.ids, people = excluded.people, items = excluded.items, gone = '{}'`

// What left is noted beside the items, so that these are not written again each time.
const shrinkClaim = `UPDATE claim SET version = $2, counts = $3, gone = gone || $4::bigint[] WHERE id = $1`

func (tx *txn) flushClaims() error {
	var list []statement
	var gone []belfry.ID
	for _, id := range slices.Sorted(maps.Keys(tx.was)) {
		before, h := tx.was[id], tx.claims[id]
		switch {
		case h == before:
			continue
		case h == nil:
			gone = append(gone, id)
			continue
		}
		tx.versions[id]++
		if left, ok := shrunk(before, h); ok {
			list = append(list, statement{query: shrinkClaim, args: []any{int64(id), tx.versions[id], h.counts(), left}})
			continue
		}
		ids, people := h.about()
		list = append(list, statement{query: insertClaims, args: []any{int64(id), int64(h.owner), micros(h.lease), h.alone, h.armed, tx.versions[id], h.counts(), ids, people, h.json()}})
	}
	if len(gone) > 0 {
		list = append(list, statement{query: `DELETE FROM claim WHERE id = ANY ($1::bigint[])`, args: []any{numbers(gone)}})
	}
	if len(list) == 0 {
		return nil
	}
	return tx.conn.batch(tx.ctx, list)
}

// shrunk lists what left a claim, when nothing else changed.
func shrunk(before, h *held) (left []int64, ok bool) {
	if before == nil || before.armed != h.armed || !before.lease.Equal(h.lease) {
		return nil, false
	}
	stays := make(map[*heldItem]bool, len(h.items))
	for _, it := range h.items {
		stays[it] = true
	}
	found := 0
	for _, it := range before.items {
		if stays[it] {
			found++
			continue
		}
		left = append(left, int64(it.Notification.ID), int64(it.ordinal()))
	}
	return left, found == len(h.items)
}

// The rows are locked in the order of their ids, and read as they are once they are locked.
const (
	claimsByID    = `SELECT id, owner, lease_until, alone, armed, version FROM claim WHERE id = ANY ($1::bigint[]) ORDER BY id`
	claimsByItem  = `SELECT id, owner, lease_until, alone, armed, version FROM claim WHERE ids && $1::bigint[] ORDER BY id`
	claimsByWhom  = `SELECT id, owner, lease_until, alone, armed, version FROM claim WHERE people && $1::bigint[] ORDER BY id`
	claimItems    = `SELECT id, items, gone FROM claim WHERE id = ANY ($1::bigint[])`
	forUpdate     = ` FOR UPDATE`
	whomIsClaimed = `SELECT id FROM claim WHERE people && $1::bigint[]`
)

// load reads, and locks, claims that this transaction has not read yet, and returns the ids of all that match.
func (tx *txn) load(query string, args ...any) (found []belfry.ID, err error) {
	if !tx.reads {
		query += forUpdate
	}
	heads := map[belfry.ID]*held{}
	err = tx.peekEach(query, func(scan func(...any) error) error {
		h := new(held)
		var id belfry.ID
		var lease int64
		var version int32
		if err := scan(&id, &h.owner, &lease, &h.alone, &h.armed, &version); err != nil {
			return err
		}
		found = append(found, id)
		if _, known := tx.claims[id]; known {
			return nil
		}
		h.lease = instant(lease)
		tx.versions[id] = version
		if kept := tx.s.held.at(id, version); kept != nil {
			tx.claims[id] = kept
			return nil
		}
		heads[id] = h
		return nil
	}, args...)
	if err != nil || len(heads) == 0 {
		return found, err
	}
	err = tx.peekEach(claimItems, func(scan func(...any) error) error {
		var id belfry.ID
		var items string
		var gone []int64
		if err := scan(&id, &items, &gone); err != nil {
			return err
		}
		var rows []itemRow
		if err := json.Unmarshal([]byte(items), &rows); err != nil {
			return err
		}
		left := map[[2]int64]bool{}
		for i := 0; i < len(gone); i += 2 {
			left[[2]int64{gone[i], gone[i+1]}] = true
		}
		h := heads[id]
		for _, r := range rows {
			it := r.item()
			if !left[[2]int64{int64(r.ID), int64(it.ordinal())}] {
				h.items = append(h.items, it)
			}
		}
		tx.claims[id] = h
		return nil
	}, numbers(slices.Collect(maps.Keys(heads))))
	return found, err
}

// claimCache spares a transaction the reading of claims that this process wrote last: the row's version
// says whether it did.
type claimCache struct {
	mu   sync.Mutex
	held map[belfry.ID]cachedClaim
}

type cachedClaim struct {
	version int32
	h       *held
}

const maxClaims = 10_000 // claims that others take over leave themselves behind

func (c *claimCache) init() { c.held = map[belfry.ID]cachedClaim{} }

func (c *claimCache) at(id belfry.ID, version int32) *held {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k, ok := c.held[id]; ok && k.version == version {
		return k.h
	}
	return nil
}

// keep remembers what a committed transaction wrote.
func (c *claimCache) keep(tx *txn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.held) > maxClaims {
		clear(c.held)
	}
	for id := range tx.was {
		if h := tx.claims[id]; h != nil {
			c.held[id] = cachedClaim{tx.versions[id], h}
		} else {
			delete(c.held, id)
		}
	}
}

func (tx *txn) notification(id belfry.ID) (n belfry.Notification, ok bool, err error) {
	all, err := tx.notifications([]belfry.ID{id})
	n, ok = all[id]
	return n, ok, err
}

func (tx *txn) notifications(ids []belfry.ID) (map[belfry.ID]belfry.Notification, error) {
	out := make(map[belfry.ID]belfry.Notification, len(ids))
	err := tx.each(`SELECT `+notificationColumns+` FROM notification n WHERE n.id = ANY ($1::bigint[])`, func(scan func(...any) error) error {
		var n belfry.Notification
		err := scanNotification(scan, &n)
		out[n.ID] = n
		return err
	}, numbers(ids))
	return out, err
}
