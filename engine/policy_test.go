package engine_test

import (
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"belfry"
	"belfry/engine"
	"belfry/store"
	"belfry/store/sqlite"
)

func TestConsentDecidesWhereNothingWasSaid(t *testing.T) {
	virtual(t, func(t *testing.T) {
		c := &script{name: "email"}
		w := newWorld(t, engine.Options{}, c)
		w.recipient("silent", "email")
		w.recipient("yes", "email")
		w.recipient("no", "email")
		for who, is := range map[string]bool{"yes": true, "no": false} {
			must[store.Withdrawn](t)(w.ChangePreferences(t.Context(), "default", who, []belfry.PreferenceChange{{Category: "*", Channel: "*", On: on(is)}}, false))
		}
		for consent, reach := range map[belfry.Consent][]string{
			belfry.OptOut: {"silent", "yes"}, belfry.OptIn: {"yes"}, belfry.Always: {"silent", "yes", "no"},
		} {
			w.category(belfry.Category{Name: string(consent), Consent: consent})
			for _, who := range []string{"silent", "yes", "no"} {
				id := w.enqueue(belfry.Request{Recipient: who, Category: string(consent)})
				synctest.Wait()
				if slices.Contains(reach, who) {
					w.is(id, belfry.Sent, "")
				} else {
					w.is(id, belfry.Dropped, belfry.ReasonOptedOut)
				}
			}
		}
	})
}

func TestAnOptOutOfOneChannelLeavesTheOthers(t *testing.T) {
	virtual(t, func(t *testing.T) {
		mail, push := &script{name: "email"}, &script{name: "webpush"}
		w := newWorld(t, engine.Options{}, mail, push)
		w.recipient("u1", "email", "webpush")
		must[store.Withdrawn](t)(w.ChangePreferences(t.Context(), "default", "u1", []belfry.PreferenceChange{{Category: "default", Channel: "push", On: on(false)}}, false))
		id := w.enqueue(belfry.Request{Recipient: "u1"})
		synctest.Wait()
		if w.is(id, belfry.Sent, ""); mail.count() != 1 || push.count() != 0 {
			t.Errorf("email %d, push %d", mail.count(), push.count())
		}
	})
}

func TestASuppressedAddressIsNotUsedUntilItIsFree(t *testing.T) {
	virtual(t, func(t *testing.T) {
		c := &script{name: "email"}
		w := newWorld(t, engine.Options{}, c)
		w.category(belfry.Category{Name: "must", Consent: belfry.Always})
		w.recipient("u1", "email")
		must[store.Withdrawn](t)(w.Suppress(t.Context(), belfry.Suppression{Project: "default", Channel: "email", Address: "address-of-u1-email"}))
		id := w.enqueue(belfry.Request{Recipient: "u1", Category: "must"})
		synctest.Wait()
		w.is(id, belfry.Dropped, belfry.ReasonSuppressed)
		to := w.enqueue(belfry.Request{Recipient: "u1", Category: "must", Options: belfry.Options{To: []belfry.Target{{Channel: "email", Address: "address-of-u1-email"}}}})
		synctest.Wait()
		w.is(to, belfry.Dropped, belfry.ReasonSuppressed)
		w.check(w.Unsuppress(t.Context(), "default", "email", "address-of-u1-email"))
		id = w.enqueue(belfry.Request{Recipient: "u1", Category: "must"})
		synctest.Wait()
		if w.is(id, belfry.Sent, ""); c.count() != 1 {
			t.Errorf("sent %d", c.count())
		}
	})
}

func TestNamedDestinationsAreFrozenAndNoOthersAreUsed(t *testing.T) {
	virtual(t, func(t *testing.T) {
		c := &script{name: "email"}
		w := newWorld(t, engine.Options{}, c)
		w.recipient("u1", "email")
		id := w.enqueue(belfry.Request{Recipient: "u1", At: time.Now().Add(time.Hour), Options: belfry.Options{To: []belfry.Target{{Channel: "email", Address: "old@example.com"}}}})
		stranger := w.enqueue(belfry.Request{Recipient: "invited", Options: belfry.Options{To: []belfry.Target{{Channel: "email", Address: "new@example.com"}}}})
		w.register("u1", "email", "newer@example.com")
		pass(2 * time.Hour)
		w.is(id, belfry.Sent, "")
		w.is(stranger, belfry.Sent, "")
		sent, _ := c.list()
		if len(sent) != 2 || sent[0].Endpoint.Address != "new@example.com" || sent[1].Endpoint.Address != "old@example.com" {
			t.Errorf("sent %+v", sent)
		}
	})
}

func TestRouteFirstGoesOnOnlyWhenNobodyWasReached(t *testing.T) {
	for name, c := range map[string]struct {
		push           []error
		mails          int
		state          belfry.State
		has            []string
		unknownAtFirst bool
	}{
		"accepted":    {nil, 0, belfry.Sent, []string{"webpush", "email"}, false},
		"gone":        {[]error{belfry.Gone(410, "")}, 1, belfry.Sent, []string{"webpush", "email"}, false},
		"refused":     {[]error{belfry.Refused(400, "")}, 1, belfry.Sent, []string{"webpush", "email"}, false},
		"no endpoint": {nil, 1, belfry.Sent, []string{"email"}, false},
		"doubtful":    {[]error{errCut, errCut}, 0, belfry.Unknown, []string{"webpush", "email"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				push, mail := &script{name: "webpush", answers: c.push}, &script{name: "email"}
				w := newWorld(t, engine.Options{}, push, mail)
				mode := belfry.Mode("")
				if c.unknownAtFirst {
					mode = belfry.AtMostOnce
				}
				w.category(belfry.Category{Name: "alert", Route: belfry.RouteFirst, Channels: []string{"push", "email"}, Delivery: mode})
				w.recipient("u1", c.has...)
				id := w.enqueue(belfry.Request{Recipient: "u1", Category: "alert"})
				synctest.Wait()
				if st := w.story(id); st.State != c.state || mail.count() != c.mails {
					t.Errorf("%s(%s), %d mails", st.State, st.Reason, mail.count())
				}
			})
		})
	}
}

func TestAPauseHoldsUntilItIsLiftedOrEndsAndWhatWaitsIsMissedByItsOwnDeadline(t *testing.T) {
	virtual(t, func(t *testing.T) {
		c := &script{name: "webhook"}
		w := newWorld(t, engine.Options{}, c)
		w.category(belfry.Category{Name: "news"})
		w.recipient("u1", "webhook")
		p := must[belfry.Pause](t)(w.PutPause(t.Context(), belfry.Pause{Project: "default", Category: "news", Reason: "review"}))
		held := w.enqueue(belfry.Request{Recipient: "u1", Category: "news", ExpiresIn: belfry.Duration(3 * time.Hour)})
		short := w.enqueue(belfry.Request{Recipient: "u1", Category: "news", ExpiresIn: belfry.Duration(time.Hour)})
		other := w.enqueue(belfry.Request{Recipient: "u1"})
		pass(2 * time.Hour)
		synctest.Wait()
		w.is(other, belfry.Sent, "")
		w.is(short, belfry.Missed, belfry.ReasonPaused)
		if st := w.story(held); st.State != belfry.Scheduled || len(st.Events) == 0 || st.Events[0].Kind != store.EventHeld {
			t.Errorf("%+v", st)
		}
		w.check(w.LiftPause(t.Context(), "default", p.ID))
		synctest.Wait()
		w.is(held, belfry.Sent, "")

		until := time.Now().Add(30 * time.Minute)
		must[belfry.Pause](t)(w.PutPause(t.Context(), belfry.Pause{Reason: "everything", Until: until}))
		held = w.enqueue(belfry.Request{Recipient: "u1"})
		pass(time.Hour)
		w.is(held, belfry.Sent, "")
		if _, at := c.list(); at[len(at)-1].Before(until) || at[len(at)-1].Sub(until) > time.Microsecond {
			t.Errorf("the pause ended at %v, it was sent at %v", until, at[len(at)-1])
		}
	})
}

func TestAPauseHoldsRetriesTooAndResumingRepeatsNothing(t *testing.T) {
	virtual(t, func(t *testing.T) {
		c := &script{name: "webhook"}
		var flip atomic.Int64
		c.do = func(ctx, armed) (string, error) {
			if flip.Add(1)%2 == 1 {
				return "", belfry.NotSent(503, 0, "")
			}
			return "", nil
		}
		w := newWorld(t, engine.Options{}, c)
		w.category(belfry.Category{Name: "alert", Retry: steady})
		w.recipient("u1", "webhook")
		var ids []belfry.ID
		for range 20 {
			ids = append(ids, w.enqueue(belfry.Request{Recipient: "u1", Category: "alert"}))
		}
		for range 20 {
			p := must[belfry.Pause](t)(w.PutPause(t.Context(), belfry.Pause{Project: "default", Channel: "webhook", Reason: "stop"}))
			synctest.Wait()
			n := c.count()
			pass(90 * time.Second)
			if c.count() != n {
				t.Fatalf("%d were sent in a pause", c.count()-n)
			}
			w.check(w.LiftPause(t.Context(), "default", p.ID))
			pass(time.Second)
		}
		pass(time.Hour)
		accepted := 0
		for _, id := range ids {
			st := w.is(id, belfry.Sent, "")
			for _, a := range st.Deliveries[0].Attempts {
				if a.Outcome == belfry.OutcomeAccepted {
					accepted++
				}
			}
		}
		if accepted != 20 {
			t.Errorf("%d acceptances of 20", accepted)
		}
	})
}

func TestACooldownDropsWhatFollowsASendAndOnlyASendMovesTheMark(t *testing.T) {
	virtual(t, func(t *testing.T) {
		c := &script{name: "webhook", answers: []error{belfry.Refused(400, "")}}
		w := newWorld(t, engine.Options{}, c)
		w.category(belfry.Category{Name: "price", Cooldown: belfry.Duration(time.Hour)})
		w.recipient("u1", "webhook")
		tell := func(subject string) belfry.ID {
			id := w.enqueue(belfry.Request{Recipient: "u1", Category: "price", Subject: subject})
			synctest.Wait()
			return id
		}
		w.is(tell("kettle"), belfry.Failed, belfry.ReasonRefused)
		w.is(tell("kettle"), belfry.Sent, "")
		w.is(tell("kettle"), belfry.Dropped, belfry.ReasonCooldown)
		w.is(tell("toaster"), belfry.Sent, "")
		pass(time.Hour - time.Second)
		w.is(tell("kettle"), belfry.Dropped, belfry.ReasonCooldown)
		pass(time.Second)
		w.is(tell("kettle"), belfry.Sent, "")
	})
}

func TestInACooldownOneIsInFlightAndTheNextIsJudgedWhenItHasEnded(t *testing.T) {
	for name, c := range map[string]struct {
		answer error
		state  belfry.State
		reason belfry.Reason
	}{
		"sent":    {nil, belfry.Dropped, belfry.ReasonCooldown},
		"refused": {belfry.Refused(400, ""), belfry.Sent, ""},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				first := true
				s := &script{name: "webhook"}
				s.do = func(ctx, armed) (string, error) {
					if !first {
						return "", nil
					}
					first = false
					pass(5 * time.Second)
					return "", c.answer
				}
				w := newWorld(t, engine.Options{Poll: 1000 * time.Hour}, s)
				w.category(belfry.Category{Name: "price", Cooldown: belfry.Duration(time.Hour)})
				w.recipient("u1", "webhook")
				w.enqueue(belfry.Request{Recipient: "u1", Category: "price", Subject: "kettle"})
				synctest.Wait() // it is on the wire: of two claims at once, either may be the first to arm
				second := w.enqueue(belfry.Request{Recipient: "u1", Category: "price", Subject: "kettle"})
				synctest.Wait()
				if w.story(second).State.Ended() || s.count() != 1 {
					t.Fatalf("%d in flight", s.count())
				}
				pass(5 * time.Second)
				synctest.Wait()
				w.is(second, c.state, c.reason)
			})
		})
	}
}

// A notification never sees its own mark: its other deliveries, and its retries, go on.
func TestACooldownDoesNotStopTheOtherDevicesOfTheSameNotification(t *testing.T) {
	virtual(t, func(t *testing.T) {
		c := &script{name: "webhook", answers: []error{nil, belfry.NotSent(503, 0, "")}}
		w := newWorld(t, engine.Options{}, c)
		w.category(belfry.Category{Name: "price", Cooldown: belfry.Duration(time.Hour)})
		w.recipient("u1", "webhook")
		w.register("u1", "webhook", "another")
		id := w.enqueue(belfry.Request{Recipient: "u1", Category: "price"})
		pass(10 * time.Minute)
		st := w.is(id, belfry.Sent, "")
		for _, d := range st.Deliveries {
			if d.State != belfry.Sent {
				t.Errorf("%+v", d)
			}
		}
	})
}

func TestWhatWaitsBehindAnotherGoesAtOnceWhenThatIsCancelled(t *testing.T) {
	for name, end := range map[string]func(w *world, first belfry.ID){
		"cancelled": func(w *world, first belfry.ID) {
			must[store.Cancelled](w.t)(w.Cancel(w.t.Context(), store.Filter{Project: "default", ID: first}, false))
		},
		"withdrawn": func(w *world, _ belfry.ID) {
			must[store.Withdrawn](w.t)(w.Suppress(w.t.Context(), belfry.Suppression{Project: "default", Channel: "webhook", Address: "first"}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				c := &script{name: "webhook"}
				c.do = func(_ ctx, a armed) (string, error) {
					if a.Endpoint.Address == "first" {
						return "", belfry.NotSent(503, time.Hour, "")
					}
					return "", nil
				}
				w := newWorld(t, engine.Options{Poll: 1000 * time.Hour}, c)
				w.category(belfry.Category{Name: "price", Cooldown: belfry.Duration(time.Hour)})
				w.recipient("u1")
				to := func(address string) belfry.Request {
					return belfry.Request{Recipient: "u1", Category: "price", Subject: "kettle", Options: belfry.Options{To: []belfry.Target{{Channel: "webhook", Address: belfry.Secret(address)}}}}
				}
				first := w.enqueue(to("first"))
				synctest.Wait()
				second := w.enqueue(to("second"))
				pass(time.Minute)
				w.is(second, belfry.Scheduled, "")
				end(w, first)
				pass(time.Second)
				w.is(second, belfry.Sent, "")
			})
		})
	}
}

func TestACategoryThatDisappearedDropsWhatIsDue(t *testing.T) {
	virtual(t, func(t *testing.T) {
		c := &script{name: "webhook"}
		w := newWorld(t, engine.Options{}, c)
		w.category(belfry.Category{Name: "news"})
		w.recipient("u1", "webhook")
		id := w.enqueue(belfry.Request{Recipient: "u1", Category: "news", At: time.Now().Add(time.Hour)})
		w.check(w.DeleteCategory(t.Context(), "default", "news"))
		pass(2 * time.Hour)
		w.is(id, belfry.Dropped, belfry.ReasonCategoryGone)
		if _, err := w.ask(belfry.Request{Recipient: "u1", Category: "news"}); belfry.CodeOf(err) != belfry.CodeUnknownCategory {
			t.Errorf("enqueued in it: %v", err)
		}
	})
}

func TestNobodyToTellIsADrop(t *testing.T) {
	virtual(t, func(t *testing.T) {
		w := newWorld(t, engine.Options{}, &script{name: "webhook"})
		w.recipient("u1")
		id := w.enqueue(belfry.Request{Recipient: "u1"})
		synctest.Wait()
		w.is(id, belfry.Dropped, belfry.ReasonNoEndpoint)
	})
}

// An engine without a channel ends nothing that another engine, or this one tomorrow, may send.
func TestWhatNeedsAChannelThatThisEngineLacksWaits(t *testing.T) {
	virtual(t, func(t *testing.T) {
		dir := t.TempDir()
		st := openStore(t, dir, sqlite.Options{})
		mail := &script{name: "email", answers: []error{belfry.NotSent(503, 0, "")}}
		w := newWorldOn(t, st, engine.Options{}, mail, &script{name: "webhook"})
		w.category(belfry.Category{Name: "urgent", Lane: belfry.Urgent, Channels: []string{"email"}})
		w.category(belfry.Category{Name: "normal", Channels: []string{"email"}})
		w.recipient("u1", "email")
		retries := w.enqueue(belfry.Request{Recipient: "u1", Category: "normal"})
		synctest.Wait()
		var planned []belfry.ID
		for _, c := range []string{"urgent", "normal"} {
			planned = append(planned, w.enqueue(belfry.Request{Recipient: "u1", Category: c, At: time.Now().Add(time.Minute), ExpiresIn: belfry.Duration(3 * time.Hour)}))
		}
		late := w.enqueue(belfry.Request{Recipient: "u1", Category: "normal", At: time.Now().Add(time.Minute), ExpiresIn: belfry.Duration(10 * time.Minute)})
		w.stop()

		w.start(engine.Options{}, &script{name: "webhook"})
		pass(20 * time.Minute)
		for _, id := range append(planned, retries) {
			if w.story(id).State.Ended() {
				t.Errorf("it was ended: %+v", w.story(id))
			}
		}
		w.is(late, belfry.Missed, belfry.ReasonChannelGone)
		w.stop()

		w.start(engine.Options{}, mail, &script{name: "webhook"})
		pass(2 * time.Minute)
		for _, id := range append(planned, retries) {
			w.is(id, belfry.Sent, "")
		}
		w.stop()
		w.check(st.Close())
	})
}

func TestContentThatCannotBeMadeFailsAloneAndAtOnce(t *testing.T) {
	poison := func(m channelMessage) ([]byte, error) {
		switch m.Subject {
		case "panics":
			panic("no such glyph")
		case "refuses":
			return nil, errors.New("too long for this channel")
		}
		return []byte(m.Subject), nil
	}
	virtual(t, func(t *testing.T) {
		c := &script{name: "webhook", encode: poison}
		w := newWorld(t, engine.Options{}, c)
		w.category(belfry.Category{Name: "linked", Templates: belfry.Templates{"link": "{{.url}}"}})
		w.recipient("u1", "webhook")
		batch := []store.Request{}
		for i := range 60 {
			r := belfry.Request{Project: "default", Recipient: "u1", Category: "linked", Subject: "fine", Data: []byte(`{"url":"https://example.com"}`)}
			switch i {
			case 10:
				r.Subject = "panics"
			case 20:
				r.Subject = "refuses"
			case 30:
				r.Subject, r.Data = "template", []byte(`{"url":"not one"}`)
			}
			batch = append(batch, store.Request{Request: r})
		}
		out := must[[]store.Enqueued](t)(w.Enqueue(t.Context(), batch, true))
		synctest.Wait()
		for i, o := range out {
			if i == 10 || i == 20 || i == 30 {
				if st := w.is(o.ID, belfry.Failed, belfry.ReasonBadContent); len(st.Events) == 0 || st.Events[0].Detail == "" {
					t.Errorf("it does not say what is wrong: %+v", st)
				}
			} else {
				w.is(o.ID, belfry.Sent, "")
			}
		}
		if c.count() != 57 {
			t.Errorf("sent %d", c.count())
		}
	})
}

func TestAChannelThatPanicsLeavesItsTryDoubtful(t *testing.T) {
	virtual(t, func(t *testing.T) {
		c := &script{name: "webhook"}
		c.do = func(_ ctx, a armed) (string, error) {
			if a.Subject == "panics" {
				panic("nil map")
			}
			return "", nil
		}
		w := newWorld(t, engine.Options{}, c)
		w.category(belfry.Category{Name: "news", Delivery: belfry.AtMostOnce})
		w.recipient("u1", "webhook")
		a := w.enqueue(belfry.Request{Recipient: "u1", Category: "news", Subject: "panics"})
		b := w.enqueue(belfry.Request{Recipient: "u1", Category: "news"})
		synctest.Wait()
		w.is(a, belfry.Unknown, belfry.ReasonNoAnswer)
		w.is(b, belfry.Sent, "")
	})
}
