package sqlite

import (
	"encoding/json"
	"slices"
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
	dead  bool // its process is gone: it is lost, whatever its lease says
	armed bool // it went through Arm: when its last item leaves, it is done with
	items []*heldItem
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

// find is the index of an item, n = 0 for a notification to be planned; -1 when it is not held.
func (h *held) find(id belfry.ID, n int) int {
	return slices.IndexFunc(h.items, func(it *heldItem) bool { return it.is(id, n) })
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
ON CONFLICT (id) DO UPDATE SET lease_until = excluded.lease_until, items = excluded.items`, id, h.owner, micros(h.lease), h.alone, h.json())
		}
		if err != nil {
			return err
		}
	}
	return nil
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
