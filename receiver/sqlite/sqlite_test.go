package sqlite_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"belfry/receiver/receivertest"
	"belfry/receiver/sqlite"
)

var setup = receivertest.Setup[*sql.Tx]{
	Name:   "sqlite",
	Atomic: true,
	New: func(t testing.TB) string {
		return "file:" + filepath.Join(t.TempDir(), "test.db") + "?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(10000)"
	},
	Open: open,
}

func open(ctx context.Context, address string) (*receivertest.Fixture[*sql.Tx], error) {
	db, err := sql.Open("sqlite", address)
	if err != nil {
		return nil, err
	}
	store, err := sqlite.Open(ctx, db)
	if err == nil {
		_, err = db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS booking (id TEXT NOT NULL)")
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", address, err)
	}
	return &receivertest.Fixture[*sql.Tx]{
		Store: store,
		Book: func(ctx context.Context, tx *sql.Tx, id string) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO booking (id) VALUES (?)", id)
			return err
		},
		Booked: func(ctx context.Context) (map[string]int, error) {
			rows, err := db.QueryContext(ctx, "SELECT id, count(*) FROM booking GROUP BY id")
			if err != nil {
				return nil, err
			}
			defer rows.Close()
			all := map[string]int{}
			for rows.Next() {
				var id string
				var n int
				if err := rows.Scan(&id, &n); err != nil {
					return nil, err
				}
				all[id] = n
			}
			return all, rows.Err()
		},
		Fill: func(ctx context.Context, n int) error {
			_, err := db.ExecContext(ctx, `WITH RECURSIVE i(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM i WHERE n + 1 < ?)
INSERT INTO receiver_inbox (source, id, seen_ms, epoch, fingerprint) SELECT 'default', printf('msg_%012d', n), ?, 0, randomblob(32) FROM i`,
				n, time.Now().UnixMilli())
			return err
		},
		Close: func() { db.Close() },
	}, nil
}

func TestMain(m *testing.M) { os.Exit(receivertest.Main(m, setup)) }

func TestStore(t *testing.T) { receivertest.Run(t, setup) }

func BenchmarkOnce(b *testing.B)   { receivertest.Bench(b, setup) }
func BenchmarkLookup(b *testing.B) { receivertest.Lookup(b, setup) }

func TestConnectionsThatDoNotWaitAreRefused(t *testing.T) {
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "test.db")+"?_pragma=busy_timeout(0)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := sqlite.Open(t.Context(), db); err == nil || !strings.Contains(err.Error(), "busy_timeout") {
		t.Error(err)
	}
}
