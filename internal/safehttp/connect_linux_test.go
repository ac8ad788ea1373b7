package safehttp_test

import (
	"context"
	"fmt"
	"net"
	"syscall"
	"testing"
	"time"

	"belfry/internal/safehttp"
)

// full listens with a queue that is taken, so that the kernel leaves further connects waiting.
func full(t *testing.T) (addr string) {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	addr = fmt.Sprintf("127.0.0.1:%d", name.(*syscall.SockaddrInet4).Port)
	for range 8 {
		c, err := net.DialTimeout("tcp", addr, 100*time.Millisecond)
		if err != nil {
			return addr
		}
		t.Cleanup(func() { c.Close() })
	}
	t.Skip("this kernel accepts connections beyond the queue")
	return ""
}

func TestConnectThatTimesOutIsNotSent(t *testing.T) {
	addr := full(t)
	for name, c := range map[string]struct {
		ctx    context.Context
		option func(*safehttp.Options)
	}{
		"ConnectTimeout":       {t.Context(), func(o *safehttp.Options) { o.ConnectTimeout = 100 * time.Millisecond }},
		"Timeout":              {t.Context(), func(o *safehttp.Options) { o.Timeout = 100 * time.Millisecond }},
		"deadline of the call": {short(t), nil},
	} {
		for _, scheme := range []string{"http://", "https://"} {
			_, err := everything(t, c.option).Do(post(t, c.ctx, scheme+addr, nil))
			expect(t, name, err, safehttp.TimedOut, true)
		}
	}
}
