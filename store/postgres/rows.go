package postgres

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"belfry"
)

// pending is what a transaction is going to write: rows of all its calls together, by one statement a table.
type pending struct {
	any           bool
	notifications []notificationRow
	waiting       []waitingRow
	deliveries    []deliveryRow
	ended         []endedRow
	events        []eventRow
	marks         map[markKey]markRow
	fanouts       map[belfry.ID]bool // that changed
	freed         []int64            // notifications whose fact may be told again
	wiped         []int64            // notifications whose content is to go
	landed        map[int64]time.Time
}

type notificationRow struct {
	belfry.Notification
	options, targets *string
	fact             []byte
}

type deliveryRow struct {
	id      int64
	n       int32
	at      int64
	body    string
	payload []byte
}

type endedRow struct {
	id            int64
	state, reason string
	at            int64
	wiped         bool
}

type eventRow struct {
	id           int64
	n            int32
	at           int64
	kind, reason string
	until        int64
	detail       string
}

type markKey struct{ project, recipient, category, subject string }

type markRow struct {
	at   int64
	data *string
	id   int64
}

func (k markKey) compare(o markKey) int {
	return cmp.Or(strings.Compare(k.project, o.project), strings.Compare(k.recipient, o.recipient), strings.Compare(k.category, o.category), strings.Compare(k.subject, o.subject))
}

// column is what a table's column gets, as one argument.
func column[R, T any](rows []R, of func(*R) T) []T {
	out := make([]T, len(rows))
	for i := range rows {
		out[i] = of(&rows[i])
	}
	return out
}

const insertNotifications = `INSERT INTO notification (id, project, recipient, category, subject, data, created_at, due_at, deadline, lane, sensitive, options, targets, fact)
SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bigint[], $8::bigint[], $9::bigint[], $10::smallint[], $11::bool[], $12::text[], $13::text[], $14::bytea[])`

const insertWaiting = `INSERT INTO waiting (queue, lane, project, due_at, id, n, home, recipient, reason, body)
SELECT * FROM unnest($1::text[], $2::smallint[], $3::text[], $4::bigint[], $5::bigint[], $6::int[], $7::text[], $8::text[], $9::text[], $10::text[])`

const insertDeliveries = `INSERT INTO delivery (id, n, ended_at, body, payload)
SELECT * FROM unnest($1::bigint[], $2::int[], $3::bigint[], $4::text[], $5::bytea[])
ON CONFLICT (id, n) DO UPDATE SET body = excluded.body, payload = excluded.payload`

const insertEnded = `INSERT INTO ended (id, state, reason, at, wiped)
SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::bigint[], $5::bool[])`

const insertEvents = `INSERT INTO event (id, n, at, kind, reason, until, detail)
SELECT * FROM unnest($1::bigint[], $2::int[], $3::bigint[], $4::text[], $5::text[], $6::bigint[], $7::text[])`

const insertMarks = `INSERT INTO mark (project, recipient, category, subject, at, data, notification)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::text[], $7::bigint[])
ON CONFLICT (project, recipient, category, subject) DO UPDATE SET at = excluded.at, data = excluded.data, notification = excluded.notification
WHERE excluded.at > mark.at`

const insertFanouts = `INSERT INTO fanout (id, body) SELECT * FROM unnest($1::bigint[], $2::text[])
ON CONFLICT (id) DO UPDATE SET body = excluded.body`

// The facts are locked in their order: others may take them at this moment.
const freeFacts = `DELETE FROM once WHERE fact = ANY (ARRAY(
SELECT o.fact FROM notification n JOIN once o ON o.fact = n.fact AND o.notification = n.id WHERE n.id = ANY ($1::bigint[]) ORDER BY o.fact FOR UPDATE OF o))`

const wipeNotifications = `UPDATE notification SET data = NULL WHERE id = ANY ($1::bigint[])`

const landFlights = `DELETE FROM flight WHERE id = ANY ($1::bigint[]) AND EXISTS (SELECT FROM flight) RETURNING id, project, recipient, category, subject`

// sync writes what is pending, so that it can be read.
func (tx *txn) sync() error {
	p := &tx.pending
	if !p.any {
		return nil
	}
	var list []statement
	add := func(query string, args ...any) { list = append(list, statement{query: query, args: args}) }
	if r := p.notifications; len(r) > 0 {
		add(insertNotifications, column(r, func(r *notificationRow) int64 { return int64(r.ID) }), column(r, func(r *notificationRow) string { return r.Project }),
			column(r, func(r *notificationRow) string { return r.Recipient }), column(r, func(r *notificationRow) string { return r.Category }),
			column(r, func(r *notificationRow) string { return r.Subject }), column(r, func(r *notificationRow) *string { return text(r.Data) }),
			column(r, func(r *notificationRow) int64 { return micros(r.CreatedAt) }), column(r, func(r *notificationRow) int64 { return micros(r.Due) }),
			column(r, func(r *notificationRow) int64 { return micros(r.Deadline) }), column(r, func(r *notificationRow) int16 { return laneRank(r.Lane) }),
			column(r, func(r *notificationRow) bool { return r.Sensitive }), column(r, func(r *notificationRow) *string { return r.options }),
			column(r, func(r *notificationRow) *string { return r.targets }), column(r, func(r *notificationRow) []byte { return r.fact }))
	}
	if r := p.waiting; len(r) > 0 {
		add(insertWaiting, column(r, func(r *waitingRow) string { return r.queue }), column(r, func(r *waitingRow) int16 { return laneRank(r.lane) }),
			column(r, func(r *waitingRow) string { return r.project }), column(r, func(r *waitingRow) int64 { return micros(r.due) }),
			column(r, func(r *waitingRow) int64 { return int64(r.id) }), column(r, func(r *waitingRow) int32 { return int32(r.n) }),
			column(r, func(r *waitingRow) *string { return r.home }), column(r, func(r *waitingRow) *string { return r.recipient }),
			column(r, func(r *waitingRow) string { return string(r.reason) }), column(r, func(r *waitingRow) *string { return r.body }))
	}
	if r := p.deliveries; len(r) > 0 {
		add(insertDeliveries, column(r, func(r *deliveryRow) int64 { return r.id }), column(r, func(r *deliveryRow) int32 { return r.n }),
			column(r, func(r *deliveryRow) int64 { return r.at }), column(r, func(r *deliveryRow) string { return r.body }), column(r, func(r *deliveryRow) []byte { return r.payload }))
	}
	if r := p.ended; len(r) > 0 {
		add(insertEnded, column(r, func(r *endedRow) int64 { return r.id }), column(r, func(r *endedRow) string { return r.state }),
			column(r, func(r *endedRow) string { return r.reason }), column(r, func(r *endedRow) int64 { return r.at }), column(r, func(r *endedRow) bool { return r.wiped }))
	}
	if r := p.events; len(r) > 0 {
		add(insertEvents, column(r, func(r *eventRow) int64 { return r.id }), column(r, func(r *eventRow) int32 { return r.n }), column(r, func(r *eventRow) int64 { return r.at }),
			column(r, func(r *eventRow) string { return r.kind }), column(r, func(r *eventRow) string { return r.reason }),
			column(r, func(r *eventRow) int64 { return r.until }), column(r, func(r *eventRow) string { return r.detail }))
	}
	if len(p.fanouts) > 0 {
		ids := slices.Sorted(maps.Keys(p.fanouts))
		bodies := make([]string, len(ids))
		for i, id := range ids {
			b, err := body(tx.fanouts[id])
			if err != nil {
				return err
			}
			bodies[i] = b
		}
		add(insertFanouts, numbers(ids), bodies)
	}
	if len(p.marks) > 0 {
		keys := slices.SortedFunc(maps.Keys(p.marks), markKey.compare)
		add(insertMarks, column(keys, func(k *markKey) string { return k.project }), column(keys, func(k *markKey) string { return k.recipient }),
			column(keys, func(k *markKey) string { return k.category }), column(keys, func(k *markKey) string { return k.subject }),
			column(keys, func(k *markKey) int64 { return p.marks[*k].at }), column(keys, func(k *markKey) *string { return p.marks[*k].data }),
			column(keys, func(k *markKey) int64 { return p.marks[*k].id }))
	}
	if len(p.freed) > 0 {
		add(freeFacts, p.freed)
	}
	if len(p.wiped) > 0 {
		slices.Sort(p.wiped)
		add(wipeNotifications, p.wiped)
	}
	type landing struct {
		subject markKey
		now     time.Time
	}
	var landings []landing
	if landed := p.landed; len(landed) > 0 {
		list = append(list, statement{query: landFlights, args: []any{slices.Sorted(maps.Keys(landed))}, row: func(scan func(...any) error) error {
			var id int64
			var k markKey
			err := scan(&id, &k.project, &k.recipient, &k.category, &k.subject)
			landings = append(landings, landing{k, landed[id]})
			return err
		}})
	}
	*p = pending{}
	if err := tx.conn.batch(tx.ctx, list); err != nil {
		return err
	}
	slices.SortFunc(landings, func(a, b landing) int { return a.subject.compare(b.subject) })
	for _, l := range landings {
		if err := tx.wake(l.now, belfry.ReasonHeldByCooldown, `w.project = $3 AND w.recipient = $4 AND n.category = $5 AND n.subject = $6`, l.subject.project, l.subject.recipient, l.subject.category, l.subject.subject); err != nil {
			return err
		}
	}
	return nil
}
