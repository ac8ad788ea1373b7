package sqlite

import (
	"encoding/json"
	"time"

	"belfry"
	"belfry/store"
)

// archive writes down a delivery that ended. Evidence that comes later replaces it.
func (tx *txn) archive(n belfry.Notification, d belfry.Delivery, at time.Time) {
	if n.Sensitive {
		d.Payload = nil
	}
	tx.add(intoDelivery, d.ID.Notification, d.ID.N, micros(at), string(appendDelivery(nil, &d)))
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
	if err := tx.setFanout(n.ID, f); err != nil {
		return err
	}
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
		if err := tx.exec(`UPDATE ended SET state = ?, reason = ? WHERE id = ?`, state, reason, n.ID); err != nil {
			return err
		}
		tx.count(n.Project, was, why, -1)
	} else {
		tx.add(intoEnded, n.ID, state, reason, micros(now), n.Sensitive)
	}
	tx.summary = state
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
	if tx.flights == 0 {
		var one int
		ok, err := tx.peek(`SELECT 1 FROM flight LIMIT 1`, nil, &one)
		if err != nil {
			return err
		}
		if tx.flights = 1; ok {
			tx.flights = 2
		}
	}
	if tx.flights == 1 {
		return nil
	}
	landed, err := tx.change(`DELETE FROM flight WHERE project = ? AND recipient = ? AND category = ? AND subject = ? AND id = ?`,
		n.Project, n.Recipient, n.Category, n.Subject, n.ID)
	if err != nil || landed == 0 {
		return err
	}
	return tx.wake(now, `w.body ->> 'reason' = '`+string(belfry.ReasonHeldByCooldown)+`' AND w.project = ?2 AND w.recipient = ?3 AND n.category = ?4 AND n.subject = ?5`, n.Project, n.Recipient, n.Category, n.Subject)
}

// wake moves what is parked back to where it came from, to be judged again: due now, though not before its
// own due time, whatever the clock says.
func (tx *txn) wake(now time.Time, where string, args ...any) error {
	err := tx.exec(`INSERT INTO waiting (queue, lane, project, due_at, id, n, home, recipient, body)
SELECT w.home, w.lane, w.project, max(n.due_at, min(?1, w.due_at)), w.id, w.n, NULL, iif(w.n > 0, w.recipient, NULL), json_remove(w.body, '$.reason')
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
	f, err := tx.fanout(id)
	if err != nil {
		return "", "", err
	}
	if len(f.Deliveries) > 0 {
		if s := f.Summary(); s.State == belfry.Sent {
			return s.State, s.Reason, nil
		}
		return belfry.Sending, "", nil
	}
	// Scheduled, while nothing but the notification itself waits.
	var waits int
	if ok, err = tx.one(`SELECT 1 FROM waiting WHERE id = ? AND n = 0`, []any{id}, &waits); ok {
		return belfry.Scheduled, "", err
	}
	return belfry.Sending, "", err
}

func (tx *txn) event(id belfry.ID, e store.Event) {
	tx.add(intoEvent, id, e.N, micros(e.At), e.Kind, e.Reason, micros(e.Until), e.Detail)
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
