package pricewatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"belfry"
	"belfry/sandbox"
	"belfry/store"
)

// calm is a world in which nothing goes wrong by itself.
func calm(t *testing.T, watches ...Watch) *world {
	t.Helper()
	w := &world{}
	t.Cleanup(func() {
		if err := w.close(); err != nil {
			t.Error(err)
		}
	})
	if err := w.open(t.Context(), watches, 0, t.Output()); err != nil {
		t.Fatal(err)
	}
	w.shop.trouble = nil
	w.app.enqueued = func(_ Watch, e store.Enqueued) { w.tally.enqueued(e) }
	for to, person := range w.owner {
		channel := "webpush"
		if to == person {
			channel = "webhook"
		}
		if err := w.sandbox.Script(sandbox.Script{Channel: channel, To: to}); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// tick brings prices of items, 0 for sold out.
func (w *world) tick(t *testing.T, date string, prices map[string]Price) {
	t.Helper()
	if err := w.app.Tick(t.Context(), tickOf(date, prices), time.Now()); err != nil {
		t.Fatal(err)
	}
}

func tickOf(date string, prices map[string]Price) Tick {
	tick := Tick{Date: date}
	for item, p := range prices {
		tick.Quotes = append(tick.Quotes, Quote{Item: item, Price: p, SoldOut: p == 0})
	}
	return tick
}

// ends waits until nothing is open.
func (w *world) ends(t *testing.T) []store.Summary {
	t.Helper()
	if err := w.drain(t.Context(), 20*time.Second); err != nil {
		t.Fatal(err)
	}
	list, _, err := w.engine.Notifications(t.Context(), store.Filter{Project: project}, 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// hold lets nothing leave until the returned function is called.
func (w *world) hold(t *testing.T) (release func()) {
	t.Helper()
	p, err := w.engine.PutPause(t.Context(), belfry.Pause{Project: project, Reason: "test"})
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := w.engine.LiftPause(t.Context(), project, p.ID); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTwoDetectorsNeverTellOneFactTwice(t *testing.T) {
	w := calm(t, Watch{"lea", "kettle", 2}, Watch{"ben", "kettle", 2}, Watch{"lea", "tent", 2})
	w.tick(t, "2026-01-01", map[string]Price{"kettle": 40, "tent": 200})
	facts := 0
	for day := range 5 {
		p := Price(39 - day)
		w.shop.Update(tickOf(fmt.Sprintf("2026-01-%02d", day+2), map[string]Price{"kettle": p, "tent": 5 * p}), time.Now())
		facts += 3
		var jobs sync.WaitGroup
		for range 3 { // however often they run, and one beside the other
			jobs.Go(func() { fail(t, w.app.Sweep(t.Context())) })
			jobs.Go(func() { fail(t, w.app.Ledger(t.Context())) })
		}
		jobs.Wait()
	}
	ends := w.ends(t)
	if len(ends) != facts || len(w.tally.acknowledged) != facts || w.tally.duplicates != 3*facts {
		t.Errorf("%d facts: %d notifications, %d acknowledged, %d duplicates", facts, len(ends), len(w.tally.acknowledged), w.tally.duplicates)
	}
	told := map[string]int{}
	for _, e := range w.sandbox.Log() {
		var body struct{ Data Drop }
		if err := json.Unmarshal(e.Body, &body); err != nil {
			t.Fatal(err)
		}
		told[strings.Join([]string{e.To, body.Data.Item, body.Data.Was.String()}, " ")]++
	}
	for what, n := range told {
		if n != 1 {
			t.Errorf("%s was told %d times", what, n)
		}
	}
	if len(told) == 0 {
		t.Error("nothing was told")
	}
}

func fail(t *testing.T, err error) {
	if err != nil {
		t.Error(err)
	}
}

func TestAPriceThatCameBackIsNotTold(t *testing.T) {
	for _, c := range []struct {
		name string
		then Price
		end  belfry.State
		why  belfry.Reason
		text string
	}{
		{"back", 40, belfry.Dropped, belfry.ReasonConditionLost, ""},
		{"a little dearer, but cheaper than asked for", 36, belfry.Sent, "", "kettle is down to 36.00"},
		{"cheaper still", 34, belfry.Sent, "", "kettle is down to 34.00"},
		{"sold out", 0, belfry.Dropped, "out_of_stock", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := calm(t, Watch{"ben", "kettle", 5})
			w.tick(t, "2026-01-01", map[string]Price{"kettle": 30}) // so that no price is the lowest
			w.tick(t, "2026-01-02", map[string]Price{"kettle": 40})
			release := w.hold(t)
			w.tick(t, "2026-01-03", map[string]Price{"kettle": 35})
			w.shop.Update(tickOf("2026-01-04", map[string]Price{"kettle": c.then}), time.Now())
			release()
			ends := w.ends(t)
			if len(ends) != 1 || ends[0].State != c.end || ends[0].Reason != c.why {
				t.Fatalf("%+v", ends)
			}
			log := w.sandbox.Log()
			if c.text == "" {
				if len(log) != 0 {
					t.Errorf("told all the same: %s", log[0].Body)
				}
				return
			}
			if len(log) != 2 { // ben has a browser and a webhook
				t.Fatalf("%d messages", len(log))
			}
			for _, e := range log {
				var body struct{ Title, Body string }
				if err := json.Unmarshal(e.Body, &body); err != nil || body.Title != c.text || body.Body != "It was 40.00. This is the price of 2026-01-04." {
					t.Errorf("%s", e.Body)
				}
			}
		})
	}
}

func TestALookUpThatFailsIsAskedAgain(t *testing.T) {
	w := calm(t, Watch{"ben", "kettle", 5})
	failures := 0
	w.shop.mu.Lock()
	w.shop.trouble = func() error {
		if failures++; failures < 3 {
			return errors.New("no answer")
		}
		return nil
	}
	w.shop.mu.Unlock()
	w.tick(t, "2026-01-01", map[string]Price{"kettle": 40})
	w.tick(t, "2026-01-02", map[string]Price{"kettle": 35})
	if ends := w.ends(t); len(ends) != 1 || ends[0].State != belfry.Sent || failures < 3 {
		t.Errorf("%d failures, %+v", failures, ends)
	}
}

func TestTheLedgerHasADropAndItsNotificationsOrNeither(t *testing.T) {
	w := calm(t, Watch{"lea", "kettle", 5}, Watch{"a stranger", "kettle", 5})
	w.shop.Update(tickOf("2026-01-01", map[string]Price{"kettle": 40}), time.Now())
	w.shop.Update(tickOf("2026-01-02", map[string]Price{"kettle": 35}), time.Now())
	if err := w.app.Ledger(t.Context()); belfry.CodeOf(err) != belfry.CodeUnknownRecipient {
		t.Fatalf("%v", err)
	}
	if n := w.ledger(t); n != 0 || len(w.ends(t)) != 0 {
		t.Errorf("%d drops, %d notifications", n, len(w.ends(t)))
	}
	if err := join(t.Context(), w.engine, Person{"a stranger", "Asia/Tokyo"}); err != nil {
		t.Fatal(err)
	}
	if err := w.app.Ledger(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := w.ledger(t); n != 1 || len(w.ends(t)) != 2 {
		t.Errorf("%d drops, %d notifications", n, len(w.ends(t)))
	}
}

func (w *world) ledger(t *testing.T) (n int) {
	t.Helper()
	if err := w.app.db.QueryRowContext(t.Context(), `SELECT count(*) FROM pricewatch_drop`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestAFurtherLowWaitsForTheCooldown(t *testing.T) {
	w := calm(t, Watch{"lea", "kettle", 1})
	for _, c := range categories(time.Hour) {
		if err := w.engine.PutCategory(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	w.tick(t, "2026-01-01", map[string]Price{"kettle": 40})
	for day, want := range []belfry.Reason{"", belfry.ReasonCooldown} {
		w.tick(t, fmt.Sprintf("2026-01-%02d", day+2), map[string]Price{"kettle": Price(35 - day)})
		if ends := w.ends(t); ends[0].Category != PriceLow || ends[0].Reason != want {
			t.Errorf("%+v", ends[0])
		}
	}
}

func TestPeopleKnowWhatTheyWatch(t *testing.T) {
	watches := choose([]string{"a", "b"}, dice(0))
	for _, p := range people {
		if n := len(slices.DeleteFunc(slices.Clone(watches), func(w Watch) bool { return w.Person != p.ID })); n != 2 {
			t.Errorf("%s watches %d of 2 items", p.ID, n)
		}
		if _, err := time.LoadLocation(p.Zone); err != nil {
			t.Error(err)
		}
	}
	if w := (Watch{Percent: 10}); w.cheaper(100) != 90 || w.cheaper(-100) != -110 || w.cheaper(0) != 0 {
		t.Errorf("%v %v %v", w.cheaper(100), w.cheaper(-100), w.cheaper(0))
	}
}

func TestWhatMeetsABusyStoreIsDoneAgain(t *testing.T) {
	n := 0
	err := patiently(t.Context(), func() error {
		if n++; n < 3 {
			return fmt.Errorf("enqueue: %w", belfry.Errorf(belfry.CodeBusy, "busy"))
		}
		return errors.New("full")
	})
	if n != 3 || err.Error() != "full" {
		t.Errorf("%d, %v", n, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := patiently(ctx, func() error { return belfry.Errorf(belfry.CodeBusy, "busy") }); belfry.CodeOf(err) != belfry.CodeBusy {
		t.Error(err)
	}
}
