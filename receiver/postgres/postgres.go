// Package postgres remembers messages in the caller's own PostgreSQL database, in the transaction in which an effect
// writes: [Open] for pgx, [OpenSQL] for database/sql with any driver.
//
// While one transaction handles a message, a copy of it waits, and it alone: strangers do not meet.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"belfry/receiver"
)

// Schema makes the tables, if they are not there, for those who keep their migrations themselves. [Open] and [OpenSQL]
// run it when a table is missing, in the first schema of the search path.
const Schema = `
CREATE TABLE IF NOT EXISTS receiver_inbox (
	source text NOT NULL, id text NOT NULL, seen_at timestamptz NOT NULL, epoch bigint NOT NULL, fingerprint bytea,
	PRIMARY KEY (source, id));
CREATE INDEX IF NOT EXISTS receiver_inbox_seen ON receiver_inbox USING brin (seen_at) WITH (pages_per_range = 32);
CREATE TABLE IF NOT EXISTS receiver_failure (
	source text NOT NULL, id text NOT NULL, at timestamptz NOT NULL, failures integer NOT NULL, reason text NOT NULL,
	PRIMARY KEY (source, id));
CREATE TABLE IF NOT EXISTS receiver_aside (
	source text NOT NULL, id text NOT NULL, at timestamptz NOT NULL, failures integer NOT NULL, epoch bigint NOT NULL,
	reason text NOT NULL, body bytea, PRIMARY KEY (source, id));
`

const (
	// IF NOT EXISTS alone fails when two programs start at once.
	lockSchema = `SELECT pg_advisory_xact_lock(7305804385)`
	hasSchema  = `SELECT to_regclass('receiver_inbox') IS NOT NULL AND to_regclass('receiver_failure') IS NOT NULL AND to_regclass('receiver_aside') IS NOT NULL`
)

// Not DO UPDATE for ids that are too old: it would lock the row of every duplicate, and a lock is written to the disk.
const claim = `INSERT INTO receiver_inbox (source, id, seen_at, epoch, fingerprint) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (source, id) DO NOTHING`

const renew = `UPDATE receiver_inbox SET seen_at = $3, epoch = $4, fingerprint = $5 WHERE source = $1 AND id = $2 AND seen_at < $6`

const known = `SELECT seen_at, epoch, fingerprint FROM receiver_inbox WHERE source = $1 AND id = $2`

const fail = `INSERT INTO receiver_failure AS f (source, id, at, failures, reason) VALUES ($1, $2, $3, 1, $4)
ON CONFLICT (source, id) DO UPDATE SET at = excluded.at, failures = f.failures + 1, reason = excluded.reason
RETURNING failures`

const setAside = `INSERT INTO receiver_aside (source, id, at, failures, epoch, reason, body) VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (source, id) DO UPDATE SET at = excluded.at, failures = excluded.failures, epoch = excluded.epoch,
reason = excluded.reason, body = excluded.body`

const succeed = `DELETE FROM receiver_failure WHERE source = $1 AND id = $2`

const asides = `SELECT id, at, failures, epoch, reason, body FROM receiver_aside WHERE source = $1 ORDER BY at, id LIMIT $2`

const (
	forgetInbox = `DELETE FROM receiver_inbox WHERE source = $1 AND id = $2`
	forgetAside = `DELETE FROM receiver_aside WHERE source = $1 AND id = $2`
)

// An entry that is being renewed is locked, and skipped.
const purge = `DELETE FROM receiver_inbox WHERE ctid = ANY (ARRAY(
SELECT ctid FROM receiver_inbox WHERE source = $1 AND seen_at < $2 LIMIT $3 FOR UPDATE SKIP LOCKED))`

const purgeFailures = `DELETE FROM receiver_failure WHERE source = $1 AND at < $2`

// again reports whether a transaction was rolled back because of another one.
func again(err error) bool {
	switch sqlState(err) {
	case "40001", "40P01": // serialization_failure, deadlock_detected
		return true
	}
	return false
}

// sqlState is the code of an error of the server, whatever the driver.
func sqlState(err error) string {
	var e interface{ SQLState() string }
	if errors.As(err, &e) {
		return e.SQLState()
	}
	return ""
}

// committing gives an error of a commit its meaning. Only a refusal by the server itself is certain. Even an
// admin_shutdown is not: the server can send it after the commit, when it waits for a replica.
func committing(err error) error {
	if state := sqlState(err); len(state) == 5 && (state[:2] == "40" || state[:2] == "23") {
		return err
	}
	return fmt.Errorf("%w: %w", receiver.ErrOutcomeUnknown, err)
}

// Store is a store on PostgreSQL by way of pgx.
type Store struct{ pool *pgxpool.Pool }

var _ receiver.Store[pgx.Tx] = (*Store)(nil)

// Open makes the tables that are missing and returns a Store.
func Open(ctx context.Context, pool *pgxpool.Pool) (*Store, error) {
	s := &Store{pool}
	var there bool
	if err := pool.QueryRow(ctx, hasSchema).Scan(&there); err != nil {
		return nil, fmt.Errorf("receiver/postgres: %w", err)
	}
	if there {
		return s, nil
	}
	err := s.InTx(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, lockSchema); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, Schema)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("receiver/postgres: make the tables: %w", err)
	}
	return s, nil
}

func (s *Store) InTx(ctx context.Context, fn func(tx pgx.Tx) error) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("receiver/postgres: get a connection: %w", err)
	}
	defer conn.Release()
	tx := &lazy{conn: conn}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_ = tx.Rollback(ctx) // after a commit it does nothing
	}()
	if err := fn(tx); err != nil {
		return err
	}
	switch err := tx.Commit(ctx); {
	case err == nil:
		return nil
	case errors.Is(err, pgx.ErrTxCommitRollback), errors.Is(err, pgx.ErrTxClosed), pgconn.SafeToRetry(err): // not even sent
		return err
	default:
		return committing(err)
	}
}

func (s *Store) Claim(ctx context.Context, tx pgx.Tx, e receiver.Entry, since time.Time) (receiver.Entry, bool, error) {
	for {
		if fresh, err := claimID(ctx, tx, e); err != nil || fresh {
			return receiver.Entry{}, fresh, err
		}
		earlier := receiver.Entry{Source: e.Source, ID: e.ID}
		switch err := tx.QueryRow(ctx, known, e.Source, e.ID).Scan(&earlier.Seen, &earlier.Epoch, &earlier.Fingerprint); {
		case errors.Is(err, pgx.ErrNoRows): // purged meanwhile
			continue
		case err != nil || !earlier.Seen.Before(since):
			return earlier, false, err
		}
		if done, err := tx.Exec(ctx, renew, e.Source, e.ID, e.Seen, e.Epoch, e.Fingerprint, since); err != nil || done.RowsAffected() == 1 {
			return receiver.Entry{}, err == nil, err
		}
	}
}

func (s *Store) Fail(ctx context.Context, f receiver.Failure) (n int, err error) {
	err = s.pool.QueryRow(ctx, fail, f.Source, f.ID, f.At, f.Reason).Scan(&n)
	return n, err
}

func (s *Store) SetAside(ctx context.Context, tx pgx.Tx, a receiver.Aside) error {
	_, err := tx.Exec(ctx, setAside, a.Source, a.ID, a.At, a.Failures, a.Epoch, a.Reason, a.Body)
	if err == nil {
		_, err = tx.Exec(ctx, succeed, a.Source, a.ID)
	}
	return err
}

func (s *Store) Asides(ctx context.Context, source string, limit int) ([]receiver.Aside, error) {
	rows, err := s.pool.Query(ctx, asides, source, limit)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (receiver.Aside, error) {
		a := receiver.Aside{Source: source}
		err := row.Scan(&a.ID, &a.At, &a.Failures, &a.Epoch, &a.Reason, &a.Body)
		return a, err
	})
}

func (s *Store) Forget(ctx context.Context, source, id string) (was bool, err error) {
	err = s.InTx(ctx, func(tx pgx.Tx) error {
		for _, statement := range []string{forgetInbox, succeed} {
			if _, err := tx.Exec(ctx, statement, source, id); err != nil {
				return err
			}
		}
		done, err := tx.Exec(ctx, forgetAside, source, id)
		was = err == nil && done.RowsAffected() > 0
		return err
	})
	return was, err
}

// Purge reads what is committed, whatever the database's default: what is stricter would collide with everything.
func (s *Store) Purge(ctx context.Context, source string, cut time.Time, limit int) (n int, err error) {
	err = pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		done, err := tx.Exec(ctx, purge, source, cut, limit)
		if n = int(done.RowsAffected()); err != nil || n == limit {
			return err
		}
		_, err = tx.Exec(ctx, purgeFailures, source, cut)
		return err
	})
	return n, err
}

// Again is true for a serialization failure and a deadlock.
func (s *Store) Again(err error) bool { return again(err) }
