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

var (
	historySeed  = flag.Uint64("storetest.seed", 0, "replay the one history of this seed")
	newHistories = flag.Bool("storetest.new", false, "histories that nobody has seen yet, instead of always the same")
)

// histories does random things to a store and to a mapstore, and compares everything that can be read after
// each of them. A history that goes apart prints its seed and its steps; replay it with -storetest.seed. The
// seeds are the same each time, so that a change is judged and not luck; -storetest.new looks further.
func histories(t *testing.T, open func(t *testing.T) store.Store) {
	if *historySeed != 0 {
		history(t, open, *historySeed)
		return
	}
	first := uint64(1)
	if *newHistories {
		first = uint64(time.Now().UnixNano())
	}
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
