package sqlite_test

import (
	"database/sql"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"belfry"
	"belfry/store"
	"belfry/store/sqlite"
)

var update = flag.Bool("update", false, "write schema.sql anew")

// at is where the clock of these tests stands.
var at = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

// openAt is an open store, and its file.
func openAt(t *testing.T, dir string, o sqlite.Options) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// beside is another connection to the file of a store, as a caller's own.
func beside(t *testing.T, dir, settings string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, sqlite.FileName)+"?"+settings)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// entry is a notification that is due.
func entry(n int) store.Entry {
	return store.Entry{Queue: "webhook", Notification: belfry.Notification{
		ID: belfry.MakeID(at, 1, 0) + belfry.ID(n), Project: "default", Recipient: "u1", Category: "default",
		CreatedAt: at, Due: at, Deadline: at.Add(time.Hour), Lane: belfry.Normal,
	}}
}

// known makes the recipient of the entries.
func known(t *testing.T, s *sqlite.Store) {
	t.Helper()
	if _, err := s.PutRecipient(t.Context(), at, belfry.Recipient{Project: "default", ID: "u1"}); err != nil {
		t.Fatal(err)
	}
}

func enqueue(t *testing.T, s *sqlite.Store, entries ...store.Entry) {
	t.Helper()
	out, err := s.Enqueue(t.Context(), entries, true)
	for _, o := range out {
		err = errors.Join(err, o.Err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestASecondOpenOfAFolderIsRefusedAndSaysWhatToDo(t *testing.T) {
	dir := t.TempDir()
	if os.Getenv("BELFRY_OPEN") != "" {
		_, err := sqlite.Open(t.Context(), os.Getenv("BELFRY_OPEN"), sqlite.Options{})
		t.Fatalf("opened: %v", err)
	}
	s := openAt(t, dir, sqlite.Options{})
	refused := func(text string) {
		t.Helper()
		if !strings.Contains(text, "another process has "+dir+" open: stop it, or use another data folder") {
			t.Errorf("refused with %q", text)
		}
	}
	_, err := sqlite.Open(t.Context(), dir, sqlite.Options{})
	if err == nil {
		t.Fatal("opened twice")
	}
	refused(err.Error())
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), "BELFRY_OPEN="+dir)
	out, _ := cmd.CombinedOutput()
	refused(string(out))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	openAt(t, dir, sqlite.Options{})
}

func TestASettingThatIsNoneIsRefused(t *testing.T) {
	if _, err := sqlite.Open(t.Context(), t.TempDir(), sqlite.Options{Synchronous: "OFF"}); err == nil {
		t.Error("opened with synchronous OFF")
	}
}

func TestTheFoldersAndFilesAreForTheirOwnerAlone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	openAt(t, dir, sqlite.Options{})
	info, err := os.Stat(dir)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v %v", info.Mode(), err)
	}
}

// The schema that all migrations lead to, in one file to be read.
func TestTheSchemaIsTheOneInTheFile(t *testing.T) {
	dir := t.TempDir()
	openAt(t, dir, sqlite.Options{})
	rows, err := beside(t, dir, "").Query(`SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY tbl_name, type DESC, name`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var b strings.Builder
	b.WriteString("-- What the migrations lead to. Written by: go test ./store/sqlite -run Schema -update\n")
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			t.Fatal(err)
		}
		b.WriteString("\n" + text + ";\n")
	}
	if *update {
		if err := os.WriteFile("schema.sql", []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("schema.sql")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), b.String()); diff != "" {
		t.Error(diff)
	}
}

func TestEveryTableIsStrict(t *testing.T) {
	dir := t.TempDir()
	openAt(t, dir, sqlite.Options{})
	var loose sql.NullString
	err := beside(t, dir, "").QueryRow(`SELECT group_concat(name) FROM pragma_table_list WHERE schema = 'main' AND type = 'table' AND strict = 0 AND name NOT LIKE 'sqlite_%'`).Scan(&loose)
	if err != nil || loose.Valid {
		t.Errorf("%s %v", loose.String, err)
	}
}

func TestAMigrationThatWasChangedOrIsNewerIsRefused(t *testing.T) {
	for name, c := range map[string]struct{ change, says string }{
		"changed": {`UPDATE migration SET checksum = 'other' WHERE number = 1`, "was changed after it was applied"},
		"newer":   {`INSERT INTO migration VALUES (99, '0099_later.sql', 'x', 0)`, "written by a newer belfry (schema 99"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := openAt(t, dir, sqlite.Options{}).Close(); err != nil {
				t.Fatal(err)
			}
			if _, err := beside(t, dir, "").Exec(c.change); err != nil {
				t.Fatal(err)
			}
			if _, err := sqlite.Open(t.Context(), dir, sqlite.Options{}); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("opened with %v", err)
			}
		})
	}
}

func TestACallAfterCloseIsRefused(t *testing.T) {
	s := openAt(t, t.TempDir(), sqlite.Options{})
	known(t, s)
	done := make(chan int)
	for range 8 {
		go func() {
			n := 0
			for {
				if _, err := s.PutRecipient(t.Context(), at, belfry.Recipient{Project: "default", ID: "u1"}); err != nil {
					done <- n
					return
				}
				n++
			}
		}()
	}
	<-time.After(20 * time.Millisecond)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	for range 8 {
		select {
		case <-done:
		case <-time.After(10 * time.Second):
			t.Fatal("a call waits for ever for a store that is closed")
		}
	}
	if err := s.Close(); err != nil {
		t.Errorf("closed again: %v", err)
	}
	if _, err := s.Heads(t.Context()); err == nil {
		t.Error("read from a closed store")
	}
}

func TestAFileThatIsNoDatabaseIsRefused(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, sqlite.FileName), []byte(strings.Repeat("not a database ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := sqlite.Open(t.Context(), dir, sqlite.Options{}); err == nil {
		t.Error("opened")
	}
	if _, err := sqlite.Open(t.Context(), dir, sqlite.Options{}); err == nil || strings.Contains(err.Error(), "another process") {
		t.Errorf("it keeps its lock: %v", err)
	}
}
