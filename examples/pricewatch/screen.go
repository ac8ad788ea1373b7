package pricewatch

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"belfry"
	"belfry/store"
)

// screen shows how the demo goes: a table that is drawn again and again on a terminal, once at the end
// elsewhere, and nothing at all with JSON.
type screen struct {
	w     *world
	o     DemoOptions
	live  bool
	start time.Time
	lines int // of the table that is shown
	stop  chan struct{}
	done  sync.WaitGroup
	once  sync.Once

	mu  sync.Mutex
	now string
}

func newScreen(w *world, o DemoOptions, h history) *screen {
	s := &screen{w: w, o: o, start: time.Now(), stop: make(chan struct{})}
	if o.JSON {
		return s
	}
	fmt.Fprintf(o.Out, "pricewatch: %d people, receivers that misbehave, everything in this process and a fresh folder\nprices: %s\n\n", len(people), h.about)
	if s.live = isTerminal(o); s.live {
		s.done.Go(s.draw)
	}
	return s
}

func isTerminal(o DemoOptions) bool {
	f, ok := o.Out.(*os.File)
	if !ok || os.Getenv("TERM") == "dumb" {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// phase says what is going on.
func (s *screen) phase(now string) {
	s.mu.Lock()
	s.now = now
	s.mu.Unlock()
}

func (s *screen) draw() {
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for {
		s.show()
		select {
		case <-s.stop:
			return
		case <-tick.C:
		}
	}
}

// close draws the table for the last time.
func (s *screen) close() {
	s.once.Do(func() {
		close(s.stop)
		s.done.Wait()
		if !s.o.JSON {
			s.show()
			fmt.Fprintln(s.o.Out)
		}
	})
}

func (s *screen) show() {
	lines := s.table()
	var b strings.Builder
	if s.live && s.lines > 0 {
		fmt.Fprintf(&b, "\x1b[%dA\x1b[J", s.lines) // up, and clear from there
	}
	for _, l := range lines {
		text := []rune(l) // a line that wraps would be two to go up
		b.WriteString(string(text[:min(len(text), 79)]) + "\n")
	}
	s.lines = len(lines)
	fmt.Fprint(s.o.Out, b.String())
}

func (s *screen) table() []string {
	stats, err := s.w.engine.Stats(context.Background(), project)
	if err != nil {
		return []string{"the store cannot be read: " + err.Error()}
	}
	s.mu.Lock()
	now := s.now
	s.mu.Unlock()
	t := &s.w.tally
	t.mu.Lock()
	enqueued, duplicates, retries := len(t.acknowledged), t.duplicates, t.retries
	t.mu.Unlock()
	lines := []string{
		fmt.Sprintf("%6.1f s  %s", time.Since(s.start).Seconds(), now),
		fmt.Sprintf("  enqueued %6d   duplicates %d  tried again %d  waiting %d  on the wire %d", enqueued, duplicates, retries, stats.Waiting, stats.Sending),
	}
	slices.SortFunc(stats.Ended, func(a, b store.EndedCount) int {
		return cmp.Or(cmp.Compare(order[a.State], order[b.State]), cmp.Compare(b.Count, a.Count), strings.Compare(string(a.Reason), string(b.Reason)))
	})
	for _, c := range stats.Ended {
		lines = append(lines, strings.TrimRight(fmt.Sprintf("  %-9s%6d   %s", c.State, c.Count, c.Reason), " "))
	}
	if !s.live {
		return lines
	}
	return append(append(lines, ""), s.latest(5)...)
}

var order = map[belfry.State]int{belfry.Sent: 1, belfry.Dropped: 2, belfry.Failed: 3, belfry.Missed: 4, belfry.Cancelled: 5, belfry.Unknown: 6}

// latest are the last messages as people see them.
func (s *screen) latest(n int) (lines []string) {
	log := s.w.sandbox.Log()
	for _, e := range log[max(0, len(log)-n):] {
		var text struct{ Title string }
		_ = json.Unmarshal(e.Body, &text) // the judge looks closer
		lines = append(lines, fmt.Sprintf("  %s  %-7s  %-5s  %s", e.At.Format(time.TimeOnly), e.Channel, s.w.owner[e.To], text.Title))
	}
	return lines
}
