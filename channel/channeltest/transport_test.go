package channeltest

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"belfry/internal/safehttp"
)

func roundTrip(ctx context.Context, h http.HandlerFunc, body string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, "POST", "https://provider.example/path?q=1", strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	return Transport(h).RoundTrip(req)
}

func TestTransportCarriesWhatAServerWouldSee(t *testing.T) {
	resp, err := roundTrip(t.Context(), func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		w.Header().Set("X-Seen", r.Method+" "+r.Host+r.RequestURI+" "+string(b))
		w.WriteHeader(http.StatusTeapot)
		w.Header().Set("X-Late", "1")
		_, _ = io.WriteString(w, "short and ")
		_, _ = io.WriteString(w, "stout")
	}, "hello")
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(resp.Body)
	if err != nil || string(b) != "short and stout" || resp.StatusCode != 418 || resp.Header.Get("X-Seen") != "POST provider.example/path?q=1 hello" || resp.Header.Get("X-Late") != "" {
		t.Errorf("%q, %v, %v", b, err, resp)
	}
	if resp, err = roundTrip(t.Context(), func(http.ResponseWriter, *http.Request) {}, ""); err != nil || resp.StatusCode != 200 {
		t.Errorf("an answer without words: %v, %v", resp, err)
	}
}

func TestTransportTellsSilenceFromRefusal(t *testing.T) {
	_, err := roundTrip(t.Context(), func(http.ResponseWriter, *http.Request) { panic(ErrRefused) }, "")
	if !safehttp.Classify(err) {
		t.Errorf("refused: %v", err)
	}
	_, err = roundTrip(t.Context(), func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "")
	if err == nil || safehttp.Classify(err) {
		t.Errorf("aborted: %v", err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err = roundTrip(gone, func(http.ResponseWriter, *http.Request) { t.Error("it was called") }, ""); !safehttp.Classify(err) {
		t.Errorf("cancelled before: %v", err)
	}
	resp, err := roundTrip(t.Context(), func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "half")
		panic(http.ErrAbortHandler)
	}, "")
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(resp.Body); string(b) != "half" || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%q, %v", b, err)
	}
}

func TestTransportWorksInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		done := make(chan struct{})
		start := time.Now()
		_, err := roundTrip(ctx, func(w http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			_, _ = w.Write(make([]byte, 1000)) // nobody is there to read it
			close(done)
		}, "")
		<-done
		if e, ok := errors.AsType[*safehttp.Error](err); !ok || e.Reason != safehttp.TimedOut || e.NotSent || time.Since(start) != time.Minute {
			t.Errorf("%v after %v", err, time.Since(start))
		}

		ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		resp, err := roundTrip(ctx, func(w http.ResponseWriter, r *http.Request) {
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}, "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(resp.Body); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a body that hangs: %v", err)
		}
	})
}
