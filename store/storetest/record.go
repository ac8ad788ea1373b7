package storetest

import (
	"fmt"
	"strings"
	"time"

	"belfry"
	"belfry/store"
)

var records = cases{
	{"PingAnswers", func(w *worker) { w.ok(w.Ping(w.ctx)) }},
	{"NothingIsTakenAfterClose", func(w *worker) {
		w.ok(w.Close())
		w.is(w.Ping(w.ctx) != nil, "a closed store answers")
		_, err := w.Enqueue(w.ctx, []store.Entry{w.entry()}, true)
		w.is(err != nil, "a closed store takes notifications")
		w.ok(w.Close())
	}},
	{"ErrorsHoldNoSecret", func(w *worker) {
		const secret = "https://push.example/secret-token"
		e := w.endpoint(ann, "webpush", secret)
		w.suppress(e)
		_, unknown := w.Register(w.ctx, w.now, shop, w.id(), belfry.Registration{Recipient: "nobody", Channel: "webpush", Address: secret})
		_, refused := w.Enqueue(w.ctx, []store.Entry{w.entry(to("nobody"))}, true)
		_, retired := w.Retire(w.ctx, w.now, "other", ann, e.ID, belfry.ReasonEndpointRetired)
		for _, err := range []error{unknown, refused, retired, w.Unsuppress(w.ctx, "other", "webpush", secret)} {
			w.is(err == nil || !strings.Contains(err.Error(), "secret-token"), "an error names an address")
		}
		text := fmt.Sprintf("%v %+v", w.endpointNow(ann, e.ID), w.tell(aimed(belfry.Target{Channel: "webpush", Address: secret})))
		w.is(!strings.Contains(text, "secret-token"), "an endpoint prints its address")
	}},
	{"ProjectsAreKept", func(w *worker) {
		w.ok(w.PutProject(w.ctx, w.now, "alpha"))
		w.ok(w.PutProject(w.ctx, w.now, "alpha"))
		got, err := w.Projects(w.ctx)
		w.ok(err)
		w.same(got, []string{"alpha", "default", shop}, "projects")
	}},
	{"RecipientsAreKept", func(w *worker) {
		r := belfry.Recipient{Project: shop, ID: "cy", Zone: "Europe/Paris", ZoneSource: "device", ZoneAsOf: w.now.Add(-time.Hour), Locale: "fr", Attributes: []byte(`{"a":1}`)}
		got, err := w.PutRecipient(w.ctx, w.now, r)
		w.ok(err)
		r.CreatedAt, r.UpdatedAt = w.now, w.now
		w.same(got, r, "what was put")
		w.after(time.Minute)
		_, err = w.PutRecipient(w.ctx, w.now, belfry.Recipient{Project: shop, ID: "cy", Locale: "de"})
		w.ok(err)
		r.Locale, r.UpdatedAt = "de", w.now
		got, err = w.Recipient(w.ctx, shop, "cy")
		w.ok(err)
		w.same(got, r, "after an update that says only the locale")
		_, err = w.PutRecipient(w.ctx, w.now, belfry.Recipient{Project: shop, ID: "cy", Zone: "UTC"})
		w.ok(err)
		got, err = w.Recipient(w.ctx, shop, "cy")
		w.ok(err)
		w.is(got.Zone == "UTC" && got.ZoneSource == "" && got.ZoneAsOf.IsZero(), "another zone kept the source of the old one: %+v", got)
	}},
	{"CategoriesAreKeptAsTheyWerePut", func(w *worker) {
		c := w.category("sales", func(c *belfry.Category) {
			*c = belfry.Category{
				Project: shop, Name: "sales", Channels: []string{"email", "push"}, Route: belfry.RouteFirst, Consent: belfry.OptIn, Lane: belfry.Bulk,
				Delivery: belfry.AtMostOnce, Check: &belfry.CheckPolicy{URL: "https://shop.example/check", OnError: belfry.CheckErrorDrop},
				ExpiresIn: belfry.Duration(time.Hour), Cooldown: belfry.Duration(time.Minute), Retry: policy,
				Sensitive: true, Shadow: true, Templates: belfry.Templates{"title": "Hi"}, UpdatedAt: w.now,
			}
		})
		got, err := w.Category(w.ctx, shop, "sales")
		w.ok(err)
		w.same(got, c, "category")
		got, err = w.Category(w.ctx, shop, "default")
		w.ok(err)
		w.same(got, belfry.DefaultCategory(shop), "the category that is there from the start")
		list, err := w.Categories(w.ctx, shop)
		w.ok(err)
		w.same(names(list), []string{"default", news, "sales"}, "categories")
		w.ok(w.PutCategory(w.ctx, belfry.Category{Project: shop, Name: "sales"}))
		got, err = w.Category(w.ctx, shop, "sales")
		w.ok(err)
		w.same(got, belfry.Category{Project: shop, Name: "sales"}, "what took its place")
		w.ok(w.DeleteCategory(w.ctx, shop, "sales"))
		_, err = w.Category(w.ctx, shop, "sales")
		w.refused(err, belfry.CodeNotFound)
		w.refused(w.DeleteCategory(w.ctx, shop, "sales"), belfry.CodeNotFound)
	}},
	{"KeysAreKept", func(w *worker) {
		k := store.AccessKey{ID: "k1", Project: shop, Name: "ci", Scopes: []string{"send", "read"}, Hash: [32]byte{1, 2, 3}, CreatedAt: w.now}
		w.ok(w.PutKey(w.ctx, k))
		w.ok(w.PutKey(w.ctx, store.AccessKey{ID: "k2", Project: "other", Scopes: []string{"admin"}, CreatedAt: w.now}))
		got, err := w.Key(w.ctx, "k1")
		w.ok(err)
		w.same(got, k, "key")
		w.refused(w.RevokeKey(w.ctx, w.now, shop, "k2"), belfry.CodeNotFound)
		w.after(time.Minute)
		w.ok(w.RevokeKey(w.ctx, w.now, shop, "k1"))
		k.RevokedAt = w.now
		w.after(time.Minute)
		w.ok(w.RevokeKey(w.ctx, w.now, shop, "k1"))
		list, err := w.Keys(w.ctx, shop)
		w.ok(err)
		w.same(list, []store.AccessKey{k}, "keys of the shop")
		_, err = w.Key(w.ctx, "k3")
		w.refused(err, belfry.CodeNotFound)
	}},
	{"SecretsAreMadeOnce", func(w *worker) {
		for _, fresh := range []belfry.Secret{"first", "second", ""} {
			got, err := w.Secret(w.ctx, "vapid", fresh)
			w.ok(err)
			w.is(got.Reveal() == "first", "kept %q", got.Reveal())
		}
		got, err := w.Secret(w.ctx, "other", "third")
		w.ok(err)
		w.is(got.Reveal() == "third", "kept %q under another name", got.Reveal())
	}},
	{"MarksAreListed", func(w *worker) {
		w.endpoint(ann, "email", "a@example.com")
		w.category("sales", nil)
		for _, c := range [][]change{{about("b")}, {about("a")}, {of("sales"), about("a")}} {
			w.tell(c...)
			w.settle(w.sendOne(""), belfry.OutcomeAccepted)
		}
		list := func(category, subject string) (keys []string) {
			got, err := w.Marks(w.ctx, shop, ann, category, subject)
			w.ok(err)
			for _, m := range got {
				keys = append(keys, m.Category+"/"+m.Subject)
			}
			return keys
		}
		w.same(list("", ""), []string{"news/a", "news/b", "sales/a"}, "all marks")
		w.same(list(news, ""), []string{"news/a", "news/b"}, "marks of a category")
		w.same(list("", "a"), []string{"news/a", "sales/a"}, "marks of a subject")
		w.same(list("sales", "a"), []string{"sales/a"}, "one mark")
	}},
	{"ProjectsAreApart", func(w *worker) {
		w.inProject("other")
		e := w.endpoint(ann, "email", "a@example.com")
		id := w.tell()
		w.settle(w.sendOne(""), belfry.OutcomeAccepted)
		waiting := w.tell()
		w.pause(nil)
		_, err := w.Notification(w.ctx, "other", id)
		w.refused(err, belfry.CodeNotFound)
		_, err = w.Retire(w.ctx, w.now, "other", ann, e.ID, belfry.ReasonEndpointRetired)
		w.refused(err, belfry.CodeNotFound)
		_, err = w.Retire(w.ctx, w.now, shop, bob, e.ID, belfry.ReasonEndpointRetired)
		w.refused(err, belfry.CodeNotFound)
		_, err = w.Cancel(w.ctx, w.now, store.Filter{Project: "other", ID: waiting}, false, 10)
		w.refused(err, belfry.CodeNotFound)
		c, err := w.Cancel(w.ctx, w.now, store.Filter{Project: "other"}, false, 10)
		w.ok(err)
		w.same(c, store.Cancelled{}, "cancel of everything in another project")
		w.same(w.switchTo(ann, "none", "*", false), store.Withdrawn{}, "withdrawn")
		p, err := w.Preferences(w.ctx, "other", ann)
		w.ok(err)
		list, err := w.Endpoints(w.ctx, "other", ann)
		w.ok(err)
		marks, err := w.Marks(w.ctx, "other", ann, "", "")
		w.ok(err)
		found, _, err := w.Notifications(w.ctx, store.Filter{Project: "other"}, 0, 10)
		w.ok(err)
		pauses, err := w.Pauses(w.ctx, "other")
		w.ok(err)
		w.is(len(p)+len(list)+len(marks)+len(found)+len(pauses) == 0, "another project sees %v, %v, %v, %v, %v", p, list, marks, found, pauses)
		off := false
		got, err := w.ChangePreferences(w.ctx, w.now, "other", ann, []belfry.PreferenceChange{{Category: "*", Channel: "*", On: &off}}, false)
		w.ok(err)
		w.same(got, store.Withdrawn{}, "an opt-out in another project")
		_, err = w.DeleteRecipient(w.ctx, w.now, "other", ann)
		w.ok(err)
		w.stands(waiting, belfry.Scheduled, "")
		w.is(w.endpointNow(ann, e.ID).Active() && len(w.marks(ann)) == 1, "another project's erasure reached the shop")
	}},
}

func names(list []belfry.Category) (names []string) {
	for _, c := range list {
		names = append(names, c.Name)
	}
	return names
}
