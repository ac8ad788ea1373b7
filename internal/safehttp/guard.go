package safehttp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"
)

// ErrRefused is in every error that means: this address or URL is not contacted. The request was not sent.
var ErrRefused = errors.New("refused by the outbound guard")

// guard decides which addresses may be contacted. The zero guard allows public ones.
type guard struct {
	all  bool
	open []netip.Prefix
}

func newGuard(o Options) guard {
	g := guard{all: o.AllowAll}
	for _, p := range o.AllowPrivate {
		if a := p.Addr(); a.Is4In6() && p.Bits() >= 96 {
			p = netip.PrefixFrom(a.Unmap(), p.Bits()-96)
		}
		g.open = append(g.open, p)
	}
	return g
}

// NewDialer returns a dialer that refuses what o does not allow, for protocols other than HTTP. It obeys AllowAll,
// AllowPrivate, ConnectTimeout and Resolver. Only TCP is dialled.
func NewDialer(o Options) *net.Dialer {
	return &net.Dialer{
		Timeout:        cmp.Or(o.ConnectTimeout, 10*time.Second),
		Resolver:       o.Resolver,
		ControlContext: newGuard(o).control,
	}
}

type plainKey struct{}

// control sees the very address that is about to be connected to.
func (g guard) control(ctx context.Context, network, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil || network != "tcp4" && network != "tcp6" {
		return fmt.Errorf("%w: only TCP to an IP address is dialled, not %s", ErrRefused, network)
	}
	if err := g.check(at.Addr()); err != nil {
		return err
	}
	if ctx.Value(plainKey{}) != nil && !g.opened(at.Addr().Unmap()) {
		return fmt.Errorf("%w: http to the public address %s; use https", ErrRefused, at.Addr())
	}
	return nil
}

// check returns nil when a may be contacted, else an ErrRefused that says why not.
func (g guard) check(a netip.Addr) error {
	if a.Zone() != "" {
		return fmt.Errorf("%w: address %s has a zone", ErrRefused, a)
	}
	a = a.Unmap() // ::ffff:10.0.0.1 reaches 10.0.0.1
	r := find(a)
	if r == nil {
		return nil
	}
	if r.never {
		return fmt.Errorf("%w: address %s (%s) is never contacted", ErrRefused, a, r.what)
	}
	if !g.opened(a) {
		return fmt.Errorf("%w: address %s (%s) is not public; allow its range to contact it", ErrRefused, a, r.what)
	}
	if r.nat64 {
		// Opening a translator must not open what lies behind it.
		b := a.As16()
		return g.check(netip.AddrFrom4([4]byte(b[12:])))
	}
	return nil
}

func (g guard) opened(a netip.Addr) bool {
	return g.all || slices.ContainsFunc(g.open, func(p netip.Prefix) bool { return p.Contains(a) })
}

// closed is a range that is not the public internet.
type closed struct {
	netip.Prefix
	what  string
	never bool // not even when allowed
	nat64 bool // the last 32 bits are the IPv4 address that is reached
}

func find(a netip.Addr) *closed {
	for i := range closedRanges {
		if closedRanges[i].Contains(a) {
			return &closedRanges[i]
		}
	}
	if a.Is6() && !globalUnicast.Contains(a) {
		return &unassigned
	}
	return nil
}

// Everything outside globalUnicast is closed too, so a range that is assigned tomorrow is closed today.
var (
	globalUnicast = netip.MustParsePrefix("2000::/3")
	unassigned    = closed{what: "reserved"}
)

// closedRanges follows the IANA special-purpose address registries (RFC 6890 and its updates), the narrower range
// before the wider one. The methods of netip.Addr know less than half of it.
var closedRanges = func() (rs []closed) {
	add := func(what string, never, nat64 bool, prefixes ...string) {
		for _, p := range prefixes {
			rs = append(rs, closed{netip.MustParsePrefix(p), what, never, nat64})
		}
	}
	const never, nat64 = true, true

	add("cloud metadata", never, false,
		"169.254.169.254/32", "169.254.170.2/32", "100.100.100.200/32", "168.63.129.16/32", "192.0.0.192/32",
		"fd00:ec2::/32", "fd20:ce::254/128")
	add("link-local", never, false, "169.254.0.0/16", "fe80::/10")
	add("multicast", never, false, "224.0.0.0/4", "ff00::/8")
	add("tunnel to an IPv4 address", never, false, "2002::/16" /* 6to4 */, "2001::/32" /* Teredo */)
	add("NAT64", false, nat64, "64:ff9b::/96")
	add("NAT64", never, false, "64:ff9b:1::/48") // where the IPv4 address stands is the network's own choice

	add("loopback", false, false, "127.0.0.0/8", "::1/128")
	add("this host", false, false, "0.0.0.0/8", "::/128")
	add("IPv4-compatible", never, false, "::/96")
	add("private", false, false, "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7")
	add("site-local", false, false, "fec0::/10")
	add("carrier-grade NAT", false, false, "100.64.0.0/10")
	add("protocol assignments", false, false, "192.0.0.0/24", "2001::/23", "192.88.99.0/24", "5f00::/16")
	add("documentation", false, false, "192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32", "3fff::/20")
	add("benchmarking", false, false, "198.18.0.0/15")
	add("discard", false, false, "100::/64")
	add("reserved", false, false, "240.0.0.0/4")
	return rs
}()
