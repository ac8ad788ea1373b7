package lab

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"belfry"
	"belfry/channel/webhook"
	"belfry/sandbox"
	"belfry/store"
)

// BenchOptions of [Bench]. The zero value works for a program with the commands of belfry.
type BenchOptions struct {
	Dir    string    // where the databases go, on the disk to be measured; default: a temporary folder
	Binary string    // the program that runs as a server; default: the one that is running
	Quick  bool      // a tenth of everything: for a first look, not for quoting
	Only   []string  // keys of the figures to take; default: all
	JSON   bool      // print JSON
	Out    io.Writer // default: nowhere
	Err    io.Writer // for the progress; default: nowhere
}

// Figure is something that was measured.
type Figure struct {
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	N     int     `json:"n"`   // of what it was taken
	How   string  `json:"how"` // it was measured
}

// Figures is what [Bench] found. A figure that was not taken has n = 0. docs/bench.md explains the keys.
type Figures struct {
	Machine Machine `json:"machine"`

	EnqueueSingle Figure `json:"enqueue_single"`
	EnqueueBatch  Figure `json:"enqueue_batch"`
	Lives         Figure `json:"lives"`
	LivesTogether Figure `json:"lives_with_enqueue"`
	Webhooks      Figure `json:"webhooks"`
	WebhooksApart Figure `json:"webhooks_other_process"`
	LatenessP50   Figure `json:"lateness_p50"`
	LatenessP99   Figure `json:"lateness_p99"`
	LatenessMax   Figure `json:"lateness_max"`
	Early         Figure `json:"early"`
	UrgentP50     Figure `json:"urgent_p50"`
	UrgentP99     Figure `json:"urgent_p99"`
	UrgentMax     Figure `json:"urgent_max"`
	StartToReady  Figure `json:"start_to_ready"`
	Resident      Figure `json:"resident"`
}

// Machine is where it was measured.
type Machine struct {
	System string  `json:"system"`
	Cores  int     `json:"cores"`
	Go     string  `json:"go"`
	Load   float64 `json:"load"`    // others' work, as the average of the minute before; -1: not known
	SyncMS float64 `json:"sync_ms"` // the median time to write and sync 4 KiB to the disk
}

// Bench measures how fast the engine is on this machine: on SQLite with synchronous=FULL, so that everything that
// was acknowledged is on the disk.
func Bench(ctx context.Context, o BenchOptions) (Figures, error) {
	if o.Out == nil {
		o.Out = io.Discard
	}
	if o.Err == nil {
		o.Err = io.Discard
	}
	dir, err := os.MkdirTemp(o.Dir, "belfry-bench-")
	if err != nil {
		return Figures{}, err
	}
	defer os.RemoveAll(dir)
	b := &bench{BenchOptions: o, dir: dir, bars: newProgress(o.Err)}
	if b.program, err = binary(o.Binary); err != nil {
		return Figures{}, err
	}
	if b.Machine, err = machine(dir); err != nil {
		return b.Figures, err
	}
	for _, m := range []struct {
		keys string
		run  func(context.Context) error
	}{
		{"start_to_ready", b.start},
		{"resident", b.resident},
		{"enqueue_single", b.single},
		{"enqueue_batch lives lives_with_enqueue", b.lives},
		{"webhooks webhooks_other_process", b.webhooks},
		{"lateness_p50 lateness_p99 lateness_max early", b.lateness},
		{"urgent_p50 urgent_p99 urgent_max", b.urgent},
	} {
		if len(o.Only) > 0 && !slices.ContainsFunc(strings.Fields(m.keys), func(k string) bool { return slices.Contains(o.Only, k) }) {
			continue
		}
		if err := m.run(ctx); err != nil {
			return b.Figures, fmt.Errorf("lab: %s: %w", m.keys, err)
		}
	}
	return b.Figures, b.Figures.print(o.Out, o.JSON)
}

func (f Figures) print(w io.Writer, asJSON bool) error {
	if asJSON {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		e.SetEscapeHTML(false)
		return e.Encode(f)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	m := f.Machine
	fmt.Fprintf(t, "machine\t%s, %d cores, load %.1f, %s, a sync takes %.2f ms\n", m.System, m.Cores, m.Load, m.Go, m.SyncMS)
	v := reflect.ValueOf(f)
	for i := range v.NumField() {
		if fig, ok := v.Field(i).Interface().(Figure); ok && fig.N > 0 {
			fmt.Fprintf(t, "%s\t%s %s\t%s\n", v.Type().Field(i).Tag.Get("json"), strconv.FormatFloat(fig.Value, 'f', -1, 64), fig.Unit, fig.How)
		}
	}
	return t.Flush()
}

// bench is a run of [Bench].
type bench struct {
	BenchOptions
	Figures
	dir     string
	program string
	bars    *progress
}

// size is how many of something a full run takes.
func (b *bench) size(n int) int {
	if b.Quick {
		return n / 10
	}
	return n
}

func rate(n int, took time.Duration, how string, args ...any) Figure {
	return Figure{rounded(float64(n)/took.Seconds(), 0), "1/s", n, fmt.Sprintf(how, args...)}
}

func millis(d time.Duration, n int, how string, args ...any) Figure {
	return Figure{rounded(float64(d)/float64(time.Millisecond), 2), "ms", n, fmt.Sprintf(how, args...)}
}

func rounded(v float64, digits int) float64 {
	r, _ := strconv.ParseFloat(strconv.FormatFloat(v, 'f', digits, 64), 64) // of a number: cannot fail
	return r
}

func machine(dir string) (Machine, error) {
	m := Machine{System: runtime.GOOS + "/" + runtime.GOARCH, Cores: runtime.GOMAXPROCS(0), Go: runtime.Version(), Load: -1}
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		m.Load, _ = strconv.ParseFloat(strings.Fields(string(text))[0], 64)
	}
	f, err := os.Create(filepath.Join(dir, "sync"))
	if err != nil {
		return m, err
	}
	defer f.Close()
	var took []time.Duration
	page := make([]byte, 4096)
	for range 50 {
		began := time.Now()
		if _, err := f.Write(page); err != nil {
			return m, err
		}
		if err := f.Sync(); err != nil {
			return m, err
		}
		took = append(took, time.Since(began))
	}
	m.SyncMS = millis(quantile(took, 0.5), len(took), "").Value
	return m, nil
}

// quantile sorts what it is given.
func quantile(d []time.Duration, q float64) time.Duration {
	if len(d) == 0 {
		return 0
	}
	slices.Sort(d)
	return d[min(int(q*float64(len(d))), len(d)-1)]
}

// serve starts a server in a process of its own, on a folder of its own.
func (b *bench) serve(ctx context.Context) (*child, *client, error) {
	dir, err := os.MkdirTemp(b.dir, "server-")
	if err != nil {
		return nil, nil, err
	}
	c, err := start(ctx, b.program, []string{"BELFRY_LOG__LEVEL=error"}, "serve", "--dev", "--data", dir, "--listen", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	return c, newClient(c.url, singleClients), nil
}

const singleClients = 64

// start: from the start of the process to the first good answer of /readyz.
func (b *bench) start(ctx context.Context) error {
	n := b.size(20) + 1
	var took []time.Duration
	done := b.bars.bar("start to ready", int64(n))
	for i := range n {
		began := time.Now()
		c, to, err := b.serve(ctx)
		if err != nil {
			return err
		}
		for to.call(ctx, "GET", "/readyz", nil, nil) != nil {
			if err := wait(ctx, time.Millisecond); err != nil {
				return err
			}
		}
		took = append(took, time.Since(began))
		to.http.CloseIdleConnections()
		if err := c.stop(); err != nil {
			return err
		}
		done(int64(i + 1))
	}
	b.StartToReady = millis(quantile(took, 0.5), n, "the median, from the start of the process of belfry serve on a new folder to a good answer of /readyz")
	return nil
}

// people makes recipients with one endpoint each in a server, through its API.
func populate(ctx context.Context, to *client, people int) error {
	for from := 0; from < people; from += benchBatch {
		var list []any
		for i := from; i < min(from+benchBatch, people); i++ {
			list = append(list, map[string]any{
				"recipient": map[string]any{"id": fmt.Sprint("user-", i), "zone": "UTC", "webhook": "https://example.com/" + strconv.Itoa(i)},
				"at":        time.Now().Add(time.Hour), "channels": []string{"webhook"},
			})
		}
		if err := to.call(ctx, "POST", "/v1/notifications/batch", map[string]any{"notifications": list}, nil); err != nil {
			return err
		}
	}
	return nil
}

// resident: the memory of a server in which 100,000 wait.
func (b *bench) resident(ctx context.Context) error {
	n := b.size(100_000)
	c, to, err := b.serve(ctx)
	if err != nil {
		return err
	}
	defer c.kill()
	done := b.bars.bar("resident memory", int64(n))
	defer done(int64(n))
	if err := populate(ctx, to, benchBatch); err != nil {
		return err
	}
	for from := benchBatch; from < n; from += benchBatch {
		var list []any
		for i := range benchBatch {
			list = append(list, b.body(from+i))
		}
		if err := to.call(ctx, "POST", "/v1/notifications/batch", map[string]any{"notifications": list}, nil); err != nil {
			return err
		}
		done(int64(from))
	}
	const rest = 5 * time.Second
	if err := wait(ctx, rest); err != nil {
		return err
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.cmd.Process.Pid))
	if err != nil {
		return nil // not this system
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "VmRSS:" {
			kb, err := strconv.ParseFloat(f[1], 64)
			b.Resident = Figure{rounded(kb/1024, 1), "MiB", n, fmt.Sprintf("VmRSS of belfry serve with %d waiting, %v after the last was enqueued through its API", n, rest)}
			return err
		}
	}
	return nil
}

// body is a notification as callers write it, due in an hour.
func (b *bench) body(i int) map[string]any {
	return map[string]any{
		"recipient": fmt.Sprint("user-", i%benchBatch), "subject": "a parcel", "at": time.Now().Add(time.Hour).UTC(),
		"data": map[string]any{"title": "Your parcel is here", "body": fmt.Sprintf("Locker %d, until Friday", i%97), "code": i},
	}
}

// single: callers side by side, each with one request at a time.
func (b *bench) single(ctx context.Context) error {
	c, to, err := b.serve(ctx)
	if err != nil {
		return err
	}
	defer c.kill()
	if err := populate(ctx, to, benchBatch); err != nil {
		return err
	}
	const warm = time.Second
	length := 5 * time.Second
	if b.Quick {
		length = time.Second
	}
	done := b.bars.bar("single enqueues", int64(warm+length))
	defer done(int64(warm + length))
	var count atomic.Int64
	var work crew
	over, end := context.WithTimeout(ctx, warm+length+time.Minute)
	defer end()
	var stop atomic.Bool
	for who := range singleClients {
		body, err := json.Marshal(b.body(who))
		if err != nil {
			return err
		}
		work.start(func() error {
			for !stop.Load() {
				if err := to.send(over, "POST", "/v1/notifications", body, nil); err != nil {
					return err
				}
				count.Add(1)
			}
			return nil
		})
	}
	err = wait(ctx, warm)
	began, before := time.Now(), count.Load()
	for err == nil && time.Since(began) < length {
		err = wait(ctx, length/10)
		done(int64(warm + time.Since(began)))
	}
	n, took := int(count.Load()-before), time.Since(began)
	stop.Store(true)
	if e := work.wait(); e != nil || err != nil {
		return cmp.Or(e, err)
	}
	b.EnqueueSingle = rate(n, took, "POST /v1/notifications to belfry serve in another process, %d clients of net/http in this one, over loopback TCP; each answered after its commit was synced", singleClients)
	return nil
}

func anywhere(i int) belfry.Secret { return belfry.Secret(fmt.Sprint("address-", i)) }

func settings() string {
	return fmt.Sprintf("engine in this process, claims of %d, up to %d sends at once", benchClaim, benchWorkers)
}

// lives: from the waiting room to sent, with a channel that does nothing.
func (b *bench) lives(ctx context.Context) error {
	n := b.size(100_000)
	people := b.size(10_000)
	w, err := newWorld(ctx, b.dir, people, nowhere{}, anywhere)
	if err != nil {
		return err
	}
	defer w.close()
	const callers = 4
	done := b.bars.bar("lives", int64(3*n))
	defer done(int64(3 * n))
	began := time.Now()
	if err := w.fill(ctx, 0, n, callers, done); err != nil {
		return err
	}
	b.EnqueueBatch = rate(n, time.Since(began), "library calls of %d notifications each, %d callers, nothing else running; each call answered after its commit was synced", benchBatch, callers)

	began = time.Now()
	w.run(ctx)
	if err := w.await(ctx, people+n); err != nil {
		return err
	}
	b.Lives = rate(n, time.Since(began), "from due to sent on record, for %d people with one endpoint each, a channel that does nothing; %s", people, settings())
	done(int64(2 * n))

	began = time.Now()
	if err := w.fill(ctx, n, n, callers, func(i int64) { done(int64(2*n) + i) }); err != nil {
		return err
	}
	if err := w.await(ctx, people+2*n); err != nil {
		return err
	}
	b.LivesTogether = rate(n, time.Since(began), "the same together with enqueueing them, in calls of %d by %d callers", benchBatch, callers)
	return w.halt()
}

// webhooks: the same over HTTP, to receivers in this process and in another.
func (b *bench) webhooks(ctx context.Context) error {
	s, err := sandbox.New(sandbox.Options{Lean: true})
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	receivers := &http.Server{Handler: s}
	go receivers.Serve(l)
	defer receivers.Close()
	how := "from due to sent on record, signed webhooks over loopback TCP to the sandbox in %s; " + settings()
	if b.Webhooks, err = b.webhook(ctx, "http://"+l.Addr().String(), fmt.Sprintf(how, "the same process")); err != nil {
		return err
	}
	c, err := start(ctx, b.program, nil, "sandbox", "--listen", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer c.kill()
	b.WebhooksApart, err = b.webhook(ctx, c.url, fmt.Sprintf(how, "another process, which keeps all it gets"))
	return err
}

func (b *bench) webhook(ctx context.Context, to, how string) (Figure, error) {
	n := b.size(40_000)
	people := b.size(2_000)
	c, err := webhook.New(webhook.Options{AllowAll: true, Secret: "whsec_dGhlIGJlbmNoIHNpZ25zIHdpdGggdGhpcyBzZWNyZXQ="})
	if err != nil {
		return Figure{}, err
	}
	w, err := newWorld(ctx, b.dir, people, c, func(i int) belfry.Secret { return belfry.Secret(fmt.Sprint(to, "/webhook/user-", i)) })
	if err != nil {
		return Figure{}, err
	}
	defer w.close()
	done := b.bars.bar("webhooks", int64(n))
	defer done(int64(n))
	if err := w.fill(ctx, 0, n, 2, done); err != nil {
		return Figure{}, err
	}
	began := time.Now()
	w.run(ctx)
	if err := w.await(ctx, people+n); err != nil {
		return Figure{}, err
	}
	return rate(n, time.Since(began), "%s", how), w.halt()
}

// arrivals notes when each notification reached the channel.
type arrivals struct {
	mu sync.Mutex
	at map[belfry.ID]time.Time
}

func (a *arrivals) note(id belfry.ID) {
	now := time.Now()
	a.mu.Lock()
	a.at[id] = now
	a.mu.Unlock()
}

// late is how long after its due time each arrived, and how many came before.
func (a *arrivals) late(due map[belfry.ID]time.Time) (late []time.Duration, early int) {
	for id, d := range due {
		l := a.at[id].Sub(d)
		if l < 0 {
			early++
		}
		late = append(late, l)
	}
	return late, early
}

// lateness: many that fall due in one second.
func (b *bench) lateness(ctx context.Context) error {
	n := b.size(10_000)
	seen := &arrivals{at: map[belfry.ID]time.Time{}}
	w, err := newWorld(ctx, b.dir, n, nowhere{seen.note}, anywhere)
	if err != nil {
		return err
	}
	defer w.close()
	done := b.bars.bar("lateness", int64(n))
	defer done(int64(n))
	w.run(ctx)
	due := map[belfry.ID]time.Time{}
	first := time.Now().Add(2 * time.Second)
	for from := 0; from < n; from += benchBatch {
		rs := w.requests(from, min(benchBatch, n))
		for i := range rs {
			rs[i].At = first.Add(time.Duration(rand.Int64N(int64(time.Second))))
		}
		out, err := w.enqueue(ctx, rs)
		if err != nil {
			return err
		}
		for _, e := range out {
			due[e.ID] = e.Due
		}
		done(int64(from))
	}
	if time.Now().After(first) {
		return fmt.Errorf("the machine is too slow to enqueue %d in time", n)
	}
	if err := w.await(ctx, n+n); err != nil {
		return err
	}
	if err := w.halt(); err != nil {
		return err
	}
	late, early := seen.late(due)
	how := "from the due time to the channel, for as many spread evenly over one second; %s"
	b.LatenessP50 = millis(quantile(late, 0.5), n, how, settings())
	b.LatenessP99 = millis(quantile(late, 0.99), n, how, settings())
	b.LatenessMax = millis(quantile(late, 1), n, how, settings())
	b.Early = Figure{float64(early), "notifications", n, "of the same: how many reached the channel before their due time"}
	return nil
}

// urgent: what is urgent beside a flood in the bulk lane.
func (b *bench) urgent(ctx context.Context) error {
	flood := b.size(100_000)
	seen := &arrivals{at: map[belfry.ID]time.Time{}}
	w, err := newWorld(ctx, b.dir, benchBatch, nowhere{seen.note}, anywhere)
	if err != nil {
		return err
	}
	defer w.close()
	for _, lane := range []belfry.Lane{belfry.Urgent, belfry.Bulk} {
		if err := w.engine.PutCategory(ctx, belfry.Category{Project: "default", Name: string(lane), Lane: lane}); err != nil {
			return err
		}
	}
	in := func(rs []store.Request, lane belfry.Lane) []store.Request {
		for i := range rs {
			rs[i].Category = string(lane)
		}
		return rs
	}
	done := b.bars.bar("urgent beside a flood", int64(2*flood))
	defer done(int64(2 * flood))
	for from := 0; from < flood; from += benchBatch {
		if _, err := w.enqueue(ctx, in(w.requests(from, min(benchBatch, flood)), belfry.Bulk)); err != nil {
			return err
		}
		done(int64(from))
	}
	before := w.sent.Load()
	w.run(ctx)
	due := map[belfry.ID]time.Time{}
	for i := 0; w.sent.Load()-before < int64(flood)*9/10; i++ { // as long as there is a flood
		if err := wait(ctx, 5*time.Millisecond); err != nil {
			return err
		}
		out, err := w.enqueue(ctx, in(w.requests(i, 1), belfry.Urgent))
		if err != nil {
			return err
		}
		due[out[0].ID] = out[0].Due
		done(int64(flood) + w.sent.Load() - before)
	}
	if err := w.await(ctx, benchBatch+flood+len(due)); err != nil {
		return err
	}
	if err := w.halt(); err != nil {
		return err
	}
	late, _ := seen.late(due)
	how := "from the call that enqueues one to the channel, one at a time, while %d in the bulk lane are being sent; %s"
	b.UrgentP50 = millis(quantile(late, 0.5), len(late), how, flood, settings())
	b.UrgentP99 = millis(quantile(late, 0.99), len(late), how, flood, settings())
	b.UrgentMax = millis(quantile(late, 1), len(late), how, flood, settings())
	return nil
}
