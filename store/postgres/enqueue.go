package postgres

import (
	"bytes"
	"cmp"
	"context"
	"crypto/subtle"
	"encoding/json"
	"slices"
	"time"

	"belfry"
	"belfry/store"
)

// enqueueCall is one call of Enqueue.
type enqueueCall struct {
	entries []store.Entry
	atomic  bool
}

func (s *Store) Enqueue(ctx context.Context, entries []store.Entry, atomic bool) ([]store.Enqueued, error) {
	c := enqueueCall{entries, atomic}
	if slices.ContainsFunc(entries, func(e store.Entry) bool { return e.Inline != nil }) {
		var out []store.Enqueued
		err := s.do(ctx, durable, func(tx *txn) (err error) {
			out, err = tx.enqueue(c)
			return err
		})
		return out, err
	}
	return s.enqueues.do(ctx, c, len(entries))
}

func (s *Store) enqueueAll(tx *txn, calls []*call[enqueueCall, []store.Enqueued]) error {
	in := make([]enqueueCall, len(calls))
	for i, c := range calls {
		in[i] = c.in
	}
	out, err := tx.enqueueCalls(in)
	if err != nil {
		return err
	}
	for i, c := range calls {
		c.out = out[i]
	}
	return nil
}

// enqueue is for a call with recipients in it, which has a transaction of its own.
func (tx *txn) enqueue(c enqueueCall) ([]store.Enqueued, error) {
	if err := tx.takeInline(c.entries); err != nil {
		return nil, err
	}
	out, err := tx.enqueueCalls([]enqueueCall{c})
	if err != nil {
		return nil, err
	}
	return out[0], nil
}

// enqueueOnce is enqueue in a caller's transaction, which nobody flushes.
func (tx *txn) enqueueOnce(entries []store.Entry) ([]store.Enqueued, error) {
	out, err := tx.enqueue(enqueueCall{entries, true})
	if err != nil {
		return nil, err
	}
	return out, tx.sync()
}

func (tx *txn) takeInline(entries []store.Entry) error {
	l := locks{}
	for _, e := range entries {
		if e.Inline == nil {
			continue
		}
		project := e.Inline.Recipient.Project
		l.change(project, e.Inline.Recipient.ID)
		for _, r := range e.Inline.Registrations {
			l.change(project, r.Recipient)
			old, err := tx.leaving(project, r)
			if err != nil {
				return err
			}
			for _, o := range old {
				l.change(project, o.Recipient)
			}
		}
	}
	if len(l) == 0 {
		return nil
	}
	return tx.take(l)
}

// entering is an entry on its way.
type entering struct {
	store.Entry
	out    store.Enqueued
	key    []byte    // of its idempotency key; nil without one
	first  *entering // of the group, that has its key; itself for the first
	asked  *request  // that has its key since an earlier transaction
	answer string    // that its key was inserted with
	fact   []byte
	zone   string
	leaves bool // it is not written: refused, replayed, or of a call that was refused
}

// request is a row of the idempotency keys.
type request struct {
	fingerprint []byte
	answer      string
	expires     int64
}

// enqueueCalls writes the entries of several calls. With atomic a refused entry leaves nothing of its call
// written. Whether a key or a fact is new is decided by inserting it, in the order of the keys, so that of
// two transactions the later waits for the earlier, and never each for the other.
func (tx *txn) enqueueCalls(calls []enqueueCall) ([][]store.Enqueued, error) {
	of := make([][]*entering, len(calls))
	var all []*entering
	zones, err := tx.zones(calls)
	if err != nil {
		return nil, err
	}
	for i, c := range calls {
		for _, e := range c.entries {
			n := e.Notification
			en := &entering{Entry: e, zone: zones[person{n.Project, n.Recipient}]}
			if e.Key.Text != "" {
				en.key = half(n.Project, "notify", e.Key.Text)
			}
			of[i] = append(of[i], en)
			all = append(all, en)
		}
	}
	if err := tx.takeKeys(all); err != nil {
		return nil, err
	}
	taken := map[string]*entering{} // keys, by who writes them
	for i, c := range calls {
		refused := false
		seen := map[string]bool{}
		for _, en := range of[i] {
			if en.key != nil && seen[string(en.key)] {
				en.out.Err = &belfry.Error{Code: belfry.CodeKeyDuplicate, Field: "key", Detail: "the batch has this key twice"}
			} else {
				en.judge(taken, zones)
			}
			seen[string(en.key)] = en.key != nil
			refused = refused || en.out.Err != nil
		}
		for _, en := range of[i] {
			en.leaves = en.leaves || en.out.Err != nil || refused && c.atomic
			if !en.leaves && en.key != nil {
				taken[string(en.key)] = en
			}
		}
	}
	for _, en := range all {
		if en.Inline != nil && !en.leaves {
			if err := tx.inline(en.Notification.CreatedAt, *en.Inline); err != nil {
				return nil, err
			}
		}
	}
	if err := tx.takeFacts(all); err != nil {
		return nil, err
	}
	for _, en := range all {
		if en.leaves || en.out.Duplicate {
			continue
		}
		if err := tx.insertNotification(en.Entry, en.fact); err != nil {
			return nil, err
		}
	}
	if err := tx.answerKeys(all); err != nil {
		return nil, err
	}
	out := make([][]store.Enqueued, len(calls))
	for i := range calls {
		for _, en := range of[i] {
			if en.first != nil && en.first != en && en.out.Err == nil && en.out.Replayed {
				en.out = en.first.out // of this group
				en.out.Replayed = true
			}
			out[i] = append(out[i], en.out)
		}
	}
	return out, nil
}

type person struct{ project, id string }

// zones reads the zone of every recipient that the entries name; one that does not exist is missing.
func (tx *txn) zones(calls []enqueueCall) (map[person]string, error) {
	zones := map[person]string{}
	var projects, ids []string
	for _, c := range calls {
		for _, e := range c.entries {
			p := person{e.Notification.Project, e.Notification.Recipient}
			if !has(zones, p) {
				zones[p] = ""
				projects, ids = append(projects, p.project), append(ids, p.id)
			}
		}
	}
	clear(zones)
	return zones, tx.peekEach(`SELECT r.project, r.id, r.zone FROM unnest($1::text[], $2::text[]) AS j (project, id) JOIN recipient r ON r.project = j.project AND r.id = j.id`,
		func(scan func(...any) error) error {
			var p person
			var zone string
			err := scan(&p.project, &p.id, &zone)
			zones[p] = zone
			return err
		}, projects, ids)
}

func has[K comparable, V any](m map[K]V, k K) bool { _, ok := m[k]; return ok }

const insertRequests = `INSERT INTO request (key, fingerprint, answer, expires_at)
SELECT * FROM unnest($1::bytea[], $2::bytea[], $3::text[], $4::bigint[]) ON CONFLICT DO NOTHING RETURNING key`

const selectRequests = `SELECT key, fingerprint, answer, expires_at FROM request WHERE key = ANY ($1::bytea[]) ORDER BY key FOR UPDATE`

// takeKeys inserts the keys that are new, with the answer that most will have, and reads the others.
func (tx *txn) takeKeys(all []*entering) error {
	firsts := map[string]*entering{}
	var order []*entering
	for _, en := range all {
		if en.key == nil {
			continue
		}
		if first := firsts[string(en.key)]; first != nil {
			en.first = first
			continue
		}
		en.first = en
		firsts[string(en.key)] = en
		order = append(order, en)
	}
	if len(order) == 0 {
		return nil
	}
	slices.SortFunc(order, func(a, b *entering) int { return bytes.Compare(a.key, b.key) })
	for _, en := range order {
		answer, err := body(en.created())
		if err != nil {
			return err
		}
		en.answer = answer
	}
	fresh := map[string]bool{}
	err := tx.peekEach(insertRequests, func(scan func(...any) error) error {
		var key []byte
		err := scan(&key)
		fresh[string(key)] = true
		return err
	}, column(order, func(en **entering) []byte { return (*en).key }), column(order, func(en **entering) []byte { return (*en).Key.Fingerprint[:] }),
		column(order, func(en **entering) string { return (*en).answer }), column(order, func(en **entering) int64 { return micros((*en).Key.Expires) }))
	if err != nil {
		return err
	}
	var old [][]byte
	for _, en := range order {
		if !fresh[string(en.key)] {
			old = append(old, en.key)
		}
	}
	if len(old) == 0 {
		return nil
	}
	return tx.peekEach(selectRequests, func(scan func(...any) error) error {
		var key []byte
		r := new(request)
		err := scan(&key, &r.fingerprint, &r.answer, &r.expires)
		firsts[string(key)].asked = r
		return err
	}, old)
}

// created is the answer to an entry that is taken in and tells no fact again.
func (en *entering) created() store.Enqueued {
	n := en.Notification
	out := store.Enqueued{ID: n.ID, State: belfry.Scheduled, Due: n.Due, Deadline: n.Deadline, Zone: en.zone}
	if en.Key.Text != "" {
		out.Expires = en.Key.Expires.UTC()
	}
	return out
}

// judge answers an entry whose key was used before, refuses one that cannot be taken, and names its fact.
func (en *entering) judge(taken map[string]*entering, zones map[person]string) {
	n := en.Notification
	if en.key != nil {
		var fingerprint []byte
		if by := taken[string(en.key)]; by != nil && by.Key.Expires.After(n.CreatedAt) {
			fingerprint, en.first = by.Key.Fingerprint[:], by
		} else if r := en.first.asked; by == nil && r != nil && instant(r.expires).After(n.CreatedAt) {
			fingerprint = r.fingerprint
			if err := json.Unmarshal([]byte(r.answer), &en.out); err != nil {
				en.out.Err = err
			}
			en.first = en
		} else {
			en.first = en
		}
		if fingerprint != nil {
			en.leaves = true
			if subtle.ConstantTimeCompare(fingerprint, en.Key.Fingerprint[:]) != 1 {
				en.out = store.Enqueued{Err: &belfry.Error{Code: belfry.CodeKeyReused, Field: "key", Detail: "this key was used for another request: use a new key"}}
				return
			}
			en.out.Replayed = true
			return
		}
	}
	who := person{n.Project, n.Recipient}
	zone, exists := zones[who]
	if en.Inline != nil {
		zone, exists = cmp.Or(en.Inline.Recipient.Zone, zone), true
	}
	en.zone = zone
	if !exists && len(n.To) == 0 {
		en.out.Err = &belfry.Error{Code: belfry.CodeUnknownRecipient, Field: "recipient", Detail: "no such recipient: make it first, or give an object with its zone and addresses"}
		return
	}
	if en.Fact != nil {
		text, err := en.Fact(zone)
		if err != nil {
			en.out.Err = err
			return
		}
		en.fact = half(n.Project, text)
	}
	if exists {
		zones[who] = zone
	}
}

// A fact that was told before counts it once more.
const insertFacts = `INSERT INTO once (fact, notification, duplicates, expires_at)
SELECT * FROM unnest($1::bytea[], $2::bigint[], $3::bigint[], $4::bigint[])
ON CONFLICT (fact) DO UPDATE SET duplicates = once.duplicates + excluded.duplicates + 1 RETURNING fact, notification`

// factLife is how long the fact of a day, hour or week is remembered after the due time.
const factLife = 400 * 24 * time.Hour

// takeFacts takes the facts for the entries, or makes out duplicates of those that have them.
func (tx *txn) takeFacts(all []*entering) error {
	type telling struct {
		*entering
		again int64 // others of the group that tell it
		by    belfry.ID
	}
	told := map[string]*telling{}
	var order []*telling
	for _, en := range all {
		if en.leaves {
			continue
		}
		en.out = en.created()
		if en.fact == nil {
			continue
		}
		if t := told[string(en.fact)]; t != nil {
			t.again++
			continue
		}
		t := &telling{entering: en}
		told[string(en.fact)] = t
		order = append(order, t)
	}
	if len(order) == 0 {
		return nil
	}
	slices.SortFunc(order, func(a, b *telling) int { return bytes.Compare(a.fact, b.fact) })
	err := tx.peekEach(insertFacts, func(scan func(...any) error) error {
		var fact []byte
		var by belfry.ID
		err := scan(&fact, &by)
		told[string(fact)].by = by
		return err
	}, column(order, func(t **telling) []byte { return (*t).fact }), column(order, func(t **telling) int64 { return int64((*t).Notification.ID) }),
		column(order, func(t **telling) int64 { return (*t).again }), column(order, func(t **telling) int64 { return (*t).forgets() }))
	if err != nil {
		return err
	}
	var before []belfry.ID // of earlier transactions
	for _, t := range order {
		if t.by != t.Notification.ID {
			before = append(before, t.by)
		}
	}
	standings, err := tx.standings(before)
	if err != nil {
		return err
	}
	for _, en := range all {
		if en.leaves || en.fact == nil {
			continue
		}
		t := told[string(en.fact)]
		if t.by == en.Notification.ID {
			continue
		}
		en.out.ID, en.out.Duplicate = t.by, true
		en.out.State, en.out.Due, en.out.Deadline = "", time.Time{}, time.Time{} // once it was purged only its id is known
		if st, ok := standings[t.by]; ok {
			en.out.State, en.out.Reason, en.out.Due, en.out.Deadline = st.state, st.reason, st.due, st.deadline
		} else if t.by == t.Notification.ID {
			en.out.State, en.out.Due, en.out.Deadline = belfry.Scheduled, t.Notification.Due, t.Notification.Deadline
		}
	}
	return nil
}

// forgets is when the entry's fact may be forgotten; 0: never.
func (en *entering) forgets() int64 {
	if p := en.Notification.Once.Per; p == belfry.Ever || p == belfry.WhileOpen {
		return 0
	}
	return micros(en.Notification.Due.Add(factLife))
}

const updateRequests = `UPDATE request r SET fingerprint = u.fingerprint, answer = u.answer, expires_at = u.expires_at
FROM unnest($1::bytea[], $2::bytea[], $3::text[], $4::bigint[]) AS u (key, fingerprint, answer, expires_at) WHERE r.key = u.key`

// answerKeys writes the answers that are other than takeKeys thought, and gives back the keys of what was
// refused.
func (tx *txn) answerKeys(all []*entering) error {
	writes := map[string]*entering{} // the last that has the key
	inserted := map[string]*entering{}
	for _, en := range all {
		if en.key == nil {
			continue
		}
		if !has(inserted, string(en.key)) {
			inserted[string(en.key)] = en
		}
		if !en.leaves {
			writes[string(en.key)] = en
		}
	}
	var unused [][]byte
	var change []*entering
	var answers []string
	for key, first := range inserted {
		en := writes[key]
		if en == nil {
			if first.asked == nil {
				unused = append(unused, []byte(key))
			}
			continue
		}
		answer, err := body(en.out)
		if err != nil {
			return err
		}
		if en != first || first.asked != nil || answer != first.answer {
			change, answers = append(change, en), append(answers, answer)
		}
	}
	if len(unused) > 0 {
		if err := tx.run(`DELETE FROM request WHERE key = ANY ($1::bytea[])`, unused); err != nil {
			return err
		}
	}
	if len(change) == 0 {
		return nil
	}
	return tx.run(updateRequests, column(change, func(en **entering) []byte { return (*en).key }), column(change, func(en **entering) []byte { return (*en).Key.Fingerprint[:] }),
		answers, column(change, func(en **entering) int64 { return micros((*en).Key.Expires) }))
}

func (tx *txn) insertNotification(e store.Entry, fact []byte) error {
	n := e.Notification
	options, targets, err := encodeOptions(n.Options)
	if err != nil {
		return err
	}
	tx.pending.any = true
	tx.pending.notifications = append(tx.pending.notifications, notificationRow{n, options, targets, fact})
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
