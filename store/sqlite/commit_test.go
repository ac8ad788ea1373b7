package sqlite_test

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"belfry"
	"belfry/store"
	"belfry/store/sqlite"
)

// commits counts the transactions in the log of a store: the frames that say how large the database then is.
func commits(t *testing.T, dir string) (n int) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, sqlite.FileName+"-wal"))
	if err != nil || len(b) < 32 {
		t.Fatalf("no log: %v", err)
	}
	page := int(binary.BigEndian.Uint32(b[8:]))
	for frame := b[32:]; len(frame) >= 24+page; frame = frame[24+page:] {
		if string(frame[8:16]) == string(b[16:24]) && binary.BigEndian.Uint32(frame[4:]) != 0 {
			n++
		}
	}
	return n
}

func TestCallsThatWaitTogetherShareACommit(t *testing.T) {
	dir := t.TempDir()
	s := openAt(t, dir, sqlite.Options{})
	known(t, s)
	release := s.Hold()
	var calls sync.WaitGroup
	for i := range 100 {
		calls.Go(func() { enqueue(t, s, entry(i)) })
	}
	for s.Waits() < 100 {
		<-time.After(time.Millisecond)
	}
	before := commits(t, dir)
	release()
	calls.Wait()
	if n := commits(t, dir) - before; n != 1 {
		t.Errorf("100 calls took %d commits", n)
	}
}

func TestACallIsAnsweredAfterItsCommitAndNotBefore(t *testing.T) {
	dir := t.TempDir()
	s := openAt(t, dir, sqlite.Options{})
	known(t, s)
	db := beside(t, dir, "_pragma=busy_timeout(5000)")
	before := commits(t, dir)
	var calls sync.WaitGroup
	for c := range 16 {
		calls.Go(func() {
			for i := range 20 {
				e := entry(1000*c + i)
				enqueue(t, s, e)
				var n int
				if err := db.QueryRow(`SELECT count(*) FROM notification WHERE id = ?`, int64(e.Notification.ID)).Scan(&n); err != nil || n != 1 {
					t.Errorf("acknowledged and not there: %d %v", n, err)
				}
			}
		})
	}
	calls.Wait()
	n := commits(t, dir) - before
	t.Logf("320 single enqueues of 16 callers took %d commits", n)
	if n >= 320 {
		t.Errorf("nothing was shared")
	}
}

func TestOneCallsMistakeIsItsOwn(t *testing.T) {
	dir := t.TempDir()
	s := openAt(t, dir, sqlite.Options{})
	known(t, s)
	enqueue(t, s, entry(0))
	release := s.Hold()
	results := make([]error, 20)
	var calls sync.WaitGroup
	for i := range results {
		calls.Go(func() {
			e := entry(i) // the first one's id is taken
			out, err := s.Enqueue(t.Context(), []store.Entry{e}, true)
			if err == nil {
				err = out[0].Err
			}
			results[i] = err
		})
	}
	for s.Waits() < len(results) {
		<-time.After(time.Millisecond)
	}
	release()
	calls.Wait()
	for i, err := range results {
		if (err != nil) != (i == 0) {
			t.Errorf("call %d: %v", i, err)
		}
	}
	st, err := s.Stats(t.Context(), "")
	if err != nil || st.Waiting != len(results) {
		t.Errorf("%+v %v", st, err)
	}
}

// A child acknowledges on its standard output and is killed at any moment: all it acknowledged is there.
func TestWhatWasAcknowledgedSurvivesAKill(t *testing.T) {
	if dir := os.Getenv("BELFRY_KILLED_IN"); dir != "" {
		acknowledge(t, dir)
		return
	}
	kills := 20
	if testing.Short() {
		kills = 4
	}
	dir, total := t.TempDir(), 0
	for k := range kills {
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), "BELFRY_KILLED_IN="+dir, "BELFRY_FROM="+strconv.Itoa(k*1_000_000))
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Duration(50+rand.IntN(300))*time.Millisecond, func() { cmd.Process.Kill() })
		said, _ := io.ReadAll(out)
		cmd.Wait()
		lines := strings.Split(string(said), "\n")
		s := openAt(t, dir, sqlite.Options{})
		for _, line := range lines[:len(lines)-1] {
			id, err := belfry.ParseID(strings.TrimPrefix(line, "+"))
			if err != nil {
				continue // of the test framework
			}
			total++
			if _, err := s.Notification(t.Context(), "default", id); err != nil {
				t.Fatalf("%v was acknowledged: %v", id, err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d acknowledged in %d kills, all there", total, kills)
}

func acknowledge(t *testing.T, dir string) {
	s := openAt(t, dir, sqlite.Options{})
	known(t, s)
	from, _ := strconv.Atoi(os.Getenv("BELFRY_FROM"))
	var calls sync.WaitGroup
	for c := range 8 {
		calls.Go(func() {
			for i := range 100_000 {
				e := entry(from + 100_000*c + i)
				enqueue(t, s, e)
				fmt.Fprintf(os.Stdout, "+%v\n", e.Notification.ID)
			}
		})
	}
	calls.Wait()
}

// fill enqueues large notifications until the store is full, and says how many it took.
func fill(t *testing.T, s *sqlite.Store, from int) (ids []belfry.ID) {
	t.Helper()
	for i := range 10_000 {
		e := entry(from + i)
		e.Notification.Data = []byte(`{"text":"` + strings.Repeat("x", 8000) + `"}`)
		switch _, err := s.Enqueue(t.Context(), []store.Entry{e}, true); belfry.CodeOf(err) {
		case "":
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, e.Notification.ID)
		case belfry.CodeStoreFull:
			return ids
		default:
			t.Fatal(err)
		}
	}
	t.Fatal("it was never full")
	return nil
}

// there checks that every one of them can be told of.
func there(t *testing.T, s *sqlite.Store, ids []belfry.ID) {
	t.Helper()
	for _, id := range ids {
		if _, err := s.Notification(t.Context(), "default", id); err != nil {
			t.Fatalf("%v was acknowledged: %v", id, err)
		}
	}
}

func TestAFullStoreRefusesLosesNothingAndRecovers(t *testing.T) {
	dir := t.TempDir()
	s := openAt(t, dir, sqlite.Options{})
	known(t, s)
	if err := s.Pages(300); err != nil {
		t.Fatal(err)
	}
	ids := fill(t, s, 0)
	if len(ids) < 10 {
		t.Fatalf("full after %d", len(ids))
	}
	there(t, s, ids)
	claims, err := s.Claim(t.Context(), at, store.Owner{ID: 1, Lease: at.Add(time.Minute)}, []store.Take{{Claim: belfry.MakeID(at, 2, 1), Queue: "webhook", Lane: belfry.Normal, Project: "default", Limit: 3}})
	if err != nil && belfry.CodeOf(err) != belfry.CodeStoreFull {
		t.Errorf("claimed %d: %v", len(claims), err)
	}
	if err := s.Pages(100_000); err != nil {
		t.Fatal(err)
	}
	enqueue(t, s, entry(50_000))
	there(t, s, append(ids, entry(50_000).Notification.ID))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	there(t, openAt(t, dir, sqlite.Options{}), ids)
}

func TestAFullDiskRefusesLosesNothingAndRecovers(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=3m"); err != nil {
		t.Skipf("no small file system can be made here: %v", err)
	}
	t.Cleanup(func() { syscall.Unmount(dir, 0) })
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	s := openAt(t, dir, sqlite.Options{})
	known(t, s)
	ids := fill(t, s, 0)
	there(t, s, ids)
	var err error
	for range 100 { // each takes a page of what little room is left
		err = cmp.Or(err, s.Ping(t.Context()))
	}
	if belfry.CodeOf(err) != belfry.CodeStoreFull {
		t.Errorf("of a full disk Ping says %v", err)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if err := s.Ping(t.Context()); err != nil {
		t.Errorf("there is room, and Ping says %v", err)
	}
	enqueue(t, s, entry(50_000))
	there(t, s, append(ids, entry(50_000).Notification.ID))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	there(t, openAt(t, dir, sqlite.Options{}), ids)
}

func TestAFileThatAnotherConnectionHoldsIsBusyAndNothingIsLost(t *testing.T) {
	dir := t.TempDir()
	s := openAt(t, dir, sqlite.Options{Busy: 10 * time.Millisecond})
	known(t, s)
	conn, err := beside(t, dir, "").Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(t.Context(), "BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Enqueue(t.Context(), []store.Entry{entry(1)}, true); belfry.CodeOf(err) != belfry.CodeBusy {
		t.Errorf("enqueued: %v", err)
	}
	if err := s.Ping(t.Context()); belfry.CodeOf(err) != belfry.CodeBusy {
		t.Errorf("Ping says %v", err)
	}
	if _, err := s.Heads(t.Context()); err != nil {
		t.Errorf("a reader waits for a writer: %v", err)
	}
	if _, err := conn.ExecContext(t.Context(), "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	enqueue(t, s, entry(1))
}

// The log is moved into the file as time goes by, and used anew.
func TestTheLogStaysBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		s := openAt(t, dir, sqlite.Options{Synchronous: "NORMAL"})
		known(t, s)
		size := func() int64 {
			info, err := os.Stat(filepath.Join(dir, sqlite.FileName+"-wal"))
			if err != nil {
				t.Fatal(err)
			}
			return info.Size()
		}
		most, first := int64(0), int64(0)
		for round := range 12 {
			for i := range 60 {
				e := entry(1000*round + i)
				e.Notification.Data = []byte(`{"text":"` + strings.Repeat("x", 60_000) + `"}`)
				enqueue(t, s, e)
			}
			if most = max(most, size()); round == 1 {
				first = most
			}
			<-time.After(2 * time.Second)
			synctest.Wait()
		}
		if most > 3*first {
			t.Errorf("the log grew to %d bytes, from %d in the first rounds", most, first)
		}
		s.Checkpoint("TRUNCATE")
		if n := size(); n != 0 {
			t.Errorf("%d bytes are left of a log that was given back", n)
		}
		s.Close()
	})
}
