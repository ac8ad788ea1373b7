package engine

import (
	"context"
	"time"

	"belfry"
	"belfry/store"
)

const (
	repairEvery = 5 * time.Second
	repairBatch = 100
	purgeEvery  = time.Minute
	purgeBatch  = 2000
)

// keep does what is due from time to time: it takes over lost claims, purges what is old, and watches the
// clock.
func (e *Engine) keep(ctx context.Context) {
	repair, purge := time.NewTicker(repairEvery), time.NewTicker(purgeEvery)
	defer repair.Stop()
	defer purge.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-repair.C:
			e.health.watchClock(e.options.Now())
			if err := e.repair(ctx); err != nil && ctx.Err() == nil {
				e.health.storeFailed(err)
				e.log.Warn("lost claims could not be taken over", "err", err)
			}
		case <-purge.C:
			if err := e.purge(ctx); err != nil && ctx.Err() == nil {
				e.log.Warn("old rows could not be purged", "err", err)
			}
		}
	}
}

// resume goes on where an earlier process stopped. It waits while the store is held or full, as everything
// after it does.
func (e *Engine) resume(ctx context.Context) error {
	for {
		newest, err := e.store.Newest(ctx)
		if err == nil {
			e.ids.after(newest)
			err = e.repair(ctx)
		}
		switch belfry.CodeOf(err) {
		case belfry.CodeBusy, belfry.CodeStoreFull:
		default:
			return err
		}
		e.health.storeFailed(err)
		e.log.Warn("the start waits for the store", "err", err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second / 10):
		}
	}
}

// repair takes over every claim whose worker is lost.
func (e *Engine) repair(ctx context.Context) error {
	for {
		r, err := e.store.Repair(ctx, e.now(), e.policies.retry(ctx), repairBatch)
		if err != nil {
			return err
		}
		if r.Claims > 0 {
			e.log.Warn("claims of a lost worker were taken over", "claims", r.Claims, "returned", r.Returned, "ambiguous", r.Ambiguous, "poison", r.Poison)
			e.Wake()
		}
		if r.Claims < repairBatch {
			return nil
		}
	}
}

// abandon leaves a claim to be taken over when its lease ends: what can be said of it is not known.
func (e *Engine) abandon(c store.Claim) {
	e.log.Warn("a claim is left for its lease to end", "claim", c.ID, "items", len(c.Items))
}

// purge works in small batches, so that it holds nobody up.
func (e *Engine) purge(ctx context.Context) error {
	now := e.now()
	for ctx.Err() == nil {
		n, err := e.store.Purge(ctx, now, now.Add(-e.options.KeepContent), now.Add(-e.options.KeepRows), purgeBatch)
		if err != nil || n == 0 {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
	return nil
}
