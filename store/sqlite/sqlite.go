// Package sqlite keeps the engine's state in one SQLite file: a single writer that groups concurrent work
// into shared commits, and a pool of readers. It is the default store, for one engine process.
//
// What was acknowledged is on the disk: WAL with synchronous=FULL. Only claims are committed without a
// sync, since a claim that a power cut undoes has left its items where they were.
package sqlite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"belfry"
	"belfry/store"

	"modernc.org/sqlite" // also the driver "sqlite" of callers' transactions
	sqlite3 "modernc.org/sqlite/lib"
)

// Options of a store. The zero value is the safe default.
type Options struct {
	// Synchronous is FULL (default) or NORMAL, which may lose the last commits in a power cut, though not
	// in a crash of the process.
	Synchronous string
	// Group is about how many rows share a commit at most; default 1,024. A call waits for the group before it.
	Group int
	// Busy is how long to wait for another connection that holds the file; default 5 s.
	Busy time.Duration
}

// Store is a store.Store on one SQLite file.
type Store struct {
	path    string
	options Options
	readers chan *txn
	lock    *os.File

	ops     chan *op
	first   chan *op      // those that go before ops
	restart chan struct{} // asks the writer to begin the log anew
	closed  chan struct{}
	stopped chan struct{} // the writer takes nothing more
	done    sync.WaitGroup

	tx     *txn                // of the writer goroutine
	claims map[belfry.ID]*held // of the writer goroutine: what the table claim holds
	group  []*op               // of the writer goroutine: what it commits

	intent atomic.Uint64 // grows after every commit that changed what Facts reads
	facts  factCache
}

var _ store.Store = (*Store)(nil)

// FileName is the name of the database inside a data folder.
const FileName = "belfry.db"

// Open opens, or makes, the store in a data folder and brings its schema up to date. It fails when another
// process has the folder open.
func Open(ctx context.Context, dir string, o Options) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("sqlite: make data folder: %w", err)
	}
	return OpenFile(ctx, filepath.Join(dir, FileName), o)
}

// OpenFile is [Open] for a file, which may hold the caller's own tables too: see [InTx].
func OpenFile(ctx context.Context, path string, o Options) (*Store, error) {
	o.Synchronous = cmp.Or(o.Synchronous, "FULL")
	if o.Synchronous != "FULL" && o.Synchronous != "NORMAL" {
		return nil, fmt.Errorf("sqlite: synchronous is %q: want FULL or NORMAL", o.Synchronous)
	}
	o.Group = cmp.Or(o.Group, 1024)
	o.Busy = cmp.Or(o.Busy, 5*time.Second)
	lock, err := lockFile(path + ".lock")
	if err != nil {
		return nil, err
	}
	s := &Store{path: path, options: o, lock: lock, ops: make(chan *op, 1024), first: make(chan *op, 1024), restart: make(chan struct{}, 1), closed: make(chan struct{}), stopped: make(chan struct{}), claims: map[belfry.ID]*held{}}
	s.facts.init()
	if err := s.open(); err != nil {
		s.release()
		return nil, err
	}
	s.done.Go(s.writer)
	s.done.Go(s.checkpoints)
	return s, nil
}

func (s *Store) open() error {
	// It leaves out what fsync does for timestamps, and keeps what it does for the data.
	if _, err := sqlite.Fdatasync(true); err != nil && !errors.Is(err, sqlite.ErrFdatasyncUnavailable) {
		return err
	}
	write, err := s.connect("PRAGMA cache_size=-8192", "PRAGMA journal_mode=WAL", "PRAGMA wal_autocheckpoint=0", "PRAGMA synchronous="+s.options.Synchronous)
	if err != nil {
		return fmt.Errorf("sqlite: open %s: %w", s.path, explain(err))
	}
	s.tx = newTxn(write)
	s.tx.s = s
	if err := migrate(s.tx, time.Now()); err != nil {
		return err
	}
	if err := s.tx.loadClaims(); err != nil {
		return fmt.Errorf("sqlite: read claims: %w", explain(err))
	}
	readers := max(4, runtime.GOMAXPROCS(0))
	s.readers = make(chan *txn, readers)
	for range readers {
		read, err := s.connect("PRAGMA cache_size=-2048", "PRAGMA query_only=1")
		if err != nil {
			return fmt.Errorf("sqlite: open %s: %w", s.path, explain(err))
		}
		s.readers <- newTxn(read)
	}
	return nil
}

func (s *Store) connect(settings ...string) (*database, error) {
	always := []string{fmt.Sprintf("PRAGMA busy_timeout=%d", s.options.Busy.Milliseconds()), "PRAGMA foreign_keys=1"}
	return connect(s.path, append(always, settings...)...)
}

// lockFile takes the lock that keeps a second engine off the data. The kernel drops it with the process.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("sqlite: open lock file: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("sqlite: another process has %s open: stop it, or use another data folder", filepath.Dir(path))
		}
		return nil, fmt.Errorf("sqlite: lock %s: %w", path, err)
	}
	return f, nil
}

func (s *Store) Close() error {
	select {
	case <-s.closed:
		return nil
	default:
		close(s.closed)
	}
	s.done.Wait()
	return s.release()
}

func (s *Store) release() error {
	var errs []error
	if s.tx != nil {
		errs = append(errs, s.tx.close())
	}
	for len(s.readers) > 0 {
		errs = append(errs, (<-s.readers).close())
	}
	return errors.Join(append(errs, s.lock.Close())...)
}

// Ping writes a row, another each time, so that a full disk or a locked file shows.
func (s *Store) Ping(ctx context.Context) error {
	return s.do(ctx, durable, func(tx *txn) error {
		return tx.exec(`INSERT INTO secret (name, value) VALUES ('ping', ?1) ON CONFLICT (name) DO UPDATE SET value = ?1`, time.Now().UTC().Format(time.RFC3339Nano))
	})
}

// checkpoints moves the log into the file beside the writer, so that no commit waits for it, and has the writer
// begin the log anew when it is long: a sync of a file that does not grow takes a fraction of the time.
func (s *Store) checkpoints() {
	tick := time.NewTicker(checkpointEvery)
	defer tick.Stop()
	var seen time.Time // the log's last change that was dealt with: it keeps its size when it is used anew
	for {
		select {
		case <-s.closed:
			return
		case <-tick.C:
			log, err := os.Stat(s.path + "-wal")
			if err != nil || log.Size() < minLog || log.ModTime().Equal(seen) {
				continue
			}
			seen = log.ModTime()
			if log.Size() > maxLog {
				s.checkpoint("TRUNCATE") // waits for the writer: the log must not eat the disk
				continue
			}
			used, left := s.checkpoint("PASSIVE")
			for i := 0; i < 3 && used > longLog && left > minLog/4; i++ { // what came meanwhile
				used, left = s.checkpoint("PASSIVE")
			}
			if used > longLog {
				select {
				case s.restart <- struct{}{}:
				default:
				}
			}
		}
	}
}

const (
	// Often, as what is left for later is then synced in one go, and commits wait for the disk meanwhile.
	checkpointEvery = time.Second / 4

	minLog  = 4 << 20
	longLog = 16 << 20
	maxLog  = 512 << 20
)

// checkpoint says how many bytes the log has, and how many of them are not in the file yet. One that finds
// somebody in its way is tried again at the next tick.
func (s *Store) checkpoint(mode string) (used, left int64) {
	db, err := connect(s.path, "PRAGMA busy_timeout=1000", "PRAGMA synchronous="+s.options.Synchronous)
	if err != nil {
		return 0, 0
	}
	tx := newTxn(db)
	defer tx.close()
	var busy, frames, done int64
	if _, err := tx.peek("PRAGMA wal_checkpoint("+mode+")", nil, &busy, &frames, &done); err != nil {
		return 0, 0
	}
	const frame = 4096 + 24
	return frames * frame, (frames - done) * frame
}

// restartLog lets the log begin anew, unless a reader is still in it. Nothing is waited for.
func (t *txn) restartLog(busy time.Duration) {
	t.exec("PRAGMA busy_timeout=0")
	t.exec("PRAGMA wal_checkpoint(RESTART)") // one that fails is tried again at the next tick
	t.exec(fmt.Sprintf("PRAGMA busy_timeout=%d", busy.Milliseconds()))
}

// explain gives SQLite's errors a code and says what to do.
func explain(err error) error {
	var e interface{ Code() int } // a failure, or the driver's error in a caller's transaction
	if !errors.As(err, &e) {
		return err
	}
	switch e.Code() & 0xff {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		return belfry.Errorf(belfry.CodeBusy, "the database is held by another connection: try again")
	case sqlite3.SQLITE_FULL:
		return belfry.Errorf(belfry.CodeStoreFull, "the disk with the database is full: make room")
	}
	return fmt.Errorf("sqlite: %w", err)
}
