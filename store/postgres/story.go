package postgres

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strconv"
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
	all, err := tx.standings([]belfry.ID{id})
	if err != nil {
		return st, err
	}
	st.State, st.Reason, st.EndedAt, st.Waits = all[id].state, all[id].reason, all[id].ended, all[id].waits
	if r, ok, err := tx.recipient(project, n.Recipient); err != nil {
		return st, err
	} else if ok {
		st.Recipient = &r
	}
	if _, err := tx.one(`SELECT o.duplicates FROM notification n JOIN once o ON o.fact = n.fact AND o.notification = n.id WHERE n.id = $1`, []any{int64(id)}, &st.Duplicates); err != nil {
		return st, err
	}
	if err := tx.storyDeliveries(&st); err != nil {
		return st, err
	}
	var ids []belfry.ID
	for _, d := range st.Deliveries {
		ids = append(ids, d.Delivery.Endpoint)
	}
	endpoints, err := tx.endpoints(`e.id = ANY ($1::bigint[])`, numbers(ids))
	if err != nil {
		return st, err
	}
	for i, d := range st.Deliveries {
		at := slices.IndexFunc(endpoints, func(e belfry.Endpoint) bool { return e.ID == d.Delivery.Endpoint })
		if at >= 0 && d.Delivery.Target == 0 {
			st.Deliveries[i].Endpoint = endpoints[at]
		}
	}
	return st, tx.each(`SELECT at, n, kind, reason, until, detail FROM event WHERE id = $1 ORDER BY at, seq`, func(scan func(...any) error) error {
		var e store.Event
		var at, until int64
		err := scan(&at, &e.N, &e.Kind, &e.Reason, &until, &e.Detail)
		e.At, e.Until = instant(at), instant(until)
		st.Events = append(st.Events, e)
		return err
	}, int64(id))
}

// storyDeliveries gathers the deliveries from wherever they stand.
func (tx *txn) storyDeliveries(st *store.Story) error {
	id := st.Summary.Notification.ID
	err := tx.each(`SELECT 0, reason, body, NULL::bytea FROM waiting WHERE id = $1 AND n > 0
UNION ALL SELECT ended_at, '', body, payload FROM delivery WHERE id = $1`, func(scan func(...any) error) (err error) {
		var ended int64
		var reason belfry.Reason
		var b string
		var payload []byte
		if err := scan(&ended, &reason, &b, &payload); err != nil {
			return err
		}
		d := store.DeliveryStory{EndedAt: instant(ended)}
		if ended > 0 {
			d.Delivery, err = archivedDelivery(b, payload)
		} else {
			var open *belfry.Delivery
			open, err = waitingDelivery(&b, reason)
			d.Delivery = *open
		}
		st.Deliveries = append(st.Deliveries, d)
		return err
	}, int64(id))
	if err != nil {
		return err
	}
	claims, err := tx.load(claimsByItem, []int64{int64(id)})
	if err != nil {
		return err
	}
	for _, c := range claims {
		for _, it := range tx.claims[c].items {
			if it.Notification.ID == id && it.Delivery != nil {
				st.Deliveries = append(st.Deliveries, store.DeliveryStory{Delivery: *it.Delivery})
			}
		}
	}
	slices.SortFunc(st.Deliveries, func(a, b store.DeliveryStory) int { return cmp.Compare(a.Delivery.ID.N, b.Delivery.ID.N) })
	return nil
}

// listScan is how many rows one call of Notifications looks at, at most.
const listScan = 5000

func (s *Store) Notifications(ctx context.Context, f store.Filter, before belfry.ID, limit int) (out []store.Summary, next belfry.ID, err error) {
	var args []any
	clause := func(clause string, arg any) string {
		args = append(args, arg)
		return ` AND ` + clause + ` $` + strconv.Itoa(len(args))
	}
	scanned := `SELECT * FROM notification n WHERE true` + clause(`n.project =`, f.Project)
	if before != 0 {
		scanned += clause(`n.id <`, int64(before))
	}
	if f.ID != 0 {
		scanned += clause(`n.id =`, int64(f.ID))
	}
	if f.Recipient != "" {
		scanned += clause(`n.recipient =`, f.Recipient)
	}
	scanned += ` ORDER BY n.id DESC LIMIT ` + strconv.Itoa(listScan)
	wide := len(args)
	wanted := `true`
	for _, c := range []struct{ column, value string }{{`n.category =`, f.Category}, {`n.subject =`, f.Subject}} {
		if c.value != "" {
			wanted += clause(c.column, c.value)
		}
	}
	if !f.Since.IsZero() {
		wanted += clause(`n.created_at >=`, micros(f.Since))
	}
	if !f.Until.IsZero() {
		wanted += clause(`n.created_at <`, micros(f.Until))
	}
	if f.State != "" {
		wanted += clause(`coalesce(e.state, $`+strconv.Itoa(len(args)+1)+`) =`, string(f.State))
	}
	if f.Reason != "" {
		wanted += clause(`coalesce(e.reason, $`+strconv.Itoa(len(args)+1)+`) =`, string(f.Reason))
	}
	err = s.view(ctx, func(tx *txn) error {
		out, next = nil, 0
		err := tx.each(`SELECT e.state, e.reason, e.at, `+notificationColumns+` FROM (`+scanned+`) n LEFT JOIN ended e ON e.id = n.id WHERE `+wanted+` ORDER BY n.id DESC LIMIT `+strconv.Itoa(limit), func(scan func(...any) error) error {
			var state, reason *string
			var at *int64
			var sum store.Summary
			if err := scanNotification(scan, &sum.Notification, &state, &reason, &at); err != nil {
				return err
			}
			if state != nil {
				sum.State, sum.Reason, sum.EndedAt = belfry.State(*state), belfry.Reason(*reason), instant(*at)
			}
			out = append(out, sum)
			return nil
		}, args...)
		if err != nil {
			return err
		}
		if len(out) == limit && limit > 0 {
			next = out[limit-1].Notification.ID
		}
		var seen int
		var last int64
		if _, err := tx.one(`SELECT count(*), coalesce(min(id), 0) FROM (`+scanned+`) n`, args[:wide], &seen, &last); err != nil {
			return err
		}
		if next == 0 && seen == listScan {
			next = belfry.ID(last)
		} else if next == belfry.ID(last) && seen < listScan {
			next = 0
		}
		return tx.openStates(f, &out)
	})
	return out, next, err
}

// openStates says how the open ones stand, and drops those that the filter does not want.
func (tx *txn) openStates(f store.Filter, list *[]store.Summary) error {
	var open []belfry.ID
	for _, sum := range *list {
		if sum.State == "" {
			open = append(open, sum.Notification.ID)
		}
	}
	all, err := tx.standings(open)
	if err != nil {
		return err
	}
	kept := (*list)[:0]
	for _, sum := range *list {
		if sum.State == "" {
			st := all[sum.Notification.ID]
			sum.State, sum.Waits = st.state, st.waits
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
		var newest int64
		_, err := tx.one(`SELECT coalesce(max(id), 0) FROM notification`, nil, &newest)
		id = belfry.ID(newest)
		return err
	})
	return id, err
}

func (s *Store) Stats(ctx context.Context, project string) (st store.Stats, err error) {
	err = s.view(ctx, func(tx *txn) error {
		st = store.Stats{}
		err := tx.each(`SELECT project, state, reason, sum(count)::bigint FROM stat WHERE $1 = '' OR project = $1 GROUP BY 1, 2, 3 HAVING sum(count) > 0 ORDER BY 1, 2, 3`, func(scan func(...any) error) error {
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
		if _, err := tx.one(`SELECT count(*) FROM waiting WHERE $1 = '' OR project = $1`, []any{project}, &st.Waiting); err != nil {
			return err
		}
		return tx.each(`SELECT counts FROM claim`, func(scan func(...any) error) error {
			var counts string
			if err := scan(&counts); err != nil {
				return err
			}
			var of map[string]int
			err := json.Unmarshal([]byte(counts), &of)
			for p, n := range of {
				if project == "" || p == project {
					st.Sending += n
				}
			}
			return err
		})
	})
	return st, err
}

// What ends of a notification's content is forgotten.
var (
	forget = []string{
		`DELETE FROM delivery WHERE id = ANY ($1::bigint[])`,
		`DELETE FROM event WHERE id = ANY ($1::bigint[])`,
		`DELETE FROM fanout WHERE id = ANY ($1::bigint[])`,
		`DELETE FROM notification WHERE id = ANY ($1::bigint[])`,
		`DELETE FROM ended WHERE id = ANY ($1::bigint[])`,
	}
	wipe = []string{
		`UPDATE delivery SET payload = NULL WHERE id = ANY ($1::bigint[]) AND payload IS NOT NULL`,
		`UPDATE notification SET data = NULL WHERE id = ANY ($1::bigint[]) AND data IS NOT NULL`,
		`UPDATE ended SET wiped = true WHERE id = ANY ($1::bigint[])`,
	}
	expire = []string{
		`DELETE FROM request WHERE key = ANY (ARRAY(SELECT key FROM request WHERE expires_at <= $1 LIMIT $2 FOR UPDATE SKIP LOCKED))`,
		`DELETE FROM once WHERE fact = ANY (ARRAY(SELECT fact FROM once WHERE expires_at > 0 AND expires_at <= $1 LIMIT $2 FOR UPDATE SKIP LOCKED))`,
	}
)

// Purge does not wait for another node that purges.
func (s *Store) Purge(ctx context.Context, now time.Time, content, rows time.Time, limit int) (touched int, err error) {
	err = s.do(ctx, durable, func(tx *txn) error {
		touched = 0
		for _, part := range []struct {
			of         string
			at         time.Time
			statements []string
		}{
			{`at < $1`, rows, forget},
			{`at < $1 AND NOT wiped`, content, wipe},
		} {
			var ids []belfry.ID
			err := tx.each(`SELECT id FROM ended WHERE `+part.of+` LIMIT $2 FOR UPDATE SKIP LOCKED`, func(scan func(...any) error) error {
				var id belfry.ID
				err := scan(&id)
				ids = append(ids, id)
				return err
			}, micros(part.at), limit-touched)
			if err != nil {
				return err
			}
			if len(ids) == 0 {
				continue
			}
			for _, statement := range part.statements {
				if err := tx.exec(statement, numbers(ids)); err != nil {
					return err
				}
			}
			touched += len(ids)
		}
		for _, statement := range expire {
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
