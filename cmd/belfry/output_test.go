package main

import (
	"bytes"
	"sync"
)

// output collects what is printed, and tells when there is more.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
	tick chan struct{}
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.tick != nil {
		close(o.tick)
		o.tick = nil
	}
	return o.text.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// next is closed by the next write.
func (o *output) next() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.tick == nil {
		o.tick = make(chan struct{})
	}
	return o.tick
}
