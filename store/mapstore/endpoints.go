package mapstore

import (
	"cmp"
	"context"
	"time"

	"belfry"
	"belfry/store"
)

func (s *Store) Register(ctx context.Context, now time.Time, project string, id belfry.ID, r belfry.Registration) (out store.Registered, err error) {
	err = s.tx(ctx, func() error {
		out, err = s.register(now, project, id, r)
		return err
	})
	return out, err
}

func (s *Store) register(now time.Time, project string, id belfry.ID, r belfry.Registration) (out store.Registered, err error) {
	if _, ok := s.recipients.get(named{project, r.Recipient}); !ok {
		return out, notFound("recipient")
	}
	e := belfry.Endpoint{
		ID: id, Project: project, Recipient: r.Recipient, Channel: r.Channel, App: r.App, Device: r.Device,
		Address: r.Address, Keys: r.Keys, RegisteredAt: now, LastSeen: now,
	}
	out.Created = true
	var replaced []belfry.Endpoint
	for _, old := range s.endpoints.where(belfry.Endpoint.Active, endpointOrder) {
		switch {
		case old.Project != project:
		case old.Channel == r.Channel && old.Address == r.Address && old.Recipient == r.Recipient:
			e.ID, e.Device, out.Created = old.ID, cmp.Or(r.Device, old.Device), false
			if len(r.Keys) == 0 {
				e.Keys = old.Keys
			}
		case old.Channel == r.Channel && old.Address == r.Address && s.moves(r.Channel), // it has a new owner
			r.Device != "" && old.Device == r.Device && old.App == r.App && belfry.MediumOf(old.Channel) == belfry.MediumOf(r.Channel):
			replaced = append(replaced, old)
		}
	}
	s.endpoints.put(e.ID, e)
	for _, old := range replaced {
		out.Replaced = old.ID
		s.replace(&out.Withdrawn, old, e, now)
	}
	out.Endpoint = e
	return out, nil
}

func (s *Store) moves(channel string) bool {
	switch {
	case s.is(TokenStaysWithItsOldOwner):
		return false
	case s.is(EveryAddressMoves):
		return true
	}
	return belfry.MediumOf(channel).Moves()
}

// replace retires an endpoint that another takes the place of. What waited for it goes on to the new one
// when that reaches the same person.
func (s *Store) replace(w *store.Withdrawn, old, new belfry.Endpoint, now time.Time) {
	s.retire(old, belfry.ReasonEndpointReplaced, now)
	why := belfry.ReasonEndpointRetired
	if old.Recipient == new.Recipient {
		why = belfry.ReasonEndpointReplaced
	}
	to := func(d delivery) bool { return isOpen(d) && d.Endpoint == old.ID && d.Target == 0 }
	for _, d := range s.deliveries.where(to, byNumber) {
		if why == belfry.ReasonEndpointReplaced && !d.Armed && (!tainted(d.Delivery) || s.is(TaintedIsHandedOn)) {
			s.handOn(d.Delivery, new, now)
		}
		s.withdrawOne(w, d.Delivery, why, now)
	}
}

func tainted(d belfry.Delivery) bool {
	for _, a := range d.Attempts {
		if !a.Outcome.Definite() {
			return true
		}
	}
	return false
}

// handOn plans the successor of a delivery, to the endpoint that took the place of its own.
func (s *Store) handOn(d belfry.Delivery, to belfry.Endpoint, now time.Time) {
	r, _ := s.rows.get(d.ID.Notification)
	all := s.deliveriesOf(r.ID)
	for _, other := range all {
		if other.Endpoint == to.ID && !s.is(DeviceIsToldTwice) {
			return // it goes there anyway
		}
	}
	if len(all) == belfry.MaxDeliveries || s.is(NewTokenHasNoSuccessor) {
		return
	}
	s.move(belfry.Delivery{
		ID: belfry.DeliveryID{Notification: r.ID, N: len(all) + 1}, State: belfry.Pending, Mode: d.Mode,
		Channel: to.Channel, Endpoint: to.ID, Device: to.Device, Next: now, Deadline: d.Deadline,
	}, now)
}

func (s *Store) Endpoints(ctx context.Context, project, recipient string) (list []belfry.Endpoint, err error) {
	err = s.tx(ctx, func() error {
		if _, ok := s.recipients.get(named{project, recipient}); !ok {
			return notFound("recipient")
		}
		list = s.endpoints.where(func(e belfry.Endpoint) bool { return e.Project == project && e.Recipient == recipient }, endpointOrder)
		return nil
	})
	return list, err
}

func (s *Store) Retire(ctx context.Context, now time.Time, project, recipient string, id belfry.ID, why belfry.Reason) (w store.Withdrawn, err error) {
	err = s.tx(ctx, func() error {
		e, ok := s.endpoints.get(id)
		if !ok || e.Project != project || e.Recipient != recipient {
			return notFound("endpoint")
		}
		if e.Active() {
			s.retire(e, why, now)
			w = s.withdraw(now, project, recipient)
		}
		return nil
	})
	return w, err
}

// retire ends an endpoint, once.
func (s *Store) retire(e belfry.Endpoint, why belfry.Reason, now time.Time) {
	if e.Active() {
		e.RetiredAt, e.Reason = now, why
		s.endpoints.put(e.ID, e)
	}
}
