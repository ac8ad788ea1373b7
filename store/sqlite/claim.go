package sqlite

import (
	"encoding/json"
	"slices"
	"time"

	"belfry"
	"belfry/store"
)

// held is a claim as the table has it: exactly the items its worker holds. One that an earlier transaction
// left is never changed, only replaced by a copy, so that this one can be undone: see own.
type held struct {
	owner belfry.ID
	lease time.Time
	alone bool
	dead  bool // its process is gone: it is lost, whatever its lease says
	armed bool // it went through Arm: when its last item leaves, it is done with
	items []*heldItem
	near  int // where find looks first: items come and go in their order
}

type heldItem struct {
	store.Item
	home string // the queue it goes back to
	raw  []byte // as it stands in the table
	// erased: the recipient is gone, and what the answer brings is not to be kept.
	erased bool
}

func newHeldItem(item store.Item, home string) *heldItem {
	return &heldItem{Item: item, home: home, raw: appendItem(make([]byte, 0, 256), &item, home)}
}

// itemRow is an item in the column claim.items.
type itemRow struct {
	ID       belfry.ID        `json:"id"`
	Project  string           `json:"project"`
	Home     string           `json:"home,omitempty"`
	Due      int64            `json:"due"`
	Wait     *store.Wait      `json:"wait,omitempty"`
	Delivery *belfry.Delivery `json:"delivery,omitempty"`
}

func (h *held) add(item store.Item, home string) {
	h.items = append(h.items, newHeldItem(item, home))
}

func (h *held) appendJSON(b []byte) []byte {
	b = append(b, '[')
	for i, it := range h.items {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, it.raw...)
	}
	return append(b, ']')
}

// find is the index of an item, n = 0 for a notification to be planned; -1 when it is not held.
func (h *held) find(id belfry.ID, n int) int {
	near := min(h.near, len(h.items))
	i := slices.IndexFunc(h.items[near:], func(it *heldItem) bool { return it.is(id, n) })
	if i >= 0 {
		h.near = near + i
		return h.near
	}
	i = slices.IndexFunc(h.items[:near], func(it *heldItem) bool { return it.is(id, n) })
	h.near = max(i, 0)
	return i
}

func (it *heldItem) is(id belfry.ID, n int) bool {
	if it.Notification.ID != id {
		return false
	}
	if it.Delivery == nil {
		return n == 0
	}
	return it.Delivery.ID.N == n
}

func (h *held) copy() *held {
	c := *h
	c.items = slices.Clone(h.items)
	return &c
}

// own is the claim as this transaction may change it.
func (tx *txn) own(id belfry.ID) *held {
	h := tx.s.claims[id]
	if before, touched := tx.was[id]; touched && before != h {
		return h
	}
	h = h.copy()
	tx.setClaim(id, h)
	return h
}

// leave takes an item out of its claim.
func (tx *txn) leave(claim, id belfry.ID, n int) {
	h := tx.own(claim)
	i := h.find(id, n)
	h.items = slices.Delete(h.items, i, i+1)
	tx.setClaim(claim, h)
}

// setClaim replaces a claim; nil, or armed and without items, it is gone. One that lost its items before it
// was armed stays until its worker comes. The row is written before the commit.
func (tx *txn) setClaim(id belfry.ID, h *held) {
	if _, saved := tx.was[id]; !saved {
		tx.was[id] = tx.s.claims[id]
	}
	if h == nil || h.armed && len(h.items) == 0 {
		delete(tx.s.claims, id)
		return
	}
	tx.s.claims[id] = h
}

func (tx *txn) flushClaims() error {
	for id, before := range tx.was {
		h := tx.s.claims[id]
		var err error
		switch {
		case h == before:
		case h == nil && before == nil:
		case h == nil:
			err = tx.exec(`DELETE FROM claim WHERE id = ?`, id)
		default:
			err = tx.exec(`INSERT INTO claim (id, owner, lease_until, alone, items) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET lease_until = excluded.lease_until, items = excluded.items`, id, h.owner, micros(h.lease), h.alone, tx.encode(h))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// encode is the column items of a claim, until the next call.
func (tx *txn) encode(h *held) utf8 {
	tx.buffer = h.appendJSON(tx.buffer[:0])
	return tx.buffer
}

// loadClaims reads what an earlier process left claimed.
func (tx *txn) loadClaims() error {
	type row struct {
		id    belfry.ID
		h     *held
		items string
	}
	var rows []row
	err := tx.each(`SELECT id, owner, lease_until, alone, items FROM claim`, func(scan func(...any) error) error {
		r := row{h: &held{dead: true}}
		var lease int64
		err := scan(&r.id, &r.h.owner, &lease, &r.h.alone, &r.items)
		r.h.lease = instant(lease)
		rows = append(rows, r)
		return err
	})
	if err != nil {
		return err
	}
	for _, r := range rows {
		var items []itemRow
		if err := json.Unmarshal([]byte(r.items), &items); err != nil {
			return err
		}
		for _, it := range items {
			item := store.Item{Due: instant(it.Due), Delivery: it.Delivery}
			if it.Wait != nil {
				item.Wait = *it.Wait
			}
			var ok bool
			if item.Notification, ok, err = tx.notification(it.ID); err != nil {
				return err
			}
			if !ok {
				continue
			}
			r.h.add(item, it.Home)
			if r.h.items[len(r.h.items)-1].erased, err = tx.erased(it.ID); err != nil {
				return err
			}
		}
		tx.s.claims[r.id] = r.h
	}
	return nil
}

func (tx *txn) notification(id belfry.ID) (n belfry.Notification, ok bool, err error) {
	err = tx.each(`SELECT `+notificationColumns+` FROM notification n WHERE n.id = ?`, func(scan func(...any) error) error {
		ok = true
		return scanNotification(scan, &n)
	}, id)
	return n, ok, err
}
