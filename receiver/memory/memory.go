// Package memory remembers messages in the memory of one process, for as long as the receiver's retention: for tests,
// and for programs that accept the gap.
//
// The gap: the memory ends with the process, and is no part of any transaction. A program that is killed after an
// effect and gets the message again does it again; so does a second process beside it. TestGap of this package shows
// it. What must happen once belongs into the database of its effect, see receiver/sqlite and receiver/postgres.
package memory

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strings"
	"sync"
	"time"

	"belfry/receiver"
)

// Store is a store in memory. An id takes about 50 bytes.
type Store struct {
	mu      sync.Mutex
	sources map[string]*source
}

// Tx is not a transaction: what an effect does stays done when it fails afterwards. Only the id is forgotten then.
type Tx struct{ claims []*flight }

var _ receiver.Store[*Tx] = (*Store)(nil)

// New returns an empty Store.
func New() *Store { return &Store{sources: make(map[string]*source)} }

type source struct {
	generations []*generation // the youngest last
	flying      map[key]*flight
	failures    map[string]receiver.Failure
	counts      map[string]int
	asides      map[string]receiver.Aside
}

// flight is a message whose effect runs.
type flight struct {
	to    *source
	entry entry
	span  time.Duration
	ended chan struct{}
}

// generations is into how many the retention is cut. A whole one is forgotten at once, so ids stay up to a
// generations-th longer than they need.
const generations = 8

func (s *Store) of(name string) *source {
	to := s.sources[name]
	if to == nil {
		to = &source{
			flying: make(map[key]*flight), failures: make(map[string]receiver.Failure), counts: make(map[string]int),
			asides: make(map[string]receiver.Aside),
		}
		s.sources[name] = to
	}
	return to
}

func (s *Store) InTx(_ context.Context, fn func(tx *Tx) error) error {
	tx, done := &Tx{}, false
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, f := range tx.claims {
			if done {
				f.to.keep(f.entry, f.span)
			}
			delete(f.to.flying, f.entry.key)
			close(f.ended)
		}
	}()
	err := fn(tx)
	done = err == nil
	return err
}

func (s *Store) Claim(ctx context.Context, tx *Tx, e receiver.Entry, since time.Time) (receiver.Entry, bool, error) {
	mine := entry{key: keyOf(e.ID), print: printOf(e.Fingerprint), epoch: e.Epoch, seen: e.Seen.UnixMilli()}
	for {
		s.mu.Lock()
		to := s.of(e.Source)
		f := to.flying[mine.key]
		if f == nil {
			known := to.find(mine.key)
			if known != nil && known.seen >= since.UnixMilli() {
				earlier := known.export(e.Source, e.ID)
				s.mu.Unlock()
				return earlier, false, nil
			}
			f = &flight{to, mine, e.Seen.Sub(since) / generations, make(chan struct{})}
			to.flying[mine.key] = f
			s.mu.Unlock()
			tx.claims = append(tx.claims, f)
			return receiver.Entry{}, true, nil
		}
		s.mu.Unlock()
		if slices.Contains(tx.claims, f) {
			return f.entry.export(e.Source, e.ID), false, nil
		}
		select {
		case <-f.ended:
		case <-ctx.Done():
			return receiver.Entry{}, false, ctx.Err()
		}
	}
}

func (s *Store) Fail(_ context.Context, f receiver.Failure) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	to := s.of(f.Source)
	to.failures[f.ID] = f
	to.counts[f.ID]++
	return to.counts[f.ID], nil
}

func (s *Store) SetAside(_ context.Context, _ *Tx, a receiver.Aside) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	to := s.of(a.Source)
	a.Body = slices.Clone(a.Body)
	to.asides[a.ID] = a
	delete(to.failures, a.ID)
	delete(to.counts, a.ID)
	return nil
}

func (s *Store) Asides(_ context.Context, source string, limit int) ([]receiver.Aside, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []receiver.Aside
	for _, a := range s.of(source).asides {
		all = append(all, a)
	}
	slices.SortFunc(all, func(a, b receiver.Aside) int { return cmp.Or(a.At.Compare(b.At), strings.Compare(a.ID, b.ID)) })
	return all[:min(len(all), limit)], nil
}

func (s *Store) Forget(_ context.Context, source, id string) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	to := s.of(source)
	if e := to.find(keyOf(id)); e != nil {
		e.seen = forgotten
	}
	_, was := to.asides[id]
	delete(to.asides, id)
	delete(to.failures, id)
	delete(to.counts, id)
	return was, nil
}

// Purge drops whole generations, whatever limit is.
func (s *Store) Purge(_ context.Context, source string, cut time.Time, _ int) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	to := s.of(source)
	for id, f := range to.failures {
		if f.At.Before(cut) {
			delete(to.failures, id)
			delete(to.counts, id)
		}
	}
	return to.drop(cut.UnixMilli()), nil
}

// Again is always false: nothing collides.
func (s *Store) Again(error) bool { return false }

// key is half a SHA-256: a collision would swallow a message, and somebody else may choose the ids.
type key [2]uint64

func keyOf(id string) key {
	sum := sha256.Sum256([]byte(id))
	return key{binary.BigEndian.Uint64(sum[:]), binary.BigEndian.Uint64(sum[8:])}
}

// printOf is the first 8 bytes of a fingerprint; 0 is none.
func printOf(f []byte) uint64 {
	if len(f) < 8 {
		return 0
	}
	return binary.BigEndian.Uint64(f)
}

const forgotten = -1 << 62

type entry struct {
	key   key
	print uint64
	epoch int64
	seen  int64 // Unix milliseconds
}

func (e entry) export(source, id string) receiver.Entry {
	out := receiver.Entry{Source: source, ID: id, Epoch: e.epoch, Seen: time.UnixMilli(e.seen)}
	if e.print != 0 {
		out.Fingerprint = binary.BigEndian.AppendUint64(nil, e.print)
	}
	return out
}

// generation holds the ids of one stretch of time: a list in pieces, since one that grows by copying wastes half, and
// an index of places in it with open addressing. A Go map of such entries takes twice as much.
type generation struct {
	pieces      [][]entry
	n           int
	index       []uint32 // place + 1; a power of two long
	first, last int64    // seen
}

const piece = 1024

func (g *generation) at(i uint32) *entry { return &g.pieces[i/piece][i%piece] }

func (g *generation) find(k key) *entry {
	if g.n == 0 {
		return nil
	}
	mask := uint64(len(g.index) - 1)
	for i := k[0] & mask; g.index[i] != 0; i = (i + 1) & mask {
		if e := g.at(g.index[i] - 1); e.key == k {
			return e
		}
	}
	return nil
}

func (g *generation) add(e entry) {
	if g.n*5 >= len(g.index)*4 {
		g.index = make([]uint32, max(64, 2*len(g.index)))
		for i := range uint32(g.n) {
			g.point(g.at(i).key, i)
		}
	}
	if g.n%piece == 0 {
		g.pieces = append(g.pieces, make([]entry, 0, piece))
	}
	p := &g.pieces[len(g.pieces)-1]
	*p = append(*p, e)
	g.point(e.key, uint32(g.n))
	g.n++
	g.last = max(g.last, e.seen)
}

func (g *generation) point(k key, place uint32) {
	mask := uint64(len(g.index) - 1)
	i := k[0] & mask
	for g.index[i] != 0 {
		i = (i + 1) & mask
	}
	g.index[i] = place + 1
}

func (s *source) find(k key) *entry {
	for _, g := range slices.Backward(s.generations) {
		if e := g.find(k); e != nil {
			return e
		}
	}
	return nil
}

// keep adds an entry. span is how long a generation lasts.
func (s *source) keep(e entry, span time.Duration) {
	n := len(s.generations)
	if n == 0 || e.seen-s.generations[n-1].first >= max(span.Milliseconds(), 1) || s.generations[n-1].n == 1<<31 {
		s.drop(e.seen - span.Milliseconds()*generations)
		s.generations = append(s.generations, &generation{first: e.seen, last: e.seen})
		n = len(s.generations)
	}
	if old := s.generations[n-1].find(e.key); old != nil { // forgotten, or too old
		*old = e
		return
	}
	s.generations[n-1].add(e)
}

// drop forgets the generations that were last added to before cut.
func (s *source) drop(cut int64) (n int) {
	s.generations = slices.DeleteFunc(s.generations, func(g *generation) bool {
		if g.last >= cut {
			return false
		}
		n += g.n
		return true
	})
	return n
}
