package api_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"belfry/access"
	"belfry/api"
	"belfry/store"
)

// broken is a backend whose methods panic: one with what it was working on, one in the runtime.
type broken struct{ api.Backend }

func (broken) Stats(context.Context, string) (store.Stats, error) { panic("t0ps3cret") }
func (broken) Projects(context.Context) ([]string, error) {
	var none []string
	return none[:0:0], func() error { _ = none[len(none)]; return nil }()
}

// bodies has a good body for every operation that takes one.
var bodies = map[string]string{
	"post /v1/notifications":                       `{"recipient":"u1"}`,
	"post /v1/notifications/batch":                 `{"notifications":[{"recipient":"u1"}]}`,
	"post /v1/notifications/cancel":                `{"everything":true}`,
	"put /v1/recipients/{recipient}":               `{}`,
	"patch /v1/recipients/{recipient}":             `{"locale":"de"}`,
	"put /v1/recipients/{recipient}/preferences":   `{}`,
	"patch /v1/recipients/{recipient}/preferences": `{"*":{"email":false}}`,
	"put /v1/recipients/{recipient}/endpoints":     `{"channel":"email","address":"x@example.com"}`,
	"put /v1/categories/{category}":                `{}`,
	"post /v1/pauses":                              `{"reason":"x","category":"none"}`,
	"put /v1/suppressions":                         `{"channel":"email","address":"u1@example.com"}`,
	"delete /v1/suppressions":                      `{"channel":"email","address":"held@example.com"}`,
	"post /v1/keys":                                `{"scopes":["read"]}`,
	"post /v1/projects":                            `{"name":"p"}`,
}

// furnish gives the default project one of everything, and says how paths name it.
func (w *world) furnish() *strings.Replacer {
	w.Helper()
	w.recipient("u1")
	w.is(w.do("PUT", "/v1/categories/offers", `{}`), 200, "")
	w.is(w.do("PUT", "/v1/suppressions", `{"channel":"email","address":"held@example.com"}`), 200, "")
	n := w.is(w.do("POST", "/v1/notifications", `{"recipient":"u1","category":"offers","at":"2031-01-01T00:00:00Z"}`), 202, "")
	e := shape[api.EndpointList](w, w.do("GET", "/v1/recipients/u1/endpoints", ""))
	p := w.is(w.do("POST", "/v1/pauses", `{"reason":"x","category":"none"}`), 201, "")
	k := w.is(w.do("POST", "/v1/keys", `{"scopes":["read"],"name":"theirs"}`), 201, "")
	return strings.NewReplacer("{notification}", n.part("id"), "{recipient}", "u1", "{endpoint}", e.Endpoints[0].ID.String(),
		"{category}", "offers", "{pause}", p.part("id"), "{key}", k.part("id"))
}

func TestRightsComeFirstOnEveryRoute(t *testing.T) {
	w := newWorld(t)
	names := w.furnish()
	strange := strings.NewReplacer("{notification}", "nonsense", "{recipient}", "nobody", "{endpoint}", "nonsense", "{category}", "none", "{pause}", "nonsense", "{key}", "nonsense")
	rows := w.rows("default")
	open := 0
	for path, methods := range w.document().Paths {
		for method, op := range methods {
			name := method + " " + path
			if len(op.Security) == 0 {
				open++
				continue
			}
			need := access.Scope(op.Security[0]["key"][0])
			// Whether there is such a thing and whether the body is good makes no difference to who may not ask.
			for _, p := range []string{names.Replace(path), strange.Replace(path)} {
				for _, body := range []string{bodies[name], "{nonsense"} {
					if bodies[name] == "" && body != "" {
						continue
					}
					w.is(w.do(strings.ToUpper(method), p, body, "Authorization:"), 401, "unauthorized")
					w.is(w.do(strings.ToUpper(method), p, body, "Authorization: Bearer wrong"), 401, "unauthorized")
					for _, scope := range access.Scopes {
						if scope != need && scope != access.Admin {
							w.is(w.do(strings.ToUpper(method), p, body, "Authorization: default/"+string(scope)), 403, "forbidden")
						}
					}
				}
			}
		}
	}
	if open != 6 {
		t.Errorf("%d routes need no key", open)
	}
	w.counts(rows)
}

func TestWhatBelongsToAnotherProjectIsNotThere(t *testing.T) {
	w := newWorld(t)
	names := w.furnish()
	before := w.snapshot()
	d := w.document()
	seen := 0
	// Reads first, and what would end things last, so that every request meets what is there.
	for _, method := range []string{"get", "patch", "put", "post", "delete"} {
		for _, path := range sorted(d.Paths) {
			op, ok := d.Paths[path][method]
			if !ok || len(op.Security) == 0 || path == "/v1/projects" {
				continue
			}
			seen++
			name := method + " " + path
			body, known := bodies[name]
			if !known && slices.Contains([]string{"put", "patch"}, method) {
				t.Errorf("%s has no body here", name)
			}
			a := w.do(strings.ToUpper(method), names.Replace(path), body, "Authorization: bank/admin")
			makes := name == "put /v1/recipients/{recipient}" || name == "put /v1/categories/{category}"
			switch {
			case makes: // its own, of the same name: taken away again at once
				w.is(a, 200, "")
				w.do("DELETE", names.Replace(path), "", "Authorization: bank/admin")
			case name == "post /v1/notifications" || name == "post /v1/notifications/batch":
				w.is(a, 422, "unknown_recipient")
			case name == "get /v1/recipients/{recipient}/endpoints" || name == "get /v1/recipients/{recipient}/marks":
				if a.status != 404 && !strings.Contains(a.body, `":[]`) {
					t.Errorf("%s: %s", name, a.body)
				}
			case strings.Contains(path, "{") || name == "delete /v1/suppressions":
				w.is(a, 404, "not_found")
			case a.status >= 300 || strings.Contains(a.body, "u1") || strings.Contains(a.body, "offers") || strings.Contains(a.body, "theirs"):
				t.Errorf("%s: %d %s", name, a.status, a.body)
			}
		}
	}
	if seen < 30 {
		t.Errorf("only %d operations", seen)
	}
	if after := w.snapshot(); after != before {
		t.Errorf("another project changed this one:\n%s\n%s", before, after)
	}
}

// snapshot is all that a project shows.
func (w *world) snapshot() string {
	var all []string
	for _, path := range []string{"/v1/notifications", "/v1/recipients/u1", "/v1/recipients/u1/endpoints", "/v1/recipients/u1/preferences",
		"/v1/categories", "/v1/pauses", "/v1/suppressions", "/v1/keys", "/v1/stats"} {
		all = append(all, w.is(w.do("GET", path, ""), 200, "").body)
	}
	return strings.Join(all, "")
}

func TestOnDevelopmentMachinesNoKeyIsNeeded(t *testing.T) {
	w := newWorld(t, func(o *api.Options) { o.Authenticator = access.Loopback{Keys: o.Authenticator.(*access.Keys)} })
	none := "Authorization:"
	w.is(w.do("PUT", "/v1/recipients/u1", `{}`, none), 200, "")
	w.is(w.do("POST", "/v1/notifications", hello, none), 202, "")
	w.is(w.do("GET", "/v1/projects", "", none), 200, "")
	w.is(w.do("GET", "/v1/stats", "", none, "Belfry-Project: bank"), 200, "")
	w.is(w.do("GET", "/v1/stats", "", none, "Origin: https://evil.example"), 401, "unauthorized")
	w.is(w.do("GET", "/v1/stats", "", "Authorization: Bearer wrong"), 401, "unauthorized")
	w.is(w.do("GET", "/v1/keys", "", "Authorization: default/read"), 403, "forbidden")
	w.counts(1)
}
