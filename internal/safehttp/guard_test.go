package safehttp_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"belfry/internal/safehttp"
)

func dialled(o safehttp.Options, addr string) error {
	at := netip.AddrPortFrom(netip.MustParseAddr(addr), 443)
	network := "tcp6"
	if at.Addr().Is4() {
		network = "tcp4"
	}
	return safehttp.NewDialer(o).ControlContext(context.Background(), network, at.String(), nil)
}

var private = []string{
	"127.0.0.1", "127.8.9.10", "::1", "10.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.1.1", "fd00::1", "fc00::1",
	"100.64.0.1", "100.127.255.255", "0.0.0.0", "0.1.2.3", "::", "192.0.0.8", "192.0.2.1", "198.18.0.1", "198.19.255.255",
	"198.51.100.1", "203.0.113.5", "192.88.99.1", "240.0.0.1", "255.255.255.255",
	"fec0::1", "2001:db8::1", "3fff::1", "100::1", "2001:2::1", "2001:20::1", "5f00::1", "4000::1", "e000::1", "1000::1", "200::1",
	"::ffff:10.0.0.1", "::ffff:127.0.0.1", "64:ff9b::10.0.0.1", "64:ff9b::8.8.8.8",
}

var never = []string{
	"169.254.169.254", "169.254.0.1", "169.254.170.2", "100.100.100.200", "168.63.129.16", "192.0.0.192",
	"fd00:ec2::254", "fd20:ce::254", "fe80::1", "fe80::a9fe:a9fe", "::ffff:169.254.169.254",
	"64:ff9b::a9fe:a9fe", "64:ff9b:1::a9fe:a9fe", "2002:a9fe:a9fe::1", "2001:0:a9fe:a9fe::1", "::a9fe:a9fe",
	"224.0.0.1", "239.255.255.250", "ff02::1", "fe80::1%eth0", "2606:4700::1111%eth0",
}

var public = []string{"8.8.8.8", "1.1.1.1", "172.15.255.255", "172.32.0.1", "100.63.255.255", "100.128.0.1", "198.17.255.255", "223.255.255.255", "2606:4700::1111", "2a00:1450:4001::1", "2001:4860:4860::8888", "::ffff:8.8.8.8"}

func TestOnlyPublicAddressesAreDialled(t *testing.T) {
	for _, a := range append(append([]string{}, private...), never...) {
		if err := dialled(safehttp.Options{}, a); !errors.Is(err, safehttp.ErrRefused) {
			t.Errorf("%s: %v", a, err)
		}
	}
	for _, a := range public {
		if err := dialled(safehttp.Options{}, a); err != nil {
			t.Error(err)
		}
	}
}

func TestWhatIsNeverContactedStaysClosedWhateverIsAllowed(t *testing.T) {
	all := []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	for _, o := range []safehttp.Options{{AllowAll: true}, {AllowPrivate: all}} {
		for _, a := range never {
			if err := dialled(o, a); !errors.Is(err, safehttp.ErrRefused) {
				t.Errorf("%s with %+v: %v", a, o, err)
			}
		}
		for _, a := range append(append([]string{}, private...), public...) {
			if err := dialled(o, a); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestAllowPrivateOpensOnlyItsRanges(t *testing.T) {
	o := safehttp.Options{AllowPrivate: []netip.Prefix{
		netip.MustParsePrefix("10.0.5.0/24"), netip.MustParsePrefix("fd12::/16"), netip.MustParsePrefix("::ffff:192.168.7.0/120"), {},
	}}
	for a, want := range map[string]bool{
		"10.0.5.1": true, "::ffff:10.0.5.1": true, "10.0.6.1": false, "fd12::1": true, "fd13::1": false,
		"192.168.7.9": true, "192.168.8.9": false, "127.0.0.1": false, "8.8.8.8": true,
	} {
		if err := dialled(o, a); (err == nil) != want {
			t.Errorf("%s: %v", a, err)
		}
	}
}

func TestOpeningNAT64DoesNotOpenWhatLiesBehind(t *testing.T) {
	o := safehttp.Options{AllowPrivate: []netip.Prefix{netip.MustParsePrefix("64:ff9b::/96")}}
	for a, want := range map[string]bool{"64:ff9b::8.8.8.8": true, "64:ff9b::10.0.0.1": false, "64:ff9b::127.0.0.1": false, "64:ff9b::169.254.169.254": false} {
		if err := dialled(o, a); (err == nil) != want {
			t.Errorf("%s: %v", a, err)
		}
	}
}

func TestOnlyTCPIsDialled(t *testing.T) {
	for _, network := range []string{"udp", "unix"} {
		c, err := safehttp.NewDialer(safehttp.Options{AllowAll: true}).Dial(network, map[string]string{"udp": "127.0.0.1:53", "unix": "/nowhere.sock"}[network])
		if !errors.Is(err, safehttp.ErrRefused) {
			t.Errorf("%s: %v %v", network, c, err)
		}
	}
}

func TestNameThatTurnsPrivateIsRefusedWhenDialled(t *testing.T) {
	reached := false
	srv := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }))
	defer srv.Close()
	port := srv.URL[strings.LastIndexByte(srv.URL, ':'):]
	o := safehttp.Options{Resolver: names(t, netip.MustParseAddr("127.0.0.1"))}
	if _, err := safehttp.CheckURL("https://rebind.example.com"+port, o); err != nil {
		t.Fatal(err)
	}
	_, err := safehttp.New(o).Do(post(t, t.Context(), "https://rebind.example.com"+port, nil))
	if !errors.Is(err, safehttp.ErrRefused) || !safehttp.Classify(err) || reached {
		t.Errorf("reached %t: %v", reached, err)
	}
	leaksNothing(t, err)
}

func TestPlainHTTPGoesOnlyToOpenedRanges(t *testing.T) {
	loopback := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	srv := httptest.NewServer(http.NotFoundHandler())
	defer srv.Close()
	port := srv.URL[strings.LastIndexByte(srv.URL, ':'):]

	o := safehttp.Options{AllowPrivate: loopback, Resolver: names(t, netip.MustParseAddr("127.0.0.1"))}
	c := safehttp.New(o)
	defer c.CloseIdleConnections()
	resp, err := c.Do(post(t, t.Context(), "http://receiver.example.com"+port, nil))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := safehttp.ReadBody(resp); err != nil {
		t.Error(err)
	}

	o.Resolver = names(t, netip.MustParseAddr("8.8.8.8"))
	if _, err := safehttp.New(o).Do(post(t, t.Context(), "http://receiver.example.com"+port, nil)); !errors.Is(err, safehttp.ErrRefused) {
		t.Errorf("http to a public address: %v", err)
	}
	if _, err := safehttp.New(safehttp.Options{}).Do(post(t, t.Context(), srv.URL, nil)); !errors.Is(err, safehttp.ErrRefused) {
		t.Errorf("http with nothing opened: %v", err)
	}
}
