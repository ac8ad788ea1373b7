package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"belfry"
	"belfry/access"
)

const (
	clientTimeout = time.Minute
	maxAnswer     = 64 << 20
)

// client talks to the server: through the socket of its data folder, or to a URL with a key.
type client struct {
	server  string // flag
	keyFile string // flag
	project string // flag

	http *http.Client
	base string
	key  string
	dead error // what to say when nobody answers
}

// flags adds those that a command needs to reach the server.
func (k *client) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&k.server, "server", os.Getenv("BELFRY_SERVER"), "URL of the server, with the key in BELFRY_KEY; default: the socket in the data folder")
	f.StringVar(&k.keyFile, "key-file", "", "file with the API key, instead of BELFRY_KEY")
	f.StringVar(&k.project, "project", "", "project (default: the key's; default)")
}

// connect settles where the server is. It dials nothing yet.
func (k *client) connect(g *globals) error {
	k.http = &http.Client{
		Timeout:       clientTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	if k.server == "" {
		conf, err := g.load(nil)
		if err != nil {
			return err
		}
		socket := filepath.Join(conf.Data, socketName)
		k.http.Transport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}}
		k.base, k.dead = "http://belfry", fmt.Errorf("no server is running on %s: start `belfry serve`", conf.Data)
		return nil
	}
	u, err := url.Parse(k.server)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
		return usage("--server: want a URL such as https://belfry.example")
	}
	k.base = strings.TrimRight(k.server, "/")
	k.dead = fmt.Errorf("no server answers at %s", u.Host)
	k.key = os.Getenv("BELFRY_KEY")
	if k.keyFile != "" {
		text, err := os.ReadFile(k.keyFile)
		if err != nil {
			return usage("--key-file: %v", err)
		}
		k.key = strings.TrimSpace(string(text))
	}
	return nil
}

// problem is what the server said when it did not do what was asked.
type problem struct {
	Status   int          `json:"status"`
	Code     belfry.Code  `json:"code"`
	Field    string       `json:"field"`
	Detail   string       `json:"detail"`
	Instance string       `json:"instance"`
	State    belfry.State `json:"state"`
}

func (p *problem) Error() string {
	s := p.Detail
	if p.Field != "" {
		s = p.Field + ": " + s
	}
	if p.Code == "internal" {
		s += " (request " + p.Instance + ")"
	}
	return s
}

// do makes one request. in is sent as JSON unless it is nil; out is filled unless it is nil.
func (k *client) do(ctx context.Context, method, path string, query url.Values, in, out any) error {
	var body io.Reader
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(text)
	}
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, k.base+path, body)
	if err != nil {
		return usage("--server: want a URL such as https://belfry.example")
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if k.key != "" {
		req.Header.Set("Authorization", "Bearer "+k.key)
	}
	if k.project != "" {
		req.Header.Set(access.HeaderProject, k.project)
	}
	resp, err := k.http.Do(req)
	if err != nil {
		return k.unanswered(ctx, err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return k.unanswered(ctx, err)
	}
	if resp.StatusCode >= 300 {
		p := &problem{Status: resp.StatusCode}
		if json.Unmarshal(answer, p) != nil || p.Code == "" {
			return &exit{exitUnreachable, fmt.Errorf("what answers there is no belfry: HTTP status %d", resp.StatusCode)}
		}
		return p
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return &exit{exitUnreachable, errors.New("what answers there is no belfry: it did not answer with JSON")}
	}
	return nil
}

// unanswered tells a server that is not there from one that does not answer.
func (k *client) unanswered(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, syscall.EACCES):
		return &exit{exitUnreachable, fmt.Errorf("%w (the socket is another user's)", k.dead)}
	case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return &exit{exitUnreachable, k.dead}
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	return &exit{exitUnreachable, fmt.Errorf("%w: %w", k.dead, err)}
}

// remote is a command that talks to the server. do prints the answer for people, from the answer as JSON,
// which is what --json prints.
func (g *globals) remote(c *cobra.Command, do func(c *cobra.Command, k *client, args []string) (answer json.RawMessage, people func(io.Writer) error, err error)) *cobra.Command {
	k := &client{}
	k.flags(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := k.connect(g); err != nil {
			return err
		}
		answer, people, err := do(c, k, args)
		if err != nil {
			return err
		}
		if g.json {
			return printJSON(c.OutOrStdout(), answer)
		}
		return people(c.OutOrStdout())
	}
	return g.jsonFlag(c)
}
