package postgres

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"belfry/internal/pgtest"
)

var update = flag.Bool("update", false, "write testdata/schema.txt anew")

const describeSchema = `SELECT format('%s.%s %s%s%s', c.table_name, c.column_name, c.data_type,
	CASE WHEN c.collation_name IS NULL THEN '' ELSE ' "' || c.collation_name || '"' END, CASE c.is_nullable WHEN 'NO' THEN ' not null' ELSE '' END)
FROM information_schema.columns c WHERE c.table_schema = current_schema()
UNION ALL SELECT regexp_replace(indexdef, 'ON \S+\.', 'ON ') FROM pg_indexes WHERE schemaname = current_schema()
UNION ALL SELECT format('%s with (%s)', relname, array_to_string(reloptions, ', ')) FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r' AND reloptions IS NOT NULL
ORDER BY 1`

func openTest(t *testing.T, url, schema string) *Store {
	t.Helper()
	s, err := Open(t.Context(), url, Options{Schema: schema, Synchronous: "off", Connections: 4})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestTheSchemaIsAsWritten(t *testing.T) {
	s := openTest(t, pgtest.New(t), "belfry")
	var lines []string
	err := s.view(t.Context(), func(tx *txn) error {
		return tx.each(describeSchema, func(scan func(...any) error) error {
			var line string
			err := scan(&line)
			lines = append(lines, line)
			return err
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(lines, "\n") + "\n"
	const golden = "testdata/schema.txt"
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the schema is another than %s; if that is meant, run with -update\n%s", golden, got)
	}
}

// steps are migrations number 1 to n of a made-up schema; each is compatible with the oldest given.
func steps(t *testing.T, compatible ...int) []migration {
	t.Helper()
	files := fstest.MapFS{}
	for i, c := range compatible {
		files[fmt.Sprintf("migrations/%04d_step.sql", i+1)] = &fstest.MapFile{Data: fmt.Appendf(nil, "-- compatible: %d\nCREATE TABLE step%d (n int);\n", c, i+1)}
	}
	list, err := readMigrations(files)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// bare is a store on an empty schema.
func bare(t *testing.T, url, schema string) *Store {
	t.Helper()
	s := openTest(t, url, schema)
	err := s.do(t.Context(), durable, func(tx *txn) error { return tx.run(`DROP SCHEMA "` + schema + `" CASCADE`) })
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestMigrationsRunOnceAndOnlyForward(t *testing.T) {
	s := bare(t, pgtest.New(t), "moving house")
	for n := 1; n <= 3; n++ {
		for range 2 {
			if err := s.migrateTo(t.Context(), time.Now(), steps(t, 1, 2, 3)[:n]); err != nil {
				t.Fatal(err)
			}
		}
	}
	changed := steps(t, 1, 1, 3)
	if err := s.migrateTo(t.Context(), time.Now(), changed); err == nil || !strings.Contains(err.Error(), "0002_step.sql was changed") {
		t.Errorf("a migration that was changed after it ran: %v", err)
	}
}

func TestAnOlderProgramWorksAsLongAsTheSchemaAllows(t *testing.T) {
	s := bare(t, pgtest.New(t), "belfry")
	if err := s.migrateTo(t.Context(), time.Now(), steps(t, 1, 1)); err != nil {
		t.Fatal(err)
	}
	if err := s.migrateTo(t.Context(), time.Now(), steps(t, 1)); err != nil {
		t.Errorf("a compatible schema is refused: %v", err)
	}
	if err := s.migrateTo(t.Context(), time.Now(), steps(t, 1, 1, 3)); err != nil {
		t.Fatal(err)
	}
	if err := s.migrateTo(t.Context(), time.Now(), steps(t, 1, 1)); err == nil || !strings.Contains(err.Error(), "newer belfry") {
		t.Errorf("a schema that is too new: %v", err)
	}
}

func TestProgramsThatStartAtOnceMigrateOnce(t *testing.T) {
	url := pgtest.New(t)
	errs := make(chan error)
	for range 4 {
		go func() {
			s, err := Open(context.WithoutCancel(t.Context()), url, Options{Connections: 2})
			if err == nil {
				err = s.Close()
			}
			errs <- err
		}()
	}
	for range 4 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

func TestAMigrationThatFailsLeavesNothing(t *testing.T) {
	s := bare(t, pgtest.New(t), "belfry")
	list := steps(t, 1, 1)
	list[1].text = "CREATE TABLE half (n int); SELECT no_such_function();"
	if err := s.migrateTo(t.Context(), time.Now(), list); err == nil {
		t.Fatal("it did not fail")
	}
	var there bool
	err := s.view(t.Context(), func(tx *txn) error {
		_, err := tx.peek(`SELECT EXISTS (SELECT FROM pg_tables WHERE schemaname = 'belfry')`, nil, &there)
		return err
	})
	if err != nil || there {
		t.Errorf("tables are left: %v, %v", there, err)
	}
}

func TestASchemaThatIsNotThereIsNoReasonToWrite(t *testing.T) {
	url := pgtest.New(t)
	openTest(t, url, "belfry").Close()
	_, err := Open(t.Context(), url+"&default_transaction_read_only=on", Options{})
	if err != nil {
		t.Errorf("opening what is up to date wrote something: %v", err)
	}
}

func TestAnAddressThatIsNotUnderstoodIsNotRepeated(t *testing.T) {
	_, err := Open(t.Context(), "postgres://ann:hunter2@[::1:5432/x", Options{})
	if err == nil || strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "ann") {
		t.Errorf("error %v", err)
	}
	if _, err := Open(t.Context(), "postgres://localhost/x", Options{Synchronous: "sometimes"}); err == nil || errors.Is(err, errAgain) {
		t.Errorf("error %v", err)
	}
}
