package redis_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// serve starts a Redis on a Unix socket and returns the path of that.
func serve(t testing.TB) string {
	t.Helper()
	bin, err := exec.LookPath("redis-server")
	if err != nil {
		const missing = "redis-server is not installed; install the Debian package redis-server"
		if os.Getenv("CI") != "" {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	// The path of a Unix socket has about a hundred bytes.
	dir, err := os.MkdirTemp("/tmp", "redis")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "socket")
	cmd := exec.Command(bin, "--port", "0", "--unixsocket", socket, "--save", "", "--dir", dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for range 1000 {
		if c, err := net.Dial("unix", socket); err == nil {
			c.Close()
			return socket
		}
		<-tick.C
	}
	t.Fatal("redis-server does not answer")
	return ""
}

// client speaks as much RESP2 as the tests need: it has one connection, and one command at a time.
type client struct {
	mu sync.Mutex
	c  net.Conn
	r  *bufio.Reader
}

func dial(socket string) (*client, error) {
	c, err := net.Dial("unix", socket)
	if err != nil {
		return nil, err
	}
	return &client{c: c, r: bufio.NewReader(c)}, nil
}

func (c *client) do(ctx context.Context, args ...any) (any, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		text := fmt.Sprint(a)
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(text), text)
	}
	if _, err := io.WriteString(c.c, b.String()); err != nil {
		return nil, err
	}
	return c.reply()
}

func (c *client) reply() (any, error) {
	line, err := c.r.ReadString('\n')
	if err != nil {
		return nil, err
	}
	kind, line := line[0], strings.TrimSuffix(line[1:], "\r\n")
	n, _ := strconv.Atoi(line)
	switch kind {
	case '+':
		return line, nil
	case '-':
		return nil, errors.New(line)
	case ':':
		return int64(n), nil
	case '$':
		if n < 0 {
			return nil, nil
		}
		text := make([]byte, n+2)
		_, err := io.ReadFull(c.r, text)
		return string(text[:n]), err
	case '*':
		all := make([]any, max(n, 0))
		for i := range all {
			if all[i], err = c.reply(); err != nil {
				return nil, err
			}
		}
		return all, nil
	}
	return nil, fmt.Errorf("reply %c%s", kind, line)
}
