package postgres

import (
	"context"
	"slices"
	"strconv"
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
	if f.ID != 0 {
		n, ok, err := tx.notification(f.ID)
		if err != nil || !ok || n.Project != f.Project {
			return out, orNotFound(err, "notification")
		}
		if f.Recipient != "" && f.Recipient != n.Recipient {
			out.Ended = append(out.Ended, f.ID)
			return out, nil
		}
		f.Recipient = n.Recipient
	}
	l := locks{}
	if f.Recipient != "" {
		l.change(f.Project, f.Recipient)
	} else {
		l.changeProject(f.Project)
	}
	if err := tx.take(l); err != nil {
		return out, err
	}
	// By filter, what is on the wire is met once: a cancel in steps has to come to its end.
	ids, more, err := tx.open(f, f.ID != 0, limit)
	if err != nil {
		return out, err
	}
	out.More = more
	if f.ID != 0 && len(ids) == 0 {
		out.Ended = append(out.Ended, f.ID)
		return out, nil
	}
	open, err := tx.pieces(ids)
	if err != nil {
		return out, err
	}
	for _, id := range ids {
		o, ok := open[id]
		if !ok {
			continue
		}
		if slices.ContainsFunc(o.pieces, func(p piece) bool { return p.delivery != nil && p.delivery.Armed }) {
			out.InFlight = append(out.InFlight, id)
		} else {
			out.Cancelled = append(out.Cancelled, id)
		}
		if dryRun {
			continue
		}
		for _, p := range o.pieces {
			if err := tx.cancelPiece(o.n, p, now); err != nil {
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

// open lists up to limit notifications that match and have not ended; without asked not those of which all
// that is on the wire was asked to stop before. The waiting rooms are locked before
// the claims are read: a claim moves from the first to the second only.
func (tx *txn) open(f store.Filter, asked bool, limit int) (ids []belfry.ID, more bool, err error) {
	where, args := []string{"n.project = $1"}, []any{f.Project}
	add := func(clause string, arg any) {
		args = append(args, arg)
		where = append(where, clause+" $"+strconv.Itoa(len(args)))
	}
	for _, c := range []struct{ column, value string }{{"n.recipient", f.Recipient}, {"n.category", f.Category}, {"n.subject", f.Subject}} {
		if c.value != "" {
			add(c.column+" =", c.value)
		}
	}
	if f.ID != 0 {
		add("n.id =", int64(f.ID))
	}
	if !f.Since.IsZero() {
		add("n.created_at >=", micros(f.Since))
	}
	if !f.Until.IsZero() {
		add("n.created_at <", micros(f.Until))
	}
	args = append(args, limit+1)
	var waiting []belfry.ID
	err = tx.each(`SELECT w.id FROM notification n JOIN waiting w ON w.id = n.id WHERE `+strings.Join(where, " AND ")+` LIMIT $`+strconv.Itoa(len(args))+` FOR UPDATE OF w`,
		func(scan func(...any) error) error {
			var id belfry.ID
			err := scan(&id)
			waiting = append(waiting, id)
			return err
		}, args...)
	if err != nil {
		return nil, false, err
	}
	whom := hash(f.Project)
	if f.Recipient != "" {
		whom = hash(f.Project, f.Recipient)
	}
	claims, err := tx.load(claimsByWhom, []int64{whom})
	if err != nil {
		return nil, false, err
	}
	var held []belfry.ID
	for _, c := range claims {
		h := tx.claims[c]
		if h == nil {
			continue
		}
		for _, it := range h.items {
			if it.Delivery != nil && it.Delivery.Armed && it.Delivery.Cancel && !asked {
				continue
			}
			if n := it.Notification; n.Project == f.Project && (f.Recipient == "" || n.Recipient == f.Recipient) {
				held = append(held, n.ID)
			}
		}
	}
	all, err := tx.notifications(held)
	if err != nil {
		return nil, false, err
	}
	seen := map[belfry.ID]bool{}
	for _, id := range slices.Concat(held, waiting) {
		if n, ok := all[id]; !seen[id] && (!ok || matches(f, n)) {
			seen[id] = true
			ids = append(ids, id)
		}
	}
	if len(ids) > limit {
		ids, more = ids[:limit], true
	}
	return ids, more || len(waiting) > limit, nil
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

// opened is a notification with its open parts.
type opened struct {
	n      belfry.Notification
	pieces []piece
}

const waitingOfItems = `SELECT w.id, w.n, w.reason, w.body FROM waiting w WHERE w.id = ANY ($1::bigint[]) FOR UPDATE`

// pieces lists the open parts of notifications, and locks them.
func (tx *txn) pieces(ids []belfry.ID) (map[belfry.ID]opened, error) {
	out := make(map[belfry.ID]opened, len(ids))
	if len(ids) == 0 {
		return out, nil
	}
	all, err := tx.notifications(ids)
	if err != nil {
		return nil, err
	}
	for id, n := range all {
		out[id] = opened{n: n}
	}
	add := func(id belfry.ID, p piece) {
		if o, ok := out[id]; ok {
			o.pieces = append(o.pieces, p)
			out[id] = o
		}
	}
	err = tx.each(waitingOfItems, func(scan func(...any) error) (err error) {
		var id belfry.ID
		var num int
		var reason belfry.Reason
		var b *string
		if err := scan(&id, &num, &reason, &b); err != nil {
			return err
		}
		var p piece
		if num > 0 {
			p.delivery, err = waitingDelivery(b, reason)
		}
		add(id, p)
		return err
	}, numbers(ids))
	if err != nil {
		return nil, err
	}
	claims, err := tx.load(claimsByItem, numbers(ids))
	if err != nil {
		return nil, err
	}
	for _, c := range claims {
		if h := tx.claims[c]; h != nil {
			for _, it := range h.items {
				add(it.Notification.ID, piece{it.Delivery, c})
			}
		}
	}
	return out, nil
}

// remove takes a notification that is to be planned from where it stands.
func (tx *txn) remove(n belfry.Notification, p piece) error {
	if p.claim == 0 {
		return tx.exec(`DELETE FROM waiting WHERE id = $1 AND n = 0`, int64(n.ID))
	}
	h := tx.claims[p.claim]
	tx.setClaim(p.claim, h.without(h.find(n.ID, 0)))
	return nil
}

const waitingOf = `SELECT w.body, w.reason, ` + notificationColumns + ` FROM waiting w JOIN notification n ON n.id = w.id
WHERE w.project = $1 AND w.recipient = $2 AND w.recipient IS NOT NULL AND w.n > 0 FOR UPDATE OF w`

// withdraw ends the deliveries of a recipient that something forbids now, and tells which of those that
// are on the wire it would have ended. It needs the recipient's lock, exclusively.
func (tx *txn) withdraw(now time.Time, project, recipient string) (out store.Withdrawn, err error) {
	type found struct {
		n     belfry.Notification
		place place
	}
	var all []found
	err = tx.each(waitingOf,
		func(scan func(...any) error) error {
			var f found
			var b *string
			var reason belfry.Reason
			if err := scanNotification(scan, &f.n, &b, &reason); err != nil {
				return err
			}
			d, err := waitingDelivery(b, reason)
			f.place.d = *d
			all = append(all, f)
			return err
		}, project, recipient)
	if err != nil {
		return out, err
	}
	claims, err := tx.load(claimsByWhom, []int64{hash(project, recipient)})
	if err != nil {
		return out, err
	}
	var ids []belfry.ID
	for _, c := range claims {
		h := tx.claims[c]
		if h == nil {
			continue
		}
		for _, it := range h.items {
			if it.Delivery != nil && it.Notification.Project == project && it.Notification.Recipient == recipient {
				all = append(all, found{it.Notification, place{d: *it.Delivery, claim: c, erased: it.erased}})
				ids = append(ids, it.Notification.ID)
			}
		}
	}
	if len(all) == 0 {
		return out, nil
	}
	full, err := tx.notifications(ids)
	if err != nil {
		return out, err
	}
	items := make([]store.Item, len(all))
	for i, f := range all {
		if n, ok := full[f.n.ID]; ok {
			all[i].n = n
		}
		items[i] = store.Item{Notification: all[i].n}
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
