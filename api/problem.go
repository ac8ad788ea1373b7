package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"belfry"
	"belfry/access"
	"belfry/internal/strictjson"
)

// Codes of errors that are about the request as HTTP has it.
const (
	CodeMalformed    belfry.Code = "malformed"              // it cannot be read, or has a member of the wrong form
	CodeTooLarge     belfry.Code = "too_large"              // the body is longer than the route takes
	CodeMediaType    belfry.Code = "unsupported_media_type" // the body is not application/json
	CodeSlow         belfry.Code = "request_timeout"        // the body did not arrive in time
	CodeRate         belfry.Code = "rate_limited"           // the key makes too many requests
	CodeMethod       belfry.Code = "method_not_allowed"     // the path has other methods
	CodeInternal     belfry.Code = "internal"               // our fault; the log has it under the request's id
	CodeUnauthorized             = access.CodeUnauthorized
	CodeForbidden                = access.CodeForbidden
)

// meaning is what a code looks like in HTTP.
type meaning struct {
	status      int
	title       string
	retryAfter  int  // seconds; 0: no such header
	idempotency bool // it is about idempotency keys: the docs on them are linked
}

// meanings is the one table from codes to HTTP.
var meanings = map[belfry.Code]meaning{
	CodeMalformed:               {status: 400, title: "The request cannot be read"},
	belfry.CodeKeyInvalid:       {status: 400, title: "The idempotency key is not valid", idempotency: true},
	CodeUnauthorized:            {status: 401, title: "No valid key"},
	CodeForbidden:               {status: 403, title: "The key does not allow this"},
	belfry.CodeNotFound:         {status: 404, title: "There is no such thing"},
	CodeMethod:                  {status: 405, title: "The path has no such method"},
	CodeSlow:                    {status: 408, title: "The body did not arrive in time"},
	belfry.CodeInFlight:         {status: 409, title: "It may be on the wire already"},
	belfry.CodeEnded:            {status: 409, title: "It has ended already"},
	belfry.CodeConflict:         {status: 409, title: "Another change came first"},
	CodeTooLarge:                {status: 413, title: "The body is too long"},
	CodeMediaType:               {status: 415, title: "The body is not application/json"},
	belfry.CodeInvalid:          {status: 422, title: "A field is not valid"},
	belfry.CodeUnknownRecipient: {status: 422, title: "There is no such recipient"},
	belfry.CodeUnknownCategory:  {status: 422, title: "There is no such category"},
	belfry.CodeUnknownChannel:   {status: 422, title: "There is no such channel"},
	belfry.CodeUnknownZone:      {status: 422, title: "There is no such time zone"},
	belfry.CodeKeyReused:        {status: 422, title: "The idempotency key was used for another request", idempotency: true},
	belfry.CodeKeyDuplicate:     {status: 422, title: "The batch holds an idempotency key twice", idempotency: true},
	CodeRate:                    {status: 429, title: "Too many requests", retryAfter: 1},
	CodeInternal:                {status: 500, title: "Something is wrong with the server"},
	belfry.CodeBusy:             {status: 503, title: "The store is busy", retryAfter: 1},
	belfry.CodeStoreFull:        {status: 503, title: "The store is full", retryAfter: 60},
	belfry.CodeOutcomeUnknown:   {status: 503, title: "It is not known whether it was done", retryAfter: 1, idempotency: true},
}

// Problem is the answer to a request that was not carried out, RFC 9457. Code is stable; the texts are for
// people and may change.
type Problem struct {
	Type     string      `json:"type" doc:"Where the code is explained, relative to the request."`
	Title    string      `json:"title" doc:"What the code means."`
	Status   int         `json:"status" doc:"The HTTP status."`
	Detail   string      `json:"detail" doc:"What happened here, and what to do."`
	Instance string      `json:"instance" doc:"The id of the request, also in the header Request-Id."`
	Code     belfry.Code `json:"code" doc:"The stable name of the error."`
	Field    string      `json:"field,omitempty" doc:"The field that is at fault, as to.0.address."`

	CancelRequested bool         `json:"cancel_requested,omitempty" doc:"With in_flight: the attempt that may be on the wire will be the last."`
	State           belfry.State `json:"state,omitempty" doc:"With ended: the state it ended in."`
	Errors          []ItemError  `json:"errors,omitempty" doc:"With a batch: what is wrong with which notification; at most 100."`

	retryAfter int
	status     int // when it is not the code's
}

// ItemError is what is wrong with one notification of a batch.
type ItemError struct {
	Index  int         `json:"index" doc:"The position in notifications, from 0."`
	Code   belfry.Code `json:"code" doc:"The stable name of the error."`
	Field  string      `json:"field,omitempty" doc:"The field that is at fault."`
	Detail string      `json:"detail" doc:"What happened, and what to do."`
}

func (p *Problem) Error() string { return p.Detail }

func problem(code belfry.Code, detail string) *Problem { return &Problem{Code: code, Detail: detail} }

// problemOf makes the answer of an error. It reports false for an error that is not for the caller.
func problemOf(err error) (*Problem, bool) {
	if p, ok := errors.AsType[*Problem](err); ok {
		return p, true
	}
	if e, ok := errors.AsType[*belfry.Error](err); ok {
		if _, known := meanings[e.Code]; known {
			return &Problem{Code: e.Code, Field: e.Field, Detail: e.Detail}, true
		}
	}
	if e, ok := errors.AsType[*strictjson.Error](err); ok {
		return &Problem{Code: CodeMalformed, Field: e.Field, Detail: e.Error()}, true
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return problem(belfry.CodeOutcomeUnknown, "it was cut off before the store answered: repeat it, with the same key if it had one"), true
	}
	return problem(CodeInternal, "the server could not do this; its log says why under the id of this request"), false
}

// fail answers with a problem, and logs what the caller is not shown.
func (s *server) fail(c *call, err error) {
	p, shown := problemOf(err)
	if !shown {
		s.log.Error("a request failed", "request", c.w.id, "route", c.route.name(), "err", err)
	}
	s.answer(c.w, p)
}

func (s *server) answer(w *writer, problem *Problem) {
	p, m := *problem, meanings[problem.Code]
	p.Type, p.Title, p.Status, p.Instance = "/docs#"+string(p.Code), m.title, cmp.Or(p.status, m.status), w.id
	h := w.Header()
	if wait := max(m.retryAfter, p.retryAfter); wait > 0 {
		h.Set("Retry-After", strconv.Itoa(wait))
	}
	if m.idempotency {
		h.Set("Link", `</docs#idempotency>; rel="describedby"`)
	}
	switch p.Status {
	case http.StatusUnauthorized:
		h.Set("WWW-Authenticate", `Bearer realm="belfry"`)
	case http.StatusRequestEntityTooLarge, http.StatusRequestTimeout:
		h.Set("Connection", "close") // what is left of the body is not waited for
	}
	h.Set("Content-Type", "application/problem+json")
	body, _ := json.Marshal(p)
	w.reply(p.Status, append(body, '\n'))
}
