package sqlite

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"belfry"
	"belfry/store"
)

func (s *Store) Cancel(ctx context.Context, now time.Time, f store.Filter, dryRun bool, limit int) (store.Cancelled, error) {
	var out store.Cancelled
	err := s.do(ctx, durable, func(tx *txn) (err error) {
		out, err = tx.cancel(now, f, dryRun, limit)
		return err
	})
	return out, err
}

func (tx *txn) cancel(now time.Time, f store.Filter, dryRun bool, limit int) (out store.Cancelled, err error) {
	ids, more, err := tx.open(f, f.ID == 0, limit)
	if err != nil {
		return out, err
	}
	out.More = more
	if f.ID != 0 && len(ids) == 0 {
		if n, ok, err := tx.notification(f.ID); err != nil || !ok || n.Project != f.Project {
			return out, orNotFound(err, "notification")
		}
		out.Ended = append(out.Ended, f.ID)
		return out, nil
	}
	for _, id := range ids {
		n, ok, err := tx.notification(id)
		if err != nil {
			return out, err
		}
		if !ok {
			continue
		}
		pieces, err := tx.pieces(n)
		if err != nil {
			return out, err
		}
		if slices.ContainsFunc(pieces, func(p piece) bool { return p.delivery != nil && p.delivery.Armed }) {
			out.InFlight = append(out.InFlight, id)
		} else {
			out.Cancelled = append(out.Cancelled, id)
		}
		if dryRun {
			continue
		}
		for _, p := range pieces {
			if err := tx.cancelPiece(n, p, now); err != nil {
				return out, err
			}
		}
	}
	return out, nil
}

func orNotFound(err error, what string) error {
	if err != nil {
		return err
	}
	return belfry.Errorf(belfry.CodeNotFound, "no such %s", what)
}

func (tx *txn) cancelPiece(n belfry.Notification, p piece, now time.Time) error {
	if p.delivery == nil {
		if err := tx.remove(n, p); err != nil {
			return err
		}
		return tx.endPlan(n, belfry.Cancelled, belfry.ReasonByCaller, now)
	}
	if p.delivery.Armed && p.delivery.Cancel {
		return nil
	}
	d, ok := p.delivery.CancelNow()
	if !ok { // armed: it is written down that it was asked for
		tx.event(n.ID, store.Event{At: now, N: d.ID.N, Kind: store.EventCancelWant})
	}
	return tx.move(n, place{d: *p.delivery, claim: p.claim}, d, now)
}

// open lists up to limit notifications that match and have not ended; with once, not those that are on the
// wire and were asked to stop before: a cancel in steps has to come to its end.
func (tx *txn) open(f store.Filter, once bool, limit int) (ids []belfry.ID, more bool, err error) {
	for _, h := range tx.s.claims {
		for _, it := range h.items {
			asked := once && it.Delivery != nil && it.Delivery.Armed && it.Delivery.Cancel
			if !asked && matches(f, it.Notification) && !slices.Contains(ids, it.Notification.ID) {
				ids = append(ids, it.Notification.ID)
			}
		}
	}
	where, args := []string{"n.project = ?"}, []any{f.Project}
	for _, c := range []struct {
		column string
		value  string
	}{{"n.recipient", f.Recipient}, {"n.category", f.Category}, {"n.subject", f.Subject}} {
		if c.value != "" {
			where, args = append(where, c.column+" = ?"), append(args, c.value)
		}
	}
	if f.ID != 0 {
		where, args = append(where, "n.id = ?"), append(args, f.ID)
	}
	if !f.Since.IsZero() {
		where, args = append(where, "n.created_at >= ?"), append(args, micros(f.Since))
	}
	if !f.Until.IsZero() {
		where, args = append(where, "n.created_at < ?"), append(args, micros(f.Until))
	}
	query := `SELECT DISTINCT w.id FROM waiting w JOIN notification n ON n.id = w.id WHERE ` + strings.Join(where, " AND ") + ` LIMIT ?`
	if f.Recipient != "" || f.ID != 0 { // by the notification's index
		query = `SELECT DISTINCT w.id FROM notification n CROSS JOIN waiting w ON w.id = n.id WHERE ` + strings.Join(where, " AND ") + ` LIMIT ?`
	}
	err = tx.each(query, func(scan func(...any) error) error {
		var id belfry.ID
		err := scan(&id)
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
		return err
	}, append(args, limit+1)...)
	if len(ids) > limit {
		ids, more = ids[:limit], true
	}
	return ids, more, err
}

func matches(f store.Filter, n belfry.Notification) bool {
	return f.Project == n.Project && (f.ID == 0 || f.ID == n.ID) && (f.Recipient == "" || f.Recipient == n.Recipient) &&
		(f.Category == "" || f.Category == n.Category) && (f.Subject == "" || f.Subject == n.Subject) &&
		(f.Since.IsZero() || !n.CreatedAt.Before(f.Since)) && (f.Until.IsZero() || n.CreatedAt.Before(f.Until))
}

// piece is one open part of a notification: itself, waiting to be planned, or a delivery.
type piece struct {
	delivery *belfry.Delivery // nil: the notification itself
	claim    belfry.ID        // 0: it waits
}

// pieces lists the open parts of a notification.
func (tx *txn) pieces(n belfry.Notification) (pieces []piece, err error) {
	for c, h := range tx.s.claims {
		for _, it := range h.items {
			if it.Notification.ID == n.ID {
				pieces = append(pieces, piece{it.Delivery, c})
			}
		}
	}
	err = tx.each(`SELECT w.n, w.body FROM waiting w WHERE w.id = ?`, func(scan func(...any) error) error {
		var num int
		var b *string
		if err := scan(&num, &b); err != nil {
			return err
		}
		if num == 0 {
			pieces = append(pieces, piece{})
			return nil
		}
		p := piece{delivery: new(belfry.Delivery)}
		pieces = append(pieces, p)
		return json.Unmarshal([]byte(*b), p.delivery)
	}, n.ID)
	return pieces, err
}

// remove takes a notification that is to be planned from where it stands.
func (tx *txn) remove(n belfry.Notification, p piece) error {
	if p.claim == 0 {
		return tx.exec(`DELETE FROM waiting WHERE id = ? AND n = 0`, n.ID)
	}
	tx.leave(p.claim, n.ID, 0)
	return nil
}

// withdraw ends the deliveries of a recipient that something forbids now, and tells which of those that
// are on the wire it would have ended.
func (tx *txn) withdraw(now time.Time, project, recipient string) (out store.Withdrawn, err error) {
	type found struct {
		n     belfry.Notification
		place place
	}
	var all []found
	for c, h := range tx.s.claims {
		for _, it := range h.items {
			if it.Delivery != nil && it.Notification.Project == project && it.Notification.Recipient == recipient {
				all = append(all, found{it.Notification, place{d: *it.Delivery, claim: c}})
			}
		}
	}
	err = tx.each(`SELECT w.body, `+notificationColumns+` FROM waiting w INDEXED BY waiting_by_recipient JOIN notification n ON n.id = w.id
WHERE w.project = ? AND w.recipient = ? AND w.recipient IS NOT NULL AND w.n > 0`,
		func(scan func(...any) error) error {
			var f found
			var b string
			if err := scanNotification(scan, &f.n, &b); err != nil {
				return err
			}
			all = append(all, f)
			return json.Unmarshal([]byte(b), &all[len(all)-1].place.d)
		}, project, recipient)
	if err != nil || len(all) == 0 {
		return out, err
	}
	items := make([]store.Item, len(all))
	for i, f := range all {
		items[i] = store.Item{Notification: f.n}
	}
	facts, err := tx.facts(items)
	if err != nil {
		return out, err
	}
	for i, f := range all {
		d := f.place.d
		why := facts[i].Forbids(f.n, d, facts[i].EndpointOf(f.n, d), now)
		switch why {
		case belfry.ReasonOptedOut, belfry.ReasonSuppressed, belfry.ReasonEndpointRetired, belfry.ReasonRecipientGone:
		default:
			continue
		}
		after, ok := d.Withdraw(why)
		if !ok {
			out.InFlight = append(out.InFlight, d.ID)
			continue
		}
		out.Withdrawn++
		tx.event(f.n.ID, store.Event{At: now, N: d.ID.N, Kind: store.EventWithdrawn, Reason: why})
		if err := tx.move(f.n, f.place, after, now); err != nil {
			return out, err
		}
	}
	return out, nil
}
