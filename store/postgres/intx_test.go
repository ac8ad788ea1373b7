package postgres_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib"

	"belfry"
	"belfry/internal/pgtest"
	"belfry/store"
	"belfry/store/postgres"
)

// inTx is a caller's transaction in either form.
type inTx struct {
	enqueue          func(context.Context, []store.Entry) ([]store.Enqueued, error)
	exec             func(query string) error
	path             func() string
	commit, rollback func() error
}

func TestTheCallersOwnTransaction(t *testing.T) {
	url := pgtest.New(t)
	s := open(t, url, "belfry of mine")
	t.Cleanup(func() { s.Close() })
	if _, err := s.PutRecipient(t.Context(), morning, belfry.Recipient{Project: "shop", ID: "ann", Zone: "UTC"}); err != nil {
		t.Fatal(err)
	}
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(context.Background()) })
	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	if _, err := c.Exec(t.Context(), `CREATE TABLE orders (n int)`); err != nil {
		t.Fatal(err)
	}
	seq := uint16(0)
	entry := func(who, key string) store.Entry {
		seq++
		return store.Entry{
			Notification: belfry.Notification{ID: belfry.MakeID(morning, 2, seq), Project: "shop", Recipient: who, Category: "news", CreatedAt: morning, Due: morning, Deadline: morning.Add(time.Hour),
				Lane: belfry.Normal, Options: belfry.Options{Once: &belfry.Once{Per: belfry.Ever}}},
			Key:  store.Key{Text: key, Expires: morning.Add(time.Hour)},
			Fact: func(string) (string, error) { return "fact of " + key, nil },
		}
	}
	for name, begin := range map[string]func(*testing.T) inTx{
		"pgx": func(t *testing.T) inTx {
			tx, err := c.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return inTx{
				postgres.In(tx, "belfry of mine").Enqueue,
				func(q string) error { _, err := tx.Exec(t.Context(), q); return err },
				func() (path string) { tx.QueryRow(t.Context(), `SHOW search_path`).Scan(&path); return path },
				func() error { return tx.Commit(t.Context()) }, func() error { return tx.Rollback(t.Context()) },
			}
		},
		"sql": func(t *testing.T) inTx {
			tx, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			return inTx{
				postgres.InSQL(tx, "belfry of mine").Enqueue,
				func(q string) error { _, err := tx.ExecContext(t.Context(), q); return err },
				func() (path string) { tx.QueryRowContext(t.Context(), `SHOW search_path`).Scan(&path); return path },
				tx.Commit, tx.Rollback,
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			exists := func(id belfry.ID) bool {
				_, err := s.Notification(t.Context(), "shop", id)
				return err == nil
			}
			tx := begin(t)
			first := entry("ann", name)
			if _, err := tx.enqueue(t.Context(), []store.Entry{first}); err != nil {
				t.Fatal(err)
			}
			if err := tx.rollback(); err != nil || exists(first.Notification.ID) {
				t.Errorf("rolled back, and it is there (%v)", err)
			}

			tx = begin(t)
			if out, err := tx.enqueue(t.Context(), []store.Entry{first}); err != nil || out[0].ID != first.Notification.ID {
				t.Fatalf("%+v, %v", out, err)
			}
			// A repeated key, a fact that was told, and one that is refused leave the transaction usable.
			again := entry("ann", name)
			if out, err := tx.enqueue(t.Context(), []store.Entry{again}); err != nil || !out[0].Replayed || out[0].ID != first.Notification.ID {
				t.Errorf("the same key: %+v, %v", out, err)
			}
			told := entry("ann", name)
			told.Key = store.Key{}
			if out, err := tx.enqueue(t.Context(), []store.Entry{told}); err != nil || !out[0].Duplicate || out[0].ID != first.Notification.ID {
				t.Errorf("the same fact: %+v, %v", out, err)
			}
			good, bad := entry("ann", name+" good"), entry("nobody", name+" bad")
			if out, err := tx.enqueue(t.Context(), []store.Entry{good, bad}); err != nil || belfry.CodeOf(out[1].Err) != belfry.CodeUnknownRecipient {
				t.Errorf("refused: %+v, %v", out, err)
			}
			if err := tx.exec(`INSERT INTO orders VALUES (1)`); err != nil {
				t.Errorf("the caller's own tables are not found any more: %v", err)
			}
			if path := tx.path(); path != `"$user", public` {
				t.Errorf("the search path is %s", path)
			}
			if err := tx.commit(); err != nil || !exists(first.Notification.ID) || exists(good.Notification.ID) {
				t.Errorf("committed (%v): first %v, of a refused batch %v", err, exists(first.Notification.ID), exists(good.Notification.ID))
			}
		})
	}
}
