package safehttp

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// maxRetryAfter keeps a provider's slip of a few zeroes from silencing a channel for good.
const maxRetryAfter = 24 * time.Hour

// ParseRetryAfter reads Retry-After as seconds or as an HTTP date relative to now (RFC 9110 §10.2.3), clamped to
// [0, 24 h]. It reports false when the header is absent or neither.
func ParseRetryAfter(h http.Header, now time.Time) (time.Duration, bool) {
	v := strings.TrimSpace(h.Get("Retry-After"))
	if v == "" {
		return 0, false
	}
	var d time.Duration
	if strings.Trim(v, "0123456789") == "" {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil || n > int64(maxRetryAfter/time.Second) {
			return maxRetryAfter, true
		}
		d = time.Duration(n) * time.Second
	} else {
		t, err := http.ParseTime(v)
		if err != nil {
			return 0, false
		}
		d = t.Sub(now)
	}
	return min(max(d, 0), maxRetryAfter), true
}
