package api

import (
	"crypto/sha256"
	"net/http"
	"strings"

	"belfry"
	"belfry/internal/strictjson"
)

const maxKey = 255

func badKey(field, detail string) error {
	return &belfry.Error{Code: belfry.CodeKeyInvalid, Field: field, Detail: detail}
}

const keyWanted = "want 1 to 255 printable ASCII characters that are not all spaces"

// headerKey reads the header Idempotency-Key: the string of draft-ietf-httpapi-idempotency-key-header
// (RFC 9651 §3.3.3), or the same text without quotes where that leaves no doubt. "" when there is none.
func headerKey(h http.Header) (string, error) {
	values, given := h["Idempotency-Key"]
	if !given {
		return "", nil
	}
	const field = "Idempotency-Key"
	if len(values) != 1 {
		return "", badKey(field, "the header occurs more than once")
	}
	text := values[0]
	key, quoted := strings.CutPrefix(text, `"`)
	if !quoted {
		// A comma is two headers that something joined, a semicolon a parameter.
		if strings.ContainsAny(text, `",;\ `) {
			return "", badKey(field, "put a key with quotes, commas, semicolons, backslashes or spaces into double quotes")
		}
		return text, checkKey(field, text)
	}
	var b strings.Builder
	for i := 0; i < len(key); i++ {
		switch c := key[i]; c {
		case '"':
			if i+1 != len(key) {
				return "", badKey(field, "nothing may follow the key: it has no parameters")
			}
			return b.String(), checkKey(field, b.String())
		case '\\':
			i++
			if i == len(key) || key[i] != '"' && key[i] != '\\' {
				return "", badKey(field, `only \" and \\ are escapes`)
			}
			b.WriteByte(key[i])
		default:
			b.WriteByte(c)
		}
	}
	return "", badKey(field, "the closing quote is missing")
}

func checkKey(field, key string) error {
	if len(key) == 0 || len(key) > maxKey || strings.Trim(key, " ") == "" {
		return badKey(field, keyWanted)
	}
	for i := range len(key) {
		if key[i] < ' ' || key[i] > '~' {
			return badKey(field, keyWanted)
		}
	}
	return nil
}

// bodyKey reads the member key of a request for a notification.
func bodyKey(v strictjson.Value) (string, error) {
	member, given := v.Member("key")
	if !given {
		return "", nil
	}
	if member.Kind() != strictjson.String {
		return "", badKey("key", keyWanted)
	}
	key := member.Text()
	return key, checkKey("key", key)
}

// quoteKey writes a key as the header has it.
func quoteKey(key string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`
}

// fingerprint tells requests apart that come with the same key; the key itself is no part of it.
func fingerprint(v strictjson.Value) [32]byte {
	return sha256.Sum256(v.Canonical(make([]byte, 0, 512), "key"))
}
