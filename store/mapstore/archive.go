package mapstore

import (
	"cmp"
	"context"
	"slices"
	"time"

	"belfry"
	"belfry/store"
)

func (s *Store) Notification(ctx context.Context, project string, id belfry.ID) (story store.Story, err error) {
	err = s.tx(ctx, func() error {
		r, ok := s.rows.get(id)
		if !ok || r.Project != project && !s.is(ReadsIgnoreTheProject) {
			return notFound("notification")
		}
		story = store.Story{Summary: s.summary(r), Duplicates: r.duplicates, Events: r.events}
		if who, ok := s.recipients.get(named{r.Project, r.Recipient}); ok {
			story.Recipient = &who
		}
		for _, d := range s.deliveriesOf(id) {
			e, _ := s.endpointOf(d.Delivery)
			story.Deliveries = append(story.Deliveries, store.DeliveryStory{Delivery: d.Delivery, EndedAt: d.endedAt, Endpoint: e})
		}
		return nil
	})
	return story, err
}

// summary tells where a notification stands. One that is open is sent when one of its deliveries is, else
// sending when it has any or a worker holds it.
func (s *Store) summary(r row) store.Summary {
	sum := store.Summary{Notification: r.Notification, State: r.state, Reason: r.reason, EndedAt: r.endedAt}
	if r.state != "" {
		return sum
	}
	sum.State = belfry.Scheduled
	ds := s.deliveriesOf(r.ID)
	for _, it := range append(itemsOf(ds), item{r.ID, 0}) {
		p, stands := s.places.get(it)
		if len(ds) > 0 || stands && p.claim != 0 {
			sum.State = belfry.Sending
		}
		if stands && p.claim == 0 && (sum.Waits.IsZero() || p.due.Before(sum.Waits)) {
			sum.Waits = p.due
		}
	}
	if slices.ContainsFunc(ds, func(d delivery) bool { return d.State == belfry.Sent }) {
		sum.State = belfry.Sent
	}
	return sum
}

func itemsOf(ds []delivery) (items []item) {
	for _, d := range ds {
		items = append(items, item(d.ID))
	}
	return items
}

func (s *Store) matches(f store.Filter, r row) bool {
	sum := s.summary(r)
	return (f.Project == r.Project || s.is(ReadsIgnoreTheProject)) &&
		(f.ID == 0 || f.ID == r.ID) &&
		(f.Recipient == "" || f.Recipient == r.Recipient) &&
		(f.Category == "" || f.Category == r.Category) &&
		(f.Subject == "" || f.Subject == r.Subject) &&
		(f.State == "" || f.State == sum.State) &&
		(f.Reason == "" || f.Reason == sum.Reason) &&
		(f.Since.IsZero() || !r.CreatedAt.Before(f.Since)) &&
		(f.Until.IsZero() || r.CreatedAt.Before(f.Until))
}

func (s *Store) Notifications(ctx context.Context, f store.Filter, before belfry.ID, limit int) (list []store.Summary, next belfry.ID, err error) {
	err = s.tx(ctx, func() error {
		found := s.rows.where(func(r row) bool { return (before == 0 || r.ID < before) && s.matches(f, r) }, byID)
		slices.Reverse(found)
		for _, r := range found[:min(limit, len(found))] {
			list = append(list, s.summary(r))
		}
		if len(found) > limit {
			next = found[limit-1].ID
		}
		return nil
	})
	return list, next, err
}

func (s *Store) Newest(ctx context.Context) (newest belfry.ID, err error) {
	err = s.tx(ctx, func() error {
		for id := range s.rows.rows {
			newest = max(newest, id)
		}
		return nil
	})
	return newest, err
}

func (s *Store) Stats(ctx context.Context, project string) (out store.Stats, err error) {
	mine := func(p string) bool { return project == "" || p == project }
	err = s.tx(ctx, func() error {
		for it, p := range s.places.rows {
			r, _ := s.rows.get(it.Notification)
			switch {
			case !mine(r.Project):
			case p.claim != 0:
				out.Sending++
			default:
				out.Waiting++
				if p.room != store.Parked && (out.Oldest.IsZero() || p.due.Before(out.Oldest)) {
					out.Oldest = p.due
				}
			}
		}
		for key, n := range s.counts.rows {
			if mine(key.project) && n > 0 && !(s.is(StatsForgetTheMissed) && key.state == belfry.Missed) {
				out.Ended = append(out.Ended, store.EndedCount{Project: key.project, State: key.state, Reason: key.reason, Count: n})
			}
		}
		slices.SortFunc(out.Ended, func(a, b store.EndedCount) int {
			return cmp.Or(cmp.Compare(a.Project, b.Project), cmp.Compare(a.State, b.State), cmp.Compare(a.Reason, b.Reason))
		})
		return nil
	})
	return out, err
}

func (s *Store) Purge(ctx context.Context, now time.Time, content, rows time.Time, limit int) (touched int, err error) {
	err = s.tx(ctx, func() error {
		for _, r := range s.rows.where(func(r row) bool { return r.state != "" }, byID) {
			switch {
			case touched == limit:
				return nil
			case r.endedAt.Before(rows):
				s.purge(r)
				touched++
			case r.endedAt.Before(content) && !r.wiped:
				s.wipe(r.ID)
				touched++
			}
		}
		for key, q := range s.requests.rows {
			if touched < limit && !q.answer.Expires.After(now) {
				s.requests.drop(key)
				touched++
			}
		}
		return nil
	})
	return touched, err
}

func (s *Store) purge(r row) {
	for _, d := range s.deliveriesOf(r.ID) {
		s.deliveries.drop(d.ID)
	}
	if s.is(PurgeFreesTheFact) {
		s.facts.drop(named{r.Project, r.fact})
	}
	if s.is(PurgeForgetsTheKey) {
		for key, q := range s.requests.rows {
			if q.answer.ID == r.ID {
				s.requests.drop(key)
			}
		}
	}
	s.rows.drop(r.ID)
}
