package safehttp_test

import (
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"belfry/internal/safehttp"
)

func TestCheckURL(t *testing.T) {
	lan := safehttp.Options{AllowPrivate: []netip.Prefix{netip.MustParsePrefix("10.0.5.0/24")}}
	dev := safehttp.Options{AllowAll: true}
	const no, onlyDev, lanDev, all = 0, 2, 3, 7 // a bit for each of the three options below
	for url, want := range map[string]int{
		"https://example.com":                              all,
		"https://example.com:8443/a/b?c=d":                 all,
		"HTTPS://Hooks.Example.COM/x":                      all,
		"https://my_host.example.com/x":                    all,
		"https://xn--mnchen-3ya.example/":                  all,
		"https://8.8.8.8/x":                                all,
		"https://[2606:4700::1111]/x":                      all,
		"https://attacker.example?.notify.windows.com/x":   all, // its host is attacker.example, and that is public
		"https://fcm.googleapis.com.evil.example/x":        all, // as is this one: a list of hosts is the caller's
		"https://" + strings.Repeat("a", 63) + ".example/": all,

		"http://example.com":   lanDev, // judged again when dialled
		"http://10.0.5.1:8080": lanDev,
		"https://10.0.5.1":     lanDev,
		"http://10.0.6.1":      onlyDev,
		"http://8.8.8.8/":      onlyDev,

		"http://localhost:8080/":                   onlyDev,
		"https://LOCALHOST/":                       onlyDev,
		"https://a.localhost/":                     onlyDev,
		"https://receiver/":                        onlyDev,
		"https://metadata.google.internal/":        onlyDev,
		"https://127.0.0.1":                        onlyDev,
		"https://[::1]":                            onlyDev,
		"https://[::ffff:127.0.0.1]/":              onlyDev,
		"https://100.64.0.1":                       onlyDev,
		"https://192.168.1.1":                      onlyDev,
		"http://169.254.169.254/latest/meta-data/": no,
		"https://[fd00:ec2::254]/":                 no,
		"https://[64:ff9b::a9fe:a9fe]/":            no,
		"https://[::ffff:169.254.169.254]/":        no,

		"":                                                  no,
		"example.com":                                       no,
		"//example.com/x":                                   no,
		"https:example.com":                                 no,
		"https://":                                          no,
		"https:///x":                                        no,
		"ftp://example.com":                                 no,
		"file:///etc/passwd":                                no,
		"gopher://127.0.0.1:25/_x":                          no,
		"javascript:alert(1)":                               no,
		"https://user@example.com/":                         no,
		"https://u:" + token + "@x.test":                    no,
		"https://fcm.googleapis.com@127.0.0.1/":             no,
		"https://127.0.0.1\\@fcm.googleapis.com/":           no,
		"https://attacker.example#.mozaws.net/push":         no,
		"https://example.com/#":                             no,
		"https://2130706433/":                               no,
		"https://0x7f.1/":                                   no,
		"https://0x7f000001/":                               no,
		"https://127.1/":                                    no,
		"https://127.0.0.0x1/":                              no,
		"https://0177.0.0.1/":                               no,
		"https://1.2.3.4.5/":                                no,
		"https://1.2.3.4./":                                 no,
		"https://LOCALHOST./":                               no,
		"https://example.com./":                             no,
		"https://example..com/":                             no,
		"https://.example.com/":                             no,
		"https://①②⑦.⓪.⓪.①/":                                no,
		"https://münchen.example/":                          no,
		"https://m%C3%BCnchen.example/":                     no,
		"https://[fe80::1%25eth0]/":                         no,
		"https://[2606:4700::1111%25eth0]/":                 no,
		"https://exam ple.com/":                             no,
		"https://example.com\r\n/":                          no,
		"https://exa*mple.com/":                             no,
		"https://example.com:0/":                            no,
		"https://example.com:65536/":                        no,
		"https://example.com:https/":                        no,
		"https://[::1/":                                     no,
		"https://" + strings.Repeat("a", 64) + ".example/":  no,
		"https://" + strings.Repeat("a.", 127) + "example/": no,
		"https://example.com/" + strings.Repeat("a", 2029):  no,
		"https://example.com/" + strings.Repeat("a", 2028):  all,
	} {
		for i, o := range []safehttp.Options{lan, dev, {}} {
			u, err := safehttp.CheckURL(url, o)
			accepted := want&(1<<i) != 0
			if (err == nil) != accepted || (u == nil) == accepted {
				t.Errorf("%.100q with option %d: %v", url, i, err)
			}
			if err != nil && !errors.Is(err, safehttp.ErrRefused) {
				t.Errorf("%.100q: %v", url, err)
			}
			leaksNothing(t, err)
		}
	}
}

// FuzzCheckURL: what is accepted reads the same a second time, and shows nothing of the path when refused.
func FuzzCheckURL(f *testing.F) {
	for _, s := range []string{"https://example.com/a?b#c", "https://[::ffff:1.2.3.4]:1/", "http://0x7f.1", "https://a@b.c", "https://①.example"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := safehttp.CheckURL(raw, safehttp.Options{})
		if err != nil {
			return
		}
		again, err := safehttp.CheckURL(u.String(), safehttp.Options{})
		if len(u.String()) <= 2048 && (err != nil || again.Host != u.Host) {
			t.Errorf("%q became %q: %v", raw, u, err)
		}
		if u.Scheme != "https" || u.User != nil || u.Fragment != "" || strings.ContainsAny(u.Hostname(), "%@#/\\ ") {
			t.Errorf("%q was accepted as %#v", raw, u)
		}
	})
}

func TestCheckHeader(t *testing.T) {
	for _, c := range []struct {
		name, value string
		ok          bool
	}{
		{"X-Tenant", "acme", true},
		{"x_odd!name", "", true},
		{"X-A", "with spaces, and \"quotes\"", true},
		{"", "v", false},
		{"X A", "v", false},
		{"X-A:", "v", false},
		{"X-A\r\nHost", "v", false},
		{"X-É", "v", false},
		{strings.Repeat("a", 65), "v", false},
		{"X-A", "a\r\nHost: b", false},
		{"X-A", "a\x00", false},
		{"X-A", "é", false},
		{"X-A", strings.Repeat("a", 1025), false},
		{"Host", "b", false},
		{"content-length", "0", false},
		{"TRANSFER-ENCODING", "chunked", false},
		{"Authorization", "Bearer x", false},
		{"Proxy-Authorization", "x", false},
		{"Connection", "close", false},
		{"Webhook-Signature", "v1,x", false},
		{"webhook-anything", "x", false},
		{"Idempotency-Key", "x", false},
		{"Expect", "100-continue", false},
	} {
		err := safehttp.CheckHeader(c.name, c.value)
		if (err == nil) != c.ok {
			t.Errorf("%q: %q: %v", c.name, c.value, err)
		}
	}
	leaksNothing(t, safehttp.CheckHeader("X-A", token+"\n"))
}

func TestParseRetryAfter(t *testing.T) {
	now := time.Date(2026, 10, 5, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		value string
		want  time.Duration
		ok    bool
	}{
		{"120", 2 * time.Minute, true},
		{" 120 ", 2 * time.Minute, true},
		{"0", 0, true},
		{"86400", 24 * time.Hour, true},
		{"86401", 24 * time.Hour, true},
		{"9223372036854775807", 24 * time.Hour, true},
		{"99999999999999999999999", 24 * time.Hour, true},
		{"Mon, 05 Oct 2026 12:00:30 GMT", 30 * time.Second, true},
		{"Monday, 05-Oct-26 12:00:30 GMT", 30 * time.Second, true},
		{"Mon Oct  5 12:00:30 2026", 30 * time.Second, true},
		{"Mon, 05 Oct 2026 11:00:00 GMT", 0, true},
		{"Tue, 05 Oct 2027 12:00:00 GMT", 24 * time.Hour, true},
		{"Fri, 31 Dec 9999 23:59:59 GMT", 24 * time.Hour, true},
		{"", 0, false},
		{"-1", 0, false},
		{"+1", 0, false},
		{"1.5", 0, false},
		{"1e3", 0, false},
		{"soon", 0, false},
		{"120, 60", 0, false},
		{"2026-10-05T12:00:30Z", 0, false},
	} {
		h := http.Header{}
		if c.value != "" {
			h.Set("Retry-After", c.value)
		}
		if got, ok := safehttp.ParseRetryAfter(h, now); got != c.want || ok != c.ok {
			t.Errorf("%q: %v %t, want %v %t", c.value, got, ok, c.want, c.ok)
		}
	}
}
