package postgres

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

//go:embed migrations/*.sql
var migrations embed.FS

// migration is a numbered file. Its first line says up to which older schema a program may still work with
// it, so that programs of both versions run side by side while one takes over from the other.
type migration struct {
	number     int
	name       string
	text       string
	checksum   string
	compatible int
}

func readMigrations(files fs.FS) (list []migration, err error) {
	names, err := fs.Glob(files, "migrations/*.sql")
	if err != nil {
		return nil, err
	}
	for i, name := range names {
		b, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(b)
		m := migration{number: i + 1, name: strings.TrimPrefix(name, "migrations/"), text: string(b), checksum: hex.EncodeToString(sum[:])}
		if n, err := strconv.Atoi(m.name[:4]); err != nil || n != m.number {
			return nil, fmt.Errorf("postgres: migration %s is not number %d", m.name, m.number)
		}
		head, _, _ := strings.Cut(m.text, "\n")
		m.compatible, err = strconv.Atoi(strings.TrimPrefix(head, "-- compatible: "))
		if err != nil || m.compatible < 1 || m.compatible > m.number {
			return nil, fmt.Errorf("postgres: migration %s does not begin with the oldest schema that it is compatible with", m.name)
		}
		list = append(list, m)
	}
	return list, nil
}

// migrate brings the schema up to date: numbered files, forward only, all in one transaction and recorded
// with their checksums. A file that was changed after it ran, or a schema too new for this program, is refused.
func (s *Store) migrate(ctx context.Context, now time.Time) error {
	known, err := readMigrations(migrations)
	if err != nil {
		return err
	}
	return s.migrateTo(ctx, now, known)
}

func (s *Store) migrateTo(ctx context.Context, now time.Time, known []migration) error {
	var todo []migration
	err := s.view(ctx, func(tx *txn) (err error) {
		todo, err = tx.missing(known)
		return err
	})
	if err != nil || len(todo) == 0 {
		return err
	}
	return s.do(ctx, durable, func(tx *txn) error {
		// Of two programs that start at once the second waits here, and then finds nothing to do. It may
		// have to wait for longer than for a row.
		if err := tx.run(`SET LOCAL lock_timeout TO 0`); err != nil {
			return err
		}
		if err := tx.run(`SELECT pg_advisory_xact_lock($1, -1)`, tx.space); err != nil {
			return err
		}
		todo, err := tx.missing(known)
		if err != nil || len(todo) == 0 {
			return err
		}
		if err := tx.startSchema(s.options.Schema); err != nil {
			return err
		}
		for _, m := range todo {
			if err := tx.run(m.text, pgx.QueryExecModeSimpleProtocol); err != nil {
				return fmt.Errorf("postgres: migration %s: %w", m.name, err)
			}
			if err := tx.run(`INSERT INTO migration (number, name, checksum, compatible, applied_at) VALUES ($1, $2, $3, $4, $5)`, m.number, m.name, m.checksum, m.compatible, micros(now)); err != nil {
				return err
			}
		}
		return nil
	})
}

func (tx *txn) startSchema(schema string) error {
	var there bool
	if _, err := tx.peek(`SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)`, []any{schema}, &there); err != nil {
		return err
	}
	if !there { // CREATE SCHEMA IF NOT EXISTS wants the privilege even when there is nothing to make
		if err := tx.run(`CREATE SCHEMA ` + pgx.Identifier{schema}.Sanitize()); err != nil {
			return err
		}
	}
	return tx.run(`CREATE TABLE IF NOT EXISTS migration (
	number     integer PRIMARY KEY,
	name       text NOT NULL,
	checksum   text NOT NULL,
	compatible integer NOT NULL, -- the oldest schema whose programs may still work
	applied_at bigint NOT NULL
)`)
}

// missing lists the migrations that have not run.
func (tx *txn) missing(known []migration) ([]migration, error) {
	var there bool
	if _, err := tx.peek(`SELECT to_regclass(quote_ident(current_schema()) || '.migration') IS NOT NULL`, nil, &there); err != nil {
		return nil, err
	}
	if !there {
		return known, nil
	}
	todo := known
	err := tx.peekEach(`SELECT number, name, checksum, compatible FROM migration ORDER BY number`, func(scan func(...any) error) error {
		var m migration
		if err := scan(&m.number, &m.name, &m.checksum, &m.compatible); err != nil {
			return err
		}
		if m.number > len(known) {
			if m.compatible > len(known) {
				return fmt.Errorf("postgres: the schema was brought to %d by a newer belfry, and needs one that knows %d; this one knows %d: use the newer one", m.number, m.compatible, len(known))
			}
			return nil
		}
		if k := known[m.number-1]; k.checksum != m.checksum {
			return fmt.Errorf("postgres: migration %s was changed after it was applied", k.name)
		}
		todo = known[m.number:]
		return nil
	})
	return todo, err
}
