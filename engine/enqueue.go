package engine

import (
	"cmp"
	"context"
	"strconv"
	"time"

	"belfry"
	"belfry/calendar"
	"belfry/store"
	"belfry/tzdb"
)

// Enqueue takes notifications in. It returns when they are durable. The results are in the order of the
// requests; one that was refused has its error in Err. With atomic, one refused request refuses all.
func (e *Engine) Enqueue(ctx context.Context, requests []store.Request, atomic bool) ([]store.Enqueued, error) {
	entries := make([]store.Entry, len(requests))
	refused := make([]error, len(requests))
	hopeless := 0 // refused, and without a key under which they may have been taken before
	for i, r := range requests {
		entry, err := e.Entry(ctx, r)
		if err != nil && belfry.CodeOf(err) == "" {
			return nil, err
		}
		if refused[i] = err; err != nil {
			// It was taken once, perhaps, when its category was there or its deadline had not passed: the
			// store knows the key, and refuses it otherwise.
			entry = store.Entry{Notification: belfry.Notification{Project: r.Project, CreatedAt: e.now()}}
			if r.Key != "" {
				entry.Key = store.Key{Text: r.Key, Fingerprint: r.Fingerprint}
			} else {
				hopeless++
			}
		}
		entries[i] = entry
	}
	if hopeless > 0 && (atomic || hopeless == len(requests)) {
		out := make([]store.Enqueued, len(requests))
		for i, err := range refused {
			out[i].Err = err
		}
		return out, nil
	}
	out, err := e.store.Enqueue(ctx, entries, atomic)
	if err != nil {
		e.health.storeFailed(err)
		return nil, err
	}
	for i, r := range out {
		switch {
		case refused[i] != nil && !r.Replayed && belfry.CodeOf(r.Err) != belfry.CodeKeyReused:
			out[i] = store.Enqueued{Err: refused[i]}
		case r.Err == nil && !r.Duplicate && !r.Replayed:
			e.hint(r.Due)
		}
	}
	return out, nil
}

// Entry makes the entry of a request, for a store's own transaction (see sqlite.In); Enqueue does it for
// everybody else. It refuses what is wrong with a *belfry.Error that names the field.
func (e *Engine) Entry(ctx context.Context, r store.Request) (store.Entry, error) {
	if r.Category == "" {
		r.Category = "default"
	}
	category, err := e.policies.category(ctx, r.Project, r.Category)
	if err != nil {
		return store.Entry{}, err
	}
	now := e.now()
	if r.LocalTime != "" {
		if r.At, err = e.local(ctx, r); err != nil {
			return store.Entry{}, err
		}
	}
	n, err := belfry.Notify(e.ids.next(), r.Request, category, e.names, now)
	if err != nil {
		return store.Entry{}, err
	}
	for i, t := range n.To {
		if err := e.channels[t.Channel].Check(t.Address, t.Keys); err != nil {
			return store.Entry{}, belfry.In("to."+strconv.Itoa(i), err)
		}
	}
	entry := store.Entry{Notification: n, Queue: n.Queue(category, e.names), Inline: r.Inline}
	if r.Key != "" {
		entry.Key = store.Key{Text: r.Key, Fingerprint: r.Fingerprint, Expires: n.Deadline.Add(e.options.KeepRows)}
	}
	if entry.Inline != nil {
		if err := e.inline(&entry, now); err != nil {
			return store.Entry{}, err
		}
	}
	if n.Once != nil {
		if n.Once.Zone != "" {
			if _, err := tzdb.Load(n.Once.Zone); err != nil {
				return store.Entry{}, belfry.In("once", atField("zone", err))
			}
		}
		entry.Fact = func(zone string) (string, error) { return fact(n, zone) }
	}
	return entry, nil
}

// local is when a wall time happens where the recipient lives; UTC for one without a zone.
func (e *Engine) local(ctx context.Context, r store.Request) (time.Time, error) {
	wall, err := calendar.ParseWall(r.LocalTime)
	if err != nil {
		return wall, err
	}
	zone := ""
	if r.Inline != nil {
		zone = r.Inline.Recipient.Zone
	}
	if zone == "" {
		known, err := e.store.Recipient(ctx, r.Project, r.Recipient)
		if err != nil && belfry.CodeOf(err) != belfry.CodeNotFound {
			return wall, err
		}
		zone = cmp.Or(known.Zone, "UTC")
	}
	loc, err := tzdb.Load(zone)
	if err != nil {
		return wall, atField("recipient.zone", err)
	}
	at, kind := calendar.Instant(wall, loc)
	if kind == calendar.NoDate {
		return at, belfry.Invalid("local_time", "that date does not exist in %s", zone)
	}
	return at, nil
}

// fact names the fact of a notification's once, by its own zone's calendar or the recipient's.
func fact(n belfry.Notification, zone string) (string, error) {
	if n.Once.Zone != "" {
		zone = n.Once.Zone
	}
	loc := time.UTC
	if zone != "" {
		var err error
		if loc, err = tzdb.Load(zone); err != nil {
			return "", err
		}
	}
	return n.Once.Fact(n, loc), nil
}

// atField names the field of an error that has none.
func atField(field string, err error) error {
	if e, ok := err.(*belfry.Error); ok && e.Field == "" {
		return &belfry.Error{Code: e.Code, Field: field, Detail: e.Detail}
	}
	return err
}

func (e *Engine) inline(entry *store.Entry, now time.Time) error {
	in := *entry.Inline
	in.Recipient.Project, in.Recipient.ID = entry.Notification.Project, entry.Notification.Recipient
	if err := e.checkRecipient(&in.Recipient, now); err != nil {
		return belfry.In("recipient", err)
	}
	for i := range in.Registrations {
		in.Registrations[i].Recipient = in.Recipient.ID
		if err := e.checkRegistration(in.Registrations[i]); err != nil {
			return belfry.In("recipient."+in.Registrations[i].Channel, err)
		}
		in.IDs = append(in.IDs, e.ids.next())
	}
	entry.Inline = &in
	return nil
}

// Cancel ends what matches and is not on the wire. A dry run only counts.
func (e *Engine) Cancel(ctx context.Context, f store.Filter, dryRun bool) (store.Cancelled, error) {
	const batch = 1000
	var all store.Cancelled
	defer func() {
		if len(all.Cancelled) > 0 && !dryRun {
			e.Wake() // the next about its subject may go
		}
	}()
	for {
		c, err := e.store.Cancel(ctx, e.now(), f, dryRun, batch)
		all.Cancelled = append(all.Cancelled, c.Cancelled...)
		all.InFlight = append(all.InFlight, c.InFlight...)
		all.Ended = append(all.Ended, c.Ended...)
		all.More = c.More
		if err == nil && f.ID != 0 && len(all.Cancelled)+len(all.InFlight)+len(all.Ended) == 0 {
			return all, belfry.Errorf(belfry.CodeNotFound, "no such notification")
		}
		if err != nil || !c.More || dryRun {
			return all, err
		}
	}
}

// DryRun says what would happen to a request if it were enqueued and due now. Nothing is written.
func (e *Engine) DryRun(ctx context.Context, r store.Request) (store.Forecast, error) {
	entry, err := e.Entry(ctx, r)
	if err != nil {
		return store.Forecast{}, err
	}
	n := entry.Notification
	f := store.Forecast{Due: n.Due, Deadline: n.Deadline}
	if entry.Inline == nil && len(n.To) == 0 {
		if _, err := e.store.Recipient(ctx, n.Project, n.Recipient); belfry.CodeOf(err) == belfry.CodeNotFound {
			return f, &belfry.Error{Code: belfry.CodeUnknownRecipient, Field: "recipient", Detail: "no such recipient: make it first, or give an object with its zone and addresses"}
		} else if err != nil {
			return f, err
		}
	}
	facts, err := e.store.Facts(ctx, []store.Item{{Notification: n}})
	if err != nil {
		return f, err
	}
	if entry.Inline != nil { // as it would be after the enqueue
		facts[0].Recipient = &entry.Inline.Recipient
		for i, g := range entry.Inline.Registrations {
			facts[0].Endpoints = append(facts[0].Endpoints, belfry.Endpoint{
				ID: entry.Inline.IDs[i], Project: n.Project, Recipient: n.Recipient, Channel: g.Channel, App: g.App, Device: g.Device,
				Address: g.Address, Keys: g.Keys, RegisteredAt: n.CreatedAt,
			})
		}
	}
	planned := belfry.Plan(n, facts[0], 0, 0, e.names, e.now())
	f.State, f.Reason, f.Deliveries = planned.State, planned.Reason, planned.Deliveries
	if planned.State != belfry.Sending {
		return f, nil
	}
	return f, e.foresee(ctx, n, facts[0], &f)
}

// foresee asks the recheck and renders, as a send would.
func (e *Engine) foresee(ctx context.Context, n belfry.Notification, facts belfry.Facts, f *store.Forecast) error {
	p := &preparation{e: e, claim: store.Claim{Items: []store.Item{{Notification: n}}}, facts: []belfry.Facts{facts}, fresh: make([]belfry.Verdict, 1)}
	p.steps = []store.Step{{}}
	for _, d := range f.Deliveries {
		p.steps[0].Tries = append(p.steps[0].Tries, store.Try{Delivery: d, Send: true})
	}
	p.recheck(ctx)
	f.Verdict, f.Detail = p.fresh[0].Kind, p.fresh[0].Detail
	if end := p.steps[0].End; end != nil {
		f.State, f.Reason, f.Detail, f.Deliveries = end.State, end.Reason, end.Detail, nil
		return nil
	}
	if wait := p.steps[0].Wait; wait != nil {
		f.State, f.Reason, f.Deliveries = belfry.Scheduled, wait.Reason, nil
		return nil
	}
	p.encode(0)
	failed := 0
	for i, t := range p.steps[0].Tries {
		f.Deliveries[i] = t.Delivery
		if t.Detail != "" {
			f.Detail, failed = t.Detail, failed+1
			f.Deliveries[i].State, f.Deliveries[i].Reason = belfry.Failed, belfry.ReasonBadContent
		}
		f.Deliveries[i].Payload = t.Payload
	}
	if failed == len(f.Deliveries) {
		f.State, f.Reason = belfry.Failed, belfry.ReasonBadContent
	} else if facts.Category.Shadow {
		f.State, f.Reason = belfry.Dropped, belfry.ReasonShadow
	}
	return nil
}
