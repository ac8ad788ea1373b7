package lab

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"belfry"
	"belfry/api"
	"belfry/sandbox"
)

// KillOptions of [Kill]. The zero value works for a program with the commands of belfry.
type KillOptions struct {
	For    time.Duration // how long it is killed; default 30 s
	Seed   uint64        // default: another one every time
	Binary string        // the program to run; default: the one that is running
	JSON   bool          // print the verdict as JSON
	Out    io.Writer     // for the verdict; default: nowhere
	Err    io.Writer     // for the seed and the progress; default: nowhere
}

// Kill runs a server and kills it, again and again, at moments that the seed picks, while callers enqueue, cancel
// and opt people out, and receivers answer badly. Then it lets the server come to rest and judges from three logs:
// what callers were told, what receivers accepted, what was answered to those who changed their mind; and from the
// attempts as the API tells them.
func Kill(ctx context.Context, o KillOptions) (Verdict, error) {
	o.For = cmp.Or(o.For, 30*time.Second)
	o.Seed = cmp.Or(o.Seed, rand.Uint64()>>12)
	if o.Out == nil {
		o.Out = io.Discard
	}
	if o.Err == nil {
		o.Err = io.Discard
	}
	fmt.Fprintf(o.Err, "seed %d\n", o.Seed)
	dir, err := os.MkdirTemp("", "belfry-kill-")
	if err != nil {
		return Verdict{}, err
	}
	defer os.RemoveAll(dir)
	k := &killing{KillOptions: o, dir: dir}
	h, err := k.run(ctx)
	if err != nil {
		return Verdict{Seed: o.Seed, Kills: k.kills}, err
	}
	v := judge(h)
	v.Seed, v.Kills = o.Seed, k.kills
	return v, v.print(o.Out, o.JSON)
}

func (v Verdict) print(w io.Writer, asJSON bool) error {
	if asJSON {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		e.SetEscapeHTML(false)
		return e.Encode(v)
	}
	_, err := fmt.Fprintf(w, `%d kills
%d enqueues acknowledged, %d found again, %d lost
%d messages accepted, %d of them again, %d of those explained by a try without an answer
%d sent after an opt-out or a cancel
%d dishonest ends, %d honestly unknown
`, v.Kills, v.Acknowledged, v.Found, v.Lost, v.Accepted, v.Duplicates, v.DuplicatesExplained, v.SentAfterOptout, v.Dishonest, v.Unknown)
	for _, b := range v.Broken {
		fmt.Fprintln(w, "broken:", b)
	}
	return err
}

const (
	people    = 50
	enqueuers = 4
	patience  = 2 * time.Minute // for the server to come to rest
)

// modes are the categories of a run.
var modes = map[string]belfry.Mode{"again": belfry.AtLeastOnce, "once": belfry.AtMostOnce}

var categories = []string{"again", "once"}

// killing is a run of [Kill].
type killing struct {
	KillOptions
	dir     string
	program string
	sandbox *sandbox.Sandbox
	client  *client
	address string
	kills   int

	mu    sync.Mutex
	acks  []ack
	minds []mind
}

func (k *killing) run(ctx context.Context) (h history, err error) {
	if k.program, err = binary(k.Binary); err != nil {
		return h, err
	}
	if k.address, err = freeAddress(); err != nil {
		return h, err
	}
	k.client = newClient("http://"+k.address, 2*enqueuers)
	if k.sandbox, err = sandbox.New(sandbox.Options{LogFile: filepath.Join(k.dir, "accepted.jsonl")}); err != nil {
		return h, err
	}
	defer k.sandbox.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return h, err
	}
	receivers := &http.Server{Handler: k.sandbox}
	go receivers.Serve(l)
	defer receivers.Close()

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c, err := k.serve(ctx)
	if err != nil {
		return h, err
	}
	if err := k.setUp(ctx, "http://"+l.Addr().String()); err != nil {
		return h, err
	}
	if c, err = k.storm(ctx, c); err != nil {
		return h, err
	}
	if err := k.rest(ctx, c); err != nil {
		return h, err
	}
	h = history{acks: k.acks, minds: k.minds}
	for _, e := range k.sandbox.Log() {
		id, err := belfry.ParseDeliveryID(e.ID)
		if err != nil {
			return h, fmt.Errorf("lab: a receiver got the id %q: %w", e.ID, err)
		}
		h.accepts = append(h.accepts, accept{e.At, id, e.Header.Get("Webhook-Epoch")})
	}
	if h.finals, err = k.finals(ctx, h); err != nil {
		return h, err
	}
	k.client.http.CloseIdleConnections()
	return h, c.stop()
}

// serve starts the server on its data, as it was left.
func (k *killing) serve(ctx context.Context) (*child, error) {
	return start(ctx, k.program, []string{
		"BELFRY_CHANNELS__WEBHOOK__TIMEOUT=500ms", "BELFRY_LOG__LEVEL=error",
	}, "serve", "--dev", "--data", filepath.Join(k.dir, "data"), "--listen", k.address)
}

// rng is the chance of one who takes part, so that the order in which they run does not matter.
func (k *killing) rng(who uint64) *rand.Rand { return rand.New(rand.NewPCG(k.Seed, who)) }

func between(r *rand.Rand, low, high time.Duration) time.Duration {
	return low + time.Duration(r.Int64N(int64(high-low)))
}

func (k *killing) setUp(ctx context.Context, receivers string) error {
	for name, mode := range modes {
		err := k.client.call(ctx, "PUT", "/v1/categories/"+name, map[string]any{
			"delivery": mode, "expires_in": "1h",
			"retry": map[string]any{"first": "50ms", "factor": 1.5, "max": "500ms", "attempts": 60},
		}, nil)
		if err != nil {
			return err
		}
	}
	r := k.rng(1)
	for i := range people {
		name := fmt.Sprint("r", i)
		if err := k.client.call(ctx, "PUT", "/v1/recipients/"+name, map[string]any{"zone": "UTC"}, nil); err != nil {
			return err
		}
		err := k.client.call(ctx, "PUT", "/v1/recipients/"+name+"/endpoints", map[string]any{"channel": "webhook", "address": receivers + "/webhook/" + name}, nil)
		if err != nil {
			return err
		}
		if err := k.sandbox.Script(sandbox.Script{Channel: "webhook", To: name, Answers: answers(r)}); err != nil {
			return err
		}
	}
	return nil
}

// answers are those of one receiver: mostly good ones.
func answers(r *rand.Rand) []sandbox.Answer {
	out := make([]sandbox.Answer, 5000)
	for i := range out {
		switch n := r.IntN(100); {
		case n < 7:
			out[i].Status = 503
		case n < 9:
			out[i].HangMS = 1000
		case n < 14:
			out[i].AcceptThenDrop = true
		case n < 16:
			out[i].Drop = true
		case n < 24:
			out[i].DelayMS = r.IntN(100)
		}
	}
	return append(out, sandbox.Answer{Status: 200})
}

// storm is the time in which the server is killed. It returns the last one, which lives.
func (k *killing) storm(ctx context.Context, c *child) (*child, error) {
	calm, end := context.WithTimeout(ctx, k.For)
	defer end()
	var work crew
	for i := range enqueuers {
		work.start(func() error { return k.enqueue(ctx, calm, i) })
	}
	work.start(func() error { return k.cancel(ctx, calm) })
	work.start(func() error { return k.optOut(ctx, calm) })
	c, err := k.killer(ctx, calm, c)
	if err != nil {
		end()
		return nil, err
	}
	return c, work.wait()
}

// killer kills and restarts, now and then in the middle of a start.
func (k *killing) killer(ctx, calm context.Context, c *child) (*child, error) {
	r := k.rng(2)
	bars := newProgress(k.Err)
	began, done := time.Now(), bars.bar("killing", k.For.Milliseconds())
	defer done(k.For.Milliseconds())
	for {
		if wait(calm, between(r, 50*time.Millisecond, 500*time.Millisecond)) != nil {
			return c, ctx.Err()
		}
		if !c.alive() {
			return nil, c.failure()
		}
		c.kill()
		k.kills++
		for r.IntN(8) == 0 {
			early, _, err := launch(ctx, k.program, nil, "serve", "--dev", "--data", filepath.Join(k.dir, "data"), "--listen", k.address)
			if err != nil {
				return nil, err
			}
			_ = wait(ctx, between(r, time.Millisecond, 60*time.Millisecond))
			early.kill()
			k.kills++
		}
		var err error
		if c, err = k.serve(ctx); err != nil {
			return nil, err
		}
		done(time.Since(began).Milliseconds())
	}
}

// until repeats a call until the server has answered it, which may be a refusal.
func (k *killing) until(ctx context.Context, method, path string, body []byte, out any) error {
	for {
		err := k.client.send(ctx, method, path, body, out)
		if r, refused := errors.AsType[*refusal](err); err == nil || refused && r.status < 500 {
			return err
		}
		if err := wait(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
}

// enqueue enqueues, each time with one key until it is answered.
func (k *killing) enqueue(ctx, calm context.Context, who int) error {
	r := k.rng(10 + uint64(who))
	for i := 0; calm.Err() == nil; i++ {
		key := fmt.Sprintf("key-%d-%d", who, i)
		in := map[string]any{
			"key": key, "recipient": fmt.Sprint("r", r.IntN(people)), "category": categories[r.IntN(2)],
			"data": map[string]any{"n": i},
		}
		if r.IntN(2) == 0 {
			in["at"] = time.Now().Add(between(r, 0, 1500*time.Millisecond)).UTC()
		}
		body, err := json.Marshal(in)
		if err != nil {
			return err
		}
		var out struct {
			ID belfry.ID `json:"id"`
		}
		if err := k.until(ctx, "POST", "/v1/notifications", body, &out); err != nil {
			return fmt.Errorf("lab: enqueue: %w", err)
		}
		k.mu.Lock()
		k.acks = append(k.acks, ack{key, out.ID})
		k.mu.Unlock()
		_ = wait(calm, between(r, time.Millisecond, 12*time.Millisecond))
	}
	return nil
}

// cancel cancels what was enqueued of late.
func (k *killing) cancel(ctx, calm context.Context) error {
	r := k.rng(3)
	for wait(calm, between(r, 10*time.Millisecond, 60*time.Millisecond)) == nil {
		k.mu.Lock()
		n := len(k.acks)
		var id belfry.ID
		if n > 0 {
			id = k.acks[n-1-r.IntN(min(n, 100))].id
		}
		k.mu.Unlock()
		if n == 0 {
			continue
		}
		err := k.until(ctx, "POST", "/v1/notifications/"+id.String()+"/cancel", nil, nil)
		if r, refused := errors.AsType[*refusal](err); refused && r.status == http.StatusConflict {
			continue // it had ended, or is in flight: no promise was made
		}
		if err != nil {
			return fmt.Errorf("lab: cancel: %w", err)
		}
		k.note(mind{answered: time.Now(), cancelled: id})
	}
	return nil
}

// optOut opts people out of a category, and some of them in again.
func (k *killing) optOut(ctx, calm context.Context) error {
	type switched struct{ recipient, category string }
	out := map[switched]int{} // index into minds
	r := k.rng(4)
	for wait(calm, between(r, 20*time.Millisecond, 120*time.Millisecond)) == nil {
		s := switched{fmt.Sprint("r", r.IntN(people)), categories[r.IntN(2)]}
		i, isOut := out[s]
		body, err := json.Marshal(map[string]any{s.category: map[string]bool{"*": isOut}})
		if err != nil {
			return err
		}
		if isOut { // from now on it may be sent again, whenever the answer comes
			k.mu.Lock()
			k.minds[i].revoked = time.Now()
			k.mu.Unlock()
		}
		var answer api.Withdrawn
		if err := k.until(ctx, "PATCH", "/v1/recipients/"+s.recipient+"/preferences", body, &answer); err != nil {
			return fmt.Errorf("lab: opt out: %w", err)
		}
		if delete(out, s); !isOut {
			out[s] = k.note(mind{answered: time.Now(), inFlight: answer.InFlight, recipient: s.recipient, category: s.category})
		}
	}
	return nil
}

// note keeps a change of mind and says where.
func (k *killing) note(m mind) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.minds = append(k.minds, m)
	return len(k.minds) - 1
}

// rest waits until nothing is under way any more.
func (k *killing) rest(ctx context.Context, c *child) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		var s api.Stats
		if err := k.client.call(ctx, "GET", "/v1/stats", nil, &s); err == nil && s.Waiting+s.Sending == 0 {
			return nil
		}
		if !c.alive() {
			return c.failure()
		}
		if err := wait(ctx, 50*time.Millisecond); err != nil {
			if ctx.Err() == context.DeadlineExceeded { // the judge will say what was lost
				return nil
			}
			return err
		}
	}
}

// finals asks for everything that was acknowledged or accepted.
func (k *killing) finals(ctx context.Context, h history) (map[belfry.ID]final, error) {
	var ids []belfry.ID
	seen := map[belfry.ID]bool{}
	add := func(id belfry.ID) {
		if !seen[id] {
			seen[id] = true
			ids = append(ids, id)
		}
	}
	for _, a := range h.acks {
		add(a.id)
	}
	for _, a := range h.accepts {
		add(a.id.Notification)
	}
	done := newProgress(k.Err).bar("judging", int64(len(ids)))
	defer done(int64(len(ids)))
	out := make(map[belfry.ID]final, len(ids))
	var work crew
	var next atomic.Int64
	for range 2 * enqueuers {
		work.start(func() error {
			for {
				i := next.Add(1) - 1
				if i >= int64(len(ids)) {
					return nil
				}
				var n api.Notification
				err := k.client.call(ctx, "GET", "/v1/notifications/"+ids[i].String(), nil, &n)
				if r, refused := errors.AsType[*refusal](err); refused && r.status == http.StatusNotFound {
					continue
				}
				if err != nil {
					return err
				}
				k.mu.Lock()
				out[ids[i]] = finalOf(n)
				k.mu.Unlock()
				done(i)
			}
		})
	}
	return out, work.wait()
}

func finalOf(n api.Notification) final {
	f := final{recipient: n.Recipient, category: n.Category, state: n.State}
	for _, d := range n.Deliveries {
		fd := finalDelivery{id: d.ID, state: d.State, mode: d.Mode}
		for _, a := range d.Attempts {
			fd.attempts = append(fd.attempts, attempt{a.Epoch, a.ArmedAt, a.Outcome, a.Lost})
		}
		f.deliveries = append(f.deliveries, fd)
	}
	return f
}
