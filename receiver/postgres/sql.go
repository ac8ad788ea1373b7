package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"belfry/receiver"
)

// SQLStore is a store on PostgreSQL by way of database/sql.
type SQLStore struct{ db *sql.DB }

var _ receiver.Store[*sql.Tx] = (*SQLStore)(nil)

// OpenSQL is [Open] for database/sql.
func OpenSQL(ctx context.Context, db *sql.DB) (*SQLStore, error) {
	s := &SQLStore{db}
	var there bool
	if err := db.QueryRowContext(ctx, hasSchema).Scan(&there); err != nil {
		return nil, fmt.Errorf("receiver/postgres: %w", err)
	}
	if there {
		return s, nil
	}
	err := s.InTx(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, lockSchema); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, Schema)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("receiver/postgres: make the tables: %w", err)
	}
	return s, nil
}

func (s *SQLStore) InTx(ctx context.Context, fn func(tx *sql.Tx) error) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("receiver/postgres: begin: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // after a commit it does nothing
	if err := fn(tx); err != nil {
		return err
	}
	switch err := tx.Commit(); {
	case err == nil:
		return nil
	case errors.Is(err, sql.ErrTxDone), errors.Is(err, pgx.ErrTxCommitRollback):
		return err
	case err == ctx.Err(): // bare: database/sql looks at ctx before it lets the driver commit
		return err
	default:
		return committing(err)
	}
}

func (s *SQLStore) Claim(ctx context.Context, tx *sql.Tx, e receiver.Entry, since time.Time) (receiver.Entry, bool, error) {
	for {
		fresh, err := changed(tx.ExecContext(ctx, claim, e.Source, e.ID, e.Seen, e.Epoch, e.Fingerprint))
		if err != nil || fresh {
			return receiver.Entry{}, fresh, err
		}
		earlier := receiver.Entry{Source: e.Source, ID: e.ID}
		switch err := tx.QueryRowContext(ctx, known, e.Source, e.ID).Scan(&earlier.Seen, &earlier.Epoch, &earlier.Fingerprint); {
		case errors.Is(err, sql.ErrNoRows): // purged meanwhile
			continue
		case err != nil || !earlier.Seen.Before(since):
			return earlier, false, err
		}
		fresh, err = changed(tx.ExecContext(ctx, renew, e.Source, e.ID, e.Seen, e.Epoch, e.Fingerprint, since))
		if err != nil || fresh {
			return receiver.Entry{}, fresh, err
		}
	}
}

// changed reports whether a statement did anything.
func changed(done sql.Result, err error) (bool, error) {
	if err != nil {
		return false, err
	}
	n, err := done.RowsAffected()
	return n > 0, err
}

func (s *SQLStore) Fail(ctx context.Context, f receiver.Failure) (n int, err error) {
	err = s.db.QueryRowContext(ctx, fail, f.Source, f.ID, f.At, f.Reason).Scan(&n)
	return n, err
}

func (s *SQLStore) SetAside(ctx context.Context, tx *sql.Tx, a receiver.Aside) error {
	_, err := tx.ExecContext(ctx, setAside, a.Source, a.ID, a.At, a.Failures, a.Epoch, a.Reason, a.Body)
	if err == nil {
		_, err = tx.ExecContext(ctx, succeed, a.Source, a.ID)
	}
	return err
}

func (s *SQLStore) Asides(ctx context.Context, source string, limit int) ([]receiver.Aside, error) {
	rows, err := s.db.QueryContext(ctx, asides, source, limit)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []receiver.Aside
	for rows.Next() {
		a := receiver.Aside{Source: source}
		if err := rows.Scan(&a.ID, &a.At, &a.Failures, &a.Epoch, &a.Reason, &a.Body); err != nil {
			return nil, err
		}
		all = append(all, a)
	}
	return all, rows.Err()
}

func (s *SQLStore) Forget(ctx context.Context, source, id string) (was bool, err error) {
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

// Purge reads what is committed, as that of [Store] does.
func (s *SQLStore) Purge(ctx context.Context, source string, cut time.Time, limit int) (int, error) {
	tx, err := s.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback() }() // after a commit it does nothing
	done, err := tx.ExecContext(ctx, purge, source, cut, limit)
	if err != nil {
		return 0, err
	}
	n, err := done.RowsAffected()
	if err != nil {
		return 0, err
	}
	if int(n) < limit {
		if _, err := tx.ExecContext(ctx, purgeFailures, source, cut); err != nil {
			return 0, err
		}
	}
	return int(n), tx.Commit()
}

// Again is true for a serialization failure and a deadlock.
func (s *SQLStore) Again(err error) bool { return again(err) }
