// Command payments books the amounts of the notices that it receives, each once if it is told to.
//
//	payments -version receiver -db book.db -listen 127.0.0.1:8030
//
// It exists three times, for comparison: "naive" books what comes; "separate" remembers ids, in another transaction
// than the booking; "receiver" uses belfry/receiver. Requests are signed as Standard Webhooks 1.0 asks; the secret is in
// PAYMENTS_SECRET. GET /total tells what was booked.
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	_ "modernc.org/sqlite"

	"belfry/receiver"
	"belfry/receiver/sqlite"
	"belfry/signature"
)

func main() {
	if err := run(os.Args[1:], os.Stdout, nil); err != nil {
		fmt.Fprintln(os.Stderr, "payments:", err)
		os.Exit(1)
	}
}

// run serves until a signal comes. between is called for each notice when its effect is done and nothing else; nil
// does nothing.
func run(args []string, out io.Writer, between func(id string)) error {
	flags := flag.NewFlagSet("payments", flag.ContinueOnError)
	version := flags.String("version", "receiver", "naive, separate or receiver")
	file := flags.String("db", "payments.db", "SQLite file")
	listen := flags.String("listen", "127.0.0.1:8030", "address")
	if err := flags.Parse(args); err != nil {
		return err
	}
	secret, err := signature.ParseSecret(os.Getenv("PAYMENTS_SECRET"))
	if err != nil {
		return fmt.Errorf("PAYMENTS_SECRET: %w", err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	db, err := sql.Open("sqlite", "file:"+*file+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(10000)")
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS booking (notice TEXT NOT NULL, cents INTEGER NOT NULL); CREATE TABLE IF NOT EXISTS seen (notice TEXT PRIMARY KEY)"); err != nil {
		return err
	}
	if between == nil {
		between = func(string) {}
	}
	b := &books{db, signature.Verifier{Secrets: []signature.Secret{secret}}, between}
	hook, err := b.handler(ctx, *version)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("POST /hook", hook)
	mux.HandleFunc("GET /total", b.total)
	l, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, l.Addr())
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		<-ctx.Done()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = server.Shutdown(ctx)
	}()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

type books struct {
	db       *sql.DB
	verifier signature.Verifier
	between  func(id string)
}

func (b *books) handler(ctx context.Context, version string) (http.Handler, error) {
	switch version {
	case "naive":
		return b.verified(b.naive), nil
	case "separate":
		return b.verified(b.separate), nil
	case "receiver":
		return b.receiver(ctx)
	}
	return nil, fmt.Errorf("version %q: want naive, separate or receiver", version)
}

const book = "INSERT INTO booking (notice, cents) VALUES (?, ?)"

func (b *books) receiver(ctx context.Context) (http.Handler, error) {
	store, err := sqlite.Open(ctx, b.db)
	if err != nil {
		return nil, err
	}
	in, err := receiver.New(store, receiver.Options{Sender: receiver.Belfry(24 * time.Hour)})
	if err != nil {
		return nil, err
	}
	return in.Handler(receiver.HTTP{Secrets: b.verifier.Secrets}, func(ctx context.Context, tx *sql.Tx, m receiver.Message) error {
		cents, err := amount(m.Body)
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, book, m.ID, cents); err != nil {
			return err
		}
		b.between(m.ID)
		return nil
	})
}

// naive books what comes.
func (b *books) naive(ctx context.Context, id string, cents int64) error {
	if _, err := b.db.ExecContext(ctx, book, id, cents); err != nil {
		return err
	}
	b.between(id)
	return nil
}

// separate looks an id up before, and writes it down after. It passes every test in which nothing breaks.
func (b *books) separate(ctx context.Context, id string, cents int64) error {
	var seen int
	if err := b.db.QueryRowContext(ctx, "SELECT count(*) FROM seen WHERE notice = ?", id).Scan(&seen); err != nil || seen > 0 {
		return err
	}
	if _, err := b.db.ExecContext(ctx, book, id, cents); err != nil {
		return err
	}
	b.between(id)
	_, err := b.db.ExecContext(ctx, "INSERT OR IGNORE INTO seen (notice) VALUES (?)", id)
	return err
}

// verified is what the first two versions do by hand.
func (b *books) verified(handle func(ctx context.Context, id string, cents int64) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 256<<10))
		if err != nil {
			http.Error(w, "the body cannot be read", http.StatusBadRequest)
			return
		}
		if err := b.verifier.Verify(time.Now(), r.Header, body); err != nil {
			http.Error(w, err.Error(), http.StatusUnauthorized)
			return
		}
		cents, err := amount(body)
		if err == nil {
			err = handle(r.Context(), r.Header.Get(signature.HeaderID), cents)
		}
		if err != nil {
			http.Error(w, "not booked", http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
}

func (b *books) total(w http.ResponseWriter, r *http.Request) {
	var out struct {
		Bookings int64 `json:"bookings"`
		Cents    int64 `json:"cents"`
	}
	if err := b.db.QueryRowContext(r.Context(), "SELECT count(*), coalesce(sum(cents), 0) FROM booking").Scan(&out.Bookings, &out.Cents); err != nil {
		http.Error(w, "the book cannot be read", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(out)
}

// amount reads {"data": {"amount": cents}}.
func amount(body []byte) (int64, error) {
	var in struct {
		Data struct {
			Amount *int64 `json:"amount"`
		} `json:"data"`
	}
	if err := json.Unmarshal(body, &in); err != nil || in.Data.Amount == nil {
		return 0, errors.New("the body holds no amount")
	}
	return *in.Data.Amount, nil
}
