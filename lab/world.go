package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"belfry"
	"belfry/channel"
	"belfry/engine"
	"belfry/store"
	"belfry/store/sqlite"
)

// Settings of the engines that are measured in this process.
const (
	benchWorkers = 4096
	benchClaim   = 512
	benchBatch   = 1000 // notifications in one call
)

// world is an engine on a fresh SQLite store in this process, with people who have one endpoint each.
type world struct {
	engine  *engine.Engine
	store   *sqlite.Store
	people  int
	address func(person int) belfry.Secret
	channel string
	sent    atomic.Int64 // notifications that ended as sent
	other   atomic.Int64 // or otherwise
	target  atomic.Int64
	reached chan struct{} // one word when sent reaches target

	end     context.CancelFunc
	stopped chan error
}

func newWorld(ctx context.Context, dir string, people int, c channel.Channel, address func(int) belfry.Secret) (*world, error) {
	dir, err := os.MkdirTemp(dir, "world-")
	if err != nil {
		return nil, err
	}
	w := &world{people: people, address: address, channel: c.Name(), reached: make(chan struct{}, 1)}
	if w.store, err = sqlite.Open(ctx, dir, sqlite.Options{}); err != nil {
		return nil, err
	}
	w.engine, err = engine.New(w.store, []channel.Channel{c}, engine.Options{
		DefaultWorkers: benchWorkers, ClaimBatch: benchClaim, Observe: w.observe,
	})
	if err == nil {
		err = w.populate(ctx)
	}
	if err != nil {
		w.store.Close()
		return nil, err
	}
	return w, nil
}

func (w *world) observe(e engine.Event) {
	switch e.State {
	case "":
	case belfry.Sent:
		if w.sent.Add(1) == w.target.Load() {
			w.reached <- struct{}{}
		}
	default:
		w.other.Add(1)
	}
}

// populate makes the people, by sending each of them something.
func (w *world) populate(ctx context.Context) error {
	w.run(ctx)
	for from := 0; from < w.people; from += benchBatch {
		var rs []store.Request
		for i := from; i < min(from+benchBatch, w.people); i++ {
			r := w.request(i)
			r.Inline = &store.Inline{
				Recipient:     belfry.Recipient{Zone: "UTC"},
				Registrations: []belfry.Registration{{Channel: w.channel, Address: w.address(i)}},
			}
			rs = append(rs, r)
		}
		if _, err := w.enqueue(ctx, rs); err != nil {
			return err
		}
	}
	if err := w.await(ctx, w.people); err != nil {
		return err
	}
	return w.halt()
}

// request is the i-th notification, of those who go round the people.
func (w *world) request(i int) store.Request {
	return store.Request{Request: belfry.Request{
		Project: "default", Recipient: fmt.Sprint("user-", i%w.people), Subject: "a parcel",
		Data: json.RawMessage(fmt.Sprintf(`{"title":"Your parcel is here","body":"Locker %d, until Friday","code":"%06d"}`, i%97, i)),
	}}
}

func (w *world) requests(from, n int) []store.Request {
	rs := make([]store.Request, n)
	for i := range rs {
		rs[i] = w.request(from + i)
	}
	return rs
}

// enqueue fails when one of the requests does.
func (w *world) enqueue(ctx context.Context, rs []store.Request) ([]store.Enqueued, error) {
	out, err := w.engine.Enqueue(ctx, rs, true)
	for _, e := range out {
		if err == nil {
			err = e.Err
		}
	}
	return out, err
}

// fill enqueues n notifications, as callers side by side would, beginning with the one after from.
func (w *world) fill(ctx context.Context, from, n, callers int, done func(int64)) error {
	var work crew
	var next atomic.Int64
	for range callers {
		work.start(func() error {
			for {
				i := int(next.Add(benchBatch)) - benchBatch
				if i >= n || ctx.Err() != nil {
					return ctx.Err()
				}
				if _, err := w.enqueue(ctx, w.requests(from+i, min(benchBatch, n-i))); err != nil {
					return err
				}
				done(int64(i))
			}
		})
	}
	return work.wait()
}

func (w *world) run(ctx context.Context) {
	ctx, w.end = context.WithCancel(ctx)
	w.stopped = make(chan error, 1)
	go func() { w.stopped <- w.engine.Run(ctx) }()
}

func (w *world) halt() error {
	w.end()
	return <-w.stopped
}

// await waits until n notifications in all have been sent.
func (w *world) await(ctx context.Context, n int) error {
	w.target.Store(int64(n))
	if w.sent.Load() >= int64(n) {
		select { // it may, or may not, have been reached after the target was set
		case <-w.reached:
		case <-time.After(10 * time.Millisecond):
		}
	} else {
		select {
		case <-w.reached:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if others := w.other.Load(); others > 0 {
		return fmt.Errorf("lab: %d notifications ended otherwise than sent", others)
	}
	return nil
}

func (w *world) close() error { return w.store.Close() }
