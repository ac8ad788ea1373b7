package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"belfry/api"
	"belfry/config"
	"belfry/store/sqlite"
)

// serving runs a server in the test's own process until the test ends.
func serving(t *testing.T, set map[string]string) *server {
	t.Helper()
	set["data"], set["http.listen"] = t.TempDir(), "127.0.0.1:0"
	conf, err := config.Load(config.Sources{Flags: set})
	if err != nil {
		t.Fatal(err)
	}
	s, err := openServer(t.Context(), conf, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- s.run(ctx, func() { close(ready) }) }()
	<-ready
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return s
}

func (s *server) readiness(t *testing.T) (out api.Readiness) {
	t.Helper()
	resp, err := http.Get("http://" + s.listeners["api"].Addr().String() + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil {
		t.Fatal(err)
	}
	if out.Ready != (resp.StatusCode == http.StatusOK) {
		t.Errorf("status %d with %+v", resp.StatusCode, out)
	}
	return out
}

func TestAServerWhoseFileIsHeldSaysSo(t *testing.T) {
	s := serving(t, map[string]string{"store.sqlite.busy": "10ms"})
	if r := s.readiness(t); !r.Ready {
		t.Fatal(r.Reasons)
	}
	other, err := sql.Open("sqlite", filepath.Join(s.conf.Data, sqlite.FileName))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	other.SetMaxOpenConns(1)
	if _, err := other.Exec("BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	if r := s.readiness(t); r.Ready || !strings.Contains(strings.Join(r.Reasons, "\n"), "held by another connection") {
		t.Errorf("%+v", r)
	}
	if f := s.examine(t.Context()); f[0].Status != "fail" {
		t.Errorf("the doctor says %+v", f[0])
	}
	if _, err := other.Exec("ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	if r := s.readiness(t); !r.Ready {
		t.Error(r.Reasons)
	}
}

func TestAStoppingServerIsNotReady(t *testing.T) {
	s := serving(t, map[string]string{})
	s.stopping.Store(true)
	if r := s.readiness(t); r.Ready {
		t.Error("it takes more")
	}
}

func TestASlowClientDoesNotHoldAConnection(t *testing.T) {
	s := serving(t, map[string]string{"http.read_timeout": "50ms"})
	conn, err := net.Dial("tcp", s.listeners["api"].Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("POST /v1/notifications HTTP/1.1\r\nHost: x\r\n")); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	for buf := make([]byte, 1024); err == nil; { // an answer perhaps, then the end
		_, err = conn.Read(buf)
	}
	if e, ok := err.(net.Error); ok && e.Timeout() {
		t.Error("the server waits for the rest")
	}
}

func TestAHeaderHasAnEnd(t *testing.T) {
	s := serving(t, map[string]string{})
	req, err := http.NewRequest("GET", "http://"+s.listeners["api"].Addr().String()+"/healthz", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Long", strings.Repeat("a", 2*maxHeader))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("status %d", resp.StatusCode)
	}
}

func TestSystemdIsToldWhenTheServerIsReady(t *testing.T) {
	name := filepath.Join(t.TempDir(), "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	t.Setenv("NOTIFY_SOCKET", name)
	tellSystemd("READY=1")
	if err := l.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 64)
	n, err := l.Read(buf)
	if err != nil || string(buf[:n]) != "READY=1" {
		t.Errorf("%q, %v", buf[:n], err)
	}
}
