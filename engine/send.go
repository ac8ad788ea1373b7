package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"belfry"
	"belfry/channel"
	"belfry/store"
)

// sending is an armed try on its way.
type sending struct {
	store.Settlement
	lane  belfry.Lane
	due   time.Time
	armed time.Time // by the monotonic clock
}

// send makes the one request of an armed try and hands its answer to the settler. The slot is given back
// when the answer is in the store, so that what waits there is bounded by the slots.
func (e *Engine) send(ctx context.Context, s sending) {
	started := e.now()
	attempt := len(s.Delivery.Attempts)
	c := e.channels[s.Delivery.Channel]
	ref, err := e.request(ctx, c, s.armed, channel.Armed{
		Delivery: s.Delivery.ID, Epoch: s.Claim, Attempt: attempt, Endpoint: s.Endpoint, Payload: s.Delivery.Payload,
		Lane: s.lane, Category: s.Notification.Category, Subject: s.Notification.Subject, Now: started, Deadline: s.Delivery.Deadline,
	})
	s.Answer = belfry.AnswerOf(ref, err)
	s.Now, s.Jitter = e.now(), jitter()
	e.observeAttempt(s, started)
	e.settler.add(s)
}

var errLate = errors.New("the process was held up between arming and sending, longer than the send may take")

// request calls the channel within its budget. A try that was held up for longer than that is not made:
// somebody else may have taken the delivery over.
func (e *Engine) request(ctx context.Context, c channel.Channel, armed time.Time, a channel.Armed) (ref string, err error) {
	defer func() {
		if r := recover(); r != nil {
			e.log.Error("a channel panicked", "channel", c.Name(), "delivery", a.Delivery, "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
			err = errors.New("the channel panicked")
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, c.Budget())
	defer cancel()
	if time.Since(armed) > c.Budget() {
		return "", belfry.NotSent(0, 0, errLate.Error())
	}
	return c.Send(ctx, a)
}

// settler writes answers down, in as few commits as there is time for.
type settler struct {
	e     *Engine
	in    chan sending
	empty sync.WaitGroup
}

// maxSettle is the most answers in one commit.
const maxSettle = 1024

func newSettler(e *Engine) *settler { return &settler{e: e, in: make(chan sending, maxSettle)} }

func (s *settler) add(x sending) {
	s.empty.Add(1)
	s.in <- x
}

// drain returns when everything that was added is in the store.
func (s *settler) drain() { s.empty.Wait() }

func (s *settler) run(ctx context.Context) {
	batch := make([]sending, 0, maxSettle)
	for {
		select {
		case <-ctx.Done():
			return
		case x := <-s.in:
			batch = append(batch[:0], x)
		}
	gather:
		for len(batch) < maxSettle {
			select {
			case x := <-s.in:
				batch = append(batch, x)
			default:
				break gather
			}
		}
		s.settle(ctx, batch)
		for _, x := range batch {
			s.e.slots.give(x.Delivery.Channel, 1)
			s.empty.Done()
		}
		s.e.room(func(l belfry.Lane) bool {
			return slices.ContainsFunc(batch, func(x sending) bool { return x.lane == l })
		})
	}
}

// settle writes a batch, again and again until the store takes it: an answer is never thrown away while
// the process lives.
func (s *settler) settle(ctx context.Context, batch []sending) {
	list := make([]store.Settlement, len(batch))
	for i, x := range batch {
		list[i] = x.Settlement
	}
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		settled, err := s.e.store.Settle(ctx, list)
		if err == nil {
			s.e.health.storeWorks()
			for i, x := range settled {
				s.e.observeSettled(batch[i], x)
			}
			return
		}
		if ctx.Err() != nil {
			s.e.log.Error("answers could not be written down before the process ends; their tries are ambiguous", "count", len(batch), "err", err)
			return
		}
		s.e.health.storeFailed(err)
		s.e.log.Warn("answers wait in memory for the store", "count", len(batch), "err", err)
		pause(wait)
	}
}

// Event is something an observer may count. Exactly one of Outcome and State is set.
type Event struct {
	Project  string
	Category string
	Channel  string // "" for the end of a notification that had no delivery
	Lane     belfry.Lane
	Outcome  belfry.Outcome // of a try
	Took     time.Duration  // of a try: from the first byte to the answer
	Late     time.Duration  // of a first try: how long after it was due it began; what put it off on purpose does not count
	First    bool           // it is the first try of its delivery
	State    belfry.State   // of an end
	Reason   belfry.Reason
}

func (e *Engine) observeAttempt(s sending, started time.Time) {
	n, a := s.Notification, s.Answer
	first := len(s.Delivery.Attempts) == 1
	level := slog.LevelInfo
	if a.Outcome != belfry.OutcomeAccepted {
		level = slog.LevelWarn
	}
	if e.log.Enabled(context.Background(), level) {
		e.log.Log(context.Background(), level, "attempt", "delivery", s.Delivery.ID, "project", n.Project, "category", n.Category,
			"channel", s.Delivery.Channel, "attempt", len(s.Delivery.Attempts), "outcome", a.Outcome, "status", a.Status,
			"detail", a.Detail, "took_ms", s.Now.Sub(started).Milliseconds())
	}
	e.options.Observe(Event{
		Project: n.Project, Category: n.Category, Channel: s.Delivery.Channel, Lane: n.Lane, Outcome: a.Outcome,
		Took: s.Now.Sub(started), Late: started.Sub(s.due), First: first,
	})
}

func (e *Engine) observeSettled(s sending, out store.Settled) {
	d := out.Delivery
	if out.Late {
		e.log.Warn("a late answer", "delivery", d.ID, "outcome", s.Answer.Outcome, "state", d.State)
	}
	if !d.State.Ended() {
		e.hint(d.Next)
		return
	}
	if s.Answer.Outcome == belfry.OutcomeGone {
		e.Wake() // the endpoint was retired: what waited for it may have moved on
	}
	e.options.Observe(Event{Project: s.Notification.Project, Category: s.Notification.Category, Channel: d.Channel, Lane: s.Notification.Lane, State: d.State, Reason: d.Reason})
}

func (e *Engine) observeEnd(n belfry.Notification, state belfry.State, reason belfry.Reason) {
	e.options.Observe(Event{Project: n.Project, Category: n.Category, Lane: n.Lane, State: state, Reason: reason})
}
