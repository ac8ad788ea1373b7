package postgres_test

import (
	"fmt"
	"os"
	"sync/atomic"
	"testing"

	"belfry/internal/pgtest"
	"belfry/store"
	"belfry/store/postgres"
	"belfry/store/storetest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

var schemas atomic.Int64

// open makes a store in a schema of its own.
func open(t *testing.T, url string) *postgres.Store {
	t.Helper()
	return openSchema(t, url, fmt.Sprint("belfry ", schemas.Add(1)))
}

func openSchema(t *testing.T, url, schema string) *postgres.Store {
	t.Helper()
	s, err := postgres.Open(t.Context(), url, postgres.Options{Schema: schema, Connections: 10})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestStore(t *testing.T) {
	url := pgtest.New(t)
	storetest.Run(t, func(t *testing.T) store.Store { return open(t, url) })
}
