package belfry_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"belfry"
)

func TestASecretIsNeverPrinted(t *testing.T) {
	const text = "hunter2-hunter2-hunter2"
	secret := belfry.Secret(text)
	values := map[string]any{
		"itself":     secret,
		"pointer":    &secret,
		"slice":      []belfry.Secret{secret},
		"map":        map[string]belfry.Secret{"k": secret},
		"endpoint":   belfry.Endpoint{Channel: "email", Address: secret, Keys: belfry.Keys{"auth": secret}},
		"endpoint *": &belfry.Endpoint{Address: secret},
		"target":     belfry.Target{Channel: "email", Address: secret, Keys: belfry.Keys{"auth": secret}},
		"options":    belfry.Options{To: []belfry.Target{{Address: secret}}},
		"register":   belfry.Registration{Address: secret, Keys: belfry.Keys{"auth": secret}},
		"suppress":   belfry.Suppression{Address: secret},
	}
	leaks := func(how, out string) {
		if strings.Contains(out, "hunter2") || strings.Contains(out, fmt.Sprintf("%x", "hunter2")) || strings.Contains(strings.ToLower(out), fmt.Sprintf("% x", "hunter2")) {
			t.Errorf("%s shows it: %s", how, out)
		}
	}
	for what, v := range values {
		for _, verb := range strings.Fields("%v %+v %#v %s %q %+q %#q %x %X %d %t %c %U %e %o %b %z %20.3v %-30s") {
			leaks(what+" "+verb, fmt.Sprintf(verb, v))
		}
		leaks(what+" wrapped", fmt.Errorf("no: %w", fmt.Errorf("%v", v)).Error())
		leaks(what+" Sprint", fmt.Sprint(v))
		b, err := json.Marshal(v)
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
		leaks(what+" json", string(b))
		var out bytes.Buffer
		for _, log := range []*slog.Logger{slog.New(slog.NewTextHandler(&out, nil)), slog.New(slog.NewJSONHandler(&out, nil))} {
			log.Info("m", "k", v)
			log.With("k", v).WithGroup("g").Info("m", slog.Any("k", v), slog.Group("h", "k", v))
		}
		leaks(what+" slog", out.String())
	}
	if got := fmt.Sprint(secret); got != "[redacted]" {
		t.Errorf("printed as %q", got)
	}
}

func TestASecretIsRevealedOnlyOnRequest(t *testing.T) {
	secret := belfry.Secret("0123456789abcdef")
	if secret.Reveal() != "0123456789abcdef" || secret.Hint() != "…cdef" || belfry.Secret("short").Hint() != "…" {
		t.Errorf("%q, %q", secret.Reveal(), secret.Hint())
	}
	if !secret.Equal("0123456789abcdef") || secret.Equal("0123456789abcdeg") || secret.Equal("") {
		t.Error("Equal is wrong")
	}
}
