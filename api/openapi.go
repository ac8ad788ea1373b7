package api

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"reflect"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"belfry"
	"belfry/access"
	"belfry/internal/strictjson"
)

// enum is a Go type whose values are a closed list; the rules hold the list, this is for the document.
type enum struct {
	of     reflect.Type
	values []any
}

var enums = []enum{
	{reflect.TypeFor[belfry.Route](), []any{belfry.RouteAll, belfry.RouteFirst}},
	{reflect.TypeFor[belfry.Consent](), []any{belfry.OptOut, belfry.OptIn, belfry.Always}},
	{reflect.TypeFor[belfry.Lane](), []any{belfry.Urgent, belfry.Normal, belfry.Bulk}},
	{reflect.TypeFor[belfry.Mode](), []any{belfry.AtLeastOnce, belfry.AtMostOnce}},
	{reflect.TypeFor[belfry.OnCheckError](), []any{belfry.CheckErrorRetry, belfry.CheckErrorDrop, belfry.CheckErrorSend}},
	{reflect.TypeFor[belfry.Period](), []any{belfry.PerHour, belfry.PerDay, belfry.PerWeek, belfry.Ever, belfry.WhileOpen}},
	{reflect.TypeFor[belfry.VerdictKind](), []any{belfry.VerdictSend, belfry.VerdictDrop, belfry.VerdictLater, belfry.VerdictFailed}},
	{reflect.TypeFor[belfry.State](), []any{belfry.Scheduled, belfry.Pending, belfry.Sending, belfry.Retry, belfry.Sent,
		belfry.Dropped, belfry.Failed, belfry.Missed, belfry.Cancelled, belfry.Unknown}},
	{reflect.TypeFor[belfry.Outcome](), []any{belfry.OutcomeAccepted, belfry.OutcomeRefused, belfry.OutcomeGone, belfry.OutcomeThrottled,
		belfry.OutcomeMisconfigured, belfry.OutcomeNotSent, belfry.OutcomeAmbiguous}},
}

// The fields of the rules' own types say in Go what they are; this says it in the document.
var described = map[string]string{
	"Once.per":             "How long the fact counts as told: hour, day, week (from Monday), ever, or open: until the notification ends.",
	"Once.zone":            "Whose calendar; absent: the recipient's.",
	"Once.date":            "The calendar day it counts for; absent: that of the due time.",
	"Once.key":             "Tells facts about one subject apart.",
	"Once.release_on":      "The ends that free the fact; absent: those that reached nobody: dropped, failed, missed, cancelled.",
	"CheckPolicy.url":      "Where to ask; one signed POST asks about up to 100 notifications.",
	"CheckPolicy.timeout":  "How long to wait for the answer; absent: 3s, at most 30s.",
	"CheckPolicy.on_error": "What an unusable answer means: retry (default): ask again until the deadline; drop; send with the data it was enqueued with.",
	"RetryPolicy.first":    "The wait before the second try.",
	"RetryPolicy.factor":   "How much longer every wait is than the one before, 1 to 10.",
	"RetryPolicy.max":      "The longest wait.",
	"RetryPolicy.attempts": "How many tries count at most, 1 to 100; those the provider put off do not.",
}

// describe makes the OpenAPI document and the page for people out of the routes.
func (s *server) describe() {
	doc := s.document()
	text, err := json.Marshal(doc)
	if err != nil {
		panic("api: the OpenAPI document: " + err.Error())
	}
	s.openapi = append(text, '\n')
	s.docs, s.css = page(doc, s.routes)
}

func (s *server) document() *huma.OpenAPI {
	const refs = "#/components/schemas/"
	registry := huma.NewMapRegistry(refs, huma.DefaultSchemaNamer)
	registry.RegisterTypeAlias(reflect.TypeFor[strictjson.Value](), reflect.TypeFor[any]())
	doc := &huma.OpenAPI{
		OpenAPI: "3.1.0",
		Info: &huma.Info{
			Title: "belfry", Version: s.Options.Version, License: &huma.License{Name: "Apache-2.0", Identifier: "Apache-2.0"},
			Description: "A notification delivery engine: each notification reaches its person once, at their local time, on a device that is alive, and only if it is still true when it leaves.",
		},
		Servers: []*huma.Server{{URL: "/"}},
		Components: &huma.Components{
			Schemas: registry,
			SecuritySchemes: map[string]*huma.SecurityScheme{
				"key": {Type: "http", Scheme: "bearer", Description: "An API key: bf_<id>_<secret>. Its scopes are send, read and admin; admin has the others."},
			},
		},
	}
	for i := range s.routes {
		doc.AddOperation(s.routes[i].operation(registry))
	}
	complete(registry)
	return doc
}

func (r *route) operation(registry huma.Registry) *huma.Operation {
	op := &huma.Operation{
		Method: r.method, Path: r.path, OperationID: r.operationID(), Summary: r.summary, Tags: []string{r.group},
		Responses: map[string]*huma.Response{}, Security: []map[string][]string{},
	}
	if r.scope != "" {
		op.Security = []map[string][]string{{"key": {string(r.scope)}}}
		op.Description = "Takes a key with the scope " + string(r.scope) + "."
		if r.operator {
			op.Description = "Takes an operator's key."
		}
		op.Parameters = append(op.Parameters, &huma.Param{
			Name: access.HeaderProject, In: "header", Schema: &huma.Schema{Type: huma.TypeString},
			Description: "With an operator's key: the project; absent: default.",
		})
	}
	for name := range strings.SplitSeq(r.path, "{") {
		if name, _, ok := strings.Cut(name, "}"); ok {
			op.Parameters = append(op.Parameters, &huma.Param{Name: name, In: "path", Required: true, Schema: &huma.Schema{Type: huma.TypeString}})
		}
	}
	for _, p := range r.query {
		op.Parameters = append(op.Parameters, &huma.Param{Name: p.name, In: "query", Description: p.about, Schema: registry.Schema(p.kind, true, "")})
	}
	if r.keyed && r.limit == 0 {
		op.Parameters = append(op.Parameters, &huma.Param{
			Name: "Idempotency-Key", In: "header", Schema: &huma.Schema{Type: huma.TypeString},
			Description: "1 to 255 printable ASCII characters, as a quoted string or bare. A repeat gets the first answer again.",
		})
	}
	if r.in != nil {
		op.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{"application/json": {Schema: registry.Schema(r.in, true, "")}}}
	}
	r.answers(op, registry)
	return op
}

// answers describes what the route may answer.
func (r *route) answers(op *huma.Operation, registry huma.Registry) {
	good := &huma.Response{Description: http.StatusText(r.status)}
	switch {
	case r.media != "":
		good.Content = map[string]*huma.MediaType{r.media: {Schema: &huma.Schema{Type: huma.TypeString}}}
	case r.out != nil:
		good.Content = map[string]*huma.MediaType{"application/json": {Schema: registry.Schema(r.out, true, "")}}
	}
	for _, status := range append([]int{r.status}, r.also...) {
		answer := *good
		answer.Description = http.StatusText(status)
		op.Responses[strconv.Itoa(status)] = &answer
	}
	problems := &huma.Response{
		Description: "What went wrong, RFC 9457. The codes are listed at /docs.",
		Content:     map[string]*huma.MediaType{"application/problem+json": {Schema: registry.Schema(reflect.TypeFor[Problem](), true, "")}},
	}
	if r.scope != "" {
		op.Responses["default"] = problems
	}
	if slices.ContainsFunc(r.query, func(p param) bool { return p.name == "dry_run" }) && r.out == reflect.TypeFor[Enqueued]() {
		op.Responses["200"] = &huma.Response{
			Description: "With dry_run: what would happen.",
			Content:     map[string]*huma.MediaType{"application/json": {Schema: registry.Schema(reflect.TypeFor[Forecast](), true, "")}},
		}
	}
}

// operationID is a name for clients that are made of the document, as put-recipients-endpoints.
func (r *route) operationID() string {
	words := []string{strings.ToLower(r.method)}
	for part := range strings.SplitSeq(strings.Trim(r.path, "/"), "/") {
		if name, ok := strings.CutPrefix(part, "{"); ok {
			words = append(words, "by", strings.TrimSuffix(name, "}"))
		} else if part != "v1" {
			words = append(words, strings.ReplaceAll(part, ".", "-"))
		}
	}
	return strings.Join(words, "-")
}

// complete adds to the schemas what Go types do not say: the lists of values, and what the fields of the
// rules' own types mean.
func complete(registry huma.Registry) {
	for name, schema := range registry.Map() {
		t := registry.TypeFromRef("#/components/schemas/" + name)
		for property, p := range schema.Properties {
			if text := described[name+"."+property]; text != "" {
				p.Description = text
			}
			if t == nil || t.Kind() != reflect.Struct {
				continue
			}
			field, ok := fieldOf(t, property)
			if !ok {
				continue
			}
			for field.Kind() == reflect.Pointer {
				field = field.Elem()
			}
			p.Nullable = false
			if field.Kind() == reflect.Slice && p.Items != nil {
				complement(p.Items, field.Elem())
				continue
			}
			complement(p, field)
		}
	}
}

func complement(s *huma.Schema, t reflect.Type) {
	for _, e := range enums {
		if e.of == t && s.Enum == nil {
			s.Enum = e.values
		}
	}
	if t == reflect.TypeFor[belfry.Duration]() {
		s.Examples = []any{"90s"}
	}
	if t == reflect.TypeFor[json.RawMessage]() {
		s.Type = huma.TypeObject
		s.AdditionalProperties = true
	}
	if t == reflect.TypeFor[time.Time]() {
		s.Examples = []any{"2026-12-01T09:00:00Z"}
	}
}

// fieldOf is the type of the field with that name in JSON.
func fieldOf(t reflect.Type, name string) (reflect.Type, bool) {
	for _, f := range reflect.VisibleFields(t) {
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if tag == name && f.IsExported() {
			return f.Type, true
		}
	}
	return nil, false
}

func (s *server) showOpenAPI(c *call) error {
	c.w.Header().Set("Content-Type", "application/json")
	c.w.reply(http.StatusOK, s.openapi)
	return nil
}

//go:embed docs.html
var docsHTML string

//go:embed docs.css
var docsCSS string

// page renders the document for people. It needs no script and nothing from elsewhere.
func page(doc *huma.OpenAPI, routes []route) (html []byte, css string) {
	type section struct {
		Name   string
		Routes []shownRoute
	}
	var sections []section
	for i := range routes {
		r := &routes[i]
		at := slices.IndexFunc(sections, func(s section) bool { return s.Name == r.group })
		if at < 0 {
			sections, at = append(sections, section{Name: r.group}), len(sections)
		}
		sections[at].Routes = append(sections[at].Routes, show(doc, r))
	}
	type code struct {
		Code   belfry.Code
		Status int
		Title  string
	}
	var codes []code
	for name, m := range meanings {
		codes = append(codes, code{name, m.status, m.title})
	}
	sort.Slice(codes, func(i, j int) bool {
		return codes[i].Status < codes[j].Status || codes[i].Status == codes[j].Status && codes[i].Code < codes[j].Code
	})
	var schemas []shownSchema
	for name, schema := range doc.Components.Schemas.Map() {
		schemas = append(schemas, shownSchema{Name: name, Fields: fields(schema)})
	}
	sort.Slice(schemas, func(i, j int) bool { return schemas[i].Name < schemas[j].Name })
	var b bytes.Buffer
	err := template.Must(template.New("docs").Parse(docsHTML)).Execute(&b, map[string]any{
		"Version": doc.Info.Version, "About": doc.Info.Description, "Sections": sections, "Codes": codes, "Schemas": schemas,
		"CSS": template.CSS(docsCSS), "MaxBody": MaxBody >> 10, "MaxBatch": MaxBatchBody >> 20,
	})
	if err != nil {
		panic("api: the page of the docs: " + err.Error())
	}
	sum := sha256.Sum256([]byte(docsCSS))
	return b.Bytes(), "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

type shownRoute struct {
	ID, Method, Path, Summary, Scope string
	Query                            []shownField
	In                               string
	Out                              []shownAnswer
}

type shownAnswer struct{ Status, Schema, Text string }

type shownSchema struct {
	Name   string
	Fields []shownField
}

type shownField struct {
	Name, Type, Ref, About string
	Required               bool
}

func show(doc *huma.OpenAPI, r *route) shownRoute {
	op := r.operation(doc.Components.Schemas)
	v := shownRoute{ID: op.OperationID, Method: r.method, Path: r.path, Summary: r.summary, Scope: string(r.scope)}
	if r.operator {
		v.Scope = "operator"
	}
	for _, p := range r.query {
		v.Query = append(v.Query, shownField{Name: p.name, About: p.about})
	}
	if op.RequestBody != nil {
		v.In = name(op.RequestBody.Content["application/json"].Schema)
	}
	for status, answer := range op.Responses {
		if status == "default" {
			continue
		}
		a := shownAnswer{Status: status, Text: answer.Description}
		for kind, content := range answer.Content {
			if a.Schema = name(content.Schema); kind != "application/json" {
				a.Text = kind
			}
		}
		v.Out = append(v.Out, a)
	}
	sort.Slice(v.Out, func(i, j int) bool { return v.Out[i].Status < v.Out[j].Status })
	return v
}

// name is the name of the schema that a reference leads to.
func name(s *huma.Schema) string { return strings.TrimPrefix(s.Ref, "#/components/schemas/") }

func fields(s *huma.Schema) []shownField {
	var list []shownField
	for property, p := range s.Properties {
		f := shownField{Name: property, About: p.Description, Type: kind(p), Ref: name(p), Required: slices.Contains(s.Required, property)}
		if p.Items != nil {
			f.Ref = name(p.Items)
		}
		if p.Enum != nil {
			f.Type = strings.Trim(fmt.Sprint(p.Enum...), "[]")
			words := make([]string, len(p.Enum))
			for i, e := range p.Enum {
				words[i] = fmt.Sprint(e)
			}
			f.Type = strings.Join(words, " | ")
		}
		list = append(list, f)
	}
	sort.Slice(list, func(i, j int) bool {
		if list[i].Required != list[j].Required {
			return list[i].Required
		}
		return list[i].Name < list[j].Name
	})
	return list
}

func kind(s *huma.Schema) string {
	switch {
	case s.Ref != "":
		return ""
	case s.Items != nil:
		return strings.TrimSpace("list of " + kind(s.Items))
	case s.Format != "":
		return s.Format
	case s.OneOf != nil:
		return "string or object"
	}
	return s.Type
}

func (s *server) showDocs(c *call) error {
	h := c.w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; img-src data:; style-src "+s.css+"; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
	c.w.reply(http.StatusOK, s.docs)
	return nil
}
