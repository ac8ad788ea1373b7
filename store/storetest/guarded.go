package storetest

import (
	"fmt"
	"time"

	"belfry"
	"belfry/store"
)

// guarded is one notification with one endpoint, twice: as a store has it, and as the rules see it.
type guarded struct {
	*worker
	project string
	now     time.Time // the worker's clock is left alone: combinations do not wait for each other

	n belfry.Notification
	f belfry.Facts
	d belfry.Delivery // after every move, by the rules alone
}

func newGuarded(w *worker, n int) *guarded {
	g := &guarded{worker: w, project: fmt.Sprintf("p%d", n), now: morning}
	r := belfry.Recipient{Project: g.project, ID: ann, Zone: "UTC"}
	_, err := g.PutRecipient(g.ctx, g.now, r)
	g.ok(err)
	g.f.Recipient = &r
	g.policyIs(belfry.Category{})
	return g
}

// policyIs sets the category.
func (g *guarded) policyIs(c belfry.Category) {
	g.Helper()
	c.Project, c.Name = g.project, news
	g.ok(g.PutCategory(g.ctx, c))
	c = c.Resolved()
	g.f.Category = &c
}

// registered gives ann her phone.
func (g *guarded) registered(app string) belfry.Endpoint {
	g.Helper()
	out, err := g.Register(g.ctx, g.now, g.project, g.id(), belfry.Registration{Recipient: ann, Channel: "webpush", App: app, Address: "token"})
	g.ok(err)
	g.f.Endpoints = []belfry.Endpoint{out.Endpoint}
	return out.Endpoint
}

// told enqueues the notification.
func (g *guarded) told() {
	g.Helper()
	e := g.entry(project(g.project), due(g.now))
	g.enqueue(e)
	g.n = e.Notification
}

// claimed takes the notification or its delivery.
func (g *guarded) claimed(queue string) store.Claim {
	g.Helper()
	claims, err := g.Claim(g.ctx, g.now, g.leased(), []store.Take{{Claim: g.id(), Queue: queue, Lane: belfry.Normal, Project: g.project, Limit: 9}})
	g.ok(err)
	if len(claims) != 1 || len(claims[0].Items) != 1 {
		g.Fatalf("claimed %+v, want one item of queue %q", claims, queue)
	}
	if queue == "" {
		g.d = belfry.Plan(g.n, g.f, 0, 0, g.known, g.now).Deliveries[0]
	}
	g.must(g.d.Take(claims[0].ID, g.now))
	return claims[0]
}

// must keeps a move that the rules have to allow.
func (g *guarded) must(d belfry.Delivery, ok bool) {
	g.Helper()
	if !ok {
		g.Fatalf("the case is wrong: the rules refuse a move of %+v", g.d)
	}
	g.d = d
}

func (g *guarded) leased() store.Owner {
	return store.Owner{ID: g.owner, Lease: g.now.Add(leaseTime)}
}

// prepared is what a worker would have made of the item of a claim.
func (g *guarded) prepared(c store.Claim, checked time.Time) store.Arm {
	t := store.Try{Payload: payload, Send: true}
	if i := c.Items[0]; i.Delivery != nil {
		t.Delivery = *i.Delivery
	} else {
		t.Delivery = g.d
		t.Delivery.State, t.Delivery.Claim = belfry.Pending, 0
	}
	return store.Arm{Claim: c, Owner: g.leased(), Now: g.now, Known: g.known, Steps: []store.Step{{Tries: []store.Try{t}, Stage: 1, Checked: checked}}}
}

// judged is [belfry.Delivery.Arm] on what the facts say now.
func (g *guarded) judged(claim belfry.ID, cancel bool, checked time.Time) {
	g.Helper()
	e := g.f.EndpointOf(g.n, g.d)
	a := belfry.Arming{
		Now: g.now, Cancel: cancel, Checked: checked, Payload: payload,
		Forbidden: g.f.Forbids(g.n, g.d, e, g.now), Pause: g.f.Paused(g.n, g.d, e, g.now),
	}
	if g.f.Category != nil {
		a.Attempts = g.f.Category.Retry.Attempts
	}
	g.must(g.d.Arm(claim, a))
}

// armed arms the item of a claim, which nothing speaks against.
func (g *guarded) armed(c store.Claim) {
	g.Helper()
	a := g.prepared(c, time.Time{})
	g.judged(c.ID, false, time.Time{})
	out, err := g.Arm(g.ctx, a)
	g.ok(err)
	if len(out) != 1 || !out[0].Delivery.Armed {
		g.Fatalf("the case is wrong: not armed: %+v", out)
	}
}

// answered settles the try of a claim.
func (g *guarded) answered(claim belfry.ID, outcome belfry.Outcome, p belfry.RetryPolicy) store.Settled {
	g.Helper()
	out, err := g.Settle(g.ctx, []store.Settlement{{
		Claim: claim, Notification: g.n, Delivery: g.d, Answer: belfry.Answer{Outcome: outcome}, Policy: p, Now: g.now,
	}})
	g.ok(err)
	g.d, _ = g.d.Settle(claim, belfry.Answer{Outcome: outcome}, belfry.Settling{Now: g.now, Policy: p, Cancel: g.d.Cancel})
	return out[0]
}

// cancelled asks for a cancel.
func (g *guarded) cancelled() {
	g.Helper()
	_, err := g.Cancel(g.ctx, g.now, store.Filter{Project: g.project, ID: g.n.ID}, false, 1)
	g.ok(err)
	g.d, _ = g.d.CancelNow()
}

// agrees wants the store to have the delivery as the rules do.
func (g *guarded) agrees() {
	g.Helper()
	s, err := g.Notification(g.ctx, g.project, g.n.ID)
	g.ok(err)
	if len(s.Deliveries) != 1 {
		g.Fatalf("there are %d deliveries\n%s", len(s.Deliveries), tale(s))
	}
	g.same(s.Deliveries[0].Delivery, g.d, "the delivery, as stored and by the rules")
	want := belfry.NotificationState([]belfry.State{g.d.State})
	g.is(s.State == want, "the notification is %s, want %s", s.State, want)
}
