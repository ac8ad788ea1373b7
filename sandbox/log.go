package sandbox

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"
)

// Entry is one message that was accepted.
type Entry struct {
	At      time.Time
	Channel string
	To      string // the receiver: a webhook's name, a subscription's id
	ID      string // the sender's id of the message; empty when it gave none
	Attempt int    // which request with this ID to this receiver it was, from 1
	Header  http.Header
	Body    []byte // decrypted
}

// entry is the written form. A body that is JSON stands there as it is, another as a string.
type entry struct {
	At      time.Time         `json:"at"`
	Channel string            `json:"channel"`
	To      string            `json:"to"`
	ID      string            `json:"id"`
	Attempt int               `json:"attempt"`
	Headers map[string]string `json:"headers,omitempty"`
	Body    json.RawMessage   `json:"body,omitempty"`
}

// MarshalJSON writes names of headers in lower case, and a body that is JSON as it is.
func (e Entry) MarshalJSON() ([]byte, error) {
	out := entry{At: e.At.UTC(), Channel: e.Channel, To: e.To, ID: e.ID, Attempt: e.Attempt, Body: e.Body}
	if e.Header != nil {
		out.Headers = headers(e.Header)
	}
	if len(e.Body) > 0 && !json.Valid(e.Body) {
		out.Body, _ = json.Marshal(string(e.Body))
	}
	var b bytes.Buffer
	err := encoder(&b).Encode(out)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// UnmarshalJSON reads what [Entry.MarshalJSON] writes.
func (e *Entry) UnmarshalJSON(b []byte) error {
	var in entry
	if err := json.Unmarshal(b, &in); err != nil {
		return err
	}
	*e = Entry{At: in.At, Channel: in.Channel, To: in.To, ID: in.ID, Attempt: in.Attempt, Body: in.Body}
	var text string
	if json.Unmarshal(in.Body, &text) == nil {
		e.Body = []byte(text)
	}
	for name, value := range in.Headers {
		if e.Header == nil {
			e.Header = make(http.Header)
		}
		e.Header.Set(name, value)
	}
	return nil
}

// Log returns what was accepted, in order.
func (s *Sandbox) Log() []Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.log)
}

// Clear forgets what was accepted, the counts and the attempts.
func (s *Sandbox) Clear() error {
	s.mu.Lock()
	s.clear()
	s.mu.Unlock()
	if s.file == nil {
		return nil
	}
	return s.file.truncate()
}

func (s *Sandbox) clear() {
	s.log, s.forgotten, s.stats, s.tries = nil, 0, make(map[answered]int), make(map[try]int)
}

// accept logs the message. Only then may it be answered.
func (s *Sandbox) accept(e Entry) error {
	if s.o.Lean {
		e.Header, e.Body = nil, nil
	}
	if s.file != nil {
		if err := s.file.append(e); err != nil {
			return err
		}
	}
	s.keep(e)
	return nil
}

func (s *Sandbox) keep(e Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, e)
	if len(s.log) >= 2*s.o.Keep {
		s.forgotten += len(s.log) - s.o.Keep
		s.log = slices.Clone(s.log[len(s.log)-s.o.Keep:])
	}
}

// count returns which request with this id it is.
func (s *Sandbox) count(to receiver, id string) int {
	if id == "" {
		return 1
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tries[try{to, id}]++
	return s.tries[try{to, id}]
}

func (s *Sandbox) getLog(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	var since time.Time
	if text := q.Get("since"); text != "" {
		var err error
		if since, err = time.Parse(time.RFC3339, text); err != nil {
			return fmt.Errorf("since: want an RFC 3339 time")
		}
	}
	wants := func(name, value string) bool { return !q.Has(name) || q.Get(name) == value }
	s.mu.Lock()
	all := s.log // entries are never changed, only followed by others
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	out := bufio.NewWriter(w)
	sep := "["
	for _, e := range all {
		if !wants("channel", e.Channel) || !wants("to", e.To) || !wants("id", e.ID) || e.At.Before(since) {
			continue
		}
		b, err := e.MarshalJSON()
		if err != nil {
			return err
		}
		_, _ = out.WriteString(sep)
		if _, err := out.Write(b); err != nil {
			return nil // the reader has gone
		}
		sep = ",\n"
	}
	if sep == "[" {
		_, _ = out.WriteString(sep)
	}
	_, _ = out.WriteString("]\n")
	_ = out.Flush()
	return nil
}

func (s *Sandbox) deleteLog(w http.ResponseWriter, _ *http.Request) error {
	if err := s.Clear(); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// file keeps the log on disk. Entries that come while one batch is synced form the next.
type file struct {
	mu      sync.Mutex
	f       *os.File
	next    *batch
	writing bool
}

type batch struct {
	lines bytes.Buffer
	done  chan struct{}
	err   error
}

func newBatch() *batch { return &batch{done: make(chan struct{})} }

// openFile reads what is there already, up to a last line that was not written to its end.
func openFile(name string, keep func(Entry)) (*file, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	r := bufio.NewReader(f)
	var size int64
	for {
		line, err := r.ReadBytes('\n')
		if err != nil {
			break
		}
		var e Entry
		if err := json.Unmarshal(line, &e); err != nil {
			f.Close()
			return nil, fmt.Errorf("sandbox: %s is not a log of ours: %w", name, err)
		}
		keep(e)
		size += int64(len(line))
	}
	if err := f.Truncate(size); err != nil {
		f.Close()
		return nil, err
	}
	return &file{f: f, next: newBatch()}, nil
}

// append returns when the entry is on disk.
func (l *file) append(e Entry) error {
	line, err := e.MarshalJSON()
	if err != nil {
		return err
	}
	l.mu.Lock()
	mine := l.next
	mine.lines.Write(line)
	mine.lines.WriteByte('\n')
	if l.writing { // whoever writes now writes mine too
		l.mu.Unlock()
		<-mine.done
		return mine.err
	}
	l.writing = true
	for l.next.lines.Len() > 0 {
		b := l.next
		l.next = newBatch()
		l.mu.Unlock()
		if _, b.err = l.f.Write(b.lines.Bytes()); b.err == nil {
			b.err = l.f.Sync()
		}
		close(b.done)
		l.mu.Lock()
	}
	l.writing = false
	l.mu.Unlock()
	return mine.err
}

func (l *file) truncate() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.f.Truncate(0)
}

func (l *file) close() error { return l.f.Close() }
