// Package redis remembers messages in Redis, fast, for programs that accept the gap. It brings no client: hand it the
// call of yours.
//
// The gap: Redis knows nothing of the transaction of an effect. The id is claimed for the time of a lease, the effect
// runs, and only then is the id kept. A program that is killed between the two, and gets the message again when the
// lease has run out, does it again; so does one whose effect takes longer than the lease. Ids that Redis evicts, or
// loses with its last second on a crash, are new again. TestGap of this package shows the first two. What must happen
// once belongs into the database of its effect, see receiver/sqlite and receiver/postgres.
package redis

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"belfry/receiver"
)

// Do runs one command and returns its reply as a string, an int64, a []any of these, or nil for the null reply. Safe
// for concurrent use. With github.com/redis/go-redis/v9:
//
//	func(ctx context.Context, args ...any) (any, error) {
//		reply, err := client.Do(ctx, args...).Result()
//		if err == redis.Nil {
//			return nil, nil
//		}
//		return reply, err
//	}
type Do func(ctx context.Context, args ...any) (any, error)

// Options of [Open].
type Options struct {
	Prefix string        // of every key; default "receiver:"
	Lease  time.Duration // how long an effect may take; default 1 minute
}

// Store is a store in Redis 2.6 or newer.
type Store struct {
	do Do
	o  Options
}

// Tx is not a transaction: what an effect does stays done when it fails afterwards. Only the id is forgotten then.
type Tx struct{ claims []claimed }

type claimed struct {
	key, busy, kept string
	ttl             time.Duration
}

var _ receiver.Store[*Tx] = (*Store)(nil)

// Open returns a Store. It refuses a Redis that may evict keys, when Redis tells.
func Open(ctx context.Context, do Do, o Options) (*Store, error) {
	o.Prefix = cmp.Or(o.Prefix, "receiver:")
	o.Lease = cmp.Or(o.Lease, time.Minute)
	if _, err := do(ctx, "PING"); err != nil {
		return nil, fmt.Errorf("receiver/redis: %w", err)
	}
	info, err := do(ctx, "INFO", "memory")
	if text, ok := info.(string); ok && err == nil && !strings.Contains(text, "\nmaxmemory:0\r") &&
		strings.Contains(text, "maxmemory_policy:") && !strings.Contains(text, "maxmemory_policy:noeviction") {
		return nil, errors.New("receiver/redis: this Redis evicts keys when it is full, and with them the ids; set maxmemory-policy noeviction")
	}
	return &Store{do, o}, nil
}

const (
	// The age decides, whenever Redis gets round to deleting.
	claim = `local v = redis.call('GET', KEYS[1])
local seen = v and string.match(v, '^kept (%d+) ')
if v and not (seen and tonumber(seen) < tonumber(ARGV[3])) then return v end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return false`
	keep = `if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 1`
	release = `if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
return 1`
	fail = `local n = redis.call('INCR', KEYS[1])
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return n`
)

func (s *Store) InTx(ctx context.Context, fn func(tx *Tx) error) error {
	tx, done := &Tx{}, false
	defer func() {
		if done {
			return
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		for _, c := range tx.claims { // what cannot be released ends with its lease
			_, _ = s.do(ctx, "EVAL", release, 1, c.key, c.busy)
		}
	}()
	if err := fn(tx); err != nil {
		return err
	}
	done = true
	for _, c := range tx.claims {
		reply, err := s.do(ctx, "EVAL", keep, 1, c.key, c.busy, c.kept, c.ttl.Milliseconds())
		if err == nil && reply == int64(0) {
			err = fmt.Errorf("the effect took longer than the lease of %v", s.o.Lease)
		}
		if err != nil {
			return fmt.Errorf("%w: receiver/redis: %w", receiver.ErrOutcomeUnknown, err)
		}
	}
	return nil
}

func (s *Store) Claim(ctx context.Context, tx *Tx, e receiver.Entry, since time.Time) (receiver.Entry, bool, error) {
	c := claimed{key: s.entry(e.Source, e.ID), busy: "busy " + rand.Text(), ttl: e.Seen.Sub(since)}
	c.kept = fmt.Sprintf("kept %d %d %x", e.Seen.UnixMilli(), e.Epoch, e.Fingerprint)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		reply, err := s.do(ctx, "EVAL", claim, 1, c.key, c.busy, s.o.Lease.Milliseconds(), since.UnixMilli())
		if err != nil {
			return receiver.Entry{}, false, err
		}
		value, taken := reply.(string)
		if !taken {
			tx.claims = append(tx.claims, c)
			return receiver.Entry{}, true, nil
		}
		if i := slices.IndexFunc(tx.claims, func(mine claimed) bool { return mine.busy == value }); i >= 0 {
			value = tx.claims[i].kept
		}
		if !strings.HasPrefix(value, "busy ") {
			earlier, err := parse(value)
			earlier.Source, earlier.ID = e.Source, e.ID
			return earlier, false, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return receiver.Entry{}, false, ctx.Err()
		}
	}
}

func parse(value string) (e receiver.Entry, err error) {
	bad := errors.New("receiver/redis: a key holds something else; choose another prefix")
	f := strings.Split(value, " ")
	if len(f) != 4 || f[0] != "kept" {
		return e, bad
	}
	ms, err1 := strconv.ParseInt(f[1], 10, 64)
	epoch, err2 := strconv.ParseInt(f[2], 10, 64)
	print, err3 := hex.DecodeString(f[3])
	if errors.Join(err1, err2, err3) != nil {
		return e, bad
	}
	return receiver.Entry{Seen: time.UnixMilli(ms), Epoch: epoch, Fingerprint: print}, nil
}

// name keeps the border between source and id.
func (s *Store) name(kind, source, id string) string {
	return s.o.Prefix + kind + ":" + strconv.Itoa(len(source)) + ":" + source + ":" + id
}

func (s *Store) entry(source, id string) string    { return s.name("id", source, id) }
func (s *Store) failures(source, id string) string { return s.name("failures", source, id) }
func (s *Store) asides(source string) string       { return s.name("asides", source, "") }

// failureTTL is how long failures are counted together.
const failureTTL = 30 * 24 * time.Hour

func (s *Store) Fail(ctx context.Context, f receiver.Failure) (int, error) {
	reply, err := s.do(ctx, "EVAL", fail, 1, s.failures(f.Source, f.ID), failureTTL.Milliseconds())
	n, _ := reply.(int64)
	return int(n), err
}

func (s *Store) SetAside(ctx context.Context, _ *Tx, a receiver.Aside) error {
	text, err := json.Marshal(a)
	if err != nil {
		return err
	}
	if _, err := s.do(ctx, "HSET", s.asides(a.Source), a.ID, string(text)); err != nil {
		return err
	}
	_, err = s.do(ctx, "DEL", s.failures(a.Source, a.ID))
	return err
}

func (s *Store) Asides(ctx context.Context, source string, limit int) ([]receiver.Aside, error) {
	reply, err := s.do(ctx, "HVALS", s.asides(source))
	if err != nil {
		return nil, err
	}
	values, _ := reply.([]any)
	var all []receiver.Aside
	for _, v := range values {
		text, _ := v.(string)
		var a receiver.Aside
		if err := json.Unmarshal([]byte(text), &a); err != nil {
			return nil, fmt.Errorf("receiver/redis: read what was set aside: %w", err)
		}
		all = append(all, a)
	}
	slices.SortFunc(all, func(a, b receiver.Aside) int { return cmp.Or(a.At.Compare(b.At), strings.Compare(a.ID, b.ID)) })
	return all[:min(len(all), limit)], nil
}

func (s *Store) Forget(ctx context.Context, source, id string) (bool, error) {
	for _, key := range []string{s.entry(source, id), s.failures(source, id)} {
		if _, err := s.do(ctx, "DEL", key); err != nil {
			return false, err
		}
	}
	reply, err := s.do(ctx, "HDEL", s.asides(source), id)
	return reply == int64(1), err
}

// Purge does nothing: Redis forgets by itself.
func (s *Store) Purge(context.Context, string, time.Time, int) (int, error) { return 0, nil }

// Again is always false: nothing collides.
func (s *Store) Again(error) bool { return false }
