package storetest

import (
	"time"

	"belfry"
	"belfry/store"
)

var endpoints = cases{
	{"RegisterIsIdempotent", func(w *worker) {
		first := w.register(ann, "webpush", "token", "phone")
		w.is(first.Created && first.Replaced == 0, "first registration: %+v", first)
		w.after(time.Minute)
		again := w.register(ann, "webpush", "token", "phone")
		w.is(!again.Created && again.Endpoint.ID == first.Endpoint.ID && again.Replaced == 0, "second registration: %+v", again)
		w.is(again.Endpoint.RegisteredAt.Equal(w.now) && again.Endpoint.LastSeen.Equal(w.now), "it does not say when: %+v", again.Endpoint)
		w.endpointsOf(ann, 1)
	}},
	{"AnEndpointIsKeptAsItWas", func(w *worker) {
		r := belfry.Registration{Recipient: ann, Channel: "webpush", App: "ios", Device: "phone", Address: "https://push.example/1", Keys: belfry.Keys{"auth": "x", "p256dh": "y"}}
		id := w.id()
		got, err := w.Register(w.ctx, w.now, shop, id, r)
		w.ok(err)
		want := belfry.Endpoint{ID: id, Project: shop, Recipient: ann, Channel: r.Channel, App: r.App, Device: r.Device, Address: r.Address, Keys: r.Keys, RegisteredAt: w.now, LastSeen: w.now}
		w.same(got, store.Registered{Endpoint: want, Created: true}, "registered")
		w.same(w.endpointNow(ann, id), want, "endpoint")
		r.Keys = belfry.Keys{"auth": "new"}
		_, err = w.Register(w.ctx, w.now, shop, w.id(), r)
		w.ok(err)
		w.same(w.endpointNow(ann, id).Keys, r.Keys, "keys of the second registration")
		_, err = w.Register(w.ctx, w.now, shop, w.id(), belfry.Registration{Recipient: "nobody", Channel: "email", Address: "x"})
		w.refused(err, belfry.CodeNotFound)
		_, err = w.Endpoints(w.ctx, shop, "nobody")
		w.refused(err, belfry.CodeNotFound)
	}},
	{"ARetiredEndpointDoesNotComeBack", func(w *worker) {
		e := w.endpoint(ann, "webpush", "token", "phone")
		w.retire(e)
		again := w.register(ann, "webpush", "token", "phone")
		w.is(again.Created && again.Endpoint.ID != e.ID, "a retired endpoint came back: %+v", again)
		w.is(!w.endpointNow(ann, e.ID).Active(), "the old row is active again")
		w.endpointsOf(ann, 2)
	}},
	{"NewTokenRetiresTheOldOne", func(w *worker) {
		old := w.endpoint(ann, "webpush", "old", "phone")
		tablet := w.endpoint(ann, "webpush", "else", "tablet")
		got := w.register(ann, "webpush", "new", "phone")
		w.is(got.Created && got.Replaced == old.ID, "registered: %+v", got)
		now := w.endpointNow(ann, old.ID)
		w.is(!now.Active() && now.Reason == belfry.ReasonEndpointReplaced, "the old endpoint is %+v", now)
		w.is(w.endpointNow(ann, tablet.ID).Active(), "the token of another device was retired")
	}},
	{"AnotherAppOrMediumIsAnotherDevice", func(w *worker) {
		w.endpoint(ann, "webpush", "1", "phone")
		_, err := w.Register(w.ctx, w.now, shop, w.id(), belfry.Registration{Recipient: ann, Channel: "webpush", App: "beta", Device: "phone", Address: "2"})
		w.ok(err)
		w.endpoint(ann, "sms", "+81", "phone")
		w.endpoint(ann, "webpush", "3")
		w.endpoint(ann, "webpush", "4")
		w.active(ann, 5)
		w.endpoint(ann, "fcm", "5", "phone") // push too
		w.active(ann, 5)
	}},
	{"NewTokenTakesOverWhatWaits", func(w *worker) {
		w.endpoint(ann, "webpush", "old", "phone")
		id := w.tell()
		w.settle(w.sendOne(""), belfry.OutcomeNotSent)
		w.after(time.Second)
		got := w.register(ann, "webpush", "new", "phone")
		w.same(got.Withdrawn, store.Withdrawn{Withdrawn: 1}, "withdrawn")
		w.delivery(id, 1, belfry.Dropped, belfry.ReasonEndpointReplaced)
		d := w.delivery(id, 2, belfry.Pending, "")
		w.is(d.Endpoint == got.Endpoint.ID && d.Channel == "webpush" && d.Device == "phone" && d.Next.Equal(w.now) && len(d.Attempts) == 0, "the successor is %+v, want one for %v now", d, got.Endpoint.ID)
		w.stands(id, belfry.Sending, "")
		w.settle(w.sendOne("webpush"), belfry.OutcomeAccepted)
		w.stands(id, belfry.Sent, "")
	}},
	{"WhatMayHaveArrivedHasNoSuccessor", func(w *worker) {
		w.endpoint(ann, "webpush", "old", "phone")
		id := w.tell()
		w.settle(w.sendOne(""), belfry.OutcomeAmbiguous)
		w.register(ann, "webpush", "new", "phone")
		w.stands(id, belfry.Unknown, belfry.ReasonEndpointReplaced)
		w.is(len(w.story(id).Deliveries) == 1, "it may arrive twice:\n%s", tale(w.story(id)))
	}},
	{"WhatIsOnTheWireStaysThere", func(w *worker) {
		w.endpoint(ann, "webpush", "old", "phone")
		id := w.tell()
		t := w.sendOne("")
		got := w.register(ann, "webpush", "new", "phone")
		w.same(got.Withdrawn, store.Withdrawn{InFlight: []belfry.DeliveryID{t.Armed.Delivery.ID}}, "withdrawn")
		w.settle(t, belfry.OutcomeAccepted)
		w.stands(id, belfry.Sent, "")
		w.is(len(w.story(id).Deliveries) == 1, "it went to the new token too")
	}},
	{"ADeviceIsNotToldTwice", func(w *worker) {
		w.endpoint(ann, "webpush", "old", "phone")
		loose := w.endpoint(ann, "webpush", "new")
		id := w.tell()
		for _, t := range w.send("") {
			w.settle(t, belfry.OutcomeNotSent)
		}
		got := w.register(ann, "webpush", "new", "phone")
		w.is(got.Endpoint.ID == loose.ID && !got.Created, "registered %+v", got)
		w.is(len(w.story(id).Deliveries) == 2, "an endpoint that had its delivery got another:\n%s", tale(w.story(id)))
	}},
	{"TokenMovesToItsNewOwner", func(w *worker) {
		w.recipient(bob)
		old := w.endpoint(ann, "webpush", "token", "phone")
		id := w.tell()
		w.settle(w.sendOne(""), belfry.OutcomeNotSent)
		got := w.register(bob, "webpush", "token") // no device: the token itself moves
		w.is(got.Created && got.Endpoint.ID != old.ID && got.Replaced == old.ID, "registered %+v", got)
		w.same(got.Withdrawn, store.Withdrawn{Withdrawn: 1}, "withdrawn")
		w.is(!w.endpointNow(ann, old.ID).Active(), "the old owner keeps the token")
		w.stands(id, belfry.Dropped, belfry.ReasonEndpointRetired)
		w.is(len(w.story(id).Deliveries) == 1, "ann's notification went to bob")
	}},
	{"ADeviceThatChangesHandsTakesNothingAlong", func(w *worker) {
		w.recipient(bob)
		old := w.endpoint(ann, "webpush", "hers", "phone")
		id := w.tell()
		w.settle(w.sendOne(""), belfry.OutcomeNotSent)
		got := w.register(bob, "webpush", "his", "phone")
		w.is(got.Replaced == old.ID && !w.endpointNow(ann, old.ID).Active(), "registered %+v", got)
		w.stands(id, belfry.Dropped, belfry.ReasonEndpointRetired)
		w.is(len(w.story(id).Deliveries) == 1, "ann's notification went to bob")
	}},
	{"AddressesNeverMove", func(w *worker) {
		w.recipient(bob)
		for _, channel := range []string{"email", "sms", "webhook"} {
			hers := w.endpoint(ann, channel, "shared")
			his := w.register(bob, channel, "shared")
			w.is(his.Created && his.Replaced == 0 && his.Endpoint.ID != hers.ID, "%s: registered %+v", channel, his)
			w.is(w.endpointNow(ann, hers.ID).Active(), "%s: the address moved", channel)
		}
	}},
	{"ArmSeesThatAnEndpointMoved", func(w *worker) {
		w.recipient(bob)
		w.endpoint(ann, "webpush", "token", "phone")
		id := w.tell()
		a := w.prepare(w.claim(""))
		w.register(bob, "webpush", "token", "tablet")
		w.is(len(w.arm(a)) == 0, "ann's notification was armed for bob's phone")
		w.stands(id, belfry.Dropped, belfry.ReasonEndpointRetired)
	}},
	{"AnotherProjectsTokenIsAnother", func(w *worker) {
		w.inProject("other")
		e := w.endpoint(ann, "webpush", "token", "phone")
		got, err := w.Register(w.ctx, w.now, "other", w.id(), belfry.Registration{Recipient: ann, Channel: "webpush", Address: "token", Device: "phone"})
		w.ok(err)
		w.is(got.Created && got.Replaced == 0, "registered %+v", got)
		w.is(w.endpointNow(ann, e.ID).Active(), "another project took the token")
	}},
}

// endpointsOf wants a recipient to have so many endpoints, retired ones among them.
func (w *worker) endpointsOf(recipient string, want int) []belfry.Endpoint {
	w.Helper()
	list, err := w.Endpoints(w.ctx, shop, recipient)
	w.ok(err)
	w.is(len(list) == want, "%s has %d endpoints, want %d", recipient, len(list), want)
	return list
}

// active wants a recipient to have so many endpoints that may be sent to.
func (w *worker) active(recipient string, want int) {
	w.Helper()
	list, err := w.Endpoints(w.ctx, shop, recipient)
	w.ok(err)
	n := 0
	for _, e := range list {
		if e.Active() {
			n++
		}
	}
	w.is(n == want, "%s has %d active endpoints, want %d", recipient, n, want)
}
