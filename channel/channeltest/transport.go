package channeltest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"sync"

	"belfry/internal/safehttp"
)

// ErrRefused is what a handler of [Transport] panics with to play a provider that accepts no connection.
var ErrRefused = errors.New("channeltest: connection refused")

// Transport carries requests to a handler in the same process, without a network, so that channels work inside the
// bubbles of testing/synctest. The handler runs in its own goroutine; the request's context ends when the client has
// given up. A panic with [http.ErrAbortHandler] is a connection that dies. Errors are those of our outbound client.
func Transport(h http.Handler) http.RoundTripper { return transport{h} }

type transport struct{ handler http.Handler }

func (t transport) RoundTrip(req *http.Request) (*http.Response, error) {
	var body []byte
	if req.Body != nil {
		defer req.Body.Close()
		var err error
		if body, err = io.ReadAll(req.Body); err != nil {
			return nil, &safehttp.Error{Host: req.URL.Host, Reason: safehttp.Invalid, NotSent: true, Err: err}
		}
	}
	if err := req.Context().Err(); err != nil {
		return nil, gaveUp(req, err, true)
	}
	ctx, cancel := context.WithCancel(req.Context())
	in := req.Clone(ctx)
	in.Body, in.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	in.RequestURI, in.RemoteAddr = req.URL.RequestURI(), "192.0.2.1:1"
	if in.Host == "" {
		in.Host = req.URL.Host
	}
	reader, writer := io.Pipe()
	w := &responseWriter{header: make(http.Header), pipe: writer, answered: make(chan *http.Response, 1)}
	failed := make(chan error, 1)
	go func() {
		err := w.serve(t.handler, in)
		_ = writer.CloseWithError(err)
		failed <- err
	}()
	answered := func(resp *http.Response) (*http.Response, error) {
		stop := context.AfterFunc(req.Context(), func() { _ = reader.CloseWithError(io.ErrUnexpectedEOF) })
		resp.Request, resp.Body = req, &responseBody{reader, req.Context(), func() { stop(); cancel() }}
		return resp, nil
	}
	select {
	case resp := <-w.answered:
		return answered(resp)
	case err := <-failed:
		select {
		case resp := <-w.answered:
			return answered(resp)
		default:
		}
		cancel()
		if errors.Is(err, ErrRefused) {
			return nil, &safehttp.Error{Host: req.URL.Host, Reason: safehttp.ConnectFailed, NotSent: true, Err: err}
		}
		return nil, &safehttp.Error{Host: req.URL.Host, Reason: safehttp.BrokenOff, Err: io.ErrUnexpectedEOF}
	case <-ctx.Done():
		cancel()
		_ = reader.Close() // so that the handler cannot wait for us
		return nil, gaveUp(req, ctx.Err(), false)
	}
}

func gaveUp(req *http.Request, err error, notSent bool) error {
	e := &safehttp.Error{Host: req.URL.Host, Reason: safehttp.Cancelled, NotSent: notSent, Err: err}
	if errors.Is(err, context.DeadlineExceeded) {
		e.Reason = safehttp.TimedOut
	}
	return e
}

type responseWriter struct {
	header   http.Header
	pipe     *io.PipeWriter
	once     sync.Once
	answered chan *http.Response
}

// serve returns io.EOF after an orderly answer, else why there is none or why it broke off.
func (w *responseWriter) serve(h http.Handler, r *http.Request) (err error) {
	defer func() {
		switch p := recover(); p {
		case nil:
		case ErrRefused:
			err = ErrRefused
		case http.ErrAbortHandler:
			err = io.ErrUnexpectedEOF
		default:
			panic(p)
		}
	}()
	h.ServeHTTP(w, r)
	w.WriteHeader(http.StatusOK)
	return io.EOF
}

func (w *responseWriter) Header() http.Header { return w.header }

func (w *responseWriter) WriteHeader(status int) {
	w.once.Do(func() {
		w.answered <- &http.Response{
			Status: http.StatusText(status), StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
			Header: w.header.Clone(), ContentLength: -1,
		}
	})
}

func (w *responseWriter) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.pipe.Write(b)
}

// Flush sends the header if it was not sent yet; the body is never held back.
func (w *responseWriter) Flush() { w.WriteHeader(http.StatusOK) }

type responseBody struct {
	*io.PipeReader
	ctx   context.Context
	close func()
}

func (b *responseBody) Read(p []byte) (int, error) {
	n, err := b.PipeReader.Read(p)
	if err != nil && b.ctx.Err() != nil {
		err = b.ctx.Err() // the handler ends with the context too, and that is no orderly end
	}
	return n, err
}

func (b *responseBody) Close() error {
	b.close()
	return b.PipeReader.Close()
}
