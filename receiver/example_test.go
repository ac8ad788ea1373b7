package receiver_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	_ "modernc.org/sqlite"

	"belfry/receiver"
	"belfry/receiver/sqlite"
	"belfry/signature"
)

// payments is your handler, as an effect: what it writes through tx happens once.
func payments(ctx context.Context, tx *sql.Tx, m receiver.Message) error {
	var in struct{ Cents int64 }
	if err := json.Unmarshal(m.Body, &in); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, "INSERT INTO booking (cents) VALUES (?)", in.Cents)
	return err
}

func hook(ctx context.Context, db *sql.DB, secret signature.Secret) (http.Handler, error) {
	store, err := sqlite.Open(ctx, db) // or postgres.Open, postgres.OpenSQL
	if err != nil {
		return nil, err
	}
	in, err := receiver.New(store, receiver.Options{Source: "shop", Sender: receiver.Belfry(24 * time.Hour)})
	if err != nil {
		return nil, err
	}
	return in.Handler(receiver.HTTP{Secrets: []signature.Secret{secret}}, payments)
}

func Example() {
	ctx := context.Background()
	db, err := sql.Open("sqlite", "file:/example?vfs=memdb&_pragma=busy_timeout(10000)") // your own database
	if err != nil {
		panic(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, "CREATE TABLE booking (cents INTEGER NOT NULL)"); err != nil {
		panic(err)
	}
	secret, err := signature.ParseSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		panic(err)
	}
	h, err := hook(ctx, db, secret)
	if err != nil {
		panic(err)
	}

	for range 3 { // the sender got no answer twice
		const body = `{"cents": 1980}`
		signed, _ := signature.Sign("msg_1", time.Now(), []byte(body), secret)
		r := httptest.NewRequest(http.MethodPost, "/hook", strings.NewReader(body))
		r.Header.Set("webhook-id", "msg_1")
		r.Header.Set("webhook-timestamp", fmt.Sprint(time.Now().Unix()))
		r.Header.Set("webhook-signature", signed)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		fmt.Println(w.Code, w.Header().Get(receiver.HeaderResult))
	}
	var cents int64
	if err := db.QueryRowContext(ctx, "SELECT sum(cents) FROM booking").Scan(&cents); err != nil {
		panic(err)
	}
	fmt.Println(cents)
	// Output:
	// 204 applied
	// 204 duplicate
	// 204 duplicate
	// 1980
}

func ExampleReceiver_Once() {
	ctx := context.Background()
	db, err := sql.Open("sqlite", "file:/queue?vfs=memdb&_pragma=busy_timeout(10000)")
	if err != nil {
		panic(err)
	}
	defer db.Close()
	store, err := sqlite.Open(ctx, db)
	if err != nil {
		panic(err)
	}
	in, err := receiver.New(store, receiver.Options{Source: "orders", Sender: receiver.Sender{Ends: 4 * 24 * time.Hour}})
	if err != nil {
		panic(err)
	}

	for range 2 { // a queue delivers one message twice
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			panic(err)
		}
		m := receiver.Message{ID: receiver.Key(nil, "order", "17", "paid")}
		res, err := in.Once(ctx, tx, m, func(tx *sql.Tx) error {
			fmt.Println("the effect")
			return nil
		})
		if err != nil {
			_ = tx.Rollback()
			panic(err)
		}
		if err := tx.Commit(); err != nil {
			panic(err)
		}
		fmt.Println(res)
	}
	// Output:
	// the effect
	// applied
	// duplicate
}
