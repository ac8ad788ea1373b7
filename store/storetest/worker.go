package storetest

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

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

// ok fails the test when an act failed.
func (w *worker) ok(err error) {
	w.Helper()
	if err != nil {
		w.Fatalf("unexpected error: %v", err)
	}
}

// refused wants an error with a code.
func (w *worker) refused(err error, code belfry.Code) {
	w.Helper()
	if belfry.CodeOf(err) != code {
		w.Errorf("error %v, want one with code %q", err, code)
	}
}

func (w *worker) is(fact bool, format string, args ...any) {
	w.Helper()
	if !fact {
		w.Errorf(format, args...)
	}
}

// same wants two values to be equal; nil and empty are.
func (w *worker) same(got, want any, about string) {
	w.Helper()
	if diff := gocmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.EquateComparable(belfry.Secret("")), cmpopts.EquateErrors()); diff != "" {
		w.Errorf("%s: -want +got\n%s", about, diff)
	}
}

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

// A change makes an entry other than the plain one.
type change func(*store.Entry)

func to(recipient string) change {
	return func(e *store.Entry) { e.Notification.Recipient = recipient }
}
func of(category string) change { return func(e *store.Entry) { e.Notification.Category = category } }
func about(subject string) change {
	return func(e *store.Entry) { e.Notification.Subject = subject }
}
func in(lane belfry.Lane) change { return func(e *store.Entry) { e.Notification.Lane = lane } }
func queued(queue string) change { return func(e *store.Entry) { e.Queue = queue } }
func project(name string) change { return func(e *store.Entry) { e.Notification.Project = name } }
func due(at time.Time) change {
	return func(e *store.Entry) { e.Notification.Due, e.Notification.Deadline = at, at.Add(lifeTime) }
}
func data(text string) change {
	return func(e *store.Entry) { e.Notification.Data = json.RawMessage(text) }
}
func via(channels ...string) change {
	return func(e *store.Entry) { e.Notification.Channels = channels }
}
func aimed(targets ...belfry.Target) change {
	return func(e *store.Entry) { e.Notification.To = targets }
}

// keyed gives the entry an idempotency key for a request that body tells apart.
func keyed(text, body string) change {
	return func(e *store.Entry) {
		e.Key = store.Key{Text: text, Expires: e.Notification.CreatedAt.Add(24 * time.Hour)}
		copy(e.Key.Fingerprint[:], body)
	}
}

// once gives the entry a fact.
func once(o belfry.Once) change {
	return func(e *store.Entry) {
		e.Notification.Once = &o
		e.Fact = func(zone string) (string, error) {
			loc, err := time.LoadLocation(zone)
			if err != nil {
				return "", belfry.Invalid("once.zone", "unknown")
			}
			return o.Fact(e.Notification, loc), nil
		}
	}
}

// entry is a notification for ann, due now, that waits to be planned onto several channels.
func (w *worker) entry(changes ...change) store.Entry {
	e := store.Entry{Notification: belfry.Notification{
		ID: w.id(), Project: shop, Recipient: ann, Category: news, Subject: "kettle", Data: json.RawMessage(`{"price":1980}`),
		CreatedAt: w.now, Due: w.now, Deadline: w.now.Add(lifeTime), Lane: belfry.Normal,
	}}
	for _, c := range changes {
		c(&e)
	}
	return e
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

func (w *worker) story(id belfry.ID) store.Story {
	w.Helper()
	s, err := w.Notification(w.ctx, shop, id)
	w.ok(err)
	return s
}

// stands wants a notification to stand in a state, for a reason.
func (w *worker) stands(id belfry.ID, state belfry.State, reason belfry.Reason) {
	w.Helper()
	s := w.story(id)
	if s.State != state || s.Reason != reason {
		w.Errorf("notification is %s(%s), want %s(%s)\n%s", s.State, s.Reason, state, reason, tale(s))
	}
	if s.EndedAt.IsZero() == s.State.Ended() && s.State != belfry.Sent {
		w.Errorf("notification is %s and ended at %v", s.State, s.EndedAt)
	}
}

// delivery wants the n-th delivery of a notification to stand in a state, for a reason.
func (w *worker) delivery(id belfry.ID, n int, state belfry.State, reason belfry.Reason) belfry.Delivery {
	w.Helper()
	s := w.story(id)
	if len(s.Deliveries) < n {
		w.Fatalf("notification has %d deliveries, want at least %d\n%s", len(s.Deliveries), n, tale(s))
	}
	d := s.Deliveries[n-1]
	if d.State != state || d.Reason != reason {
		w.Errorf("delivery %d is %s(%s), want %s(%s)\n%s", n, d.State, d.Reason, state, reason, tale(s))
	}
	return d.Delivery
}

// happened counts the events of a kind.
func (w *worker) happened(id belfry.ID, kind store.EventKind) int {
	w.Helper()
	n := 0
	for _, e := range w.story(id).Events {
		if e.Kind == kind {
			n++
		}
	}
	return n
}

func (w *worker) marks(recipient string) []store.Mark {
	w.Helper()
	list, err := w.Marks(w.ctx, shop, recipient, "", "")
	w.ok(err)
	return list
}

// tale is a story for people who read a failed test.
func tale(s store.Story) string {
	out := fmt.Sprintf("  %v %s(%s) waits %v\n", s.ID, s.State, s.Reason, s.Waits)
	for _, d := range s.Deliveries {
		out += fmt.Sprintf("    %d on %s: %s(%s) next %v, %d tries\n", d.ID.N, d.Channel, d.State, d.Reason, d.Next, len(d.Attempts))
	}
	for _, e := range s.Events {
		out += fmt.Sprintf("    %v %s(%s) of %d\n", e.At, e.Kind, e.Reason, e.N)
	}
	return out
}

// count wants so many notifications in the shop.
func (w *worker) count(want int) {
	w.Helper()
	list, _, err := w.Notifications(w.ctx, store.Filter{Project: shop}, 0, 1000)
	w.ok(err)
	w.is(len(list) == want, "there are %d notifications, want %d", len(list), want)
}

// refusedEntry wants an entry to be refused.
func (w *worker) refusedEntry(e store.Entry, code belfry.Code) {
	w.Helper()
	out, err := w.Enqueue(w.ctx, []store.Entry{e}, false)
	w.ok(err)
	w.refused(out[0].Err, code)
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
