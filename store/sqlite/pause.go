package sqlite

import (
	"context"
	"time"

	"belfry"
)

func (s *Store) PutPause(ctx context.Context, p belfry.Pause) error {
	return s.do(ctx, durable, func(tx *txn) error {
		tx.intent = true
		return tx.exec(`INSERT INTO pause (id, project, category, channel, app, reason, until, at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
			p.ID, p.Project, p.Category, p.Channel, p.App, p.Reason, micros(p.Until), micros(p.At))
	})
}

func (s *Store) LiftPause(ctx context.Context, now time.Time, project string, id belfry.ID) error {
	return s.do(ctx, durable, func(tx *txn) error {
		tx.intent = true
		gone, err := tx.change(`DELETE FROM pause WHERE project = ? AND id = ?`, project, id)
		if err != nil {
			return err
		}
		if gone == 0 {
			return orNotFound(nil, "pause")
		}
		return tx.wake(now, `w.body ->> 'reason' = '`+string(belfry.ReasonPaused)+`' AND (?2 = '' OR w.project = ?2)`, project)
	})
}

func (s *Store) Pauses(ctx context.Context, project string) (out []belfry.Pause, err error) {
	err = s.view(ctx, func(tx *txn) error {
		out, err = tx.pauses(project)
		return err
	})
	return out, err
}

func (tx *txn) pauses(project string) (out []belfry.Pause, err error) {
	err = tx.peekEach(`SELECT id, project, category, channel, app, reason, until, at FROM pause WHERE project IN (?, '') ORDER BY id`, func(scan func(...any) error) error {
		var p belfry.Pause
		var until, at int64
		err := scan(&p.ID, &p.Project, &p.Category, &p.Channel, &p.App, &p.Reason, &until, &at)
		p.Until, p.At = instant(until), instant(at)
		out = append(out, p)
		return err
	}, project)
	return out, err
}
