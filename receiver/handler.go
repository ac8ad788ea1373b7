package receiver

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"belfry/signature"
)

// HeaderResult is the header of an answer that says what became of the message, see [Result].
const HeaderResult = "X-Inbox"

// HTTP are the options of [Receiver.Handler]. Only Secrets is needed.
type HTTP struct {
	// Secrets are those that the sender may have signed with: one, or two while it is being rotated.
	Secrets []signature.Secret
	// Tolerance is how far the time of a request may differ from ours; default [signature.DefaultTolerance].
	Tolerance time.Duration
	// MaxBody is how many bytes a body may have; default 256 KiB. Not one more is read.
	MaxBody int64
	// Timeout bounds reading, waiting for a copy, and the effect; default 10 s. A sender waits 15 s or more.
	Timeout time.Duration
	// AcceptConflicts answers a conflict with 204 instead of 409: the sender then stops to send it.
	AcceptConflicts bool
}

// Handler returns an HTTP handler that takes messages as Standard Webhooks 1.0 sends them: it verifies a request and
// hands the message to [Receiver.Handle].
//
// It answers 204 when the message is done with (applied, duplicate, stale, expired, set aside; the header [HeaderResult]
// says which), 409 for a conflict, 400 for a request that is not well formed, 401 for one that is not genuine or not
// fresh, 408 and 413 for a body that is too slow or too large, 500 when the effect failed, and 503 with Retry-After
// when it should be tried again soon: the store does not answer, a copy took too long, or the effect said [Later]. No
// answer repeats the text of an error of the effect or the store.
//
// The headers webhook-epoch and webhook-not-after are outside of what is signed. Somebody on the way who changed them
// could at most keep a message from having its effect, which he can anyhow; where the signed body of such a sender is
// a JSON object with the members "epoch" (a number) or "not_after" (Unix seconds, or a time as in RFC 3339), these
// count instead.
func (r *Receiver[T]) Handler(o HTTP, effect func(ctx context.Context, tx T, m Message) error) (http.Handler, error) {
	o.MaxBody = cmp.Or(o.MaxBody, 256<<10)
	o.Timeout = cmp.Or(o.Timeout, 10*time.Second)
	if len(o.Secrets) == 0 {
		return nil, errors.New("receiver: no secret to verify messages with; give at least one")
	}
	for _, s := range o.Secrets {
		if s.IsZero() {
			return nil, errors.New("receiver: a secret to verify messages with is empty")
		}
	}
	return &handler[T]{r, o, signature.Verifier{Secrets: o.Secrets, Tolerance: o.Tolerance}, effect}, nil
}

type handler[T any] struct {
	*Receiver[T]
	http     HTTP
	verifier signature.Verifier
	effect   func(ctx context.Context, tx T, m Message) error
}

func (h *handler[T]) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	ctx, cancel := context.WithTimeoutCause(req.Context(), h.http.Timeout, errSlow)
	defer cancel()
	m, status, err := h.read(w, req)
	if err != nil {
		h.counts.refused.Add(1)
		h.o.Log.WarnContext(ctx, "receiver: request refused", "source", h.o.Source, "status", status, "err", err)
		http.Error(w, err.Error(), status)
		return
	}
	res, ran, err := h.handle(ctx, m, func(ctx context.Context, tx T) error { return h.effect(ctx, tx, m) })
	if err != nil {
		h.fail(ctx, w, m, ran, err)
		return
	}
	w.Header().Set(HeaderResult, string(res))
	if res == Conflict && !h.http.AcceptConflicts {
		http.Error(w, "this webhook-id was used with another body; give a new message a new id", http.StatusConflict)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (h *handler[T]) fail(ctx context.Context, w http.ResponseWriter, m Message, ran bool, err error) {
	l, wait := errors.AsType[*later](err)
	switch {
	case wait:
		if l.after > 0 {
			w.Header().Set("Retry-After", strconv.FormatInt(int64((l.after+time.Second-1)/time.Second), 10))
		}
		http.Error(w, "not now; send it again", http.StatusServiceUnavailable)
	case ran:
		http.Error(w, "the message had no effect; send it again", http.StatusInternalServerError)
	default:
		h.o.Log.ErrorContext(ctx, "receiver: message not handled", "source", h.o.Source, "id", m.ID, "err", err)
		w.Header().Set("Retry-After", "1")
		http.Error(w, "the message could not be handled; send it again", http.StatusServiceUnavailable)
	}
}

// read returns the message of a genuine request, or the status to refuse it with.
func (h *handler[T]) read(w http.ResponseWriter, req *http.Request) (m Message, status int, err error) {
	// An error means that the server in front cannot set deadlines; then its own hold. A deadline that stayed would end
	// the request's context under a slow effect.
	connection := http.NewResponseController(w)
	_ = connection.SetReadDeadline(time.Now().Add(h.http.Timeout))
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, h.http.MaxBody))
	if err != nil {
		if _, large := errors.AsType[*http.MaxBytesError](err); large {
			return m, http.StatusRequestEntityTooLarge, fmt.Errorf("the body has more than %d bytes", h.http.MaxBody)
		}
		return m, http.StatusRequestTimeout, errors.New("the body did not arrive in time")
	}
	_ = connection.SetReadDeadline(time.Time{})
	switch err := h.verifier.Verify(h.o.Now(), req.Header, body); {
	case errors.Is(err, signature.ErrMissingHeader), errors.Is(err, signature.ErrBadID), errors.Is(err, signature.ErrBadTimestamp):
		return m, http.StatusBadRequest, err
	case err != nil:
		return m, http.StatusUnauthorized, err
	}
	m = Message{ID: req.Header.Get(signature.HeaderID), Body: body}
	if m.Epoch, m.NotAfter, err = fence(req.Header, body); err != nil {
		return m, http.StatusBadRequest, err
	}
	if err := m.check(); err != nil {
		return m, http.StatusBadRequest, err
	}
	return m, 0, nil
}

// fence reads epoch and deadline. The body counts only beside the header, because another sender may mean something
// else by these words.
func fence(h http.Header, body []byte) (epoch int64, notAfter time.Time, err error) {
	e, n := h.Get(signature.HeaderEpoch), h.Get(signature.HeaderNotAfter)
	if e == "" && n == "" {
		return 0, time.Time{}, nil
	}
	var signed struct {
		Epoch    json.RawMessage `json:"epoch"`
		NotAfter json.RawMessage `json:"not_after"`
	}
	_ = json.Unmarshal(body, &signed) // a body need not be JSON
	if e != "" {
		if json.Unmarshal(signed.Epoch, &epoch) != nil {
			if epoch, err = strconv.ParseInt(e, 10, 64); err != nil || epoch < 0 {
				return 0, time.Time{}, errors.New(signature.HeaderEpoch + " is not a number")
			}
		}
	}
	if n != "" {
		var seconds int64
		switch {
		case signed.NotAfter != nil && json.Unmarshal(signed.NotAfter, &notAfter) == nil && !notAfter.IsZero():
		case signed.NotAfter != nil && json.Unmarshal(signed.NotAfter, &seconds) == nil && seconds > 0:
			notAfter = time.Unix(seconds, 0)
		default:
			if seconds, err = strconv.ParseInt(n, 10, 64); err != nil || seconds < 0 {
				return 0, time.Time{}, errors.New(signature.HeaderNotAfter + " is not Unix seconds")
			}
			notAfter = time.Unix(seconds, 0)
		}
	}
	return epoch, notAfter, nil
}
