package sqlite

import (
	"cmp"
	"context"
	"crypto/subtle"
	"encoding/json"
	"slices"
	"time"

	"belfry"
	"belfry/store"
)

func (s *Store) Enqueue(ctx context.Context, entries []store.Entry, atomic bool) ([]store.Enqueued, error) {
	var out []store.Enqueued
	err := s.doRows(ctx, durable, len(entries), slices.ContainsFunc(entries, isUrgent), func(tx *txn) (err error) {
		out, err = tx.enqueue(entries, atomic)
		return err
	})
	return out, err
}

func isUrgent(e store.Entry) bool { return e.Notification.Lane == belfry.Urgent }

// enqueue writes entries. With atomic a refused entry leaves nothing written: all are judged before the
// first write.
func (tx *txn) enqueue(entries []store.Entry, atomic bool) ([]store.Enqueued, error) {
	out := make([]store.Enqueued, len(entries))
	zones, err := tx.zones(entries)
	if err != nil {
		return nil, err
	}
	refused := false
	facts := make([][]byte, len(entries))
	seen := map[person]bool{} // keys of this batch, by project
	for i, e := range entries {
		if out[i], facts[i], err = tx.judge(e, zones); err != nil {
			return nil, err
		}
		if key := (person{e.Notification.Project, e.Key.Text}); e.Key.Text != "" {
			if seen[key] {
				out[i].Err = &belfry.Error{Code: belfry.CodeKeyDuplicate, Field: "key", Detail: "the batch has this key twice"}
			}
			seen[key] = true
		}
		if e.Inline != nil && out[i].Err == nil && !out[i].Replayed { // those after it may name its recipient
			zones[person{e.Notification.Project, e.Notification.Recipient}] = out[i].Zone
		}
		refused = refused || out[i].Err != nil
	}
	if refused && atomic {
		return out, nil
	}
	for i, e := range entries {
		if out[i].Err != nil || out[i].Replayed {
			continue
		}
		if out[i], err = tx.insert(e, out[i].Zone, facts[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

type person struct{ project, id string }

// zones reads the zone of every recipient that the entries name; one that does not exist is missing.
func (tx *txn) zones(entries []store.Entry) (map[person]string, error) {
	zones := make(map[person]string, len(entries))
	byProject := map[string][]string{}
	asked := make(map[person]bool, len(entries))
	for _, e := range entries {
		if p := (person{e.Notification.Project, e.Notification.Recipient}); !asked[p] {
			asked[p] = true
			byProject[p.project] = append(byProject[p.project], p.id)
		}
	}
	for project, ids := range byProject {
		if len(ids) == 1 {
			var zone string
			ok, err := tx.peek(`SELECT zone FROM recipient WHERE project = ? AND id = ?`, []any{project, ids[0]}, &zone)
			if err != nil {
				return nil, err
			}
			if ok {
				zones[person{project, ids[0]}] = zone
			}
			continue
		}
		err := tx.peekEach(`SELECT r.id, r.zone FROM json_each(?2) j CROSS JOIN recipient r WHERE r.project = ?1 AND r.id = j.value`,
			func(scan func(...any) error) error {
				var id, zone string
				if err := scan(&id, &zone); err != nil {
					return err
				}
				zones[person{project, id}] = zone
				return nil
			}, project, list(ids))
		if err != nil {
			return nil, err
		}
	}
	return zones, nil
}

// judge answers an entry whose key was used before, refuses one that cannot be taken, and names its fact.
func (tx *txn) judge(e store.Entry, zones map[person]string) (out store.Enqueued, fact []byte, err error) {
	n := e.Notification
	if e.Key.Text != "" {
		var fingerprint []byte
		var answer string
		var expires int64
		ok, err := tx.peek(`SELECT fingerprint, answer, expires_at FROM request WHERE key = ?`, []any{half(n.Project, "notify", e.Key.Text)}, &fingerprint, &answer, &expires)
		if err != nil {
			return out, nil, err
		}
		if ok && instant(expires).After(n.CreatedAt) {
			if subtle.ConstantTimeCompare(fingerprint, e.Key.Fingerprint[:]) != 1 {
				out.Err = &belfry.Error{Code: belfry.CodeKeyReused, Field: "key", Detail: "this key was used for another request: use a new key"}
				return out, nil, nil
			}
			err := json.Unmarshal([]byte(answer), &out)
			out.Replayed = true
			return out, nil, err
		}
	}
	zone, known := zones[person{n.Project, n.Recipient}]
	if e.Inline != nil {
		zone, known = cmp.Or(e.Inline.Recipient.Zone, zone), true
	}
	out.Zone = zone
	if !known && len(n.To) == 0 {
		out.Err = &belfry.Error{Code: belfry.CodeUnknownRecipient, Field: "recipient", Detail: "no such recipient: make it first, or give an object with its zone and addresses"}
		return out, nil, nil
	}
	if e.Fact == nil {
		return out, nil, nil
	}
	text, err := e.Fact(zone)
	if err != nil {
		out.Err = err
		return out, nil, nil
	}
	return out, half(n.Project, text), nil
}

func (tx *txn) insert(e store.Entry, zone string, fact []byte) (store.Enqueued, error) {
	n := e.Notification
	out := store.Enqueued{ID: n.ID, State: belfry.Scheduled, Due: n.Due, Deadline: n.Deadline, Zone: zone}
	if e.Key.Text != "" {
		out.Expires = e.Key.Expires.UTC()
	}
	if e.Inline != nil {
		if err := tx.inline(n.CreatedAt, *e.Inline); err != nil {
			return out, err
		}
	}
	if fact != nil {
		if err := tx.fact(fact, n, &out); err != nil {
			return out, err
		}
	}
	if !out.Duplicate {
		if err := tx.insertNotification(e, fact); err != nil {
			return out, err
		}
	}
	if e.Key.Text == "" {
		return out, nil
	}
	answer, err := body(out)
	if err != nil {
		return out, err
	}
	_, err = tx.poke(`INSERT INTO request (key, fingerprint, answer, expires_at) VALUES (?, ?, ?, ?)
ON CONFLICT (key) DO UPDATE SET fingerprint = excluded.fingerprint, answer = excluded.answer, expires_at = excluded.expires_at`,
		half(n.Project, "notify", e.Key.Text), e.Key.Fingerprint[:], answer, micros(e.Key.Expires))
	return out, err
}

// fact takes the fact for n, or makes out a duplicate of the one that has it.
func (tx *txn) fact(fact []byte, n belfry.Notification, out *store.Enqueued) error {
	expires := int64(0)
	if n.Once.Per != belfry.Ever && n.Once.Per != belfry.WhileOpen {
		expires = micros(n.Due.Add(factLife))
	}
	taken, err := tx.poke(`INSERT INTO once (fact, notification, duplicates, expires_at) VALUES (?, ?, 0, ?) ON CONFLICT DO NOTHING`, fact, n.ID, expires)
	if err != nil || taken == 1 {
		return err
	}
	var first belfry.ID
	var due, deadline int64
	ok, err := tx.one(`UPDATE once SET duplicates = duplicates + 1 WHERE fact = ? RETURNING notification`, []any{fact}, &first)
	if err != nil || !ok {
		return err
	}
	out.ID, out.Duplicate = first, true
	ok, err = tx.one(`SELECT due_at, deadline FROM notification WHERE id = ?`, []any{first}, &due, &deadline)
	if ok {
		out.Due, out.Deadline = instant(due), instant(deadline)
	}
	if err != nil {
		return err
	}
	out.State, out.Reason, err = tx.state(first)
	return err
}

// factLife is how long the fact of a day, hour or week is remembered after the due time.
const factLife = 400 * 24 * time.Hour

func (tx *txn) insertNotification(e store.Entry, fact []byte) error {
	n := e.Notification
	options, err := encodeOptions(n.Options)
	if err != nil {
		return err
	}
	tx.add(intoNotification, n.ID, n.Project, n.Recipient, n.Category, n.Subject, text(n.Data), micros(n.CreatedAt), micros(n.Due), micros(n.Deadline), laneRank(n.Lane), n.Sensitive, options, fact)
	tx.wait(waitingRow{queue: e.Queue, lane: n.Lane, project: n.Project, due: n.Due, id: n.ID})
	return nil
}

// inline makes or updates the recipient that came with a notification.
func (tx *txn) inline(now time.Time, in store.Inline) error {
	if _, err := tx.mergeRecipient(now, in.Recipient); err != nil {
		return err
	}
	for i, r := range in.Registrations {
		if _, err := tx.register(now, in.Recipient.Project, in.IDs[i], r); err != nil {
			return err
		}
	}
	return nil
}
