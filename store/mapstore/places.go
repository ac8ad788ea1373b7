package mapstore

import (
	"cmp"
	"slices"
	"time"

	"belfry"
	"belfry/store"
)

// item is what stands somewhere while it is open: a delivery or, with N 0, a notification to be planned.
type item belfry.DeliveryID

// place is where an item stands: held by a claim, or waiting in a room.
type place struct {
	claim  belfry.ID // 0: it waits
	room   string    // the queue that it waits in, or was taken from
	due    time.Time
	parked belfry.Reason // why, when the room is Parked
}

// claim is a worker's hold; what it holds says so itself.
type claim struct {
	id    belfry.ID
	owner belfry.ID
	lease time.Time
	alone bool
}

func byID(a, b row) int { return cmp.Compare(a.ID, b.ID) }

func isOpen(d delivery) bool { return !d.State.Ended() }

// deliveriesOf lists the deliveries of a notification in the order of their numbers.
func (s *Store) deliveriesOf(id belfry.ID) []delivery {
	return s.deliveries.where(func(d delivery) bool { return d.ID.Notification == id },
		func(a, b delivery) int { return cmp.Compare(a.ID.N, b.ID.N) })
}

// home is the queue that an item waits in when nothing holds it.
func (s *Store) home(it item) string {
	if it.N == 0 {
		r, _ := s.rows.get(it.Notification)
		return r.queue
	}
	d, _ := s.deliveries.get(belfry.DeliveryID(it))
	return d.Channel
}

func (s *Store) event(id belfry.ID, e store.Event) {
	r, _ := s.rows.get(id)
	r.events = append(slices.Clip(r.events), e)
	s.rows.put(id, r)
}

// move puts a delivery where its state says that it stands. Whoever moves one calls resolve afterwards.
func (s *Store) move(d belfry.Delivery, now time.Time) {
	it := item(d.ID)
	was, _ := s.places.get(it)
	moved := delivery{Delivery: d}
	switch {
	case d.State.Ended():
		s.places.drop(it)
		if before, ok := s.deliveries.get(d.ID); ok && before.State.Ended() {
			moved.endedAt = before.endedAt
		} else {
			moved.endedAt = now
		}
		if r, _ := s.rows.get(d.ID.Notification); r.Sensitive && !s.is(SensitiveIsKept) {
			moved.Payload = nil
		}
	case d.State == belfry.Sending:
		was.claim = d.Claim
		s.places.put(it, was)
	case d.Reason == belfry.ReasonPaused:
		s.park(it, d.Reason, d.Next, now)
	default:
		s.places.put(it, place{room: d.Channel, due: d.Next})
	}
	s.deliveries.put(d.ID, moved)
}

// park moves an item aside until then.
func (s *Store) park(it item, why belfry.Reason, until, now time.Time) {
	s.places.put(it, place{room: store.Parked, due: until, parked: why})
	s.event(it.Notification, store.Event{At: now, N: it.N, Kind: store.EventHeld, Reason: why, Until: until})
}

// wake brings a parked item back to its own queue, to be judged again: due now, though not before its own
// due time, whatever the clock says.
func (s *Store) wake(q queued, now time.Time) {
	r, _ := s.rows.get(q.it.Notification)
	due := q.due
	if now.Before(due) {
		due = now
	}
	if due.Before(r.Due) {
		due = r.Due
	}
	if q.it.N == 0 {
		r.wait.Reason = ""
		s.rows.put(r.ID, r)
	} else {
		d, _ := s.deliveries.get(belfry.DeliveryID(q.it))
		d.Next, d.Reason = due, ""
		s.deliveries.put(d.ID, d)
	}
	s.places.put(q.it, place{room: s.home(q.it), due: due})
}

// resolve settles a notification whose deliveries moved: when none is open it ends, or goes on to the next
// channel of its route.
func (s *Store) resolve(id belfry.ID, now time.Time) {
	r, _ := s.rows.get(id)
	ds := s.deliveriesOf(id)
	if !r.planned || slices.ContainsFunc(ds, isOpen) {
		return
	}
	state, reason := summaryOf(ds)
	switch {
	case len(ds) == 0 || r.state == state && r.reason == reason:
	case r.state == "" && s.goesOn(r, state):
		r.planned, r.queue, r.wait = false, "", store.Wait{Stage: r.stage, From: len(ds)}
		s.rows.put(id, r)
		s.places.put(item{id, 0}, place{room: r.queue, due: now})
		s.event(id, store.Event{At: now, Kind: store.EventNextStage})
	default:
		s.end(id, state, reason, now)
	}
}

// goesOn says that a notification whose deliveries ended like this takes the next channel of its route.
func (s *Store) goesOn(r row, state belfry.State) bool {
	return r.goesOn && (!r.cancel || s.is(CancelledGoesOn)) && (!r.erased || s.is(ErasedGoesOn)) &&
		(state == belfry.Failed || state == belfry.Dropped && !s.is(NextChannelOnlyAfterFailure))
}

// summaryOf is the state of a notification whose deliveries ended like this, and the reason of the first
// that ended so.
func summaryOf(ds []delivery) (belfry.State, belfry.Reason) {
	states := make([]belfry.State, len(ds))
	for i, d := range ds {
		states[i] = d.State
	}
	state := belfry.NotificationState(states)
	first := slices.Index(states, state)
	if first < 0 {
		return state, ""
	}
	return state, ds[first].Reason
}

// endPlan ends a notification that was to be planned. One that has had deliveries ends as they did.
func (s *Store) endPlan(id belfry.ID, state belfry.State, reason belfry.Reason, now time.Time) {
	r, _ := s.rows.get(id)
	r.planned = true
	s.rows.put(id, r)
	s.places.drop(item{id, 0})
	if ds := s.deliveriesOf(id); len(ds) > 0 {
		state, reason = summaryOf(ds)
	}
	s.end(id, state, reason, now)
}

// end writes the end of a notification, and does what hangs on it.
func (s *Store) end(id belfry.ID, state belfry.State, reason belfry.Reason, now time.Time) {
	r, _ := s.rows.get(id)
	if r.state != "" {
		s.count(r, -1)
	}
	if r.state, r.reason = state, reason; r.endedAt.IsZero() {
		r.endedAt = now
	}
	s.rows.put(id, r)
	s.count(r, 1)
	if fact := (named{r.Project, r.fact}); r.fact != "" && s.releases(r) {
		if teller, _ := s.facts.get(fact); teller == id {
			s.facts.drop(fact)
		}
	}
	if key := subjectOf(r.Notification); s.flightOf(key) == id && !s.is(CooldownNeverEnds) {
		s.flights.drop(key)
		s.wakeSubject(key, now)
	}
	if r.Sensitive && !s.is(SensitiveIsKept) {
		s.wipe(id)
	}
}

func (s *Store) releases(r row) bool {
	switch {
	case s.is(FactIsNeverFreed):
		return false
	case s.is(UnknownFreesTheFact) && r.state == belfry.Unknown:
		return true
	}
	return r.Once.Releases(r.state)
}

func (s *Store) count(r row, by int) {
	key := counted{r.Project, r.state, r.reason}
	n, _ := s.counts.get(key)
	s.counts.put(key, n+by)
}

func subjectOf(n belfry.Notification) subject {
	return subject{n.Project, n.Recipient, n.Category, n.Subject}
}

func (s *Store) flightOf(key subject) belfry.ID {
	id, _ := s.flights.get(key)
	return id
}

// wakeSubject wakes what waited for the notification in flight to end.
func (s *Store) wakeSubject(key subject, now time.Time) {
	for _, q := range s.standing(func(it item, p place) bool {
		r, _ := s.rows.get(it.Notification)
		return p.claim == 0 && p.parked == belfry.ReasonHeldByCooldown && subjectOf(r.Notification) == key
	}) {
		s.wake(q, now)
	}
}

// wipe forgets the content of a notification.
func (s *Store) wipe(id belfry.ID) {
	r, _ := s.rows.get(id)
	r.Data, r.wiped = nil, true
	s.rows.put(id, r)
	for _, d := range s.deliveriesOf(id) {
		d.Payload = nil
		s.deliveries.put(d.ID, d)
	}
}
