package storetest

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"belfry"
	"belfry/store"
	"belfry/store/mapstore"
)

var historySeed = flag.Uint64("storetest.seed", 0, "replay the one history of this seed")

// histories does random things to a store and to a mapstore, and compares everything that can be read after
// each of them. A history that goes apart prints its seed and its steps; replay it with -storetest.seed.
func histories(t *testing.T, open func(t *testing.T) store.Store) {
	if *historySeed != 0 {
		history(t, open, *historySeed)
		return
	}
	first := uint64(time.Now().UnixNano())
	for n := range uint64(much(6, 40)) {
		history(t, open, first+n)
		if t.Failed() {
			return
		}
	}
}

func history(t *testing.T, open func(t *testing.T) store.Store, seed uint64) {
	h := &chronicle{
		worker: newWorker(t, open(t)), model: mapstore.New(), Rand: rand.New(rand.NewPCG(seed, 0)),
		held: map[belfry.ID]store.Claim{},
	}
	h.begin()
	for step := range much(80, 150) {
		name, does := h.next()
		h.log = append(h.log, fmt.Sprintf("%3d %s %s", step, h.now.Format("15:04:05"), name))
		if diff := h.apart(does); diff != "" {
			t.Fatalf("history of seed %d goes apart at step %d (-model +store):\n%s\n%s", seed, step, diff, strings.Join(h.log, "\n"))
		}
	}
}

// chronicle is a history on its way.
type chronicle struct {
	*worker
	*rand.Rand
	model *mapstore.Store
	log   []string

	notifications []belfry.ID
	held          map[belfry.ID]store.Claim // claimed and not armed, whether lost since or not
	wires         []wire                    // armed and not settled, whether lost since or not
	pauses        []belfry.Pause
	endpoints     []belfry.Endpoint
}

// An act is done to both stores, and returns what is to be the same.
type act func(store.Store) (any, error)

// apart does an act and says how the stores differ after it.
func (h *chronicle) apart(does act) string {
	want, wrong := does(h.model)
	got, err := does(h.worker.Store)
	if belfry.CodeOf(wrong) != belfry.CodeOf(err) || errors.Is(wrong, store.ErrGone) != errors.Is(err, store.ErrGone) || (wrong == nil) != (err == nil) {
		return fmt.Sprintf("errors: model %v, store %v", wrong, err)
	}
	if diff := gocmp.Diff(want, got, alike...); err == nil && diff != "" {
		return "answers:\n" + diff
	}
	if err := h.model.Check(); err != nil {
		return "the model is broken: " + err.Error()
	}
	model, stored := h.dump(h.model), h.dump(h.worker.Store)
	for name, want := range model {
		if got := stored[name]; !reflect.DeepEqual(want, got) { // which is cheap
			if diff := gocmp.Diff(want, got, alike...); diff != "" {
				return name + ":\n" + diff
			}
		}
	}
	return ""
}

// alike is what two stores may do differently.
var alike = gocmp.Options{
	cmpopts.EquateEmpty(),
	cmpopts.EquateComparable(belfry.Secret("")),
	gocmp.Comparer(func(a, b error) bool { return belfry.CodeOf(a) == belfry.CodeOf(b) }),
	gocmp.Transformer("inflight", func(w store.Withdrawn) map[string]any {
		ids := slices.Clone(w.InFlight)
		slices.SortFunc(ids, func(a, b belfry.DeliveryID) int { return cmp.Compare(a.String(), b.String()) })
		return map[string]any{"withdrawn": w.Withdrawn, "in flight": ids}
	}),
	gocmp.Transformer("delivery", func(d belfry.Delivery) map[string]any {
		next := d.Next
		if d.State != belfry.Sending {
			next = time.Time{} // of what waits, Waits tells it
		}
		return map[string]any{
			"id": d.ID, "state": d.State, "reason": d.Reason, "mode": d.Mode, "channel": d.Channel, "endpoint": d.Endpoint,
			"target": d.Target, "device": d.Device, "deadline": d.Deadline, "claim": d.Claim, "armed": d.Armed, "cancel": d.Cancel,
			"losses": d.Losses, "alone": d.Alone, "deferrals": d.Deferrals, "attempts": d.Attempts, "payload": string(d.Payload),
			"frozen": d.Frozen, "next": next,
		}
	}),
}

// dump is everything that can be read, in an order of its own.
func (h *chronicle) dump(s store.Store) map[string]any {
	out := map[string]any{}
	keep := func(name string, v any, err error) {
		switch code := belfry.CodeOf(err); {
		case err == nil:
			out[name] = v
		case code != "":
			out[name] = code
		default:
			h.Fatalf("%s: %v", name, err)
		}
	}
	for _, id := range h.notifications {
		story, err := s.Notification(h.ctx, shop, id)
		if story.State.Ended() {
			story.Duplicates = 0 // a fact that was freed has no count
		}
		story.Recipient = nil
		slices.SortStableFunc(story.Events, func(a, b store.Event) int {
			return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.N, b.N), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Reason, b.Reason))
		})
		slices.SortFunc(story.Deliveries, func(a, b store.DeliveryStory) int { return cmp.Compare(a.ID.N, b.ID.N) })
		for i, d := range story.Deliveries {
			if d.Target > 0 {
				story.Deliveries[i].Endpoint = belfry.Endpoint{}
			}
		}
		keep(id.String(), story, err)
	}
	heads, err := s.Heads(h.ctx)
	keep("heads", sortedHeads(heads), err)
	stats, err := s.Stats(h.ctx, shop)
	stats.Ended = sortedCounts(stats.Ended)
	keep("stats", stats, err)
	for _, who := range []string{ann, bob} {
		r, err := s.Recipient(h.ctx, shop, who)
		keep(who, r, err)
		endpoints, err := s.Endpoints(h.ctx, shop, who)
		keep(who+" endpoints", endpoints, err)
		preferences, err := s.Preferences(h.ctx, shop, who)
		keep(who+" preferences", preferences, err)
		marks, err := s.Marks(h.ctx, shop, who, "", "")
		keep(who+" marks", marks, err)
	}
	return out
}

// pick is one of a list.
func pick[T any](h *chronicle, list ...T) T { return list[h.IntN(len(list))] }

// often says yes in so many of a hundred cases.
func (h *chronicle) often(percent int) bool { return h.IntN(100) < percent }

// begin makes the world of a history in both stores.
func (h *chronicle) begin() {
	for _, who := range []string{ann, bob} {
		h.must(func(s store.Store) (any, error) {
			return s.PutRecipient(h.ctx, h.now, belfry.Recipient{Project: shop, ID: who, Zone: "Asia/Tokyo"})
		})
	}
	for name, c := range historyCategories {
		c.Project, c.Name = shop, name
		h.must(func(s store.Store) (any, error) { return nil, s.PutCategory(h.ctx, c) })
	}
	h.must(func(s store.Store) (any, error) { return nil, s.PutProject(h.ctx, h.now, shop) })
	for range 3 {
		h.must(h.register())
	}
}

func (h *chronicle) must(does act) {
	h.Helper()
	if diff := h.apart(does); diff != "" {
		h.Fatalf("the stores differ from the start:\n%s", diff)
	}
}

var historyCategories = map[string]belfry.Category{
	news:     {},
	"first":  {Route: belfry.RouteFirst, Channels: []string{"push", "email"}},
	"cool":   {Cooldown: belfry.Duration(10 * time.Minute), Channels: []string{"email"}},
	"once":   {Delivery: belfry.AtMostOnce, Channels: []string{"email"}},
	"secret": {Sensitive: true, Channels: []string{"push", "email"}, Consent: belfry.OptIn},
}

// next picks what is done next.
func (h *chronicle) next() (string, act) {
	for {
		switch n := h.IntN(100); {
		case n < 18 && len(h.notifications) < 25:
			return h.enqueue()
		case n < 40:
			if does := h.claimSome(); does != nil {
				return "claim", does
			}
		case n < 60 && len(h.held) > 0:
			return h.armSome()
		case n < 75 && len(h.wires) > 0:
			return h.settleSome()
		case n < 83:
			h.after(pick(h, time.Second, 20*time.Second, time.Minute, 15*time.Minute))
			return "wait", func(store.Store) (any, error) { return nil, nil }
		case n < 86:
			return "repair", func(s store.Store) (any, error) {
				return s.Repair(h.ctx, h.now, func(string, string) belfry.RetryPolicy { return policy }, 1000)
			}
		case n < 88 && len(h.notifications) > 0:
			return h.cancelSome()
		default:
			return h.change()
		}
	}
}

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
