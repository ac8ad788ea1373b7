package postgres

import (
	"cmp"
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"

	"belfry/store"
)

// InTx enqueues in the caller's own transaction: the notifications exist if, and only if, it commits. The
// engine's schema must be in the same database. Call the engine's Wake after the commit; without it they are
// found within seconds.
//
// How durable an answer is, is for the caller's transaction to say: with synchronous_commit off a crash of
// the server may undo what was committed. Until it ends, a transaction that gave a key or a fact holds up
// those who give the same one, and one that gave a recipient with endpoints the sends to some others.
type InTx struct {
	conn   conn
	schema string
}

// In wraps a transaction of pgx; schema is as in [Options].
func In(tx pgx.Tx, schema string) InTx { return InTx{pgxConn{tx}, cmp.Or(schema, "belfry")} }

// InSQL wraps a transaction of database/sql, whose driver must be pgx's own, github.com/jackc/pgx/v5/stdlib.
func InSQL(tx *sql.Tx, schema string) InTx { return InTx{sqlConn{tx}, cmp.Or(schema, "belfry")} }

// Enqueue is store.Intake.Enqueue in the caller's transaction, atomic: an entry that is refused leaves
// nothing written, and the transaction usable.
func (t InTx) Enqueue(ctx context.Context, entries []store.Entry) (out []store.Enqueued, err error) {
	tx := newTxn(ctx, t.conn)
	tx.space = spaceOf(t.schema)
	var path string
	if _, err := tx.peek(`SELECT current_setting('search_path')`, nil, &path); err != nil {
		return nil, explain(err)
	}
	set := func(to string) error { return tx.run(`SELECT set_config('search_path', $1, true)`, to) }
	if err := set(pgx.Identifier{t.schema}.Sanitize()); err != nil {
		return nil, explain(err)
	}
	out, err = tx.enqueueOnce(entries)
	if err != nil {
		return nil, explain(err)
	}
	return out, explain(set(path))
}
