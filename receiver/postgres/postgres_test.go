package postgres_test

import (
	"context"
	"database/sql"
	"os"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"

	"belfry/internal/pgtest"
	"belfry/receiver/postgres"
	"belfry/receiver/receivertest"
)

const (
	makeBooking = "CREATE TABLE IF NOT EXISTS booking (id text NOT NULL)"
	book        = "INSERT INTO booking (id) VALUES ($1)"
	booked      = "SELECT id, count(*) FROM booking GROUP BY id"
)

func newDatabase(t testing.TB) string {
	url := pgtest.New(t)
	// Before the processes of the kill tests could make it at the same moment.
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	if _, err := c.Exec(t.Context(), makeBooking); err != nil {
		t.Fatal(err)
	}
	return url
}

var byPgx = receivertest.Setup[pgx.Tx]{Name: "pgx", Atomic: true, New: newDatabase, Open: openPgx}

func openPgx(ctx context.Context, address string) (*receivertest.Fixture[pgx.Tx], error) {
	config, err := pgxpool.ParseConfig(address)
	if err != nil {
		return nil, err
	}
	config.MaxConns = 30 // so that twins meet at the row, not before a connection
	config.ConnConfig.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		if n.Code == "25001" {
			panic("a transaction began twice")
		}
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	store, err := postgres.Open(ctx, pool)
	if err != nil {
		return nil, err
	}
	return &receivertest.Fixture[pgx.Tx]{
		Store: store,
		Book: func(ctx context.Context, tx pgx.Tx, id string) error {
			_, err := tx.Exec(ctx, book, id)
			return err
		},
		Booked: func(ctx context.Context) (map[string]int, error) {
			rows, err := pool.Query(ctx, booked)
			if err != nil {
				return nil, err
			}
			all := map[string]int{}
			var id string
			var n int
			_, err = pgx.ForEachRow(rows, []any{&id, &n}, func() error { all[id] = n; return nil })
			return all, err
		},
		Fill: func(ctx context.Context, n int) error {
			_, err := pool.Exec(ctx, `INSERT INTO receiver_inbox (source, id, seen_at, epoch, fingerprint)
SELECT 'default', 'msg_' || lpad(n::text, 12, '0'), now(), 0, sha256(n::text::bytea) FROM generate_series(0, $1 - 1) n`, n)
			if err == nil {
				_, err = pool.Exec(ctx, "VACUUM ANALYZE receiver_inbox")
			}
			return err
		},
		Close: pool.Close,
	}, nil
}

var bySQL = receivertest.Setup[*sql.Tx]{Name: "sql", Atomic: true, New: newDatabase, Open: openSQL}

func openSQL(ctx context.Context, address string) (*receivertest.Fixture[*sql.Tx], error) {
	db, err := sql.Open("pgx", address)
	if err != nil {
		return nil, err
	}
	store, err := postgres.OpenSQL(ctx, db)
	if err != nil {
		return nil, err
	}
	return &receivertest.Fixture[*sql.Tx]{
		Store: store,
		Book: func(ctx context.Context, tx *sql.Tx, id string) error {
			_, err := tx.ExecContext(ctx, book, id)
			return err
		},
		Booked: func(ctx context.Context) (map[string]int, error) {
			rows, err := db.QueryContext(ctx, booked)
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
		Close: func() { db.Close() },
	}, nil
}

// A process of the kill tests never gets as far as starting a server.
func TestMain(m *testing.M) { os.Exit(receivertest.Main(server{m}, byPgx, bySQL)) }

type server struct{ m *testing.M }

func (s server) Run() int { return pgtest.Main(s.m) }

// Where transactions see one state of the database, twins collide instead of waiting, and run again.
func TestStoreWithSerializableTransactions(t *testing.T) {
	strict := byPgx
	strict.Open = func(ctx context.Context, address string) (*receivertest.Fixture[pgx.Tx], error) {
		return openPgx(ctx, address+"&default_transaction_isolation=serializable")
	}
	if testing.Short() {
		t.Skip("the kill loops again")
	}
	receivertest.Run(t, strict)
}

func TestStore(t *testing.T)    { receivertest.Run(t, byPgx) }
func TestSQLStore(t *testing.T) { receivertest.Run(t, bySQL) }

func BenchmarkOnce(b *testing.B)    { receivertest.Bench(b, byPgx) }
func BenchmarkLookup(b *testing.B)  { receivertest.Lookup(b, byPgx) }
func BenchmarkOnceSQL(b *testing.B) { receivertest.Bench(b, bySQL) }

func TestTablesCanBeMadeByManyAtOnce(t *testing.T) {
	url := pgtest.New(t)
	var all sync.WaitGroup
	for i := range 10 {
		all.Go(func() {
			if i%2 == 0 {
				f, err := openPgx(t.Context(), url)
				if err != nil {
					t.Error(err)
					return
				}
				f.Close()
				return
			}
			f, err := openSQL(t.Context(), url)
			if err != nil {
				t.Error(err)
				return
			}
			f.Close()
		})
	}
	all.Wait()
}
