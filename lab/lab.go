// Package lab is for experiments that show how fast the engine is, and whether it keeps its word when it is
// killed. A user can run them on the machine that matters: see belfry bench and belfry lab.
//
// It measures and judges from the outside. [Bench] states with every figure how it was measured; [Kill]
// convicts from what callers were told and what receivers accepted, never from what the engine believes.
package lab

import (
	"errors"
	"io"
	"os"
	"sync"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// progress shows how far a long run has come, on a terminal only.
type progress struct{ *mpb.Progress }

func newProgress(w io.Writer) *progress {
	f, ok := w.(*os.File)
	if !ok {
		return &progress{}
	}
	if info, err := f.Stat(); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return &progress{}
	}
	return &progress{mpb.New(mpb.WithOutput(w), mpb.WithWidth(48))}
}

// bar begins a stretch of total steps; the function it returns says how many are done.
func (p *progress) bar(name string, total int64) (done func(int64)) {
	if p.Progress == nil {
		return func(int64) {}
	}
	b := p.AddBar(total, mpb.BarRemoveOnComplete(),
		mpb.PrependDecorators(decor.Name(name, decor.WCSyncSpaceR)), mpb.AppendDecorators(decor.Percentage(decor.WCSyncSpace)))
	return func(n int64) {
		if b.SetCurrent(n); n >= total {
			b.SetTotal(total, true)
		}
	}
}

// crew works side by side.
type crew struct {
	work sync.WaitGroup
	mu   sync.Mutex
	errs []error
}

func (c *crew) start(work func() error) {
	c.work.Go(func() {
		if err := work(); err != nil {
			c.mu.Lock()
			c.errs = append(c.errs, err)
			c.mu.Unlock()
		}
	})
}

func (c *crew) wait() error {
	c.work.Wait()
	return errors.Join(c.errs...)
}
