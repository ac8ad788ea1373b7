package sqlite

import (
	"encoding/json"
	"time"

	"belfry"
	"belfry/store"
)

// archive writes down a delivery that ended. Evidence that comes later replaces it.
func (tx *txn) archive(n belfry.Notification, d belfry.Delivery, at time.Time) error {
	if n.Sensitive {
		d.Payload = nil
	}
	b, err := body(d)
	if err != nil {
		return err
	}
	return tx.exec(`INSERT INTO delivery (id, n, ended_at, body) VALUES (?, ?, ?, ?)
ON CONFLICT (id, n) DO UPDATE SET body = excluded.body`, d.ID.Notification, d.ID.N, micros(at), b)
}

// put is where every delivery that moved goes: to the archive, to a waiting room, or aside. home is the
// queue of a notification that is planned again.
func (tx *txn) put(n belfry.Notification, d belfry.Delivery, now time.Time) error {
	var err error
	switch {
	case d.State.Ended():
		err = tx.archive(n, d, now)
	case d.Reason == belfry.ReasonPaused:
		if err = tx.park(n, d.Channel, d.Next, &d, store.Wait{}); err == nil {
			err = tx.event(n.ID, store.Event{At: now, N: d.ID.N, Kind: store.EventHeld, Reason: d.Reason, Until: d.Next})
		}
	default:
		err = tx.waitDelivery(n, d)
	}
	if err != nil {
		return err
	}
	return tx.summarize(n, d, now)
}

// summarize carries a delivery's move to its notification.
func (tx *txn) summarize(n belfry.Notification, d belfry.Delivery, now time.Time) error {
	if d.Sole {
		if !d.State.Ended() {
			return nil
		}
		return tx.end(n, d.State, d.Reason, now)
	}
	f, err := tx.fanout(n.ID)
	if err != nil {
		return err
	}
	f = f.With(d)
	if err := tx.setFanout(n.ID, f); err != nil {
		return err
	}
	return tx.settleFanout(n, f, now)
}

// settleFanout ends a notification whose deliveries have all ended, or starts its next stage.
func (tx *txn) settleFanout(n belfry.Notification, f store.Fanout, now time.Time) error {
	switch {
	case f.Open():
		return nil
	case f.GoesOn():
		if err := tx.event(n.ID, store.Event{At: now, Kind: store.EventNextStage}); err != nil {
			return err
		}
		return tx.waitNotification(n, "", now, store.Wait{Stage: f.Stage, From: f.Last()})
	}
	s := f.Summary()
	return tx.end(n, s.State, s.Reason, now)
}

func (tx *txn) fanout(id belfry.ID) (f store.Fanout, err error) {
	var b string
	ok, err := tx.one(`SELECT body FROM fanout WHERE id = ?`, []any{id}, &b)
	if ok {
		err = json.Unmarshal([]byte(b), &f)
	}
	return f, err
}

func (tx *txn) setFanout(id belfry.ID, f store.Fanout) error {
	b, err := body(f)
	if err != nil {
		return err
	}
	return tx.exec(`INSERT INTO fanout (id, body) VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET body = excluded.body`, id, b)
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
	return tx.end(n, state, reason, now)
}

// end writes a notification's end, frees its fact and lets the next about its subject go. An end that
// evidence changes is written again.
func (tx *txn) end(n belfry.Notification, state belfry.State, reason belfry.Reason, now time.Time) error {
	written, err := tx.change(`INSERT INTO ended (id, state, reason, at, wiped) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`,
		n.ID, state, reason, micros(now), n.Sensitive)
	if err != nil {
		return err
	}
	if written == 0 {
		was, why, err := tx.state(n.ID)
		if err != nil || was == state && why == reason {
			return err
		}
		if err := tx.exec(`UPDATE ended SET state = ?, reason = ? WHERE id = ?`, state, reason, n.ID); err != nil {
			return err
		}
		tx.count(n.Project, was, why, -1)
	}
	tx.count(n.Project, state, reason, 1)
	if n.Once != nil && n.Once.Releases(state) {
		err := tx.exec(`DELETE FROM once WHERE notification = ?1 AND fact = (SELECT fact FROM notification WHERE id = ?1)`, n.ID)
		if err != nil {
			return err
		}
	}
	if n.Sensitive {
		if err := tx.exec(`UPDATE notification SET data = NULL WHERE id = ?`, n.ID); err != nil {
			return err
		}
	}
	return tx.land(n, now)
}

// land ends a notification's flight and wakes those that waited for it.
func (tx *txn) land(n belfry.Notification, now time.Time) error {
	var one int
	if ok, err := tx.one(`SELECT 1 FROM flight LIMIT 1`, nil, &one); err != nil || !ok {
		return err
	}
	landed, err := tx.change(`DELETE FROM flight WHERE project = ? AND recipient = ? AND category = ? AND subject = ? AND id = ?`,
		n.Project, n.Recipient, n.Category, n.Subject, n.ID)
	if err != nil || landed == 0 {
		return err
	}
	return tx.wake(now, `w.project = ?2 AND w.recipient = ?3 AND n.category = ?4 AND n.subject = ?5`, n.Project, n.Recipient, n.Category, n.Subject)
}

// wake moves what is parked back to where it came from, due now, to be judged again.
func (tx *txn) wake(now time.Time, where string, args ...any) error {
	err := tx.exec(`INSERT INTO waiting (queue, lane, project, due_at, id, n, home, recipient, body)
SELECT w.home, w.lane, w.project, min(?1, w.due_at), w.id, w.n, NULL, iif(w.n > 0, w.recipient, NULL), w.body
FROM waiting w JOIN notification n ON n.id = w.id WHERE w.queue = '`+store.Parked+`' AND `+where, append([]any{micros(now)}, args...)...)
	if err != nil {
		return err
	}
	return tx.exec(`DELETE FROM waiting WHERE queue = '`+store.Parked+`' AND (id, n) IN (
SELECT w.id, w.n FROM waiting w JOIN notification n ON n.id = w.id WHERE w.queue = '`+store.Parked+`' AND `+where+` AND ?1 IS NOT NULL)`, append([]any{micros(now)}, args...)...)
}

// state is the end of a notification, or how it stands while it is open.
func (tx *txn) state(id belfry.ID) (state belfry.State, reason belfry.Reason, err error) {
	ok, err := tx.one(`SELECT state, reason FROM ended WHERE id = ?`, []any{id}, &state, &reason)
	if ok || err != nil {
		return state, reason, err
	}
	// Open: scheduled while nothing but the notification itself waits.
	var deliveries int
	ok, err = tx.one(`SELECT (SELECT count(*) FROM waiting WHERE id = ?1 AND n > 0) + (SELECT count(*) FROM fanout WHERE id = ?1)`, []any{id}, &deliveries)
	if err != nil || deliveries > 0 || !ok {
		return belfry.Sending, "", err
	}
	var waits int
	waiting, err := tx.one(`SELECT 1 FROM waiting WHERE id = ? AND n = 0`, []any{id}, &waits)
	if waiting {
		return belfry.Scheduled, "", err
	}
	return belfry.Sending, "", err
}

func (tx *txn) event(id belfry.ID, e store.Event) error {
	return tx.exec(`INSERT INTO event (id, n, at, kind, reason, until, detail) VALUES (?, ?, ?, ?, ?, ?, ?)`,
		id, e.N, micros(e.At), e.Kind, e.Reason, micros(e.Until), e.Detail)
}

type statKey struct {
	project string
	state   belfry.State
	reason  belfry.Reason
}

// count moves a counter; the row is written once, before the commit.
func (tx *txn) count(project string, state belfry.State, reason belfry.Reason, by int) {
	tx.stats[statKey{project, state, reason}] += by
}

func (tx *txn) flushStats() error {
	for k, by := range tx.stats {
		err := tx.exec(`INSERT INTO stat (project, state, reason, count) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (project, state, reason) DO UPDATE SET count = count + ?4`, k.project, k.state, k.reason, by)
		if err != nil {
			return err
		}
	}
	return nil
}
