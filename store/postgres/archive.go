package postgres

import (
	"cmp"
	"encoding/json"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"belfry"
	"belfry/store"
)

// archive writes down a delivery that ended. Evidence that comes later replaces it.
func (tx *txn) archive(n belfry.Notification, d belfry.Delivery, at time.Time) {
	row := deliveryRow{id: int64(d.ID.Notification), n: int32(d.ID.N), at: micros(at)}
	if !n.Sensitive {
		row.payload = d.Payload
	}
	d.Payload = nil
	row.body = string(appendDelivery(nil, &d))
	tx.pending.any = true
	tx.pending.deliveries = append(tx.pending.deliveries, row)
}

// archivedDelivery reads what archive wrote.
func archivedDelivery(b string, payload []byte) (d belfry.Delivery, err error) {
	err = json.Unmarshal([]byte(b), &d)
	d.Payload = payload
	return d, err
}

// put is where every delivery that moved goes: to the archive, to a waiting room, or aside. again says that
// it had ended before, and evidence moved it.
func (tx *txn) put(n belfry.Notification, d belfry.Delivery, again bool, now time.Time) error {
	var err error
	switch {
	case d.State.Ended():
		tx.archive(n, d, now)
	case d.Reason == belfry.ReasonPaused:
		tx.event(n.ID, store.Event{At: now, N: d.ID.N, Kind: store.EventHeld, Reason: d.Reason, Until: d.Next})
		err = tx.park(n, d.Channel, d.Next, &d, store.Wait{})
	default:
		err = tx.waitDelivery(n, d)
	}
	if err != nil {
		return err
	}
	return tx.summarize(n, d, again, now)
}

// summarize carries a delivery's move to its notification.
func (tx *txn) summarize(n belfry.Notification, d belfry.Delivery, again bool, now time.Time) error {
	if d.Sole {
		if !d.State.Ended() {
			return nil
		}
		return tx.end(n, d.State, d.Reason, again, now)
	}
	before, err := tx.fanout(n.ID)
	if err != nil {
		return err
	}
	f := before.With(d)
	tx.setFanout(n.ID, f)
	return tx.settleFanout(n, f, again && !before.Open(), now)
}

// settleFanout ends a notification whose deliveries have all ended, or starts its next stage.
func (tx *txn) settleFanout(n belfry.Notification, f store.Fanout, again bool, now time.Time) error {
	switch {
	case f.Open():
		return nil
	case f.GoesOn() && !again:
		tx.event(n.ID, store.Event{At: now, Kind: store.EventNextStage})
		return tx.waitNotification(n, "", now, store.Wait{Stage: f.Stage, From: f.Last()})
	}
	s := f.Summary()
	return tx.end(n, s.State, s.Reason, again, now)
}

// fanout is where the deliveries of a notification stand; the row is locked.
func (tx *txn) fanout(id belfry.ID) (store.Fanout, error) {
	if _, known := tx.fanouts[id]; !known {
		if err := tx.loadFanouts([]belfry.ID{id}); err != nil {
			return store.Fanout{}, err
		}
	}
	return tx.fanouts[id], nil
}

// loadFanouts reads and locks, in the order of their ids. What has none is an empty one.
func (tx *txn) loadFanouts(ids []belfry.ID) error {
	if len(ids) == 0 {
		return nil
	}
	for _, id := range ids {
		tx.fanouts[id] = store.Fanout{}
	}
	return tx.each(`SELECT id, body FROM fanout WHERE id = ANY ($1::bigint[]) ORDER BY id FOR UPDATE`, func(scan func(...any) error) error {
		var id belfry.ID
		var b string
		if err := scan(&id, &b); err != nil {
			return err
		}
		var f store.Fanout
		err := json.Unmarshal([]byte(b), &f)
		tx.fanouts[id] = f
		return err
	}, numbers(ids))
}

func (tx *txn) setFanout(id belfry.ID, f store.Fanout) {
	tx.fanouts[id] = f
	tx.pending.any = true
	if tx.pending.fanouts == nil {
		tx.pending.fanouts = map[belfry.ID]bool{}
	}
	tx.pending.fanouts[id] = true
}

// endPlan ends a notification for which nothing (more) was planned.
func (tx *txn) endPlan(n belfry.Notification, state belfry.State, reason belfry.Reason, now time.Time) error {
	f, err := tx.fanout(n.ID)
	if err != nil {
		return err
	}
	if len(f.Deliveries) > 0 {
		s := f.Summary()
		state, reason = s.State, s.Reason
	}
	return tx.end(n, state, reason, false, now)
}

// end writes a notification's end, frees its fact and lets the next about its subject go. again says that
// it had ended, and evidence changes how.
func (tx *txn) end(n belfry.Notification, state belfry.State, reason belfry.Reason, again bool, now time.Time) error {
	if again {
		was, why, err := tx.state(n.ID)
		if err != nil || was == state && why == reason {
			return err
		}
		if err := tx.exec(`UPDATE ended SET state = $1, reason = $2 WHERE id = $3`, state, reason, int64(n.ID)); err != nil {
			return err
		}
		tx.count(n.Project, was, why, -1)
	} else {
		tx.pending.ended = append(tx.pending.ended, endedRow{int64(n.ID), string(state), string(reason), micros(now), n.Sensitive})
	}
	p := &tx.pending
	p.any = true
	tx.summary = state
	tx.count(n.Project, state, reason, 1)
	if n.Once != nil && n.Once.Releases(state) {
		p.freed = append(p.freed, int64(n.ID))
	}
	if n.Sensitive {
		p.wiped = append(p.wiped, int64(n.ID))
	}
	if p.landed == nil { // its flight ends, and those wake that waited for it
		p.landed = map[int64]time.Time{}
	}
	p.landed[int64(n.ID)] = now
	return nil
}

// wake moves what is parked for a reason back to where it came from, to be judged again: due now, though not
// before its own due time, whatever the clock says.
func (tx *txn) wake(now time.Time, reason belfry.Reason, where string, args ...any) error {
	return tx.exec(`UPDATE waiting w SET queue = w.home, due_at = greatest(n.due_at, least($1, w.due_at)), home = NULL, reason = '',
recipient = CASE WHEN w.n > 0 THEN w.recipient END
FROM notification n WHERE n.id = w.id AND w.queue = '`+store.Parked+`' AND w.reason = $2 AND `+where, append([]any{micros(now), string(reason)}, args...)...)
}

// standing is how a notification stands.
type standing struct {
	project       string
	due, deadline time.Time
	state         belfry.State
	reason        belfry.Reason
	ended         time.Time // zero while it is open
	waits         time.Time // until when it waits; zero when it does not
}

const selectStandings = `SELECT n.id, n.project, n.due_at, n.deadline, e.state, e.reason, e.at, f.body,
	(SELECT min(w.due_at) FROM waiting w WHERE w.id = n.id), EXISTS (SELECT FROM waiting w WHERE w.id = n.id AND w.n = 0)
FROM notification n LEFT JOIN ended e ON e.id = n.id LEFT JOIN fanout f ON f.id = n.id WHERE n.id = ANY ($1::bigint[])`

// standings tell the ends of notifications, or how they stand while they are open.
func (tx *txn) standings(ids []belfry.ID) (map[belfry.ID]standing, error) {
	out := make(map[belfry.ID]standing, len(ids))
	if len(ids) == 0 {
		return out, nil
	}
	err := tx.each(selectStandings, func(scan func(...any) error) error {
		var id belfry.ID
		var st standing
		var due, deadline int64
		var state, reason, b *string
		var ended, waits *int64
		var planned bool // only the notification itself waits, to be planned
		if err := scan(&id, &st.project, &due, &deadline, &state, &reason, &ended, &b, &waits, &planned); err != nil {
			return err
		}
		st.due, st.deadline = instant(due), instant(deadline)
		if waits != nil {
			st.waits = instant(*waits)
		}
		var f store.Fanout
		if b != nil {
			if err := json.Unmarshal([]byte(*b), &f); err != nil {
				return err
			}
		}
		switch {
		case state != nil:
			st.state, st.reason, st.ended = belfry.State(*state), belfry.Reason(*reason), instant(*ended)
		case f.Summary().State == belfry.Sent && len(f.Deliveries) > 0:
			st.state, st.reason = f.Summary().State, f.Summary().Reason
		case len(f.Deliveries) == 0 && planned:
			st.state = belfry.Scheduled
		default:
			st.state = belfry.Sending
		}
		out[id] = st
		return nil
	}, numbers(ids))
	return out, err
}

func (tx *txn) state(id belfry.ID) (belfry.State, belfry.Reason, error) {
	all, err := tx.standings([]belfry.ID{id})
	return all[id].state, all[id].reason, err
}

func (tx *txn) event(id belfry.ID, e store.Event) {
	tx.pending.any = true
	tx.pending.events = append(tx.pending.events, eventRow{int64(id), int32(e.N), micros(e.At), string(e.Kind), string(e.Reason), micros(e.Until), clean(e.Detail)})
}

type statKey struct {
	project string
	state   belfry.State
	reason  belfry.Reason
}

// count moves a counter; the rows are written once, before the commit.
func (tx *txn) count(project string, state belfry.State, reason belfry.Reason, by int) {
	tx.stats[statKey{project, state, reason}] += by
}

// stripes are how many rows a counter has, at most.
const stripes = 32

const addStats = `INSERT INTO stat (project, state, reason, stripe, count) SELECT p, s, r, $5, c FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[]) AS u (p, s, r, c)
ON CONFLICT (project, state, reason, stripe) DO UPDATE SET count = stat.count + excluded.count`

func (tx *txn) flushStats() error {
	if len(tx.stats) == 0 {
		return nil
	}
	keys := slices.SortedFunc(maps.Keys(tx.stats), func(a, b statKey) int {
		return cmp.Or(strings.Compare(a.project, b.project), cmp.Compare(a.state, b.state), cmp.Compare(a.reason, b.reason))
	})
	return tx.run(addStats, column(keys, func(k *statKey) string { return k.project }), column(keys, func(k *statKey) string { return string(k.state) }),
		column(keys, func(k *statKey) string { return string(k.reason) }), column(keys, func(k *statKey) int64 { return int64(tx.stats[*k]) }), int16(rand.IntN(stripes)))
}
