package storetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"belfry"
	"belfry/store"
)

const racers = 8

// together runs n goroutines at once, each with its number. Each comes a random moment late, since the
// scheduler has an order of its own.
func together(n int, run func(i int)) {
	var all sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		all.Go(func() {
			<-start
			time.Sleep(rand.N(300 * time.Microsecond))
			run(i)
		})
	}
	close(start)
	all.Wait()
}

// goes tells a goroutine that is not the test's that something is wrong.
func (w *worker) goes(wrong error) bool {
	if wrong != nil {
		w.Errorf("unexpected error: %v", wrong)
	}
	return wrong == nil
}

var races = cases{
	{"SameKeyAtOnceIsOneNotification", func(w *worker) {
		for round := range much(5, 50) {
			key := fmt.Sprint("k", round)
			var entries [racers]store.Entry
			for i := range entries {
				entries[i] = w.entry(keyed(key, "body"))
			}
			var got [racers]store.Enqueued
			together(racers, func(i int) {
				if out, err := w.Enqueue(w.ctx, entries[i:i+1], true); w.goes(err) && w.goes(out[0].Err) {
					got[i] = out[0]
				}
			})
			fresh := 0
			for _, g := range got {
				w.is(g.ID == got[0].ID, "one key led to %v and %v", got[0].ID, g.ID)
				if !g.Replayed {
					fresh++
				}
			}
			w.is(fresh == 1, "%d of %d were answered as the first", fresh, racers)
			w.count(round + 1)
		}
	}},
	{"SameFactAtOnceIsOneNotification", func(w *worker) {
		fact := once(belfry.Once{Per: belfry.Ever})
		var entries [racers]store.Entry
		for i := range entries {
			entries[i] = w.entry(fact)
		}
		together(racers, func(i int) {
			if out, err := w.Enqueue(w.ctx, entries[i:i+1], true); w.goes(err) {
				w.goes(out[0].Err)
			}
		})
		w.count(1)
		list, _, err := w.Notifications(w.ctx, store.Filter{Project: shop}, 0, 10)
		w.ok(err)
		w.is(w.story(list[0].ID).Duplicates == racers-1, "counted %d duplicates, want %d", w.story(list[0].ID).Duplicates, racers-1)
	}},
	{"ARefusalDoesNotFailItsNeighbours", func(w *worker) {
		for range much(5, 50) {
			var entries [racers]store.Entry
			for i := range entries {
				entries[i] = w.entry(to([]string{ann, "nobody"}[i%2]))
			}
			together(racers, func(i int) {
				if out, err := w.Enqueue(w.ctx, entries[i:i+1], true); w.goes(err) {
					w.is((out[0].Err == nil) == (i%2 == 0), "entry %d: %v", i, out[0].Err)
				}
			})
		}
		w.count(much(5, 50) * racers / 2)
	}},
	{"NoItemIsClaimedTwice", func(w *worker) {
		items := much(200, 2000)
		var entries []store.Entry
		for range items {
			entries = append(entries, w.entry())
		}
		w.enqueue(entries...)
		var mu sync.Mutex
		taken := map[belfry.ID]int{}
		together(racers, func(int) {
			for {
				claims, err := w.Claim(w.ctx, w.now, w.lease(), []store.Take{{Claim: w.id(), Lane: belfry.Normal, Project: shop, Limit: 7}})
				if !w.goes(err) || len(claims) == 0 {
					return
				}
				mu.Lock()
				for _, id := range held(claims[0]) {
					taken[id]++
				}
				mu.Unlock()
			}
		})
		w.is(len(taken) == items, "%d of %d were claimed", len(taken), items)
		for id, n := range taken {
			w.is(n == 1, "%v was claimed %d times", id, n)
		}
	}},
	{"NoDeliveryTwiceAndNoneLost", func(w *worker) {
		items := much(100, 600)
		w.category(news, func(c *belfry.Category) { c.Channels = []string{"email"} })
		var entries []store.Entry
		for i := range items {
			who := fmt.Sprint("r", i%20)
			if i < 20 {
				w.recipient(who)
				w.endpoint(who, "email", who+"@example.com")
			}
			entries = append(entries, w.entry(to(who), about(fmt.Sprint(i)), queued("email")))
		}
		var mu sync.Mutex
		accepted := map[belfry.DeliveryID]int{}
		left := entries
		together(racers, func(i int) {
			for {
				mu.Lock()
				batch := left[:min(10, len(left))]
				left = left[len(batch):]
				mu.Unlock()
				if len(batch) > 0 {
					_, err := w.Enqueue(w.ctx, batch, true)
					w.goes(err)
				}
				done, armed := w.raceOnce("email", i)
				mu.Lock()
				for _, id := range armed {
					accepted[id]++
				}
				mu.Unlock()
				if done && len(batch) == 0 {
					return
				}
			}
		})
		for calls := 0; calls < 100; calls++ { // what was still waiting when its racer looked
			done, armed := w.raceOnce("email", 0)
			for _, id := range armed {
				accepted[id]++
			}
			if done {
				break
			}
		}
		for _, e := range entries {
			s := w.story(e.Notification.ID)
			w.is(s.State == belfry.Sent, "%v is %s\n%s", e.Notification.ID, s.State, tale(s))
			w.is(accepted[belfry.DeliveryID{Notification: e.Notification.ID, N: 1}] == 1, "%v was accepted %d times", e.Notification.ID, accepted[belfry.DeliveryID{Notification: e.Notification.ID, N: 1}])
		}
		stats, err := w.Stats(w.ctx, shop)
		w.ok(err)
		w.same(stats, store.Stats{Ended: []store.EndedCount{{Project: shop, State: belfry.Sent, Count: items}}}, "stats")
	}},
	{"NoArmAfterAnOptOut", func(w *worker) {
		w.category(news, func(c *belfry.Category) { c.Channels = []string{"email"} })
		w.endpoint(ann, "email", "a@example.com")
		for range much(20, 300) {
			w.switchTo(ann, news, "email", true)
			var entries []store.Entry
			for i := range 6 {
				entries = append(entries, w.entry(about(fmt.Sprint(i))))
			}
			w.enqueue(entries...)
			var arms []store.Arm
			for {
				c, ok := w.claimAs(shop, "", belfry.Normal, 2)
				if !ok {
					break
				}
				arms = append(arms, w.prepare(c))
			}
			var withdrawn store.Withdrawn
			var mu sync.Mutex
			var armed []belfry.DeliveryID
			together(len(arms)+1, func(i int) {
				if i == len(arms) {
					off := false
					out, err := w.ChangePreferences(w.ctx, w.now, shop, ann, []belfry.PreferenceChange{{Category: news, Channel: "*", On: &off}, {Category: news, Channel: "email", On: &off}}, false)
					w.goes(err)
					withdrawn = out
					return
				}
				out, err := w.Arm(w.ctx, arms[i])
				w.goes(err)
				mu.Lock()
				defer mu.Unlock()
				for _, t := range out {
					if t.Delivery.Armed {
						armed = append(armed, t.Delivery.ID)
					}
				}
			})
			for _, id := range armed {
				w.is(slices.Contains(withdrawn.InFlight, id), "%v was armed, and the opt-out did not say that it is in flight: it was armed after the opt-out", id)
			}
			w.is(len(withdrawn.InFlight) == len(armed), "%d in flight by the opt-out, %d were armed", len(withdrawn.InFlight), len(armed))
			for i, a := range arms {
				for _, item := range a.Claim.Items {
					w.raceSettle(arms[i].Claim.ID, item, belfry.OutcomeAccepted)
				}
			}
		}
	}},
	{"NoArmAfterACancel", func(w *worker) {
		w.endpoint(ann, "email", "a@example.com")
		for round := range much(20, 200) {
			id := w.tell(about(fmt.Sprint(round)))
			a := w.prepare(w.claim(""))
			var stopped store.Cancelled
			var armed bool
			together(2, func(i int) {
				var err error
				if i == 0 {
					stopped, err = w.Cancel(w.ctx, w.now, store.Filter{Project: shop, ID: id}, false, 1)
					w.goes(err)
					return
				}
				out, err := w.Arm(w.ctx, a)
				if err != nil && !errors.Is(err, store.ErrGone) {
					w.goes(err)
				}
				armed = len(out) > 0 && out[0].Delivery.Armed
			})
			w.is(armed == (len(stopped.InFlight) == 1), "armed %v, and the cancel says %+v", armed, stopped)
			if armed {
				w.raceSettle(a.Claim.ID, a.Claim.Items[0], belfry.OutcomeNotSent)
			}
			w.stands(id, belfry.Cancelled, belfry.ReasonByCaller)
		}
	}},
	{"ALostClaimIsTakenOverOnce", func(w *worker) {
		w.endpoint(ann, "email", "a@example.com")
		var ids []belfry.ID
		for i := range much(20, 100) {
			ids = append(ids, w.tell(about(fmt.Sprint(i))))
			w.send("")
		}
		w.after(leaseTime + time.Second)
		var mu sync.Mutex
		total := store.Repaired{}
		together(racers, func(int) {
			done, err := w.Repair(w.ctx, w.now, func(string, string) belfry.RetryPolicy { return policy }, 1000)
			w.goes(err)
			mu.Lock()
			defer mu.Unlock()
			total.Claims, total.Ambiguous = total.Claims+done.Claims, total.Ambiguous+done.Ambiguous
		})
		w.same(total, store.Repaired{Claims: len(ids), Ambiguous: len(ids)}, "taken over by all")
	}},
	{"SettleOrRepairButNotBoth", func(w *worker) {
		w.endpoint(ann, "email", "a@example.com")
		w.category(news, func(c *belfry.Category) { c.Delivery = belfry.AtMostOnce })
		for round := range much(20, 200) {
			id := w.tell(about(fmt.Sprint(round)))
			t := w.sendOne("")
			s := w.settlement(t, belfry.OutcomeRefused)
			later := w.now.Add(leaseTime + time.Second)
			var settled store.Settled
			var done store.Repaired
			together(2, func(i int) {
				var err error
				if i == 0 {
					var out []store.Settled
					if out, err = w.Settle(w.ctx, []store.Settlement{s}); w.goes(err) {
						settled = out[0]
					}
					return
				}
				done, err = w.Repair(w.ctx, later, func(string, string) belfry.RetryPolicy { return policy }, 10)
				w.goes(err)
			})
			w.is(settled.Late == (done.Claims == 1), "late %v, and %d claims were taken over", settled.Late, done.Claims)
			w.is(settled.Summary == belfry.Failed, "summary %q", settled.Summary)
			w.stands(id, belfry.Failed, belfry.ReasonRefused)
		}
	}},
	{"OneTokenHasOneOwner", func(w *worker) {
		for i := range racers {
			w.recipient(fmt.Sprint("r", i))
		}
		for round := range much(5, 50) {
			together(racers, func(i int) {
				_, err := w.Register(w.ctx, w.now, shop, w.id(), belfry.Registration{Recipient: fmt.Sprint("r", i), Channel: "webpush", Address: belfry.Secret(fmt.Sprint("token", round)), Device: "phone"})
				w.goes(err)
			})
			owners := 0
			for i := range racers {
				list, err := w.Endpoints(w.ctx, shop, fmt.Sprint("r", i))
				w.ok(err)
				for _, e := range list {
					if e.Active() {
						owners++
					}
				}
			}
			w.is(owners == 1, "a token of one phone has %d owners", owners)
		}
	}},
}

// raceOnce claims, arms and settles what is due in a queue; every third racer has no room for what it plans.
// It says whether nothing was due, and what was accepted.
func (w *worker) raceOnce(queue string, racer int) (done bool, accepted []belfry.DeliveryID) {
	claims, err := w.Claim(w.ctx, w.now, w.lease(), []store.Take{{Claim: w.id(), Queue: queue, Lane: belfry.Normal, Project: shop, Limit: 5}})
	if !w.goes(err) || len(claims) == 0 {
		return true, nil
	}
	c := claims[0]
	facts, err := w.Facts(w.ctx, c.Items)
	if !w.goes(err) {
		return true, nil
	}
	a := store.Arm{Claim: c, Owner: w.lease(), Now: w.now, Known: w.known}
	for i, item := range c.Items {
		var s store.Step
		if item.Delivery != nil {
			s.Tries = []store.Try{{Delivery: *item.Delivery, Payload: payload, Send: true}}
		} else {
			p := belfry.Plan(item.Notification, facts[i], item.Wait.Stage, item.Wait.From, w.known, w.now)
			for j, d := range p.Deliveries {
				s.Tries = append(s.Tries, store.Try{Delivery: d, Payload: payload, Send: (racer+j)%3 != 0})
			}
			s.Stage = p.Stage
		}
		a.Steps = append(a.Steps, s)
	}
	armed, err := w.Arm(w.ctx, a)
	if !w.goes(err) {
		return true, nil
	}
	var settlements []store.Settlement
	for _, t := range armed {
		if t.Delivery.Armed {
			accepted = append(accepted, t.Delivery.ID)
			settlements = append(settlements, w.settlement(wire{c.ID, t, c.Items[t.Step]}, belfry.OutcomeAccepted))
		}
	}
	if len(settlements) > 0 {
		out, err := w.Settle(w.ctx, settlements)
		if w.goes(err) {
			for _, s := range out {
				w.is(!s.Late && s.Delivery.State == belfry.Sent, "settled as %+v", s)
			}
		}
	}
	return false, accepted
}

// raceSettle settles the delivery of an item if it is on the wire.
func (w *worker) raceSettle(claim belfry.ID, item store.Item, outcome belfry.Outcome) {
	w.Helper()
	for _, d := range w.story(item.Notification.ID).Deliveries {
		if d.Armed {
			w.settle(wire{claim, store.Armed{Delivery: d.Delivery, Endpoint: d.Endpoint}, item}, outcome)
		}
	}
}
