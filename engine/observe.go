package engine

import (
	"context"
	"fmt"
	"sync"
	"time"

	"belfry"
	"belfry/store"
)

// Notification tells the whole story of one notification.
func (e *Engine) Notification(ctx context.Context, project string, id belfry.ID) (store.Story, error) {
	return e.store.Notification(ctx, project, id)
}

// Notifications lists those that match, the newest first; next is where to go on, 0 at the end.
func (e *Engine) Notifications(ctx context.Context, f store.Filter, before belfry.ID, limit int) ([]store.Summary, belfry.ID, error) {
	var all []store.Summary
	for {
		list, next, err := e.store.Notifications(ctx, f, before, limit-len(all))
		all = append(all, list...)
		if err != nil || next == 0 || len(all) >= limit || ctx.Err() != nil {
			return all, next, err
		}
		before = next
	}
}

func (e *Engine) Stats(ctx context.Context, project string) (store.Stats, error) {
	return e.store.Stats(ctx, project)
}

// Busy is how many sends each channel has under way.
func (e *Engine) Busy() map[string]int { return e.slots.busy() }

// Ready says why the engine cannot do its work now; nothing when it can.
func (e *Engine) Ready(ctx context.Context) []string {
	if err := e.store.Ping(ctx); err != nil {
		e.health.storeFailed(err)
	} else {
		e.health.storeWorks()
	}
	return e.health.reasons(e.options.Now())
}

// health remembers what is wrong.
type health struct {
	mu      sync.Mutex
	store   error
	seen    time.Time // the latest instant the clock has shown
	started time.Time
}

func (h *health) storeFailed(err error) {
	h.mu.Lock()
	h.store = err
	h.mu.Unlock()
}

func (h *health) storeWorks() {
	h.mu.Lock()
	h.store = nil
	h.mu.Unlock()
}

// watchClock remembers the latest instant, so that a clock that goes back is seen.
func (h *health) watchClock(now time.Time) {
	h.mu.Lock()
	if now = now.Round(0); now.After(h.seen) {
		h.seen = now
	}
	h.mu.Unlock()
}

// clockSlack is how far back a clock may go without anyone being told.
const clockSlack = 2 * time.Second

func (h *health) reasons(now time.Time) (out []string) {
	h.watchClock(now)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.store != nil {
		out = append(out, "store: "+h.store.Error())
	}
	if back := h.seen.Sub(now.Round(0)); back > clockSlack {
		out = append(out, fmt.Sprintf("clock: it went back by %v; what is due waits until it has caught up", back.Round(time.Second)))
	}
	return out
}
