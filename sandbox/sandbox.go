// Package sandbox pretends to be the providers: it answers as the real ones do, misbehaves on request, and keeps a log
// of everything it accepted, which is what people's devices would have shown.
//
// A [Sandbox] is an [http.Handler], for a server of its own or for tests in the same process. Everybody who can reach
// it can read and change it: keep it on loopback.
//
//	GET    /log                      what was accepted, in order; ?channel= ?to= ?id= ?since= (RFC 3339) narrow it
//	DELETE /log                      forget it, the counts and the attempts
//	GET    /stats                    how many requests got which answer, by channel
//	PUT    /script                   how to answer one receiver, see [Script]
//	GET    /script                   the scripts in force
//	GET    /clock, PUT /clock        {"now": …}: what the sandbox takes for now, to step it along with an engine
//	POST   /webhook/{name}           a webhook receiver; every name exists
//	PUT    /webhook/{name}/secret    whsec_…, or {"secret": "whsec_…"}: verify signatures from now on; empty stops it
//	POST   /webpush/subscriptions    make a subscription, see [Subscription]
//	DELETE /webpush/subscriptions/{id}
//	POST   /webpush/{id}             the push service (RFC 8030)
package sandbox

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Options of [New]. The zero value keeps everything in memory.
type Options struct {
	Clock func() time.Time // default [time.Now]
	// LogFile also keeps the log on disk, one entry a line. An acceptance is synced to it before it is answered; what
	// it holds already is part of the log.
	LogFile string
	// Lean keeps neither headers nor bodies in the log: for rates of thousands a second.
	Lean bool
	// Keep is how many entries stay in memory, the latest; default 1,000,000. With headers and bodies an entry takes
	// about two kilobytes, lean about two hundred bytes. What left the memory is counted by /stats as "forgotten".
	Keep int
	// URL is where the sandbox is reached, without a final slash, for the endpoints of subscriptions; default: as the
	// request for a subscription reached it.
	URL string
}

// Sandbox is a set of pretend providers. Safe for concurrent use.
type Sandbox struct {
	o   Options
	mux *http.ServeMux

	mu        sync.Mutex
	ahead     time.Duration // of the clock
	log       []Entry
	forgotten int
	stats     map[answered]int
	tries     map[try]int
	scripts   map[receiver]*running
	webhooks  map[string]verifier
	webpush   map[string]*subscription
	vapid     map[string]claims // tokens that were verified

	file *file
}

type receiver struct{ channel, to string }

type try struct {
	receiver
	id string
}

type answered struct {
	channel string
	status  int // 0: none
}

// New returns a Sandbox. Its only errors are those of LogFile.
func New(o Options) (*Sandbox, error) {
	if o.Clock == nil {
		o.Clock = time.Now
	}
	o.Keep = cmp.Or(o.Keep, 1_000_000)
	s := &Sandbox{o: o, mux: http.NewServeMux(), scripts: make(map[receiver]*running), webhooks: make(map[string]verifier), webpush: make(map[string]*subscription), vapid: make(map[string]claims)}
	s.clear()
	if o.LogFile != "" {
		var err error
		if s.file, err = openFile(o.LogFile, s.keep); err != nil {
			return nil, err
		}
	}
	for pattern, h := range map[string]func(http.ResponseWriter, *http.Request) error{
		"GET /log":                           s.getLog,
		"DELETE /log":                        s.deleteLog,
		"GET /stats":                         s.getStats,
		"GET /script":                        s.getScript,
		"PUT /script":                        s.putScript,
		"GET /clock":                         s.getClock,
		"PUT /clock":                         s.putClock,
		"POST /webhook/{name}":               s.postWebhook,
		"PUT /webhook/{name}/secret":         s.putSecret,
		"POST /webpush/subscriptions":        s.postSubscription,
		"DELETE /webpush/subscriptions/{id}": s.deleteSubscription,
		"POST /webpush/{id}":                 s.postPush,
	} {
		s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := h(w, r); err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
			}
		})
	}
	return s, nil
}

func (s *Sandbox) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// Close closes the log file.
func (s *Sandbox) Close() error {
	if s.file == nil {
		return nil
	}
	return s.file.close()
}

func (s *Sandbox) now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.o.Clock().Add(s.ahead)
}

func (s *Sandbox) getClock(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, map[string]time.Time{"now": s.now().UTC()})
}

func (s *Sandbox) putClock(w http.ResponseWriter, r *http.Request) error {
	var in struct {
		Now time.Time `json:"now"`
	}
	if err := readJSON(r, &in); err != nil {
		return err
	}
	s.mu.Lock()
	s.ahead = in.Now.Sub(s.o.Clock())
	s.mu.Unlock()
	return s.getClock(w, r)
}

func (s *Sandbox) getStats(w http.ResponseWriter, _ *http.Request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]map[string]int{"log": {"kept": len(s.log), "forgotten": s.forgotten}}
	for a, n := range s.stats {
		if out[a.channel] == nil {
			out[a.channel] = make(map[string]int)
		}
		name := "unanswered"
		if a.status != 0 {
			name = strconv.Itoa(a.status)
		}
		out[a.channel][name] += n
	}
	return writeJSON(w, out)
}

const maxBody = 1 << 20

var errTooLarge = errors.New("the body is larger than 1 MiB")

// readBody reads a body in one piece.
func readBody(r *http.Request) ([]byte, error) {
	if r.ContentLength > maxBody {
		return nil, errTooLarge
	}
	if r.ContentLength >= 0 {
		b := make([]byte, r.ContentLength)
		_, err := io.ReadFull(r.Body, b)
		return b, err
	}
	b, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err == nil && len(b) > maxBody {
		err = errTooLarge
	}
	return b, err
}

func readJSON(r *http.Request, to any) error {
	d := json.NewDecoder(io.LimitReader(r.Body, maxBody))
	d.DisallowUnknownFields()
	return d.Decode(to)
}

func writeJSON(w http.ResponseWriter, v any) error {
	w.Header().Set("Content-Type", "application/json")
	return encoder(w).Encode(v)
}

func encoder(w io.Writer) *json.Encoder {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e
}

// headers is the log's form of them: names in lower case, as the standards write them.
func headers(h http.Header) map[string]string {
	out := make(map[string]string, len(h))
	for name, values := range h {
		out[strings.ToLower(name)] = strings.Join(values, ", ")
	}
	return out
}

func sortedReceivers(m map[receiver]*running) []receiver {
	var all []receiver
	for r := range m {
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b receiver) int {
		return cmp.Or(strings.Compare(a.channel, b.channel), strings.Compare(a.to, b.to))
	})
	return all
}
