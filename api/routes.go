package api

import (
	"net/http"
	"reflect"
	"strings"
	"time"

	"belfry"
	"belfry/access"
)

// route is one operation: how it is reached, who may, and what it takes and gives. The OpenAPI document is
// made of the same list, so that it cannot say anything else.
type route struct {
	method, path string
	scope        access.Scope // "": anybody
	operator     bool         // an operator only
	summary      string
	group        string // heading in the docs
	query        []param
	limit        int  // bytes of the body; 0: MaxBody
	keyed        bool // takes an Idempotency-Key
	status       int  // of a good answer
	also         []int
	in, out      reflect.Type // JSON bodies; nil: none
	media        string       // of an answer that is not JSON
	serve        func(*server, *call) error
	observe      func(status int, took time.Duration)
}

func (r *route) name() string { return strings.TrimPrefix(r.method+" "+r.path, " ") }

// param is a query parameter.
type param struct {
	name, about string
	kind        reflect.Type
}

func text(name, about string) param    { return param{name, about, reflect.TypeFor[string]()} }
func flag(name, about string) param    { return param{name, about, reflect.TypeFor[bool]()} }
func number(name, about string) param  { return param{name, about, reflect.TypeFor[int]()} }
func instant(name, about string) param { return param{name, about, reflect.TypeFor[time.Time]()} }

// take is a route with a body.
func take[I, O any](method, path string, scope access.Scope, summary string, h func(*server, *call, I) (O, error), options ...func(*route)) route {
	r := give(method, path, scope, summary, func(s *server, c *call) (answer O, err error) {
		v, err := s.body(c)
		if err != nil {
			return answer, err
		}
		var in I
		if err := v.Decode(&in); err != nil {
			return answer, err
		}
		return h(s, c, in)
	}, options...)
	r.in = reflect.TypeFor[I]()
	return r
}

// give is a route without a body.
func give[O any](method, path string, scope access.Scope, summary string, h func(*server, *call) (O, error), options ...func(*route)) route {
	r := route{method: method, path: path, scope: scope, summary: summary, status: http.StatusOK, out: reflect.TypeFor[O]()}
	r.group = strings.Split(path+"/", "/")[2]
	r.serve = func(s *server, c *call) error {
		answer, err := h(s, c)
		if err != nil {
			return err
		}
		return c.reply(answer)
	}
	if r.out == reflect.TypeFor[nothing]() {
		r.out, r.status = nil, http.StatusNoContent
	}
	for _, set := range options {
		set(&r)
	}
	return r
}

// raw is a route that reads and answers by itself; in and out say what.
func raw[I, O any](method, path string, scope access.Scope, summary string, serve func(*server, *call) error, options ...func(*route)) route {
	r := give(method, path, scope, summary, func(*server, *call) (o O, err error) { return }, options...)
	r.serve = serve
	if in := reflect.TypeFor[I](); in != reflect.TypeFor[nothing]() {
		r.in = in
	}
	return r
}

func query(p ...param) func(*route) { return func(r *route) { r.query = append(r.query, p...) } }
func status(n int, also ...int) func(*route) {
	return func(r *route) { r.status, r.also = n, also }
}
func operator(r *route)              { r.operator = true }
func keyed(r *route)                 { r.keyed = true }
func bodyUpTo(n int) func(*route)    { return func(r *route) { r.limit = n } }
func media(kind string) func(*route) { return func(r *route) { r.media, r.group = kind, "server" } }
func group(name string) func(*route) { return func(r *route) { r.group = name } }

var paged = query(number("limit", "How many to list, 1 to 500; absent: 50."), text("cursor", "The next of the page before; absent: from the beginning."))

// routes is every operation there is.
func routes() []route {
	const get, post, put, patch, del = http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete
	const send, read, admin, anybody = access.Send, access.Read, access.Admin, access.Scope("")
	dryRun := query(flag("dry_run", "true: say what would happen, and change nothing."))
	return []route{
		raw[Request, Enqueued](post, "/v1/notifications", send, "Enqueue a notification",
			(*server).enqueue, dryRun, keyed, status(http.StatusAccepted)),
		raw[BatchRequest, BatchAnswer](post, "/v1/notifications/batch", send, "Enqueue up to 1,000 notifications",
			(*server).enqueueBatch, bodyUpTo(MaxBatchBody), keyed, status(http.StatusAccepted)),
		give(get, "/v1/notifications", read, "List notifications, the newest first", (*server).listNotifications, paged, query(
			text("recipient", "Only those to this recipient."), text("category", "Only those of this category."),
			text("subject", "Only those about this subject."), text("state", "Only those that stand in this state."),
			text("reason", "Only those that ended or wait for this reason."),
			instant("since", "Only those enqueued at or after this instant."), instant("until", "Only those enqueued before this instant."))),
		give(get, "/v1/notifications/{notification}", read, "Tell the whole story of a notification", (*server).getNotification),
		give(post, "/v1/notifications/{notification}/cancel", send, "Cancel a notification", (*server).cancelOne),
		take(post, "/v1/notifications/cancel", send, "Cancel the notifications that match", (*server).cancelMany, dryRun),

		take(put, "/v1/recipients/{recipient}", send, "Make or update a recipient", (*server).putRecipient),
		give(get, "/v1/recipients/{recipient}", read, "Show a recipient", (*server).getRecipient),
		take(patch, "/v1/recipients/{recipient}", send, "Change a recipient; attributes are merged", (*server).patchRecipient),
		give(del, "/v1/recipients/{recipient}", send, "Erase a recipient and its personal data", (*server).deleteRecipient),
		give(get, "/v1/recipients/{recipient}/preferences", read, "Show what a recipient has switched on and off", (*server).getPreferences),
		take(put, "/v1/recipients/{recipient}/preferences", send, "Replace all of a recipient's switches", (*server).putPreferences),
		take(patch, "/v1/recipients/{recipient}/preferences", send, "Change some of a recipient's switches; null clears one", (*server).patchPreferences),
		take(put, "/v1/recipients/{recipient}/endpoints", send, "Register an endpoint, as often as the client starts", (*server).putEndpoint,
			status(http.StatusOK, http.StatusCreated)),
		give(get, "/v1/recipients/{recipient}/endpoints", read, "List a recipient's endpoints", (*server).listEndpoints),
		give(del, "/v1/recipients/{recipient}/endpoints/{endpoint}", send, "Retire an endpoint", (*server).deleteEndpoint),
		give(get, "/v1/recipients/{recipient}/marks", read, "Show what was last sent to a recipient", (*server).listMarks, query(
			text("category", "Only this category."), text("subject", "Only this subject."))),

		give(get, "/v1/categories", read, "List the categories", (*server).listCategories),
		give(get, "/v1/categories/{category}", read, "Show a category as it was put", (*server).getCategory,
			query(flag("resolved", "true: with every default filled in."))),
		take(put, "/v1/categories/{category}", admin, "Make or replace a category", (*server).putCategory, status(http.StatusOK)),
		give(del, "/v1/categories/{category}", admin, "Delete a category; what waits in it is dropped", (*server).deleteCategory),

		take(post, "/v1/pauses", admin, "Hold what is sent from now on", (*server).postPause, status(http.StatusCreated)),
		give(get, "/v1/pauses", read, "List the pauses", (*server).listPauses),
		give(del, "/v1/pauses/{pause}", admin, "Lift a pause", (*server).deletePause),

		take(put, "/v1/suppressions", admin, "Never use an address again", (*server).putSuppression),
		give(get, "/v1/suppressions", read, "List the suppressed addresses", (*server).listSuppressions, paged),
		take(del, "/v1/suppressions", admin, "Allow an address again", (*server).deleteSuppression),

		take(post, "/v1/keys", admin, "Make an API key; its text is shown once", (*server).postKey, status(http.StatusCreated)),
		give(get, "/v1/keys", admin, "List the API keys", (*server).listKeys),
		give(del, "/v1/keys/{key}", admin, "Revoke an API key at once", (*server).deleteKey),
		take(post, "/v1/projects", admin, "Make a project", (*server).postProject, operator, status(http.StatusCreated)),
		give(get, "/v1/projects", admin, "List the projects", (*server).listProjects, operator),

		give(get, "/v1/stats", read, "Count notifications by state and reason", (*server).stats),
		give(get, "/healthz", anybody, "Say that the process lives", (*server).health, group("server")),
		raw[nothing, Readiness](get, "/readyz", anybody, "Say whether requests can be taken, and if not why", (*server).ready,
			group("server"), status(http.StatusOK, http.StatusServiceUnavailable)),
		give(get, "/version", anybody, "Say which version this is", (*server).version, group("server")),
		raw[nothing, string](get, "/metrics", anybody, "Give the metrics in Prometheus' text format", (*server).showMetrics, media("text/plain")),
		raw[nothing, map[string]any](get, "/openapi.json", anybody, "Describe this API", (*server).showOpenAPI, group("server")),
		raw[nothing, string](get, "/docs", anybody, "Describe this API to people", (*server).showDocs, media("text/html")),
	}
}

// missing turns an unknown recipient of the path into something that is not there.
func missing(err error) error {
	if belfry.CodeOf(err) == belfry.CodeUnknownRecipient {
		return belfry.Errorf(belfry.CodeNotFound, "no such recipient in this project")
	}
	return err
}
