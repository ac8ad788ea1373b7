package sqlite_test

import (
	"database/sql"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"belfry/store/sqlite"
)

// small are tables that stay small, so that reading all of one is no fault. Claims are bounded by the
// workers' room; in flight is what waits for an answer; the others an operator fills by hand.
var small = []string{"claim", "c", "flight", "pause", "project", "category", "access_key", "secret", "stat", "suppression", "migration"}

// whole are the statements that may read a whole table, and why.
var whole = map[string]string{
	`SELECT count(*) FROM waiting`:                                                "Stats counts what waits, in a reader",
	`SELECT DISTINCT w.id FROM waiting w JOIN`:                                    "a cancel by category or project goes through what waits, in steps",
	`SELECT recipient FROM endpoint WHERE project =`:                              "a suppression looks for targets among what waits with a recipient",
	`FROM waiting w JOIN notification n ON n.id = w.id WHERE w.queue = '~parked'`: "what is parked is a queue of its own",
}

// unrun are the statements that no case of the contract comes to, and why.
var unrun = map[string]string{
	`UPDATE endpoint SET strikes = 0 WHERE id = ?`: "no answer gives an endpoint a strike",
}

func excused(query string) bool {
	for text := range whole {
		if strings.Contains(query, text) {
			return true
		}
	}
	return false
}

// plan is how SQLite would run a statement.
func plan(t *testing.T, db *sql.DB, query string) (steps []string) {
	t.Helper()
	st, err := db.Prepare(query)
	if err != nil {
		t.Errorf("%s\n\tcannot be prepared: %v", query, err)
		return nil
	}
	st.Close()
	args := make([]any, parameters(query))
	rows, err := db.Query("EXPLAIN QUERY PLAN "+query, args...)
	if err != nil {
		t.Errorf("%s\n\tcannot be explained: %v", query, err)
		return nil
	}
	defer rows.Close()
	for rows.Next() {
		var id, parent, unused int
		var detail string
		if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
			t.Fatal(err)
		}
		steps = append(steps, detail)
	}
	return steps
}

var numbered = regexp.MustCompile(`\?(\d+)`)

func parameters(query string) (n int) {
	for _, m := range numbered.FindAllStringSubmatch(query, -1) {
		i, _ := strconv.Atoi(m[1])
		n = max(n, i)
	}
	return max(n, strings.Count(numbered.ReplaceAllString(query, ""), "?"))
}

var scan = regexp.MustCompile(`^SCAN (\w+)`)

// judgeStatements holds every statement of the contract's run against a migrated database: it prepares, and
// it goes through an index wherever a table grows. Nothing that the source says is left out.
func judgeStatements(t *testing.T, statements map[string]bool) {
	dir := t.TempDir()
	openAt(t, dir, sqlite.Options{})
	db := beside(t, dir, "")
	for query := range statements {
		if verb, _, _ := strings.Cut(query, " "); !slices.Contains([]string{"SELECT", "INSERT", "UPDATE", "DELETE"}, verb) {
			continue
		}
		for _, step := range plan(t, db, query) {
			m := scan.FindStringSubmatch(step)
			if m == nil || slices.Contains(small, m[1]) || strings.Contains(step, "VIRTUAL TABLE") || strings.Contains(step, "CONSTANT ROW") || strings.HasSuffix(step, "VALUES CLAUSE") || excused(query) {
				continue
			}
			t.Errorf("%s\n\treads all of a table: %s", query, step)
		}
	}
	for _, text := range sources(t) {
		if unrun[text] == "" && !slices.ContainsFunc(slices.Collect(keys(statements)), func(q string) bool { return strings.Contains(q, text) }) {
			t.Errorf("no case of the contract runs %s", text)
		}
	}
}

func keys(m map[string]bool) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// sources are the texts in the source that begin a statement.
func sources(t *testing.T) (texts []string) {
	t.Helper()
	packages, err := parser.ParseDir(token.NewFileSet(), ".", func(f fs.FileInfo) bool { return !strings.HasSuffix(f.Name(), "_test.go") }, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range packages {
		ast.Inspect(p, func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING {
				return true
			}
			text, _ := strconv.Unquote(lit.Value)
			verb, _, _ := strings.Cut(text, " ")
			if slices.Contains([]string{"SELECT", "INSERT", "UPDATE", "DELETE"}, verb) {
				texts = append(texts, text)
			}
			return true
		})
	}
	if len(texts) < 50 {
		t.Errorf("only %d statements were found in the source", len(texts))
	}
	return texts
}

// What every notification goes through, and how: to look at the first columns of an index only would read
// all of a project.
func TestTheBusyStatementsSeek(t *testing.T) {
	dir := t.TempDir()
	openAt(t, dir, sqlite.Options{})
	db := beside(t, dir, "")
	for name, c := range map[string]struct{ query, step string }{
		"heads, next project":  {`SELECT queue, lane, project, due_at FROM waiting WHERE queue = ?1 AND lane = ?2 AND project > ?3 ORDER BY project, due_at LIMIT 1`, "SEARCH waiting USING PRIMARY KEY (queue=? AND lane=? AND project>?)"},
		"claim":                {`SELECT w.id FROM waiting w WHERE w.queue = ? AND w.lane = ? AND w.project = ? AND w.due_at <= ? ORDER BY w.due_at, w.id, w.n LIMIT ?`, "SEARCH w USING PRIMARY KEY (queue=? AND lane=? AND project=? AND due_at<?)"},
		"withdraw":             {`SELECT w.body FROM waiting w INDEXED BY waiting_by_recipient WHERE w.project = ? AND w.recipient = ? AND w.recipient IS NOT NULL AND w.n > 0`, "SEARCH w USING INDEX waiting_by_recipient (project=? AND recipient=?)"},
		"suppress, its owners": {`SELECT recipient FROM endpoint WHERE project = ?1 AND address = ?2`, "SEARCH endpoint USING INDEX endpoint_by_address (project=? AND address=?)"},
		"purge":                {`SELECT id FROM ended WHERE at < ?1 AND id < ?2 ORDER BY id LIMIT ?3`, "SEARCH ended USING INTEGER PRIMARY KEY (rowid<?)"},
		"wipe":                 {`SELECT id FROM ended WHERE wiped = 0 AND at < ? ORDER BY at LIMIT ?`, "SEARCH ended USING COVERING INDEX ended_unwiped (at<?)"},
		"expired keys":         {`DELETE FROM request WHERE key IN (SELECT key FROM request WHERE expires_at <= ? LIMIT ?)`, "SEARCH request USING COVERING INDEX request_by_expiry (expires_at<?)"},
		"expired facts":        {`DELETE FROM once WHERE fact IN (SELECT fact FROM once WHERE expires_at > 0 AND expires_at <= ? LIMIT ?)`, "SEARCH once USING COVERING INDEX once_by_expiry (expires_at>? AND expires_at<?)"},
	} {
		if steps := plan(t, db, c.query); !slices.Contains(steps, c.step) {
			t.Errorf("%s: %q, want %q", name, steps, c.step)
		}
	}
}
