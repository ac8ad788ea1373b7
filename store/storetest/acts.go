package storetest

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"belfry"
	"belfry/store"
)

// The acts of a history: each picks what to do, and returns it as something that is done to both stores.

func (h *chronicle) enqueue() (string, act) {
	var entries []store.Entry
	name := "enqueue"
	for range 1 + h.IntN(3) {
		e := h.entry(
			to(pick(h, ann, ann, bob)), of(pick(h, news, "first", "cool", "once", "secret")), about(pick(h, "kettle", "toaster")),
			due(h.now.Add(pick(h, 0, 0, 0, 30*time.Second, 10*time.Minute))), data(`{"n":1}`),
		)
		e.Notification.Deadline = e.Notification.Due.Add(pick(h, 2*time.Minute, time.Hour, 5*time.Hour))
		e.Notification.Sensitive = e.Notification.Category == "secret"
		if h.often(20) {
			e.Notification.To = []belfry.Target{{Channel: "email", Address: pick[belfry.Secret](h, "a@x", "b@x")}, {Channel: "sms", Address: "+81"}}
		}
		if h.often(20) {
			keyed(pick(h, "k1", "k2", "k3"), pick(h, "same", "same", "other"))(&e)
		}
		if h.often(40) {
			once(belfry.Once{Per: pick(h, belfry.PerDay, belfry.Ever, belfry.WhileOpen)})(&e)
		}
		if h.often(10) {
			e.Inline = &store.Inline{
				Recipient:     belfry.Recipient{Project: shop, ID: e.Notification.Recipient, Locale: pick(h, "ja", "en", "")},
				Registrations: []belfry.Registration{{Recipient: e.Notification.Recipient, Channel: "email", Address: "inline@x"}},
				IDs:           []belfry.ID{h.id()},
			}
		}
		entries = append(entries, e)
		h.notifications = append(h.notifications, e.Notification.ID)
		name += fmt.Sprintf(" %v(%s to %s)", e.Notification.ID, e.Notification.Category, e.Notification.Recipient)
	}
	atomic := h.often(50)
	return name, func(s store.Store) (any, error) {
		out, err := s.Enqueue(h.ctx, entries, atomic)
		refused := slices.ContainsFunc(out, func(e store.Enqueued) bool { return e.Err != nil })
		for i := range out {
			if refused && atomic || out[i].Err != nil {
				out[i] = store.Enqueued{Err: out[i].Err} // the others are not answered
			}
		}
		return out, err
	}
}

// claimSome claims what is due in one of the queues; nil when nothing is.
func (h *chronicle) claimSome() act {
	heads, err := h.model.Heads(h.ctx)
	h.ok(err)
	heads = slices.DeleteFunc(sortedHeads(heads), func(head store.Head) bool { return head.Due.After(h.now) })
	if len(heads) == 0 {
		return nil
	}
	head := pick(h, heads...)
	take := store.Take{Claim: h.id(), Queue: head.Queue, Lane: head.Lane, Project: head.Project, Limit: 1 + h.IntN(3)}
	return func(s store.Store) (any, error) {
		claims, err := s.Claim(h.ctx, h.now, h.lease(), []store.Take{take})
		for _, c := range claims {
			h.held[c.ID] = c
		}
		return claims, err
	}
}

// armSome arms a claim with whatever a worker may have made of its items.
func (h *chronicle) armSome() (string, act) {
	ids := make([]belfry.ID, 0, len(h.held))
	for id := range h.held {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	c := h.held[pick(h, ids...)]
	delete(h.held, c.ID)
	facts, err := h.model.Facts(h.ctx, c.Items)
	h.ok(err)
	a := store.Arm{Claim: c, Owner: h.lease(), Now: h.now, Known: h.known}
	for i, item := range c.Items {
		a.Steps = append(a.Steps, h.stepOf(item, facts[i], c.ID))
	}
	taken := false
	return fmt.Sprintf("arm %v", c.ID), func(s store.Store) (any, error) {
		out, err := s.Arm(h.ctx, a)
		out = slices.DeleteFunc(out, func(t store.Armed) bool { return !t.Delivery.Armed })
		for _, t := range out {
			if !taken {
				h.wires = append(h.wires, wire{c.ID, t, c.Items[t.Step]})
			}
		}
		taken = true
		return out, err
	}
}

func (h *chronicle) stepOf(i store.Item, f belfry.Facts, claim belfry.ID) store.Step {
	checked := pick(h, time.Time{}, time.Time{}, h.now, h.now.Add(-time.Minute))
	switch {
	case h.often(5):
		return store.Step{End: &store.End{State: pick(h, belfry.Dropped, belfry.Failed), Reason: belfry.ReasonConditionLost, Detail: pick(h, "", "said no")}}
	case h.often(8):
		return store.Step{Wait: &store.Until{At: h.now.Add(pick(h, 0, time.Minute, time.Hour)), Reason: pick(h, belfry.ReasonCheck, "")}}
	case i.Delivery != nil:
		return store.Step{Checked: checked, Tries: []store.Try{{Delivery: *i.Delivery, Payload: payload, Send: h.often(85)}}}
	}
	p := belfry.Plan(i.Notification, f, i.Wait.Stage, i.Wait.From, h.known, h.now)
	switch {
	case p.State == belfry.Scheduled:
		return store.Step{Wait: &store.Until{At: p.Hold, Reason: p.Reason}}
	case p.State.Ended():
		if p.Reason == belfry.ReasonDeadline {
			p.Reason = cmp.Or(i.Wait.Reason, p.Reason)
		}
		return store.Step{End: &store.End{State: p.State, Reason: p.Reason}}
	}
	s := store.Step{Stage: p.Stage, Checked: checked}
	for _, d := range p.Deliveries {
		t := store.Try{Delivery: d, Payload: payload, Send: h.often(85)}
		if h.often(5) {
			taken, _ := d.Take(claim, h.now)
			t.Delivery, _ = taken.Fail(claim, belfry.ReasonBadContent)
			t.Detail = "no title"
		}
		s.Tries = append(s.Tries, t)
	}
	return s
}

func (h *chronicle) settleSome() (string, act) {
	i := h.IntN(len(h.wires))
	t := h.wires[i]
	outcome := pick(h, belfry.OutcomeAccepted, belfry.OutcomeAccepted, belfry.OutcomeRefused, belfry.OutcomeGone,
		belfry.OutcomeThrottled, belfry.OutcomeNotSent, belfry.OutcomeNotSent, belfry.OutcomeAmbiguous)
	if h.often(80) { // else it may be settled once more
		h.wires = slices.Delete(h.wires, i, i+1)
	}
	s := h.settlement(t, outcome)
	return fmt.Sprintf("settle %v %s", t.Armed.Delivery.ID, outcome), func(st store.Store) (any, error) {
		out, err := st.Settle(h.ctx, []store.Settlement{s})
		for i := range out {
			out[i].Delivery.Payload = nil // it may be wiped before or after it is answered
		}
		return out, err
	}
}

func (h *chronicle) cancelSome() (string, act) {
	f := store.Filter{Project: shop, ID: pick(h, h.notifications...)}
	if h.often(30) {
		f = store.Filter{Project: shop, Recipient: pick(h, ann, bob), Category: pick(h, news, "first", "cool")}
	}
	return fmt.Sprintf("cancel %+v", f), func(s store.Store) (any, error) {
		c, err := s.Cancel(h.ctx, h.now, f, false, 100)
		slices.Sort(c.Cancelled)
		slices.Sort(c.InFlight)
		if f.ID == 0 {
			c.Ended, c.InFlight = nil, nil // which of them are told again is the store's to choose
		}
		return c, err
	}
}

// change changes what bears on what waits.
func (h *chronicle) change() (string, act) {
	who := pick(h, ann, ann, bob)
	switch n := h.IntN(100); {
	case n < 25:
		on := pick(h, new(bool), ptr(true), nil)
		c := belfry.PreferenceChange{Category: pick(h, "*", news, "first", "secret"), Channel: pick(h, "*", "push", "email", "webpush"), On: on, Source: "user"}
		return fmt.Sprintf("preference of %s: %s %s %v", who, c.Category, c.Channel, on != nil && *on), func(s store.Store) (any, error) {
			return s.ChangePreferences(h.ctx, h.now, shop, who, []belfry.PreferenceChange{c}, n < 3)
		}
	case n < 50:
		return "register", h.register()
	case n < 58 && len(h.endpoints) > 0:
		e := pick(h, h.endpoints...)
		return fmt.Sprintf("retire %v", e.ID), func(s store.Store) (any, error) {
			return s.Retire(h.ctx, h.now, shop, e.Recipient, e.ID, belfry.ReasonEndpointRetired)
		}
	case n < 64:
		x := belfry.Suppression{Project: shop, Channel: pick(h, "email", "push", "sms"), Address: pick[belfry.Secret](h, "a@x", "b@x", "t1", "+81"), Reason: "manual", At: h.now}
		return fmt.Sprintf("suppress %s %s", x.Channel, x.Address.Reveal()), func(s store.Store) (any, error) { return s.Suppress(h.ctx, x) }
	case n < 72:
		channel, address := pick(h, "email", "push", "sms"), pick[belfry.Secret](h, "a@x", "b@x", "t1", "+81")
		return fmt.Sprintf("unsuppress %s %s", channel, address.Reveal()), func(s store.Store) (any, error) {
			return nil, s.Unsuppress(h.ctx, shop, channel, address)
		}
	case n < 80:
		p := belfry.Pause{ID: h.id(), Project: pick(h, shop, shop, ""), Category: pick(h, "", news, "cool"), Channel: pick(h, "", "", "email"), Reason: "stop", At: h.now}
		p.Until = pick(h, time.Time{}, h.now.Add(time.Minute), h.now.Add(10*time.Minute))
		h.pauses = append(h.pauses, p)
		return fmt.Sprintf("pause %v", p.ID), func(s store.Store) (any, error) { return nil, s.PutPause(h.ctx, p) }
	case n < 90 && len(h.pauses) > 0:
		i := h.IntN(len(h.pauses))
		p := h.pauses[i]
		h.pauses = slices.Delete(h.pauses, i, i+1)
		return fmt.Sprintf("lift %v", p.ID), func(s store.Store) (any, error) { return nil, s.LiftPause(h.ctx, h.now, p.Project, p.ID) }
	case n < 93:
		name := pick(h, news, "first", "cool", "once")
		c := historyCategories[name]
		c.Project, c.Name, c.Shadow = shop, name, h.often(30)
		if h.often(30) {
			return "delete category " + name, func(s store.Store) (any, error) { return nil, s.DeleteCategory(h.ctx, shop, name) }
		}
		return "put category " + name, func(s store.Store) (any, error) { return nil, s.PutCategory(h.ctx, c) }
	case n < 95:
		return "erase " + who, func(s store.Store) (any, error) { return s.DeleteRecipient(h.ctx, h.now, shop, who) }
	case n < 99:
		return "put " + who, func(s store.Store) (any, error) {
			return s.PutRecipient(h.ctx, h.now, belfry.Recipient{Project: shop, ID: who, Zone: "Asia/Tokyo"})
		}
	}
	return "purge", func(s store.Store) (any, error) {
		_, err := s.Purge(h.ctx, h.now, h.now.Add(-10*time.Minute), h.now.Add(-30*time.Minute), 1000)
		return nil, err
	}
}

func ptr[T any](v T) *T { return &v }

// register makes one of few addresses known, on one of few devices.
func (h *chronicle) register() act {
	r := belfry.Registration{Recipient: pick(h, ann, ann, bob), Channel: pick(h, "webpush", "webpush", "fcm", "email")}
	if r.Channel == "email" {
		r.Address = pick[belfry.Secret](h, "a@x", "b@x")
	} else {
		r.Address, r.Device = pick[belfry.Secret](h, "t1", "t2", "t3"), pick(h, "", "phone", "tablet")
	}
	id := h.id()
	taken := false
	return func(s store.Store) (any, error) {
		out, err := s.Register(h.ctx, h.now, shop, id, r)
		if err == nil && !taken {
			taken = true
			h.endpoints = append(h.endpoints, out.Endpoint)
		}
		if out.Replaced != 0 {
			out.Replaced = 1 // it may be one of two: the device's old token, and the token's old owner
		}
		return out, err
	}
}
