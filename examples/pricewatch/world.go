package pricewatch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"belfry"
	"belfry/channel"
	"belfry/channel/webhook"
	"belfry/channel/webpush"
	"belfry/engine"
	"belfry/sandbox"
	"belfry/signature"
	"belfry/store"
	"belfry/store/sqlite"
)

// world is everything in one process: the sandbox on a port of its own, the engine on a file in a fresh
// folder, the application, and trouble.
type world struct {
	dir      string
	url      string // of the sandbox
	sandbox  *sandbox.Sandbox
	server   *http.Server
	shop     *Shop
	store    *sqlite.Store
	engine   *engine.Engine
	app      *App
	mischief *mischief
	owner    map[string]string // of a receiver of the sandbox: the person
	tally    tally
	stop     func() error // of the engine
}

// tally counts what only passes by.
type tally struct {
	mu           sync.Mutex
	acknowledged []belfry.ID
	duplicates   int
	accepted     int // answers that said so
	retries      int
	late         []time.Duration
}

func (t *tally) observe(e engine.Event) {
	if e.State != "" {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if e.First {
		t.late = append(t.late, e.Late)
	} else {
		t.retries++
	}
	if e.Outcome == belfry.OutcomeAccepted {
		t.accepted++
	}
}

func (t *tally) enqueued(e store.Enqueued) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e.Duplicate {
		t.duplicates++
	} else {
		t.acknowledged = append(t.acknowledged, e.ID)
	}
}

// timeout is how long a channel waits for an answer.
const timeout = time.Second

// open makes the world. interval is the time between two ticks. What was opened is closed by close, also
// after an error.
func (w *world) open(ctx context.Context, watches []Watch, interval time.Duration, errs io.Writer) (err error) {
	if w.dir, err = os.MkdirTemp("", "pricewatch-"); err != nil {
		return err
	}
	if err := w.openSandbox(); err != nil {
		return err
	}
	file := filepath.Join(w.dir, "shop.db")
	if w.store, err = sqlite.OpenFile(ctx, file, sqlite.Options{}); err != nil {
		return err
	}
	channels, key, err := openChannels(ctx, w.store)
	if err != nil {
		return err
	}
	w.shop = newShop()
	w.shop.trouble = stumble(dice(2))
	recheck := Recheck(w.shop)
	w.engine, err = engine.New(w.store, channels, engine.Options{
		Recheck: map[string]engine.RecheckFunc{PriceDrop: recheck, PriceLow: recheck},
		Observe: w.tally.observe,
		Log:     slog.New(slog.NewTextHandler(errs, &slog.HandlerOptions{Level: slog.LevelError})),
	})
	if err != nil {
		return err
	}
	if w.app, err = newApp(ctx, w.engine, file, w.shop, watches); err != nil {
		return err
	}
	w.app.settle = interval + interval/2
	for _, c := range categories(10 * interval) {
		if err := w.engine.PutCategory(ctx, c); err != nil {
			return err
		}
	}
	w.mischief = &mischief{engine: w.engine, sandbox: w.sandbox, devices: map[string]string{}, count: map[string]int{}}
	w.app.enqueued = func(watch Watch, e store.Enqueued) {
		if w.tally.enqueued(e); !e.Duplicate {
			w.mischief.told(ctx, watch, e)
		}
	}
	w.owner = map[string]string{}
	random := dice(1)
	for i, p := range people {
		if err := w.welcome(ctx, i, p, key, random); err != nil {
			return err
		}
	}
	running, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- w.engine.Run(running) }()
	w.stop = sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	return nil
}

func (w *world) openSandbox() (err error) {
	if w.sandbox, err = sandbox.New(sandbox.Options{}); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	w.url = "http://" + listener.Addr().String()
	w.server = &http.Server{Handler: w.sandbox, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
	go w.server.Serve(listener) // ends when it is closed
	return nil
}

// openChannels makes the ways out. The key that browsers subscribe with is made once and kept in the store.
func openChannels(ctx context.Context, st store.Store) (channels []channel.Channel, public string, err error) {
	fresh, err := webpush.GenerateKey()
	if err != nil {
		return nil, "", err
	}
	key, err := st.Secret(ctx, "webpush", fresh)
	if err != nil {
		return nil, "", err
	}
	// AllowAll because the sandbox is on this machine, where nothing is sent to otherwise.
	push, err := webpush.New(webpush.Options{Key: key, Subject: "mailto:push@shop.example", AllowAll: true, Timeout: timeout})
	if err != nil {
		return nil, "", err
	}
	hook, err := webhook.New(webhook.Options{AllowAll: true, Timeout: timeout})
	if err != nil {
		return nil, "", err
	}
	return []channel.Channel{push, hook}, push.PublicKey(), nil
}

// Some have a browser, some a program that takes webhooks, some both.
var (
	hookOnly = []string{"ana", "dan", "ian", "hana"}
	pushOnly = []string{"fay", "gus", "kim", "max"}
	slowOnes = []string{"ana", "ian"}
)

// welcome makes a person known, with receivers in the sandbox that have moods.
func (w *world) welcome(ctx context.Context, i int, p Person, key string, random *rand.Rand) error {
	var places []belfry.Registration
	mood := func(channel, to string) error {
		w.owner[to] = p.ID
		script := sandbox.Script{Channel: channel, To: to, Answers: answers(random)}
		if slices.Contains(slowOnes, p.ID) {
			script.Answers = slow()
		}
		return w.sandbox.Script(script)
	}
	if !slices.Contains(hookOnly, p.ID) && (slices.Contains(pushOnly, p.ID) || i%4 != 0) {
		sub, err := w.sandbox.Subscribe(w.url, key)
		if err != nil {
			return err
		}
		if err := mood("webpush", sub.ID); err != nil {
			return err
		}
		w.mischief.devices[p.ID] = sub.ID
		places = append(places, belfry.Registration{
			Channel: "webpush", Device: p.ID + "-browser", Address: belfry.Secret(sub.Endpoint),
			Keys: belfry.Keys{"p256dh": belfry.Secret(sub.Keys.P256dh), "auth": belfry.Secret(sub.Keys.Auth)},
		})
	}
	if !slices.Contains(pushOnly, p.ID) && (len(places) == 0 || i%2 == 0 || p.ID == "ben") {
		secret, err := signature.NewSecret(nil)
		if err != nil {
			return err
		}
		if err := w.sandbox.Secret(p.ID, secret.Reveal()); err != nil {
			return err
		}
		if err := mood("webhook", p.ID); err != nil {
			return err
		}
		places = append(places, belfry.Registration{
			Channel: "webhook", Address: belfry.Secret(w.url + "/webhook/" + p.ID), Keys: belfry.Keys{"secret": belfry.Secret(secret.Reveal())},
		})
	}
	return join(ctx, w.engine, p, places...)
}

// drain waits until nothing is open any more, at most for so long.
func (w *world) drain(ctx context.Context, most time.Duration) error {
	w.mischief.work.Wait() // it does what it has in mind within a tick or two
	over := time.NewTimer(most)
	defer over.Stop()
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for {
		stats, err := w.engine.Stats(ctx, project)
		if err != nil || stats.Waiting+stats.Sending == 0 {
			return err
		}
		select {
		case <-over.C:
			return nil
		case <-look.C:
		}
	}
}

// result stops the engine and judges.
func (w *world) result(ctx context.Context) (r Result, err error) {
	if err := w.stop(); err != nil {
		return r, err
	}
	e := evidence{
		acknowledged: w.tally.acknowledged, log: w.sandbox.Log(), owner: w.owner,
		optOuts: w.mischief.optOuts, cancels: w.mischief.cancels, attempts: w.attempts,
	}
	if len(e.log) < w.tally.accepted {
		return r, fmt.Errorf("the sandbox's log lacks messages that were accepted: it has %d of at least %d; run for a shorter time", len(e.log), w.tally.accepted)
	}
	const page = 1000
	for before, more := belfry.ID(0), true; more; more = before != 0 {
		var list []store.Summary
		if list, before, err = w.engine.Notifications(ctx, store.Filter{Project: project}, before, page); err != nil {
			return r, err
		}
		e.ends = append(e.ends, list...)
	}
	r = Result{
		Enqueued: len(w.tally.acknowledged), Duplicates: w.tally.duplicates, Retries: w.tally.retries, Lateness: latenessOf(w.tally.late),
	}
	return r, errors.Join(judge(ctx, e, &r), w.mischief.err)
}

func (w *world) attempts(ctx context.Context, id belfry.DeliveryID) ([]belfry.Attempt, error) {
	story, err := w.engine.Notification(ctx, project, id.Notification)
	for _, d := range story.Deliveries {
		if d.ID == id {
			return d.Attempts, err
		}
	}
	return nil, err
}

func (w *world) close() error {
	var errs []error
	if w.stop != nil {
		errs = append(errs, w.stop())
	}
	if w.app != nil {
		errs = append(errs, w.app.Close())
	}
	if w.store != nil {
		errs = append(errs, w.store.Close())
	}
	if w.server != nil {
		errs = append(errs, w.server.Close())
	}
	if w.dir != "" {
		errs = append(errs, os.RemoveAll(w.dir))
	}
	return errors.Join(errs...)
}
