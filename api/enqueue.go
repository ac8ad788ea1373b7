package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"belfry"
	"belfry/internal/strictjson"
	"belfry/store"
)

// enqueue answers POST /v1/notifications.
func (s *server) enqueue(c *call) error {
	dryRun, err := c.flag("dry_run")
	if err != nil {
		return err
	}
	key, err := headerKey(c.r.Header)
	if err != nil {
		return err
	}
	v, err := s.body(c)
	if err != nil {
		return err
	}
	inBody, err := bodyKey(v)
	switch {
	case err != nil:
		return err
	case key == "":
		key = inBody
	case inBody != "" && inBody != key:
		return badKey("key", "differs from the header Idempotency-Key: give one of them")
	}
	r, err := s.read1(c, v, key)
	if dryRun {
		if err != nil {
			return err
		}
		return s.dryRun(c, r)
	}
	if err != nil {
		return s.refuse(c, key, r.Fingerprint, err)
	}
	answers, err := s.Backend.Enqueue(c.r.Context(), []store.Request{r}, true)
	if err != nil {
		return err
	}
	if answers[0].Err != nil {
		return answers[0].Err
	}
	s.enqueued(c, key, answers[0])
	return nil
}

// read1 makes a request of a notification's JSON. The request has its fingerprint even with an error.
func (s *server) read1(c *call, v strictjson.Value, key string) (store.Request, error) {
	var n Request
	print := fingerprint(v)
	if err := v.Decode(&n); err != nil {
		return store.Request{Fingerprint: print}, err
	}
	return n.request(c.Project, key, print)
}

// refuse is the answer to a request that cannot be read or obeyed: err, unless its key was used before. Then
// that comes first, whatever is wrong with the request.
func (s *server) refuse(c *call, key string, print [32]byte, err error) error {
	if key == "" {
		return err
	}
	// A request without a recipient makes nothing; only its key is looked at.
	r := store.Request{Request: belfry.Request{Project: c.Project, Key: key}, Fingerprint: print}
	answers, failed := s.Backend.Enqueue(c.r.Context(), []store.Request{r}, true)
	switch {
	case failed != nil:
		return err
	case belfry.CodeOf(answers[0].Err) == belfry.CodeKeyReused:
		return answers[0].Err
	case answers[0].Err == nil && answers[0].Replayed: // it was good when the key was used
		s.enqueued(c, key, answers[0])
		return nil
	}
	return err
}

func (s *server) enqueued(c *call, key string, e store.Enqueued) {
	h := c.w.Header()
	h["Content-Type"] = []string{"application/json"}
	h["Location"] = []string{"/v1/notifications/" + e.ID.String()}
	if key != "" {
		if sent := c.r.Header["Idempotency-Key"]; sent != nil {
			h["Idempotency-Key"] = sent
		} else {
			h["Idempotency-Key"] = []string{quoteKey(key)}
		}
		if !e.Expires.IsZero() {
			h["Idempotency-Expires"] = []string{e.Expires.UTC().Format(http.TimeFormat)}
		}
		if e.Replayed {
			h["Idempotent-Replayed"] = []string{"true"}
		}
	}
	c.w.reply(http.StatusAccepted, append(appendEnqueued(make([]byte, 0, 256), e, false), '\n'))
}

// Forecast is the answer to a dry run.
type Forecast struct {
	State       belfry.State       `json:"state" doc:"sending: it would go out as deliveries says; else how it would wait or end."`
	Reason      belfry.Reason      `json:"reason,omitempty" doc:"Why it would wait or end."`
	Explanation string             `json:"explanation,omitempty" doc:"The reason in words."`
	Due         time.Time          `json:"due_at" doc:"When it would be due."`
	Deadline    time.Time          `json:"deadline" doc:"When it would not be sent any more."`
	Deliveries  []DeliveryForecast `json:"deliveries" doc:"Where it would go if it were due now."`
	Verdict     belfry.VerdictKind `json:"verdict,omitempty" doc:"What the category's recheck says."`
	Detail      string             `json:"detail,omitempty" doc:"More, for people."`
	DuplicateOf belfry.ID          `json:"duplicate_of,omitempty" doc:"The notification that was made of this fact or key already."`
}

type DeliveryForecast struct {
	Channel  string      `json:"channel" doc:"The channel."`
	Endpoint belfry.ID   `json:"endpoint,omitempty" doc:"The recipient's endpoint; absent with a destination of to."`
	Target   int         `json:"target,omitempty" doc:"Which destination of to, from 1."`
	Device   string      `json:"device,omitempty" doc:"The device of the endpoint."`
	Mode     belfry.Mode `json:"mode" doc:"What would be done when nobody can know whether it was accepted."`
}

func (s *server) dryRun(c *call, r store.Request) error {
	f, err := s.Backend.DryRun(c.r.Context(), r)
	if err != nil {
		return err
	}
	v := Forecast{
		State: f.State, Reason: f.Reason, Explanation: explainAt(f.State, f.Reason), Due: f.Due.UTC(), Deadline: f.Deadline.UTC(),
		Deliveries: make([]DeliveryForecast, 0, len(f.Deliveries)), Verdict: f.Verdict, Detail: f.Detail, DuplicateOf: f.Duplicate,
	}
	for _, d := range f.Deliveries {
		v.Deliveries = append(v.Deliveries, DeliveryForecast{d.Channel, d.Endpoint, d.Target, d.Device, d.Mode})
	}
	c.status = http.StatusOK
	return c.reply(v)
}

// BatchRequest is the body of POST /v1/notifications/batch.
type BatchRequest struct {
	Notifications []Request `json:"notifications" minItems:"1" maxItems:"1000" doc:"The notifications, each with a key of its own if you like."`
	OnInvalid     string    `json:"on_invalid,omitempty" enum:"refuse,skip" doc:"refuse (default): one that is not valid refuses all; skip: the others are taken."`
}

// batch is a BatchRequest whose notifications are read one by one.
type batch struct {
	Notifications []strictjson.Value `json:"notifications"`
	OnInvalid     string             `json:"on_invalid,omitempty"`
}

// BatchAnswer is the answer to a batch.
type BatchAnswer struct {
	Created    int         `json:"created" doc:"How many notifications were made."`
	Duplicates int         `json:"duplicates" doc:"How many facts had been told already."`
	Replayed   int         `json:"replayed" doc:"How many were answered from their key."`
	Refused    int         `json:"refused" doc:"How many were not valid; 0 unless on_invalid is skip."`
	Results    []BatchItem `json:"results" doc:"One per notification, in their order."`
}

// BatchItem is what became of one notification of a batch: the members of an [Enqueued], or an error.
type BatchItem struct {
	ID       belfry.ID     `json:"id,omitempty" doc:"The notification."`
	Result   string        `json:"result,omitempty" enum:"created,duplicate" doc:"duplicate: the fact was told already, and id is the first notification of it."`
	State    belfry.State  `json:"state,omitempty" doc:"Where it stood when the request was answered first."`
	Reason   belfry.Reason `json:"reason,omitempty" doc:"Why it ended or waits."`
	Due      time.Time     `json:"due_at,omitzero" doc:"When it is due."`
	DueLocal string        `json:"due_local,omitempty" doc:"The same instant in the recipient's zone; in UTC when that is not known."`
	Deadline time.Time     `json:"deadline,omitzero" doc:"When it is not sent any more."`
	Replayed bool          `json:"replayed,omitempty" doc:"Answered from its idempotency key; nothing new was made."`
	Error    *ItemError    `json:"error,omitempty" doc:"Why it was refused; alone then."`
}

// enqueueBatch answers POST /v1/notifications/batch.
func (s *server) enqueueBatch(c *call) error {
	if _, given := c.r.Header["Idempotency-Key"]; given {
		return badKey("Idempotency-Key", "every notification of a batch has a key of its own, in its member key")
	}
	v, err := s.body(c)
	if err != nil {
		return err
	}
	var b batch
	if err := v.Decode(&b); err != nil {
		return err
	}
	if n := len(b.Notifications); n == 0 || n > belfry.MaxBatch {
		return belfry.Invalid("notifications", "want 1 to %d of them, not %d", belfry.MaxBatch, n)
	}
	if b.OnInvalid != "" && b.OnInvalid != "refuse" && b.OnInvalid != "skip" {
		return belfry.Invalid("on_invalid", "is not one of: refuse skip")
	}
	answers, err := s.takeBatch(c, b)
	if err != nil {
		return err
	}
	return s.answerBatch(c, b.OnInvalid == "skip", answers)
}

// takeBatch enqueues what can be read; the others have their error in the answers.
func (s *server) takeBatch(c *call, b batch) ([]store.Enqueued, error) {
	answers := make([]store.Enqueued, len(b.Notifications))
	var requests []store.Request
	var places []int
	refused, atomic := false, b.OnInvalid != "skip"
	used := map[string]int{}
	for i, v := range b.Notifications {
		key, err := bodyKey(v)
		if first, twice := used[key]; twice && key != "" {
			return nil, &Problem{
				Code: belfry.CodeKeyDuplicate, Field: fmt.Sprintf("notifications.%d.key", i),
				Detail: fmt.Sprintf("is the key of notifications.%d too: give each its own", first),
			}
		}
		used[key] = i
		var r store.Request
		if err == nil {
			r, err = s.read1(c, v, key)
		}
		if err != nil {
			answers[i].Err, refused = err, true
			if atomic || key == "" {
				continue
			}
			// As in refuse: what its key was used for comes before what is wrong with it.
			r = store.Request{Request: belfry.Request{Project: c.Project, Key: key}, Fingerprint: r.Fingerprint}
		}
		requests, places = append(requests, r), append(places, i)
	}
	if refused && atomic || len(requests) == 0 {
		return answers, nil
	}
	got, err := s.Backend.Enqueue(c.r.Context(), requests, atomic)
	if err != nil {
		return nil, err
	}
	for k, i := range places {
		wrong := answers[i].Err
		answers[i] = got[k]
		if wrong != nil && belfry.CodeOf(got[k].Err) != belfry.CodeKeyReused && !(got[k].Err == nil && got[k].Replayed) {
			answers[i].Err = wrong
		}
	}
	return answers, nil
}

func (s *server) answerBatch(c *call, skip bool, answers []store.Enqueued) error {
	const mostErrors = 100
	var total BatchAnswer
	var errors []ItemError
	items := make([]byte, 0, 256*len(answers))
	for i, e := range answers {
		if i > 0 {
			items = append(items, ',')
		}
		switch {
		case e.Err != nil:
			total.Refused++
			item := s.itemError(c, i, e.Err)
			if len(errors) < mostErrors {
				errors = append(errors, item)
			}
			text, err := json.Marshal(item)
			if err != nil {
				return err
			}
			items = append(append(append(items, `{"error":`...), text...), '}')
			continue
		case e.Replayed:
			total.Replayed++
		case e.Duplicate:
			total.Duplicates++
		default:
			total.Created++
		}
		items = appendEnqueued(items, e, true)
	}
	if total.Refused > 0 && !skip {
		return &Problem{
			Code: errors[0].Code, Field: "notifications." + strconv.Itoa(errors[0].Index) + dot(errors[0].Field), Errors: errors,
			Detail: fmt.Sprintf("%d of %d notifications were refused, so none was taken; the first because: %s", total.Refused, len(answers), errors[0].Detail),
			status: http.StatusUnprocessableEntity,
		}
	}
	body := fmt.Appendf(make([]byte, 0, len(items)+128), `{"created":%d,"duplicates":%d,"replayed":%d,"refused":%d,"results":[`,
		total.Created, total.Duplicates, total.Replayed, total.Refused)
	c.w.Header().Set("Content-Type", "application/json")
	c.w.reply(http.StatusAccepted, append(append(body, items...), "]}\n"...))
	return nil
}

func dot(field string) string {
	if field == "" {
		return ""
	}
	return "." + field
}

func (s *server) itemError(c *call, i int, err error) ItemError {
	p, shown := problemOf(err)
	if !shown {
		s.log.Error("a notification of a batch failed", "request", c.w.id, "index", i, "err", err)
	}
	return ItemError{i, p.Code, p.Field, p.Detail}
}
