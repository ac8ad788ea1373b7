package storetest

import (
	"encoding/json"
	"time"

	"belfry"
	"belfry/store"
)

// A change makes an entry other than the plain one.
type change func(*store.Entry)

func to(recipient string) change {
	return func(e *store.Entry) { e.Notification.Recipient = recipient }
}
func of(category string) change { return func(e *store.Entry) { e.Notification.Category = category } }
func about(subject string) change {
	return func(e *store.Entry) { e.Notification.Subject = subject }
}
func in(lane belfry.Lane) change { return func(e *store.Entry) { e.Notification.Lane = lane } }
func queued(queue string) change { return func(e *store.Entry) { e.Queue = queue } }
func project(name string) change { return func(e *store.Entry) { e.Notification.Project = name } }
func due(at time.Time) change {
	return func(e *store.Entry) { e.Notification.Due, e.Notification.Deadline = at, at.Add(lifeTime) }
}
func data(text string) change {
	return func(e *store.Entry) { e.Notification.Data = json.RawMessage(text) }
}
func via(channels ...string) change {
	return func(e *store.Entry) { e.Notification.Channels = channels }
}
func aimed(targets ...belfry.Target) change {
	return func(e *store.Entry) { e.Notification.To = targets }
}

// keyed gives the entry an idempotency key for a request that body tells apart.
func keyed(text, body string) change {
	return func(e *store.Entry) {
		e.Key = store.Key{Text: text, Expires: e.Notification.CreatedAt.Add(24 * time.Hour)}
		copy(e.Key.Fingerprint[:], body)
	}
}

// once gives the entry a fact.
func once(o belfry.Once) change {
	return func(e *store.Entry) {
		e.Notification.Once = &o
		e.Fact = func(zone string) (string, error) {
			loc, err := time.LoadLocation(zone)
			if err != nil {
				return "", belfry.Invalid("once.zone", "unknown")
			}
			return o.Fact(e.Notification, loc), nil
		}
	}
}

// entry is a notification for ann, due now, that waits to be planned onto several channels.
func (w *worker) entry(changes ...change) store.Entry {
	e := store.Entry{Notification: belfry.Notification{
		ID: w.id(), Project: shop, Recipient: ann, Category: news, Subject: "kettle", Data: json.RawMessage(`{"price":1980}`),
		CreatedAt: w.now, Due: w.now, Deadline: w.now.Add(lifeTime), Lane: belfry.Normal,
	}}
	for _, c := range changes {
		c(&e)
	}
	return e
}
