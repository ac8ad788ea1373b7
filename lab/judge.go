package lab

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"belfry"
)

// Verdict is what a kill test came to. Lost, duplicates that are not explained, SentAfterOptout and Dishonest
// are broken promises.
type Verdict struct {
	Kills        int `json:"kills"`
	Acknowledged int `json:"acknowledged"` // enqueues that were answered
	Found        int `json:"found"`        // of those, how many the engine knows at the end
	Lost         int `json:"lost"`         // of those, how many it does not know, or never brought to an end
	Accepted     int `json:"accepted"`     // messages that receivers accepted
	Duplicates   int `json:"duplicates"`   // of those, how many were not the first of their delivery
	// DuplicatesExplained counts those that may be: an earlier try of a delivery that goes at least once got no
	// answer.
	DuplicatesExplained int `json:"duplicates_explained"`
	// SentAfterOptout counts messages whose try was armed after a change of mind, an opt-out or a cancel, had been
	// answered; and those that the answer should have named as in flight.
	SentAfterOptout int `json:"sent_after_optout"`
	Dishonest       int `json:"dishonest"` // ends and attempts that the receivers' log contradicts
	Unknown         int `json:"unknown"`   // deliveries of which the engine says that it cannot know

	Seed   uint64   `json:"seed"`
	Broken []string `json:"broken,omitempty"` // every broken promise in words, as far as maxBroken
}

const maxBroken = 100

// Kept says that no promise was broken.
func (v Verdict) Kept() bool {
	return v.Lost == 0 && v.Duplicates == v.DuplicatesExplained && v.SentAfterOptout == 0 && v.Dishonest == 0
}

// history is what is known from the outside about a run that has come to rest.
type history struct {
	acks    []ack
	accepts []accept
	minds   []mind
	finals  map[belfry.ID]final // as the API tells them at the end
}

// ack is an enqueue that was answered.
type ack struct {
	key string
	id  belfry.ID
}

// accept is a message that a receiver accepted: it is on its disk.
type accept struct {
	at    time.Time
	id    belfry.DeliveryID
	epoch string // of the attempt
}

// mind is a change of it that was answered: a cancel of one notification, or an opt-out of one recipient from one
// category, until it is revoked.
type mind struct {
	answered time.Time
	inFlight []belfry.DeliveryID

	cancelled belfry.ID // of a cancel that was granted

	recipient, category string    // of an opt-out
	revoked             time.Time // asked for; zero: never
}

// final is a notification as it ended.
type final struct {
	recipient, category string
	state               belfry.State
	deliveries          []finalDelivery
}

type finalDelivery struct {
	id       belfry.DeliveryID
	state    belfry.State
	mode     belfry.Mode
	attempts []attempt
}

type attempt struct {
	epoch   string
	armedAt time.Time
	outcome belfry.Outcome
	lost    bool
}

// judge convicts from the logs alone.
func judge(h history) Verdict {
	j := &judging{history: h, byDelivery: map[belfry.DeliveryID][]accept{}}
	for _, a := range h.accepts {
		j.byDelivery[a.id] = append(j.byDelivery[a.id], a)
	}
	j.acknowledged()
	j.received()
	for id, f := range h.finals {
		j.ended(id, f)
	}
	for _, m := range h.minds {
		j.changed(m)
	}
	slices.Sort(j.Broken)
	return j.Verdict
}

type judging struct {
	history
	Verdict
	byDelivery map[belfry.DeliveryID][]accept
}

func (j *judging) broken(count *int, format string, args ...any) {
	*count++
	if len(j.Broken) < maxBroken {
		j.Broken = append(j.Broken, fmt.Sprintf(format, args...))
	}
}

// acknowledged: what was answered is there, and came to an end; one key made one notification.
func (j *judging) acknowledged() {
	byKey := map[string]belfry.ID{}
	for _, a := range j.acks {
		if was, twice := byKey[a.key]; twice {
			if was != a.id {
				j.broken(&j.Dishonest, "key %s was answered with %v and with %v", a.key, was, a.id)
			}
			continue
		}
		byKey[a.key] = a.id
		j.Acknowledged++
		f, found := j.finals[a.id]
		if found {
			j.Found++
		}
		if !found || !f.state.Ended() {
			j.broken(&j.Lost, "lost: %v was acknowledged and is %s", a.id, cmp.Or(f.state, "not there"))
		}
	}
}

// received: a request stands for one attempt that is on record, and a second acceptance has its reason.
func (j *judging) received() {
	j.Accepted = len(j.accepts)
	for id, accepts := range j.byDelivery {
		d, known := j.delivery(id)
		if !known {
			j.broken(&j.Dishonest, "%v was accepted, and the engine knows no such delivery", id)
		}
		// In the order of the attempts: a request may be overtaken on its way.
		slices.SortStableFunc(accepts, func(a, b accept) int { return cmp.Compare(d.index(a.epoch), d.index(b.epoch)) })
		for i, a := range accepts {
			at := d.index(a.epoch)
			if known && at < 0 {
				j.broken(&j.Dishonest, "%v was accepted with epoch %s, which no attempt has", id, a.epoch)
			}
			if i == 0 {
				continue
			}
			if accepts[i-1].epoch == a.epoch {
				j.broken(&j.Dishonest, "%v was accepted twice with epoch %s: one attempt made two requests", id, a.epoch)
			}
			j.Duplicates++
			if d.mode == belfry.AtLeastOnce && at >= 0 && slices.ContainsFunc(d.attempts[:at], attempt.doubtful) {
				j.DuplicatesExplained++
				continue
			}
			var one int
			j.broken(&one, "duplicate: %v (%s) was accepted again with epoch %s, and nothing explains it", id, d.mode, a.epoch)
		}
	}
}

func (d finalDelivery) index(epoch string) int {
	return slices.IndexFunc(d.attempts, func(t attempt) bool { return t.epoch == epoch })
}

// doubtful says that the engine cannot know what became of the attempt.
func (a attempt) doubtful() bool { return a.lost || !a.outcome.Definite() }

func (j *judging) delivery(id belfry.DeliveryID) (finalDelivery, bool) {
	for _, d := range j.finals[id.Notification].deliveries {
		if d.id == id {
			return d, true
		}
	}
	return finalDelivery{}, false
}

// ended: the receivers' log contradicts neither the ends nor the outcomes.
func (j *judging) ended(id belfry.ID, f final) {
	states := make([]belfry.State, len(f.deliveries))
	for i, d := range f.deliveries {
		states[i] = d.state
		accepts := j.byDelivery[d.id]
		switch d.state {
		case belfry.Sent:
			if len(accepts) == 0 {
				j.broken(&j.Dishonest, "%v is said to be sent, and nobody accepted it", d.id)
			}
		case belfry.Unknown:
			j.Unknown++
			if !slices.ContainsFunc(d.attempts, attempt.doubtful) {
				j.broken(&j.Dishonest, "%v is said to be unknown, and every attempt has its answer", d.id)
			}
		case belfry.Failed, belfry.Dropped, belfry.Missed, belfry.Cancelled:
			if len(accepts) > 0 || slices.ContainsFunc(d.attempts, attempt.doubtful) {
				j.broken(&j.Dishonest, "%v is said to be %s, and was accepted, or may have been", d.id, d.state)
			}
		}
		if i := slices.IndexFunc(d.attempts, attempt.doubtful); d.mode == belfry.AtMostOnce && i >= 0 && i < len(d.attempts)-1 {
			j.broken(&j.Dishonest, "%v goes at most once, and was armed again after a try in doubt", d.id)
		}
		for _, t := range d.attempts {
			accepted := slices.ContainsFunc(accepts, func(a accept) bool { return a.epoch == t.epoch })
			if t.outcome.Definite() && accepted != (t.outcome == belfry.OutcomeAccepted) {
				j.broken(&j.Dishonest, "an attempt of %v is said to be %s; accepted: %v", d.id, t.outcome, accepted)
			}
		}
	}
	if len(states) > 0 && f.state != belfry.NotificationState(states) {
		j.broken(&j.Dishonest, "%v is said to be %s, its deliveries are %v", id, f.state, states)
	}
}

// changed: after the answer to a change of mind nothing more was armed, and what arrived later had been named
// as in flight, or was under way from a worker that was lost.
func (j *judging) changed(m mind) {
	for id, f := range j.finals {
		if m.cancelled != 0 && m.cancelled != id || m.cancelled == 0 && (m.recipient != f.recipient || m.category != f.category) {
			continue
		}
		for _, d := range f.deliveries {
			for _, a := range j.byDelivery[d.id] {
				if why := j.tooLate(m, d, a); why != "" {
					j.broken(&j.SentAfterOptout, "%v was accepted %s, %v after %s was answered", d.id, why, a.at.Sub(m.answered), m)
				}
			}
		}
		if m.cancelled != 0 && f.state != belfry.Cancelled && f.state != belfry.Unknown {
			j.broken(&j.Dishonest, "%v is said to be %s, and a cancel had been granted", id, f.state)
		}
	}
}

// tooLate says in which way an acceptance was too late; "" when it was not.
func (j *judging) tooLate(m mind, d finalDelivery, a accept) string {
	during := func(t time.Time) bool { return t.After(m.answered) && (m.revoked.IsZero() || t.Before(m.revoked)) }
	i := d.index(a.epoch)
	switch {
	case i < 0: // received says so
	case during(d.attempts[i].armedAt):
		return "by an attempt armed after it"
	case during(a.at) && !slices.Contains(m.inFlight, d.id) && !d.attempts[i].doubtful():
		return "although the answer did not name it as in flight"
	}
	return ""
}

func (m mind) String() string {
	if m.cancelled != 0 {
		return fmt.Sprintf("the cancel of %v", m.cancelled)
	}
	return fmt.Sprintf("the opt-out of %s from %s", m.recipient, m.category)
}
