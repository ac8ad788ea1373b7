package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"belfry/receiver"
)

// lazy is a transaction whose BEGIN travels with its first statement. That is mostly the one that claims an id, so
// remembering it costs no round trip of its own.
type lazy struct {
	conn   *pgxpool.Conn
	begun  bool
	ended  bool
	points int
}

var _ pgx.Tx = (*lazy)(nil)

const begin = "begin"

// start begins, if that was not done. While it fails no statement follows, or that would stand alone.
func (t *lazy) start(ctx context.Context) error {
	if t.ended {
		return pgx.ErrTxClosed
	}
	if t.begun {
		return nil
	}
	_, err := t.conn.Exec(ctx, begin)
	t.begun = err == nil
	return err
}

// claimID claims an id, and reports whether it was new.
func claimID(ctx context.Context, tx pgx.Tx, e receiver.Entry) (bool, error) {
	t, ok := tx.(*lazy)
	if !ok || t.begun || t.ended {
		done, err := tx.Exec(ctx, claim, e.Source, e.ID, e.Seen, e.Epoch, e.Fingerprint)
		return err == nil && done.RowsAffected() == 1, err
	}
	b := &pgx.Batch{}
	b.Queue(begin)
	b.Queue(claim, e.Source, e.ID, e.Seen, e.Epoch, e.Fingerprint)
	both := t.conn.SendBatch(ctx, b)
	_, err := both.Exec()
	t.begun = err == nil
	done, err := both.Exec() // also with the error of the beginning
	if closing := both.Close(); err == nil {
		err = closing
	}
	return err == nil && done.RowsAffected() == 1, err
}

func (t *lazy) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if err := t.start(ctx); err != nil {
		return pgconn.CommandTag{}, err
	}
	return t.conn.Exec(ctx, sql, args...)
}

func (t *lazy) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if err := t.start(ctx); err != nil {
		return failedRows{err: err}, err
	}
	return t.conn.Query(ctx, sql, args...)
}

func (t *lazy) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if err := t.start(ctx); err != nil {
		return failedRows{err: err}
	}
	return t.conn.QueryRow(ctx, sql, args...)
}

func (t *lazy) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if err := t.start(ctx); err != nil {
		return failedBatch{err: err}
	}
	return t.conn.SendBatch(ctx, b)
}

func (t *lazy) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, from pgx.CopyFromSource) (int64, error) {
	if err := t.start(ctx); err != nil {
		return 0, err
	}
	return t.conn.CopyFrom(ctx, table, columns, from)
}

func (t *lazy) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	if err := t.start(ctx); err != nil {
		return nil, err
	}
	return t.conn.Conn().Prepare(ctx, name, sql)
}

// Conn begins, since what runs on it belongs into the transaction. It is closed where that fails.
func (t *lazy) Conn() *pgx.Conn {
	ctx := context.Background()
	if t.start(ctx) != nil && !t.ended {
		_ = t.conn.Conn().Close(ctx)
	}
	return t.conn.Conn()
}

// LargeObjects cannot be made outside of pgx.
func (t *lazy) LargeObjects() pgx.LargeObjects {
	panic("receiver/postgres: for large objects begin the transaction yourself and use Once")
}

func (t *lazy) Commit(ctx context.Context) error {
	if t.ended {
		return pgx.ErrTxClosed
	}
	t.ended = true
	if !t.begun {
		return nil
	}
	done, err := t.conn.Exec(ctx, "commit")
	if err == nil && done.String() == "ROLLBACK" {
		err = pgx.ErrTxCommitRollback
	}
	return err
}

func (t *lazy) Rollback(ctx context.Context) error {
	if t.ended {
		return pgx.ErrTxClosed
	}
	t.ended = true
	if !t.begun {
		return nil
	}
	_, err := t.conn.Exec(ctx, "rollback")
	return err // the pool closes a connection that is left in a transaction
}

// Begin sets a savepoint.
func (t *lazy) Begin(ctx context.Context) (pgx.Tx, error) {
	t.points++
	p := &point{Tx: t, name: fmt.Sprintf("receiver_%d", t.points)}
	if _, err := t.Exec(ctx, "savepoint "+p.name); err != nil {
		return nil, err
	}
	return p, nil
}

// point is a transaction within one.
type point struct {
	pgx.Tx
	name  string
	ended bool
}

func (p *point) Commit(ctx context.Context) error   { return p.end(ctx, "release savepoint ") }
func (p *point) Rollback(ctx context.Context) error { return p.end(ctx, "rollback to savepoint ") }

func (p *point) end(ctx context.Context, how string) error {
	if p.ended {
		return pgx.ErrTxClosed
	}
	p.ended = true
	_, err := p.Exec(ctx, how+p.name)
	return err
}

// failedRows and failedBatch are what pgx wants instead of nil.
type failedRows struct {
	pgx.Rows
	err error
}

func (r failedRows) Close()            {}
func (r failedRows) Err() error        { return r.err }
func (r failedRows) Next() bool        { return false }
func (r failedRows) Scan(...any) error { return r.err }

type failedBatch struct {
	pgx.BatchResults
	err error
}

func (b failedBatch) Exec() (pgconn.CommandTag, error) { return pgconn.CommandTag{}, b.err }
func (b failedBatch) Query() (pgx.Rows, error)         { return failedRows{err: b.err}, b.err }
func (b failedBatch) QueryRow() pgx.Row                { return failedRows{err: b.err} }
func (b failedBatch) Close() error                     { return b.err }
