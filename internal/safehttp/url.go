package safehttp

import (
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

const maxURL = 2048

// CheckURL parses raw and refuses what [Client.Do] would not contact, for use when a URL is saved: anything but https,
// user names, fragments, addresses that are not public, spellings of addresses that resolvers read in their own way,
// and names that only mean something inside a network. A name is not looked up: that is judged when it is dialled.
//
// http is accepted with AllowAll, and with AllowPrivate for hosts inside those ranges. Every error is [ErrRefused] and
// shows no more of raw than its host.
func CheckURL(raw string, o Options) (*url.URL, error) {
	if len(raw) > maxURL {
		return nil, fmt.Errorf("%w: url has %d bytes; at most %d are accepted", ErrRefused, len(raw), maxURL)
	}
	u, err := url.Parse(raw)
	if err != nil { // its text would quote raw
		return nil, fmt.Errorf("%w: url cannot be parsed; give https://host/path", ErrRefused)
	}
	if strings.Contains(raw, "#") {
		return nil, fmt.Errorf("%w: url has a fragment; remove '#' and what follows", ErrRefused)
	}
	if err := newGuard(o).url(u); err != nil {
		return nil, err
	}
	return u, nil
}

func (g guard) url(u *url.URL) error {
	plain := u.Scheme == "http"
	switch {
	case u.Scheme != "https" && !plain:
		return fmt.Errorf("%w: url is not https", ErrRefused)
	case plain && !g.all && len(g.open) == 0:
		return fmt.Errorf("%w: url is http; use https", ErrRefused)
	case u.User != nil:
		return fmt.Errorf("%w: url has a user name; put credentials elsewhere", ErrRefused)
	case u.Opaque != "" || u.Hostname() == "":
		return fmt.Errorf("%w: url has no host", ErrRefused)
	}
	if p := u.Port(); p != "" {
		if n, err := strconv.ParseUint(p, 10, 16); err != nil || n == 0 {
			return fmt.Errorf("%w: url has a port outside 1 to 65535", ErrRefused)
		}
	}
	host := u.Hostname()
	if a, err := netip.ParseAddr(host); err == nil {
		if err := g.check(a); err != nil {
			return err
		}
		if plain && !g.opened(a.Unmap()) {
			return fmt.Errorf("%w: http to the public address %s; use https", ErrRefused, a)
		}
		return nil
	}
	return g.name(strings.ToLower(host))
}

// name judges a lower case host that is no IP address as netip reads them.
func (g guard) name(host string) error {
	refuse := func(why string) error { return fmt.Errorf("%w: host %.80q %s", ErrRefused, host, why) }
	if len(host) > 253 {
		return refuse("is longer than 253 bytes")
	}
	labels := strings.Split(host, ".")
	for _, l := range labels {
		if l == "" || len(l) > 63 {
			return refuse("has an empty or overlong label; write it without a final dot")
		}
		for i := range len(l) {
			if c := l[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
				return refuse("is not plain ASCII; write an international name in its xn-- form")
			}
		}
	}
	last := labels[len(labels)-1]
	// Some resolvers read 127.1, 0177.0.0.1, 0x7f.1 and 2130706433 as addresses. No top-level domain is a number.
	if strings.Trim(last, "0123456789") == "" || strings.HasPrefix(last, "0x") {
		return refuse("looks like a number; write an address as four decimals")
	}
	if g.all {
		return nil
	}
	if len(labels) == 1 || last == "localhost" || last == "internal" {
		return refuse("is a name inside a network")
	}
	return nil
}

// ownHeaders are set by us, by net/http or by nobody (RFC 9110 §7.6.1). Names that begin with "Webhook-" or "Proxy-"
// are refused besides.
var ownHeaders = []string{
	"Accept-Encoding", "Authorization", "Connection", "Content-Encoding", "Content-Length", "Content-Type", "Expect",
	"Host", "Http2-Settings", "Idempotency-Key", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
	"X-Idempotency-Key",
}

// CheckHeader refuses a header that a customer may not add to requests of ours: a name that is no token (RFC 9110
// §5.6.2) or belongs to us or to the connection, a value that is not printable ASCII on one line, or either too long
// (64 and 1,024 bytes). Errors show the name, never the value.
func CheckHeader(name, value string) error {
	if len(name) == 0 || len(name) > 64 || !isToken(name) {
		return fmt.Errorf("%w: header name %.80q is not a token of at most 64 letters, digits and dashes", ErrRefused, name)
	}
	canonical := http.CanonicalHeaderKey(name)
	if slices.Contains(ownHeaders, canonical) || strings.HasPrefix(canonical, "Webhook-") || strings.HasPrefix(canonical, "Proxy-") {
		return fmt.Errorf("%w: header %s is set by the sender; choose another name", ErrRefused, canonical)
	}
	if len(value) > 1024 || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }) {
		return fmt.Errorf("%w: value of header %s is not one line of at most 1024 printable ASCII characters", ErrRefused, canonical)
	}
	return nil
}

func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		if c <= ' ' || c > '~' || strings.IndexByte(`"(),/:;<=>?@[\]{}`, c) >= 0 {
			return false
		}
	}
	return true
}
