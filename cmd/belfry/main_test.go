package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"

	"belfry"
	"belfry/channel/webhook"
	"belfry/channel/webpush"
	"belfry/config"
	"belfry/engine"
	"belfry/store/postgres"
	"belfry/store/sqlite"
)

func TestMain(m *testing.M) { testscript.Main(m, map[string]func(){"belfry": main}) }

// patience is how long a test waits for what should come soon.
const patience = time.Minute

// TestScripts runs the program as its users do. Besides the usual commands there are
//
//	status N args...      run belfry and want that exit status
//	start NAME args...    run belfry in the background until it listens; NAME becomes its URL
//	quit NAME N [again]   send SIGTERM, and again when it is stopping; want that exit status. NAME.err is what it said
//	slay NAME             kill it
//	http N METHOD URL [BODY]        make a request and want that status; the answer is the standard output
//	until REGEXP METHOD URL         make requests until an answer matches
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata", RequireExplicitExec: true, RequireUniqueNames: true,
		Setup: func(e *testscript.Env) error {
			e.Values["programs"] = map[string]*program{}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"status": status, "start": start, "quit": quit, "slay": slay, "http": request, "until": until,
		},
	})
}

func status(ts *testscript.TestScript, neg bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec("belfry", args[1:]...)
	if have := exitStatus(err); have != want || neg {
		ts.Fatalf("status %d, want %d", have, want)
	}
}

func exitStatus(err error) int {
	if e, ok := errors.AsType[*exec.ExitError](err); ok {
		return e.ExitCode()
	}
	if err != nil {
		return -1
	}
	return 0
}

// program is a belfry that runs in the background.
type program struct {
	cmd    *exec.Cmd
	url    string
	output output // what it says on its standard error
}

var listens = regexp.MustCompile(`(?m)listens on (http://[^ ,\n]+)`)

// run starts a program and waits until it says where it listens.
func (p *program) run() error {
	p.cmd.Stderr = &p.output
	if err := p.cmd.Start(); err != nil {
		return err
	}
	if err := p.says(listens.String() + `.*\n`); err != nil {
		_ = p.cmd.Process.Kill()
		return err
	}
	p.url = listens.FindStringSubmatch(p.output.String())[1]
	return nil
}

// says waits until it has said something.
func (p *program) says(pattern string) error {
	want := regexp.MustCompile(pattern)
	for deadline := time.After(patience); ; {
		next := p.output.next()
		if want.MatchString(p.output.String()) {
			return nil
		}
		select {
		case <-next:
		case <-deadline:
			return fmt.Errorf("it does not say %s: %s", pattern, p.output.String())
		}
	}
}

// stop asks it to end and gives its status.
func (p *program) stop() int {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	timer := time.AfterFunc(patience, func() { _ = p.cmd.Process.Kill() })
	defer timer.Stop()
	return exitStatus(p.cmd.Wait())
}

func start(ts *testscript.TestScript, neg bool, args []string) {
	p := &program{cmd: exec.Command("belfry", args[1:]...)}
	p.cmd.Dir = ts.MkAbs(".")
	p.cmd.Stdout = io.Discard
	p.cmd.Env = []string{"PATH=" + ts.Getenv("PATH"), "HOME=" + ts.Getenv("HOME"), "TMPDIR=" + ts.Getenv("TMPDIR")}
	for _, name := range []string{"BELFRY_CONFIG", "BELFRY_HTTP__LISTEN", "BELFRY_METRICS__LISTEN", "BELFRY_LIMITS__RATE"} {
		if value := ts.Getenv(name); value != "" {
			p.cmd.Env = append(p.cmd.Env, name+"="+value)
		}
	}
	if err := p.run(); err != nil {
		ts.Fatalf("start: %v", err)
	}
	ts.Defer(func() { _ = p.cmd.Process.Kill() })
	ts.Value("programs").(map[string]*program)[args[0]] = p
	ts.Setenv(args[0], p.url)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]+".err"), []byte(p.output.String()), 0o600))
}

func quit(ts *testscript.TestScript, neg bool, args []string) {
	p := ts.Value("programs").(map[string]*program)[args[0]]
	if len(args) == 3 {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		if err := p.says("stopping"); err != nil {
			ts.Fatalf("%v", err)
		}
	}
	have := p.stop()
	ts.Check(os.WriteFile(ts.MkAbs(args[0]+".err"), []byte(p.output.String()), 0o600))
	if want, err := strconv.Atoi(args[1]); err != nil || have != want {
		ts.Fatalf("status %d, want %s:\n%s", have, args[1], p.output.String())
	}
}

func slay(ts *testscript.TestScript, neg bool, args []string) {
	p := ts.Value("programs").(map[string]*program)[args[0]]
	ts.Check(p.cmd.Process.Kill())
	_ = p.cmd.Wait()
}

func request(ts *testscript.TestScript, neg bool, args []string) {
	body := ""
	if len(args) == 4 {
		body = args[3]
	}
	status, answer := ask(ts, args[1], args[2], body)
	fmt.Fprint(ts.Stdout(), answer)
	if fmt.Sprint(status) != args[0] {
		ts.Fatalf("status %d, want %s: %s", status, args[0], answer)
	}
}

func until(ts *testscript.TestScript, neg bool, args []string) {
	want := regexp.MustCompile(args[0])
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(patience); ; {
		_, answer := ask(ts, args[1], args[2], "")
		if want.MatchString(answer) {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			ts.Fatalf("it stays %s", answer)
		}
	}
}

func ask(ts *testscript.TestScript, method, url, body string) (int, string) {
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	ts.Check(err)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := http.DefaultClient.Do(req)
	ts.Check(err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	ts.Check(err)
	return resp.StatusCode, string(text)
}

func TestEveryCommandShowsHowItIsUsed(t *testing.T) {
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			walk(sub)
		}
		if !c.Runnable() || c.Name() == "help" || c.Name() == "completion" || c.Parent().Name() == "completion" {
			return
		}
		if c.Short == "" || !strings.HasPrefix(c.Example, "  "+"belfry ") && !strings.Contains(c.Example, c.CommandPath()) {
			t.Errorf("%s: its help lacks a description or an example", c.CommandPath())
		}
		if c.Args == nil {
			t.Errorf("%s: does not say how many arguments it takes", c.CommandPath())
		}
	}
	walk(command())
}

// The options of drivers that the program sets by itself, besides those in the settings.
var notSettings = []string{"http", "allow_private", "allow_all", "user_agent"}

func TestEveryOptionOfADriverIsInItsSection(t *testing.T) {
	c, err := config.Load(config.Sources{})
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Channels) != len(channels) || len(c.Store.Sections) != len(stores) {
		t.Errorf("the default file has sections for %v and %v", c.Channels.Names(), c.Store.Sections.Names())
	}
	for _, d := range []struct {
		section config.Section
		options any
	}{
		{c.Channels["webhook"], &webhook.Options{}},
		{c.Channels["webpush"], &webpush.Options{}},
		{c.Store.Sections["sqlite"], &sqlite.Options{}},
		{c.Store.Sections["postgres"], &postgres.Options{}},
	} {
		if err := d.section.Decode(d.options, &struct{ URL belfry.Secret }{}); err != nil {
			t.Error(err)
		}
		typ := reflect.TypeOf(d.options).Elem()
		for i := range typ.NumField() {
			name := config.OptionName(typ.Field(i).Name)
			if _, there := d.section.Lookup(name); !there && !strings.Contains(" "+strings.Join(notSettings, " ")+" ", " "+name+" ") {
				t.Errorf("%v: %s is neither in the default file nor set by the program", typ, name)
			}
		}
	}
}

func TestMetricsAreWellFormedAndHoldNoCallersWord(t *testing.T) {
	m := newMetrics()
	m.observe(engine.Event{Channel: "webhook", Lane: "normal", Outcome: "accepted", First: true, Took: time.Second})
	m.observe(engine.Event{Channel: "webhook", State: "dropped", Reason: "a_word_of_a_recheck"})
	m.observe(engine.Event{State: "dropped", Reason: "no_endpoint"})
	r := prometheus.NewRegistry()
	r.MustRegister(m.attempts, m.took, m.late, m.ended)
	shown := httptest.NewRecorder()
	promhttp.HandlerFor(r, promhttp.HandlerOpts{}).ServeHTTP(shown, httptest.NewRequest("GET", "/metrics", nil))
	text := shown.Body.String()
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	if strings.Contains(text, "a_word_of") || !strings.Contains(text, `reason="custom"`) || !strings.Contains(text, `reason="no_endpoint"`) {
		t.Error(text)
	}
}
