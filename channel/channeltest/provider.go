package channeltest

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"belfry"
	"belfry/channel"
)

// provider is a pretend one. It reads every request to its end before it answers.
type provider struct {
	*httptest.Server
	mu       sync.Mutex
	requests []request
}

type request struct {
	*http.Request
	body []byte
}

var discard = log.New(io.Discard, "", 0)

func serve(t testing.TB, answer http.HandlerFunc) *provider {
	p := new(provider)
	p.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		p.mu.Lock()
		p.requests = append(p.requests, request{r, body})
		p.mu.Unlock()
		answer(w, r)
	}))
	p.Config.ErrorLog = discard
	p.Start()
	t.Cleanup(func() {
		p.CloseClientConnections() // a handler may wait for a client that does not give up
		p.Close()
	})
	return p
}

func (p *provider) seen() []request {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.requests
}

// raw writes text in place of an answer and closes the connection.
func raw(w http.ResponseWriter, text string) {
	if c := hijack(w); c != nil {
		_, _ = io.WriteString(c, text)
		_ = c.Close()
	}
}

// reset closes the connection so that the other side sees a reset.
func reset(w http.ResponseWriter) {
	if c := hijack(w); c != nil {
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = c.Close()
	}
}

func hijack(w http.ResponseWriter) net.Conn {
	c, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	return c
}

// patience is how long a fact waits for something that should come at once.
var patience = 20 * time.Second

// secretText is in the content of every message: what a person reads may not show in an error either.
const secretText = "Kettle-is-cheaper-now"

func message() channel.Message {
	return channel.Message{
		Delivery: belfry.DeliveryID{Notification: 123456789012345, N: 1},
		Category: "price_drop",
		Subject:  "watch-981",
		Created:  time.Date(2026, 12, 1, 9, 0, 0, 0, time.UTC),
		Content: belfry.Content{
			Title: secretText, Body: "Now 1980 yen.", Link: "https://shop.example/k?a=1&b=2", Image: "https://shop.example/k.png",
			Data: json.RawMessage(`{"item":"kettle","price":1980,"tags":["a","b"],"shop":{"z":1,"a":2}}`),
		},
	}
}

func arm(t testing.TB, ch channel.Channel, e belfry.Endpoint) channel.Armed {
	m := message()
	payload, err := ch.Encode(m)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	return channel.Armed{
		Delivery: m.Delivery, Epoch: 7, Attempt: 1, Endpoint: e, Payload: payload, Lane: belfry.Normal,
		Category: m.Category, Subject: m.Subject, Now: now, Deadline: now.Add(time.Hour),
	}
}

// send makes one try and fails when that takes too long or shows a secret.
func send(t testing.TB, ctx context.Context, s Setup, p Provider) belfry.Answer {
	t.Helper()
	ch, e := s.Open(t, p)
	return try(t, ctx, s, ch, arm(t, ch, e))
}

func try(t testing.TB, ctx context.Context, s Setup, ch channel.Channel, a channel.Armed) belfry.Answer {
	t.Helper()
	type result struct {
		ref string
		err error
	}
	var logged bytes.Buffer
	restore := capture(&logged)
	done := make(chan result, 1)
	go func() {
		ref, err := ch.Send(ctx, a)
		done <- result{ref, err}
	}()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case r := <-done:
		restore()
		if r.err != nil {
			s.leaks(t, a, "the error", r.err.Error())
		}
		got := belfry.AnswerOf(r.ref, r.err)
		s.leaks(t, a, "the detail", got.Detail)
		s.leaks(t, a, "the log", logged.String())
		return got
	case <-timer.C:
		restore()
		t.Fatalf("Send did not return within %v", patience)
	}
	return belfry.Answer{}
}
