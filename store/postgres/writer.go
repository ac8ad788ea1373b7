package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"belfry"
	"belfry/store"
)

// mode is what a transaction promises.
type mode int

const (
	durable  mode = iota // the commit is on the disk before the call returns
	lazy                 // a crash of the server may undo it
	snapshot             // it reads, all of it as of one moment
)

var (
	errClosed = errors.New("postgres: the store is closed")
	// errAgain asks for the same work in a new transaction.
	errAgain = errors.New("postgres: what was locked has moved: try again")
)

const attempts = 8 // of a transaction that others got in the way of, or whose connection broke before its commit

// do runs work in a transaction of its own, again when another transaction or a broken connection got in
// the way before it was committed. run may be called several times, and must leave nothing behind outside
// the transaction. Work that began is finished even if ctx ends.
func (s *Store) do(ctx context.Context, m mode, run func(*txn) error) error {
	for n := 1; ; n++ {
		err := s.try(ctx, m, run)
		if err == nil || n == attempts || !again(err) {
			return explain(err)
		}
		pause := time.NewTimer(time.Duration(rand.Int64N(int64(time.Millisecond) << min(2*n, 10))))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return ctx.Err()
		}
	}
}

func (s *Store) view(ctx context.Context, run func(*txn) error) error {
	return s.do(ctx, snapshot, run)
}

func (s *Store) try(ctx context.Context, m mode, run func(*txn) error) (err error) {
	select {
	case <-s.closed:
		if !inGroup(ctx) {
			return errClosed
		}
	default:
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	c, err := s.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer c.Release()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.options.Answer)
	defer cancel()
	if _, err := c.Exec(ctx, s.begin[m], pgx.QueryExecModeSimpleProtocol); err != nil {
		return err
	}
	tx := newTxn(ctx, pgxConn{c})
	tx.s, tx.space, tx.reads = s, s.space, m == snapshot
	if err := run(tx); err != nil {
		c.Exec(ctx, `ROLLBACK`, pgx.QueryExecModeSimpleProtocol) // else the connection is not used again
		return err
	}
	if err := tx.flush(); err != nil {
		c.Exec(ctx, `ROLLBACK`, pgx.QueryExecModeSimpleProtocol)
		return err
	}
	tag, err := c.Exec(ctx, `COMMIT`, pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		return committing(err, m)
	}
	if tag.String() == "ROLLBACK" {
		return errors.New("postgres: a transaction that had failed was to be committed")
	}
	tx.committed()
	return nil
}

// committing says what an error of a commit means. Only a refusal by the server itself is certain, and even
// a shutdown is not: the server can say so after the commit, while it waits for a replica.
func committing(err error, m mode) error {
	var e *pgconn.PgError
	if errors.As(err, &e) && (e.Code[:2] == "40" || e.Code[:2] == "23" || e.Code == "53100") || m == snapshot {
		return err
	}
	return belfry.Errorf(belfry.CodeOutcomeUnknown, "the database did not answer the commit: it may have happened; repeat the request with the same key")
}

// again says that an error left nothing behind and may not come a second time.
func again(err error) bool {
	if errors.Is(err, errAgain) {
		return true
	}
	var e *pgconn.PgError
	if errors.As(err, &e) {
		switch e.Code {
		case "40001", "40P01", "57P01", "57P02", "57P03", "08006", "08003":
			return true
		}
		return false
	}
	if belfry.CodeOf(err) != "" || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	var c *pgconn.ConnectError
	return errors.As(err, &c) || pgconn.SafeToRetry(err) || errors.Is(err, errBroken)
}

// errBroken marks an error of a connection that broke within a transaction.
var errBroken = errors.New("postgres: the connection broke")

// gatherer carries out calls of one kind, those that come at the same time in one transaction.
type gatherer[In, Out any] struct {
	s     *Store
	calls chan *call[In, Out]
	run   func(*txn, []*call[In, Out]) error
}

// call is one call on its way.
type call[In, Out any] struct {
	in     In
	rows   int
	out    Out
	result chan error
}

func gather[In, Out any](s *Store, run func(*txn, []*call[In, Out]) error) *gatherer[In, Out] {
	g := &gatherer[In, Out]{s: s, calls: make(chan *call[In, Out], 1024), run: run}
	for range s.options.Writers {
		s.done.Go(g.work)
	}
	return g
}

// do returns after the commit. A call that was taken is carried out even if ctx ends.
func (g *gatherer[In, Out]) do(ctx context.Context, in In, rows int) (out Out, err error) {
	if err := ctx.Err(); err != nil {
		return out, err
	}
	c := &call[In, Out]{in: in, rows: rows, result: make(chan error, 1)}
	select {
	case <-g.s.closed:
		return out, errClosed
	default:
	}
	select {
	case <-g.s.closed:
		return out, errClosed
	case <-ctx.Done():
		return out, ctx.Err()
	case g.calls <- c:
	}
	select {
	case err := <-c.result:
		return c.out, err
	case <-g.s.closed: // the workers empty the channel before they end; what came after that is refused
		g.s.done.Wait()
		select {
		case err := <-c.result:
			return c.out, err
		default:
			return out, errClosed
		}
	}
}

func (g *gatherer[In, Out]) work() {
	for {
		group := make([]*call[In, Out], 0, 16)
		select {
		case c := <-g.calls:
			group = append(group, c)
		case <-g.s.closed:
			for { // what was taken is finished; new calls are refused
				select {
				case c := <-g.calls:
					g.commit([]*call[In, Out]{c})
				default:
					return
				}
			}
		}
		rows := group[0].rows
	more:
		for rows < g.s.options.Group {
			select {
			case c := <-g.calls:
				group = append(group, c)
				rows += c.rows
			default:
				break more
			}
		}
		g.commit(group)
	}
}

type groupKey struct{}

// inGroup says that the work was taken before the store was closed.
func inGroup(ctx context.Context) bool { return ctx.Value(groupKey{}) != nil }

// commit runs a group in one transaction. When that fails, each of several calls has one of its own: no
// call suffers for another's mistake.
func (g *gatherer[In, Out]) commit(group []*call[In, Out]) {
	ctx := context.WithValue(context.Background(), groupKey{}, true)
	err := g.s.do(ctx, durable, func(tx *txn) error { return g.run(tx, group) })
	code := belfry.CodeOf(err)
	if err != nil && len(group) > 1 && code != belfry.CodeOutcomeUnknown && code != belfry.CodeBusy && code != belfry.CodeStoreFull {
		for _, c := range group {
			g.commit([]*call[In, Out]{c})
		}
		return
	}
	for _, c := range group {
		c.result <- err
	}
}

// txn is a transaction.
type txn struct {
	ctx   context.Context
	conn  conn
	s     *Store // nil in a caller's transaction
	space int32
	reads bool  // and nothing else
	locks locks // that it holds

	claims   map[belfry.ID]*held // that were looked at, and locked unless the transaction only reads
	was      map[belfry.ID]*held // claims as they were before this transaction changed them
	versions map[belfry.ID]int32
	fanouts  map[belfry.ID]store.Fanout // that were looked at, and locked

	stats   map[statKey]int
	pending pending
	summary belfry.State // of the notification that ended last
}

func newTxn(ctx context.Context, c conn) *txn {
	return &txn{
		ctx: ctx, conn: c, claims: map[belfry.ID]*held{}, was: map[belfry.ID]*held{}, versions: map[belfry.ID]int32{},
		fanouts: map[belfry.ID]store.Fanout{}, stats: map[statKey]int{},
	}
}

// flush writes what is left to write before the commit. Counters are last, since they are what transactions
// of one stripe wait for each other for.
func (tx *txn) flush() error {
	if tx.reads {
		return nil
	}
	if err := tx.sync(); err != nil {
		return err
	}
	if err := tx.flushClaims(); err != nil {
		return err
	}
	return tx.flushStats()
}

func (tx *txn) committed() {
	if len(tx.was) > 0 {
		tx.s.held.keep(tx)
	}
}

// exec changes rows.
func (tx *txn) exec(query string, args ...any) error {
	_, err := tx.change(query, args...)
	return err
}

// change is exec that tells how many rows changed.
func (tx *txn) change(query string, args ...any) (int64, error) {
	if err := tx.sync(); err != nil {
		return 0, err
	}
	return tx.conn.exec(tx.ctx, query, args...)
}

// each calls row for every row of a query; scan reads its columns. row must not use the transaction.
func (tx *txn) each(query string, row func(scan func(...any) error) error, args ...any) error {
	if err := tx.sync(); err != nil {
		return err
	}
	return tx.peekEach(query, row, args...)
}

// one reads a single row; ok is false when there is none.
func (tx *txn) one(query string, args []any, dest ...any) (ok bool, err error) {
	if err := tx.sync(); err != nil {
		return false, err
	}
	return tx.peek(query, args, dest...)
}

// run, peekEach and peek are exec, each and one for what does not touch the rows that wait to be written.
func (tx *txn) run(query string, args ...any) error {
	_, err := tx.conn.exec(tx.ctx, query, args...)
	return err
}

func (tx *txn) peekEach(query string, row func(scan func(...any) error) error, args ...any) error {
	rows, err := tx.conn.query(tx.ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows.Scan); err != nil {
			return err
		}
	}
	rows.Close()
	return rows.Err()
}

func (tx *txn) peek(query string, args []any, dest ...any) (ok bool, err error) {
	err = tx.peekEach(query, func(scan func(...any) error) error {
		if ok {
			return nil
		}
		ok = true
		return scan(dest...)
	}, args...)
	return ok, err
}

// conn is what a connection and a caller's transaction have in common.
type conn interface {
	exec(ctx context.Context, query string, args ...any) (int64, error)
	query(ctx context.Context, query string, args ...any) (rows, error)
	// batch runs statements in order, in one round trip where it can.
	batch(ctx context.Context, list []statement) error
}

type rows interface {
	Next() bool
	Scan(...any) error
	Err() error
	Close()
}

// statement is one of a batch; row is called for every row that it returns.
type statement struct {
	query string
	args  []any
	row   func(scan func(...any) error) error
}

type pgxQuerier interface {
	Exec(ctx context.Context, sql string, arguments ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

type pgxConn struct{ pgxQuerier }

func (c pgxConn) exec(ctx context.Context, query string, args ...any) (int64, error) {
	tag, err := c.Exec(ctx, query, args...)
	return tag.RowsAffected(), c.broken(err)
}

func (c pgxConn) query(ctx context.Context, query string, args ...any) (rows, error) {
	r, err := c.Query(ctx, query, args...)
	if err != nil {
		return nil, c.broken(err)
	}
	return pgxRows{r, c}, nil
}

type pgxRows struct {
	pgx.Rows
	c pgxConn
}

func (r pgxRows) Err() error { return r.c.broken(r.Rows.Err()) }

func (c pgxConn) batch(ctx context.Context, list []statement) (err error) {
	b := new(pgx.Batch)
	for _, st := range list {
		b.Queue(st.query, st.args...)
	}
	r := c.SendBatch(ctx, b)
	defer func() {
		if closing := r.Close(); err == nil {
			err = c.broken(closing)
		}
	}()
	for _, st := range list {
		if st.row == nil {
			if _, err := r.Exec(); err != nil {
				return c.broken(err)
			}
			continue
		}
		rows, err := r.Query()
		if err != nil {
			return c.broken(err)
		}
		for rows.Next() {
			if err := st.row(rows.Scan); err != nil {
				rows.Close()
				return err
			}
		}
		rows.Close()
		if err := rows.Err(); err != nil {
			return c.broken(err)
		}
	}
	return nil
}

// broken marks what ended the connection rather than the statement.
func (c pgxConn) broken(err error) error {
	pc, ok := c.pgxQuerier.(*pgxpool.Conn)
	var e *pgconn.PgError
	if err == nil || !ok || errors.As(err, &e) || !pc.Conn().IsClosed() || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("%w: %w", errBroken, err)
}

// sqlConn is a caller's transaction by way of database/sql.
type sqlConn struct{ *sql.Tx }

func (c sqlConn) exec(ctx context.Context, query string, args ...any) (int64, error) {
	r, err := c.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

func (c sqlConn) query(ctx context.Context, query string, args ...any) (rows, error) {
	r, err := c.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	return sqlRows{r}, nil
}

type sqlRows struct{ *sql.Rows }

func (r sqlRows) Close() { r.Rows.Close() }

func (c sqlConn) batch(ctx context.Context, list []statement) error {
	for _, st := range list {
		if st.row == nil {
			if _, err := c.exec(ctx, st.query, st.args...); err != nil {
				return err
			}
			continue
		}
		r, err := c.query(ctx, st.query, st.args...)
		if err != nil {
			return err
		}
		for r.Next() {
			if err := st.row(r.Scan); err != nil {
				r.Close()
				return err
			}
		}
		r.Close()
		if err := r.Err(); err != nil {
			return err
		}
	}
	return nil
}
