package api

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"belfry"
	"belfry/access"
	"belfry/internal/strictjson"
)

// Bytes that a body may have.
const (
	MaxBody      = 256 << 10
	MaxBatchBody = 8 << 20
)

// server is the handler. Safe for concurrent use.
type server struct {
	Options
	log     *slog.Logger
	mux     *http.ServeMux
	routes  []route
	limits  limits
	metrics *metrics
	cursors cursors
	openapi []byte
	docs    []byte
	css     string // where /docs may take its style from
}

// New makes the handler of the API. It panics when a required option is missing.
func New(o Options) http.Handler {
	if o.Backend == nil || o.Authenticator == nil {
		panic("api: Backend and Authenticator are required")
	}
	o.BodyTimeout = cmp.Or(o.BodyTimeout, 10*time.Second)
	s := &server{Options: o, log: o.Log, mux: http.NewServeMux(), routes: routes(), limits: newLimits(o), cursors: newCursors()}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.metrics = newMetrics(o.Registry)
	for i := range s.routes {
		r := &s.routes[i]
		r.observe = s.metrics.route(r)
		s.mux.HandleFunc(r.name(), func(w http.ResponseWriter, req *http.Request) { s.run(r, w.(*writer), req) })
	}
	elsewhere := &route{path: "/", observe: s.metrics.route(&route{}), serve: (*server).elsewhere}
	s.mux.HandleFunc("/", func(w http.ResponseWriter, req *http.Request) { s.run(elsewhere, w.(*writer), req) })
	s.describe()
	return s
}

// writer is an answer on its way.
type writer struct {
	http.ResponseWriter
	id     string // of the request
	status int
}

func (w *writer) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *writer) Write(b []byte) (int, error) {
	w.status = cmp.Or(w.status, http.StatusOK)
	return w.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *writer) reply(status int, body []byte) {
	w.Header()["Content-Length"] = []string{strconv.Itoa(len(body))}
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// ServeHTTP answers every request with an id of its own in Request-Id.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	out := &writer{ResponseWriter: w, id: strconv.FormatUint(rand.Uint64()|1<<63, 36)}
	h := w.Header()
	h["Request-Id"] = []string{out.id}
	h["Cache-Control"] = []string{"no-store"}
	h["X-Content-Type-Options"] = []string{"nosniff"}
	s.mux.ServeHTTP(out, r)
}

// call is one request to one route.
type call struct {
	w     *writer
	r     *http.Request
	route *route
	access.Principal
	query  url.Values
	status int // of the answer when it is good; 0: the route's
}

// run settles who calls, then lets the route answer.
func (s *server) run(rt *route, w *writer, r *http.Request) {
	began := time.Now()
	c := &call{w: w, r: r, route: rt}
	defer func() {
		if p := recover(); p != nil {
			if p == http.ErrAbortHandler {
				panic(p)
			}
			s.panicked(c, p)
		}
		took := time.Since(began)
		rt.observe(w.status, took)
		if s.log.Enabled(r.Context(), slog.LevelDebug) {
			s.log.Debug("request", "request", w.id, "route", rt.name(), "method", r.Method, "status", w.status, "key", c.KeyID, "took", took)
		}
	}()
	if _, given := r.Header["Idempotency-Key"]; given && !rt.keyed {
		w.Header().Set("Idempotency-Status", "ignored")
	}
	if err := s.admit(c); err != nil {
		s.fail(c, err)
		return
	}
	if err := rt.serve(s, c); err != nil {
		s.fail(c, err)
	}
}

// panicked answers for a handler that failed. The value of the panic may hold what was being worked on, so
// only errors of the runtime, which do not, are logged by their text.
func (s *server) panicked(c *call, p any) {
	what := fmt.Sprintf("%T", p)
	if e, ok := p.(interface {
		error
		RuntimeError()
	}); ok {
		what = e.Error()
	}
	s.log.Error("a handler panicked", "request", c.w.id, "route", c.route.name(), "panic", what, "stack", string(debug.Stack()))
	if c.w.status == 0 {
		s.answer(c.w, problem(CodeInternal, "the server could not do this; its log says why under the id of this request"))
	}
}

// admit settles who calls and whether they may; nothing has been looked up before.
func (s *server) admit(c *call) error {
	if c.route.scope != "" {
		p, err := s.Authenticator.Authenticate(c.r)
		if err != nil {
			return err
		}
		c.Principal = p
		if wait := s.limits.wait(p.KeyID); wait > 0 {
			return &Problem{Code: CodeRate, Detail: "the key makes too many requests", retryAfter: int(wait/time.Second) + 1}
		}
		if !p.May(c.route.scope) || c.route.operator && !p.Operator {
			need := "a key with the scope " + string(c.route.scope)
			if c.route.operator {
				need = "an operator's key"
			}
			return problem(CodeForbidden, "this takes "+need)
		}
		if p.Operator && p.Project != "default" {
			known, err := s.Backend.Projects(c.r.Context())
			if err != nil {
				return err
			}
			if !slices.Contains(known, p.Project) {
				return belfry.Errorf(belfry.CodeNotFound, "there is no project of the name in %s", access.HeaderProject)
			}
		}
	}
	return c.readQuery()
}

// readQuery refuses parameters that the route does not have, or that are given twice.
func (c *call) readQuery() error {
	if c.r.URL.RawQuery == "" {
		return nil
	}
	q, err := url.ParseQuery(c.r.URL.RawQuery)
	if err != nil {
		return problem(CodeMalformed, "the query cannot be read")
	}
	for name, values := range q {
		if !slices.ContainsFunc(c.route.query, func(p param) bool { return p.name == name }) {
			return &Problem{Code: CodeMalformed, Field: clip(name), Detail: "this route has no such query parameter"}
		}
		if len(values) != 1 {
			return &Problem{Code: CodeMalformed, Field: name, Detail: "is given twice"}
		}
	}
	c.query = q
	return nil
}

func clip(s string) string { return strings.ToValidUTF8(s[:min(len(s), 64)], "?") }

func (c *call) flag(name string) (bool, error) {
	switch c.query.Get(name) {
	case "":
		return false, nil
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, &Problem{Code: CodeMalformed, Field: name, Detail: "want true or false"}
}

func (c *call) instant(name string) (time.Time, error) {
	text := c.query.Get(name)
	if text == "" {
		return time.Time{}, nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return at, &Problem{Code: CodeMalformed, Field: name, Detail: "want an instant as 2026-12-01T09:00:00Z"}
	}
	return at, nil
}

// limit is how many entries of a list are asked for.
func (c *call) limit() (int, error) {
	const usual, most = 50, 500
	text := c.query.Get("limit")
	if text == "" {
		return usual, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, &Problem{Code: CodeMalformed, Field: "limit", Detail: fmt.Sprintf("want 1 to %d", most)}
	}
	return n, nil
}

// id is the {id} of the path as one of ours; what cannot be one is not there.
func (c *call) id(name string) (belfry.ID, error) {
	id, err := belfry.ParseID(c.r.PathValue(name))
	if err != nil {
		return 0, belfry.Errorf(belfry.CodeNotFound, "no such %s in this project", name)
	}
	return id, nil
}

// body reads the body, as far as the route's limit goes.
func (s *server) body(c *call) (strictjson.Value, error) {
	h := c.r.Header
	if kind := h.Get("Content-Type"); kind != "application/json" {
		kind, _, _ = strings.Cut(kind, ";")
		kind = strings.ToLower(strings.TrimSpace(kind))
		if kind != "application/json" && !(kind == "application/merge-patch+json" && c.r.Method == http.MethodPatch) {
			return strictjson.Value{}, problem(CodeMediaType, "send the body as Content-Type: application/json")
		}
	}
	if coding := h.Get("Content-Encoding"); coding != "" && coding != "identity" {
		return strictjson.Value{}, problem(CodeMediaType, "send the body without Content-Encoding")
	}
	text, err := s.read(c)
	if err != nil {
		return strictjson.Value{}, err
	}
	return strictjson.Parse(text)
}

func (s *server) read(c *call) ([]byte, error) {
	limit := int64(cmp.Or(c.route.limit, MaxBody))
	length := c.r.ContentLength
	if length > limit {
		return nil, tooLarge(limit)
	}
	connection := http.NewResponseController(c.w)
	_ = connection.SetReadDeadline(time.Now().Add(s.BodyTimeout))
	var text []byte
	var err error
	if length >= 0 {
		text = make([]byte, length)
		_, err = io.ReadFull(c.r.Body, text)
	} else {
		text, err = io.ReadAll(io.LimitReader(c.r.Body, limit+1))
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, problem(CodeSlow, "the body did not arrive in time")
	case err != nil:
		return nil, problem(CodeMalformed, "the body ended too early")
	case int64(len(text)) > limit:
		return nil, tooLarge(limit)
	}
	_ = connection.SetReadDeadline(time.Time{})
	return text, nil
}

func tooLarge(limit int64) error {
	return problem(CodeTooLarge, fmt.Sprintf("the body has more than %d bytes", limit))
}

// reply answers with a value as JSON; with nothing when it has no fields.
func (c *call) reply(v any) error {
	if _, empty := v.(nothing); empty {
		c.w.WriteHeader(http.StatusNoContent)
		return nil
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	c.w.Header().Set("Content-Type", "application/json")
	c.w.reply(cmp.Or(c.status, c.route.status), b.Bytes())
	return nil
}

// nothing is the answer of routes that have none.
type nothing struct{}

// elsewhere answers for paths and methods that there are not.
func (s *server) elsewhere(c *call) error {
	var methods []string
	for _, m := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		probe := &http.Request{Method: m, URL: c.r.URL, Host: c.r.Host}
		if _, pattern := s.mux.Handler(probe); pattern != "/" && pattern != "" {
			methods = append(methods, m)
		}
	}
	if len(methods) == 0 {
		return problem(belfry.CodeNotFound, "there is no such path; /docs lists those there are")
	}
	c.w.Header().Set("Allow", strings.Join(methods, ", "))
	return problem(CodeMethod, "this path takes "+strings.Join(methods, ", "))
}
