package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A call is banned from some rooms: those that it names, or with except all but those.
type call struct {
	names  string // package.Function, or package.Type for a composite literal
	rooms  string
	except bool
	tests  bool // in tests too
	why    string
}

var calls = []call{
	{names: "time.Now time.Since time.Until time.After time.AfterFunc time.NewTimer time.NewTicker time.Tick",
		rooms: "root store channel content calendar store/mapstore internal/model", tests: false, why: "time is an argument here"},
	// The contract of a store and its planted faults sleep to shuffle the order of things, not to wait for them.
	{names: "time.Sleep", rooms: "store/storetest store/mapstore", except: true, tests: true, why: "wait for a condition, or let synctest move the clock"},
	{names: "http.Client http.DefaultClient http.Get http.Post http.PostForm http.Head http.Transport http.DefaultTransport",
		rooms: "internal/safehttp channel/channeltest cmd/belfry lab sandbox examples/pricewatch", except: true, why: "everything that goes out goes through internal/safehttp"},
	{names: "os.Exit log.Fatal log.Fatalf", rooms: "cmd/belfry examples/payments", except: true, tests: false, why: "only a program ends itself"},
}

func (c call) appliesTo(room string, test bool) bool {
	if test && !c.tests {
		return false
	}
	return slices.Contains(strings.Fields(c.rooms), room) != c.except
}

// breaches lists the banned calls of a file.
func breaches(f *ast.File, set *token.FileSet, room string, test bool) (out []string) {
	ast.Inspect(f, func(n ast.Node) bool {
		s, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		x, ok := s.X.(*ast.Ident)
		if !ok {
			return true
		}
		for _, c := range calls {
			if name := x.Name + "." + s.Sel.Name; c.appliesTo(room, test) && slices.Contains(strings.Fields(c.names), name) {
				out = append(out, set.Position(s.Pos()).String()+": "+name+": "+c.why)
			}
		}
		return true
	})
	return out
}

func TestNobodyCallsWhatTheirRoomMayNot(t *testing.T) {
	for _, p := range packages(t) {
		for _, files := range [][]string{p.GoFiles, p.IgnoredGoFiles, p.TestGoFiles, p.XTestGoFiles} {
			for _, name := range files {
				set := token.NewFileSet()
				f, err := parser.ParseFile(set, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
				if err != nil {
					t.Error(err)
					continue
				}
				for _, b := range breaches(f, set, room(p.ImportPath), strings.HasSuffix(name, "_test.go")) {
					t.Error(b)
				}
			}
		}
	}
}

func TestABannedCallIsFound(t *testing.T) {
	for _, c := range []struct {
		room string
		test bool
		body string
		want int
	}{
		{"root", false, "time.Now()", 1},
		{"root", true, "time.Now()", 0},
		{"engine", false, "time.Now()", 0},
		{"engine", true, "time.Sleep(1)", 1},
		{"engine", false, "_ = http.Client{}", 1},
		{"internal/safehttp", false, "_ = http.Transport{}", 0},
		{"check", false, "http.Get(``)", 1},
		{"api", false, "os.Exit(1)", 1},
	} {
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, "x.go", "package x\nfunc f() { "+c.body+" }", 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := breaches(f, set, c.room, c.test); len(got) != c.want {
			t.Errorf("%s in %s: %q", c.body, c.room, got)
		}
	}
}

// What no text of the tree may hold. The patterns are written so that they do not find themselves.
var texts = []struct {
	pattern *regexp.Regexp
	files   string // name endings; empty: all
	why     string
}{
	{regexp.MustCompile(`\bTO` + `DO\b|\bFIX` + `ME\b|\bXX` + `X\b|not imple` + `mented|unimple` + `mented`), ".go", "do it, or say in the docs that it is not done"},
	{regexp.MustCompile(`/(home|root|Users|wor` + `k)/[a-z.]`), "", "a path of one machine"},
}

func TestNoTextHoldsWhatItMayNot(t *testing.T) {
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); path != top && (strings.HasPrefix(name, ".") && name != ".ci" || name == "belfry-data" || name == "node_modules") {
				return filepath.SkipDir
			}
			return nil
		}
		rel, _ := filepath.Rel(top, path)
		info, err := d.Info()
		if err != nil || !info.Mode().IsRegular() || info.Size() > 1<<20 {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil || strings.ContainsRune(string(text), 0) {
			return err
		}
		for _, x := range texts {
			if x.files != "" && filepath.Ext(path) != x.files {
				continue
			}
			for i, line := range strings.Split(string(text), "\n") {
				if found := x.pattern.FindString(line); found != "" {
					t.Errorf("%s:%d: %q: %s", rel, i+1, found, x.why)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
