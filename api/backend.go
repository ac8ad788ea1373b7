// Package api serves the engine over HTTP: JSON in, JSON out, errors as application/problem+json (RFC 9457),
// described by OpenAPI 3.1 at /openapi.json and for people at /docs.
//
// It promises that a request does exactly what it says or nothing: a member that is unknown, occurs twice or
// has the wrong form is refused by name before anything changes; who calls is settled before anything is
// looked up; what belongs to another project is not there; and a repeated idempotency key gets the first
// answer again, byte for byte.
//
// It decides nothing about notifications. Everything is asked of a [Backend].
package api

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"belfry"
	"belfry/access"
	"belfry/store"
)

// Backend is what the API asks of the engine. Every method is told the project it may touch, either as an
// argument or in the value it is given; what belongs to another one is not found. Errors that a caller may
// see are *belfry.Error; of all others only the log hears.
type Backend interface {
	// Enqueue answers each request in order; one that is refused has its error in Err. With atomic, one
	// refused request refuses all. A key that was used before is answered from that use, or refused with
	// belfry.CodeKeyReused, before anything else about its request is looked at.
	Enqueue(ctx context.Context, requests []store.Request, atomic bool) ([]store.Enqueued, error)
	DryRun(ctx context.Context, r store.Request) (store.Forecast, error)
	Cancel(ctx context.Context, f store.Filter, dryRun bool) (store.Cancelled, error)
	Notification(ctx context.Context, project string, id belfry.ID) (store.Story, error)
	Notifications(ctx context.Context, f store.Filter, before belfry.ID, limit int) ([]store.Summary, belfry.ID, error)
	Stats(ctx context.Context, project string) (store.Stats, error)

	// PutRecipient makes or updates a recipient; what is empty keeps its old value.
	PutRecipient(ctx context.Context, r belfry.Recipient) (belfry.Recipient, error)
	Recipient(ctx context.Context, project, id string) (belfry.Recipient, error)
	DeleteRecipient(ctx context.Context, project, id string) (store.Withdrawn, error)
	Preferences(ctx context.Context, project, recipient string) (belfry.Preferences, error)
	ChangePreferences(ctx context.Context, project, recipient string, changes []belfry.PreferenceChange, replace bool) (store.Withdrawn, error)
	Register(ctx context.Context, project string, r belfry.Registration) (store.Registered, error)
	Endpoints(ctx context.Context, project, recipient string) ([]belfry.Endpoint, error)
	Retire(ctx context.Context, project, recipient string, id belfry.ID) (store.Withdrawn, error)
	Marks(ctx context.Context, project, recipient, category, subject string) ([]store.Mark, error)

	Suppress(ctx context.Context, s belfry.Suppression) (store.Withdrawn, error)
	Unsuppress(ctx context.Context, project, channel string, address belfry.Secret) error
	// Suppressions lists up to limit of them in the order of their addresses, from behind the address after.
	Suppressions(ctx context.Context, project, after string, limit int) ([]belfry.Suppression, error)

	PutCategory(ctx context.Context, c belfry.Category) error
	Category(ctx context.Context, project, name string) (belfry.Category, error)
	Categories(ctx context.Context, project string) ([]belfry.Category, error)
	DeleteCategory(ctx context.Context, project, name string) error
	PutPause(ctx context.Context, p belfry.Pause) (belfry.Pause, error)
	LiftPause(ctx context.Context, project string, id belfry.ID) error
	Pauses(ctx context.Context, project string) ([]belfry.Pause, error)

	Projects(ctx context.Context) ([]string, error)
	PutProject(ctx context.Context, name string) error
	CreateKey(ctx context.Context, project, name string, scopes []string) (text string, k store.AccessKey, err error)
	Keys(ctx context.Context, project string) ([]store.AccessKey, error)
	RevokeKey(ctx context.Context, project, id string) error

	// Ready lists why requests should go elsewhere for now; nothing when it is ready.
	Ready(ctx context.Context) []string
}

// Authenticator says who is calling; access.Keys, Local and Loopback are the ones there are.
type Authenticator interface {
	Authenticate(r *http.Request) (access.Principal, error)
	Forget(keyID string)
}

// Options of [New]. Backend and Authenticator are required.
type Options struct {
	Backend       Backend
	Authenticator Authenticator
	Version       string               // of the program, shown at /version
	Log           *slog.Logger         // default: none
	Registry      *prometheus.Registry // shown at /metrics and told about requests; default: none
	BodyTimeout   time.Duration        // for a request's body to arrive; default 10 s
	Rate          rate.Limit           // requests a second that one key may make; default: any number
	Burst         int                  // and how many at once; default: those of a second
}
