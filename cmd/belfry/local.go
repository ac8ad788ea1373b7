package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"belfry"
	"belfry/access"
)

// signingSecrets is the answer of /local/signing.
type signingSecrets struct {
	Check   string `json:"check"`
	Webhook string `json:"webhook,omitempty"`
}

// localRoutes are on the socket in the data folder only: whoever can use it owns the data anyway.
func (s *server) localRoutes(mux *http.ServeMux) {
	mux.HandleFunc("GET /local/signing", s.signing)
	mux.HandleFunc("GET /local/doctor", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = printJSON(w, s.examine(r.Context()))
	})
}

func (s *server) signing(w http.ResponseWriter, r *http.Request) {
	project := r.Header.Get(access.HeaderProject)
	if project == "" {
		project = "default"
	}
	out, err := s.secrets(r.Context(), project)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	if err != nil {
		w.WriteHeader(http.StatusUnprocessableEntity)
		_ = printJSON(w, problem{Status: http.StatusUnprocessableEntity, Code: belfry.CodeOf(err), Detail: err.Error()})
		return
	}
	_ = printJSON(w, out)
}

func (s *server) secrets(ctx context.Context, project string) (out signingSecrets, err error) {
	known, err := s.store.Projects(ctx)
	if err != nil {
		return out, err
	}
	for _, name := range known {
		if name != project {
			continue
		}
		secret, err := checkSecret(ctx, s.store, project)
		out.Check = secret.Reveal()
		out.Webhook = s.webhookSecret.Reveal()
		return out, err
	}
	return out, belfry.Errorf(belfry.CodeNotFound, "there is no project %q", project)
}

// examine is what only the running server can tell the doctor.
func (s *server) examine(ctx context.Context) []finding {
	var out []finding
	reasons := backend{s.engine, s}.Ready(ctx)
	for _, r := range reasons {
		out = append(out, failed("ready", r, "see the server's log"))
	}
	if len(reasons) == 0 {
		out = append(out, ok("ready", "the store takes writes, the clock goes forward"))
	}
	if len(s.channels) == 0 {
		out = append(out, warned("channels", "none is enabled: nothing can be sent", "set channels.NAME.enabled"))
	}
	for _, c := range s.channels {
		detail := "at most " + c.Budget().String() + " a send"
		if c, has := c.(interface{ PublicKey() string }); has {
			detail += ", public key " + c.PublicKey()
		}
		out = append(out, ok("channel "+c.Name(), detail))
	}
	stats, err := s.engine.Stats(ctx, "")
	switch late := time.Since(stats.Oldest); {
	case err != nil:
		out = append(out, failed("backlog", err.Error(), "see the server's log"))
	case !stats.Oldest.IsZero() && late > time.Minute:
		out = append(out, warned("backlog", fmt.Sprintf("%d wait, the oldest that is due for %v", stats.Waiting, late.Round(time.Second)),
			"look for a slow provider in /metrics (belfry_busy_workers), or raise engine.workers"))
	default:
		out = append(out, ok("backlog", fmt.Sprintf("%d wait, nothing is late", stats.Waiting)))
	}
	return out
}
