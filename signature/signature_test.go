package signature_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"belfry/signature"
)

// The official example of Standard Webhooks 1.0, and vectors of our own over the same message.
const (
	first  = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	second = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX"
	public = "whpk_A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg="

	id   = "msg_p5jXN8AQM9LWM0D4loKWxJek"
	unix = 1614265330
	body = `{"test": 2432232314}`

	byFirst   = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
	bySecond  = "v1,/485aUtxlie+TIScVpHggMfqOB4so2KWb7+Gf727B44="
	byPrivate = "v1a,yoUrgEkc12aGqm0n4Sydmdz55xJfTz4AsAgieHFjmkR7LJtqVCZOQYzvvHjI5kAey+r4iaBGxTFRrl2iBQxtDQ=="
)

var (
	at        = time.Unix(unix, 0)
	timestamp = strconv.Itoa(unix)
	seed      = func() (b []byte) {
		for i := range ed25519.SeedSize {
			b = append(b, byte(i))
		}
		return b
	}()
	private = "whsk_" + base64.StdEncoding.EncodeToString(seed)
	long    = "whsk_" + base64.StdEncoding.EncodeToString(ed25519.NewKeyFromSeed(seed))
)

func secret(t testing.TB, text string) signature.Secret {
	t.Helper()
	s, err := signature.ParseSecret(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestVectorsSignAndVerify(t *testing.T) {
	for _, c := range []struct {
		name, body, want string
		sign, verify     []string
	}{
		{"official example", body, byFirst, []string{first}, []string{first}},
		{"second secret", body, bySecond, []string{second}, []string{second}},
		{"rotation, verified by the old", body, byFirst + " " + bySecond, []string{first, second}, []string{first}},
		{"rotation, verified by the new", body, byFirst + " " + bySecond, []string{first, second}, []string{second}},
		{"UTF-8 body", `{"text":"héllo 👩‍👩‍👧"}`, "v1,V33pFxK+jdyT5zKLizIKIziVwVy3vrRUISWnXgQKaWM=", []string{first}, []string{first}},
		{"ed25519 seed", body, byPrivate, []string{private}, []string{public}},
		{"ed25519 seed and public half", body, byPrivate, []string{long}, []string{public}},
		{"private key verifies too", body, byPrivate, []string{private}, []string{private}},
		{"both schemes", body, byFirst + " " + byPrivate, []string{first, private}, []string{public}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var signers, verifiers []signature.Secret
			for _, s := range c.sign {
				signers = append(signers, secret(t, s))
			}
			for _, s := range c.verify {
				verifiers = append(verifiers, secret(t, s))
			}
			got, err := signature.Sign(id, at, []byte(c.body), signers...)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
			h := http.Header{}
			h.Set(signature.HeaderID, id)
			h.Set(signature.HeaderTimestamp, timestamp)
			h.Set(signature.HeaderSignature, got)
			if err := (signature.Verifier{Secrets: verifiers}).Verify(at, h, []byte(c.body)); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestPublicKeyIsThatOfTheVector(t *testing.T) {
	for _, text := range []string{private, long, public} {
		p, ok := secret(t, text).Public()
		if !ok || p.Reveal() != public {
			t.Errorf("public key %q, %t", p.Reveal(), ok)
		}
	}
	if _, ok := secret(t, first).Public(); ok {
		t.Error("a symmetric secret has a public key")
	}
}

func TestSignRefuses(t *testing.T) {
	s := secret(t, first)
	for _, c := range []struct {
		name    string
		id      string
		at      time.Time
		secrets []signature.Secret
		want    error
	}{
		{"no id", "", at, []signature.Secret{s}, signature.ErrBadID},
		{"id with a dot", "a.1", at, []signature.Secret{s}, signature.ErrBadID},
		{"id with a line break", "a\r\nb", at, []signature.Secret{s}, signature.ErrBadID},
		{"id that is not ASCII", "é", at, []signature.Secret{s}, signature.ErrBadID},
		{"before 1970", id, time.Time{}, []signature.Secret{s}, signature.ErrBadTimestamp},
		{"no secret", id, at, nil, signature.ErrNoSecret},
		{"zero secret", id, at, []signature.Secret{s, {}}, signature.ErrNoSecret},
		{"public key", id, at, []signature.Secret{s, secret(t, public)}, signature.ErrVerifyOnly},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := signature.Sign(c.id, c.at, nil, c.secrets...); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
			out, _ := signature.AppendSignatures([]byte("x"), c.id, c.at, nil, c.secrets...)
			if string(out) != "x" {
				t.Errorf("dst became %q", out)
			}
		})
	}
}

func TestVerifyTellsWhy(t *testing.T) {
	v := signature.Verifier{Secrets: []signature.Secret{secret(t, first)}}
	type parts struct{ id, timestamp, signature, body string }
	good := parts{id, timestamp, byFirst, body}
	signedAt := func(sec int64) parts {
		sig, err := signature.Sign(id, time.Unix(sec, 0), []byte(body), v.Secrets...)
		if err != nil {
			t.Fatal(err)
		}
		return parts{id, strconv.FormatInt(sec, 10), sig, body}
	}
	with := func(f func(*parts)) parts { p := good; f(&p); return p }
	sig := func(s string) parts { return with(func(p *parts) { p.signature = s }) }
	ts := func(s string) parts { return with(func(p *parts) { p.timestamp = s }) }

	for _, c := range []struct {
		name string
		in   parts
		want error
	}{
		{"genuine", good, nil},
		{"300 s old", signedAt(unix - 300), nil},
		{"300 s ahead", signedAt(unix + 300), nil},
		{"301 s old", signedAt(unix - 301), signature.ErrTooOld},
		{"301 s ahead", signedAt(unix + 301), signature.ErrTooNew},
		{"timestamp missing", ts(""), signature.ErrBadTimestamp},
		{"timestamp missing is a missing header", ts(""), signature.ErrMissingHeader},
		{"timestamp not a number", ts("yesterday"), signature.ErrBadTimestamp},
		{"timestamp 1e9", ts("1e9"), signature.ErrBadTimestamp},
		{"timestamp of 20 digits", ts("16142653301614265330"), signature.ErrBadTimestamp},
		{"timestamp of 19 digits", ts("9223372036854775807"), signature.ErrTooNew},
		{"timestamp in milliseconds", ts(timestamp + "000"), signature.ErrTooNew},
		{"timestamp with a fraction", ts(timestamp + ".0"), signature.ErrBadTimestamp},
		{"timestamp with a sign", ts("+" + timestamp), signature.ErrBadTimestamp},
		{"timestamp with a leading zero", ts("0" + timestamp), signature.ErrBadTimestamp},
		{"timestamp negative", ts("-1"), signature.ErrBadTimestamp},
		{"timestamp with a space", ts(" " + timestamp), signature.ErrBadTimestamp},
		{"id missing", with(func(p *parts) { p.id = "" }), signature.ErrMissingHeader},
		{"id with a dot", with(func(p *parts) { p.id = "msg.1" }), signature.ErrBadID},
		{"id of another message", with(func(p *parts) { p.id = "msg_2" }), signature.ErrNoMatch},
		{"body re-serialised", with(func(p *parts) { p.body = `{"test":2432232314}` }), signature.ErrNoMatch},
		{"body empty", with(func(p *parts) { p.body = "" }), signature.ErrNoMatch},
		{"signature missing", sig(""), signature.ErrMissingHeader},
		{"signature empty", sig("v1,"), signature.ErrNoMatch},
		{"signature of one byte", sig("v1,gw=="), signature.ErrNoMatch},
		{"signature without its last byte", sig("v1," + base64.StdEncoding.EncodeToString(decode(t, byFirst)[:31])), signature.ErrNoMatch},
		{"signature with a byte more", sig("v1," + base64.StdEncoding.EncodeToString(append(decode(t, byFirst), 0))), signature.ErrNoMatch},
		{"signature without padding", sig(strings.TrimRight(byFirst, "=")), signature.ErrNoMatch},
		{"signature with stray bits", sig(strings.Replace(byFirst, "OE=", "OF=", 1)), signature.ErrNoMatch},
		{"signature with a line break", sig(byFirst + "\n"), signature.ErrNoMatch},
		{"signature without version", sig(strings.TrimPrefix(byFirst, "v1,")), signature.ErrNoMatch},
		{"unknown version", sig(strings.Replace(byFirst, "v1,", "v2,", 1)), signature.ErrNoMatch},
		{"other scheme's version", sig(strings.Replace(byFirst, "v1,", "v1a,", 1)), signature.ErrNoMatch},
		{"upper case version", sig(strings.Replace(byFirst, "v1,", "V1,", 1)), signature.ErrNoMatch},
		{"other secret", sig(bySecond), signature.ErrNoMatch},
		{"unknown version beside a genuine one", sig("v9,AAAA " + byFirst), nil},
		{"genuine one last of 16", sig(strings.Repeat(bySecond+" ", 15) + byFirst), nil},
		{"genuine one last of 200", sig(strings.Repeat(bySecond+" ", 199) + byFirst), signature.ErrNoMatch},
		{"genuine one first of 200", sig(byFirst + strings.Repeat(" "+bySecond, 199)), signature.ErrNoMatch},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := v.VerifyParts(at, c.in.id, c.in.timestamp, c.in.signature, []byte(c.in.body))
			if !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
}

func decode(t testing.TB, sig string) []byte {
	_, b64, _ := strings.Cut(sig, ",")
	b, err := base64.StdEncoding.DecodeString(b64)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestRemovedSecretNoLongerVerifies(t *testing.T) {
	both := signature.Verifier{Secrets: []signature.Secret{secret(t, first), secret(t, second)}}
	if err := both.VerifyParts(at, id, timestamp, bySecond, []byte(body)); err != nil {
		t.Fatal(err)
	}
	for _, left := range [][]signature.Secret{both.Secrets[:1], {}, {{}}} {
		err := signature.Verifier{Secrets: left}.VerifyParts(at, id, timestamp, bySecond, []byte(body))
		if !errors.Is(err, signature.ErrNoMatch) {
			t.Errorf("with %v: %v", left, err)
		}
	}
}

func TestToleranceIsAnOption(t *testing.T) {
	v := signature.Verifier{Secrets: []signature.Secret{secret(t, first)}, Tolerance: time.Minute}
	if err := v.VerifyParts(at.Add(61*time.Second), id, timestamp, byFirst, []byte(body)); !errors.Is(err, signature.ErrTooOld) {
		t.Error(err)
	}
	if err := v.VerifyParts(at.Add(60*time.Second), id, timestamp, byFirst, []byte(body)); err != nil {
		t.Error(err)
	}
}

func TestSymmetricSignatureIsNotReadAsEd25519(t *testing.T) {
	v := signature.Verifier{Secrets: []signature.Secret{secret(t, public)}}
	for _, sig := range []string{byFirst, strings.Replace(byPrivate, "v1a,", "v1,", 1), "v1a,", "v1a," + strings.Repeat("A", 86) + "=="} {
		if err := v.VerifyParts(at, id, timestamp, sig, []byte(body)); !errors.Is(err, signature.ErrNoMatch) {
			t.Errorf("%s: %v", sig, err)
		}
	}
}

func TestSecretTextFormRoundTrips(t *testing.T) {
	for _, text := range []string{first, second, private, long, public} {
		if got := secret(t, text).Reveal(); got != text {
			t.Errorf("got %q, want %q", got, text)
		}
	}
}

func TestParseSecretRefusesWithoutTellingTheSecret(t *testing.T) {
	b64 := func(n int) string { return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{0xA7}, n)) }
	halves := append(bytes.Clone(seed), make([]byte, 32)...)
	for _, text := range []string{
		"", "whsec", "whsec_", b64(32), "WHSEC_" + b64(32), "whxx_" + b64(32),
		"whsec_" + b64(23), "whsec_" + b64(65), "whsec_" + strings.TrimRight(b64(32), "="), "whsec_" + b64(24) + "\n",
		"whsec_" + base64.URLEncoding.EncodeToString(bytes.Repeat([]byte{0xFB}, 24)), " whsec_" + b64(24),
		"whsec_pqampqampqampqampqampqampqampqamp6f=",
		"whsk_" + b64(31), "whsk_" + b64(48), "whsk_" + base64.StdEncoding.EncodeToString(halves),
		"whpk_" + b64(31), "whpk_" + b64(64),
	} {
		s, err := signature.ParseSecret(text)
		if !errors.Is(err, signature.ErrBadSecret) || !s.IsZero() {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if _, b, _ := strings.Cut(text, "_"); len(b) > 8 && strings.Contains(err.Error(), b[:8]) {
			t.Errorf("the error shows the secret: %v", err)
		}
	}
	for _, n := range []int{24, 32, 64} {
		if _, err := signature.ParseSecret("whsec_" + b64(n)); err != nil {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

func TestNewSecretIsRandomAndReportsAnEmptySource(t *testing.T) {
	a, err := signature.NewSecret(nil)
	if err != nil {
		t.Fatal(err)
	}
	b, err := signature.NewSecret(nil)
	if err != nil {
		t.Fatal(err)
	}
	if a.Equal(b) || !a.Equal(a) || !a.Equal(secret(t, a.Reveal())) {
		t.Error("secrets are not told apart by their value")
	}
	c, err := signature.NewSecret(bytes.NewReader(seed))
	if err != nil || c.Reveal() != "whsec_"+base64.StdEncoding.EncodeToString(seed) {
		t.Errorf("%v", err)
	}
	if _, err := signature.NewSecret(strings.NewReader("short")); err == nil {
		t.Error("a secret of 5 bytes was drawn")
	}
}

func TestSecretNeverAppearsInOutput(t *testing.T) {
	type exported struct{ S signature.Secret }
	type hidden struct{ s signature.Secret }
	for _, text := range []string{first, private, public} {
		s := secret(t, text)
		if _, err := signature.Sign(id, at, nil, s); err != nil && text != public {
			t.Fatal(err)
		}
		var out bytes.Buffer
		for _, v := range []any{s, &s, exported{s}, &exported{s}, hidden{s}, []signature.Secret{s}, map[string]signature.Secret{"k": s}, signature.Verifier{Secrets: []signature.Secret{s}}} {
			for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "% x", "%d", "%b", "%c", "%o", "%T", "%U", "%08v"} {
				fmt.Fprintf(&out, verb+"\n", v)
			}
			slog.New(slog.NewTextHandler(&out, nil)).Info("m", "v", v)
			slog.New(slog.NewJSONHandler(&out, nil)).Info("m", "v", v)
			if b, err := json.Marshal(v); err == nil {
				out.Write(b)
			}
		}
		fmt.Fprint(&out, errors.Join(fmt.Errorf("use %v", s)))
		_, b64, _ := strings.Cut(text, "_")
		raw, _ := base64.StdEncoding.DecodeString(b64)
		for _, leak := range []string{b64, string(raw[:6]), fmt.Sprintf("%x", raw[:6]), fmt.Sprintf("%X", raw[:6]), fmt.Sprintf("% x", raw[:6]), strings.Trim(fmt.Sprint(raw[:6]), "[]")} {
			if strings.Contains(out.String(), leak) {
				t.Errorf("%q appears", leak)
			}
		}
		if want := text[:strings.Index(text, "_")] + "_[redacted]"; s.String() != want || !strings.Contains(out.String(), `"`+want+`"`) {
			t.Errorf("redacted form %q, want %q", s, want)
		}
	}
}

func TestOneSecretSignsConcurrently(t *testing.T) {
	s := secret(t, first)
	v := signature.Verifier{Secrets: []signature.Secret{s}}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				if got, err := signature.Sign(id, at, []byte(body), s); err != nil || got != byFirst {
					t.Errorf("%q, %v", got, err)
					return
				}
				if err := v.VerifyParts(at, id, timestamp, byFirst, []byte(body)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestMutationsNeverVerify(t *testing.T) {
	for _, c := range []struct{ signer, verifier, header string }{{first, first, byFirst}, {private, public, byPrivate}} {
		v := signature.Verifier{Secrets: []signature.Secret{secret(t, c.verifier)}}
		try := func(id, timestamp, header, body string) {
			t.Helper()
			if v.VerifyParts(at, id, timestamp, header, []byte(body)) == nil {
				t.Fatalf("accepted %q %q %q %q", id, timestamp, header, body)
			}
		}
		for i := range id {
			for bit := range 8 {
				try(flip(id, i, bit), timestamp, c.header, body)
			}
			try(id[:i]+id[i+1:], timestamp, c.header, body)
		}
		for i := range timestamp {
			for bit := range 8 {
				try(id, flip(timestamp, i, bit), c.header, body)
			}
			try(id, timestamp[:i]+timestamp[i+1:], c.header, body)
		}
		for i := range body {
			for bit := range 8 {
				try(id, timestamp, c.header, flip(body, i, bit))
			}
			try(id, timestamp, c.header, body[:i])
		}
		for i := range c.header {
			for bit := range 8 {
				try(id, timestamp, flip(c.header, i, bit), body)
			}
			try(id, timestamp, c.header[:i], body)
			try(id, timestamp, c.header[i+1:], body)
			try(id, timestamp, c.header[:i]+"\n"+c.header[i:], body)
		}
		// What the dot separates may not move.
		try(id+"."+timestamp, timestamp, c.header, body)
	}
}

func flip(s string, i, bit int) string {
	b := []byte(s)
	b[i] ^= 1 << bit
	return string(b)
}

// FuzzVerify: a changed message never verifies, and the genuine one verifies exactly when its signature is in the list.
func FuzzVerify(f *testing.F) {
	f.Add(id, timestamp, byFirst, []byte(body))
	f.Add(id, timestamp, byFirst+" "+bySecond, []byte(body))
	f.Add(id, timestamp, "v1,", []byte(body))
	f.Add(id+".", timestamp, byFirst, []byte(body))
	f.Add(id, "1e9", byPrivate, []byte(body))
	f.Add(id, "0"+timestamp, byFirst, []byte("."+body))
	f.Add("", "", strings.Repeat(" ", 300), []byte(nil))
	v := signature.Verifier{Secrets: []signature.Secret{secret(f, first), secret(f, public)}}
	f.Fuzz(func(t *testing.T, gotID, gotTimestamp, list string, gotBody []byte) {
		genuine := gotID == id && gotTimestamp == timestamp && string(gotBody) == body
		listed := false
		all := strings.Split(list, " ")
		for _, one := range all {
			listed = listed || one == byFirst || one == byPrivate
		}
		want := genuine && listed && len(all) <= 16
		if err := v.VerifyParts(at, gotID, gotTimestamp, list, gotBody); (err == nil) != want {
			t.Errorf("%q %q %q %q: %v", gotID, gotTimestamp, list, gotBody, err)
		}
	})
}

func TestSigningOnTheFastPathDoesNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("pools drop their contents at random under the race detector")
	}
	s := secret(t, first)
	dst := make([]byte, 0, 256)
	msg := []byte(body)
	if n := testing.AllocsPerRun(100, func() { dst, _ = signature.AppendSignatures(dst[:0], id, at, msg, s) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkSign(b *testing.B) {
	s := secret(b, first)
	msg := bytes.Repeat([]byte("x"), 1024)
	dst := make([]byte, 0, 256)
	b.Run("append", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			dst, _ = signature.AppendSignatures(dst[:0], id, at, msg, s)
		}
	})
	b.Run("string", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _ = signature.Sign(id, at, msg, s)
		}
	})
}

func BenchmarkVerify(b *testing.B) {
	v := signature.Verifier{Secrets: []signature.Secret{secret(b, second), secret(b, first)}}
	msg := []byte(body)
	b.ReportAllocs()
	for b.Loop() {
		if err := v.VerifyParts(at, id, timestamp, byFirst, msg); err != nil {
			b.Fatal(err)
		}
	}
}
