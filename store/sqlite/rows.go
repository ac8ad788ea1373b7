package sqlite

import "strings"

// table is where rows are only ever added in bulk: what a group of calls adds to it is written by a few
// statements of many rows, which costs a third of a statement each.
type table int

const (
	intoNotification table = iota
	intoWaiting
	intoDelivery
	intoEnded
	intoMark
	intoEvent
	tables
)

// shape is how rows are added to a table.
type shape struct {
	insert   string
	columns  int
	conflict string
}

var shapes = [tables]shape{
	intoNotification: {`INSERT INTO notification (id, project, recipient, category, subject, data, created_at, due_at, deadline, lane, sensitive, options, fact) VALUES `, 13, ``},
	intoWaiting:      {`INSERT INTO waiting (queue, lane, project, due_at, id, n, home, recipient, body) VALUES `, 9, ``},
	intoDelivery:     {`INSERT INTO delivery (id, n, ended_at, body) VALUES `, 4, ` ON CONFLICT (id, n) DO UPDATE SET body = excluded.body`},
	intoEnded:        {`INSERT INTO ended (id, state, reason, at, wiped) VALUES `, 5, ``},
	intoMark: {`INSERT INTO mark (project, recipient, category, subject, at, data, notification) VALUES `, 7,
		` ON CONFLICT (project, recipient, category, subject) DO UPDATE SET at = excluded.at, data = excluded.data, notification = excluded.notification WHERE excluded.at > mark.at`},
	intoEvent: {`INSERT INTO event (id, n, at, kind, reason, until, detail) VALUES `, 7, ``},
}

// chunks are the numbers of rows in a statement, so that few statements are prepared.
var chunks = []int{64, 16, 4, 1}

var statements = func() (s [tables]map[int]string) {
	for t, sh := range shapes {
		s[t] = map[int]string{}
		row := "(" + strings.Repeat("?, ", sh.columns-1) + "?)"
		for _, n := range chunks {
			s[t][n] = sh.insert + strings.Repeat(row+", ", n-1) + row + sh.conflict
		}
	}
	return s
}()

// add adds a row when the transaction is next looked at, or committed.
func (t *txn) add(to table, row ...any) {
	t.pending[to] = append(t.pending[to], row...)
	t.adding = true
}

// sync writes what was added, so that it can be read.
func (t *txn) sync() error {
	if !t.adding {
		return nil
	}
	t.adding = false
	for to := range tables {
		rows, columns := t.pending[to], shapes[to].columns
		for _, n := range chunks {
			for len(rows) >= n*columns {
				if _, err := t.poke(statements[to][n], rows[:n*columns]...); err != nil {
					return err
				}
				rows = rows[n*columns:]
			}
		}
		t.pending[to] = t.pending[to][:0]
	}
	return nil
}
