package sandbox

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"belfry/signature"
)

type verifier = *signature.Verifier

// Secret makes the webhook receiver verify signatures; an empty text stops it.
func (s *Sandbox) Secret(name, text string) error {
	if text == "" {
		s.mu.Lock()
		delete(s.webhooks, name)
		s.mu.Unlock()
		return nil
	}
	secret, err := signature.ParseSecret(text)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.webhooks[name] = &signature.Verifier{Secrets: []signature.Secret{secret}}
	s.mu.Unlock()
	return nil
}

func (s *Sandbox) putSecret(w http.ResponseWriter, r *http.Request) error {
	b, err := readBody(r)
	if err != nil {
		return err
	}
	in := struct {
		Secret string `json:"secret"`
	}{Secret: strings.TrimSpace(string(b))}
	if strings.HasPrefix(in.Secret, "{") {
		if err := json.Unmarshal(b, &in); err != nil {
			return err
		}
	}
	if err := s.Secret(r.PathValue("name"), in.Secret); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// postWebhook is a receiver of webhooks. It deliberately acts on whatever it gets: who sends twice is to be seen.
func (s *Sandbox) postWebhook(w http.ResponseWriter, r *http.Request) error {
	to := receiver{"webhook", r.PathValue("name")}
	body, err := readBody(r)
	if err != nil {
		return s.refuse(w, to.channel, http.StatusRequestEntityTooLarge, "webhook: the body cannot be read")
	}
	now := s.now()
	s.mu.Lock()
	v := s.webhooks[to.to]
	s.mu.Unlock()
	if v != nil {
		if err := v.Verify(now, r.Header, body); err != nil {
			status := http.StatusUnauthorized
			if errors.Is(err, signature.ErrMissingHeader) {
				status = http.StatusBadRequest
			}
			return s.refuse(w, to.channel, status, err.Error())
		}
	}
	id := r.Header.Get(signature.HeaderID)
	e := Entry{At: now, Channel: to.channel, To: to.to, ID: id, Attempt: s.count(to, id), Header: r.Header, Body: body}
	return s.perform(w, r, s.next(to), e, func(w http.ResponseWriter) {
		s.tally(to.channel, http.StatusOK)
		w.WriteHeader(http.StatusOK)
	})
}
