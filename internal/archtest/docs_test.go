package archtest

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(top, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A row of the map begins with a link to its folder.
var mapRow = regexp.MustCompile("(?m)^\\| \\[`([^`]+)`\\]\\(([^)]+)\\)")

func TestTheMapShowsEveryRoomAndNothingElse(t *testing.T) {
	shown := map[string]bool{}
	for _, m := range mapRow.FindAllStringSubmatch(read(t, "ARCHITECTURE.md"), -1) {
		dir := filepath.Clean(m[2])
		if info, err := os.Stat(filepath.Join(top, dir)); err != nil || !info.IsDir() {
			t.Errorf("the map shows %s, which does not exist", m[2])
		}
		if shown[dir] {
			t.Errorf("the map shows %s twice", m[2])
		}
		shown[dir] = true
	}
	for _, p := range packages(t) {
		dir, err := filepath.Rel(top, p.Dir)
		if err != nil {
			t.Fatal(err)
		}
		if !shown[dir] {
			t.Errorf("the map does not show %s", dir)
		}
	}
}

var code = regexp.MustCompile("(?ms)^```.*?^```$")

var link = regexp.MustCompile(`\]\(([^)#\s]+)(#[^)\s]*)?\)`)

func TestLinksBetweenPagesLeadSomewhere(t *testing.T) {
	for _, page := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(code.ReplaceAllString(read(t, page), ""), -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			if _, err := os.Stat(filepath.Join(top, filepath.Dir(page), m[1])); err != nil {
				t.Errorf("%s links to %s, which does not exist", page, m[1])
			}
		}
	}
}

func pages(t *testing.T) (out []string) {
	t.Helper()
	for _, glob := range []string{"*.md", "docs/*.md", "docs/*/*.md", "examples/*/*.md"} {
		found, err := filepath.Glob(filepath.Join(top, glob))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range found {
			rel, _ := filepath.Rel(top, f)
			out = append(out, rel)
		}
	}
	if len(out) == 0 {
		t.Fatal("there are no pages")
	}
	return out
}

type goMod struct {
	Require []struct {
		Path, Version string
		Indirect      bool
	}
}

func modFile(t *testing.T, args ...string) goMod {
	t.Helper()
	cmd := exec.Command("go", append([]string{"mod", "edit", "-json"}, args...)...)
	cmd.Dir = top
	out, err := cmd.Output()
	if err != nil {
		t.Fatal("go mod edit: ", err)
	}
	var m goMod
	if err := json.Unmarshal(out, &m); err != nil {
		t.Fatal(err)
	}
	return m
}

var moduleRow = regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (.+) \\|")

func TestEveryDependencyHasAReasonAndNoReasonIsLeftOver(t *testing.T) {
	reasons := map[string]string{}
	for _, m := range moduleRow.FindAllStringSubmatch(read(t, "docs/dependencies.md"), -1) {
		reasons[m[1]] = m[2]
	}
	var direct []string
	for _, r := range modFile(t).Require {
		if !r.Indirect {
			direct = append(direct, r.Path)
		}
	}
	for _, path := range direct {
		if len(reasons[path]) < 20 {
			t.Errorf("docs/dependencies.md gives no reason for %s", path)
		}
	}
	for path := range reasons {
		if !slices.Contains(direct, path) {
			t.Errorf("docs/dependencies.md gives a reason for %s, which go.mod does not require", path)
		}
	}
}

// The SQLite driver is generated against one version of its C library and breaks in odd ways with another.
func TestTheLibraryUnderSQLiteIsTheOneItWasMadeFor(t *testing.T) {
	version := func(m goMod) string {
		for _, r := range m.Require {
			if r.Path == "modernc.org/libc" {
				return r.Version
			}
		}
		return "none"
	}
	cmd := exec.Command("go", "list", "-m", "-f", "{{.GoMod}}", "modernc.org/sqlite")
	cmd.Dir = top
	out, err := cmd.Output()
	if err != nil {
		t.Fatal("go list -m: ", err)
	}
	have, want := version(modFile(t)), version(modFile(t, strings.TrimSpace(string(out))))
	if have != want || want == "none" {
		t.Errorf("go.mod has modernc.org/libc %s, the driver needs %s: go get modernc.org/libc@%s", have, want, want)
	}
}
