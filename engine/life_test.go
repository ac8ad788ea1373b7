package engine_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"belfry"
	"belfry/engine"
	"belfry/store"
)

func TestANotificationIsSent(t *testing.T) {
	virtual(t, func(t *testing.T) {
		c := &script{name: "webhook"}
		w := newWorld(t, engine.Options{}, c)
		w.category(belfry.Category{Name: "greeting", Templates: belfry.Templates{"title": "Hello {{.name}}"}})
		w.recipient("u1", "webhook")
		enqueued := time.Now()
		id := w.enqueue(belfry.Request{Recipient: "u1", Category: "greeting", Data: json.RawMessage(`{"name":"Ada"}`)})
		synctest.Wait()
		st := w.is(id, belfry.Sent, "")
		if len(st.Deliveries) != 1 || len(st.Deliveries[0].Attempts) != 1 || st.Deliveries[0].Attempts[0].Outcome != belfry.OutcomeAccepted {
			t.Fatalf("%+v", st)
		}
		sent, at := c.list()
		if len(sent) != 1 || sent[0].Delivery != st.Deliveries[0].ID || sent[0].Attempt != 1 || sent[0].Endpoint.Address != "address-of-u1-webhook" {
			t.Errorf("sent %+v", sent)
		}
		if !bytes.Contains(sent[0].Payload, []byte("Hello Ada")) {
			t.Errorf("payload %s", sent[0].Payload)
		}
		if !at[0].Equal(enqueued) {
			t.Errorf("sent %v after it was enqueued", at[0].Sub(enqueued))
		}
		marks := must[[]store.Mark](t)(w.Marks(t.Context(), "default", "u1", "greeting", ""))
		if len(marks) != 1 || marks[0].Notification != id {
			t.Errorf("the mark did not move: %+v", marks)
		}
	})
}

func TestEveryEndpointOfEveryAllowedChannelGetsIt(t *testing.T) {
	virtual(t, func(t *testing.T) {
		hook, mail := &script{name: "webhook"}, &script{name: "email"}
		w := newWorld(t, engine.Options{}, hook, mail)
		w.recipient("u1", "webhook", "email")
		w.register("u1", "email", "second@example.com")
		id := w.enqueue(belfry.Request{Recipient: "u1"})
		synctest.Wait()
		if st := w.is(id, belfry.Sent, ""); len(st.Deliveries) != 3 || hook.count() != 1 || mail.count() != 2 {
			t.Errorf("webhook %d, email %d: %+v", hook.count(), mail.count(), st.Deliveries)
		}
	})
}

func TestTheObserverHearsOfEveryTryAndEnd(t *testing.T) {
	virtual(t, func(t *testing.T) {
		events := make(chan engine.Event, 100)
		c := &script{name: "webhook", answers: []error{belfry.NotSent(503, 0, "")}}
		w := newWorld(t, engine.Options{Observe: func(e engine.Event) { events <- e }}, c)
		w.recipient("u1", "webhook")
		w.enqueue(belfry.Request{Recipient: "u1"})
		pass(time.Minute)
		w.recipient("u2")
		w.enqueue(belfry.Request{Recipient: "u2"})
		synctest.Wait()
		close(events)
		var heard []string
		for e := range events {
			heard = append(heard, string(e.Outcome)+string(e.State)+":"+string(e.Reason))
		}
		want := []string{"not_sent:", "accepted:", "sent:", "dropped:no_endpoint"}
		if !slices.Equal(heard, want) {
			t.Errorf("heard %q, want %q", heard, want)
		}
	})
}

func TestARequestThatIsWrongIsRefusedAndNamesTheField(t *testing.T) {
	virtual(t, func(t *testing.T) {
		w := newWorld(t, engine.Options{}, &script{name: "webhook"})
		w.recipient("u1", "webhook")
		inline := func(r belfry.Recipient) store.Request {
			return store.Request{Request: belfry.Request{Project: "default", Recipient: "u2"}, Inline: &store.Inline{Recipient: r}}
		}
		plain := func(r belfry.Request) store.Request {
			r.Project = "default"
			return store.Request{Request: r}
		}
		once := func(o belfry.Once) belfry.Options { return belfry.Options{Once: &o} }
		for _, c := range []struct {
			name    string
			request store.Request
			code    belfry.Code
			field   string
		}{
			{"unknown recipient", plain(belfry.Request{Recipient: "nobody"}), belfry.CodeUnknownRecipient, "recipient"},
			{"unknown category", plain(belfry.Request{Recipient: "u1", Category: "none"}), belfry.CodeUnknownCategory, "category"},
			{"unknown channel", plain(belfry.Request{Recipient: "u1", Options: belfry.Options{Channels: []string{"pigeon"}}}), belfry.CodeUnknownChannel, "channels"},
			{"unknown target channel", plain(belfry.Request{Recipient: "u1", Options: belfry.Options{To: []belfry.Target{{Channel: "pigeon", Address: "a"}}}}), belfry.CodeUnknownChannel, "to.0.channel"},
			{"unknown zone of a once", plain(belfry.Request{Recipient: "u1", Options: once(belfry.Once{Per: belfry.PerDay, Zone: "Mars/Base"})}), belfry.CodeUnknownZone, "once.zone"},
			{"unknown zone of an inline recipient", inline(belfry.Recipient{Zone: "Mars/Base"}), belfry.CodeUnknownZone, "recipient.zone"},
			{"deadline passed", plain(belfry.Request{Recipient: "u1", At: time.Now().Add(-2 * time.Hour), ExpiresIn: belfry.Duration(time.Hour)}), belfry.CodeInvalid, "deadline"},
			{"data is no object", plain(belfry.Request{Recipient: "u1", Data: json.RawMessage(`[1]`)}), belfry.CodeInvalid, "data"},
		} {
			out, err := w.Enqueue(t.Context(), []store.Request{plain(belfry.Request{Recipient: "u1"}), c.request}, true)
			if err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			e, ok := out[1].Err.(*belfry.Error)
			if !ok || e.Code != c.code || e.Field != c.field {
				t.Errorf("%s: %#v, want %s at %s", c.name, out[1].Err, c.code, c.field)
			}
		}
		synctest.Wait()
		list, _, err := w.Notifications(t.Context(), store.Filter{Project: "default"}, 0, 10)
		if err != nil || len(list) != 0 {
			t.Errorf("a refused request left something behind: %v %+v", err, list)
		}
	})
}

func TestARefusedRequestDoesNotStopTheOthersUnlessItIsAllOrNothing(t *testing.T) {
	virtual(t, func(t *testing.T) {
		c := &script{name: "webhook"}
		w := newWorld(t, engine.Options{}, c)
		w.recipient("u1", "webhook")
		batch := []store.Request{
			{Request: belfry.Request{Project: "default", Recipient: "u1"}},
			{Request: belfry.Request{Project: "default", Recipient: "nobody"}},
			{Request: belfry.Request{Project: "default", Recipient: "u1", Category: "none"}},
		}
		out := must[[]store.Enqueued](t)(w.Enqueue(t.Context(), batch, false))
		synctest.Wait()
		if out[0].Err != nil || out[1].Err == nil || out[2].Err == nil || c.count() != 1 {
			t.Errorf("%+v, sent %d", out, c.count())
		}
	})
}

func TestAFactIsToldOnce(t *testing.T) {
	virtual(t, func(t *testing.T) {
		pass(11 * time.Hour) // an hour before midnight
		c := &script{name: "webhook", answers: []error{nil, belfry.Refused(400, "")}}
		w := newWorld(t, engine.Options{}, c)
		w.recipient("u1", "webhook")
		tell := func(subject string, release []belfry.State) store.Enqueued {
			return w.try(belfry.Request{Recipient: "u1", Subject: subject, Options: belfry.Options{Once: &belfry.Once{Per: belfry.PerDay, ReleaseOn: release}}})
		}
		first := tell("a", nil)
		synctest.Wait()
		second := tell("a", nil)
		synctest.Wait()
		if first.Duplicate || !second.Duplicate || second.ID != first.ID || second.State != belfry.Sent || c.count() != 1 {
			t.Errorf("first %+v, second %+v, sent %d", first, second, c.count())
		}
		if st := w.is(first.ID, belfry.Sent, ""); st.Duplicates != 1 {
			t.Errorf("%d duplicates counted", st.Duplicates)
		}

		reached := tell("b", nil)
		synctest.Wait()
		w.is(reached.ID, belfry.Failed, belfry.ReasonRefused)
		again := tell("b", nil)
		synctest.Wait()
		if again.Duplicate {
			t.Errorf("one that reached nobody holds its fact: %+v", again)
		}
		w.is(again.ID, belfry.Sent, "")

		c.answers = []error{belfry.Refused(400, "")}
		kept := tell("c", []belfry.State{})
		synctest.Wait()
		w.is(kept.ID, belfry.Failed, belfry.ReasonRefused)
		if d := tell("c", []belfry.State{}); !d.Duplicate {
			t.Errorf("a fact that nothing releases was told again: %+v", d)
		}
		pass(time.Hour)
		if d := tell("c", []belfry.State{}); d.Duplicate {
			t.Errorf("the next day is another fact: %+v", d)
		}
	})
}

func TestWhatIsSensitiveIsWipedAtItsEndAndNeverInTheMark(t *testing.T) {
	virtual(t, func(t *testing.T) {
		c := &script{name: "webhook"}
		w := newWorld(t, engine.Options{}, c)
		w.category(belfry.Category{Name: "code", Sensitive: true, Templates: belfry.Templates{"body": "Your code is {{.code}}"}})
		w.recipient("u1", "webhook")
		id := w.enqueue(belfry.Request{Recipient: "u1", Category: "code", Data: json.RawMessage(`{"code":"314159"}`)})
		synctest.Wait()
		if sent, _ := c.list(); len(sent) != 1 || !bytes.Contains(sent[0].Payload, []byte("Your code is 314159")) {
			t.Fatalf("sent %+v", sent)
		}
		st := w.is(id, belfry.Sent, "")
		marks := must[[]store.Mark](t)(w.Marks(t.Context(), "default", "u1", "code", ""))
		if b, _ := json.Marshal([]any{st, marks, st.Deliveries[0].Payload}); len(marks) != 1 || strings.Contains(string(b), "314159") || len(st.Deliveries[0].Payload) > 0 {
			t.Errorf("it is still there: %s", b)
		}
	})
}

func TestAShadowDoesEverythingButTheSend(t *testing.T) {
	virtual(t, func(t *testing.T) {
		asked, encoded := 0, 0
		c := &script{name: "webhook"}
		c.encode = func(m channelMessage) ([]byte, error) { encoded++; return []byte(m.Content.Body), nil }
		w := newWorld(t, engine.Options{Recheck: rechecks{"trial": func(_ ctx, _ belfry.Check) (belfry.Verdict, error) {
			asked++
			return belfry.Send(nil), nil
		}}}, c)
		w.category(belfry.Category{Name: "trial", Shadow: true})
		w.recipient("u1", "webhook")
		id := w.enqueue(belfry.Request{Recipient: "u1", Category: "trial"})
		synctest.Wait()
		w.is(id, belfry.Dropped, belfry.ReasonShadow)
		if asked != 1 || encoded != 1 || c.count() != 0 {
			t.Errorf("asked %d, encoded %d, sent %d", asked, encoded, c.count())
		}
	})
}

func TestADryRunSaysWhatWouldHappenAndWritesNothing(t *testing.T) {
	virtual(t, func(t *testing.T) {
		verdict := belfry.Send(nil)
		c := &script{name: "webhook"}
		w := newWorld(t, engine.Options{Recheck: rechecks{"checked": func(ctx, belfry.Check) (belfry.Verdict, error) { return verdict, nil }}}, c)
		w.category(belfry.Category{Name: "checked"})
		w.category(belfry.Category{Name: "off", Consent: belfry.OptIn})
		w.category(belfry.Category{Name: "trial", Shadow: true})
		w.category(belfry.Category{Name: "broken", Templates: belfry.Templates{"link": "{{.url}}"}})
		w.recipient("u1", "webhook")
		ask := func(r belfry.Request) store.Forecast {
			t.Helper()
			r.Project = "default"
			if r.Recipient == "" {
				r.Recipient = "u1"
			}
			return must[store.Forecast](t)(w.DryRun(t.Context(), store.Request{Request: r}))
		}
		want := func(f store.Forecast, state belfry.State, reason belfry.Reason) {
			t.Helper()
			if f.State != state || f.Reason != reason {
				t.Errorf("foretold %s(%s) %q, want %s(%s)", f.State, f.Reason, f.Detail, state, reason)
			}
		}
		f := ask(belfry.Request{})
		if want(f, belfry.Sending, ""); len(f.Deliveries) != 1 || f.Deliveries[0].Channel != "webhook" {
			t.Errorf("deliveries %+v", f.Deliveries)
		}
		want(ask(belfry.Request{At: time.Now().Add(time.Hour)}), belfry.Sending, "")
		want(ask(belfry.Request{Category: "off"}), belfry.Dropped, belfry.ReasonOptedOut)
		want(ask(belfry.Request{Category: "trial"}), belfry.Dropped, belfry.ReasonShadow)
		want(ask(belfry.Request{Category: "broken", Data: json.RawMessage(`{"url":"not one"}`)}), belfry.Failed, belfry.ReasonBadContent)
		want(ask(belfry.Request{Category: "checked"}), belfry.Sending, "")
		verdict = belfry.Drop("sold_out")
		want(ask(belfry.Request{Category: "checked"}), belfry.Dropped, "sold_out")
		verdict = belfry.Later(time.Minute)
		want(ask(belfry.Request{Category: "checked"}), belfry.Scheduled, belfry.ReasonCheck)
		p := must[belfry.Pause](t)(w.PutPause(t.Context(), belfry.Pause{Reason: "maintenance"}))
		want(ask(belfry.Request{}), belfry.Scheduled, belfry.ReasonPaused)
		w.check(w.LiftPause(t.Context(), "", p.ID))
		if _, err := w.DryRun(t.Context(), store.Request{Request: belfry.Request{Project: "default", Recipient: "nobody"}}); belfry.CodeOf(err) != belfry.CodeUnknownRecipient {
			t.Errorf("of an unknown recipient: %v", err)
		}
		pass(2 * time.Hour)
		list, _, err := w.Notifications(t.Context(), store.Filter{Project: "default"}, 0, 10)
		if err != nil || len(list) != 0 || c.count() != 0 {
			t.Errorf("%v: a dry run wrote %+v, sent %d", err, list, c.count())
		}
	})
}
