package pricewatch

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"belfry"
	"belfry/store"
	"belfry/store/sqlite"
)

// request is a notification to be enqueued, for a watch.
type request struct {
	Watch
	store.Request
}

// requests says who is to be told of which drops. once makes each a fact: a person is told of an item at
// most once for the date of its price, however many detectors find it, however often.
func (a *App) requests(drops []Drop) ([]request, error) {
	var out []request
	for _, d := range drops {
		for _, w := range a.watches[d.Item] {
			tell, category := d, PriceDrop
			if tell.Limit = w.cheaper(d.Was); d.Price > tell.Limit {
				continue
			}
			if d.Price < d.low {
				tell.Was, tell.Limit, category = d.low, d.low, PriceLow
			}
			data, err := json.Marshal(tell)
			if err != nil {
				return nil, err
			}
			out = append(out, request{w, store.Request{Request: belfry.Request{
				Project: project, Recipient: w.Person, Category: category, Subject: d.Item, Data: data,
				At:      d.seen.Add(a.settle), // a price that is back by then was none
				Options: belfry.Options{Once: &belfry.Once{Per: belfry.PerDay, Date: d.Date}},
			}}})
		}
	}
	return out, nil
}

// Sweep is a detector that remembers nothing: it takes every drop of the last tick for news.
func (a *App) Sweep(ctx context.Context) error {
	requests, err := a.requests(a.shop.Drops(1))
	if err != nil || len(requests) == 0 {
		return err
	}
	batch := make([]store.Request, len(requests))
	for i, r := range requests {
		batch[i] = r.Request
	}
	var out []store.Enqueued
	err = patiently(ctx, func() error {
		out, err = a.engine.Enqueue(ctx, batch, true)
		return err
	})
	if err != nil {
		return fmt.Errorf("enqueue what the sweep found: %w", err)
	}
	return a.report(requests, out)
}

// Ledger is a detector with a table of its own: a drop is written there and its notifications are enqueued
// in one transaction, so there is never one without the other. It looks back further than it has to, as a
// job does that must not miss anything after a pause.
func (a *App) Ledger(ctx context.Context) error {
	drops := a.shop.Drops(keep)
	if len(drops) == 0 {
		return nil
	}
	var requests []request
	var out []store.Enqueued
	err := patiently(ctx, func() (err error) {
		requests, out, err = a.record(ctx, drops)
		return err
	})
	if err != nil {
		return fmt.Errorf("enqueue what the ledger found: %w", err)
	}
	a.engine.Wake() // the engine cannot see into our transaction
	return a.report(requests, out)
}

func (a *App) record(ctx context.Context, drops []Drop) ([]request, []store.Enqueued, error) {
	tx, err := a.db.BeginTx(ctx, nil)
	if err != nil {
		return nil, nil, err
	}
	defer tx.Rollback() // after a commit it does nothing
	fresh, err := write(ctx, tx, drops)
	if err != nil || len(fresh) == 0 {
		return nil, nil, err
	}
	requests, err := a.requests(fresh)
	if err != nil {
		return nil, nil, err
	}
	entries := make([]store.Entry, len(requests))
	for i, r := range requests {
		if entries[i], err = a.engine.Entry(ctx, r.Request); err != nil {
			return nil, nil, err
		}
	}
	out, err := sqlite.In(tx).Enqueue(ctx, entries)
	if err != nil {
		return nil, nil, err
	}
	for _, e := range out {
		if e.Err != nil {
			return nil, nil, e.Err
		}
	}
	return requests, out, tx.Commit()
}

const seenDrop = `CREATE TABLE IF NOT EXISTS pricewatch_drop (
	item TEXT NOT NULL, date TEXT NOT NULL, price REAL NOT NULL, PRIMARY KEY (item, date)
) STRICT, WITHOUT ROWID`

// write keeps the drops that the table does not have yet.
func write(ctx context.Context, tx *sql.Tx, drops []Drop) (fresh []Drop, err error) {
	insert, err := tx.PrepareContext(ctx, `INSERT INTO pricewatch_drop (item, date, price) VALUES (?, ?, ?) ON CONFLICT DO NOTHING`)
	if err != nil {
		return nil, err
	}
	defer insert.Close()
	for _, d := range drops {
		r, err := insert.ExecContext(ctx, d.Item, d.Date, float64(d.Price))
		if err != nil {
			return nil, err
		}
		if n, err := r.RowsAffected(); err != nil {
			return nil, err
		} else if n > 0 {
			fresh = append(fresh, d)
		}
	}
	return fresh, nil
}

// report tells the application's observer what became of the requests.
func (a *App) report(requests []request, out []store.Enqueued) error {
	for i, e := range out {
		if e.Err != nil {
			return e.Err
		}
		a.enqueued(requests[i].Watch, e)
	}
	return nil
}

// busy says that another connection held the file: the engine's word for it, or the driver's own.
func busy(err error) bool {
	const sqliteBusy = 5
	e, ok := errors.AsType[interface {
		error
		Code() int
	}](err)
	return belfry.CodeOf(err) == belfry.CodeBusy || ok && e.Code()&0xff == sqliteBusy
}

// patiently does again what met a store that was busy: nothing was written then.
func patiently(ctx context.Context, do func() error) error {
	for {
		err := do()
		if !busy(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
}
