package postgres_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"belfry/receiver"
	"belfry/receiver/postgres"
	"belfry/receiver/receivertest"
)

// writes are the ways in which an effect can write an id.
var writes = map[string]func(context.Context, pgx.Tx, string) error{
	"Exec": func(ctx context.Context, tx pgx.Tx, id string) error {
		_, err := tx.Exec(ctx, book, id)
		return err
	},
	"Query": func(ctx context.Context, tx pgx.Tx, id string) error {
		rows, err := tx.Query(ctx, book+" RETURNING id", id)
		if err != nil {
			return err
		}
		_, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[string])
		return err
	},
	"QueryRow": func(ctx context.Context, tx pgx.Tx, id string) error {
		return tx.QueryRow(ctx, book+" RETURNING id", id).Scan(&id)
	},
	"SendBatch": func(ctx context.Context, tx pgx.Tx, id string) error {
		b := &pgx.Batch{}
		b.Queue(book, id)
		return tx.SendBatch(ctx, b).Close()
	},
	"CopyFrom": func(ctx context.Context, tx pgx.Tx, id string) error {
		_, err := tx.CopyFrom(ctx, pgx.Identifier{"booking"}, []string{"id"}, pgx.CopyFromRows([][]any{{id}}))
		return err
	},
	"Prepare": func(ctx context.Context, tx pgx.Tx, id string) error {
		if _, err := tx.Prepare(ctx, "book", book); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "book", id)
		return err
	},
	"Conn": func(ctx context.Context, tx pgx.Tx, id string) error {
		_, err := tx.Conn().Exec(ctx, book, id)
		return err
	},
	"Begin": func(ctx context.Context, tx pgx.Tx, id string) error {
		for _, commit := range []bool{false, true, false} {
			inner, err := tx.Begin(ctx)
			if err != nil {
				return err
			}
			if _, err := inner.Exec(ctx, book, id); err != nil {
				return err
			}
			end := inner.Rollback
			if commit {
				end = inner.Commit
			}
			if err := end(ctx); err != nil {
				return err
			}
			if err := inner.Rollback(ctx); !errors.Is(err, pgx.ErrTxClosed) {
				return errors.New("a savepoint ended twice")
			}
		}
		return nil
	},
}

func open(t *testing.T) *receivertest.Fixture[pgx.Tx] {
	t.Helper()
	f, err := openPgx(t.Context(), newDatabase(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	return f
}

func TestWhateverAnEffectUsesIsInTheTransaction(t *testing.T) {
	f := open(t)
	r, err := receiver.New(f.Store, receiver.Options{Failures: -1})
	if err != nil {
		t.Fatal(err)
	}
	failed := errors.New("failed, on purpose")
	for name, write := range writes {
		for _, outcome := range []error{failed, nil} {
			// First after the id, then as the first statement of all.
			_, err := r.Handle(t.Context(), receiver.Message{ID: name}, func(ctx context.Context, tx pgx.Tx) error {
				return errors.Join(write(ctx, tx, name), outcome)
			})
			if !errors.Is(err, outcome) {
				t.Errorf("%s: %v", name, err)
			}
			err = f.Store.InTx(t.Context(), func(tx pgx.Tx) error { return errors.Join(write(t.Context(), tx, name+"-first"), outcome) })
			if !errors.Is(err, outcome) {
				t.Errorf("%s first: %v", name, err)
			}
			all, err := f.Booked(t.Context())
			want := 0
			if outcome == nil {
				want = 1
			}
			if err != nil || all[name] != want || all[name+"-first"] != want {
				t.Errorf("%s, %v: %v, %v", name, outcome, all, err)
			}
		}
	}
}

func TestATransactionThatDidNotBeginWritesNothing(t *testing.T) {
	f := open(t)
	for name, write := range writes {
		err := f.Store.InTx(t.Context(), func(tx pgx.Tx) error {
			// Before its first statement the transaction's connection is cut.
			if err := f.Store.InTx(t.Context(), func(other pgx.Tx) error {
				_, err := other.Exec(t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
				return err
			}); err != nil {
				t.Error(err)
			}
			err := write(t.Context(), tx, name)
			if again := write(t.Context(), tx, name); err == nil || again == nil {
				t.Errorf("%s: %v, %v", name, err, again)
			}
			return err
		})
		if err == nil {
			t.Errorf("%s: no error", name)
		}
		if all, err := f.Booked(t.Context()); err != nil || len(all) > 0 {
			t.Errorf("%s: %v, %v", name, all, err)
		}
	}
}

// A context that has ended keeps the beginning from being sent, and leaves the connection as it was.
func TestNoStatementStandsAloneAfterABeginningThatWasNotSent(t *testing.T) {
	f := open(t)
	r, err := receiver.New(f.Store, receiver.Options{Failures: -1})
	if err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	failed := errors.New("failed, on purpose")
	for name, write := range writes {
		for first, fails := range map[string]func(pgx.Tx) error{
			"a write": func(tx pgx.Tx) error {
				if name == "Conn" { // begins without a context
					return failed
				}
				return write(gone, tx, name)
			},
			"an id": func(tx pgx.Tx) error {
				_, err := r.Once(gone, tx, receiver.Message{ID: name}, func(pgx.Tx) error { return nil })
				return err
			},
		} {
			err := f.Store.InTx(t.Context(), func(tx pgx.Tx) error {
				if fails(tx) == nil {
					t.Errorf("%s after %s: no error", name, first)
				}
				_ = write(t.Context(), tx, name)
				return failed
			})
			if !errors.Is(err, failed) {
				t.Errorf("%s after %s: %v", name, first, err)
			}
		}
	}
	if all, err := f.Booked(t.Context()); err != nil || len(all) > 0 {
		t.Errorf("%v, %v", all, err)
	}
}

func TestARollbackKeepsTheConnection(t *testing.T) {
	pool, err := pgxpool.New(t.Context(), newDatabase(t))
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	store, err := postgres.Open(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	before := pool.Stat().NewConnsCount()
	for range 3 {
		_ = store.InTx(t.Context(), func(tx pgx.Tx) error {
			if err := writes["Exec"](t.Context(), tx, "a"); err != nil {
				t.Error(err)
			}
			return errors.New("failed, on purpose")
		})
	}
	if n := pool.Stat().NewConnsCount() - before; n > 0 {
		t.Errorf("%d connections were made anew", n)
	}
}

func TestAnEndedTransactionWritesNothing(t *testing.T) {
	f := open(t)
	for _, end := range []func(pgx.Tx) error{
		func(tx pgx.Tx) error { return tx.Commit(t.Context()) },
		func(tx pgx.Tx) error { return tx.Rollback(t.Context()) },
	} {
		for name, write := range writes {
			if name == "Conn" { // which is the connection itself
				continue
			}
			err := f.Store.InTx(t.Context(), func(tx pgx.Tx) error {
				if err := end(tx); err != nil {
					t.Error(err)
				}
				return write(t.Context(), tx, name)
			})
			if !errors.Is(err, pgx.ErrTxClosed) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	// A statement that failed makes a commit a rollback, which is no success.
	err := f.Store.InTx(t.Context(), func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), book, "a"); err != nil {
			return err
		}
		_, _ = tx.Exec(t.Context(), "SELECT 1/0")
		return nil
	})
	if !errors.Is(err, pgx.ErrTxCommitRollback) || errors.Is(err, receiver.ErrOutcomeUnknown) {
		t.Error(err)
	}
	if all, err := f.Booked(t.Context()); err != nil || len(all) > 0 {
		t.Errorf("%v, %v", all, err)
	}
}
