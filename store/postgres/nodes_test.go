package postgres_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"belfry"
	"belfry/internal/pgtest"
	"belfry/store"
)

var morning = time.Date(2026, 12, 1, 9, 0, 0, 0, time.UTC)

// shop is a project with some recipients that have an address each, on two nodes.
type shop struct {
	*testing.T
	a, b  store.Store
	owner belfry.ID
	seq   int
}

func newShop(t *testing.T, people int) *shop {
	url, schema := pgtest.New(t), newSchema()
	a, b := open(t, url, schema), open(t, url, schema)
	t.Cleanup(func() {
		for _, s := range []store.Store{a, b} {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	s := &shop{T: t, a: a, b: b}
	s.owner = s.id()
	s.ok(a.PutCategory(t.Context(), belfry.Category{Project: "shop", Name: "news"}))
	for i := range people {
		who := fmt.Sprint("r", i)
		_, err := a.PutRecipient(t.Context(), morning, belfry.Recipient{Project: "shop", ID: who, Zone: "UTC"})
		s.ok(err)
		_, err = a.Register(t.Context(), morning, "shop", s.id(), belfry.Registration{Recipient: who, Channel: "email", Address: belfry.Secret(who + "@x")})
		s.ok(err)
	}
	return s
}

func (s *shop) ok(err error) {
	s.Helper()
	if err != nil {
		s.Error(err)
	}
}

func (s *shop) id() belfry.ID {
	s.seq++
	return belfry.MakeID(morning, 1, uint16(s.seq)) + belfry.ID(s.seq>>12)<<12
}

func (s *shop) entry(who string) store.Entry {
	return store.Entry{Notification: belfry.Notification{
		ID: s.id(), Project: "shop", Recipient: who, Category: "news", CreatedAt: morning, Due: morning, Deadline: morning.Add(time.Hour), Lane: belfry.Normal,
	}}
}

// armed claims and prepares everything that is due, in claims of a few.
func (s *shop) prepared(node store.Store, limit int) (arms []store.Arm) {
	s.Helper()
	for {
		claims, err := node.Claim(s.Context(), morning, store.Owner{ID: s.owner, Lease: morning.Add(time.Minute)}, []store.Take{{Claim: s.id(), Lane: belfry.Normal, Project: "shop", Limit: limit}})
		if s.ok(err); err != nil || len(claims) == 0 {
			return arms
		}
		facts, err := node.Facts(s.Context(), claims[0].Items)
		s.ok(err)
		a := store.Arm{Claim: claims[0], Owner: store.Owner{ID: s.owner, Lease: morning.Add(time.Minute)}, Now: morning, Known: []string{"email"}}
		for i, item := range claims[0].Items {
			step := store.Step{Stage: 1}
			for _, d := range belfry.Plan(item.Notification, facts[i], 0, 0, a.Known, morning).Deliveries {
				step.Tries = append(step.Tries, store.Try{Delivery: d, Payload: []byte("hi"), Send: true})
			}
			a.Steps = append(a.Steps, step)
		}
		arms = append(arms, a)
	}
}

// An opt-out on one node and arms on the other meet, again and again: what was armed is in flight by the
// opt-out's own account, and what is not was never armed, nor is it after.
func TestOptOutVersusArmOnTwoNodes(t *testing.T) {
	const people = 8
	s := newShop(t, people)
	rounds := 30
	if testing.Short() {
		rounds = 5
	}
	for round := range rounds {
		on, off := true, false
		var entries []store.Entry
		for i := range people {
			who := fmt.Sprint("r", i)
			_, err := s.a.ChangePreferences(t.Context(), morning, "shop", who, []belfry.PreferenceChange{{Category: "news", Channel: "email", On: &on}}, false)
			s.ok(err)
			entries = append(entries, s.entry(who), s.entry(who))
		}
		_, err := s.a.Enqueue(t.Context(), entries, true)
		s.ok(err)
		arms := s.prepared(s.a, 3)
		var mu sync.Mutex
		var all sync.WaitGroup
		var armed, inFlight []belfry.DeliveryID
		start := make(chan struct{})
		for _, a := range arms {
			all.Go(func() {
				<-start
				out, err := s.a.Arm(t.Context(), a)
				s.ok(err)
				mu.Lock()
				defer mu.Unlock()
				for _, x := range out {
					if x.Delivery.Armed {
						armed = append(armed, x.Delivery.ID)
					}
				}
			})
		}
		for i := range people {
			all.Go(func() {
				<-start
				out, err := s.b.ChangePreferences(t.Context(), morning, "shop", fmt.Sprint("r", i), []belfry.PreferenceChange{{Category: "news", Channel: "email", On: &off}}, false)
				s.ok(err)
				mu.Lock()
				defer mu.Unlock()
				inFlight = append(inFlight, out.InFlight...)
			})
		}
		close(start)
		all.Wait()
		compare := func(x, y belfry.DeliveryID) int { return int(x.Notification - y.Notification) }
		slices.SortFunc(armed, compare)
		slices.SortFunc(inFlight, compare)
		if !slices.Equal(armed, inFlight) {
			t.Fatalf("round %d: armed %v, in flight by the opt-outs %v", round, armed, inFlight)
		}
		var settle []store.Settlement
		for _, e := range entries {
			story, err := s.b.Notification(t.Context(), "shop", e.Notification.ID)
			s.ok(err)
			for _, d := range story.Deliveries {
				if d.Armed {
					settle = append(settle, store.Settlement{Claim: d.Claim, Notification: e.Notification, Delivery: d.Delivery, Answer: belfry.Answer{Outcome: belfry.OutcomeAccepted}, Now: morning})
				}
			}
		}
		if len(settle) != len(armed) {
			t.Fatalf("round %d: %d were armed, %d are", round, len(armed), len(settle))
		}
		if len(settle) > 0 { // by the node that did not arm them
			out, err := s.b.Settle(t.Context(), settle)
			s.ok(err)
			for _, x := range out {
				if x.Late || x.Delivery.State != belfry.Sent {
					t.Errorf("settled as %+v", x)
				}
			}
		}
	}
}

// A node whose claim another took over can do nothing with it any more.
func TestANodeThatLostItsClaimIsGone(t *testing.T) {
	s := newShop(t, 1)
	_, err := s.a.Enqueue(t.Context(), []store.Entry{s.entry("r0")}, true)
	s.ok(err)
	arms := s.prepared(s.a, 10)
	done, err := s.b.Repair(t.Context(), morning.Add(2*time.Minute), func(string, string) belfry.RetryPolicy { return belfry.RetryPolicy{Attempts: 3} }, 10)
	if s.ok(err); done.Claims != 1 || done.Returned != 1 {
		t.Fatalf("repaired %+v", done)
	}
	if _, err := s.a.Arm(t.Context(), arms[0]); err != store.ErrGone {
		t.Errorf("armed under a claim that was taken over: %v", err)
	}
}

func TestNodesShareWhatIsDue(t *testing.T) {
	s := newShop(t, 10)
	var entries []store.Entry
	for i := range 200 {
		entries = append(entries, s.entry(fmt.Sprint("r", i%10)))
	}
	_, err := s.a.Enqueue(t.Context(), entries, true)
	s.ok(err)
	taken := map[belfry.ID]int{}
	var mu sync.Mutex
	var all sync.WaitGroup
	ids := make(chan belfry.ID, 400)
	for range cap(ids) {
		ids <- s.id()
	}
	for _, node := range []store.Store{s.a, s.b, s.a, s.b} {
		all.Go(func() {
			for {
				claims, err := node.Claim(t.Context(), morning, store.Owner{ID: 1, Lease: morning.Add(time.Minute)}, []store.Take{{Claim: <-ids, Lane: belfry.Normal, Project: "shop", Limit: 7}})
				if s.ok(err); err != nil || len(claims) == 0 {
					return
				}
				mu.Lock()
				for _, it := range claims[0].Items {
					taken[it.Notification.ID]++
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	for id, n := range taken {
		if n != 1 {
			t.Errorf("%v was claimed %d times", id, n)
		}
	}
	if len(taken) != len(entries) {
		t.Errorf("%d of %d were claimed", len(taken), len(entries))
	}
}
