// Package postgres keeps the engine's state in a PostgreSQL database, which several engines share: they find
// work, hold it by claims with leases, and exclude each other by the database alone. It keeps to what
// store/sqlite keeps to, file by file; what differs is that nothing is remembered between transactions that
// another node could change.
//
// What was acknowledged is on the disk of the server: commits wait for it, though the server may be set
// otherwise. Only claims are committed without waiting, since a claim that a crash undoes has left its items
// where they were.
//
// Nothing is kept in a session: names are found by a search path and waits end by a lock timeout that each
// transaction sets for itself, locks end with it, and statements are described once and never prepared under
// a name. So a pooler in transaction mode may stand between.
//
// Ended rows are in plain tables, in the order of their ids, and not in partitions by time: a notification
// enqueued long ago may still wait, so its partition could not be dropped. Claims never look there.
package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"belfry"
	"belfry/store"
)

// Options of a store. The zero value is the safe default.
type Options struct {
	// Schema is where the tables are; default "belfry". It is made when it is not there.
	Schema string
	// Synchronous is on (default) or off, with which a crash of the server may undo what was acknowledged
	// last, though nothing else. A stricter setting of the server's (remote_apply …) stays in force.
	Synchronous string
	// Group is the most rows that share a commit; default 2,048.
	Group int
	// Writers is how many transactions of a kind (enqueue, arm, settle) this process has open at a time;
	// default 2.
	Writers int
	// Connections is the most connections that this process opens; default 16.
	Connections int
	// Busy is how long a statement waits for a lock; default 5 s.
	Busy time.Duration
	// Answer is how long a transaction may take before its connection is given up; default 1 min.
	Answer time.Duration
}

// Store is a store.Store on one schema of a database.
type Store struct {
	options Options
	pool    *pgxpool.Pool
	space   int32 // of this schema's advisory locks
	begin   [3]string

	enqueues *gatherer[enqueueCall, []store.Enqueued]
	arms     *gatherer[store.Arm, armed]
	settles  *gatherer[[]store.Settlement, []store.Settled]
	done     sync.WaitGroup
	closed   chan struct{}
	closing  sync.Once

	held claimCache
}

var _ store.Store = (*Store)(nil)

// OldestServer is the oldest server that will do.
const OldestServer = 14

// Open connects to the database that a URL or a list of settings names, and brings the schema up to date.
// Settings of its own that a pool understands (pool_max_conns …) may be among them.
func Open(ctx context.Context, dsn string, o Options) (*Store, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil { // whose text holds parts of it
		return nil, errors.New("postgres: the address of the database is not understood: want postgres://user@host:5432/database")
	}
	o.Schema = cmp.Or(o.Schema, "belfry")
	o.Synchronous = cmp.Or(o.Synchronous, "on")
	if o.Synchronous != "on" && o.Synchronous != "off" {
		return nil, fmt.Errorf("postgres: synchronous is %q: want on or off", o.Synchronous)
	}
	o.Group = cmp.Or(o.Group, 2048)
	o.Writers = cmp.Or(o.Writers, 2)
	o.Busy = cmp.Or(o.Busy, 5*time.Second)
	o.Answer = cmp.Or(o.Answer, time.Minute)
	if o.Connections > 0 || !strings.Contains(dsn, "pool_max_conns") {
		config.MaxConns = int32(cmp.Or(o.Connections, 16))
	}
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	config.ConnConfig.ConnectTimeout = cmp.Or(config.ConnConfig.ConnectTimeout, 10*time.Second)
	if config.ConnConfig.RuntimeParams["application_name"] == "" {
		config.ConnConfig.RuntimeParams["application_name"] = "belfry"
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, explain(err)
	}
	s := &Store{options: o, pool: pool, space: spaceOf(o.Schema), closed: make(chan struct{})}
	if err := s.open(ctx); err != nil {
		pool.Close()
		return nil, err
	}
	s.held.init()
	s.enqueues = gather(s, s.enqueueAll)
	s.arms = gather(s, s.armAll)
	s.settles = gather(s, s.settleAll)
	return s, nil
}

func spaceOf(schema string) int32 {
	h := fnv.New32a()
	h.Write([]byte("belfry\x00" + schema))
	return int32(h.Sum32())
}

func (s *Store) open(ctx context.Context) error {
	var version int
	var encoding, synchronous string
	err := s.pool.QueryRow(ctx, `SELECT current_setting('server_version_num')::int / 10000, current_setting('server_encoding'), current_setting('synchronous_commit')`).Scan(&version, &encoding, &synchronous)
	if err != nil {
		return fmt.Errorf("postgres: connect: %w", explain(err))
	}
	if version < OldestServer {
		return fmt.Errorf("postgres: the server is version %d: belfry needs %d or newer", version, OldestServer)
	}
	if encoding != "UTF8" {
		return fmt.Errorf("postgres: the database has encoding %s: make one with UTF8", encoding)
	}
	local := fmt.Sprintf(`; SET LOCAL search_path TO %s; SET LOCAL lock_timeout TO %d`, pgx.Identifier{s.options.Schema}.Sanitize(), s.options.Busy.Milliseconds())
	s.begin = [...]string{
		durable:  `BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE` + local,
		lazy:     `BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE` + local + `; SET LOCAL synchronous_commit TO off`,
		snapshot: `BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY` + local,
	}
	if o := s.options.Synchronous; o == "off" || synchronous == "off" {
		s.begin[durable] += `; SET LOCAL synchronous_commit TO ` + o
	}
	return s.migrate(ctx, time.Now())
}

// Close finishes what was taken, and lets go of the connections.
func (s *Store) Close() error {
	s.closing.Do(func() {
		close(s.closed)
		s.done.Wait()
		s.pool.Close()
	})
	return nil
}

// Ping writes a row, so that a full disk or a server that only reads shows.
func (s *Store) Ping(ctx context.Context) error {
	return s.do(ctx, durable, func(tx *txn) error {
		return tx.exec(`INSERT INTO secret (name, value) VALUES ('ping', $1) ON CONFLICT (name) DO UPDATE SET value = $1`, time.Now().UTC().Format(time.RFC3339))
	})
}

// explain gives the server's errors a code and says what to do.
func explain(err error) error {
	var e *pgconn.PgError
	var c *pgconn.ConnectError
	switch {
	case err == nil || belfry.CodeOf(err) != "":
		return err
	case errors.Is(err, errAgain):
		return belfry.Errorf(belfry.CodeBusy, "the database is torn between transactions: try again")
	case errors.As(err, &e):
		return explainServer(e)
	case errors.As(err, &c):
		return fmt.Errorf("postgres: the database cannot be reached: is it running, and may this host connect? %w", err)
	}
	return err
}

func explainServer(e *pgconn.PgError) error {
	say := func(code belfry.Code, text string) error {
		if code == "" {
			return fmt.Errorf("postgres: %s (%s)", text, e.Code)
		}
		return belfry.Errorf(code, "%s (%s)", text, e.Code)
	}
	switch e.Code {
	case "55P03":
		return say(belfry.CodeBusy, "the database is held by another transaction: try again")
	case "40001", "40P01":
		return say(belfry.CodeBusy, "the database is torn between transactions: try again")
	case "53100":
		return say(belfry.CodeStoreFull, "the disk with the database is full: make room")
	case "53300":
		return say(belfry.CodeBusy, "the database has no connection left: raise max_connections, or lower connections")
	case "25006":
		return say("", "the database is read-only: connect to the primary")
	case "57P03", "57P01", "57P02":
		return say(belfry.CodeBusy, "the database is starting or stopping: try again")
	case "57014":
		return say(belfry.CodeBusy, "the database took too long: try again")
	case "28000", "28P01":
		return say("", "the database refuses this user: see its user, its password and pg_hba.conf")
	case "3D000":
		return say("", "there is no such database: make it with CREATE DATABASE")
	case "42501":
		return say("", "this user may not do that: grant it CREATE on the database, or ownership of the schema")
	}
	// Neither detail nor hint: they hold values.
	return fmt.Errorf("postgres: %s (%s)", e.Message, e.Code)
}
