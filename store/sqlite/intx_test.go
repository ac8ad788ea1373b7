package sqlite_test

import (
	"database/sql"
	"errors"
	"testing"

	"belfry"
	"belfry/store"
	"belfry/store/sqlite"
)

const fully = "_pragma=synchronous(FULL)&_pragma=busy_timeout(5000)&_txlock=immediate"

// own is a store and the caller's connection to its file, with a table of the caller's.
func own(t *testing.T) (*sqlite.Store, *sql.DB) {
	t.Helper()
	dir := t.TempDir()
	s := openAt(t, dir, sqlite.Options{})
	known(t, s)
	db := beside(t, dir, fully)
	if _, err := db.Exec(`CREATE TABLE orders (id INTEGER PRIMARY KEY)`); err != nil {
		t.Fatal(err)
	}
	return s, db
}

func begin(t *testing.T, db *sql.DB) *sql.Tx {
	t.Helper()
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tx.Rollback() })
	return tx
}

func run(t *testing.T, tx *sql.Tx, query string) {
	t.Helper()
	if _, err := tx.Exec(query); err != nil {
		t.Fatal(err)
	}
}

func enqueueIn(t *testing.T, tx *sql.Tx, e store.Entry) store.Enqueued {
	t.Helper()
	out, err := sqlite.In(tx).Enqueue(t.Context(), []store.Entry{e})
	if err != nil {
		t.Fatal(err)
	}
	return out[0]
}

// waiting is how many wait, and how many orders there are.
func waiting(t *testing.T, s *sqlite.Store, db *sql.DB) (notifications, orders int) {
	t.Helper()
	st, err := s.Stats(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	if err := db.QueryRow(`SELECT count(*) FROM orders`).Scan(&orders); err != nil {
		t.Fatal(err)
	}
	return st.Waiting, orders
}

func TestInACallersTransactionBothAreThereOrNeither(t *testing.T) {
	s, db := own(t)
	tx := begin(t, db)
	run(t, tx, `INSERT INTO orders VALUES (1)`)
	enqueueIn(t, tx, entry(1))
	if n, o := waiting(t, s, db); n != 0 || o != 0 {
		t.Errorf("before the commit: %d notifications, %d orders", n, o)
	}
	tx.Rollback()
	if n, o := waiting(t, s, db); n != 0 || o != 0 {
		t.Errorf("rolled back: %d notifications, %d orders", n, o)
	}
	tx = begin(t, db)
	run(t, tx, `INSERT INTO orders VALUES (1)`)
	enqueueIn(t, tx, entry(1))
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if n, o := waiting(t, s, db); n != 1 || o != 1 {
		t.Errorf("committed: %d notifications, %d orders", n, o)
	}
	claims, err := s.Claim(t.Context(), at, store.Owner{ID: 1, Lease: at.Add(60e9)}, []store.Take{{Claim: 5, Queue: "webhook", Lane: belfry.Normal, Project: "default", Limit: 10}})
	if err != nil || len(claims) != 1 || len(claims[0].Items) != 1 {
		t.Errorf("claimed %+v: %v", claims, err)
	}
}

func TestASavepointThatIsRolledBackTakesItsNotificationsWithIt(t *testing.T) {
	s, db := own(t)
	tx := begin(t, db)
	enqueueIn(t, tx, entry(1))
	run(t, tx, `SAVEPOINT risky`)
	enqueueIn(t, tx, entry(2))
	run(t, tx, `ROLLBACK TO risky`)
	run(t, tx, `RELEASE risky`)
	enqueueIn(t, tx, entry(3))
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if n, _ := waiting(t, s, db); n != 2 {
		t.Errorf("%d notifications", n)
	}
}

func TestAKeyUsedTwiceInOneTransactionAnswersWithTheFirst(t *testing.T) {
	s, db := own(t)
	key := store.Key{Text: "k", Fingerprint: [32]byte{1}, Expires: at.Add(1e15)}
	first, second, other := entry(1), entry(2), entry(3)
	first.Key, second.Key, other.Key = key, key, key
	other.Key.Fingerprint = [32]byte{2}
	tx := begin(t, db)
	a, b, c := enqueueIn(t, tx, first), enqueueIn(t, tx, second), enqueueIn(t, tx, other)
	if a.Replayed || !b.Replayed || b.ID != a.ID || belfry.CodeOf(c.Err) != belfry.CodeKeyReused {
		t.Errorf("%+v, %+v, %+v", a, b, c)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if n, _ := waiting(t, s, db); n != 1 {
		t.Errorf("%d notifications", n)
	}
}

func TestARefusedEntryLeavesTheTransactionUsable(t *testing.T) {
	s, db := own(t)
	tx := begin(t, db)
	run(t, tx, `INSERT INTO orders VALUES (1)`)
	stranger := entry(1)
	stranger.Notification.Recipient = "nobody"
	out, err := sqlite.In(tx).Enqueue(t.Context(), []store.Entry{entry(2), stranger})
	if err != nil || belfry.CodeOf(out[1].Err) != belfry.CodeUnknownRecipient {
		t.Fatalf("%+v %v", out, err)
	}
	enqueueIn(t, tx, entry(3))
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if n, o := waiting(t, s, db); n != 1 || o != 1 {
		t.Errorf("%d notifications, %d orders", n, o)
	}
}

func TestAConnectionThatAPowerCutCouldUndoIsRefused(t *testing.T) {
	dir := t.TempDir()
	s := openAt(t, dir, sqlite.Options{})
	known(t, s)
	for mode, refused := range map[string]bool{"OFF": true, "NORMAL": true, "FULL": false, "EXTRA": false} {
		tx := begin(t, beside(t, dir, "_txlock=immediate&_pragma=busy_timeout(5000)&_pragma=synchronous("+mode+")"))
		_, err := sqlite.In(tx).Enqueue(t.Context(), []store.Entry{entry(1)})
		if errors.Is(err, sqlite.ErrNotDurable) != refused || !refused && err != nil {
			t.Errorf("synchronous=%s: %v", mode, err)
		}
		tx.Rollback()
	}
}

func TestAnInlineRecipientIsMadeInTheCallersTransaction(t *testing.T) {
	s, db := own(t)
	e := entry(1)
	e.Notification.Recipient = "new"
	e.Inline = &store.Inline{
		Recipient:     belfry.Recipient{Project: "default", ID: "new"},
		Registrations: []belfry.Registration{{Recipient: "new", Channel: "webpush", Device: "phone", Address: address}}, IDs: []belfry.ID{belfry.MakeID(at, 3, 1)},
	}
	tx := begin(t, db)
	enqueueIn(t, tx, e)
	if _, err := s.Recipient(t.Context(), "default", "new"); belfry.CodeOf(err) != belfry.CodeNotFound {
		t.Errorf("before the commit: %v", err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if list, err := s.Endpoints(t.Context(), "default", "new"); err != nil || len(list) != 1 {
		t.Errorf("%+v %v", list, err)
	}
}

func TestAFactToldInACallersTransactionIsADuplicateAfterwards(t *testing.T) {
	s, db := own(t)
	once := func(n int) store.Entry {
		e := entry(n)
		e.Notification.Once = &belfry.Once{Per: belfry.Ever}
		e.Fact = func(string) (string, error) { return "the fact", nil }
		return e
	}
	tx := begin(t, db)
	first, second := enqueueIn(t, tx, once(1)), enqueueIn(t, tx, once(2))
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	out, err := s.Enqueue(t.Context(), []store.Entry{once(3)}, true)
	if err != nil || first.Duplicate || !second.Duplicate || !out[0].Duplicate || out[0].ID != first.ID {
		t.Errorf("%+v, %+v, %+v: %v", first, second, out, err)
	}
}
