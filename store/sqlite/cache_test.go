package sqlite_test

import (
	"testing"
	"time"

	"belfry"
	"belfry/store"
	"belfry/store/sqlite"
)

const address = "https://push.example/one"

// Between Facts and Arm anything may change: Arm judges by what holds at its own commit, though it spares
// itself the second reading where nothing changed.
func TestWhateverChangesBetweenFactsAndArmIsSeenByArm(t *testing.T) {
	type world struct {
		*testing.T
		*sqlite.Store
		endpoint belfry.ID
		dir      string
	}
	do := func(w world, err error) {
		w.Helper()
		if err != nil {
			w.Fatal(err)
		}
	}
	off := false
	optOut := []belfry.PreferenceChange{{Category: "*", Channel: "*", On: &off}}
	by := func(statement string, args ...any) func(world) {
		return func(w world) {
			_, err := beside(w.T, w.dir, "_pragma=busy_timeout(5000)").Exec(statement, args...)
			do(w, err)
		}
	}
	for name, c := range map[string]struct {
		change func(world)
		state  belfry.State
		reason belfry.Reason
	}{
		"nothing": {func(world) {}, belfry.Sending, ""},
		"something else": {func(w world) {
			_, err := w.PutRecipient(w.Context(), at, belfry.Recipient{Project: "default", ID: "u2"})
			do(w, err)
			_, err = w.ChangePreferences(w.Context(), at, "default", "u2", optOut, false)
			do(w, err)
		}, belfry.Sending, ""},
		"opt-out": {func(w world) {
			_, err := w.ChangePreferences(w.Context(), at, "default", "u1", optOut, false)
			do(w, err)
		}, belfry.Dropped, belfry.ReasonOptedOut},
		"suppression": {func(w world) {
			_, err := w.Suppress(w.Context(), belfry.Suppression{Project: "default", Channel: "push", Address: address, Reason: "manual", At: at})
			do(w, err)
		}, belfry.Dropped, belfry.ReasonSuppressed},
		"retirement": {func(w world) {
			_, err := w.Retire(w.Context(), at, "default", "u1", w.endpoint, belfry.ReasonEndpointRetired)
			do(w, err)
		}, belfry.Dropped, belfry.ReasonEndpointRetired},
		"change of owner": {func(w world) {
			_, err := w.PutRecipient(w.Context(), at, belfry.Recipient{Project: "default", ID: "u2"})
			do(w, err)
			_, err = w.Register(w.Context(), at, "default", belfry.MakeID(at, 3, 9), belfry.Registration{Recipient: "u2", Channel: "webpush", Address: address})
			do(w, err)
		}, belfry.Dropped, belfry.ReasonEndpointRetired},
		"category in shadow": {func(w world) {
			do(w, w.PutCategory(w.Context(), belfry.Category{Project: "default", Name: "default", Shadow: true}))
		}, belfry.Dropped, belfry.ReasonShadow},
		"deleted recipient": {func(w world) {
			_, err := w.DeleteRecipient(w.Context(), at, "default", "u1")
			do(w, err)
		}, belfry.Dropped, belfry.ReasonRecipientGone},
		"pause": {func(w world) {
			do(w, w.PutPause(w.Context(), belfry.Pause{ID: 7, Reason: "stop", At: at}))
		}, belfry.Pending, belfry.ReasonPaused},
		"opt-out by another connection":     {by(`INSERT INTO preference VALUES ('default', 'u1', '*', '*', 0, 'import', 0)`), belfry.Dropped, belfry.ReasonOptedOut},
		"suppression by another connection": {by(`INSERT INTO suppression VALUES ('default', ?, 'push', 'manual', 0)`, address), belfry.Dropped, belfry.ReasonSuppressed},
		"retirement by another connection":  {by(`UPDATE endpoint SET retired_at = 1, reason = 'manual'`), belfry.Dropped, belfry.ReasonEndpointRetired},
		"new keys of the endpoint": {func(w world) {
			_, err := w.Register(w.Context(), at, "default", belfry.MakeID(at, 3, 9), belfry.Registration{Recipient: "u1", Channel: "webpush", Address: address, Keys: belfry.Keys{"auth": "new"}})
			do(w, err)
		}, belfry.Sending, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			w := world{T: t, Store: openAt(t, dir, sqlite.Options{Synchronous: "NORMAL"}), dir: dir}
			known(t, w.Store)
			r, err := w.Register(t.Context(), at, "default", belfry.MakeID(at, 3, 1), belfry.Registration{Recipient: "u1", Channel: "webpush", Address: address, Keys: belfry.Keys{"auth": "old"}})
			do(w, err)
			w.endpoint = r.Endpoint.ID
			owner := store.Owner{ID: 1, Lease: at.Add(60e9)}
			try := func(n int, change func(world)) store.Armed {
				enqueue(t, w.Store, entry(n))
				claims, err := w.Claim(t.Context(), at, owner, []store.Take{{Claim: belfry.MakeID(at, 2, uint16(n)), Queue: "webhook", Lane: belfry.Normal, Project: "default", Limit: 10}})
				do(w, err)
				facts, err := w.Facts(t.Context(), claims[0].Items)
				do(w, err)
				p := belfry.Plan(claims[0].Items[0].Notification, facts[0], 0, 0, []string{"webpush"}, at)
				change(w)
				armed, err := w.Arm(t.Context(), store.Arm{Claim: claims[0], Owner: owner, Now: at, Known: []string{"webpush"}, Steps: []store.Step{
					{Stage: p.Stage, Tries: []store.Try{{Delivery: p.Deliveries[0], Payload: []byte("{}"), Send: true}}},
				}})
				do(w, err)
				if len(armed) == 0 { // it was ended by the change itself
					st, err := w.Notification(t.Context(), "default", entry(n).Notification.ID)
					do(w, err)
					return store.Armed{Delivery: belfry.Delivery{State: st.State, Reason: st.Reason}}
				}
				return armed[0]
			}
			if a := try(1, func(world) {}); !a.Delivery.Armed { // so that something is remembered
				t.Fatalf("%+v", a)
			}
			a := try(2, c.change)
			if a.Delivery.State != c.state || a.Delivery.Reason != c.reason {
				t.Errorf("it is %s(%s), want %s(%s)", a.Delivery.State, a.Delivery.Reason, c.state, c.reason)
			}
			if want := map[bool]belfry.Secret{true: "new", false: "old"}[name == "new keys of the endpoint"]; a.Delivery.Armed && a.Endpoint.Keys["auth"] != want {
				t.Errorf("it would go out under the %s keys", a.Endpoint.Keys["auth"].Reveal())
			}
		})
	}
}

// An opt-out and the arm behind it may share a commit: what Facts remembered does not hold in it.
func TestAnArmInTheSameCommitAsAnOptOutSeesIt(t *testing.T) {
	s := openAt(t, t.TempDir(), sqlite.Options{Synchronous: "NORMAL"})
	known(t, s)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := s.Register(t.Context(), at, "default", belfry.MakeID(at, 3, 1), belfry.Registration{Recipient: "u1", Channel: "webpush", Address: address})
	must(err)
	owner := store.Owner{ID: 1, Lease: at.Add(60e9)}
	prepared := func(n int) store.Arm {
		e := entry(n)
		e.Notification.Lane = belfry.Urgent // its arm goes where the opt-out goes
		enqueue(t, s, e)
		claims, err := s.Claim(t.Context(), at, owner, []store.Take{{Claim: belfry.MakeID(at, 2, uint16(n)), Queue: "webhook", Lane: belfry.Urgent, Project: "default", Limit: 10}})
		must(err)
		facts, err := s.Facts(t.Context(), claims[0].Items)
		must(err)
		p := belfry.Plan(claims[0].Items[0].Notification, facts[0], 0, 0, []string{"webpush"}, at)
		return store.Arm{Claim: claims[0], Owner: owner, Now: at, Known: []string{"webpush"}, Steps: []store.Step{
			{Stage: p.Stage, Tries: []store.Try{{Delivery: p.Deliveries[0], Payload: []byte("{}"), Send: true}}},
		}}
	}
	_, err = s.Arm(t.Context(), prepared(1))
	must(err)
	a := prepared(2)
	release := s.Hold()
	results := make(chan error, 2)
	waits := func(n int) {
		for s.Waits() < n {
			<-time.After(time.Millisecond)
		}
	}
	off := false
	go func() {
		_, err := s.ChangePreferences(t.Context(), at, "default", "u1", []belfry.PreferenceChange{{Category: "*", Channel: "*", On: &off}}, false)
		results <- err
	}()
	waits(1)
	var armed []store.Armed
	go func() {
		var err error
		armed, err = s.Arm(t.Context(), a)
		results <- err
	}()
	waits(2)
	release()
	must(<-results)
	must(<-results)
	if len(armed) != 1 || armed[0].Delivery.State != belfry.Dropped || armed[0].Delivery.Reason != belfry.ReasonOptedOut {
		t.Errorf("armed after the opt-out: %+v", armed)
	}
}
