package channeltest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"belfry"
	"belfry/channel"
	"belfry/internal/safehttp"
)

// sloppy is a channel that does everything right but for one fault.
type sloppy struct {
	fault string
	end   chan struct{} // of the test
	http  interface {
		Do(*http.Request) (*http.Response, error)
	}
}

func newSloppy(t testing.TB, fault string, p Provider) *sloppy {
	c := &sloppy{fault: fault, end: make(chan struct{}), http: p.HTTP}
	t.Cleanup(func() { close(c.end) })
	if c.http == nil {
		client := safehttp.New(safehttp.Options{AllowAll: true})
		t.Cleanup(client.CloseIdleConnections)
		c.http = client
	}
	if fault == "lets the library send again" && p.HTTP == nil {
		transport := new(http.Transport)
		t.Cleanup(transport.CloseIdleConnections)
		c.http = &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
	return c
}

func (c *sloppy) Name() string          { return "sloppy" }
func (c *sloppy) Budget() time.Duration { return 5 * time.Second }

func (c *sloppy) Check(address belfry.Secret, keys belfry.Keys) error {
	if c.fault == "checks nothing" {
		return nil
	}
	if _, err := safehttp.CheckURL(address.Reveal(), safehttp.Options{AllowAll: true}); err != nil {
		return belfry.Invalid("address", "is no URL")
	}
	if key := keys["key"]; len(key) != 16 {
		if c.fault == "shows the key it refuses" {
			return belfry.Invalid("keys.key", "%s has not 16 bytes", key.Reveal())
		}
		return belfry.Invalid("keys.key", "has not 16 bytes")
	}
	return nil
}

func (c *sloppy) Encode(m channel.Message) ([]byte, error) {
	v := map[string]any{"id": m.Delivery, "content": m.Content}
	if c.fault == "encodes the time" {
		v["at"] = time.Now()
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(c.fault == "wastes the room there is")
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	if b.Len() > 4096 && c.fault != "encodes whatever it is given" {
		if c.fault == "quotes what it refuses" {
			return nil, belfry.Invalid("data", "too large: %s", b.Bytes())
		}
		return nil, belfry.Invalid("data", "has %d bytes", b.Len())
	}
	return b.Bytes(), nil
}

func (c *sloppy) Send(ctx context.Context, a channel.Armed) (string, error) {
	err := c.once(ctx, a)
	answer := belfry.AnswerOf("", err)
	switch {
	case c.fault == "tries again after a 5xx" && answer.Status >= 500,
		c.fault == "tries again after a broken connection" && answer.Outcome == belfry.OutcomeAmbiguous:
		err = c.once(ctx, a)
	}
	return "", err
}

func (c *sloppy) once(ctx context.Context, a channel.Armed) error {
	switch c.fault {
	case "ignores its context":
		ctx = context.WithoutCancel(ctx)
	case "leaks goroutines":
		go func() { <-c.end }()
	}
	timeout := c.Budget()
	if c.fault == "overdraws its budget" {
		timeout *= 3
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	address := a.Endpoint.Address.Reveal()
	req, err := http.NewRequestWithContext(ctx, "POST", address, bytes.NewReader(a.Payload))
	if err != nil {
		return belfry.Refused(0, "no URL")
	}
	req.Header.Set("Authorization", "Key "+a.Endpoint.Keys["key"].Reveal())
	if c.fault == "lets the library send again" {
		req.Header.Set("Idempotency-Key", a.Delivery.String())
	}
	if c.fault == "logs the address" {
		log.Print("sending to ", address)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return c.failed(err, address)
	}
	if to := resp.Header.Get("Location"); to != "" && resp.StatusCode/100 == 3 && c.fault == "follows redirects" {
		resp.Body.Close()
		if req, err = http.NewRequestWithContext(ctx, "GET", to, nil); err == nil {
			resp, err = c.http.Do(req)
		}
		if err != nil {
			return c.failed(err, address)
		}
	}
	var body []byte
	if c.fault == "reads without a limit" {
		body, err = io.ReadAll(resp.Body)
		resp.Body.Close()
	} else if body, err = safehttp.ReadBody(resp); errors.Is(err, safehttp.ErrBodyTooLarge) {
		err = nil
	}
	if err != nil && c.fault == "doubts the status of a broken body" {
		return errors.New("half an answer")
	}
	return c.answer(resp, body, a)
}

func (c *sloppy) failed(err error, address string) error {
	notSent := safehttp.Classify(err)
	switch c.fault {
	case "shows the address":
		return fmt.Errorf("post %s: it may have arrived", address)
	case "takes a timeout for not sent":
		e, _ := errors.AsType[*safehttp.Error](err)
		notSent = notSent || e.Reason == safehttp.TimedOut
	case "takes a broken connection for not sent":
		e, _ := errors.AsType[*safehttp.Error](err)
		notSent = notSent || e.Reason == safehttp.BrokenOff
	case "doubts everything":
		notSent = false
	}
	if notSent {
		return belfry.NotSent(0, 0, "no connection")
	}
	return errors.New("sloppy: it may have arrived")
}

func (c *sloppy) answer(resp *http.Response, body []byte, a channel.Armed) error {
	status, detail := resp.StatusCode, ""
	after, _ := safehttp.ParseRetryAfter(resp.Header, a.Now)
	seconds, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	switch c.fault {
	case "shows the answer":
		detail = string(body)
	case "ignores Retry-After":
		after = 0
	case "reads seconds only":
		if err != nil {
			after = 0
		}
	case "waits for years":
		after = time.Duration(seconds) * time.Second
	}
	switch {
	case status/100 == 2 || c.fault == "takes no answer for a no":
		return nil
	case status == 410 && c.fault == "refuses after a 410":
		return belfry.Refused(status, detail)
	case status == 410:
		return belfry.Gone(status, detail)
	case status == 429:
		return belfry.Throttled(status, after, detail)
	}
	return belfry.NotSent(status, after, detail)
}

// recorder notes failures and lets the test go on as if there were none.
type recorder struct {
	testing.TB
	t     *testing.T
	mu    *sync.Mutex
	fails map[string]bool
}

func (r *recorder) note() {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, fact, _ := strings.Cut(r.t.Name(), "/")
	_, fact, _ = strings.Cut(fact, "/")
	r.fails[fact] = true
}

func (r *recorder) Error(...any)          { r.note() }
func (r *recorder) Errorf(string, ...any) { r.note() }
func (r *recorder) Fatal(...any)          { r.note(); r.t.SkipNow() }
func (r *recorder) Fatalf(string, ...any) { r.note(); r.t.SkipNow() }

// TestEveryFaultIsCaught plants one fault at a time, and asks the suite what it thinks.
func TestEveryFaultIsCaught(t *testing.T) {
	defer func(d time.Duration, w io.Writer) { patience = d; log.SetOutput(w) }(patience, log.Writer())
	patience = 2 * time.Second
	log.SetOutput(io.Discard)
	for fault, fact := range map[string]string{
		"":                                       "",
		"checks nothing":                         "AddressesAreChecked",
		"shows the key it refuses":               "AddressesAreChecked",
		"encodes the time":                       "EncodeIsDeterministic",
		"wastes the room there is":               "EncodeIsDeterministic",
		"encodes whatever it is given":           "EncodeRefusesWhatIsTooLarge",
		"quotes what it refuses":                 "EncodeRefusesWhatIsTooLarge",
		"tries again after a 5xx":                "SendIsOneRequest",
		"tries again after a broken connection":  "DyingConnectionIsOneRequest",
		"lets the library send again":            "DyingConnectionIsOneRequest",
		"ignores its context":                    "CancelledMidwayLeaksNothing",
		"leaks goroutines":                       "CancelledMidwayLeaksNothing",
		"overdraws its budget":                   "BudgetIsKept",
		"logs the address":                       "NoTextHoldsASecret",
		"shows the address":                      "NoAnswerIsAmbiguous",
		"shows the answer":                       "NoTextHoldsASecret",
		"follows redirects":                      "RedirectIsNotFollowed",
		"reads without a limit":                  "LargeAnswerIsCut",
		"doubts the status of a broken body":     "BrokenBodyKeepsTheStatus",
		"takes a timeout for not sent":           "NoAnswerIsAmbiguous",
		"takes a broken connection for not sent": "NoAnswerIsAmbiguous",
		"doubts everything":                      "DeadProviderIsNotSent",
		"ignores Retry-After":                    "RetryAfterIsRead",
		"reads seconds only":                     "RetryAfterIsRead",
		"waits for years":                        "RetryAfterIsRead",
		"takes no answer for a no":               "SendIsOneRequest",
		"refuses after a 410":                    "Answers/410",
	} {
		t.Run("which "+fault, func(t *testing.T) {
			fails, mu := make(map[string]bool), new(sync.Mutex)
			s := Setup{
				Open: func(t testing.TB, p Provider) (channel.Channel, belfry.Endpoint) {
					return newSloppy(t, fault, p), belfry.Endpoint{
						Address: belfry.Secret(p.URL + "/t0ken-of-the-endpoint"), Keys: belfry.Keys{"key": "0123456789abcdef"},
					}
				},
				Bad: []Address{
					{Name: "no URL", Address: "nowhere", Keys: belfry.Keys{"key": "0123456789abcdef"}, Field: "address"},
					{Name: "short key", Address: "https://provider.example/", Keys: belfry.Keys{"key": "0123456789"}, Field: "keys.key"},
				},
			}
			run(t, s, func(t *testing.T) testing.TB { return &recorder{TB: t, t: t, mu: mu, fails: fails} })
			if fact == "" && len(fails) > 0 || fact != "" && !fails[fact] {
				t.Errorf("the suite says no to %v, want %q", slices.Sorted(maps.Keys(fails)), fact)
			}
		})
	}
}
