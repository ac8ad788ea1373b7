package sqlite_test

import (
	"testing"

	"belfry/store"
	"belfry/store/sqlite"
	"belfry/store/storetest"
)

func open(t *testing.T) store.Store {
	s, err := sqlite.Open(t.Context(), t.TempDir(), sqlite.Options{Synchronous: "NORMAL"})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestStore(t *testing.T) { storetest.Run(t, open) }
