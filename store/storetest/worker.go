package storetest

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"belfry"
	"belfry/store"
)

// worker plays the engine on a store: its clock stands until a case moves it, its ids grow, and every act
// is one line that fails the test when the store returns an error.
type worker struct {
	*testing.T
	store.Store
	ctx   context.Context
	now   time.Time
	owner belfry.ID
	ids   *atomic.Int64
	known []string
}

// The world of the cases: one project, one recipient, one category that sends everywhere.
const (
	shop = "shop"
	ann  = "ann"
	bob  = "bob"
	news = "news"
)

var morning = time.Date(2026, 12, 1, 9, 0, 0, 0, time.UTC)

const (
	leaseTime = time.Minute
	lifeTime  = time.Hour // from due to deadline
)

func newWorker(t *testing.T, s store.Store) *worker {
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	w := &worker{T: t, Store: s, ctx: t.Context(), now: morning, ids: new(atomic.Int64), known: []string{"webpush", "fcm", "email", "sms", "webhook", "inbox"}}
	w.owner = w.id()
	w.ok(w.PutProject(w.ctx, w.now, shop))
	w.recipient(ann)
	w.category(news, nil)
	return w
}

// id makes an ID of now that is greater than all before it.
func (w *worker) id() belfry.ID {
	for {
		last := w.ids.Load()
		next := max(last+1, int64(belfry.MakeID(w.now, 1, 0)))
		if w.ids.CompareAndSwap(last, next) {
			return belfry.ID(next)
		}
	}
}

func (w *worker) after(d time.Duration) { w.now = w.now.Add(d) }

func (w *worker) recipient(id string) {
	w.Helper()
	_, err := w.PutRecipient(w.ctx, w.now, belfry.Recipient{Project: shop, ID: id, Zone: "Asia/Tokyo"})
	w.ok(err)
}

func (w *worker) category(name string, change func(*belfry.Category)) belfry.Category {
	w.Helper()
	c := belfry.Category{Project: shop, Name: name}
	if change != nil {
		change(&c)
	}
	w.ok(w.PutCategory(w.ctx, c))
	return c
}

// endpoint registers an address of a recipient, on a device when one is named.
func (w *worker) endpoint(recipient, channel, address string, device ...string) belfry.Endpoint {
	w.Helper()
	return w.register(recipient, channel, address, device...).Endpoint
}

func (w *worker) register(recipient, channel, address string, device ...string) store.Registered {
	w.Helper()
	r := belfry.Registration{Recipient: recipient, Channel: channel, Address: belfry.Secret(address)}
	if len(device) > 0 {
		r.Device = device[0]
	}
	out, err := w.Register(w.ctx, w.now, shop, w.id(), r)
	w.ok(err)
	return out
}

func (w *worker) endpointNow(recipient string, id belfry.ID) belfry.Endpoint {
	w.Helper()
	list, err := w.Endpoints(w.ctx, shop, recipient)
	w.ok(err)
	for _, e := range list {
		if e.ID == id {
			return e
		}
	}
	w.Fatalf("endpoint %v of %s is not listed", id, recipient)
	return belfry.Endpoint{}
}

// switchTo changes one preference of a recipient.
func (w *worker) switchTo(recipient, category, channel string, on bool) store.Withdrawn {
	w.Helper()
	out, err := w.ChangePreferences(w.ctx, w.now, shop, recipient, []belfry.PreferenceChange{{Category: category, Channel: channel, On: &on, Source: "user"}}, false)
	w.ok(err)
	return out
}

// enqueue writes entries one by one: nothing may be refused.
func (w *worker) enqueue(entries ...store.Entry) []store.Enqueued {
	w.Helper()
	out, err := w.Enqueue(w.ctx, entries, false)
	w.ok(err)
	if len(out) != len(entries) {
		w.Fatalf("Enqueue answered %d of %d entries", len(out), len(entries))
	}
	for i := range out {
		w.ok(out[i].Err)
	}
	return out
}

// tell enqueues one notification.
func (w *worker) tell(changes ...change) belfry.ID {
	w.Helper()
	return w.enqueue(w.entry(changes...))[0].ID
}

func (w *worker) lease() store.Owner { return store.Owner{ID: w.owner, Lease: w.now.Add(leaseTime)} }

// claimAs asks for what is due in one queue and lane of a project.
func (w *worker) claimAs(project, queue string, lane belfry.Lane, limit int) (store.Claim, bool) {
	w.Helper()
	claims, err := w.Claim(w.ctx, w.now, w.lease(), []store.Take{{Claim: w.id(), Queue: queue, Lane: lane, Project: project, Limit: limit}})
	w.ok(err)
	switch len(claims) {
	case 0:
		return store.Claim{}, false
	case 1:
		return claims[0], true
	}
	w.Fatalf("one take made %d claims", len(claims))
	return store.Claim{}, false
}

// claim takes everything that is due in a queue of the normal lane; there must be something.
func (w *worker) claim(queue string) store.Claim {
	w.Helper()
	c, ok := w.claimAs(shop, queue, belfry.Normal, 100)
	if !ok {
		w.Fatalf("nothing is due in queue %q at %v", queue, w.now)
	}
	return c
}

// idle wants nothing to be due in a queue.
func (w *worker) idle(queue string) {
	w.Helper()
	if c, ok := w.claimAs(shop, queue, belfry.Normal, 100); ok {
		w.Errorf("queue %q is not idle: it gave %d items, the first of %v", queue, len(c.Items), c.Items[0].Notification.ID)
	}
}

// payload is what every first try sends.
var payload = []byte("payload")

// step is what an engine without rechecks prepares for an item.
func (w *worker) step(i store.Item) store.Step {
	w.Helper()
	if i.Delivery != nil {
		return store.Step{Tries: []store.Try{{Delivery: *i.Delivery, Payload: payload, Send: true}}}
	}
	facts, err := w.Facts(w.ctx, []store.Item{i})
	w.ok(err)
	p := belfry.Plan(i.Notification, facts[0], i.Wait.Stage, i.Wait.From, w.known, w.now)
	switch {
	case p.State == belfry.Scheduled:
		return store.Step{Wait: &store.Until{At: p.Hold, Reason: p.Reason}}
	case p.State.Ended():
		if p.Reason == belfry.ReasonDeadline {
			p.Reason = cmp.Or(i.Wait.Reason, p.Reason)
		}
		return store.Step{End: &store.End{State: p.State, Reason: p.Reason}}
	}
	step := store.Step{Stage: p.Stage}
	for _, d := range p.Deliveries {
		step.Tries = append(step.Tries, store.Try{Delivery: d, Payload: payload, Send: true})
	}
	return step
}

// prepare is everything that an engine prepares for a claim.
func (w *worker) prepare(c store.Claim) store.Arm {
	w.Helper()
	a := store.Arm{Claim: c, Owner: w.lease(), Now: w.now, Known: w.known}
	for _, i := range c.Items {
		a.Steps = append(a.Steps, w.step(i))
	}
	return a
}

// arm carries out what was prepared, and returns what may reach the wire.
func (w *worker) arm(a store.Arm) []store.Armed {
	w.Helper()
	out, err := w.Arm(w.ctx, a)
	w.ok(err)
	return slices.DeleteFunc(out, func(t store.Armed) bool { return !t.Delivery.Armed })
}

// wire is an armed try, with what is needed to settle it.
type wire struct {
	claim belfry.ID
	store.Armed
	store.Item
}

// send claims what is due in a queue and arms it.
func (w *worker) send(queue string) []wire {
	w.Helper()
	return w.sendClaim(w.claim(queue))
}

func (w *worker) sendClaim(c store.Claim) (out []wire) {
	w.Helper()
	for _, t := range w.arm(w.prepare(c)) {
		out = append(out, wire{c.ID, t, c.Items[t.Step]})
	}
	return out
}

// sendOne sends what is due in a queue: exactly one try may leave.
func (w *worker) sendOne(queue string) wire {
	w.Helper()
	out := w.send(queue)
	if len(out) != 1 {
		w.Fatalf("%d tries left queue %q, want 1", len(out), queue)
	}
	return out[0]
}

// policy is the retry policy of the cases: 30 s, 60 s … and three tries.
var policy = belfry.RetryPolicy{First: belfry.Duration(30 * time.Second), Factor: 2, Max: belfry.Duration(time.Hour), Attempts: 3}

func (w *worker) settlement(t wire, outcome belfry.Outcome) store.Settlement {
	return store.Settlement{
		Claim: t.claim, Notification: t.Notification, Delivery: t.Armed.Delivery, Endpoint: t.Endpoint,
		Answer: belfry.Answer{Outcome: outcome}, Policy: policy, Now: w.now, MarkData: json.RawMessage(`{"told":true}`),
	}
}

func (w *worker) settle(t wire, outcome belfry.Outcome) store.Settled {
	w.Helper()
	return w.settleAll(w.settlement(t, outcome))[0]
}

func (w *worker) settleAll(list ...store.Settlement) []store.Settled {
	w.Helper()
	out, err := w.Settle(w.ctx, list)
	w.ok(err)
	if len(out) != len(list) {
		w.Fatalf("Settle answered %d of %d settlements", len(out), len(list))
	}
	return out
}

// repair takes over every claim whose lease has ended.
func (w *worker) repair() store.Repaired {
	w.Helper()
	done, err := w.Repair(w.ctx, w.now, func(string, string) belfry.RetryPolicy { return policy }, 1000)
	w.ok(err)
	return done
}

// lose lets every lease end, and repairs.
func (w *worker) lose() store.Repaired {
	w.Helper()
	w.after(leaseTime + time.Second)
	return w.repair()
}

func (w *worker) cancel(id belfry.ID) store.Cancelled {
	w.Helper()
	c, err := w.Cancel(w.ctx, w.now, store.Filter{Project: shop, ID: id}, false, 100)
	w.ok(err)
	return c
}

func (w *worker) recipientIn(id, zone string) {
	w.Helper()
	_, err := w.PutRecipient(w.ctx, w.now, belfry.Recipient{Project: shop, ID: id, Zone: zone})
	w.ok(err)
}

// inProject makes another project with ann and news in it.
func (w *worker) inProject(name string) {
	w.Helper()
	w.ok(w.PutProject(w.ctx, w.now, name))
	_, err := w.PutRecipient(w.ctx, w.now, belfry.Recipient{Project: name, ID: ann, Zone: "Asia/Tokyo"})
	w.ok(err)
	w.ok(w.PutCategory(w.ctx, belfry.Category{Project: name, Name: news}))
}

// end brings the one notification that waits to an end.
func (w *worker) end(id belfry.ID, state belfry.State) {
	w.Helper()
	switch state {
	case belfry.Cancelled:
		w.cancel(id)
	case belfry.Dropped, belfry.Missed:
		c := w.claim("")
		w.arm(store.Arm{Claim: c, Owner: w.lease(), Now: w.now, Known: w.known, Steps: []store.Step{{End: &store.End{State: state, Reason: belfry.ReasonDeadline}}}})
	default:
		w.endpoint(ann, "email", "a@example.com")
		outcome := map[belfry.State]belfry.Outcome{belfry.Sent: belfry.OutcomeAccepted, belfry.Failed: belfry.OutcomeRefused, belfry.Unknown: belfry.OutcomeAmbiguous}[state]
		t := w.sendOne("")
		s := w.settlement(t, outcome)
		s.Policy.Attempts = 1
		w.settleAll(s)
	}
	if s := w.story(id); s.State != state {
		w.Fatalf("notification is %s, want it to end %s\n%s", s.State, state, tale(s))
	}
}

func contextCancelled(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(parent)
	cancel()
	return ctx, cancel
}
