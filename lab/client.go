package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
)

// client talks to a server's API.
type client struct {
	http *http.Client
	base string
}

func newClient(base string, connections int) *client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConns, t.MaxIdleConnsPerHost = connections, connections
	t.DisableCompression = true
	return &client{&http.Client{Transport: t, Timeout: 10 * time.Second}, base}
}

// refusal is an answer that is not 2xx.
type refusal struct {
	status int
	body   string
}

func (r *refusal) Error() string { return fmt.Sprintf("answered %d: %s", r.status, r.body) }

// call sends in as JSON, unless it is nil, and reads the answer into out, unless that is nil.
func (c *client) call(ctx context.Context, method, path string, in, out any) error {
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return err
		}
	}
	return c.send(ctx, method, path, body, out)
}

func (c *client) send(ctx context.Context, method, path string, body []byte, out any) error {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	if len(body) > 0 {
		req.Header["Content-Type"] = []string{"application/json"}
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode/100 != 2 {
		return &refusal{resp.StatusCode, string(text)}
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(text, out)
}
