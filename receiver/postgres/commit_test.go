package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"belfry/receiver"
	"belfry/receiver/receivertest"
)

// Where a proxy cuts the connection.
const (
	nowhere int32 = iota
	beforeCommit
	afterCommit // the server gets the commit, the program no answer
)

// wire is what the proxy does and sees.
type wire struct {
	cut  atomic.Int32
	sent atomic.Int64 // pieces from the program: a round trip each
}

// proxy stands between a program and the database. It returns the database's address by way of it.
func proxy(t *testing.T, address string, w *wire) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	network, target := "tcp", u.Host
	if dir := u.Query().Get("host"); dir != "" {
		network, target = "unix", filepath.Join(dir, ".s.PGSQL.5432")
	}
	dir, err := os.MkdirTemp("/tmp", "proxy")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	l, err := net.Listen("unix", filepath.Join(dir, ".s.PGSQL.5432"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			program, err := l.Accept()
			if err != nil {
				return
			}
			database, err := net.Dial(network, target)
			if err != nil {
				program.Close()
				continue
			}
			go func() {
				_, _ = io.Copy(program, database)
				program.Close()
			}()
			go func() {
				defer program.Close()
				defer database.Close()
				buf := make([]byte, 64<<10)
				for {
					n, err := program.Read(buf)
					if err != nil {
						return
					}
					w.sent.Add(1)
					point := nowhere
					if bytes.Contains(bytes.ToLower(buf[:n]), []byte("commit\x00")) {
						point = w.cut.Swap(nowhere)
					}
					if point == beforeCommit {
						return
					}
					if point == afterCommit {
						// Closed for the program first, so that no answer gets through.
						program.Close()
					}
					if _, err := database.Write(buf[:n]); err != nil {
						return
					}
				}
			}()
		}
	}()
	u.Host = ""
	u.RawQuery = url.Values{"host": {dir}}.Encode()
	return u.String()
}

func TestACommitWithoutAnAnswerIsUnknownAndTheNextCopyTells(t *testing.T) {
	t.Run("pgx", func(t *testing.T) { lostAnswers(t, byPgx) })
	t.Run("database/sql", func(t *testing.T) { lostAnswers(t, bySQL) })
}

func lostAnswers[T any](t *testing.T, setup receivertest.Setup[T]) {
	for point, want := range map[int32]receiver.Result{beforeCommit: receiver.Applied, afterCommit: receiver.Duplicate} {
		var w wire
		f, err := setup.Open(t.Context(), proxy(t, setup.New(t), &w))
		if err != nil {
			t.Fatal(err)
		}
		r, err := receiver.New(f.Store, receiver.Options{Failures: 1})
		if err != nil {
			t.Fatal(err)
		}
		book := func(ctx context.Context, tx T) error { return f.Book(ctx, tx, "a") }
		w.cut.Store(point)
		if res, err := r.Handle(t.Context(), receiver.Message{ID: "a"}, book); !errors.Is(err, receiver.ErrOutcomeUnknown) {
			t.Errorf("cut %d: %q, %v", point, res, err)
		}
		if point == afterCommit { // the server may still be at it
			for res, err := receiver.Result(""), error(nil); res != want; {
				if res, err = r.Handle(t.Context(), receiver.Message{ID: "a"}, func(context.Context, T) error {
					return receiver.Later(0, errors.New("not committed yet"))
				}); t.Context().Err() != nil {
					t.Fatal(res, err)
				}
			}
		}
		if res, err := r.Handle(t.Context(), receiver.Message{ID: "a"}, book); err != nil || res != want {
			t.Errorf("cut %d: %q, %v; want %q", point, res, err, want)
		}
		if all, err := f.Booked(t.Context()); err != nil || all["a"] != 1 {
			t.Errorf("cut %d: booked %v, %v", point, all, err)
		}
		f.Close()
	}
}

func TestAnIDCostsNoRoundTripOfItsOwn(t *testing.T) {
	var w wire
	f, err := openPgx(t.Context(), proxy(t, newDatabase(t), &w))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := receiver.New(f.Store, receiver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var bare, once int64
	for _, id := range []string{"the first one prepares the statements", "the second one counts"} {
		before := w.sent.Load()
		if err := f.Store.InTx(t.Context(), func(tx pgx.Tx) error { return f.Book(t.Context(), tx, id) }); err != nil {
			t.Fatal(err)
		}
		bare, before = w.sent.Load()-before, w.sent.Load()
		if _, err := r.Handle(t.Context(), receiver.Message{ID: receiver.Key(nil, id)}, func(ctx context.Context, tx pgx.Tx) error { return f.Book(ctx, tx, id) }); err != nil {
			t.Fatal(err)
		}
		once = w.sent.Load() - before
	}
	if once != bare || bare != 3 {
		t.Errorf("%d round trips with the id, %d without", once, bare)
	}
}
