package access

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"belfry"
	"belfry/store"
)

// shelf is a key store that counts its reads.
type shelf struct {
	mu    sync.Mutex
	keys  map[string]store.AccessKey
	reads int
	err   error
	read  func() // called within a read
}

func (s *shelf) Key(_ context.Context, id string) (store.AccessKey, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	k, ok := s.keys[id]
	if s.read != nil {
		s.mu.Unlock()
		s.read()
		s.mu.Lock()
	}
	if s.err != nil {
		return k, s.err
	}
	if !ok {
		return k, belfry.Errorf(belfry.CodeNotFound, "no such key")
	}
	return k, nil
}

func (s *shelf) put(t *testing.T, project string, scopes ...string) (text, id string) {
	t.Helper()
	text, id, hash, err := New(nil)
	if err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keys == nil {
		s.keys = map[string]store.AccessKey{}
	}
	s.keys[id] = store.AccessKey{ID: id, Project: project, Scopes: scopes, Hash: hash}
	return text, id
}

func (s *shelf) change(id string, f func(*store.AccessKey)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.keys[id]
	f(&k)
	s.keys[id] = k
}

func TestAKeyIsReadAsItWasDrawn(t *testing.T) {
	text, id, hash, err := New(bytes.NewReader(bytes.Repeat([]byte{0xa5}, 64)))
	if err != nil {
		t.Fatal(err)
	}
	gotID, secret, ok := Parse(text)
	if !ok || gotID != id || sha256.Sum256([]byte(secret.Reveal())) != hash {
		t.Errorf("%q: %q, %v", text, gotID, ok)
	}
	if len(secret)*5 < 160 {
		t.Errorf("the secret has %d bits", len(secret)*5)
	}
	if other, _, _, _ := New(nil); other == text {
		t.Error("two keys are equal")
	}
	if _, _, _, err := New(strings.NewReader("short")); err == nil {
		t.Error("a key was drawn from too little randomness")
	}
}

func TestOtherTextIsNoKey(t *testing.T) {
	text, _, _, _ := New(nil)
	for _, bad := range []string{
		"", "bf_", "bf__", text + "0", text[:len(text)-1], strings.ToUpper(text), " " + text, text + " ", "xx" + text[2:],
		strings.Replace(text, "_", "-", 2), text[:20] + "é" + text[22:], "bf_" + strings.Repeat("0", 57), strings.Repeat("a", 1<<20),
	} {
		if _, _, ok := Parse(bad); ok {
			t.Errorf("%.80q passes for a key", bad)
		}
	}
}

func TestWhateverIsWrongTheAnswerIsTheSame(t *testing.T) {
	now := time.Date(2026, 12, 1, 9, 0, 0, 0, time.UTC)
	s := &shelf{}
	good, goodID := s.put(t, "shop", "send")
	revoked, revokedID := s.put(t, "shop", "send")
	s.change(revokedID, func(k *store.AccessKey) { k.RevokedAt = now })
	ending, endingID := s.put(t, "shop", "send")
	s.change(endingID, func(k *store.AccessKey) { k.RevokedAt = now.Add(time.Minute) })
	stranger, _, _, _ := New(nil)
	keys := NewKeys(s)
	keys.now = func() time.Time { return now }

	for _, c := range []struct {
		name   string
		header []string
		ok     bool
	}{
		{"good", []string{"Bearer " + good}, true},
		{"scheme in another case", []string{"bearer " + good}, true},
		{"revoked later", []string{"Bearer " + ending}, true},
		{"none", nil, false},
		{"empty", []string{""}, false},
		{"no scheme", []string{good}, false},
		{"another scheme", []string{"Basic " + good}, false},
		{"two", []string{"Bearer " + good, "Bearer " + good}, false},
		{"nonsense", []string{"Bearer nonsense"}, false},
		{"unknown", []string{"Bearer " + stranger}, false},
		{"revoked", []string{"Bearer " + revoked}, false},
		{"secret of another", []string{"Bearer bf_" + goodID + revoked[3+idLen:]}, false},
		{"id without its secret", []string{"Bearer bf_" + goodID + "_" + strings.Repeat("0", secretLen)}, false},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		if c.header != nil {
			r.Header["Authorization"] = c.header
		}
		p, err := keys.Authenticate(r)
		switch {
		case c.ok && (err != nil || p.Project != "shop" || !p.May(Send) || p.May(Read) || p.May(Admin) || p.Operator):
			t.Errorf("%s: %+v, %v", c.name, p, err)
		case !c.ok && err != error(errUnauthorized):
			t.Errorf("%s: %v", c.name, err)
		}
	}
	now = now.Add(time.Minute)
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("Authorization", "Bearer "+ending)
	if _, err := keys.Authenticate(r); err == nil {
		t.Error("a key works after its time")
	}
}

func TestScopes(t *testing.T) {
	for _, c := range []struct {
		project string
		scopes  []string
		may     []Scope
	}{
		{"shop", []string{"read"}, []Scope{Read}},
		{"shop", []string{"send", "read"}, []Scope{Send, Read}},
		{"shop", []string{"admin"}, []Scope{Send, Read, Admin}},
		{"shop", []string{"bogus"}, nil},
		{"shop", nil, nil},
		{EveryProject, []string{"admin"}, []Scope{Send, Read, Admin}},
		{EveryProject, []string{"read"}, []Scope{Read}},
	} {
		p, err := principal(store.AccessKey{ID: "x", Project: c.project, Scopes: c.scopes}, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range Scopes {
			want := false
			for _, m := range c.may {
				want = want || m == s
			}
			if p.May(s) != want {
				t.Errorf("%s %v may %s: %v", c.project, c.scopes, s, p.May(s))
			}
		}
		if want := c.project == EveryProject && c.may[0] == Send; p.Operator != want {
			t.Errorf("%s %v is operator: %v", c.project, c.scopes, p.Operator)
		}
	}
	for _, bad := range [][]string{nil, {}, {"send", "send"}, {"Send"}, {"send", ""}} {
		if belfry.CodeOf(CheckScopes("scopes", bad)) != belfry.CodeInvalid {
			t.Errorf("%q pass for scopes", bad)
		}
	}
}

func TestTheHeaderPicksTheProjectOfAnOperatorOnly(t *testing.T) {
	s := &shelf{}
	own, _ := s.put(t, "shop", "admin")
	every, _ := s.put(t, EveryProject, "admin")
	keys := NewKeys(s)
	for _, c := range []struct {
		key, header, project string
		code                 belfry.Code
	}{
		{own, "", "shop", ""},
		{own, "shop", "shop", ""},
		{own, "bank", "", CodeForbidden},
		{own, "*", "", CodeForbidden},
		{every, "", "default", ""},
		{every, "bank", "bank", ""},
		{every, "no such/name", "", belfry.CodeInvalid},
		{every, "*", "", belfry.CodeInvalid},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("Authorization", "Bearer "+c.key)
		if c.header != "" {
			r.Header.Set(HeaderProject, c.header)
		}
		if p, err := keys.Authenticate(r); p.Project != c.project || belfry.CodeOf(err) != c.code {
			t.Errorf("%s: %+v, %v", c.header, p, err)
		}
	}
}

func TestABusyKeyCostsOneReadASecond(t *testing.T) {
	now := time.Date(2026, 12, 1, 9, 0, 0, 0, time.UTC)
	s := &shelf{}
	text, id := s.put(t, "shop", "send")
	keys := NewKeys(s)
	keys.now = func() time.Time { return now }
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("Authorization", "Bearer "+text)
	try := func() error { _, err := keys.Authenticate(r); return err }

	for range 100 {
		if err := try(); err != nil {
			t.Fatal(err)
		}
	}
	if s.reads != 1 {
		t.Errorf("100 requests cost %d reads", s.reads)
	}
	s.change(id, func(k *store.AccessKey) { k.RevokedAt = now })
	now = now.Add(cacheLife)
	if err := try(); err == nil {
		t.Error("a key works a second after it was revoked elsewhere")
	}
	s.change(id, func(k *store.AccessKey) { k.RevokedAt = time.Time{} })
	keys.Forget(id)
	if err := try(); err != nil {
		t.Error("a key is remembered after Forget:", err)
	}
}

func TestAReadBegunBeforeForgetIsNotRemembered(t *testing.T) {
	s := &shelf{}
	text, id := s.put(t, "shop", "send")
	keys := NewKeys(s)
	once := true
	s.read = func() {
		if once { // revoked between the read and its answer
			once = false
			s.change(id, func(k *store.AccessKey) { k.RevokedAt = time.Now() })
			keys.Forget(id)
		}
	}
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("Authorization", "Bearer "+text)
	_, _ = keys.Authenticate(r)
	if _, err := keys.Authenticate(r); err == nil {
		t.Error("the revoked key was remembered as good")
	}
}

func TestAStoreThatCannotBeAskedIsNotARefusal(t *testing.T) {
	down := errors.New("disk on fire")
	s := &shelf{err: down}
	text, _ := s.put(t, "shop", "send")
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("Authorization", "Bearer "+text)
	if _, err := NewKeys(s).Authenticate(r); !errors.Is(err, down) {
		t.Error(err)
	}
}

func TestAFloodOfInventedKeysTakesNoMemory(t *testing.T) {
	keys := NewKeys(&shelf{})
	r := httptest.NewRequest("GET", "/", nil)
	for i := range 3 * cacheSize {
		r.Header.Set("Authorization", fmt.Sprintf("Bearer bf_%016d_%040d", i, i))
		if _, err := keys.Authenticate(r); err == nil {
			t.Fatal("an invented key works")
		}
	}
	if len(keys.known) > cacheSize {
		t.Errorf("%d keys are remembered", len(keys.known))
	}
}

func TestOnlyThisMachineNeedsNoKeyInDevelopment(t *testing.T) {
	s := &shelf{}
	text, _ := s.put(t, "shop", "read")
	dev := Loopback{NewKeys(s)}
	for _, c := range []struct {
		name, from, host string
		header           [2]string
		ok               bool
	}{
		{"IPv4", "127.0.0.1:4711", "127.0.0.1:8080", [2]string{}, true},
		{"IPv6", "[::1]:4711", "[::1]:8080", [2]string{}, true},
		{"by name", "127.0.0.1:4711", "localhost:8080", [2]string{}, true},
		{"mapped", "[::ffff:127.0.0.1]:4711", "LOCALHOST", [2]string{}, true},
		{"own page", "127.0.0.1:4711", "localhost:8080", [2]string{"Origin", "http://localhost:3000"}, true},
		{"another machine", "192.0.2.1:4711", "127.0.0.1:8080", [2]string{}, false},
		{"a name that points here", "127.0.0.1:4711", "evil.example:8080", [2]string{}, false},
		{"a name that begins alike", "127.0.0.1:4711", "localhost.evil.example", [2]string{}, false},
		{"another page", "127.0.0.1:4711", "localhost:8080", [2]string{"Origin", "https://evil.example"}, false},
		{"a page without origin", "127.0.0.1:4711", "localhost:8080", [2]string{"Origin", "null"}, false},
		{"a form of another page", "127.0.0.1:4711", "localhost:8080", [2]string{"Sec-Fetch-Site", "cross-site"}, false},
		{"a proxy", "127.0.0.1:4711", "localhost:8080", [2]string{"X-Forwarded-For", "192.0.2.1"}, false},
		{"no address", "@", "localhost", [2]string{}, false},
	} {
		r := httptest.NewRequest("POST", "/", nil)
		r.RemoteAddr, r.Host = c.from, c.host
		if c.header[0] != "" {
			r.Header.Set(c.header[0], c.header[1])
		}
		p, err := dev.Authenticate(r)
		if c.ok != (err == nil && p.Operator && p.Project == "default") {
			t.Errorf("%s: %+v, %v", c.name, p, err)
		}
	}
	r := httptest.NewRequest("POST", "/", nil)
	r.RemoteAddr, r.Host = "127.0.0.1:1", "localhost"
	r.Header.Set("Authorization", "Bearer "+text)
	if p, err := dev.Authenticate(r); err != nil || p.Operator || p.Project != "shop" {
		t.Errorf("a key that is given does not count: %+v, %v", p, err)
	}
	r.Header.Set("Authorization", "Bearer wrong")
	if _, err := dev.Authenticate(r); err == nil {
		t.Error("a wrong key passes because none was needed")
	}
}

func TestKeysAreSafeForConcurrentUse(t *testing.T) {
	s := &shelf{}
	text, id := s.put(t, "shop", "send")
	keys := NewKeys(s)
	var failed atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			r := httptest.NewRequest("GET", "/", nil)
			r.Header.Set("Authorization", "Bearer "+text)
			for range 200 {
				if _, err := keys.Authenticate(r); err != nil {
					failed.Add(1)
				}
				keys.Forget(id)
			}
		})
	}
	wg.Wait()
	if failed.Load() > 0 {
		t.Errorf("%d requests failed", failed.Load())
	}
}

func BenchmarkAuthenticate(b *testing.B) {
	s := &shelf{keys: map[string]store.AccessKey{}}
	text, id, hash, _ := New(nil)
	s.keys[id] = store.AccessKey{ID: id, Project: "shop", Scopes: []string{"send"}, Hash: hash}
	keys := NewKeys(s)
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("Authorization", "Bearer "+text)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := keys.Authenticate(r); err != nil {
			b.Fatal(err)
		}
	}
}
