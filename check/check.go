// Package check asks a program of the caller's "is it still true?" right before notifications are sent: one
// signed POST for up to [Most] of them. It obeys Standard Webhooks 1.0 in what it sends.
//
//	POST {"checks":[{"notification":…,"recipient":…,"category":…,"subject":…,"data":{…},"attempt":1,"last_sent":{"at":…,"data":{…}}}]}
//	200  {"results":[{"notification":…,"verdict":"send","data":{…}},
//	                 {"notification":…,"verdict":"drop","reason":"out_of_stock"},
//	                 {"notification":…,"verdict":"later","after":"10m"}]}
//
// Nothing is guessed: whatever is not a clear answer is belfry.VerdictFailed, and the category decides. One
// call makes one request, never a second.
package check

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"

	"belfry"
	"belfry/internal/safehttp"
	"belfry/internal/strictjson"
	"belfry/signature"
)

// Most is how many notifications one call may ask about.
const Most = 100

const (
	maxAnswer = 1 << 20                // bytes of an answer about a few notifications
	maxResult = belfry.MaxData + 1<<10 // bytes that each may take when there are more
	maxAfter  = 366 * 24 * time.Hour   // longest "later" that is believed; the deadline ends the wait anyway
	timeout   = 3 * time.Second        // of a policy that names none
)

// Options of [New].
type Options struct {
	HTTP   Doer             // a *safehttp.Client
	Secret signature.Secret // what the receiver verifies with
	Now    func() time.Time // default time.Now
	ID     func() string    // of a request, its webhook-id; default random
}

// Doer sends one request at most once and follows no redirect.
type Doer interface {
	Do(*http.Request) (*http.Response, error)
}

// Client asks. Safe for concurrent use.
type Client struct{ o Options }

// New makes a client of options with HTTP and Secret.
func New(o Options) *Client {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.ID == nil {
		o.ID = func() string { return "chk_" + rand.Text() }
	}
	return &Client{o}
}

// Recheck returns one verdict per check, in their order. It takes no longer than the policy's timeout, and
// the Detail of a verdict that failed names neither the URL nor any part of the answer.
func (c *Client) Recheck(ctx context.Context, policy belfry.CheckPolicy, checks []belfry.Check) []belfry.Verdict {
	if len(checks) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(policy.Timeout.Std(), timeout))
	defer cancel()
	verdicts := make([]belfry.Verdict, len(checks))
	answer, err := c.ask(ctx, policy.URL, checks)
	if err == nil {
		err = read(answer, checks, verdicts)
	}
	now := c.o.Now()
	for i := range verdicts {
		if err != nil {
			verdicts[i] = belfry.CheckFailed("recheck: " + err.Error())
		}
		verdicts[i].At = now
	}
	return verdicts
}

// ask makes the request. Its errors are safe to show.
func (c *Client) ask(ctx context.Context, url string, checks []belfry.Check) ([]byte, error) {
	if len(checks) > Most {
		return nil, fmt.Errorf("asked about %d notifications at once, the limit is %d", len(checks), Most)
	}
	body, err := encode(checks)
	if err != nil {
		return nil, errors.New("a notification's data is not valid JSON")
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, errors.New("the category's check.url is not a URL")
	}
	request.GetBody = nil // so that nobody sends it again
	id, now := c.o.ID(), c.o.Now()
	header, err := signature.Sign(id, now, body, c.o.Secret)
	if err != nil {
		return nil, err
	}
	h := request.Header
	h.Set("Content-Type", "application/json")
	h.Set("Accept", "application/json")
	h.Set("User-Agent", "belfry")
	h.Set(signature.HeaderID, id)
	h.Set(signature.HeaderTimestamp, strconv.FormatInt(now.Unix(), 10))
	h.Set(signature.HeaderSignature, header)
	response, err := c.o.HTTP.Do(request)
	if err != nil {
		return nil, unreachable(ctx, err)
	}
	defer response.Body.Close()
	if response.StatusCode < 200 || response.StatusCode > 299 {
		return nil, fmt.Errorf("answered %d", response.StatusCode)
	}
	most := max(maxAnswer, len(checks)*maxResult)
	answer, err := io.ReadAll(io.LimitReader(response.Body, int64(most)+1))
	if err != nil {
		return nil, unreachable(ctx, err)
	}
	if len(answer) > most {
		return nil, fmt.Errorf("answered with more than %d bytes", most)
	}
	return answer, nil
}

// unreachable says coarsely what went wrong: more would tell whoever set the URL about our network.
func unreachable(ctx context.Context, err error) error {
	why := "no complete answer"
	if e, ok := errors.AsType[*safehttp.Error](err); ok {
		why = e.Reason
	}
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		why = safehttp.TimedOut
	case ctx.Err() != nil:
		why = safehttp.Cancelled
	}
	return errors.New(why)
}

func encode(checks []belfry.Check) ([]byte, error) {
	list := make([]belfry.Check, len(checks))
	for i, check := range checks {
		if check.LastSent != nil {
			check.LastSent = &belfry.Mark{At: check.LastSent.At, Data: check.LastSent.Data}
		}
		list[i] = check
	}
	return json.Marshal(struct {
		Checks []belfry.Check `json:"checks"`
	}{list})
}

// read fills in the verdicts. An error is about the answer as a whole.
func read(answer []byte, checks []belfry.Check, verdicts []belfry.Verdict) error {
	document, err := strictjson.Parse(answer)
	if err != nil {
		return fmt.Errorf("the answer: %w", ours(err))
	}
	var list struct {
		Results []strictjson.Value `json:"results"`
	}
	if err := document.Decode(&list); err != nil {
		return fmt.Errorf("the answer: %w", ours(err))
	}
	asked := make(map[belfry.ID]int, len(checks))
	for i, check := range checks {
		asked[check.Notification] = i
		verdicts[i] = belfry.CheckFailed("recheck: the answer has no result for it")
	}
	answered := make([]bool, len(checks))
	for n, v := range list.Results {
		id, err := subject(v)
		if err != nil {
			return fmt.Errorf("the answer: results.%d: %w", n, err)
		}
		i, ok := asked[id]
		switch {
		case !ok:
			return fmt.Errorf("the answer: results.%d: names a notification that was not asked about", n)
		case answered[i]:
			verdicts[i] = belfry.CheckFailed("recheck: the answer has two results for it")
			continue
		}
		answered[i] = true
		if verdicts[i], err = verdict(v); err != nil {
			verdicts[i] = belfry.CheckFailed("recheck: its result: " + err.Error())
		}
	}
	return nil
}

// ours leaves a place out of an error when it is built of the answer's own names: who chose the URL must
// not read through us what is there.
func ours(err error) error {
	e, ok := errors.AsType[*strictjson.Error](err)
	if !ok || slices.Contains([]string{"results", "notification", "verdict", "data", "reason", "after"}, e.Field) {
		return err
	}
	return errors.New(e.Detail)
}

func subject(v strictjson.Value) (id belfry.ID, err error) {
	member, ok := v.Member("notification")
	if !ok {
		return 0, errors.New("names no notification")
	}
	if err := member.Decode(&id); err != nil || id == 0 {
		return 0, errors.New("names something that is not a notification")
	}
	return id, nil
}

// result is one of the results. The members after the verdict belong to one verdict each; null is none.
type result struct {
	Notification belfry.ID          `json:"notification"`
	Verdict      belfry.VerdictKind `json:"verdict"`
	Data         json.RawMessage    `json:"data,omitempty"`
	Reason       *string            `json:"reason,omitempty"`
	After        *wait              `json:"after,omitempty"`
}

func verdict(v strictjson.Value) (belfry.Verdict, error) {
	var r result
	if err := v.Decode(&r); err != nil {
		return belfry.Verdict{}, ours(err)
	}
	if string(r.Data) == "null" {
		r.Data = nil
	}
	alone := func(kind belfry.VerdictKind) error {
		switch {
		case r.Data != nil && kind != belfry.VerdictSend:
			return errors.New("data goes with send only")
		case r.Reason != nil && kind != belfry.VerdictDrop:
			return errors.New("reason goes with drop only")
		case r.After != nil && kind != belfry.VerdictLater:
			return errors.New("after goes with later only")
		}
		return nil
	}
	switch r.Verdict {
	case belfry.VerdictSend:
		if err := belfry.CheckObject("data", r.Data); err != nil {
			return belfry.Verdict{}, err
		}
		return belfry.Send(r.Data), alone(r.Verdict)
	case belfry.VerdictDrop:
		if r.Reason == nil {
			r.Reason = new(string)
		}
		return belfry.Drop(*r.Reason), alone(r.Verdict)
	case belfry.VerdictLater:
		if r.After == nil {
			return belfry.Verdict{}, errors.New("after: is missing")
		}
		return belfry.Later(time.Duration(*r.After)), alone(r.Verdict)
	}
	return belfry.Verdict{}, errors.New("verdict: must be send, drop or later")
}

// wait is a duration as text or in seconds.
type wait time.Duration

func (w *wait) DecodeStrict(v strictjson.Value) error {
	var d belfry.Duration
	if v.Kind() == strictjson.Number {
		seconds, err := strconv.ParseFloat(string(v.Raw()), 64)
		if err != nil || seconds < 0 || seconds > maxAfter.Seconds() {
			return errors.New("must be 0 to 366 days")
		}
		d = belfry.Duration(seconds * float64(time.Second))
	} else if err := v.Decode(&d); err != nil {
		return err
	}
	if d.Std() > maxAfter {
		return errors.New("must be 0 to 366 days")
	}
	*w = wait(d)
	return nil
}
