package pgtest_test

import (
	"os"
	"testing"

	"github.com/jackc/pgx/v5"

	"belfry/internal/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

func TestEveryTestHasADatabaseOfItsOwn(t *testing.T) {
	for range 2 {
		c, err := pgx.Connect(t.Context(), pgtest.New(t))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close(t.Context())
		if _, err := c.Exec(t.Context(), "CREATE TABLE t (n int)"); err != nil {
			t.Error(err)
		}
	}
}
