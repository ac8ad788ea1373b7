package sqlite_test

import (
	"testing"

	"belfry/store"
	"belfry/store/sqlite"
	"belfry/store/storetest"
)

// TestStore shows that the driver keeps the contract, and looks at every statement that took.
func TestStore(t *testing.T) {
	statements := map[string]bool{}
	storetest.Run(t, func(t *testing.T) store.Store {
		s, err := sqlite.Open(t.Context(), t.TempDir(), sqlite.Options{Synchronous: "NORMAL"})
		if err != nil {
			t.Fatal(err)
		}
		list := s.Watch()
		t.Cleanup(func() { // after the suite closed it
			for _, q := range list() {
				statements[q] = true
			}
		})
		return s
	})
	t.Run("Statements", func(t *testing.T) { judgeStatements(t, statements) })
}
