package engine_test

import (
	"database/sql"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"belfry"
	"belfry/engine"
	"belfry/store"
	"belfry/store/sqlite"
)

// shop is a world whose file also holds a table of the caller's, and the caller's connection.
func shop(t *testing.T, o engine.Options, c *script) (*world, *sql.DB) {
	dir := t.TempDir()
	st := openStore(t, dir, sqlite.Options{Busy: time.Millisecond})
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, sqlite.FileName)+"?_pragma=synchronous(FULL)&_txlock=immediate&_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	w := newWorldOn(t, st, o, c)
	t.Cleanup(func() {
		w.stop()
		db.Close()
		st.Close()
	})
	w.recipient("u1", "webhook")
	if _, err := db.Exec(`CREATE TABLE orders (id INTEGER PRIMARY KEY)`); err != nil {
		t.Fatal(err)
	}
	return w, db
}

// order writes an order and its notification in one transaction, which is left open.
func (w *world) order(db *sql.DB, id int) (*sql.Tx, belfry.ID) {
	w.t.Helper()
	tx := must[*sql.Tx](w.t)(db.Begin())
	must[sql.Result](w.t)(tx.Exec(`INSERT INTO orders VALUES (?)`, id))
	entry := must[store.Entry](w.t)(w.Entry(w.t.Context(), store.Request{Request: belfry.Request{Project: "default", Recipient: "u1"}}))
	out := must[[]store.Enqueued](w.t)(sqlite.In(tx).Enqueue(w.t.Context(), []store.Entry{entry}))
	w.check(out[0].Err)
	return tx, out[0].ID
}

func TestANotificationOfACallersTransactionIsSentAtOnceAfterItsCommit(t *testing.T) {
	virtual(t, func(t *testing.T) {
		c := &script{name: "webhook"}
		w, db := shop(t, engine.Options{}, c)
		tx, lost := w.order(db, 1)
		w.check(tx.Rollback())
		w.Wake()
		synctest.Wait()
		if _, err := w.Notification(t.Context(), "default", lost); belfry.CodeOf(err) != belfry.CodeNotFound || c.count() != 0 {
			t.Errorf("rolled back: %v, sent %d", err, c.count())
		}
		tx, id := w.order(db, 1)
		w.check(tx.Commit())
		start := time.Now()
		w.Wake()
		pass(time.Second)
		if w.is(id, belfry.Sent, ""); !c.at[0].Equal(start) {
			t.Errorf("it was sent %v after the commit", c.at[0].Sub(start))
		}
	})
}

// The caller holds the file for half a minute: what is on the wire goes on, and what it came to is written
// down when the caller lets go; nothing is sent twice for it.
func TestTheEngineWorksOnWhileACallerHoldsTheFile(t *testing.T) {
	virtual(t, func(t *testing.T) {
		release := make(chan struct{})
		c := &script{name: "webhook"}
		c.do = func(ctx, armed) (string, error) { <-release; return "", nil }
		w, db := shop(t, engine.Options{}, c)
		flies := w.enqueue(belfry.Request{Recipient: "u1"})
		synctest.Wait()
		waits := w.enqueue(belfry.Request{Recipient: "u1", At: time.Now().Add(time.Second)})
		tx, mine := w.order(db, 1)
		pass(5 * time.Second)
		close(release)
		pass(25 * time.Second)
		w.is(flies, belfry.Sending, "")
		w.check(tx.Commit())
		w.Wake()
		pass(3 * time.Second)
		for _, id := range []belfry.ID{flies, waits, mine} {
			w.is(id, belfry.Sent, "")
		}
		if c.count() != 3 {
			t.Errorf("sent %d", c.count())
		}
	})
}

func TestAStartWaitsForACallerThatHoldsTheFile(t *testing.T) {
	virtual(t, func(t *testing.T) {
		c := &script{name: "webhook"}
		w, db := shop(t, engine.Options{}, c)
		waits := w.enqueue(belfry.Request{Recipient: "u1", At: time.Now().Add(time.Second)})
		w.stop()
		tx := must[*sql.Tx](t)(db.Begin())
		w.start(engine.Options{}, c)
		pass(30 * time.Second)
		if r := w.Ready(t.Context()); len(r) != 1 {
			t.Errorf("Ready says %q", r)
		}
		w.check(tx.Rollback())
		pass(time.Second)
		w.is(waits, belfry.Sent, "")

		tx = must[*sql.Tx](t)(db.Begin())
		w.stop() // and a stop does not wait for it
		w.start(engine.Options{}, c)
		pass(time.Second)
		w.stop()
		w.check(tx.Rollback())
	})
}

func TestARepeatedRequestIsAnsweredFromItsKeyWhateverHasChanged(t *testing.T) {
	virtual(t, func(t *testing.T) {
		c := &script{name: "webhook"}
		w := newWorld(t, engine.Options{}, c)
		w.category(belfry.Category{Name: "news"})
		w.recipient("u1", "webhook")
		ask := func(key string, print byte) store.Enqueued {
			return must[[]store.Enqueued](t)(w.Enqueue(t.Context(), []store.Request{{
				Request:     belfry.Request{Project: "default", Recipient: "u1", Category: "news", Key: key, Deadline: time.Date(2026, 3, 2, 13, 0, 0, 0, time.UTC)},
				Fingerprint: [32]byte{print},
			}}, true))[0]
		}
		first := ask("k", 1)
		again := ask("k", 1)
		if first.Err != nil || again.Err != nil || !again.Replayed || again.ID != first.ID {
			t.Errorf("%+v, %+v", first, again)
		}
		if e := ask("k", 2).Err; belfry.CodeOf(e) != belfry.CodeKeyReused {
			t.Errorf("of another request: %v", e)
		}
		pass(2 * time.Hour) // its deadline has passed, and now its category goes
		w.check(w.DeleteCategory(t.Context(), "default", "news"))
		if again = ask("k", 1); again.Err != nil || !again.Replayed || again.ID != first.ID || again.State != belfry.Scheduled {
			t.Errorf("after it ended: %+v", again)
		}
		if e := ask("k", 2).Err; belfry.CodeOf(e) != belfry.CodeKeyReused {
			t.Errorf("of another request: %v", e)
		}
		if e := ask("new", 1).Err; belfry.CodeOf(e) != belfry.CodeUnknownCategory {
			t.Errorf("of a new key: %v", e)
		}
		if c.count() != 1 {
			t.Errorf("sent %d", c.count())
		}
	})
}

// A clock that went back before a restart would name again what was named before it.
func TestIdsGrowAcrossARestartThoughTheClockWentBack(t *testing.T) {
	virtual(t, func(t *testing.T) {
		st := openStore(t, t.TempDir(), sqliteNormal)
		defer st.Close()
		noon := time.Now()
		still := engine.Options{Now: func() time.Time { return noon }}
		w := newWorldOn(t, st, still, &script{name: "webhook"})
		w.recipient("u1", "webhook")
		var last belfry.ID
		for range 50 {
			last = w.enqueue(belfry.Request{Recipient: "u1"})
		}
		w.stop()
		w.start(still, &script{name: "webhook"})
		synctest.Wait()
		for range 50 {
			id := w.enqueue(belfry.Request{Recipient: "u1"})
			if id <= last {
				t.Fatalf("%v was given after %v", id, last)
			}
			last = id
		}
		w.stop()
	})
}
