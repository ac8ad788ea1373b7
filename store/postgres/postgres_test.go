package postgres_test

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"belfry"
	"belfry/internal/pgtest"
	"belfry/store"
	"belfry/store/postgres"
	"belfry/store/storetest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

var schemas atomic.Int64

// newSchema names a schema that nobody has used.
func newSchema() string { return fmt.Sprint("belfry ", schemas.Add(1)) }

func open(t *testing.T, url, schema string) *postgres.Store {
	t.Helper()
	s, err := postgres.Open(t.Context(), url, postgres.Options{Schema: schema, Synchronous: "off", Connections: 10})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestStore(t *testing.T) {
	url := pgtest.New(t)
	storetest.RunSample(t, func(t *testing.T) store.Store { return open(t, url, newSchema()) })
}

// nodes are several stores on one schema that carry out calls in turn.
type nodes struct {
	*postgres.Store // for what only reads
	all             []*postgres.Store
	turn            atomic.Int64
}

func openNodes(t *testing.T, url string, n int) *nodes {
	schema := newSchema()
	c := &nodes{}
	for range n {
		c.all = append(c.all, open(t, url, schema))
	}
	c.Store = c.all[0]
	return c
}

func (c *nodes) node() *postgres.Store { return c.all[c.turn.Add(1)%int64(len(c.all))] }

func (c *nodes) Close() (err error) {
	for _, s := range c.all {
		err = s.Close()
	}
	return err
}

func (c *nodes) Enqueue(ctx context.Context, entries []store.Entry, atomic bool) ([]store.Enqueued, error) {
	return c.node().Enqueue(ctx, entries, atomic)
}

func (c *nodes) Cancel(ctx context.Context, now time.Time, f store.Filter, dryRun bool, limit int) (store.Cancelled, error) {
	return c.node().Cancel(ctx, now, f, dryRun, limit)
}

func (c *nodes) Claim(ctx context.Context, now time.Time, owner store.Owner, takes []store.Take) ([]store.Claim, error) {
	return c.node().Claim(ctx, now, owner, takes)
}

func (c *nodes) Facts(ctx context.Context, items []store.Item) ([]belfry.Facts, error) {
	return c.node().Facts(ctx, items)
}

func (c *nodes) Arm(ctx context.Context, a store.Arm) ([]store.Armed, error) {
	return c.node().Arm(ctx, a)
}

func (c *nodes) Settle(ctx context.Context, list []store.Settlement) ([]store.Settled, error) {
	return c.node().Settle(ctx, list)
}

func (c *nodes) Repair(ctx context.Context, now time.Time, policy func(project, category string) belfry.RetryPolicy, limit int) (store.Repaired, error) {
	return c.node().Repair(ctx, now, policy, limit)
}

func (c *nodes) DeleteRecipient(ctx context.Context, now time.Time, project, id string) (store.Withdrawn, error) {
	return c.node().DeleteRecipient(ctx, now, project, id)
}

func (c *nodes) ChangePreferences(ctx context.Context, now time.Time, project, recipient string, changes []belfry.PreferenceChange, replace bool) (store.Withdrawn, error) {
	return c.node().ChangePreferences(ctx, now, project, recipient, changes, replace)
}

func (c *nodes) Register(ctx context.Context, now time.Time, project string, id belfry.ID, r belfry.Registration) (store.Registered, error) {
	return c.node().Register(ctx, now, project, id, r)
}

func (c *nodes) Retire(ctx context.Context, now time.Time, project, recipient string, id belfry.ID, why belfry.Reason) (store.Withdrawn, error) {
	return c.node().Retire(ctx, now, project, recipient, id, why)
}

func (c *nodes) Suppress(ctx context.Context, x belfry.Suppression) (store.Withdrawn, error) {
	return c.node().Suppress(ctx, x)
}

func (c *nodes) PutPause(ctx context.Context, p belfry.Pause) error {
	return c.node().PutPause(ctx, p)
}

func (c *nodes) LiftPause(ctx context.Context, now time.Time, project string, id belfry.ID) error {
	return c.node().LiftPause(ctx, now, project, id)
}

func (c *nodes) Notification(ctx context.Context, project string, id belfry.ID) (store.Story, error) {
	return c.node().Notification(ctx, project, id)
}

// The whole contract, where no two calls in a row meet the same node.
func TestNodesThatTakeTurns(t *testing.T) {
	if testing.Short() {
		t.Skip("takes as long as TestStore")
	}
	url := pgtest.New(t)
	storetest.RunSample(t, func(t *testing.T) store.Store { return openNodes(t, url, 3) })
}
