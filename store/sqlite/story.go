package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"belfry"
	"belfry/store"
)

func (s *Store) Notification(ctx context.Context, project string, id belfry.ID) (story store.Story, err error) {
	err = s.view(ctx, func(tx *txn) error {
		story, err = tx.story(project, id)
		return err
	})
	return story, err
}

func (tx *txn) story(project string, id belfry.ID) (st store.Story, err error) {
	n, ok, err := tx.notification(id)
	if err != nil || !ok || n.Project != project {
		return st, orNotFound(err, "notification")
	}
	st.Summary.Notification = n
	if st.State, st.Reason, err = tx.state(id); err != nil {
		return st, err
	}
	var ended int64
	if _, err := tx.one(`SELECT at FROM ended WHERE id = ?`, []any{id}, &ended); err != nil {
		return st, err
	}
	st.EndedAt = instant(ended)
	if r, ok, err := tx.recipient(project, n.Recipient); err != nil {
		return st, err
	} else if ok {
		st.Recipient = &r
	}
	if _, err := tx.one(`SELECT o.duplicates FROM notification n JOIN once o ON o.fact = n.fact AND o.notification = n.id WHERE n.id = ?`, []any{id}, &st.Duplicates); err != nil {
		return st, err
	}
	if err := tx.storyDeliveries(&st); err != nil {
		return st, err
	}
	slices.SortFunc(st.Deliveries, func(a, b store.DeliveryStory) int { return cmp.Compare(a.Delivery.ID.N, b.Delivery.ID.N) })
	for i, d := range st.Deliveries {
		if d.Delivery.Target > 0 {
			continue
		}
		if e, err := tx.endpoints(`e.id = ?`, d.Delivery.Endpoint); err != nil {
			return st, err
		} else if len(e) > 0 {
			st.Deliveries[i].Endpoint = e[0]
		}
	}
	return st, tx.each(`SELECT at, n, kind, reason, until, detail FROM event WHERE id = ? ORDER BY at, rowid`, func(scan func(...any) error) error {
		var e store.Event
		var at, until int64
		err := scan(&at, &e.N, &e.Kind, &e.Reason, &until, &e.Detail)
		e.At, e.Until = instant(at), instant(until)
		st.Events = append(st.Events, e)
		return err
	}, id)
}

// storyDeliveries gathers the deliveries from wherever they stand.
func (tx *txn) storyDeliveries(st *store.Story) error {
	id := st.Summary.Notification.ID
	err := tx.each(`SELECT n, due_at, 0, body FROM waiting WHERE id = ?1
UNION ALL SELECT n, 0, ended_at, body FROM delivery WHERE id = ?1 ORDER BY 1`, func(scan func(...any) error) error {
		var num int
		var due, ended int64
		var b sql.NullString
		if err := scan(&num, &due, &ended, &b); err != nil {
			return err
		}
		if due > 0 && (st.Waits.IsZero() || instant(due).Before(st.Waits)) {
			st.Waits = instant(due)
		}
		if num == 0 {
			return nil
		}
		d := store.DeliveryStory{EndedAt: instant(ended)}
		if err := json.Unmarshal([]byte(b.String), &d.Delivery); err != nil {
			return err
		}
		st.Deliveries = append(st.Deliveries, d)
		return nil
	}, id)
	if err != nil {
		return err
	}
	return tx.each(`SELECT items FROM claim WHERE instr(items, json_quote(?)) > 0`, func(scan func(...any) error) error {
		var items string
		var rows []itemRow
		if err := scan(&items); err != nil {
			return err
		}
		if err := json.Unmarshal([]byte(items), &rows); err != nil {
			return err
		}
		for _, r := range rows {
			if r.ID == id && r.Delivery != nil {
				st.Deliveries = append(st.Deliveries, store.DeliveryStory{Delivery: *r.Delivery})
			}
		}
		return nil
	}, id.String())
}

// listScan is how many rows one call of Notifications looks at, at most.
const listScan = 5000

func (s *Store) Notifications(ctx context.Context, f store.Filter, before belfry.ID, limit int) (out []store.Summary, next belfry.ID, err error) {
	where, args := []string{"n.project = ?"}, []any{f.Project}
	add := func(clause string, arg any) { where, args = append(where, clause), append(args, arg) }
	if before != 0 {
		add("n.id < ?", before)
	}
	if f.ID != 0 {
		add("n.id = ?", f.ID)
	}
	if f.Recipient != "" {
		add("n.recipient = ?", f.Recipient)
	}
	query := `SELECT e.state, e.reason, e.at, ` + notificationColumns + ` FROM notification n LEFT JOIN ended e ON e.id = n.id WHERE ` + strings.Join(where, " AND ") + ` ORDER BY n.id DESC LIMIT ?`
	err = s.view(ctx, func(tx *txn) error {
		out, next = nil, 0
		seen := 0
		err := tx.each(query, func(scan func(...any) error) error {
			seen++
			if len(out) == limit {
				return nil
			}
			var state, reason sql.NullString
			var at sql.NullInt64
			var sum store.Summary
			if err := scanNotification(scan, &sum.Notification, &state, &reason, &at); err != nil {
				return err
			}
			next = sum.Notification.ID
			if !matches(f, sum.Notification) {
				return nil
			}
			sum.State, sum.Reason, sum.EndedAt = belfry.State(state.String), belfry.Reason(reason.String), instant(at.Int64)
			if state.Valid && (f.State != "" && sum.State != f.State || f.Reason != "" && sum.Reason != f.Reason) {
				return nil
			}
			out = append(out, sum)
			return nil
		}, append(args, listScan)...)
		if err != nil {
			return err
		}
		if seen < listScan && (len(out) < limit || seen == len(out)) {
			next = 0
		}
		return tx.openStates(f, &out)
	})
	return out, next, err
}

// openStates says how the open ones stand, and drops those that the filter does not want.
func (tx *txn) openStates(f store.Filter, list *[]store.Summary) error {
	kept := (*list)[:0]
	for _, sum := range *list {
		if sum.State == "" {
			var err error
			if sum.State, _, err = tx.state(sum.Notification.ID); err != nil {
				return err
			}
			var due int64
			if _, err := tx.one(`SELECT coalesce(min(due_at), 0) FROM waiting WHERE id = ?`, []any{sum.Notification.ID}, &due); err != nil {
				return err
			}
			sum.Waits = instant(due)
			if f.State != "" && sum.State != f.State || f.Reason != "" && sum.Reason != f.Reason {
				continue
			}
		}
		kept = append(kept, sum)
	}
	*list = kept
	return nil
}

func (s *Store) Newest(ctx context.Context) (id belfry.ID, err error) {
	err = s.view(ctx, func(tx *txn) error {
		_, err := tx.one(`SELECT coalesce(max(id), 0) FROM notification`, nil, &id)
		return err
	})
	return id, err
}

func (s *Store) Stats(ctx context.Context, project string) (st store.Stats, err error) {
	err = s.view(ctx, func(tx *txn) error {
		st = store.Stats{}
		err := tx.each(`SELECT project, state, reason, count FROM stat WHERE (?1 = '' OR project = ?1) AND count > 0 ORDER BY 1, 2, 3`, func(scan func(...any) error) error {
			var c store.EndedCount
			err := scan(&c.Project, &c.State, &c.Reason, &c.Count)
			st.Ended = append(st.Ended, c)
			return err
		}, project)
		if err != nil {
			return err
		}
		heads, err := tx.heads()
		if err != nil {
			return err
		}
		for _, h := range heads {
			if h.Queue != store.Parked && (project == "" || h.Project == project) && (st.Oldest.IsZero() || h.Due.Before(st.Oldest)) {
				st.Oldest = h.Due
			}
		}
		// The waiting rooms are small rows in one index; a project's share of them is counted.
		if _, err := tx.one(`SELECT count(*) FROM waiting WHERE ?1 = '' OR project = ?1`, []any{project}, &st.Waiting); err != nil {
			return err
		}
		_, err = tx.one(`SELECT count(*) FROM claim c, json_each(c.items) i WHERE ?1 = '' OR i.value ->> 'project' = ?1`, []any{project}, &st.Sending)
		return err
	})
	return st, err
}

// Purge looks only at what was made before the times it is given, ids growing with time, and at what has
// content left: the years in between are not read.
func (s *Store) Purge(ctx context.Context, now time.Time, content, rows time.Time, limit int) (touched int, err error) {
	err = s.doRows(ctx, durable, limit, false, func(tx *txn) error {
		touched = 0
		var ids []belfry.ID
		err := tx.each(`SELECT id FROM ended WHERE at < ?1 AND id < ?2 ORDER BY id LIMIT ?3`, func(scan func(...any) error) error {
			var id belfry.ID
			err := scan(&id)
			ids = append(ids, id)
			return err
		}, micros(rows), belfry.MakeID(rows, 0, 0), limit)
		if err != nil {
			return err
		}
		for _, statement := range []string{
			`DELETE FROM delivery WHERE id IN (SELECT value FROM json_each(?))`,
			`DELETE FROM event WHERE id IN (SELECT value FROM json_each(?))`,
			`DELETE FROM fanout WHERE id IN (SELECT value FROM json_each(?))`,
			`DELETE FROM notification WHERE id IN (SELECT value FROM json_each(?))`,
			`DELETE FROM ended WHERE id IN (SELECT value FROM json_each(?))`,
		} {
			if len(ids) == 0 {
				break
			}
			if err := tx.exec(statement, numbers(ids)); err != nil {
				return err
			}
		}
		touched += len(ids)
		ids = ids[:0]
		err = tx.each(`SELECT id FROM ended WHERE wiped = 0 AND at < ? ORDER BY at LIMIT ?`, func(scan func(...any) error) error {
			var id belfry.ID
			err := scan(&id)
			ids = append(ids, id)
			return err
		}, micros(content), limit-touched)
		if err != nil {
			return err
		}
		for _, statement := range []string{
			`UPDATE delivery SET body = json_remove(body, '$.payload') WHERE id IN (SELECT value FROM json_each(?))`,
			`UPDATE notification SET data = NULL WHERE id IN (SELECT value FROM json_each(?))`,
			`UPDATE ended SET wiped = 1 WHERE id IN (SELECT value FROM json_each(?))`,
		} {
			if len(ids) == 0 {
				break
			}
			if err := tx.exec(statement, numbers(ids)); err != nil {
				return err
			}
		}
		touched += len(ids)
		for _, statement := range []string{
			`DELETE FROM request WHERE key IN (SELECT key FROM request WHERE expires_at <= ? LIMIT ?)`,
			`DELETE FROM once WHERE fact IN (SELECT fact FROM once WHERE expires_at > 0 AND expires_at <= ? LIMIT ?)`,
		} {
			gone, err := tx.change(statement, micros(now), limit-touched)
			if err != nil {
				return err
			}
			touched += int(gone)
		}
		return nil
	})
	return touched, err
}

// numbers is a JSON array of ids as the tables have them.
func numbers(ids []belfry.ID) string {
	n := make([]int64, len(ids))
	for i, id := range ids {
		n[i] = int64(id)
	}
	return list(n)
}
