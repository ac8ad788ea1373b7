package engine_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"belfry"
	"belfry/engine"
	"belfry/store"
)

// checked is a world with one category, "price", whose recheck is f.
func checked(t *testing.T, f engine.RecheckFunc, check *belfry.CheckPolicy) (*world, *script) {
	c := &script{name: "webhook"}
	w := newWorld(t, engine.Options{Recheck: rechecks{"price": f}}, c)
	w.category(belfry.Category{Name: "price", Retry: steady, Check: check, Templates: belfry.Templates{"body": "{{.item}} for {{.price}}"}})
	w.recipient("u1", "webhook")
	return w, c
}

func TestTheTextIsMadeFromTheDataOfTheRecheck(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var asked belfry.Check
		w, c := checked(t, func(_ ctx, q belfry.Check) (belfry.Verdict, error) {
			asked = q
			return belfry.Send([]byte(`{"item":"kettle","price":18}`)), nil
		}, nil)
		id := w.enqueue(belfry.Request{Recipient: "u1", Category: "price", Subject: "watch-1", Data: json.RawMessage(`{"item":"kettle","price":20}`)})
		synctest.Wait()
		w.is(id, belfry.Sent, "")
		if sent, _ := c.list(); !bytes.Contains(sent[0].Payload, []byte("kettle for 18")) {
			t.Errorf("payload %s", sent[0].Payload)
		}
		if asked.Notification != id || asked.Subject != "watch-1" || asked.Attempt != 1 || asked.LastSent != nil || string(asked.Data) != `{"item":"kettle","price":20}` {
			t.Errorf("asked %+v", asked)
		}
		second := w.enqueue(belfry.Request{Recipient: "u1", Category: "price", Subject: "watch-1"})
		synctest.Wait()
		if asked.Notification != second || asked.LastSent == nil || asked.LastSent.Notification != id || string(asked.LastSent.Data) != `{"item":"kettle","price":18}` {
			t.Errorf("what was last sent is told as %+v", asked.LastSent)
		}
	})
}

func TestARecheckDropsWithItsOwnReason(t *testing.T) {
	virtual(t, func(t *testing.T) {
		w, c := checked(t, func(ctx, belfry.Check) (belfry.Verdict, error) { return belfry.Drop("out_of_stock"), nil }, nil)
		id := w.enqueue(belfry.Request{Recipient: "u1", Category: "price", Subject: "s"})
		synctest.Wait()
		if w.is(id, belfry.Dropped, "out_of_stock"); c.count() != 0 {
			t.Errorf("sent %d", c.count())
		}
		if m := must[[]store.Mark](t)(w.Marks(t.Context(), "default", "u1", "price", "s")); len(m) != 0 {
			t.Errorf("a drop moved the mark: %+v", m)
		}
	})
}

func TestARecheckPutsOffAndIsAskedAgainExactlyThen(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var at []time.Time
		w, c := checked(t, func(ctx, belfry.Check) (belfry.Verdict, error) {
			if at = append(at, time.Now()); len(at) < 3 {
				return belfry.Later(10 * time.Minute), nil
			}
			return belfry.Send(nil), nil
		}, nil)
		id := w.enqueue(belfry.Request{Recipient: "u1", Category: "price"})
		pass(20 * time.Minute)
		synctest.Wait()
		w.is(id, belfry.Sent, "")
		if len(at) != 3 || at[1].Sub(at[0]) != 10*time.Minute || at[2].Sub(at[1]) != 10*time.Minute || c.count() != 1 {
			t.Errorf("asked at %v, sent %d", at, c.count())
		}
	})
}

func TestARecheckThatKeepsPuttingOffMissesTheDeadline(t *testing.T) {
	virtual(t, func(t *testing.T) {
		asked := 0
		w, c := checked(t, func(ctx, belfry.Check) (belfry.Verdict, error) { asked++; return belfry.Later(10 * time.Minute), nil }, nil)
		id := w.enqueue(belfry.Request{Recipient: "u1", Category: "price", ExpiresIn: belfry.Duration(time.Hour)})
		pass(70 * time.Minute)
		if w.is(id, belfry.Missed, belfry.ReasonCheck); asked != 7 || c.count() != 0 {
			t.Errorf("asked %d times, sent %d", asked, c.count())
		}
	})
}

func TestARecheckThatFailsIsPutOffForLongerEachTimeUntilTheDeadline(t *testing.T) {
	for name, fail := range map[string]engine.RecheckFunc{
		"error": func(ctx, belfry.Check) (belfry.Verdict, error) {
			return belfry.Verdict{}, errors.New("no route to host")
		},
		"panic":   func(ctx, belfry.Check) (belfry.Verdict, error) { panic("no route to host") },
		"nothing": func(ctx, belfry.Check) (belfry.Verdict, error) { return belfry.Verdict{}, nil },
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				var at []time.Time
				w, c := checked(t, func(c ctx, q belfry.Check) (belfry.Verdict, error) {
					at = append(at, time.Now())
					return fail(c, q)
				}, nil)
				id := w.enqueue(belfry.Request{Recipient: "u1", Category: "price", ExpiresIn: belfry.Duration(10 * time.Minute)})
				pass(time.Hour)
				st := w.is(id, belfry.Missed, belfry.ReasonCheck)
				for i := range len(at) - 1 {
					if d, want := at[i+1].Sub(at[i]), min(time.Second<<i, time.Minute); d < want || d > want+want/4 {
						t.Errorf("it was asked again after %v, want %v and up to a quarter", d, want)
					}
				}
				if len(at) < 12 || len(at) > 16 || c.count() != 0 {
					t.Errorf("asked %d times in 10 minutes, sent %d", len(at), c.count())
				}
				if d := st.Events[0]; d.Kind != store.EventDeferred || d.Detail == "" {
					t.Errorf("it does not tell why: %+v", d)
				}
			})
		})
	}
}

func TestTheCategoryDecidesAboutARecheckThatFails(t *testing.T) {
	broken := func(ctx, belfry.Check) (belfry.Verdict, error) { return belfry.Verdict{}, errors.New("down") }
	t.Run("send", func(t *testing.T) {
		virtual(t, func(t *testing.T) {
			w, c := checked(t, broken, &belfry.CheckPolicy{URL: "https://shop.example", OnError: belfry.CheckErrorSend})
			id := w.enqueue(belfry.Request{Recipient: "u1", Category: "price", Data: json.RawMessage(`{"item":"kettle","price":20}`)})
			synctest.Wait()
			w.is(id, belfry.Sent, "")
			if sent, _ := c.list(); !bytes.Contains(sent[0].Payload, []byte("kettle for 20")) {
				t.Errorf("payload %s", sent[0].Payload)
			}
		})
	})
	t.Run("drop", func(t *testing.T) {
		virtual(t, func(t *testing.T) {
			w, c := checked(t, broken, &belfry.CheckPolicy{URL: "https://shop.example", OnError: belfry.CheckErrorDrop})
			id := w.enqueue(belfry.Request{Recipient: "u1", Category: "price"})
			synctest.Wait()
			if w.is(id, belfry.Dropped, belfry.ReasonCheckUnreachable); c.count() != 0 {
				t.Errorf("sent %d", c.count())
			}
		})
	})
}

func TestTheDeadlineMayPassDuringARecheck(t *testing.T) {
	virtual(t, func(t *testing.T) {
		w, c := checked(t, func(ctx, belfry.Check) (belfry.Verdict, error) { pass(20 * time.Second); return belfry.Send(nil), nil }, nil)
		id := w.enqueue(belfry.Request{Recipient: "u1", Category: "price", ExpiresIn: belfry.Duration(10 * time.Second)})
		pass(time.Minute)
		if w.is(id, belfry.Missed, belfry.ReasonDeadline); c.count() != 0 {
			t.Errorf("sent %d", c.count())
		}
	})
}

func TestARecheckThatHangsIsGivenUp(t *testing.T) {
	virtual(t, func(t *testing.T) {
		asked := 0
		w, _ := checked(t, func(c ctx, _ belfry.Check) (belfry.Verdict, error) {
			if asked++; asked == 1 {
				<-c.Done()
				return belfry.Verdict{}, c.Err()
			}
			return belfry.Send(nil), nil
		}, nil)
		id := w.enqueue(belfry.Request{Recipient: "u1", Category: "price"})
		pass(time.Minute)
		w.is(id, belfry.Sent, "")
	})
}

// A slow answer for one must not lend its freshness to the others of its claim.
func TestAVerdictOlderThanFiveSecondsIsAskedForAgain(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var mu sync.Mutex
		given := map[string]time.Time{}
		asked := map[string]int{}
		w, c := checked(t, func(_ ctx, q belfry.Check) (belfry.Verdict, error) {
			if q.Subject == "slow" {
				pass(20 * time.Second)
			}
			mu.Lock()
			defer mu.Unlock()
			given[q.Subject], asked[q.Subject] = time.Now(), asked[q.Subject]+1
			return belfry.Send(nil), nil
		}, nil)
		c.do = func(_ ctx, a armed) (string, error) {
			mu.Lock()
			defer mu.Unlock()
			if age := time.Since(given[a.Subject]); age > belfry.VerdictLife {
				t.Errorf("%s was sent on a verdict that is %v old", a.Subject, age)
			}
			return "", nil
		}
		batch := []store.Request{}
		for _, s := range []string{"slow", "a", "b", "c"} {
			batch = append(batch, store.Request{Request: belfry.Request{Project: "default", Recipient: "u1", Category: "price", Subject: s}})
		}
		out := must[[]store.Enqueued](t)(w.Enqueue(t.Context(), batch, true))
		pass(time.Minute)
		for _, o := range out {
			w.is(o.ID, belfry.Sent, "")
		}
		if asked["slow"] != 1 || asked["a"] != 2 {
			t.Errorf("asked %v", asked)
		}
	})
}

// A worker that is held up after the recheck finds at arm that its verdict has aged.
func TestAVerdictThatAgedBeforeArmIsAskedForAgain(t *testing.T) {
	virtual(t, func(t *testing.T) {
		asked, encoded := 0, 0
		w, c := checked(t, func(ctx, belfry.Check) (belfry.Verdict, error) { asked++; return belfry.Send(nil), nil }, nil)
		c.encode = func(channelMessage) ([]byte, error) {
			if encoded++; encoded == 1 {
				pass(6 * time.Second)
			}
			return nil, nil
		}
		id := w.enqueue(belfry.Request{Recipient: "u1", Category: "price"})
		pass(time.Minute)
		if w.is(id, belfry.Sent, ""); asked != 2 || c.count() != 1 {
			t.Errorf("asked %d, sent %d", asked, c.count())
		}
	})
}

func TestARecheckIsAskedBeforeEveryRetry(t *testing.T) {
	virtual(t, func(t *testing.T) {
		asked := 0
		w, c := checked(t, func(ctx, belfry.Check) (belfry.Verdict, error) {
			if asked++; asked == 3 {
				return belfry.Drop(""), nil
			}
			return belfry.Send(nil), nil
		}, nil)
		c.answers = []error{belfry.NotSent(503, 0, ""), belfry.NotSent(503, 0, "")}
		id := w.enqueue(belfry.Request{Recipient: "u1", Category: "price"})
		pass(time.Hour)
		if w.is(id, belfry.Dropped, belfry.ReasonConditionLost); c.count() != 2 {
			t.Errorf("sent %d", c.count())
		}
	})
}

// After a doubtful try the end is not called a drop: it may have arrived.
func TestADropAfterADoubtfulTryIsUnknown(t *testing.T) {
	virtual(t, func(t *testing.T) {
		asked := 0
		w, c := checked(t, func(ctx, belfry.Check) (belfry.Verdict, error) {
			if asked++; asked == 2 {
				return belfry.Drop("sold_out"), nil
			}
			return belfry.Send(nil), nil
		}, nil)
		c.answers = []error{errCut}
		id := w.enqueue(belfry.Request{Recipient: "u1", Category: "price"})
		pass(time.Hour)
		w.is(id, belfry.Unknown, "sold_out")
	})
}

// url is a checker that answers every question the same way, and remembers how it was asked.
type url struct {
	mu     sync.Mutex
	sizes  []int
	asked  map[belfry.ID]int
	answer func(belfry.Check) belfry.Verdict
	short  bool // the last answer is missing
}

func (u *url) Recheck(_ ctx, p belfry.CheckPolicy, checks []belfry.Check) []belfry.Verdict {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.sizes = append(u.sizes, len(checks))
	out := make([]belfry.Verdict, len(checks))
	for i, q := range checks {
		u.asked[q.Notification]++
		out[i] = u.answer(q)
	}
	if u.short {
		out = out[:len(out)-1]
	}
	return out
}

func TestChecksOverTheWireAreBatchedAndMadeOncePerNotification(t *testing.T) {
	virtual(t, func(t *testing.T) {
		u := &url{asked: map[belfry.ID]int{}, answer: func(q belfry.Check) belfry.Verdict { return belfry.Send(nil) }}
		hook, mail := &script{name: "webhook"}, &script{name: "email"}
		w := newWorld(t, engine.Options{Checker: u, DefaultWorkers: 1024, ClaimBatch: 512}, hook, mail)
		w.category(belfry.Category{Name: "price", Check: &belfry.CheckPolicy{URL: "https://shop.example/checks"}})
		const n = 230
		batch := make([]store.Request, n)
		for i := range batch {
			id := "u" + strconv.Itoa(i)
			batch[i] = store.Request{Request: belfry.Request{Project: "default", Recipient: id, Category: "price"}, Inline: &store.Inline{Registrations: []belfry.Registration{
				{Channel: "webhook", Address: belfry.Secret("w" + id)}, {Channel: "email", Address: belfry.Secret("m" + id)},
			}}}
		}
		out := must[[]store.Enqueued](t)(w.Enqueue(t.Context(), batch, true))
		pass(time.Minute)
		for _, o := range out {
			w.is(o.ID, belfry.Sent, "")
			if u.asked[o.ID] != 1 {
				t.Errorf("%v was asked about %d times", o.ID, u.asked[o.ID])
			}
		}
		if hook.count() != n || mail.count() != n {
			t.Errorf("webhook %d, email %d", hook.count(), mail.count())
		}
		total := 0
		for _, s := range u.sizes {
			if total += s; s > 100 {
				t.Errorf("a request with %d checks", s)
			}
		}
		if len(u.sizes) > 3 || total != n {
			t.Errorf("%d checks in requests of %v", total, u.sizes)
		}
	})
}

func TestAMissingAnswerOverTheWireIsAFailedRecheck(t *testing.T) {
	virtual(t, func(t *testing.T) {
		u := &url{asked: map[belfry.ID]int{}, short: true, answer: func(q belfry.Check) belfry.Verdict { return belfry.Send(nil) }}
		c := &script{name: "webhook"}
		w := newWorld(t, engine.Options{Checker: u}, c)
		w.category(belfry.Category{Name: "price", Check: &belfry.CheckPolicy{URL: "https://shop.example/checks"}, ExpiresIn: belfry.Duration(time.Minute)})
		w.recipient("u1", "webhook")
		id := w.enqueue(belfry.Request{Recipient: "u1", Category: "price"})
		pass(time.Hour)
		if w.is(id, belfry.Missed, belfry.ReasonCheck); c.count() != 0 {
			t.Errorf("sent %d", c.count())
		}
	})
}

func TestACheckURLWithoutAClientPutsOff(t *testing.T) {
	virtual(t, func(t *testing.T) {
		c := &script{name: "webhook"}
		w := newWorld(t, engine.Options{}, c)
		w.category(belfry.Category{Name: "price", Check: &belfry.CheckPolicy{URL: "https://shop.example/checks"}, ExpiresIn: belfry.Duration(time.Minute)})
		w.recipient("u1", "webhook")
		id := w.enqueue(belfry.Request{Recipient: "u1", Category: "price"})
		pass(time.Hour)
		if w.is(id, belfry.Missed, belfry.ReasonCheck); c.count() != 0 {
			t.Errorf("sent %d", c.count())
		}
	})
}

func TestTheRetriesOfOneNotificationShareOneRecheck(t *testing.T) {
	virtual(t, func(t *testing.T) {
		asked := 0
		w, c := checked(t, func(ctx, belfry.Check) (belfry.Verdict, error) { asked++; return belfry.Send(nil), nil }, nil)
		w.register("u1", "webhook", "another")
		c.answers = []error{belfry.NotSent(503, 0, ""), belfry.NotSent(503, 0, "")}
		id := w.enqueue(belfry.Request{Recipient: "u1", Category: "price"})
		pass(2 * time.Minute)
		if w.is(id, belfry.Sent, ""); asked != 2 || c.count() != 4 {
			t.Errorf("asked %d times for %d tries in two rounds", asked, c.count())
		}
	})
}

// After a doubtful try the bytes stand, whatever the fresh data would make of them.
func TestDataThatMakesNoTextDoesNotStopWhatIsFrozen(t *testing.T) {
	virtual(t, func(t *testing.T) {
		c := &script{name: "webhook", answers: []error{errCut}}
		w := newWorld(t, engine.Options{Recheck: rechecks{"linked": func(_ ctx, q belfry.Check) (belfry.Verdict, error) {
			if q.Attempt > 1 {
				return belfry.Send([]byte(`{"url":"not one"}`)), nil
			}
			return belfry.Send([]byte(`{"url":"https://example.com"}`)), nil
		}}}, c)
		w.category(belfry.Category{Name: "linked", Retry: steady, Templates: belfry.Templates{"link": "{{.url}}"}})
		w.recipient("u1", "webhook")
		id := w.enqueue(belfry.Request{Recipient: "u1", Category: "linked"})
		pass(2 * time.Minute)
		w.is(id, belfry.Sent, "")
		if sent, _ := c.list(); len(sent) != 2 || !bytes.Equal(sent[0].Payload, sent[1].Payload) {
			t.Errorf("sent %+v", sent)
		}
	})
}
