package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"belfry/store"
)

// ErrNotDurable is returned when a caller's connection would acknowledge what a power cut can undo.
var ErrNotDurable = errors.New("sqlite: the connection runs with synchronous below FULL: set PRAGMA synchronous=FULL on it")

// InTx enqueues in the caller's own transaction: the notifications exist if, and only if, it commits. The
// engine's tables must be in the same file, see [OpenFile]. Call the engine's Wake after the commit; without
// it they are found within seconds.
type InTx struct {
	tx *sql.Tx
}

// In wraps a transaction on a connection to the engine's file.
func In(tx *sql.Tx) InTx { return InTx{tx} }

// Enqueue is store.Intake.Enqueue in the caller's transaction, atomic: an entry that is refused leaves
// nothing written, and the transaction usable.
func (t InTx) Enqueue(ctx context.Context, entries []store.Entry) ([]store.Enqueued, error) {
	var synchronous int
	if err := t.tx.QueryRowContext(ctx, `PRAGMA synchronous`).Scan(&synchronous); err != nil {
		return nil, fmt.Errorf("sqlite: ask for synchronous: %w", err)
	}
	if synchronous < 2 {
		return nil, ErrNotDurable
	}
	tx := newTxn(borrowed{t.tx})
	defer tx.close()
	out, err := tx.enqueue(entries, true)
	if err == nil {
		err = tx.sync()
	}
	return out, explain(err)
}
