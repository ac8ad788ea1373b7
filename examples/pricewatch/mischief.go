package pricewatch

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"belfry"
	"belfry/engine"
	"belfry/sandbox"
	"belfry/store"
)

// answers is how a receiver answers its next requests: mostly well, then as it ever will.
func answers(random *rand.Rand) []sandbox.Answer {
	const requests = 400
	wait := map[string]string{"Retry-After": "1"}
	list := make([]sandbox.Answer, requests, requests+1)
	for i := range list {
		switch chance := random.Float64(); {
		case chance < 0.05:
			list[i] = sandbox.Answer{Status: 503, Headers: wait}
		case chance < 0.08:
			list[i] = sandbox.Answer{Status: 500}
		case chance < 0.11:
			list[i] = sandbox.Answer{HangMS: 3000} // longer than anybody waits
		case chance < 0.14:
			list[i] = sandbox.Answer{AcceptThenDrop: true}
		case chance < 0.15:
			list[i] = sandbox.Answer{Drop: true}
		case chance < 0.16:
			list[i] = sandbox.Answer{Status: 429, Headers: wait}
		}
	}
	return append(list, sandbox.Answer{})
}

// slow is a receiver that thinks before it takes a message.
func slow() []sandbox.Answer { return []sandbox.Answer{{DelayMS: 250}} }

// stumble makes every so-manieth look-up of a price fail.
func stumble(random *rand.Rand) func() error {
	return func() error { // the shop calls it one at a time
		if random.IntN(40) == 0 {
			return errors.New("the price service does not answer")
		}
		return nil
	}
}

// mischief does what people do at bad moments, and keeps what it was answered for the judge. The moments
// are counted by what was enqueued for a person, so that a short demo has its share.
type mischief struct {
	engine  *engine.Engine
	sandbox *sandbox.Sandbox
	devices map[string]string // of a person: the push subscription
	work    sync.WaitGroup

	mu      sync.Mutex
	count   map[string]int
	optOuts []optOut
	cancels []withdrawal
	err     error
}

// told hears of every notification that was enqueued.
func (m *mischief) told(ctx context.Context, w Watch, e store.Enqueued) {
	m.mu.Lock()
	m.count[w.Person]++
	n := m.count[w.Person]
	m.mu.Unlock()
	switch {
	case w.Person == "ana" && n == 3: // her receiver is slow: it is on the wire
		m.at(ctx, e.Due.Add(100*time.Millisecond), func() error { return m.optOut(ctx, w.Person, "*", "*") })
	case w.Person == "ben" && n == 5: // on the dot
		m.at(ctx, e.Due, func() error { return m.optOut(ctx, w.Person, PriceDrop, "*") })
	case w.Person == "cleo" && n == 4: // while it waits
		m.at(ctx, e.Due.Add(-10*time.Millisecond), func() error { return m.optOut(ctx, w.Person, "*", "push") })
	case w.Person == "hana" && n == 8:
		m.at(ctx, e.Due.Add(2*time.Millisecond), func() error { return m.optOut(ctx, w.Person, "*", "*") })
	case w.Person == "dan" && n%3 == 0:
		m.at(ctx, e.Due, func() error { return m.cancel(ctx, store.Filter{Project: project, ID: e.ID}) })
	case w.Person == "eli" && n%3 == 0:
		m.at(ctx, e.Due.Add(5*time.Millisecond), func() error {
			return m.cancel(ctx, store.Filter{Project: project, Recipient: w.Person, Subject: w.Item})
		})
	case w.Person == "ian" && n%2 == 0: // his receiver is slow, too
		m.at(ctx, e.Due.Add(100*time.Millisecond), func() error { return m.cancel(ctx, store.Filter{Project: project, ID: e.ID}) })
	case (w.Person == "fay" || w.Person == "gus") && n == 3: // takes the permission back; nobody tells us
		m.at(ctx, e.Due.Add(-time.Millisecond), func() error { return m.sandbox.Unsubscribe(m.devices[w.Person]) })
	}
}

func (m *mischief) at(ctx context.Context, when time.Time, do func() error) {
	m.work.Go(func() {
		timer := time.NewTimer(time.Until(when))
		defer timer.Stop()
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		if err := patiently(ctx, do); err != nil {
			m.mu.Lock()
			m.err = errors.Join(m.err, err)
			m.mu.Unlock()
		}
	})
}

func (m *mischief) optOut(ctx context.Context, person, category, channel string) error {
	off := false
	w, err := m.engine.ChangePreferences(ctx, project, person, []belfry.PreferenceChange{{Category: category, Channel: channel, On: &off, Source: "user"}}, false)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.optOuts = append(m.optOuts, optOut{person, category, channel, time.Now(), w.InFlight})
	return nil
}

func (m *mischief) cancel(ctx context.Context, f store.Filter) error {
	c, err := m.engine.Cancel(ctx, f, false)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cancels = append(m.cancels, withdrawal{time.Now(), c})
	return nil
}
