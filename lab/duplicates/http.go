package duplicates

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	_ "modernc.org/sqlite"

	"belfry"
	"belfry/channel"
	"belfry/channel/webhook"
	"belfry/receiver"
	receiversqlite "belfry/receiver/sqlite"
	"belfry/sandbox"
	"belfry/signature"
)

// overHTTP sends every arrival with the webhook channel: to a receiver on SQLite, and to the sandbox, which takes
// whatever comes. Requests, signatures, transactions and dropped answers are real; only the clock is not, so that a
// delay of hours takes no time.
func overHTTP(ctx context.Context, events []arrival, amounts []int64, right int64) ([]Way, error) {
	dir, err := os.MkdirTemp("", "belfry-duplicates")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	start := time.Date(2026, 12, 1, 9, 0, 0, 0, time.UTC)
	var clock atomic.Int64 // since the start
	now := func() time.Time { return start.Add(time.Duration(clock.Load())) }
	secret, err := signature.NewSecret(nil)
	if err != nil {
		return nil, err
	}

	book, err := openBook(ctx, filepath.Join(dir, "book.db"), secret, now)
	if err != nil {
		return nil, err
	}
	defer book.db.Close()
	naive, err := sandbox.New(sandbox.Options{Clock: now})
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	var dropNext atomic.Bool
	mux.HandleFunc("POST /book", func(w http.ResponseWriter, r *http.Request) {
		if !dropNext.Load() {
			book.handler.ServeHTTP(w, r)
			return
		}
		book.handler.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler) // the effect is there, the answer is not
	})
	mux.Handle("/", naive)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(l) }()
	defer server.Close()

	hook, err := webhook.New(webhook.Options{AllowAll: true, Secret: belfry.Secret(secret.Reveal())})
	if err != nil {
		return nil, err
	}
	url := "http://" + l.Addr().String()
	payloads := make([][]byte, len(amounts)) // each copy of a notice has the same bytes
	for i, e := range events {
		clock.Store(int64(e.at))
		n := e.notice
		if payloads[n] == nil {
			data, err := json.Marshal(map[string]int64{"amount": amounts[n]})
			if err != nil {
				return nil, err
			}
			if payloads[n], err = hook.Encode(channel.Message{Category: "payment", Created: now(), Content: belfry.Content{Data: data}}); err != nil {
				return nil, err
			}
		}
		drop := e.twice && !e.second
		dropNext.Store(drop)
		if err := naive.Script(sandbox.Script{Channel: "webhook", To: "naive", Answers: []sandbox.Answer{{AcceptThenDrop: drop}}}); err != nil {
			return nil, err
		}
		for _, to := range []string{"/book", "/webhook/naive"} {
			_, err := hook.Send(ctx, channel.Armed{
				Delivery: belfry.DeliveryID{Notification: belfry.ID(n + 1), N: 1}, Epoch: belfry.ID(i + 1), Attempt: 1,
				Endpoint: belfry.Endpoint{Channel: "webhook", Address: belfry.Secret(url + to)}, Payload: payloads[n],
				Now: now(), Deadline: now().Add(time.Hour),
			})
			switch outcome := belfry.AnswerOf("", err).Outcome; {
			case ctx.Err() != nil:
				return nil, ctx.Err()
			case drop && outcome != belfry.OutcomeAmbiguous, !drop && err != nil:
				return nil, fmt.Errorf("notice %d to %s: %s, %v", n, to, outcome, err)
			}
		}
	}

	seen, err := book.way(ctx, right)
	if err != nil {
		return nil, err
	}
	taken := Way{Name: "sandbox"}
	ids := map[string]bool{}
	for _, e := range naive.Log() {
		amount, err := amountOf(e.Body)
		if err != nil {
			return nil, err
		}
		taken.Handled++
		taken.Total += amount
		if ids[e.ID] {
			taken.Twice++
		}
		ids[e.ID] = true
	}
	taken.OffBy = taken.Total - right
	return []Way{taken, seen}, nil
}

// book is a receiver as a user would write it.
type book struct {
	db      *sql.DB
	handler http.Handler
}

func openBook(ctx context.Context, path string, secret signature.Secret, now func() time.Time) (*book, error) {
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(10000)")
	if err != nil {
		return nil, err
	}
	b := &book{db: db}
	err = func() error {
		if _, err := db.ExecContext(ctx, "CREATE TABLE booking (id TEXT NOT NULL, cents INTEGER NOT NULL)"); err != nil {
			return err
		}
		store, err := receiversqlite.Open(ctx, db)
		if err != nil {
			return err
		}
		in, err := receiver.New(store, receiver.Options{Now: now, Sender: receiver.Belfry(longest)})
		if err != nil {
			return err
		}
		b.handler, err = in.Handler(receiver.HTTP{Secrets: []signature.Secret{secret}}, func(ctx context.Context, tx *sql.Tx, m receiver.Message) error {
			cents, err := amountOf(m.Body)
			if err != nil {
				return err
			}
			_, err = tx.ExecContext(ctx, "INSERT INTO booking (id, cents) VALUES (?, ?)", m.ID, cents)
			return err
		})
		return err
	}()
	if err != nil {
		db.Close()
		return nil, err
	}
	return b, nil
}

func (b *book) way(ctx context.Context, right int64) (Way, error) {
	w := Way{Name: "receiver, SQLite"}
	err := b.db.QueryRowContext(ctx, "SELECT count(*), count(*) - count(DISTINCT id), coalesce(sum(cents), 0) FROM booking").Scan(&w.Handled, &w.Twice, &w.Total)
	w.OffBy = w.Total - right
	return w, err
}

func amountOf(body []byte) (int64, error) {
	var in struct {
		Data struct {
			Amount int64 `json:"amount"`
		} `json:"data"`
	}
	if err := json.Unmarshal(body, &in); err != nil || in.Data.Amount == 0 {
		return 0, errors.New("the body holds no amount")
	}
	return in.Data.Amount, nil
}
