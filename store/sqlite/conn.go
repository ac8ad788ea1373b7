package sqlite

import (
	"database/sql"
	"encoding/binary"
	"fmt"
	"reflect"

	"belfry"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"
)

// conn is where statements run: a connection of the store's own, or a caller's transaction.
type conn interface {
	prepare(query string) (statement, error)
	close() error
}

// statement is prepared once and run many times.
type statement interface {
	// exec runs it to its end and says how many rows it changed.
	exec(args []any) (int64, error)
	// each calls row for every row; scan reads its columns. It stops at the first error.
	each(args []any, row func(scan func(...any) error) error) error
	close() error
}

// database is a connection on SQLite's own functions. database/sql is made for strangers who share one: its
// locks, copies and conversions would cost as much as the work. Whoever has it must be alone with it.
type database struct {
	tls  *libc.TLS
	db   uintptr
	cell uintptr // where SQLite leaves a pointer for us
}

// connect opens a file and sets what the statements say.
func connect(path string, settings ...string) (*database, error) {
	d := &database{tls: libc.NewTLS()}
	d.cell = sqlite3.Xsqlite3_malloc64(d.tls, 8)
	name, err := libc.CString(path)
	if err != nil {
		return nil, err
	}
	defer libc.Xfree(d.tls, name)
	const flags = sqlite3.SQLITE_OPEN_READWRITE | sqlite3.SQLITE_OPEN_CREATE | sqlite3.SQLITE_OPEN_NOMUTEX
	rc := sqlite3.Xsqlite3_open_v2(d.tls, name, d.cell, flags, 0)
	d.db = d.left()
	sqlite3.Xsqlite3_extended_result_codes(d.tls, d.db, 1)
	if rc != sqlite3.SQLITE_OK {
		err := d.failed(rc)
		d.close()
		return nil, err
	}
	// A plan does not depend on what is bound: else some statements would be planned anew each time they run.
	stable := libc.NewVaList(int32(1), uintptr(0))
	defer libc.Xfree(d.tls, stable)
	if rc := sqlite3.Xsqlite3_db_config(d.tls, d.db, sqlite3.SQLITE_DBCONFIG_ENABLE_QPSG, stable); rc != sqlite3.SQLITE_OK {
		err := d.failed(rc)
		d.close()
		return nil, err
	}
	for _, s := range settings {
		if err := d.script(s); err != nil {
			d.close()
			return nil, err
		}
	}
	return d, nil
}

// left is the pointer that the last call left in the cell.
func (d *database) left() uintptr {
	b := libc.GoBytes(d.cell, 8)
	if reflect.TypeFor[uintptr]().Size() == 4 {
		return uintptr(binary.NativeEndian.Uint32(b))
	}
	return uintptr(binary.NativeEndian.Uint64(b))
}

func (d *database) close() error {
	if rc := sqlite3.Xsqlite3_close_v2(d.tls, d.db); rc != sqlite3.SQLITE_OK {
		return d.failed(rc)
	}
	sqlite3.Xsqlite3_free(d.tls, d.cell)
	d.tls.Close()
	return nil
}

// script runs statements without arguments.
func (d *database) script(text string) error {
	c, err := libc.CString(text)
	if err != nil {
		return err
	}
	defer libc.Xfree(d.tls, c)
	if rc := sqlite3.Xsqlite3_exec(d.tls, d.db, c, 0, 0, 0); rc != sqlite3.SQLITE_OK {
		return d.failed(rc)
	}
	return nil
}

// failure is what SQLite has to say about a result that is none.
type failure struct {
	code int // extended
	text string
}

func (f *failure) Error() string { return fmt.Sprintf("%s (%d)", f.text, f.code) }
func (f *failure) Code() int     { return f.code }

func (d *database) failed(rc int32) error {
	return &failure{int(rc), libc.GoString(sqlite3.Xsqlite3_errmsg(d.tls, d.db))}
}

func (d *database) prepare(query string) (statement, error) {
	c, err := libc.CString(query)
	if err != nil {
		return nil, err
	}
	defer libc.Xfree(d.tls, c)
	if rc := sqlite3.Xsqlite3_prepare_v3(d.tls, d.db, c, -1, sqlite3.SQLITE_PREPARE_PERSISTENT, d.cell, 0); rc != sqlite3.SQLITE_OK {
		return nil, d.failed(rc)
	}
	return &prepared{database: d, stmt: d.left()}, nil
}

// utf8 is an argument that is text. Only a [database] takes it.
type utf8 []byte

const static = 0 // SQLITE_STATIC: the bytes stay where they are

// prepared is a statement of a [database].
type prepared struct {
	*database
	stmt uintptr
	text uintptr // where the bytes of the arguments lie while it runs
	room int
}

func (p *prepared) close() error {
	sqlite3.Xsqlite3_free(p.tls, p.text)
	if rc := sqlite3.Xsqlite3_finalize(p.tls, p.stmt); rc != sqlite3.SQLITE_OK {
		return p.failed(rc)
	}
	return nil
}

func (p *prepared) exec(args []any) (int64, error) {
	if err := p.bind(args); err != nil {
		return 0, err
	}
	rc := sqlite3.Xsqlite3_step(p.tls, p.stmt)
	for rc == sqlite3.SQLITE_ROW {
		rc = sqlite3.Xsqlite3_step(p.tls, p.stmt)
	}
	if err := p.ended(rc); err != nil {
		return 0, err
	}
	return sqlite3.Xsqlite3_changes64(p.tls, p.db), nil
}

func (p *prepared) each(args []any, row func(scan func(...any) error) error) error {
	if err := p.bind(args); err != nil {
		return err
	}
	scan := p.scan
	for {
		rc := sqlite3.Xsqlite3_step(p.tls, p.stmt)
		if rc != sqlite3.SQLITE_ROW {
			return p.ended(rc)
		}
		if err := row(scan); err != nil {
			sqlite3.Xsqlite3_reset(p.tls, p.stmt)
			return err
		}
	}
}

// ended resets the statement after its last step.
func (p *prepared) ended(rc int32) error {
	var err error
	if rc != sqlite3.SQLITE_DONE {
		err = p.failed(rc)
	}
	sqlite3.Xsqlite3_reset(p.tls, p.stmt)
	return err
}

// bind lays the bytes of all arguments side by side where they stay until the statement is run again, so
// that SQLite needs no copy of its own.
func (p *prepared) bind(args []any) error {
	size := 1 // so that an empty text has a place, too
	for i, a := range args {
		switch a := a.(type) {
		case nil, int64, int, belfry.ID, bool:
		case string:
			size += len(a)
		case []byte:
			size += len(a)
		case utf8:
			size += len(a)
		default:
			v := reflect.ValueOf(a)
			if v.Kind() != reflect.String {
				return fmt.Errorf("sqlite: argument %d is a %T", i+1, a)
			}
			args[i] = v.String()
			size += v.Len()
		}
	}
	if size > p.room {
		sqlite3.Xsqlite3_free(p.tls, p.text)
		p.room = 2 * size
		p.text = sqlite3.Xsqlite3_malloc64(p.tls, uint64(p.room))
	}
	free := p.text
	for i, a := range args {
		var rc int32
		n := int32(i + 1)
		switch a := a.(type) {
		case nil:
			rc = sqlite3.Xsqlite3_bind_null(p.tls, p.stmt, n)
		case int64:
			rc = sqlite3.Xsqlite3_bind_int64(p.tls, p.stmt, n, a)
		case int:
			rc = sqlite3.Xsqlite3_bind_int64(p.tls, p.stmt, n, int64(a))
		case belfry.ID:
			rc = sqlite3.Xsqlite3_bind_int64(p.tls, p.stmt, n, int64(a))
		case string:
			copy(libc.GoBytes(free, len(a)), a)
			rc = sqlite3.Xsqlite3_bind_text(p.tls, p.stmt, n, free, int32(len(a)), static)
			free += uintptr(len(a))
		case utf8:
			copy(libc.GoBytes(free, len(a)), a)
			rc = sqlite3.Xsqlite3_bind_text(p.tls, p.stmt, n, free, int32(len(a)), static)
			free += uintptr(len(a))
		case []byte:
			if a == nil {
				rc = sqlite3.Xsqlite3_bind_null(p.tls, p.stmt, n)
				break
			}
			copy(libc.GoBytes(free, len(a)), a)
			rc = sqlite3.Xsqlite3_bind_blob(p.tls, p.stmt, n, free, int32(len(a)), static)
			free += uintptr(len(a))
		case bool:
			var v int64
			if a {
				v = 1
			}
			rc = sqlite3.Xsqlite3_bind_int64(p.tls, p.stmt, n, v)
		}
		if rc != sqlite3.SQLITE_OK {
			return p.failed(rc)
		}
	}
	return nil
}

func (p *prepared) scan(dest ...any) error {
	for i, d := range dest {
		n := int32(i)
		switch d := d.(type) {
		case *int64:
			*d = sqlite3.Xsqlite3_column_int64(p.tls, p.stmt, n)
		case *int:
			*d = int(sqlite3.Xsqlite3_column_int64(p.tls, p.stmt, n))
		case *bool:
			*d = sqlite3.Xsqlite3_column_int64(p.tls, p.stmt, n) != 0
		case *belfry.ID:
			*d = belfry.ID(sqlite3.Xsqlite3_column_int64(p.tls, p.stmt, n))
		case *string:
			*d, _ = p.column(n)
		case **string:
			if *d = nil; sqlite3.Xsqlite3_column_type(p.tls, p.stmt, n) != sqlite3.SQLITE_NULL {
				s, _ := p.column(n)
				*d = &s
			}
		case *sql.NullString:
			d.String, d.Valid = p.column(n)
		case *[]byte:
			*d = nil
			if at := sqlite3.Xsqlite3_column_blob(p.tls, p.stmt, n); at != 0 {
				*d = append([]byte{}, libc.GoBytes(at, int(sqlite3.Xsqlite3_column_bytes(p.tls, p.stmt, n)))...)
			}
		case *sql.NullInt64:
			d.Valid = sqlite3.Xsqlite3_column_type(p.tls, p.stmt, n) != sqlite3.SQLITE_NULL
			d.Int64 = sqlite3.Xsqlite3_column_int64(p.tls, p.stmt, n)
		default:
			v := reflect.ValueOf(d)
			if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.String {
				return fmt.Errorf("sqlite: column %d is read into a %T", n, d)
			}
			s, _ := p.column(n)
			v.Elem().SetString(s)
		}
	}
	return nil
}

// column is a text; false when it is NULL.
func (p *prepared) column(n int32) (string, bool) {
	at := sqlite3.Xsqlite3_column_text(p.tls, p.stmt, n)
	if at == 0 {
		return "", false
	}
	return string(libc.GoBytes(at, int(sqlite3.Xsqlite3_column_bytes(p.tls, p.stmt, n)))), true
}

// borrowed is a caller's transaction.
type borrowed struct{ *sql.Tx }

func (b borrowed) prepare(query string) (statement, error) {
	st, err := b.Prepare(query)
	return lent{st}, err
}

func (borrowed) close() error { return nil }

// lent is a statement of a [borrowed] transaction.
type lent struct{ *sql.Stmt }

func (l lent) close() error { return l.Close() }

func (l lent) exec(args []any) (int64, error) {
	r, err := l.Exec(args...)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

func (l lent) each(args []any, row func(scan func(...any) error) error) error {
	rows, err := l.Query(args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}
