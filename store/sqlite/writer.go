package sqlite

import (
	"context"
	"errors"

	"belfry"
)

// op is a piece of work for the writer. run may be called twice, and must leave nothing behind outside the
// transaction.
type op struct {
	run    func(*txn) error
	sync   durability
	rows   int
	result chan error
}

type durability bool

const (
	durable durability = true  // the commit is on the disk before the call returns
	lazy    durability = false // a power cut may undo it
)

var errClosed = errors.New("sqlite: the store is closed")

// do runs a small piece of work in a transaction of the writer, before whatever else is waiting, and returns
// after the commit. A call that was taken is carried out even if ctx ends.
func (s *Store) do(ctx context.Context, sync durability, run func(*txn) error) error {
	return s.submit(ctx, s.first, &op{run, sync, 1, make(chan error, 1)})
}

// doRows is do for work on many rows, together with whatever else is waiting; urgent lets it go first.
func (s *Store) doRows(ctx context.Context, sync durability, rows int, urgent bool, run func(*txn) error) error {
	to := s.ops
	if urgent {
		to = s.first
	}
	return s.submit(ctx, to, &op{run, sync, rows, make(chan error, 1)})
}

func (s *Store) submit(ctx context.Context, to chan<- *op, o *op) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case <-s.closed:
		return errClosed
	case <-ctx.Done():
		return ctx.Err()
	case to <- o:
	}
	select {
	case err := <-o.result:
		return err
	case <-s.stopped:
	}
	select { // it was either finished in time, or came too late to be seen
	case err := <-o.result:
		return err
	default:
		return errClosed
	}
}

// writer commits what is to go first, all of it together, before every group of the rest; the choice of select
// sees to it that the rest has its turns, too.
func (s *Store) writer() {
	defer close(s.stopped)
	for {
		select {
		case o := <-s.first:
			s.commit(s.gather(s.first, o))
		case o := <-s.ops:
			select {
			case o := <-s.first:
				s.commit(s.gather(s.first, o))
			default:
			}
			s.commit(s.gather(s.ops, o))
		case <-s.restart:
			s.tx.restartLog(s.options.Busy)
		case <-s.closed:
			for { // what was taken is finished; new calls are refused
				select {
				case o := <-s.first:
					s.commit([]*op{o})
				case o := <-s.ops:
					s.commit([]*op{o})
				default:
					return
				}
			}
		}
	}
}

// gather is a call with those that wait behind it, as far as the rows of a group go.
func (s *Store) gather(from <-chan *op, o *op) []*op {
	s.group = append(s.group[:0], o)
	for rows := o.rows; rows < s.options.Group; {
		select {
		case o := <-from:
			s.group = append(s.group, o)
			rows += o.rows
		default:
			return s.group
		}
	}
	return s.group
}

// commit runs a group in one transaction. When one of several fails, each is run in its own: no call
// suffers for another's mistake.
func (s *Store) commit(group []*op) {
	err := s.try(group)
	if err != nil && len(group) > 1 && belfry.CodeOf(err) != belfry.CodeBusy {
		for _, o := range group {
			o.result <- s.try([]*op{o})
		}
		return
	}
	for _, o := range group {
		o.result <- err
	}
}

func (s *Store) try(group []*op) error {
	sync := lazy
	for _, o := range group {
		sync = sync || o.sync
	}
	if err := s.tx.begin(sync == durable && s.options.Synchronous == "FULL"); err != nil {
		return explain(err)
	}
	for _, o := range group {
		if err := o.run(s.tx); err != nil {
			s.tx.rollback()
			return explain(err)
		}
	}
	if err := s.tx.commit(); err != nil {
		s.tx.rollback()
		return explain(err)
	}
	if s.tx.intent {
		s.intent.Add(1)
	}
	return nil
}

// txn is a transaction on a connection, with its prepared statements.
type txn struct {
	conn   conn
	stmts  map[string]statement
	full   bool // synchronous=FULL is set
	intent bool // it changes what Facts reads

	s       *Store              // nil in a caller's transaction and in a reader
	was     map[belfry.ID]*held // claims as they were before this transaction
	stats   map[statKey]int
	pending [tables][]any // rows to be added, see add
	adding  bool
	buffer  []byte
	summary belfry.State // of the notification that ended last
	flights int          // what is known of the table flight: 0 nothing, 1 it is empty, 2 it is not
}

func newTxn(c conn) *txn {
	return &txn{conn: c, stmts: map[string]statement{}, was: map[belfry.ID]*held{}, stats: map[statKey]int{}}
}

func (t *txn) begin(full bool) error {
	t.intent, t.adding, t.flights = false, false, 0
	clear(t.was)
	clear(t.stats)
	for i := range t.pending {
		t.pending[i] = t.pending[i][:0]
	}
	if t.full != full {
		mode := "PRAGMA synchronous=NORMAL"
		if full {
			mode = "PRAGMA synchronous=FULL"
		}
		if err := t.exec(mode); err != nil {
			return err
		}
		t.full = full
	}
	return t.exec("BEGIN IMMEDIATE")
}

func (t *txn) commit() error {
	if err := t.flushClaims(); err != nil {
		return err
	}
	if err := t.flushStats(); err != nil {
		return err
	}
	return t.exec("COMMIT")
}

func (t *txn) rollback() {
	t.adding = false
	t.exec("ROLLBACK") // fails when SQLite rolled back by itself
	for id, h := range t.was {
		t.s.claims[id] = h
		if h == nil {
			delete(t.s.claims, id)
		}
	}
}

func (t *txn) stmt(query string) (statement, error) {
	if st := t.stmts[query]; st != nil {
		return st, nil
	}
	st, err := t.conn.prepare(query)
	if err != nil {
		return nil, err
	}
	t.stmts[query] = st
	return st, nil
}

func (t *txn) exec(query string, args ...any) error {
	_, err := t.change(query, args...)
	return err
}

// change is exec that tells how many rows changed.
func (t *txn) change(query string, args ...any) (int64, error) {
	if err := t.sync(); err != nil {
		return 0, err
	}
	return t.poke(query, args...)
}

// each calls row for every row of a query; scan reads its columns.
func (t *txn) each(query string, row func(scan func(...any) error) error, args ...any) error {
	if err := t.sync(); err != nil {
		return err
	}
	return t.peekEach(query, row, args...)
}

// one reads a single row; ok is false when there is none.
func (t *txn) one(query string, args []any, dest ...any) (ok bool, err error) {
	if err := t.sync(); err != nil {
		return false, err
	}
	return t.peek(query, args, dest...)
}

// poke, peek and peekEach are change, one and each for tables that are not added to in bulk: they leave
// the rows that wait to be added where they are.
func (t *txn) poke(query string, args ...any) (int64, error) {
	st, err := t.stmt(query)
	if err != nil {
		return 0, err
	}
	return st.exec(args)
}

func (t *txn) peekEach(query string, row func(scan func(...any) error) error, args ...any) error {
	st, err := t.stmt(query)
	if err != nil {
		return err
	}
	return st.each(args, row)
}

var errEnough = errors.New("the first row is enough")

func (t *txn) peek(query string, args []any, dest ...any) (ok bool, err error) {
	st, err := t.stmt(query)
	if err != nil {
		return false, err
	}
	err = st.each(args, func(scan func(...any) error) error {
		if err := scan(dest...); err != nil {
			return err
		}
		return errEnough
	})
	if err == errEnough {
		return true, nil
	}
	return false, err
}

func (t *txn) close() error {
	for _, st := range t.stmts {
		st.close()
	}
	return t.conn.close()
}

// view runs reads in one snapshot.
func (s *Store) view(ctx context.Context, run func(*txn) error) error {
	select {
	case t := <-s.readers:
		defer func() { s.readers <- t }()
		if err := t.exec("BEGIN"); err != nil {
			return explain(err)
		}
		defer t.exec("ROLLBACK")
		return explain(run(t))
	case <-s.closed:
		return errClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}
