package sqlite

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"
)

//go:embed migrations/*.sql
var migrations embed.FS

// migrate brings the schema up to date: numbered files, forward only, each in a transaction of its own and
// recorded with its checksum. A file that was changed after it ran, or a schema newer than this program,
// is refused.
func migrate(tx *txn, now time.Time) error {
	err := tx.exec(`CREATE TABLE IF NOT EXISTS migration (
	number     INTEGER PRIMARY KEY,
	name       TEXT NOT NULL,
	checksum   TEXT NOT NULL,
	applied_at INTEGER NOT NULL
) STRICT`)
	if err != nil {
		return fmt.Errorf("sqlite: migrate: %w", explain(err))
	}
	files, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		return err
	}
	newest := 0
	if _, err := tx.one(`SELECT coalesce(max(number), 0) FROM migration`, nil, &newest); err != nil {
		return err
	}
	if newest > len(files) {
		return fmt.Errorf("sqlite: the data was written by a newer belfry (schema %d, this one knows %d): use that one", newest, len(files))
	}
	for i, name := range files {
		if err := migrateFile(tx, i+1, name, now); err != nil {
			return fmt.Errorf("sqlite: migration %s: %w", name, err)
		}
	}
	return nil
}

func migrateFile(tx *txn, number int, name string, now time.Time) (err error) {
	text, err := migrations.ReadFile(name)
	if err != nil {
		return err
	}
	base := strings.TrimPrefix(name, "migrations/")
	if n, err := strconv.Atoi(base[:4]); err != nil || n != number {
		return fmt.Errorf("is not number %d", number)
	}
	sum := sha256.Sum256(text)
	checksum := hex.EncodeToString(sum[:])
	var was string
	switch applied, err := tx.one(`SELECT checksum FROM migration WHERE number = ?`, []any{number}, &was); {
	case err != nil || applied && was == checksum:
		return err
	case applied:
		return fmt.Errorf("was changed after it was applied")
	}
	if err := tx.exec("BEGIN IMMEDIATE"); err != nil {
		return explain(err)
	}
	defer func() {
		if err != nil {
			tx.exec("ROLLBACK")
		}
	}()
	if err := tx.conn.(*database).script(string(text)); err != nil {
		return err
	}
	if err := tx.exec(`INSERT INTO migration VALUES (?, ?, ?, ?)`, number, base, checksum, now.UnixMicro()); err != nil {
		return err
	}
	return tx.exec("COMMIT")
}
