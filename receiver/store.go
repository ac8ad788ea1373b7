package receiver

import (
	"context"
	"time"
)

// Store remembers messages. T is its transaction, in which an effect writes too: *sql.Tx or pgx.Tx. What a driver has
// to keep is in receivertest. Safe for concurrent use.
type Store[T any] interface {
	// InTx runs fn in a transaction: it commits when fn returns nil, else, and when fn panics or ends its goroutine,
	// it rolls back. fn's error is returned as it is. When the commit was sent and not confirmed, the error is
	// [ErrOutcomeUnknown].
	InTx(ctx context.Context, fn func(tx T) error) error

	// Claim records e in tx and returns true, unless there is an entry of the same Source and ID that was seen at or
	// after since: that one is returned with false. While another open transaction has claimed them, Claim waits for
	// its end or for ctx, and takes over when it was rolled back. The insertion is the check: to look first would
	// let two in.
	Claim(ctx context.Context, tx T, e Entry, since time.Time) (earlier Entry, fresh bool, err error)

	// Fail counts a failure of the message, outside of the transaction that was rolled back, and returns how many
	// there are.
	Fail(ctx context.Context, f Failure) (int, error)
	// SetAside keeps the message in tx and forgets its failures.
	SetAside(ctx context.Context, tx T, a Aside) error
	// Asides returns messages that were set aside, the oldest first, at most limit.
	Asides(ctx context.Context, source string, limit int) ([]Aside, error)
	// Forget removes all that is known of a message, and reports whether it was set aside.
	Forget(ctx context.Context, source, id string) (bool, error)

	// Purge deletes about limit entries that were seen before cut, and failures likewise, and returns how many
	// entries; fewer than limit means that none is left. It compares when it deletes, so that an entry that is renewed
	// meanwhile stays.
	Purge(ctx context.Context, source string, cut time.Time, limit int) (int, error)

	// Again reports whether err came of a collision with another transaction, so that this one can be run once more.
	Again(err error) bool
}

// Entry is what is remembered of a message.
type Entry struct {
	Source, ID  string
	Fingerprint []byte // SHA-256 of the body, or a prefix of at least 8 bytes of it; empty: not to be compared
	Epoch       int64
	Seen        time.Time // in whole milliseconds
}

// Failure is one failed try of a message.
type Failure struct {
	Source, ID, Reason string
	At                 time.Time
}

// Aside is a message that failed too often.
type Aside struct {
	Source, ID string
	Body       []byte
	Epoch      int64
	Failures   int
	Reason     string // the last error, at most 500 bytes
	At         time.Time
}
