package lab

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// child is a server of our own program in a process of its own.
type child struct {
	cmd  *exec.Cmd
	url  string
	gone chan struct{} // closed when the process has ended

	mu   sync.Mutex
	said []string // the last lines on its standard error
	err  error    // how it ended
}

// binary is the program that children run.
func binary(given string) (string, error) {
	if given != "" {
		return given, nil
	}
	return os.Executable()
}

// launch starts the program without waiting for it. It is killed when ctx ends.
func launch(ctx context.Context, program string, env []string, args ...string) (*child, chan string, error) {
	c := &child{cmd: exec.CommandContext(ctx, program, args...), gone: make(chan struct{})}
	c.cmd.Env = append(os.Environ(), env...)
	r, w, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	c.cmd.Stderr = w
	err = c.cmd.Start()
	w.Close()
	if err != nil {
		r.Close()
		return nil, nil, err
	}
	listens := make(chan string, 1)
	go func() {
		c.listen(r, listens)
		r.Close()
		err := c.cmd.Wait()
		c.mu.Lock()
		c.err = err
		c.mu.Unlock()
		close(c.gone)
	}()
	return c, listens, nil
}

// start starts the program and waits until it says where it listens.
func start(ctx context.Context, program string, env []string, args ...string) (*child, error) {
	c, listens, err := launch(ctx, program, env, args...)
	if err != nil {
		return nil, err
	}
	select {
	case c.url = <-listens:
		return c, nil
	case <-c.gone:
		return nil, c.failure()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (c *child) listen(r io.Reader, listens chan<- string) {
	const keep = 40
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if _, after, ok := strings.Cut(line, "listens on "); ok {
			select {
			case listens <- strings.TrimRight(strings.Fields(after)[0], ","):
			default:
			}
		}
		c.mu.Lock()
		c.said = append(c.said, line)
		if len(c.said) > keep {
			c.said = slices.Delete(c.said, 0, 1)
		}
		c.mu.Unlock()
	}
}

// failure is how a child ended that should not have, in its own words.
func (c *child) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Errorf("lab: the server ended by itself (%w):\n%s", cmp.Or(c.err, errors.New("exit status 0")), strings.Join(c.said, "\n"))
}

func (c *child) alive() bool {
	select {
	case <-c.gone:
		return false
	default:
		return true
	}
}

// kill ends it as a power cut would, but for the disk.
func (c *child) kill() {
	c.cmd.Process.Signal(syscall.SIGKILL)
	<-c.gone
}

// stop asks it to end in order and says whether it did.
func (c *child) stop() error {
	const patience = time.Minute
	c.cmd.Process.Signal(syscall.SIGTERM)
	late := time.AfterFunc(patience, func() { c.cmd.Process.Kill() })
	defer late.Stop()
	<-c.gone
	if c.err != nil {
		return c.failure()
	}
	return nil
}

// freeAddress is one on this machine that nobody listens on, so that a restarted server can be found again.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// wait waits, or says that ctx has ended.
func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
