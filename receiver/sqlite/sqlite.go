// Package sqlite remembers messages in the caller's own SQLite database, in the transaction in which an effect writes.
//
// It brings no driver: any for database/sql will do. A transaction of SQLite shuts out every other writer, so twins
// and strangers alike wait for one another, within a process in their order.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"belfry/receiver"
)

// Schema makes the tables, if they are not there, for those who keep their migrations themselves. [Open] runs it.
const Schema = `
CREATE TABLE IF NOT EXISTS receiver_inbox (
	source TEXT NOT NULL, id TEXT NOT NULL, seen_ms INTEGER NOT NULL, epoch INTEGER NOT NULL, fingerprint BLOB,
	PRIMARY KEY (source, id)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS receiver_inbox_seen ON receiver_inbox (source, seen_ms);
CREATE TABLE IF NOT EXISTS receiver_failure (
	source TEXT NOT NULL, id TEXT NOT NULL, at_ms INTEGER NOT NULL, failures INTEGER NOT NULL, reason TEXT NOT NULL,
	PRIMARY KEY (source, id)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS receiver_aside (
	source TEXT NOT NULL, id TEXT NOT NULL, at_ms INTEGER NOT NULL, failures INTEGER NOT NULL, epoch INTEGER NOT NULL,
	reason TEXT NOT NULL, body BLOB, PRIMARY KEY (source, id)) WITHOUT ROWID;
`

// Store is a store on SQLite.
type Store struct {
	db   *sql.DB
	turn chan struct{} // SQLite would let waiting writers in by chance
}

var _ receiver.Store[*sql.Tx] = (*Store)(nil)

// Open makes the tables that are missing and returns a Store. It refuses connections without busy_timeout, on which a
// copy that comes while another process writes would fail at once instead of waiting.
func Open(ctx context.Context, db *sql.DB) (*Store, error) {
	var busy int
	if err := db.QueryRowContext(ctx, "PRAGMA busy_timeout").Scan(&busy); err != nil {
		return nil, fmt.Errorf("receiver/sqlite: %w", err)
	}
	if busy == 0 {
		return nil, errors.New("receiver/sqlite: the connections have no busy_timeout; open the database with _pragma=busy_timeout(10000), or as your driver spells it")
	}
	if _, err := db.ExecContext(ctx, Schema); err != nil {
		return nil, fmt.Errorf("receiver/sqlite: make the tables: %w", err)
	}
	return &Store{db, make(chan struct{}, 1)}, nil
}

func (s *Store) InTx(ctx context.Context, fn func(tx *sql.Tx) error) error {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("receiver/sqlite: begin: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // after a commit it does nothing
	if err := fn(tx); err != nil {
		return err
	}
	switch err := tx.Commit(); {
	case err == nil:
		return nil
	case errors.Is(err, sql.ErrTxDone), err == ctx.Err(): // bare: database/sql looks at ctx before it lets the driver commit
		return err
	default:
		return fmt.Errorf("%w: %w", receiver.ErrOutcomeUnknown, err)
	}
}

const claim = `INSERT INTO receiver_inbox AS i (source, id, seen_ms, epoch, fingerprint) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (source, id) DO UPDATE SET seen_ms = excluded.seen_ms, epoch = excluded.epoch, fingerprint = excluded.fingerprint
WHERE i.seen_ms < ?6`

const known = `SELECT seen_ms, epoch, fingerprint FROM receiver_inbox WHERE source = ?1 AND id = ?2`

func (s *Store) Claim(ctx context.Context, tx *sql.Tx, e receiver.Entry, since time.Time) (receiver.Entry, bool, error) {
	fresh, err := changed(tx.ExecContext(ctx, claim, e.Source, e.ID, e.Seen.UnixMilli(), e.Epoch, e.Fingerprint, since.UnixMilli()))
	if err != nil || fresh {
		return receiver.Entry{}, fresh, err
	}
	earlier := receiver.Entry{Source: e.Source, ID: e.ID}
	var seen int64
	err = tx.QueryRowContext(ctx, known, e.Source, e.ID).Scan(&seen, &earlier.Epoch, &earlier.Fingerprint)
	earlier.Seen = time.UnixMilli(seen)
	return earlier, false, err
}

// changed reports whether a statement did anything.
func changed(done sql.Result, err error) (bool, error) {
	if err != nil {
		return false, err
	}
	n, err := done.RowsAffected()
	return n > 0, err
}

const fail = `INSERT INTO receiver_failure (source, id, at_ms, failures, reason) VALUES (?1, ?2, ?3, 1, ?4)
ON CONFLICT (source, id) DO UPDATE SET at_ms = excluded.at_ms, failures = failures + 1, reason = excluded.reason
RETURNING failures`

func (s *Store) Fail(ctx context.Context, f receiver.Failure) (n int, err error) {
	err = s.InTx(ctx, func(tx *sql.Tx) error {
		return tx.QueryRowContext(ctx, fail, f.Source, f.ID, f.At.UnixMilli(), f.Reason).Scan(&n)
	})
	return n, err
}

const setAside = `INSERT OR REPLACE INTO receiver_aside (source, id, at_ms, failures, epoch, reason, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)`

const succeed = `DELETE FROM receiver_failure WHERE source = ?1 AND id = ?2`

func (s *Store) SetAside(ctx context.Context, tx *sql.Tx, a receiver.Aside) error {
	_, err := tx.ExecContext(ctx, setAside, a.Source, a.ID, a.At.UnixMilli(), a.Failures, a.Epoch, a.Reason, a.Body)
	if err == nil {
		_, err = tx.ExecContext(ctx, succeed, a.Source, a.ID)
	}
	return err
}

const asides = `SELECT id, at_ms, failures, epoch, reason, body FROM receiver_aside WHERE source = ?1 ORDER BY at_ms, id LIMIT ?2`

func (s *Store) Asides(ctx context.Context, source string, limit int) ([]receiver.Aside, error) {
	rows, err := s.db.QueryContext(ctx, asides, source, limit)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []receiver.Aside
	for rows.Next() {
		a := receiver.Aside{Source: source}
		var at int64
		if err := rows.Scan(&a.ID, &at, &a.Failures, &a.Epoch, &a.Reason, &a.Body); err != nil {
			return nil, err
		}
		a.At = time.UnixMilli(at)
		all = append(all, a)
	}
	return all, rows.Err()
}

const (
	forgetInbox = `DELETE FROM receiver_inbox WHERE source = ?1 AND id = ?2`
	forgetAside = `DELETE FROM receiver_aside WHERE source = ?1 AND id = ?2`
)

func (s *Store) Forget(ctx context.Context, source, id string) (was bool, err error) {
	err = s.InTx(ctx, func(tx *sql.Tx) error {
		for _, statement := range []string{forgetInbox, succeed} {
			if _, err := tx.ExecContext(ctx, statement, source, id); err != nil {
				return err
			}
		}
		var err error
		was, err = changed(tx.ExecContext(ctx, forgetAside, source, id))
		return err
	})
	return was, err
}

const purge = `DELETE FROM receiver_inbox WHERE source = ?1 AND seen_ms < ?2
AND id IN (SELECT id FROM receiver_inbox WHERE source = ?1 AND seen_ms < ?2 ORDER BY seen_ms LIMIT ?3)`

const purgeFailures = `DELETE FROM receiver_failure WHERE source = ?1 AND at_ms < ?2`

func (s *Store) Purge(ctx context.Context, source string, cut time.Time, limit int) (n int, err error) {
	err = s.InTx(ctx, func(tx *sql.Tx) error {
		done, err := tx.ExecContext(ctx, purge, source, cut.UnixMilli(), limit)
		if err != nil {
			return err
		}
		deleted, err := done.RowsAffected()
		if n = int(deleted); err != nil || n == limit {
			return err
		}
		_, err = tx.ExecContext(ctx, purgeFailures, source, cut.UnixMilli())
		return err
	})
	return n, err
}

// Again is always false: writers take turns.
func (s *Store) Again(error) bool { return false }
