// Package mapstore is the whole store.Store in maps behind one mutex: every method is one transaction, and
// everything is decided by the functions of package belfry. It is the oracle that storetest compares
// drivers with, and the store of simulations. It keeps nothing when the process ends and reads by walking
// its maps: it is not for production.
package mapstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"belfry"
	"belfry/store"
)

// Store is a store.Store in memory. The zero value is not usable: call [New].
type Store struct {
	mu     sync.Mutex
	closed bool
	fault  Fault
	old    map[belfry.ID]belfry.Facts // with a fault: what was read before the transaction
	undo   []func()                   // takes back the changes of the transaction, last first

	projects     *table[string, time.Time]
	categories   *table[named, belfry.Category]
	pauses       *table[belfry.ID, belfry.Pause]
	keys         *table[string, store.AccessKey]
	secrets      *table[string, belfry.Secret]
	recipients   *table[named, belfry.Recipient]
	preferences  *table[named, belfry.Preferences] // by recipient
	endpoints    *table[belfry.ID, belfry.Endpoint]
	suppressions *table[addressed, belfry.Suppression]
	marks        *table[subject, store.Mark]
	requests     *table[named, request]     // idempotency keys
	facts        *table[named, belfry.ID]   // who has told it
	flights      *table[subject, belfry.ID] // who is in flight, in categories with a cooldown
	counts       *table[counted, int]       // notifications that ended, see Stats
	claims       *table[belfry.ID, claim]
	places       *table[item, place]    // where everything stands that is open
	rows         *table[belfry.ID, row] // notifications
	deliveries   *table[belfry.DeliveryID, delivery]
}

var _ store.Store = (*Store)(nil)

// named, addressed and subject are keys that a project scopes.
type (
	named     struct{ project, name string }
	addressed struct {
		project, channel string
		address          belfry.Secret
	}
	subject struct{ project, recipient, category, subject string }
	counted struct {
		project string
		state   belfry.State
		reason  belfry.Reason
	}
)

// row is a notification and where it stands.
type row struct {
	belfry.Notification
	queue   string // where it waits to be planned
	fact    string
	wait    store.Wait
	planned bool // it has deliveries, and is not to be planned again
	stage   int  // of a route first: channels tried when they are done
	goesOn  bool // of a route first: the next stage follows a failure
	cancel  bool // asked for while it was on the wire
	erased  bool // its recipient is
	wiped   bool // its content is

	state      belfry.State // its end; "" while it is open
	reason     belfry.Reason
	endedAt    time.Time
	duplicates int
	events     []store.Event
}

type delivery struct {
	belfry.Delivery
	endedAt time.Time
}

// request is what an idempotency key was used for.
type request struct {
	fingerprint [32]byte
	answer      store.Enqueued
}

// New makes an empty store.
func New() *Store { return Planted("") }

// Planted makes a store with a fault, to see whether a suite finds it. An empty fault is none.
func Planted(f Fault) *Store {
	s := &Store{fault: f}
	s.projects, s.categories, s.pauses = newTable[string, time.Time](s), newTable[named, belfry.Category](s), newTable[belfry.ID, belfry.Pause](s)
	s.keys, s.secrets = newTable[string, store.AccessKey](s), newTable[string, belfry.Secret](s)
	s.recipients, s.preferences = newTable[named, belfry.Recipient](s), newTable[named, belfry.Preferences](s)
	s.endpoints, s.suppressions = newTable[belfry.ID, belfry.Endpoint](s), newTable[addressed, belfry.Suppression](s)
	s.marks, s.requests = newTable[subject, store.Mark](s), newTable[named, request](s)
	s.facts, s.flights = newTable[named, belfry.ID](s), newTable[subject, belfry.ID](s)
	s.counts, s.claims = newTable[counted, int](s), newTable[belfry.ID, claim](s)
	s.places, s.rows = newTable[item, place](s), newTable[belfry.ID, row](s)
	s.deliveries = newTable[belfry.DeliveryID, delivery](s)
	return s
}

var errClosed = errors.New("mapstore: the store is closed")

// tx runs one transaction: an error takes back all of its changes.
func (s *Store) tx(ctx context.Context, run func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errClosed
	}
	s.undo = s.undo[:0]
	return s.try(run)
}

// try runs a part of a transaction: an error takes back the changes of the part.
func (s *Store) try(run func() error) error {
	mark := len(s.undo)
	err := run()
	if err != nil {
		for len(s.undo) > mark {
			last := len(s.undo) - 1
			s.undo[last]()
			s.undo = s.undo[:last]
		}
	}
	return err
}

func (s *Store) Ping(ctx context.Context) error { return s.tx(ctx, func() error { return nil }) }

func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}

// Check says what is wrong with the store: every open notification or delivery must stand in exactly one
// place, nothing that ended may stand in any, and what is claimed must be held by its claim.
func (s *Store) Check() error {
	return s.tx(context.Background(), func() error {
		for id, r := range s.rows.rows {
			_, stands := s.places.get(item{id, 0})
			if toPlan := r.state == "" && !r.planned; stands != toPlan {
				return fmt.Errorf("notification %v: ended %q, planned %v, stands in a place %v", id, r.state, r.planned, stands)
			}
			if open := slices.ContainsFunc(s.deliveriesOf(id), isOpen); open && r.state != "" {
				return fmt.Errorf("notification %v ended %q with an open delivery", id, r.state)
			} else if r.state == "" && r.planned && !open {
				return fmt.Errorf("notification %v is open without an open delivery", id)
			}
		}
		for id, d := range s.deliveries.rows {
			p, stands := s.places.get(item(id))
			if stands == d.State.Ended() {
				return fmt.Errorf("delivery %v is %q, stands in a place %v", id, d.State, stands)
			}
			if stands && (p.claim != d.Claim || (p.claim != 0) != (d.State == belfry.Sending)) {
				return fmt.Errorf("delivery %v is %q, held by %v, and stands with %v", id, d.State, d.Claim, p.claim)
			}
		}
		for id, p := range s.places.rows {
			if _, ok := s.claims.get(p.claim); p.claim != 0 && !ok {
				return fmt.Errorf("%v is held by a claim that is not there", id)
			}
		}
		return nil
	})
}

// table is a map whose changes a failed transaction takes back. Values are replaced, never changed.
type table[K comparable, V any] struct {
	rows map[K]V
	s    *Store
}

func newTable[K comparable, V any](s *Store) *table[K, V] {
	return &table[K, V]{map[K]V{}, s}
}

func (t *table[K, V]) get(k K) (V, bool) { v, ok := t.rows[k]; return v, ok }

func (t *table[K, V]) put(k K, v V) {
	t.remember(k)
	t.rows[k] = v
}

func (t *table[K, V]) drop(k K) {
	t.remember(k)
	delete(t.rows, k)
}

func (t *table[K, V]) remember(k K) {
	old, was := t.rows[k]
	t.s.undo = append(t.s.undo, func() {
		if was {
			t.rows[k] = old
		} else {
			delete(t.rows, k)
		}
	})
}

// where lists the values that keep accepts, in the order of compare.
func (t *table[K, V]) where(keep func(V) bool, compare func(a, b V) int) []V {
	var list []V
	for _, v := range t.rows {
		if keep(v) {
			list = append(list, v)
		}
	}
	slices.SortFunc(list, compare)
	return list
}

func notFound(what string) error {
	return belfry.Errorf(belfry.CodeNotFound, "no such %s in this project", what)
}
