package safehttp_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"belfry/internal/safehttp"
)

// token stands in every URL and body the tests send, and may stand in no error.
const token = "s3cr3t-t0ken"

// everything makes a client that may reach the test's servers.
func everything(t testing.TB, change func(*safehttp.Options)) *safehttp.Client {
	o := safehttp.Options{AllowAll: true}
	if change != nil {
		change(&o)
	}
	c := safehttp.New(o)
	t.Cleanup(c.CloseIdleConnections)
	return c
}

func post(t testing.TB, ctx context.Context, url string, body io.Reader) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, "POST", url+"/"+token+"?key="+token, body)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// listen runs serve for every connection until the test ends.
func listen(t testing.TB, serve func(net.Conn)) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				serve(c)
			}()
		}
	}()
	return ln
}

// receive reads one request whole, so that the server could act on it.
func receive(c net.Conn) (*http.Request, []byte) {
	req, err := http.ReadRequest(bufio.NewReader(c))
	if err != nil {
		return nil, nil
	}
	b, _ := io.ReadAll(req.Body)
	return req, b
}

// names resolves every name to ip, or to nothing when ip is the zero Addr.
func names(t testing.TB, ip netip.Addr) *net.Resolver {
	t.Helper()
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pc.Close() })
	go func() {
		buf := make([]byte, 1500)
		for {
			n, from, err := pc.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = pc.WriteTo(dnsAnswer(buf[:n], ip), from)
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", pc.LocalAddr().String())
	}}
}

// dnsAnswer is RFC 1035 §4.1 at its barest.
func dnsAnswer(query []byte, ip netip.Addr) []byte {
	end := 12
	for query[end] != 0 {
		end += int(query[end]) + 1
	}
	end += 5 // root label, type, class
	kind := binary.BigEndian.Uint16(query[end-4:])
	out := append([]byte{}, query[:end]...)
	copy(out[2:], []byte{0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0})
	switch {
	case !ip.IsValid():
		out[3] |= 3 // no such name
	case kind == 1 && ip.Is4() || kind == 28 && ip.Is6():
		out[7] = 1
		out = append(out, 0xc0, 12, byte(kind>>8), byte(kind), 0, 1, 0, 0, 0, 0, 0, byte(len(ip.AsSlice())))
		out = append(out, ip.AsSlice()...)
	}
	return out
}

func short(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

func leaksNothing(t testing.TB, err error) {
	t.Helper()
	if err != nil && strings.Contains(err.Error(), token) {
		t.Errorf("the error holds the token: %v", err)
	}
}
