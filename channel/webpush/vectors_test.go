package webpush

import (
	"bytes"
	"crypto"
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/asn1"
	"encoding/base64"
	"encoding/hex"
	"math/big"
	"strings"
	"testing"
	"time"

	"belfry"
	"belfry/channel"
)

func b64(t testing.TB, text string) []byte {
	t.Helper()
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func same(t *testing.T, what string, got []byte, want string) {
	t.Helper()
	if text := base64.RawURLEncoding.EncodeToString(got); text != want {
		t.Errorf("%s: got %s, want %s", what, text, want)
	}
}

func TestEncryptionFollowsRFC8188(t *testing.T) {
	// §3.1
	ikm, salt := b64(t, "yqdlZ-tYemfogSmv7Ws5PQ"), b64(t, "I1BsxtFttlv3u_Oo94xnmw")
	prk, err := hkdf.Extract(sha256.New, ikm, salt)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "PRK", prk, "zyeH5phsIsgUyd4oiSEIy35x-gIi4aM7y0hCF8mwn9g")
	cek, nonce, err := contentKeys(ikm, salt)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "CEK", cek, "_wniytB-ofscZDh4tbSjHw")
	same(t, "nonce", nonce, "Bcs8gkIRKLI8GeI8")
	body, err := record(ikm, salt, nil, []byte("I am the walrus"))
	if err != nil {
		t.Fatal(err)
	}
	same(t, "body", body, "I1BsxtFttlv3u_Oo94xnmwAAEAAA-NAVub2qFgBEuQKRapoZu-IxkIva3MEB1PD-ly8Thjg")
	if len(body) != 53 {
		t.Errorf("%d bytes", len(body))
	}
	// §3.2, its keys: we send one record only.
	cek, nonce, err = contentKeys(b64(t, "BO3ZVPxUlnLORbVGMpbT1Q"), b64(t, "uNCkWiNYzKTnBN9ji3-qWA"))
	if err != nil {
		t.Fatal(err)
	}
	same(t, "CEK", cek, "u_eEOTjjVWUVrH82pQNwpw")
	same(t, "nonce", nonce, "VqylG1rdt-mJrNgP")
}

const (
	uaPublic  = "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4"
	uaAuth    = "BTBZMqHH6r4Tts7J_aSIgg"
	asPublic  = "BP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A8"
	asPrivate = "yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw"
)

func TestEncryptionFollowsRFC8291(t *testing.T) {
	own, err := ecdh.P256().NewPrivateKey(b64(t, asPrivate))
	if err != nil {
		t.Fatal(err)
	}
	same(t, "our public key", own.PublicKey().Bytes(), asPublic)
	key, err := parseKey(uaPublic)
	if err != nil {
		t.Fatal(err)
	}
	auth, err := parseAuth(uaAuth)
	if err != nil {
		t.Fatal(err)
	}
	shared, err := own.ECDH(key)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "shared secret", shared, "kyrL1jIIOHEzg3sM2ZWRHDRB62YACZhhSlknJ672kSs")
	body, err := encrypt(userAgent{key, auth}, own, b64(t, "DGv6ra1nlYgDCS1FRnbzlw"), []byte("When I grow up, I want to be a watermelon"))
	if err != nil {
		t.Fatal(err)
	}
	same(t, "body", body, "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN")
	if len(body) != 144 {
		t.Errorf("%d bytes", len(body))
	}
	body, err = encrypt(userAgent{key, auth}, own, make([]byte, 16), make([]byte, MaxPayload))
	if err != nil || len(body) != 4096 || MaxPayload != 3993 {
		t.Errorf("the largest payload, %d, makes %d bytes, %v", MaxPayload, len(body), err)
	}
}

const (
	vapidKey    = "ya-p2EW6dRZrXCFXZ7HWk05Qw9s26JsSe4piKxIPZyE" // RFC 6979 A.2.5
	vapidPublic = "BGD-1LolWp0xyWHrdMY1bWjASbiSO2H6bOZpYi5g8p-2eQP-EAi4vJmkGunpVii8ZPLxsgwtfp9Rd6PClNRGIpk"
	rfc8292     = "eyJ0eXAiOiJKV1QiLCJhbGciOiJFUzI1NiJ9.eyJhdWQiOiJodHRwczovL3B1c2guZXhhbXBsZS5uZXQiLCJleHAiOjE0NTM1MjM3NjgsInN1YiI6Im1haWx0bzpwdXNoQGV4YW1wbGUuY29tIn0"
)

func TestTokenFollowsRFC8292(t *testing.T) {
	// The example's key is not published; its signature verifies under its public key over the very text we sign.
	public, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), b64(t, "BA1Hxzyi1RUM1b5wjxsn7nGxAszw2u61m164i3MrAIxHF6YK5h4SDYic-dRuU_RCPCfA5aq9ojSwk5Y2EmClBPs"))
	if err != nil {
		t.Fatal(err)
	}
	sig := b64(t, "i3CYb7t4xfxCDquptFOepC9GAu_HLGkMlMuCGSK2rpiUfnK9ojFwDXb1JrErtmysazNjjvW2L9OkSSHzvoD1oA")
	digest := sha256.Sum256([]byte(rfc8292))
	verify := func(sig []byte) bool {
		return ecdsa.Verify(public, digest[:], new(big.Int).SetBytes(sig[:32]), new(big.Int).SetBytes(sig[32:]))
	}
	if !verify(sig) {
		t.Error("the example of the RFC does not verify")
	}
	if sig[9] ^= 4; verify(sig) {
		t.Error("a changed signature verifies")
	}
	key, err := privateKey(vapidKey)
	if err != nil {
		t.Fatal(err)
	}
	s := signer{key: key, subject: "mailto:push@example.com"}
	got, err := s.sign("https://push.example.net", time.Unix(1453523768, 0))
	if want := rfc8292 + ".AgM2YFbrVEamUqH1s0d19VnsJg5Om6oLYnlFtEHc3-7c5aoOzlAA0pD305O1-auw8Bf7IN0IqF_fzy9K53dS6Q"; got != want || err != nil {
		t.Errorf("got  %s, %v\nwant %s", got, err, want)
	}
	if text, err := PublicKey(vapidKey); text != vapidPublic || err != nil {
		t.Errorf("public key %s, %v", text, err)
	}
}

func TestES256IsDeterministic(t *testing.T) {
	key, err := privateKey(vapidKey)
	if err != nil {
		t.Fatal(err)
	}
	digest := sha256.Sum256([]byte("sample"))
	der, err := key.Sign(nil, digest[:], crypto.SHA256)
	if err != nil {
		t.Fatal(err)
	}
	var sig struct{ R, S *big.Int }
	if _, err := asn1.Unmarshal(der, &sig); err != nil {
		t.Fatal(err)
	}
	got := strings.ToUpper(hex.EncodeToString(append(sig.R.FillBytes(make([]byte, 32)), sig.S.FillBytes(make([]byte, 32))...)))
	if want := "EFD48B2AACB6A8FD1140DD9CD45E81D69D2C877B56AAF991C34D0EA84EAF3716" + "F7CB1C942D657C41D436C7A1B6E29F65F3E900DBB9AFF4064DC4AB2F843ACDA8"; got != want {
		t.Errorf("got %s", got)
	}
}

func TestKeysAreReadInEveryFormClientsWrite(t *testing.T) {
	raw := bytes.Repeat([]byte{0xFB, 0xEF, 0xFF, 1}, 4)
	for _, e := range []*base64.Encoding{base64.RawURLEncoding, base64.URLEncoding, base64.RawStdEncoding, base64.StdEncoding} {
		if got, err := parseAuth(e.EncodeToString(raw)); err != nil || !bytes.Equal(got, raw) {
			t.Errorf("%s: %v", e.EncodeToString(raw), err)
		}
	}
}

func BenchmarkSeal(b *testing.B) {
	plain := bytes.Repeat([]byte("x"), 300)
	a := armedFor(uaPublic, uaAuth, plain)
	c := new(Channel)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.seal(a); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParseKey(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := parseKey(uaPublic); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkToken(b *testing.B) {
	key, _ := privateKey(vapidKey)
	s := signer{key: key, subject: "mailto:push@example.com", tokens: make(map[string]token)}
	now := time.Unix(1453523768, 0)
	b.Run("kept", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _ = s.authorization("https://push.example.net", now)
		}
	})
	b.Run("signed", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _ = s.sign("https://push.example.net", now)
		}
	})
}

func armedFor(p256dh, auth string, payload []byte) channel.Armed {
	return channel.Armed{Payload: payload, Endpoint: belfry.Endpoint{Keys: belfry.Keys{"p256dh": belfry.Secret(p256dh), "auth": belfry.Secret(auth)}}}
}
