package mapstore

import (
	"context"
	"errors"
	"slices"
	"time"

	"belfry"
	"belfry/store"
)

var errRefused = errors.New("mapstore: an entry was refused")

func (s *Store) Enqueue(ctx context.Context, entries []store.Entry, atomic bool) ([]store.Enqueued, error) {
	answers := make([]store.Enqueued, len(entries))
	err := s.tx(ctx, func() error {
		refused := false
		seen := map[named]bool{}
		for i, e := range entries {
			err := s.try(func() (err error) {
				key := named{e.Notification.Project, e.Key.Text}
				if e.Key.Text != "" && seen[key] {
					return &belfry.Error{Code: belfry.CodeKeyDuplicate, Field: "key", Detail: "the batch holds this key twice"}
				}
				seen[key] = true
				answers[i], err = s.enqueue(e)
				return err
			})
			if err != nil {
				answers[i] = store.Enqueued{Err: err}
				refused = true
			}
		}
		if refused && atomic && !s.is(BatchIsHalfWritten) {
			return errRefused
		}
		return nil
	})
	if errors.Is(err, errRefused) {
		err = nil
	}
	return answers, err
}

func (s *Store) enqueue(e store.Entry) (store.Enqueued, error) {
	n := e.Notification
	key := named{n.Project, e.Key.Text}
	if known, ok := s.requests.get(key); ok && e.Key.Text != "" && (known.answer.Expires.After(n.CreatedAt) || s.is(KeyNeverExpires)) && !s.is(KeyIsIgnored) {
		if known.fingerprint != e.Key.Fingerprint && !s.is(FingerprintIsIgnored) {
			return store.Enqueued{}, &belfry.Error{Code: belfry.CodeKeyReused, Field: "key", Detail: "this key was used for another request"}
		}
		known.answer.Replayed = true
		return known.answer, nil
	}
	if e.Inline != nil {
		if err := s.inline(n.CreatedAt, *e.Inline); err != nil {
			return store.Enqueued{}, err
		}
	}
	recipient, ok := s.recipients.get(named{n.Project, n.Recipient})
	if !ok && len(n.To) == 0 {
		return store.Enqueued{}, &belfry.Error{Code: belfry.CodeUnknownRecipient, Field: "recipient", Detail: "no such recipient in this project: make it first"}
	}
	answer := store.Enqueued{ID: n.ID, State: belfry.Scheduled, Due: n.Due, Deadline: n.Deadline, Zone: recipient.Zone}
	r := row{Notification: n, queue: e.Queue}
	if e.Fact != nil {
		var err error
		if r.fact, err = e.Fact(recipient.Zone); err != nil {
			return store.Enqueued{}, err
		}
		fact := named{n.Project, r.fact}
		if first, told := s.facts.get(fact); told && !s.is(FactIsIgnored) {
			answer = s.duplicate(first, answer)
		} else {
			s.facts.put(fact, n.ID)
		}
	}
	if e.Key.Text != "" {
		answer.Expires = e.Key.Expires
		s.requests.put(key, request{e.Key.Fingerprint, answer})
	}
	if !answer.Duplicate {
		s.rows.put(n.ID, r)
		s.places.put(item{n.ID, 0}, place{room: r.queue, due: n.Due})
	}
	return answer, nil
}

// duplicate counts another detection of a fact and answers with the first one. Once that was purged only
// its id is known.
func (s *Store) duplicate(first belfry.ID, answer store.Enqueued) store.Enqueued {
	answer = store.Enqueued{ID: first, Duplicate: true, Zone: answer.Zone}
	if r, ok := s.rows.get(first); ok {
		if !s.is(DuplicatesAreNotCounted) {
			r.duplicates++
		}
		s.rows.put(first, r)
		sum := s.summary(r)
		answer.State, answer.Reason, answer.Due, answer.Deadline = sum.State, sum.Reason, r.Due, r.Deadline
	}
	return answer
}

// inline makes or updates the recipient that came with a notification.
func (s *Store) inline(now time.Time, in store.Inline) error {
	s.putRecipient(now, in.Recipient)
	for i, registration := range in.Registrations {
		if _, err := s.register(now, in.Recipient.Project, in.IDs[i], registration); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) Cancel(ctx context.Context, now time.Time, f store.Filter, dryRun bool, limit int) (c store.Cancelled, err error) {
	err = s.tx(ctx, func() error {
		matching := s.rows.where(func(r row) bool { return s.matches(f, r) }, byID)
		if f.ID != 0 && len(matching) == 0 {
			return notFound("notification")
		}
		for _, r := range matching {
			switch {
			case r.state != "":
				if f.ID != 0 {
					c.Ended = append(c.Ended, r.ID)
				}
			case r.cancel && f.ID == 0: // asked for by an earlier call
			case len(c.Cancelled)+len(c.InFlight) == limit:
				c.More = true
			case s.onTheWire(r.ID):
				c.InFlight = append(c.InFlight, r.ID)
			default:
				c.Cancelled = append(c.Cancelled, r.ID)
			}
		}
		if dryRun {
			return nil
		}
		for _, id := range append(slices.Clip(c.Cancelled), c.InFlight...) {
			s.cancel(id, now)
		}
		return nil
	})
	return c, err
}

func (s *Store) onTheWire(id belfry.ID) bool {
	for _, d := range s.deliveriesOf(id) {
		if d.Armed {
			return true
		}
	}
	return false
}

// cancel ends what of a notification is not on the wire, and asks the rest to stop.
func (s *Store) cancel(id belfry.ID, now time.Time) {
	r, _ := s.rows.get(id)
	if !r.planned {
		s.endPlan(id, belfry.Cancelled, belfry.ReasonByCaller, now)
		return
	}
	for _, d := range s.deliveriesOf(id) {
		if d.State.Ended() {
			continue
		}
		after, done := d.Delivery.CancelNow()
		if s.is(CancelFlipsTheArmed) {
			after.State, after.Reason, after.Claim, after.Armed, done = belfry.Cancelled, belfry.ReasonByCaller, 0, false, true
		}
		if done {
			s.move(after, now)
			continue
		}
		s.deliveries.put(d.ID, delivery{Delivery: after})
		r.cancel = true
		s.rows.put(id, r)
		if !d.Cancel {
			s.event(id, store.Event{At: now, N: d.ID.N, Kind: store.EventCancelWant})
			r, _ = s.rows.get(id)
		}
	}
	s.resolve(id, now)
}
