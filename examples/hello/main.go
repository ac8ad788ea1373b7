// Command hello is the smallest program with the engine inside: it tells one person one thing, if it is
// still true, and prints what became of it.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"

	"belfry"
	"belfry/channel"
	"belfry/channel/webhook"
	"belfry/engine"
	"belfry/store"
	"belfry/store/sqlite"
)

func main() {
	if err := hello(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "hello:", err)
	}
}

func hello(ctx context.Context) error {
	// Somebody who is told: a program that takes webhooks.
	told := make(chan struct{})
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var body webhook.Body
		if json.NewDecoder(r.Body).Decode(&body) == nil {
			fmt.Println("told:", body.Title)
		}
		close(told)
	}))
	defer receiver.Close()

	// The engine: a store, a channel, and the question that is asked right before something is sent.
	dir, err := os.MkdirTemp("", "hello")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	st, err := sqlite.Open(ctx, dir, sqlite.Options{})
	if err != nil {
		return err
	}
	defer st.Close()
	hooks, err := webhook.New(webhook.Options{AllowAll: true}) // the receiver is on this machine
	if err != nil {
		return err
	}
	e, err := engine.New(st, []channel.Channel{hooks}, engine.Options{
		Recheck: map[string]engine.RecheckFunc{
			"price_drop": func(context.Context, belfry.Check) (belfry.Verdict, error) {
				return belfry.Send(json.RawMessage(`{"item": "kettle", "price": 1850}`)), nil // cheaper still
			},
		},
	})
	if err != nil {
		return err
	}
	working, stop := context.WithCancel(ctx)
	defer stop()
	stopped := make(chan error, 1)
	go func() { stopped <- e.Run(working) }()

	// A kind of notification, and one of it.
	err = e.PutCategory(ctx, belfry.Category{
		Project: "default", Name: "price_drop", Templates: belfry.Templates{"title": "{{.item}} is down to {{.price}}"},
	})
	if err != nil {
		return err
	}
	enqueued, err := e.Enqueue(ctx, []store.Request{{
		Request: belfry.Request{
			Project: "default", Recipient: "user-42", Category: "price_drop", Subject: "watch-981",
			Data:    json.RawMessage(`{"item": "kettle", "price": 1980}`),
			Options: belfry.Options{Once: &belfry.Once{Per: belfry.PerDay}},
		},
		Inline: &store.Inline{
			Recipient: belfry.Recipient{ID: "user-42", Zone: "Asia/Tokyo"},
			Registrations: []belfry.Registration{{
				Channel: "webhook", Address: belfry.Secret(receiver.URL), Keys: belfry.Keys{"secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"},
			}},
		},
	}}, true)
	if err != nil {
		return err
	}
	if err := enqueued[0].Err; err != nil {
		return err
	}

	<-told
	stop() // what is on the wire is finished first
	if err := <-stopped; err != nil {
		return err
	}
	story, err := e.Notification(ctx, "default", enqueued[0].ID)
	if err != nil {
		return err
	}
	fmt.Println("the notification is", story.State, "to", story.Deliveries[0].Channel)
	return nil
}
