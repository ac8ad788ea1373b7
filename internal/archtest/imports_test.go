package archtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

const module = "belfry"

// A row says what of ours a room may import, as a list of words, and what would be lost otherwise. A word
// that ends in /... stands for a room and all below it; root is the root package.
type row struct{ imports, why string }

// rooms is the whole table: a package without a row fails.
var rooms = map[string]row{
	"root":     {"", "the rules are decided on values alone, so the model checks the code that ships"},
	"content":  {"root", "text is made of values; what it is for is not its business"},
	"calendar": {"root tzdb", "dates are computed, not looked up"},
	"tzdb":     {"root", "zones are data"},

	"store":           {"root", "a seam knows the words and nothing else, or drivers could not be exchanged"},
	"channel":         {"root", "a seam knows the words and nothing else, or drivers could not be exchanged"},
	"queue":           {"root", "a seam knows the words and nothing else, or drivers could not be exchanged"},
	"store/storetest": {"root store store/mapstore", "a contract knows no driver"},
	"store/mapstore":  {"root store", "the model that drivers are compared with decides by the rules alone"},
	"store/sqlite":    {"root store", "a store driver that knew others, or the wire, would be more than state"},
	"store/postgres":  {"root store", "a store driver that knew others, or the wire, would be more than state"},

	"channel/channeltest": {"root channel internal/safehttp", "a contract knows no driver"},
	"channel/*":           {"root channel internal/safehttp signature", "a channel knows its provider and no other room"},
	"queue/queuetest":     {"root queue", "a contract knows no driver"},
	"queue/*":             {"root queue", "a queue carries hints; it knows neither state nor channels"},

	"engine":                {"root store channel queue content tzdb calendar", "the engine sees seams only, so that every driver is under the same rules"},
	"check":                 {"root signature internal/safehttp internal/strictjson", "a recheck is a call to somebody else's program: it needs the guard, not the engine"},
	"signature":             {"", "receivers use it alone"},
	"receiver":              {"signature", "it runs in other people's programs, which have no engine"},
	"receiver/receivertest": {"receiver signature", "a contract knows no driver"},
	"receiver/*":            {"receiver", "it runs in other people's programs, which have no engine"},
	"access":                {"root store", "who is calling is decided apart from what is called"},
	"api":                   {"root access store tzdb internal/strictjson", "the API asks for what it needs through an interface of its own, not for an engine"},
	"console":               {"root access", "the console asks for what it needs through interfaces of its own"},
	"config":                {"root", "settings name no driver: their sections are decoded by whoever wires"},
	"sandbox":               {"root signature channel channel/webhook channel/webpush internal/safehttp", "pretend providers know the wire, not the engine"},

	"internal/safehttp":   {"", "the guard of everything that goes out depends on nothing that goes out"},
	"internal/strictjson": {"", "how JSON is read depends on no meaning"},
	"internal/model":      {"root", "the model walks the rules themselves"},
	"internal/pgtest":     {"", "it starts a database for tests"},
	"internal/archtest":   {"", "it looks at the tree from outside"},

	// Only these wire rooms together.
	"cmd/belfry": {"...", "the program puts everything together"},
	"lab":        {"...", "experiments run the whole"},
	"lab/*":      {"...", "experiments run the whole"},
	"examples/*": {"...", "examples are users of the whole"},
}

// A ban is about the standard library, or somebody else's module.
type ban struct{ room, packages, why string }

var bans = []ban{
	{"root", "context sync sync/atomic os net net/http database/sql log log/slog math/rand math/rand/v2 crypto/rand io/fs testing", "the rules have no effects, so they can be explored and repeated"},
	{"calendar", "context sync os net net/http database/sql log/slog math/rand math/rand/v2 crypto/rand", "the rules have no effects, so they can be explored and repeated"},
	{"content", "context os net net/http database/sql log/slog math/rand math/rand/v2 crypto/rand", "a template reaches no file, no host and no chance"},
	{"store", "database/sql net net/http os", "the seam does not know what a driver keeps its state in"},
	{"channel", "database/sql net net/http os", "the seam does not know how a provider is reached"},
	{"engine", "database/sql net/http os", "the engine reaches the world through seams only"},
	{"store/mapstore", "database/sql net net/http os", "the model is a map"},
	{"config", "net/http database/sql", "settings do nothing"},
}

// Where an import that is not ours and not the standard library's may stand; elsewhere it may not.
var homes = map[string]string{
	"modernc.org/sqlite":        "store/sqlite lab/duplicates examples/payments",
	"modernc.org/sqlite/lib":    "store/sqlite",
	"github.com/jackc/pgx/v5":   "receiver/postgres store/postgres internal/pgtest",
	"go.yaml.in/yaml/v3":        "config",
	"github.com/spf13/cobra":    "cmd/belfry",
	"golang.org/x/time/rate":    "api cmd/belfry",
	"github.com/vbauerster/mpb": "cmd/belfry lab examples/pricewatch",
}

type pkg struct {
	ImportPath, Dir, Doc     string
	GoFiles, Imports         []string
	TestGoFiles              []string
	XTestGoFiles             []string
	CgoFiles, IgnoredGoFiles []string
}

// tree is every package of the module.
var tree = sync.OnceValues(func() ([]pkg, error) {
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,Dir,Doc,GoFiles,Imports,TestGoFiles,XTestGoFiles,CgoFiles,IgnoredGoFiles", "./...")
	cmd.Dir = top
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	var all []pkg
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
})

var top, _ = filepath.Abs("../..")

func packages(t *testing.T) []pkg {
	t.Helper()
	all, err := tree()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// room is a package's name in the tables.
func room(importPath string) string {
	if importPath == module {
		return "root"
	}
	return strings.TrimPrefix(importPath, module+"/")
}

func ours(importPath string) bool {
	return importPath == module || strings.HasPrefix(importPath, module+"/")
}

// rowOf is the row of a room: its own, else that of its parent's children.
func rowOf(name string) (row, bool) {
	if r, ok := rooms[name]; ok {
		return r, true
	}
	for dir := name; strings.Contains(dir, "/"); {
		dir = dir[:strings.LastIndexByte(dir, '/')]
		if r, ok := rooms[dir+"/*"]; ok {
			return r, true
		}
	}
	return row{}, false
}

// faults says what is wrong with the imports of a package that is not a test.
func faults(p pkg) (out []string) {
	name := room(p.ImportPath)
	r, ok := rowOf(name)
	if !ok {
		return []string{name + " has no row in the table of rooms"}
	}
	may := strings.Fields(r.imports)
	for _, i := range p.Imports {
		if ours(i) && !slices.Contains(may, "...") && !slices.Contains(may, room(i)) {
			out = append(out, fmt.Sprintf("%s imports %s: %s", name, room(i), r.why))
		}
		if home, kept := homes[i]; kept && !slices.Contains(strings.Fields(home), name) {
			out = append(out, fmt.Sprintf("%s imports %s, which belongs into %s", name, i, home))
		}
		for _, b := range bans {
			if b.room == name && slices.Contains(strings.Fields(b.packages), i) {
				out = append(out, fmt.Sprintf("%s imports %s: %s", name, i, b.why))
			}
		}
	}
	if len(p.GoFiles) > 0 && len(p.CgoFiles) > 0 {
		out = append(out, name+" uses cgo: one static binary for every system is lost")
	}
	if p.Doc == "" && len(p.GoFiles) > 0 {
		out = append(out, name+" has no package comment: what does it promise?")
	}
	return out
}

func TestRoomsImportOnlyWhatTheyMay(t *testing.T) {
	for _, p := range packages(t) {
		for _, f := range faults(p) {
			t.Error(f)
		}
	}
}

func TestABreachOfTheTableIsFound(t *testing.T) {
	for _, c := range []struct {
		name    string
		imports []string
		want    int
	}{
		{"belfry", []string{"time", "errors"}, 0},
		{"belfry", []string{"context"}, 1},
		{"belfry", []string{"belfry/tzdb", "net/http"}, 2},
		{"belfry/engine", []string{"belfry", "belfry/store", "log/slog"}, 0},
		{"belfry/engine", []string{"belfry/store/sqlite"}, 1},
		{"belfry/engine", []string{"net/http", "database/sql"}, 2},
		{"belfry/channel/pigeon", []string{"belfry", "belfry/channel", "belfry/internal/safehttp"}, 0},
		{"belfry/channel/pigeon", []string{"belfry/channel/webhook", "belfry/engine"}, 2},
		{"belfry/store", []string{"belfry", "context"}, 0},
		{"belfry/store", []string{"belfry/channel"}, 1},
		{"belfry/api", []string{"belfry/engine"}, 1},
		{"belfry/receiver", []string{"belfry"}, 1},
		{"belfry/cmd/belfry", []string{"belfry/engine", "belfry/store/sqlite", "github.com/spf13/cobra"}, 0},
		{"belfry/engine", []string{"github.com/spf13/cobra"}, 1},
		{"belfry/attic", []string{"fmt"}, 1},
	} {
		got := faults(pkg{ImportPath: c.name, Doc: "Package x.", GoFiles: []string{"x.go"}, Imports: c.imports})
		if len(got) != c.want {
			t.Errorf("%s with %v: %q", c.name, c.imports, got)
		}
	}
	if got := faults(pkg{ImportPath: "belfry/store", GoFiles: []string{"x.go"}}); len(got) != 1 {
		t.Errorf("a package without comment: %q", got)
	}
}
