// Package access says who is calling: it makes the API keys of projects, reads them from requests, and
// tells what each may do. It decides nothing about what is called; that is api's.
//
// A key is "bf_", its id, "_" and its secret. Only the SHA-256 of the secret is stored: the secret has 200
// random bits, which nobody finds by trying, so a slow hash would only slow us down. Whatever is wrong with
// a key, the caller hears the same and the same work was done.
package access

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"belfry"
	"belfry/store"
)

// Scope is something that a key allows.
type Scope string

const (
	Send  Scope = "send"  // enqueue, cancel; recipients with their endpoints and preferences
	Read  Scope = "read"  // look at all of that
	Admin Scope = "admin" // everything in the project, keys and policy included
)

// Scopes lists the scopes.
var Scopes = []Scope{Send, Read, Admin}

// EveryProject is the project of an operator's key: it is admin of every project, and of projects. No
// project can have this name.
const EveryProject = "*"

const (
	prefix    = "bf_"
	idLen     = 16 // characters: 80 bits
	secretLen = 40 // characters: 200 bits
)

var encoding = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

// New draws a key from random, or from [crypto/rand.Reader] when random is nil. text is what its owner
// keeps and we do not; id and hash are stored.
func New(random io.Reader) (text, id string, hash [32]byte, err error) {
	if random == nil {
		random = rand.Reader
	}
	var raw [(idLen + secretLen) / 8 * 5]byte
	if _, err := io.ReadFull(random, raw[:]); err != nil {
		return "", "", hash, fmt.Errorf("access: draw a key: %w", err)
	}
	all := encoding.EncodeToString(raw[:])
	id, secret := all[:idLen], all[idLen:]
	return prefix + id + "_" + secret, id, sha256.Sum256([]byte(secret)), nil
}

// Parse splits the text of a key. It says nothing about whether the key is good.
func Parse(text string) (id string, secret belfry.Secret, ok bool) {
	rest, ok := strings.CutPrefix(text, prefix)
	if !ok || len(rest) != idLen+1+secretLen || rest[idLen] != '_' {
		return "", "", false
	}
	for i := range len(rest) {
		if c := rest[i]; i != idLen && (c < '0' || c > '9') && (c < 'a' || c > 'z') {
			return "", "", false
		}
	}
	return rest[:idLen], belfry.Secret(rest[idLen+1:]), true
}

// Verify says whether the secret is that of the key and the key has not been revoked. A key whose RevokedAt
// lies ahead is good until then. It takes the same time whatever the answer; give the zero key for a key
// that does not exist.
func Verify(secret belfry.Secret, k store.AccessKey, now time.Time) bool {
	hash := sha256.Sum256([]byte(secret.Reveal()))
	same := subtle.ConstantTimeCompare(hash[:], k.Hash[:]) == 1
	good := k.RevokedAt.IsZero() || now.Before(k.RevokedAt)
	return same && good && k.ID != ""
}

// CheckScopes refuses a list of scopes that is empty, repeats one or holds an unknown one.
func CheckScopes(field string, scopes []string) error {
	if len(scopes) == 0 {
		return belfry.Invalid(field, "want at least one of: send read admin")
	}
	for i, s := range scopes {
		if !slices.Contains(Scopes, Scope(s)) || slices.Contains(scopes[:i], s) {
			return belfry.Invalid(field, "want some of, each once: send read admin")
		}
	}
	return nil
}

// Principal is who is calling.
type Principal struct {
	Project  string // whose notifications it may touch
	KeyID    string // "" for a trusted local caller
	Operator bool   // may do everything in every project, and create projects
	scopes   uint8
}

// May says whether the principal has the scope; admin has them all.
func (p Principal) May(s Scope) bool {
	return p.Operator || p.scopes&(bit(s)|bit(Admin)) != 0
}

func bit(s Scope) uint8 { return 1 << (slices.Index(Scopes, s) + 1) }
