package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"belfry"
	"belfry/internal/pgtest"
	"belfry/store"
	"belfry/store/postgres"
)

// BenchmarkLife is a notification's whole life in the store, in batches of a thousand: enqueued, claimed,
// its facts read, armed and settled. The parts are reported beside it.
func BenchmarkLife(b *testing.B) {
	const batch = 1000
	s, err := postgres.Open(b.Context(), pgtest.New(b), postgres.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	must := func(err error) {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
	}
	ctx := b.Context()
	seq := 0
	id := func() belfry.ID { seq++; return belfry.MakeID(morning, 1, 0) + belfry.ID(seq) }
	must(s.PutCategory(ctx, belfry.Category{Project: "shop", Name: "news", Channels: []string{"email"}}))
	for i := range batch {
		who := fmt.Sprint("r", i)
		_, err := s.PutRecipient(ctx, morning, belfry.Recipient{Project: "shop", ID: who, Zone: "UTC"})
		must(err)
		_, err = s.Register(ctx, morning, "shop", id(), belfry.Registration{Recipient: who, Channel: "email", Address: belfry.Secret(who)})
		must(err)
	}
	var spent [5]time.Duration
	payload := make([]byte, 256)
	lease := store.Owner{ID: id(), Lease: morning.Add(time.Minute)}
	lives := 0
	for b.Loop() {
		at := time.Now()
		lap := func(part int) { spent[part] += time.Since(at); at = time.Now() }
		entries := make([]store.Entry, batch)
		for i := range entries {
			entries[i] = store.Entry{Queue: "email", Notification: belfry.Notification{
				ID: id(), Project: "shop", Recipient: fmt.Sprint("r", i), Category: "news", Subject: "kettle", Data: []byte(`{"price":1980}`),
				CreatedAt: morning, Due: morning, Deadline: morning.Add(time.Hour), Lane: belfry.Normal,
			}}
		}
		_, err := s.Enqueue(ctx, entries, true)
		must(err)
		lap(0)
		claims, err := s.Claim(ctx, morning, lease, []store.Take{{Claim: id(), Queue: "email", Lane: belfry.Normal, Project: "shop", Limit: batch}})
		must(err)
		lap(1)
		c := claims[0]
		facts, err := s.Facts(ctx, c.Items)
		must(err)
		lap(2)
		a := store.Arm{Claim: c, Owner: lease, Now: morning, Known: []string{"email"}}
		for i, item := range c.Items {
			d := belfry.Plan(item.Notification, facts[i], 0, 0, a.Known, morning).Deliveries[0]
			a.Steps = append(a.Steps, store.Step{Stage: 1, Tries: []store.Try{{Delivery: d, Payload: payload, Send: true}}})
		}
		armed, err := s.Arm(ctx, a)
		must(err)
		lap(3)
		list := make([]store.Settlement, len(armed))
		for i, x := range armed {
			list[i] = store.Settlement{Claim: c.ID, Notification: c.Items[x.Step].Notification, Delivery: x.Delivery, Endpoint: x.Endpoint, Answer: belfry.Answer{Outcome: belfry.OutcomeAccepted}, Now: morning}
		}
		_, err = s.Settle(ctx, list)
		must(err)
		lap(4)
		lives += len(list)
	}
	if lives != b.N*batch {
		b.Fatalf("%d lives in %d batches", lives, b.N)
	}
	for i, name := range []string{"enqueue", "claim", "facts", "arm", "settle"} {
		b.ReportMetric(float64(spent[i].Microseconds())/float64(lives), name+"-µs/life")
	}
	b.ReportMetric(float64(lives)/b.Elapsed().Seconds(), "lives/s")
}
