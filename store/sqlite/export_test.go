package sqlite

import (
	"context"
	"maps"
	"slices"
	"strconv"
)

// Watch returns a function that lists the statements which the store has prepared. It may be called when
// the store is closed, or idle.
func (s *Store) Watch() func() []string {
	all := []*txn{s.tx}
	for range cap(s.readers) {
		r := <-s.readers
		all = append(all, r)
	}
	for _, r := range all[1:] {
		s.readers <- r
	}
	return func() []string {
		seen := map[string]bool{}
		for _, tx := range all {
			for query := range tx.stmts {
				seen[query] = true
			}
		}
		return slices.Sorted(maps.Keys(seen))
	}
}

// Hold occupies the writer until the returned function is called: what comes meanwhile waits together.
func (s *Store) Hold() (release func()) {
	held, free := make(chan struct{}), make(chan struct{})
	go s.do(context.Background(), lazy, func(*txn) error {
		close(held)
		<-free
		return nil
	})
	<-held
	return func() { close(free) }
}

// Waits is how many calls wait for the writer.
func (s *Store) Waits() int { return len(s.first) + len(s.ops) }

// Pages bounds the size of the database, as a full disk does.
func (s *Store) Pages(most int) error {
	return s.do(context.Background(), lazy, func(tx *txn) error {
		var now int
		_, err := tx.one(`PRAGMA max_page_count = `+strconv.Itoa(most), nil, &now)
		return err
	})
}

// Exec changes something behind the store's back, on its own connection.
func (s *Store) Exec(query string, args ...any) error {
	return s.do(context.Background(), durable, func(tx *txn) error { return tx.exec(query, args...) })
}

// Log is the size at which a log is given back to the disk.
const Log = maxLog

// Checkpoint is what happens from time to time.
func (s *Store) Checkpoint(mode string) { s.checkpoint(mode) }
