package api

import (
	"net/http"
	"strings"
	"testing"
)

func FuzzIdempotencyKey(f *testing.F) {
	for _, text := range []string{`abc`, `"abc"`, `"a \"b\" \\"`, `"abc";p=1`, `""`, `"`, `\`, "a\x00b", "é", strings.Repeat("k", 256)} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		key, err := headerKey(http.Header{"Idempotency-Key": {text}})
		if err != nil {
			return
		}
		if len(key) == 0 || len(key) > maxKey || strings.Trim(key, " ") == "" {
			t.Fatalf("%q is read as %q", text, key)
		}
		for _, c := range []byte(key) {
			if c < ' ' || c > '~' {
				t.Fatalf("%q is read as %q", text, key)
			}
		}
		if again, err := headerKey(http.Header{"Idempotency-Key": {quoteKey(key)}}); err != nil || again != key {
			t.Fatalf("%q is read as %q, which is written %q and read as %q: %v", text, key, quoteKey(key), again, err)
		}
	})
}
