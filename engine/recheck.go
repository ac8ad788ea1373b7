package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"belfry"
	"belfry/content"
	"belfry/store"
)

// maxChecks is the most checks in one request.
const maxChecks = 100

// recheck asks, for every item that is to be sent now, whether it is still true; once per notification.
func (p *preparation) recheck(ctx context.Context) {
	first := map[belfry.ID]int{}
	same := map[int]int{}
	var items []int
	for i, step := range p.steps {
		c := p.facts[i].Category
		if !sends(step) || c == nil || p.e.options.Recheck[c.Name] == nil && c.Check == nil {
			continue
		}
		id := p.claim.Items[i].Notification.ID
		if j, ok := first[id]; ok {
			same[i] = j
			continue
		}
		first[id] = i
		items = append(items, i)
	}
	p.askAll(ctx, items)
	// Whoever waited for a slow answer beside its own is asked again; what ages from here on, arm finds.
	now := p.e.now()
	p.askAll(ctx, slices.DeleteFunc(slices.Clone(items), func(i int) bool {
		return p.fresh[i].Kind != belfry.VerdictSend || p.fresh[i].Fresh(now)
	}))
	for i, j := range same {
		p.fresh[i] = p.fresh[j]
	}
	now = p.e.now()
	for i := range p.steps {
		if p.fresh[i].Kind != "" {
			p.judge(i, now)
		}
	}
}

// askAll gets a verdict for each of the items.
func (p *preparation) askAll(ctx context.Context, items []int) {
	type group struct {
		policy belfry.CheckPolicy
		items  []int
	}
	byURL := map[string]*group{}
	var wg sync.WaitGroup
	for _, i := range items {
		c := p.facts[i].Category
		if f := p.e.options.Recheck[c.Name]; f != nil {
			wg.Go(func() { p.answer(i, p.e.ask(ctx, f, p.question(i))) })
			continue
		}
		key := c.Name + "\x00" + c.Project
		if byURL[key] == nil {
			byURL[key] = &group{policy: *c.Check}
		}
		byURL[key].items = append(byURL[key].items, i)
	}
	for _, g := range byURL {
		for part := range slices.Chunk(g.items, maxChecks) {
			wg.Go(func() { p.askURL(ctx, g.policy, part) })
		}
	}
	wg.Wait()
}

// answer keeps the verdict about an item. One of no kind is no answer.
func (p *preparation) answer(i int, v belfry.Verdict) {
	if v.Kind == "" {
		v = belfry.CheckFailed("the recheck gave no verdict")
	}
	v.At = p.e.now()
	p.fresh[i] = v
}

func (p *preparation) question(i int) belfry.Check {
	item := p.claim.Items[i]
	n := item.Notification
	q := belfry.Check{
		Notification: n.ID, Project: n.Project, Recipient: n.Recipient, Category: n.Category, Subject: n.Subject, Data: n.Data,
		Attempt: 1, LastSent: p.facts[i].Mark,
	}
	if item.Delivery != nil {
		q.Attempt += len(item.Delivery.Attempts)
	}
	return q
}

// ask calls a recheck function. A panic is its failure, not ours.
func (e *Engine) ask(ctx context.Context, f RecheckFunc, q belfry.Check) (v belfry.Verdict) {
	ctx, cancel := context.WithTimeout(ctx, maxRecheck)
	defer cancel()
	defer func() {
		if r := recover(); r != nil {
			v = belfry.CheckFailed(fmt.Sprint("the recheck panicked: ", r))
		}
	}()
	v, err := f(ctx, q)
	if err != nil {
		return belfry.CheckFailed(err.Error())
	}
	return v
}

const maxRecheck = 30 * time.Second

func (p *preparation) askURL(ctx context.Context, policy belfry.CheckPolicy, items []int) {
	if p.e.options.Checker == nil {
		for _, i := range items {
			p.answer(i, belfry.CheckFailed("this engine has no client for check URLs"))
		}
		return
	}
	questions := make([]belfry.Check, len(items))
	for j, i := range items {
		questions[j] = p.question(i)
	}
	verdicts := p.e.options.Checker.Recheck(ctx, policy, questions)
	for j, i := range items {
		if j < len(verdicts) {
			p.answer(i, verdicts[j])
		} else {
			p.answer(i, belfry.CheckFailed("no answer"))
		}
	}
}

// judge turns a verdict into what is done with the item.
func (p *preparation) judge(i int, now time.Time) {
	onError := belfry.CheckErrorRetry
	if c := p.facts[i].Category; c.Check != nil {
		onError = c.Check.OnError
	}
	item := p.claim.Items[i]
	deferrals := item.Wait.Deferrals
	if item.Delivery != nil {
		deferrals = item.Delivery.Deferrals
	}
	detail := p.fresh[i].Detail
	v := p.fresh[i].Settled(onError, deferrals, jitter())
	p.fresh[i] = v
	switch v.Kind {
	case belfry.VerdictSend:
		p.steps[i].Checked = v.At
	case belfry.VerdictDrop:
		p.steps[i] = store.Step{End: &store.End{State: belfry.Dropped, Reason: v.Reason, Detail: detail}}
	default:
		p.steps[i] = store.Step{Wait: &store.Until{At: now.Add(v.After), Reason: belfry.ReasonCheck, Detail: detail}}
		p.e.hint(now.Add(v.After))
	}
}

// texts keeps the compiled templates of categories.
type texts struct {
	mu       sync.Mutex
	compiled map[categoryKey]compiledTemplates
}

type compiledTemplates struct {
	source belfry.Templates
	*content.Template
}

// render writes what the recipient is told, from the freshest data there is.
func (t *texts) render(f belfry.Facts, n belfry.Notification, fresh []byte) (belfry.Content, error) {
	data := n.Data
	if fresh != nil {
		data = fresh
	}
	var who belfry.Recipient
	if f.Recipient != nil {
		who = *f.Recipient
	}
	var source belfry.Templates
	if f.Category != nil {
		source = f.Category.Templates
	}
	template, err := t.template(categoryKey{n.Project, n.Category}, source)
	if err != nil {
		return belfry.Content{}, err
	}
	return template.Render(data, who)
}

func (t *texts) template(key categoryKey, source belfry.Templates) (*content.Template, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c, ok := t.compiled[key]; ok && maps.Equal(c.source, source) {
		return c.Template, nil
	}
	template, err := content.Compile(source)
	if err != nil {
		return nil, err
	}
	t.compiled[key] = compiledTemplates{source, template}
	return template, nil
}
