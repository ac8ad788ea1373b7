package pricewatch

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"belfry"
	"belfry/engine"
	"belfry/store"
)

// The categories of the application.
const (
	PriceDrop = "price_drop" // cheaper than before by as much as the person wants
	PriceLow  = "price_low"  // cheaper than ever
)

// categories are the policies that hang on them. Everything is meant for a demo's half minute; a shop would
// allow hours where this allows seconds.
func categories(cooldown time.Duration) []belfry.Category {
	drop := belfry.Category{
		Project: project, Name: PriceDrop,
		ExpiresIn: belfry.Duration(8 * time.Second),
		Retry:     belfry.RetryPolicy{First: belfry.Duration(100 * time.Millisecond), Factor: 2, Max: belfry.Duration(2 * time.Second), Attempts: 8},
		Templates: belfry.Templates{
			"title": `{{.item}} is down to {{.price}}`,
			"body":  `It was {{.was}}. This is the price of {{.date}}.`,
			"link":  `https://shop.example/items/{{urlquery .item}}`,
		},
	}
	low := drop
	low.Name, low.Cooldown = PriceLow, belfry.Duration(cooldown)
	low.Templates = belfry.Templates{
		"title": `{{.item}} was never cheaper: {{.price}}`,
		"body":  `The lowest so far was {{.was}}. This is the price of {{.date}}.`,
		"link":  drop.Templates["link"],
	}
	return []belfry.Category{drop, low}
}

// App is the application.
type App struct {
	engine  *engine.Engine
	db      *sql.DB // our own connection to the engine's file
	shop    *Shop
	watches map[string][]Watch // by item
	settle  time.Duration      // how long a drop must have lasted to be told
	// enqueued is told of everything that a detector enqueued, once it is durable.
	enqueued func(Watch, store.Enqueued)
}

// newApp makes the application on an engine whose tables are in the file.
func newApp(ctx context.Context, e *engine.Engine, file string, shop *Shop, watches []Watch) (*App, error) {
	a := &App{engine: e, shop: shop, watches: map[string][]Watch{}, enqueued: func(Watch, store.Enqueued) {}}
	for _, w := range watches {
		a.watches[w.Item] = append(a.watches[w.Item], w)
	}
	// The engine insists on FULL: what it acknowledges survives a power cut. IMMEDIATE, so that a
	// transaction that will write waits for its turn at the beginning, not in the middle.
	var err error
	if a.db, err = sql.Open("sqlite", "file:"+file+"?_pragma=busy_timeout(5000)&_pragma=synchronous(FULL)&_txlock=immediate"); err != nil {
		return nil, err
	}
	if _, err := a.db.ExecContext(ctx, seenDrop); err != nil {
		return nil, errors.Join(fmt.Errorf("make the table of drops: %w", err), a.db.Close())
	}
	return a, nil
}

// Close lets go of the file.
func (a *App) Close() error { return a.db.Close() }

// Tick takes in the prices of a date and runs both detectors at the same time, as two jobs do whose
// schedules overlap.
func (a *App) Tick(ctx context.Context, t Tick, now time.Time) error {
	a.shop.Update(t, now)
	ledger := make(chan error, 1)
	go func() { ledger <- a.Ledger(ctx) }()
	return errors.Join(a.Sweep(ctx), <-ledger)
}
