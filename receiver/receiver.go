// Package receiver makes a program that gets notified act once on each message, however often the message arrives, in
// whatever order, and wherever the program is killed. It serves webhooks, queue messages and callbacks alike.
//
// The id of a message is inserted first, the effect runs, and both commit together, in one transaction of the
// program's own database. So the promise covers what the effect writes in that transaction. It does not cover what an
// effect does elsewhere, such as an e-mail that it sends: for that, write a row in the transaction and send from it.
//
//	store, err := sqlite.Open(ctx, db)
//	in, err := receiver.New(store, receiver.Options{Sender: receiver.Belfry(24 * time.Hour)})
//	hook, err := in.Handler(receiver.HTTP{Secrets: secrets}, func(ctx context.Context, tx *sql.Tx, m receiver.Message) error {
//		_, err := tx.ExecContext(ctx, "INSERT INTO booking …")
//		return err
//	})
//
// Ids are remembered for a time, not up to a number: a number is a bet on the traffic.
package receiver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"strings"
	"time"
)

// Options of [New]. The zero value is right for one sender that follows Standard Webhooks.
type Options struct {
	// Source names whoever sends, so that the ids of two senders never meet; visible ASCII, default "default".
	Source string
	// Sender is how long it keeps sending one message; the zero value is [StandardWebhooks].
	Sender Sender
	// Retention is how long ids are remembered; default, and at least, [RetentionFor] the Sender.
	Retention time.Duration
	// Failures is after how many failures a message is set aside; default 10, negative: never.
	Failures int
	// Log gets a line for each message that was not simply applied; default: none.
	Log *slog.Logger
	// Now is the clock; default [time.Now].
	Now func() time.Time
}

// Receiver lets each message of one source have its effect once. Safe for concurrent use.
type Receiver[T any] struct {
	store  Store[T]
	o      Options
	counts counters
}

// New returns a Receiver. It refuses a retention that is shorter than the sender goes on sending: such a one would let
// late copies through, silently.
func New[T any](store Store[T], o Options) (*Receiver[T], error) {
	least := RetentionFor(o.Sender)
	o.Source = cmp.Or(o.Source, "default")
	o.Retention = cmp.Or(o.Retention, least)
	o.Failures = cmp.Or(o.Failures, 10)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if (Message{ID: o.Source}).check() != nil {
		return nil, errors.New("receiver: the source must be 1 to 255 bytes of visible ASCII")
	}
	if o.Retention < least {
		return nil, fmt.Errorf("receiver: ids would be forgotten after %v, but copies can come for %v; remember them longer, or describe the sender", o.Retention, least)
	}
	return &Receiver[T]{store: store, o: o}, nil
}

// Retention is how long ids are remembered.
func (r *Receiver[T]) Retention() time.Duration { return r.o.Retention }

// Once runs effect in the caller's transaction if the message is new. Commit when the error is nil, whatever the
// result is, and roll back otherwise: an error of the effect comes back as it is, and its id must not stay.
//
// A copy that is being handled by another transaction is waited for, for as long as ctx allows. Failures are not
// counted: see [Receiver.Handle].
func (r *Receiver[T]) Once(ctx context.Context, tx T, m Message, effect func(tx T) error) (Result, error) {
	res, err := r.once(ctx, tx, m, effect)
	if err == nil {
		r.note(ctx, m, res)
	}
	return res, err
}

func (r *Receiver[T]) once(ctx context.Context, tx T, m Message, effect func(tx T) error) (Result, error) {
	if err := m.check(); err != nil {
		return "", err
	}
	now := r.o.Now()
	if m.expired(now) {
		return Expired, nil
	}
	earlier, fresh, err := r.store.Claim(ctx, tx, r.entry(m, now), now.Add(-r.o.Retention))
	if err != nil {
		return "", fmt.Errorf("receiver: remember the id of a message: %w", err)
	}
	if !fresh {
		return compare(earlier, m), nil
	}
	return Applied, effect(tx)
}

func (r *Receiver[T]) entry(m Message, now time.Time) Entry {
	return Entry{Source: r.o.Source, ID: m.ID, Fingerprint: m.fingerprint(), Epoch: m.Epoch, Seen: now.Truncate(time.Millisecond)}
}

// compare says what a message with a known id is. Epochs go first: an older copy may well differ, if what was sent was
// made anew in between.
func compare(earlier Entry, m Message) Result {
	if m.Epoch < earlier.Epoch && m.Epoch > 0 {
		return Stale
	}
	// A store may keep a prefix only.
	if f := m.fingerprint(); f != nil && len(earlier.Fingerprint) > 0 && !strings.HasPrefix(string(f), string(earlier.Fingerprint)) {
		return Conflict
	}
	return Duplicate
}

// errSlow is why the context of an effect that took too long has ended.
var errSlow = errors.New("receiver: the effect took too long")

// Handle runs effect in a transaction of its own if the message is new, and commits. When effect fails, or panics, the
// error comes back and the message may come again, until it has failed [Options].Failures times; then it is
// [SetAside]. What is not the message's fault is not counted: an error marked with [Later], the end of ctx, a store
// that does not work.
//
// effect runs again when its transaction collided with another one, so it should do nothing outside of the transaction.
func (r *Receiver[T]) Handle(ctx context.Context, m Message, effect func(ctx context.Context, tx T) error) (Result, error) {
	res, _, err := r.handle(ctx, m, effect)
	return res, err
}

// handle also says whether an error is that of the effect.
func (r *Receiver[T]) handle(ctx context.Context, m Message, effect func(ctx context.Context, tx T) error) (res Result, ran bool, err error) {
	err = r.inTx(ctx, func(tx T) error {
		ran = false
		var err error
		res, err = r.once(ctx, tx, m, func(tx T) error {
			ran = true
			return guard(func() error { return effect(ctx, tx) })
		})
		return err
	})
	if err == nil {
		r.note(ctx, m, res)
		return res, ran, nil
	}
	if !ran || errors.Is(err, ErrOutcomeUnknown) || r.store.Again(err) {
		return "", false, err
	}
	res, err = r.failed(ctx, m, err)
	return res, true, err
}

const maxCollisions = 100

func (r *Receiver[T]) inTx(ctx context.Context, fn func(tx T) error) error {
	return r.again(ctx, func() error { return r.store.InTx(ctx, fn) })
}

// again does what collided with another transaction once more, after a moment that grows, so that many do not collide
// for ever.
func (r *Receiver[T]) again(ctx context.Context, do func() error) (err error) {
	for n := range maxCollisions {
		if err = do(); err == nil || !r.store.Again(err) {
			return err
		}
		select {
		case <-time.After(rand.N(time.Duration(n+1) * time.Millisecond)):
		case <-ctx.Done():
			return err
		}
	}
	return err
}

// guard makes a panic an error, so that it is rolled back and counted like one.
func guard(effect func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("receiver: the effect panicked: %v\n%s", v, debug.Stack())
		}
	}()
	return effect()
}

// failed counts a failure, and puts the message aside when it is one too many.
func (r *Receiver[T]) failed(ctx context.Context, m Message, cause error) (Result, error) {
	r.counts.failed.Add(1)
	log := r.o.Log.With("source", r.o.Source, "id", m.ID)
	_, wait := errors.AsType[*later](cause)
	if wait || r.o.Failures < 0 || ctx.Err() != nil && context.Cause(ctx) != errSlow {
		log.WarnContext(ctx, "receiver: effect failed, to be sent again", "err", cause)
		return "", cause
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	now := r.o.Now()
	reason := shorten(cause.Error())
	var n int
	err := r.again(ctx, func() (err error) {
		n, err = r.store.Fail(ctx, Failure{Source: r.o.Source, ID: m.ID, Reason: reason, At: now})
		return err
	})
	if err != nil {
		log.ErrorContext(ctx, "receiver: effect failed, and that could not be counted", "err", cause, "count_err", err)
		return "", cause
	}
	log.WarnContext(ctx, "receiver: effect failed", "failures", n, "err", cause)
	if n < r.o.Failures {
		return "", cause
	}
	res := SetAside
	err = r.inTx(ctx, func(tx T) error {
		earlier, fresh, err := r.store.Claim(ctx, tx, r.entry(m, now), now.Add(-r.o.Retention))
		if err != nil {
			return err
		}
		if !fresh { // a copy got through meanwhile
			res = compare(earlier, m)
			return nil
		}
		return r.store.SetAside(ctx, tx, Aside{Source: r.o.Source, ID: m.ID, Body: m.Body, Epoch: m.Epoch, Failures: n, Reason: reason, At: now})
	})
	if err != nil {
		log.ErrorContext(ctx, "receiver: a message that always fails could not be set aside", "err", err)
		return "", cause
	}
	r.note(ctx, m, res)
	return res, nil
}

// shorten makes an error's text fit for any store.
func shorten(text string) string {
	text = strings.ReplaceAll(text, "\x00", "")
	return strings.ToValidUTF8(text[:min(len(text), 500)], "")
}

// note counts and logs a result.
func (r *Receiver[T]) note(ctx context.Context, m Message, res Result) {
	r.counts.of(res).Add(1)
	level := slog.LevelInfo
	switch res {
	case Applied:
		return
	case Conflict:
		level = slog.LevelWarn
	case SetAside:
		level = slog.LevelError
	}
	r.o.Log.Log(ctx, level, "receiver: "+string(res), "source", r.o.Source, "id", m.ID, "epoch", m.Epoch)
}

// Asides returns the messages of this source that were set aside, the oldest first, at most limit. They stay until
// [Receiver.Forget].
func (r *Receiver[T]) Asides(ctx context.Context, limit int) ([]Aside, error) {
	return r.store.Asides(ctx, r.o.Source, limit)
}

// Forget removes all that is known of a message, so that it counts as new when it comes again, and reports whether it
// was set aside. To act on such a message, forget it and give it to [Receiver.Handle].
func (r *Receiver[T]) Forget(ctx context.Context, id string) (bool, error) {
	return r.store.Forget(ctx, r.o.Source, id)
}

const purgeBatch = 1000

// Purge deletes what is older than the retention, in batches of a thousand so that nobody waits long, and returns how
// many ids it deleted. Nothing depends on it but the space: an id that is too old counts as new in any case.
func (r *Receiver[T]) Purge(ctx context.Context) (int, error) {
	cut := r.o.Now().Add(-r.o.Retention)
	for all := 0; ; {
		var n int
		err := r.again(ctx, func() (err error) {
			n, err = r.store.Purge(ctx, r.o.Source, cut, purgeBatch)
			return err
		})
		all += n
		if err != nil {
			return all, fmt.Errorf("receiver: purge: %w", err)
		}
		if n < purgeBatch {
			return all, nil
		}
	}
}

// Run purges now and every so often (0: every hour) until ctx ends. Errors are logged.
func (r *Receiver[T]) Run(ctx context.Context, every time.Duration) {
	tick := time.NewTicker(cmp.Or(max(every, 0), time.Hour))
	defer tick.Stop()
	for {
		if n, err := r.Purge(ctx); err != nil && ctx.Err() == nil {
			r.o.Log.ErrorContext(ctx, "receiver: purge failed", "err", err)
		} else if n > 0 {
			r.o.Log.InfoContext(ctx, "receiver: purged", "source", r.o.Source, "ids", n)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
