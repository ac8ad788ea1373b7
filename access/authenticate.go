package access

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"belfry"
	"belfry/store"
)

// CodeUnauthorized is the code of every error about who is calling.
const CodeUnauthorized belfry.Code = "unauthorized"

// CodeForbidden says that the caller is known and may not do this.
const CodeForbidden belfry.Code = "forbidden"

// HeaderProject names the project an operator's request is about; absent: default.
const HeaderProject = "Belfry-Project"

const defaultProject = "default"

// One text for all that can be wrong, so that nobody learns which ids exist.
var errUnauthorized = belfry.Errorf(CodeUnauthorized, "no valid key: send Authorization: Bearer bf_<id>_<secret>")

// KeyStore is where keys are looked up. An error with belfry.CodeNotFound means that there is none.
type KeyStore interface {
	Key(ctx context.Context, id string) (store.AccessKey, error)
}

// Keys authenticates by API key. It remembers a key for up to a second, so that a busy client costs no read
// of the store per request; a key revoked elsewhere works that much longer, one revoked in this process not
// at all when [Keys.Forget] is called. Safe for concurrent use.
type Keys struct {
	store KeyStore
	life  time.Duration
	now   func() time.Time

	mu    sync.RWMutex
	known map[string]known
	turn  int // counts what was forgotten, so that a read begun before it is not remembered
}

type known struct {
	key   store.AccessKey // zero: there is none
	until time.Time
}

const (
	cacheLife = time.Second
	cacheSize = 4096
)

// NewKeys makes an authenticator over a store.
func NewKeys(s KeyStore) *Keys {
	return &Keys{store: s, life: cacheLife, now: time.Now, known: map[string]known{}}
}

// Authenticate reads the Authorization header, RFC 6750 §2.1. Its error is a *belfry.Error with
// [CodeUnauthorized], the same whatever is wrong, or [CodeForbidden] for another key's project; or what the
// store said when it could not be asked.
func (k *Keys) Authenticate(r *http.Request) (Principal, error) {
	id, secret, ok := Parse(bearer(r.Header))
	now := k.now()
	var key store.AccessKey
	if ok {
		var err error
		if key, err = k.lookup(r.Context(), id, now); err != nil {
			return Principal{}, err
		}
	}
	if !Verify(secret, key, now) {
		return Principal{}, errUnauthorized
	}
	return principal(key, r.Header)
}

func bearer(h http.Header) string {
	values := h["Authorization"]
	if len(values) != 1 {
		return ""
	}
	scheme, text, _ := strings.Cut(values[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimLeft(text, " ")
}

func principal(k store.AccessKey, h http.Header) (Principal, error) {
	p := Principal{Project: k.Project, KeyID: k.ID}
	for _, s := range k.Scopes {
		p.scopes |= bit(Scope(s))
	}
	if k.Project == EveryProject {
		p.Operator = p.May(Admin)
		return p.in(h)
	}
	if asked := h[HeaderProject]; len(asked) > 0 && (len(asked) > 1 || asked[0] != k.Project) {
		return Principal{}, belfry.Errorf(CodeForbidden, "the key belongs to another project than %s says", HeaderProject)
	}
	return p, nil
}

// in picks the project of an operator's request.
func (p Principal) in(h http.Header) (Principal, error) {
	p.Project = defaultProject
	if asked := h[HeaderProject]; len(asked) > 0 {
		p.Project = asked[0]
		if err := belfry.CheckSlug(HeaderProject, p.Project); err != nil || len(asked) > 1 {
			return Principal{}, belfry.Invalid(HeaderProject, "want the name of one project")
		}
	}
	return p, nil
}

func (k *Keys) lookup(ctx context.Context, id string, now time.Time) (store.AccessKey, error) {
	k.mu.RLock()
	e, ok := k.known[id]
	turn := k.turn
	k.mu.RUnlock()
	if ok && now.Before(e.until) {
		return e.key, nil
	}
	key, err := k.store.Key(ctx, id)
	if belfry.CodeOf(err) == belfry.CodeNotFound {
		key, err = store.AccessKey{}, nil
	}
	if err != nil {
		return key, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if turn == k.turn {
		k.shrink(now)
		k.known[id] = known{key, now.Add(k.life)}
	}
	return key, nil
}

// shrink makes room: what has expired goes, else everything; a flood of invented ids costs reads, not memory.
func (k *Keys) shrink(now time.Time) {
	if len(k.known) < cacheSize {
		return
	}
	for id, e := range k.known {
		if !now.Before(e.until) {
			delete(k.known, id)
		}
	}
	if len(k.known) >= cacheSize {
		clear(k.known)
	}
}

// Forget makes the next request with this key read the store: call it when a key was revoked or made.
func (k *Keys) Forget(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.turn++
	delete(k.known, id)
}

// Local authenticates callers that need no key, because whoever reaches them is the owner: those of the
// socket in the data folder. A request that brings a key all the same is judged by it.
type Local struct{ *Keys }

// Authenticate is the operator for a request without a key.
func (l Local) Authenticate(r *http.Request) (Principal, error) {
	if _, given := r.Header["Authorization"]; given {
		return l.Keys.Authenticate(r)
	}
	return Principal{Operator: true}.in(r.Header)
}

// Loopback is [Local] for requests that come from this machine and were meant for it, for development. A web
// page that gets a browser to call it is refused: its Host or Origin is another's.
type Loopback struct{ *Keys }

// Authenticate is the operator for a request from this machine without a key.
func (l Loopback) Authenticate(r *http.Request) (Principal, error) {
	if fromHere(r) {
		return Local(l).Authenticate(r)
	}
	return l.Keys.Authenticate(r)
}

func fromHere(r *http.Request) bool {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !from.Addr().Unmap().IsLoopback() || !isLoopback(r.Host) {
		return false
	}
	for _, forwarded := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host"} {
		if _, proxied := r.Header[forwarded]; proxied {
			return false // a proxy on this machine speaks for others
		}
	}
	if origin := r.Header.Get("Origin"); origin != "" {
		_, host, _ := strings.Cut(origin, "://")
		return isLoopback(host)
	}
	return r.Header.Get("Sec-Fetch-Site") != "cross-site"
}

func isLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if strings.EqualFold(host, "localhost") {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.Unmap().IsLoopback()
}
