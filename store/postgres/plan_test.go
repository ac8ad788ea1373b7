package postgres

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"belfry"
	"belfry/internal/pgtest"
)

// The statements that run all the time must not read what they do not need, however much waits: each is
// explained with a hundred thousand waiting rows, and may not walk a whole table.
func TestStatementsUseTheirIndexes(t *testing.T) {
	s := openTest(t, pgtest.New(t), "belfry")
	err := s.do(t.Context(), durable, func(tx *txn) error {
		return tx.run(`
INSERT INTO notification (id, project, recipient, category, subject, created_at, due_at, deadline, lane, sensitive)
SELECT i, 'shop', 'r' || i % 10000, 'news', '', i, i, i, 1, false FROM generate_series(1, 100000) i;
INSERT INTO waiting (queue, lane, project, due_at, id, n, recipient, reason, body)
SELECT CASE WHEN i % 2 = 0 THEN '' ELSE 'email' END, 1, 'shop', i, i, i % 2, CASE WHEN i % 2 = 1 THEN 'r' || i % 10000 END, '', '{}' FROM generate_series(1, 100000) i;
INSERT INTO recipient SELECT 'shop', 'r' || i, 'UTC', '', 0, '', NULL, 0, 0 FROM generate_series(1, 10000) i;
INSERT INTO delivery SELECT i, 1, i, '{}', NULL FROM generate_series(1, 100000) i;
INSERT INTO ended SELECT i, 'sent', '', i, i % 2 = 0 FROM generate_series(1, 100000) i;
ANALYZE notification; ANALYZE waiting; ANALYZE recipient; ANALYZE delivery; ANALYZE ended;`, pgx.QueryExecModeSimpleProtocol)
	})
	if err != nil {
		t.Fatal(err)
	}
	ids := numbers([]belfry.ID{5, 500, 50_000})
	for _, c := range []struct {
		name  string
		query string
		args  []any
		uses  string
	}{
		{"claim", takeWaiting, []any{"email", int16(1), "shop", int64(90_000), 256}, "waiting_pkey"},
		{"heads", selectHeads, nil, "waiting_pkey"},
		{"withdraw", waitingOf, []any{"shop", "r77"}, "waiting_by_recipient"},
		{"pieces", waitingOfItems, []any{ids}, "waiting_by_id"},
		{"standings", selectStandings, []any{ids}, "notification_pkey"},
		{"purge", `SELECT id FROM ended WHERE at < $1 LIMIT $2 FOR UPDATE SKIP LOCKED`, []any{int64(100), 100}, "ended_at"},
		{"wipe", `SELECT id FROM ended WHERE at < $1 AND NOT wiped LIMIT $2 FOR UPDATE SKIP LOCKED`, []any{int64(100), 100}, "ended_content"},
		{"free facts", freeFacts, []any{ids}, "notification_pkey"},
	} {
		var plan []string
		err := s.do(t.Context(), durable, func(tx *txn) error {
			plan = nil
			return tx.peekEach("EXPLAIN "+c.query, func(scan func(...any) error) error {
				var line string
				err := scan(&line)
				plan = append(plan, line)
				return err
			}, c.args...)
		})
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		text := strings.Join(plan, "\n")
		for _, table := range []string{"waiting", "notification", "delivery", "ended", "recipient"} {
			if strings.Contains(text, fmt.Sprint("Seq Scan on ", table)) {
				t.Errorf("%s reads all of %s:\n%s", c.name, table, text)
			}
		}
		if !strings.Contains(text, c.uses) {
			t.Errorf("%s does not use %s:\n%s", c.name, c.uses, text)
		}
	}
}
