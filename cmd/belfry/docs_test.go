package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"belfry"
	"belfry/config"
)

// The pages are tested as they stand. In a block
//
//	console        what follows "$ " is run, page by page in one folder, and must print the lines below it; … stands
//	               for anything, alone on its line for any lines. A command that ends in & goes on in the background
//	               once it has printed them. Of make, only that there is such a recipe is tested.
//	go PATH        is in that file of the tree, or is a new one, whose package is then built with the tree and tested
//	json PATH      likewise a file for those tests; without a path it is JSON
//	yaml           are settings that can be read
//
// Blocks of other languages are text.
type block struct {
	page, kind, path string
	line             int
	text             string
}

var top, _ = filepath.Abs("../..")

func blocks(t *testing.T) (out []block) {
	t.Helper()
	var pages []string
	for _, glob := range []string{"*.md", "docs/*.md", "docs/*/*.md", "examples/*/*.md"} {
		found, err := filepath.Glob(filepath.Join(top, glob))
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, found...)
	}
	for _, name := range pages {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		page, _ := filepath.Rel(top, name)
		var b *block
		for i, line := range strings.SplitAfter(string(text), "\n") {
			info, fence := strings.CutPrefix(strings.TrimRight(line, "\n"), "```")
			switch {
			case fence && b == nil:
				kind, path, _ := strings.Cut(info, " ")
				b = &block{page: page, kind: kind, path: path, line: i + 2}
			case fence:
				out, b = append(out, *b), nil
			case b != nil:
				b.text += line
			}
		}
		if b != nil {
			t.Errorf("%s:%d: the block has no end", page, b.line)
		}
	}
	return out
}

func TestBlocksOfThePagesAreOfAKindThatIsTested(t *testing.T) {
	for _, b := range blocks(t) {
		switch {
		case !slices.Contains([]string{"", "console", "go", "json", "yaml", "ini"}, b.kind):
			t.Errorf("%s:%d: %s", b.page, b.line, b.kind)
		case b.kind == "go" && b.path == "":
			t.Errorf("%s:%d: says no file", b.page, b.line)
		}
	}
}

func TestEveryCommandOfThePagesDoesWhatTheySay(t *testing.T) {
	if testing.Short() {
		t.Skip("the short form leaves the pages to the long one")
	}
	if _, err := exec.LookPath("curl"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip("the pages use curl, and it is missing: install the Debian package curl")
	}
	byPage := map[string][]block{}
	for _, b := range blocks(t) {
		if b.kind == "console" {
			byPage[b.page] = append(byPage[b.page], b)
		}
	}
	for page, blocks := range byPage {
		t.Run(page, func(t *testing.T) {
			s := newSession(t)
			for _, b := range blocks {
				for _, step := range steps(t, b) {
					s.play(t, step)
				}
			}
		})
	}
}

type step struct {
	at      string
	command string
	want    []string
}

func steps(t *testing.T, b block) (out []step) {
	t.Helper()
	more := false // the command goes on: its line ends in \, or within quotes
	for i, line := range strings.Split(strings.TrimRight(b.text, "\n"), "\n") {
		command, is := strings.CutPrefix(line, "$ ")
		switch {
		case more:
			out[len(out)-1].command += "\n" + line
			more = goesOn(out[len(out)-1].command)
		case is:
			out = append(out, step{at: fmt.Sprintf("%s:%d", b.page, b.line+i), command: command})
			more = goesOn(command)
		case len(out) == 0:
			t.Fatalf("%s:%d: begins without a command", b.page, b.line)
		default:
			out[len(out)-1].want = append(out[len(out)-1].want, line)
		}
	}
	return out
}

func goesOn(command string) bool {
	return strings.HasSuffix(command, `\`) || strings.Count(command, "'")%2 == 1
}

// session plays the commands of a page, with ports of its own.
type session struct {
	dir   string
	env   []string
	ports *strings.Replacer
	back  *strings.Replacer
}

func newSession(t *testing.T) *session {
	s := &session{dir: t.TempDir()}
	var there, back []string
	for _, shown := range []string{"8025", "8026", "8027"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		free := fmt.Sprint(l.Addr().(*net.TCPAddr).Port)
		l.Close()
		there = append(there, "127.0.0.1:"+shown, "127.0.0.1:"+free)
		back = append(back, "127.0.0.1:"+free, "127.0.0.1:"+shown)
	}
	s.ports, s.back = strings.NewReplacer(there...), strings.NewReplacer(back...)
	s.env = append(os.Environ(), "BELFRY_HTTP__LISTEN="+there[1])
	return s
}

func (s *session) play(t *testing.T, p step) {
	t.Helper()
	if recipe, ok := strings.CutPrefix(p.command, "make "); ok {
		if out, err := exec.Command("make", "-n", "-C", top, recipe).CombinedOutput(); err != nil {
			t.Errorf("%s: %s: %s", p.at, p.command, out)
		}
		return
	}
	command, background := strings.CutSuffix(s.ports.Replace(p.command), "&")
	cmd := exec.Command("sh", "-c", command)
	if background {
		cmd = exec.Command("sh", "-c", "exec "+command)
	}
	cmd.Dir, cmd.Env = s.dir, s.env
	if strings.HasPrefix(p.command, "go run ./") {
		cmd.Dir = top
	}
	var out output
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if !background {
		_ = cmd.Wait() // what it prints is what is promised
		if have := s.back.Replace(out.String()); !matches(p.want, have) {
			t.Errorf("%s: %s\nprints\n%s\nand not\n%s", p.at, p.command, have, strings.Join(p.want, "\n"))
		}
		return
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	want := append(slices.Clone(p.want), "…") // what it says later is not in the page
	for deadline := time.After(patience); ; {
		next := out.next()
		if matches(want, s.back.Replace(out.String())) {
			return
		}
		select {
		case <-next:
		case <-deadline:
			t.Fatalf("%s: %s\nprints\n%s\nand not\n%s", p.at, p.command, out.String(), strings.Join(p.want, "\n"))
		}
	}
}

// matches compares lines with a pattern, see [block].
func matches(want []string, have string) bool {
	pattern := "^"
	for _, line := range want {
		if line == "…" {
			pattern += `(?:.*\n)*`
			continue
		}
		pattern += strings.ReplaceAll(regexp.QuoteMeta(strings.TrimRight(line, " ")), "…", ".*") + ` *\n`
	}
	return regexp.MustCompile(pattern + "$").MatchString(strings.TrimRight(have, "\n") + "\n")
}

func TestTheComparisonOfOutputsCanFail(t *testing.T) {
	for _, c := range []struct {
		want, have string
		ok         bool
	}{
		{"a", "a\n", true},
		{"a", "b\n", false},
		{"a", "a\nb\n", false},
		{"a …", "a 12:30\n", true},
		{"a … c", "a b\n", false},
		{"a\n…\nc", "a\nb\nb\nc\n", true},
		{"a\n…", "a\n", true},
		{"(a.*)", "(a)\n", false},
	} {
		if matches(strings.Split(c.want, "\n"), c.have) != c.ok {
			t.Errorf("%q and %q", c.want, c.have)
		}
	}
}

func TestGoOfThePagesBuildsAndPasses(t *testing.T) {
	if testing.Short() {
		t.Skip("the short form leaves the pages to the long one")
	}
	overlay := map[string]string{} // path in the tree → file
	dirs := map[string]string{}    // package → folder of its test
	for _, b := range blocks(t) {
		if b.kind == "json" && !json.Valid([]byte(b.text)) {
			t.Errorf("%s:%d: is not JSON", b.page, b.line)
		}
		if b.path == "" || b.kind != "go" && b.kind != "json" {
			continue
		}
		if b.kind == "go" {
			if have, err := os.ReadFile(filepath.Join(top, b.path)); err == nil {
				if !strings.Contains(string(have), b.text) {
					t.Errorf("%s:%d: is not in %s", b.page, b.line, b.path)
				}
				continue
			}
		}
		pkg := strings.TrimSuffix(filepath.Dir(b.path), "/testdata")
		dirs[pkg] = cmp.Or(dirs[pkg], t.TempDir())
		file := filepath.Join(dirs[pkg], strings.TrimPrefix(b.path, pkg+"/"))
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(b.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if b.kind == "go" {
			overlay[filepath.Join(top, b.path)] = file
		}
	}
	if len(overlay) == 0 {
		return
	}
	replace, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(t.TempDir(), "overlay.json")
	if err := os.WriteFile(list, replace, 0o600); err != nil {
		t.Fatal(err)
	}
	for pkg, dir := range dirs {
		test := filepath.Join(dir, "test")
		build := exec.Command("go", "test", "-vet=off", "-c", "-overlay", list, "-o", test, "./"+pkg)
		build.Dir = top
		if out, err := build.CombinedOutput(); err != nil {
			t.Errorf("%s does not build: %s", pkg, out)
			continue
		}
		run := exec.Command(test)
		run.Dir = dir
		if out, err := run.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("PASS")) {
			t.Errorf("%s does not pass: %s", pkg, out)
		}
	}
}

func TestSettingsOfThePagesCanBeRead(t *testing.T) {
	for _, b := range blocks(t) {
		if b.kind != "yaml" {
			continue
		}
		file := filepath.Join(t.TempDir(), "belfry.yaml")
		if err := os.WriteFile(file, []byte(b.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := config.Load(config.Sources{File: file}); err != nil {
			t.Errorf("%s:%d: %v", b.page, b.line, err)
		}
	}
}

// A row of a table whose first cell is a name.
var named = regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|")

func TestTheListOfReasonsIsComplete(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(top, "docs/api.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Reasons\n")
	section, _, _ = strings.Cut(section, "\n## ")
	listed := map[string]bool{}
	for _, m := range named.FindAllStringSubmatch(section, -1) {
		listed[m[1]] = true
		if _, ok := belfry.Reasons[belfry.Reason(m[1])]; !ok {
			t.Errorf("docs/api.md lists %s, which is no reason", m[1])
		}
	}
	for r, why := range belfry.Reasons {
		if !listed[string(r)] {
			t.Errorf("docs/api.md does not list it:\n| `%s` | %s |", r, why)
		}
	}
}
