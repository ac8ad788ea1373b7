package engine

import (
	"context"
	"sync"
	"time"

	"belfry"
	"belfry/content"
	"belfry/store"
)

type categoryKey struct{ project, name string }

type cachedCategory struct {
	belfry.Category // resolved
	err             error
	until           time.Time
}

// policyLife is how long a category is remembered. It decides about what is enqueued only: arm reads the
// category anew.
const policyLife = time.Second

// policies answers what a category says, from a short memory.
type policies struct {
	store store.Store
	now   func() time.Time
	mu    sync.Mutex
	known map[categoryKey]cachedCategory
}

func (p *policies) category(ctx context.Context, project, name string) (belfry.Category, error) {
	key := categoryKey{project, name}
	now := p.now()
	p.mu.Lock()
	c, ok := p.known[key]
	p.mu.Unlock()
	if ok && now.Before(c.until) && c.until.Sub(now) <= policyLife {
		return c.Category, c.err
	}
	found, err := p.store.Category(ctx, project, name)
	if err != nil && belfry.CodeOf(err) != belfry.CodeNotFound {
		return found, err
	}
	if err != nil {
		err = &belfry.Error{Code: belfry.CodeUnknownCategory, Field: "category", Detail: "no such category in this project: put it first"}
	}
	c = cachedCategory{found.Resolved(), err, now.Add(policyLife)}
	p.mu.Lock()
	if len(p.known) > 10_000 { // names that callers made up
		clear(p.known)
	}
	p.known[key] = c
	p.mu.Unlock()
	return c.Category, c.err
}

func (p *policies) forget(project, name string) {
	p.mu.Lock()
	delete(p.known, categoryKey{project, name})
	p.mu.Unlock()
}

// retry is the retry policy by category, for deliveries whose worker was lost.
func (p *policies) retry(ctx context.Context) func(project, category string) belfry.RetryPolicy {
	return func(project, category string) belfry.RetryPolicy {
		c, err := p.category(ctx, project, category)
		if err != nil {
			c = belfry.DefaultCategory(project).Resolved()
		}
		return c.Retry
	}
}

// PutCategory sets a policy, after compiling its templates.
func (e *Engine) PutCategory(ctx context.Context, c belfry.Category) error {
	if err := c.Validate(e.names); err != nil {
		return err
	}
	if _, err := content.Compile(c.Templates); err != nil {
		return belfry.In("templates", err)
	}
	c.UpdatedAt = e.now()
	err := e.store.PutCategory(ctx, c)
	e.policies.forget(c.Project, c.Name)
	return err
}

// Category is as it was put; call Resolved for the defaults.
func (e *Engine) Category(ctx context.Context, project, name string) (belfry.Category, error) {
	return e.store.Category(ctx, project, name)
}

func (e *Engine) Categories(ctx context.Context, project string) ([]belfry.Category, error) {
	return e.store.Categories(ctx, project)
}

// DeleteCategory ends a policy: what is enqueued in it is dropped when due.
func (e *Engine) DeleteCategory(ctx context.Context, project, name string) error {
	err := e.store.DeleteCategory(ctx, project, name)
	e.policies.forget(project, name)
	return err
}

// PutPause stops what the pause covers, from the next arm on.
func (e *Engine) PutPause(ctx context.Context, p belfry.Pause) (belfry.Pause, error) {
	p.ID, p.At = e.ids.next(), e.now()
	if err := p.Check(e.names, p.At); err != nil {
		return p, err
	}
	return p, e.store.PutPause(ctx, p)
}

// LiftPause ends a pause and lets what it held go on.
func (e *Engine) LiftPause(ctx context.Context, project string, id belfry.ID) error {
	err := e.store.LiftPause(ctx, e.now(), project, id)
	e.Wake()
	return err
}

func (e *Engine) Pauses(ctx context.Context, project string) ([]belfry.Pause, error) {
	return e.store.Pauses(ctx, project)
}
