package sandbox

import (
	"errors"
	"net/http"
	"time"
)

// Script says how one receiver answers: each request takes the next answer, the last one repeats. Without answers it
// is taken away. A request that the provider would refuse anyway, such as one with a bad signature, takes none.
type Script struct {
	Channel string   `json:"channel"`
	To      string   `json:"to"`
	Answers []Answer `json:"answers"`
	Secret  string   `json:"secret,omitempty"` // of a webhook: verify with it, as PUT /webhook/{name}/secret does
}

// Answer is what happens to one request, after all of it was read. A message is accepted, and logged, if Status is 2xx
// or AcceptThenDrop is set; that happens first, and the waiting after it.
type Answer struct {
	// Status is 0 for the provider's usual acceptance, or for no answer at all with HangMS, Drop or AcceptThenDrop.
	Status         int               `json:"status,omitempty"`
	Headers        map[string]string `json:"headers,omitempty"`
	Body           string            `json:"body,omitempty"`
	DelayMS        int               `json:"delay_ms,omitempty"`         // wait so long before the answer
	HangMS         int               `json:"hang_ms,omitempty"`          // likewise; without a Status the connection is cut then
	Drop           bool              `json:"drop,omitempty"`             // cut the connection, nothing was accepted
	AcceptThenDrop bool              `json:"accept_then_drop,omitempty"` // accept, then cut the connection
}

func (a Answer) check() error {
	if a.Status != 0 && (a.Status < 200 || a.Status > 599) {
		return errors.New("status: want 200 to 599")
	}
	if a.DelayMS < 0 || a.HangMS < 0 {
		return errors.New("delay_ms, hang_ms: must not be negative")
	}
	if (a.Drop || a.AcceptThenDrop) && a.Status != 0 || a.Drop && a.AcceptThenDrop {
		return errors.New("status, drop, accept_then_drop: want one of them")
	}
	return nil
}

func (a Answer) silent() bool {
	return a.Drop || a.AcceptThenDrop || a.HangMS > 0 && a.Status == 0
}

func (a Answer) accepts() bool {
	if a.silent() {
		return a.AcceptThenDrop
	}
	return a.Status == 0 || a.Status/100 == 2
}

type running struct {
	Script
	at int // the next answer
}

// Script puts a script in force, in place of the receiver's last one.
func (s *Sandbox) Script(script Script) error {
	for _, a := range script.Answers {
		if err := a.check(); err != nil {
			return err
		}
	}
	if script.Channel == "" || script.To == "" {
		return errors.New("channel, to: must not be empty")
	}
	if script.Secret != "" {
		if err := s.Secret(script.To, script.Secret); err != nil {
			return err
		}
		script.Secret = ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	to := receiver{script.Channel, script.To}
	if s.scripts[to] = (&running{Script: script}); len(script.Answers) == 0 {
		delete(s.scripts, to)
	}
	return nil
}

// next is the scripted answer, the zero one when there is no script.
func (s *Sandbox) next(to receiver) Answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.scripts[to]
	if r == nil {
		return Answer{}
	}
	a := r.Answers[r.at]
	r.at = min(r.at+1, len(r.Answers)-1)
	return a
}

// perform does what the answer says. usual writes the acceptance of the provider.
func (s *Sandbox) perform(w http.ResponseWriter, r *http.Request, a Answer, e Entry, usual func(http.ResponseWriter)) error {
	if a.accepts() {
		if err := s.accept(e); err != nil {
			s.tally(e.Channel, http.StatusInternalServerError)
			w.WriteHeader(http.StatusInternalServerError)
			return nil
		}
	}
	if wait := time.Duration(a.DelayMS+a.HangMS) * time.Millisecond; wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-r.Context().Done():
		}
	}
	if a.silent() {
		s.tally(e.Channel, 0)
		panic(http.ErrAbortHandler)
	}
	for name, value := range a.Headers {
		w.Header().Set(name, value)
	}
	if a.Status == 0 {
		usual(w)
		return nil
	}
	s.tally(e.Channel, a.Status)
	w.WriteHeader(a.Status)
	_, _ = w.Write([]byte(a.Body))
	return nil
}

// refuse answers a request that the provider does not take.
func (s *Sandbox) refuse(w http.ResponseWriter, channel string, status int, why string) error {
	s.tally(channel, status)
	http.Error(w, why, status)
	return nil
}

func (s *Sandbox) tally(channel string, status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats[answered{channel, status}]++
}

func (s *Sandbox) putScript(w http.ResponseWriter, r *http.Request) error {
	var script Script
	if err := readJSON(r, &script); err != nil {
		return err
	}
	if err := s.Script(script); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *Sandbox) getScript(w http.ResponseWriter, _ *http.Request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := []Script{}
	for _, to := range sortedReceivers(s.scripts) {
		out = append(out, s.scripts[to].Script)
	}
	return writeJSON(w, out)
}
