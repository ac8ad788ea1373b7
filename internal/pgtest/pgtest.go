// Package pgtest gives every test a PostgreSQL database of its own, on a real server: one that the test binary starts
// for itself on a Unix socket, or the one that BELFRY_TEST_POSTGRES names.
//
//	func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }
//	func TestStore(t *testing.T) { url := pgtest.New(t); … }
//
// Without PostgreSQL the tests say what to install; they fail when CI is set and are skipped elsewhere.
package pgtest

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Env names the variable with the URL of a server to use. Its user must be allowed to create databases.
const Env = "BELFRY_TEST_POSTGRES"

var errMissing = errors.New("PostgreSQL is not installed; install the Debian package postgresql, or set " + Env +
	" to the URL of a server where databases may be created")

var (
	once    sync.Once
	running *server
	failed  error
)

// Main runs the tests, stops the server that they started, and returns the exit status.
func Main(m interface{ Run() int }) int {
	defer func() {
		if running != nil {
			running.stop()
		}
	}()
	return m.Run()
}

// New returns the URL of a new, empty database, which is dropped when the test ends. The server starts with the first
// call and needs [Main] to end.
func New(t testing.TB) string {
	t.Helper()
	once.Do(func() { running, failed = start() })
	if errors.Is(failed, errMissing) && os.Getenv("CI") == "" {
		t.Skip(failed)
	}
	if failed != nil {
		t.Fatal(failed)
	}
	name := "test_" + strings.ToLower(rand.Text())
	admin := func(ctx context.Context, sql string) error {
		c, err := pgx.Connect(ctx, running.url("postgres"))
		if err != nil {
			return err
		}
		defer c.Close(ctx)
		_, err = c.Exec(ctx, sql)
		return err
	}
	if err := admin(t.Context(), "CREATE DATABASE "+name); err != nil {
		t.Fatal("pgtest: create a database: ", err)
	}
	t.Cleanup(func() {
		if err := admin(context.Background(), "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			t.Error("pgtest: drop the database: ", err)
		}
	})
	return running.url(name)
}

type server struct {
	base url.URL
	dir  string // of a server of our own
	exit chan struct{}
	quit func()
}

func (s *server) url(database string) string {
	u := s.base
	u.Path = "/" + database
	return u.String()
}

func start() (*server, error) {
	if text := os.Getenv(Env); text != "" {
		u, err := url.Parse(text)
		if err != nil {
			return nil, errors.New(Env + " is not a URL")
		}
		return &server{base: *u}, nil
	}
	bin, err := find()
	if err != nil {
		return nil, err
	}
	// The path of a Unix socket has about a hundred bytes, so no deep folder will do.
	dir, err := os.MkdirTemp("/tmp", "pgtest")
	if err != nil {
		return nil, err
	}
	s := &server{dir: dir, exit: make(chan struct{})}
	attr := attributes()
	if os.Getuid() == 0 { // as which PostgreSQL refuses to run
		if attr.Credential, err = postgres(); err == nil {
			err = os.Chown(dir, int(attr.Credential.Uid), int(attr.Credential.Gid))
		}
		if err != nil {
			s.stop()
			return nil, err
		}
	}
	data := filepath.Join(dir, "data")
	initdb := exec.Command(filepath.Join(bin, "initdb"), "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync")
	initdb.SysProcAttr, initdb.Dir = &syscall.SysProcAttr{Credential: attr.Credential}, dir
	if out, err := initdb.CombinedOutput(); err != nil {
		s.stop()
		return nil, fmt.Errorf("pgtest: initdb: %w: %s", err, out)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		s.stop()
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(filepath.Join(bin, "postgres"), "-D", data, "-k", dir, "-c", "listen_addresses=", "-c", "max_connections=100", "-c", "fsync="+fsync())
	cmd.SysProcAttr, cmd.Dir, cmd.Stdout, cmd.Stderr = attr, dir, log, log
	started := make(chan error)
	go func() {
		// The death signal is bound to the thread that starts the server, so that thread must not end before.
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
		close(s.exit)
	}()
	if err := <-started; err != nil {
		s.stop()
		return nil, fmt.Errorf("pgtest: start PostgreSQL: %w", err)
	}
	s.quit = func() { _ = cmd.Process.Signal(syscall.SIGQUIT) }
	s.base = url.URL{Scheme: "postgres", User: url.User("postgres"), RawQuery: url.Values{"host": {dir}}.Encode()}
	if err := s.ready(); err != nil {
		text, _ := os.ReadFile(log.Name())
		s.stop()
		return nil, fmt.Errorf("pgtest: PostgreSQL does not answer: %w: %s", err, text)
	}
	return s, nil
}

// fsync is off but for benchmarks: it changes what a commit costs, and what a power cut leaves, which no test makes.
func fsync() string {
	if f := flag.Lookup("test.bench"); f != nil && f.Value.String() != "" {
		return "on"
	}
	return "off"
}

// ready waits until the server takes connections.
func (s *server) ready() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		var c *pgx.Conn
		if c, err = pgx.Connect(ctx, s.url("postgres")); err == nil {
			return c.Close(ctx)
		}
		select {
		case <-ctx.Done():
			return err
		case <-s.exit:
			return err
		case <-tick.C:
		}
	}
}

func (s *server) stop() {
	if s.quit != nil {
		s.quit()
		<-s.exit
	}
	if s.dir != "" {
		_ = os.RemoveAll(s.dir)
	}
}

// find returns the folder with the server's programs: Debian keeps them out of the PATH, one folder a version.
func find() (string, error) {
	if path, err := exec.LookPath("postgres"); err == nil {
		if _, err := os.Stat(filepath.Join(filepath.Dir(path), "initdb")); err == nil {
			return filepath.Dir(path), nil
		}
	}
	best, dir := 0, ""
	all, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	for _, path := range all {
		bin := filepath.Dir(path)
		if v, err := strconv.Atoi(filepath.Base(filepath.Dir(bin))); err == nil && v > best {
			best, dir = v, bin
		}
	}
	if dir == "" {
		return "", errMissing
	}
	return dir, nil
}

// postgres is the system's user of that name.
func postgres() (*syscall.Credential, error) {
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, fmt.Errorf("pgtest: PostgreSQL does not run as root: %w", err)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, err
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}
