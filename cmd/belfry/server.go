package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/time/rate"

	"belfry"
	"belfry/access"
	"belfry/api"
	"belfry/channel"
	"belfry/check"
	"belfry/config"
	"belfry/engine"
	"belfry/internal/safehttp"
	"belfry/signature"
	"belfry/store"
)

// socketName is the file of the socket in the data folder that the other commands use.
const socketName = "belfry.sock"

const (
	headerTimeout = 10 * time.Second
	maxHeader     = 16 << 10
	closeTimeout  = 5 * time.Second // for requests under way when everything else has stopped
)

// server is everything that runs, wired together.
type server struct {
	conf     *config.Config
	log      *slog.Logger
	store    store.Store
	channels []channel.Channel
	engine   *engine.Engine
	keys     *access.Keys
	registry *prometheus.Registry
	stopping atomic.Bool

	webhookSecret belfry.Secret // what signs for endpoints without one; "" without the channel

	listeners map[string]net.Listener // by what is served there: api, socket, metrics
	servers   map[string]*http.Server
}

// openServer opens the store and the listeners. Nothing is sent yet.
func openServer(ctx context.Context, c *config.Config, log *slog.Logger) (*server, error) {
	s := &server{conf: c, log: log, listeners: map[string]net.Listener{}, servers: map[string]*http.Server{}}
	if err := s.open(ctx); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *server) open(ctx context.Context) (err error) {
	c := s.conf
	if s.store, err = openStore(ctx, c); err != nil {
		return err
	}
	if err = s.listen(); err != nil {
		return err
	}
	s.channels, err = openChannels(c, surroundings{
		allowPrivate: c.Outbound.AllowPrivate, allowAll: c.Dev, userAgent: "belfry/" + version(),
		secret: func(name string, given belfry.Secret, fresh func() (belfry.Secret, error)) (belfry.Secret, error) {
			kept, err := keptSecret(ctx, s.store, name, given, fresh)
			if name == webhookSecretName {
				s.webhookSecret = kept
			}
			return kept, err
		},
	})
	if err != nil {
		return err
	}
	observed := newMetrics()
	outbound := safehttp.New(safehttp.Options{AllowPrivate: c.Outbound.AllowPrivate, AllowAll: c.Dev})
	s.engine, err = engine.New(s.store, s.channels, engine.Options{
		Node: uint16(c.Engine.Node), Log: s.log, Observe: observed.observe, Checker: &checker{store: s.store, http: outbound},
		DefaultWorkers: c.Engine.Workers, ClaimBatch: c.Engine.Batch, Lease: c.Engine.Lease, Poll: c.Engine.Poll,
		KeepContent: c.Retention.Content.Std(), KeepRows: c.Retention.Rows.Std(),
	})
	if err != nil {
		return err
	}
	s.registry = observed.registry(s.engine)
	s.keys = access.NewKeys(s.store)
	s.serveHTTP()
	return nil
}

func (s *server) listen() error {
	listen := func(what, network, address string) error {
		l, err := net.Listen(network, address)
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		s.listeners[what] = l
		return nil
	}
	if err := listen("api", "tcp", s.conf.HTTP.Listen); err != nil {
		return err
	}
	if s.conf.Metrics.Listen != "" {
		if err := listen("metrics", "tcp", s.conf.Metrics.Listen); err != nil {
			return err
		}
	}
	socket := filepath.Join(s.conf.Data, socketName)
	// We hold the data folder, so a socket that is there was left by a process that is gone.
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("socket: %w", err)
	}
	if err := listen("socket", "unix", socket); err != nil {
		return fmt.Errorf("%w (a socket's path has at most some 100 bytes: choose a shorter --data)", err)
	}
	return os.Chmod(socket, 0o600)
}

func (s *server) serveHTTP() {
	handler := api.New(api.Options{
		Backend: backend{s.engine, s}, Authenticator: doors{s.keys, s.conf.Dev}, Version: version(), Log: s.log,
		Registry: s.registry, Rate: rate.Limit(s.conf.Limits.Rate), Burst: s.conf.Limits.Burst,
	})
	local := http.NewServeMux()
	local.Handle("/", handler)
	s.localRoutes(local)
	outside := handler
	if s.conf.Metrics.Listen != "" {
		mux := http.NewServeMux()
		mux.Handle("/metrics", http.NotFoundHandler())
		mux.Handle("/", handler)
		outside = mux
	}
	for what, h := range map[string]http.Handler{
		"api": outside, "socket": local, "metrics": promhttp.HandlerFor(s.registry, promhttp.HandlerOpts{}),
	} {
		if s.listeners[what] == nil {
			continue
		}
		s.servers[what] = &http.Server{
			Handler: h, ReadHeaderTimeout: headerTimeout, ReadTimeout: s.conf.HTTP.ReadTimeout, IdleTimeout: s.conf.HTTP.IdleTimeout,
			MaxHeaderBytes: maxHeader, ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
			BaseContext: func(net.Listener) context.Context {
				return context.WithValue(context.Background(), doorKey{}, what)
			},
		}
	}
}

// run serves until ctx ends, then stops in order: not ready, nothing more claimed, what is on the wire
// finished, requests answered, the store closed.
func (s *server) run(ctx context.Context, ready func()) error {
	failed := make(chan error, len(s.servers))
	for what, srv := range s.servers {
		go func() {
			if err := srv.Serve(s.listeners[what]); !errors.Is(err, http.ErrServerClosed) {
				failed <- fmt.Errorf("%s: %w", what, err)
			}
		}()
	}
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	done := make(chan error, 1)
	go func() { done <- s.engine.Run(work) }()
	ready()

	var err error
	select {
	case <-ctx.Done():
		s.log.Info("stopping", "drain", s.conf.Engine.Drain)
	case err = <-failed:
	case err = <-done:
		s.close()
		return cmp.Or(err, errors.New("the engine stopped by itself"))
	}
	s.stopping.Store(true)
	stop()
	select {
	case e := <-done:
		err = errors.Join(err, e)
	case <-time.After(s.conf.Engine.Drain): // the engine still uses the store, so it stays open until the process ends
		return errors.Join(err, fmt.Errorf("the engine did not finish within %v: the next start takes over what it had in hand", s.conf.Engine.Drain))
	}
	shut, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	for _, srv := range s.servers {
		err = errors.Join(err, srv.Shutdown(shut))
	}
	s.close()
	return err
}

func (s *server) close() {
	for _, l := range s.listeners {
		l.Close()
	}
	if s.store != nil {
		s.store.Close()
	}
}

// doors lets callers in by the listener they came through.
type doors struct {
	*access.Keys
	dev bool
}

type doorKey struct{}

func (d doors) Authenticate(r *http.Request) (access.Principal, error) {
	switch {
	case r.Context().Value(doorKey{}) == "socket":
		return access.Local{Keys: d.Keys}.Authenticate(r)
	case d.dev:
		return access.Loopback{Keys: d.Keys}.Authenticate(r)
	}
	return d.Keys.Authenticate(r)
}

// backend is the engine with what the API asks of the store itself.
type backend struct {
	*engine.Engine
	s *server
}

func (b backend) Projects(ctx context.Context) ([]string, error) { return b.s.store.Projects(ctx) }

func (b backend) PutProject(ctx context.Context, name string) error {
	return b.s.store.PutProject(ctx, time.Now(), name)
}

func (b backend) CreateKey(ctx context.Context, project, name string, scopes []string) (string, store.AccessKey, error) {
	return createKey(ctx, b.s.store, project, name, scopes)
}

func (b backend) Keys(ctx context.Context, project string) ([]store.AccessKey, error) {
	return b.s.store.Keys(ctx, project)
}

func (b backend) RevokeKey(ctx context.Context, project, id string) error {
	return b.s.store.RevokeKey(ctx, time.Now(), project, id)
}

func (b backend) Ready(ctx context.Context) []string {
	if b.s.stopping.Load() {
		return []string{"server: it is stopping"}
	}
	reasons := b.Engine.Ready(ctx)
	// The little that a probe writes may still fit where a notification does not.
	if free, known := freeSpace(b.s.conf.Data); known && free < noSpace {
		reasons = append(reasons, fmt.Sprintf("disk: %d MiB free: make room", free>>20))
	}
	return reasons
}

func createKey(ctx context.Context, st store.Store, project, name string, scopes []string) (string, store.AccessKey, error) {
	text, id, hash, err := access.New(nil)
	if err != nil {
		return "", store.AccessKey{}, err
	}
	k := store.AccessKey{ID: id, Project: project, Name: name, Scopes: scopes, Hash: hash, CreatedAt: time.Now()}
	return text, k, st.PutKey(ctx, k)
}

// firstKey makes the operator's key of a store that has never had one; else it is "".
func firstKey(ctx context.Context, st store.Store) (string, error) {
	for _, project := range []string{access.EveryProject, "default"} {
		if keys, err := st.Keys(ctx, project); err != nil || len(keys) > 0 {
			return "", err
		}
	}
	text, _, err := createKey(ctx, st, access.EveryProject, "first", []string{string(access.Admin)})
	return text, err
}

// keptSecret is given, else what the store keeps under the name, made on first use.
func keptSecret(ctx context.Context, st store.Store, name string, given belfry.Secret, fresh func() (belfry.Secret, error)) (belfry.Secret, error) {
	if given != "" {
		return given, nil
	}
	s, err := fresh()
	if err != nil {
		return "", err
	}
	return st.Secret(ctx, name, s)
}

// checkSecret is what a project's rechecks are signed with.
func checkSecret(ctx context.Context, st store.Store, project string) (belfry.Secret, error) {
	return keptSecret(ctx, st, "check.secret."+project, "", newSigningSecret)
}

// checker rechecks with the secret of the project that asks.
type checker struct {
	store store.Store
	http  *safehttp.Client
	known sync.Map // project → *check.Client
}

// Recheck answers for checks of one project, as all of one policy are.
func (c *checker) Recheck(ctx context.Context, policy belfry.CheckPolicy, checks []belfry.Check) []belfry.Verdict {
	client, err := c.client(ctx, checks[0].Project)
	if err != nil {
		out := make([]belfry.Verdict, len(checks))
		for i := range out {
			out[i] = belfry.CheckFailed("recheck: its signing secret cannot be read")
		}
		return out
	}
	return client.Recheck(ctx, policy, checks)
}

func (c *checker) client(ctx context.Context, project string) (*check.Client, error) {
	if known, ok := c.known.Load(project); ok {
		return known.(*check.Client), nil
	}
	text, err := checkSecret(ctx, c.store, project)
	if err != nil {
		return nil, err
	}
	secret, err := signature.ParseSecret(text.Reveal())
	if err != nil {
		return nil, err
	}
	client := check.New(check.Options{HTTP: c.http, Secret: secret})
	c.known.Store(project, client)
	return client, nil
}
