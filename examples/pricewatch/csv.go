package pricewatch

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"belfry"
)

// Limits of a file of prices.
const (
	maxFile  = 64 << 20
	maxRows  = 1_000_000
	maxItems = 10_000
	maxPrice = 1e12
)

// ReadFile reads a file of prices, see [ReadCSV]. Without a column for the item, the file's name names it.
func ReadFile(path string) ([]Tick, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	item := strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
	if belfry.CheckName("item", item) != nil {
		item = "item"
	}
	ticks, err := ReadCSV(f, item)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return ticks, nil
}

// ReadCSV reads prices from CSV in UTF-8: a header that names the columns date and price, perhaps item, in
// any order and case, and a row for every date and item. Other columns are ignored. A date is written
// 2026-12-01, a price as a plain decimal with a point; no price means sold out. Rows may come in any order;
// those of one date make one tick. item is the name of all rows when there is no column for it.
//
// An error names the line. Nothing is guessed: one bad row refuses the file.
func ReadCSV(r io.Reader, item string) ([]Tick, error) {
	in := bufio.NewReader(&limited{r, maxFile})
	if err := skipMark(in); err != nil {
		return nil, err
	}
	c := csv.NewReader(in)
	c.FieldsPerRecord, c.ReuseRecord, c.TrimLeadingSpace = -1, true, true
	header, err := c.Read()
	if err == io.EOF {
		return nil, errors.New("is empty: want a header such as date,price or date,item,price")
	}
	if err != nil {
		return nil, atLine(err)
	}
	at, err := columns(header)
	if err != nil {
		return nil, fmt.Errorf("line 1: %w", err)
	}
	rows, err := readRows(c, at, len(header), item)
	if err != nil {
		return nil, err
	}
	return ticks(rows)
}

// skipMark skips the mark that some programs put before UTF-8.
func skipMark(in *bufio.Reader) error {
	head, _ := in.Peek(3) // a read error comes again
	switch {
	case bytes.HasPrefix(head, []byte("\xef\xbb\xbf")):
		_, _ = in.Discard(3)
	case bytes.HasPrefix(head, []byte("\xff\xfe")), bytes.HasPrefix(head, []byte("\xfe\xff")):
		return errors.New("is UTF-16: save it as UTF-8")
	}
	return nil
}

// place is where the columns are; item is -1 when there is none.
type place struct{ date, item, price int }

func columns(header []string) (place, error) {
	at := place{-1, -1, -1}
	for i, name := range header {
		var to *int
		switch strings.ToLower(strings.TrimSpace(name)) {
		case "date":
			to = &at.date
		case "item":
			to = &at.item
		case "price":
			to = &at.price
		default:
			continue
		}
		if *to >= 0 {
			return at, fmt.Errorf("the header names %s twice", strings.TrimSpace(name))
		}
		*to = i
	}
	if at.date < 0 || at.price < 0 {
		return at, errors.New("the header lacks date or price: want date,price or date,item,price")
	}
	return at, nil
}

type row struct {
	Quote
	line int
}

func readRows(c *csv.Reader, at place, width int, item string) ([]row, error) {
	var rows []row
	names := map[string]string{} // dates and items, each kept once
	items := map[string]bool{}
	name := func(s string) string {
		if _, ok := names[s]; !ok {
			s = strings.Clone(s)
			names[s] = s
		}
		return names[s]
	}
	for {
		record, err := c.Read()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, atLine(err)
		}
		line, _ := c.FieldPos(0)
		fail := func(format string, args ...any) ([]row, error) {
			return nil, fmt.Errorf("line %d: %w", line, fmt.Errorf(format, args...))
		}
		if len(record) != width {
			return fail("has %d fields, the header has %d", len(record), width)
		}
		if len(rows) == maxRows {
			return fail("is one too many: want at most %d rows", maxRows)
		}
		q := Quote{Item: item, Date: name(strings.TrimSpace(record[at.date]))}
		if _, err := time.Parse(time.DateOnly, q.Date); err != nil {
			return fail("date %s: want one such as 2026-12-01", short(q.Date))
		}
		if at.item >= 0 {
			q.Item = name(strings.TrimSpace(record[at.item]))
			if err := belfry.CheckName("item", q.Item); err != nil {
				return fail("%w", err)
			}
		}
		if items[q.Item] = true; len(items) > maxItems {
			return fail("names one item too many: want at most %d", maxItems)
		}
		if q.Price, q.SoldOut, err = parsePrice(strings.TrimSpace(record[at.price])); err != nil {
			return fail("price %s: %w", short(strings.TrimSpace(record[at.price])), err)
		}
		rows = append(rows, row{q, line})
	}
	if len(rows) == 0 {
		return nil, errors.New("has no row below its header")
	}
	return rows, nil
}

var errPrice = errors.New("want a plain decimal such as 19.80, or nothing when it is sold out")

func parsePrice(s string) (p Price, soldOut bool, err error) {
	if s == "" {
		return 0, true, nil
	}
	// ParseFloat would take 0x10, 1_000, 1e3 and inf.
	if strings.Trim(s, "0123456789.+-") != "" || len(s) > 32 {
		return 0, false, errPrice
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return 0, false, errPrice
	}
	if math.Abs(f) > maxPrice {
		return 0, false, fmt.Errorf("want at most %.0f", maxPrice)
	}
	return Price(f), false, nil
}

// ticks puts rows into the order of their dates.
func ticks(rows []row) (out []Tick, err error) {
	slices.SortFunc(rows, func(a, b row) int {
		return cmp.Or(strings.Compare(a.Date, b.Date), strings.Compare(a.Item, b.Item), cmp.Compare(a.line, b.line))
	})
	for i, r := range rows {
		if i == 0 || rows[i-1].Date != r.Date {
			out = append(out, Tick{Date: r.Date})
		} else if rows[i-1].Item == r.Item {
			return nil, fmt.Errorf("line %d: %s has a row for %s already, on line %d", r.line, short(r.Item), r.Date, rows[i-1].line)
		}
		t := &out[len(out)-1]
		t.Quotes = append(t.Quotes, r.Quote)
	}
	return out, nil
}

// short quotes what a file says, as far as it helps.
func short(s string) string {
	const most = 40
	if r := []rune(s); len(r) > most {
		s = string(r[:most]) + "…"
	}
	return strconv.Quote(s)
}

func atLine(err error) error {
	if e, ok := errors.AsType[*csv.ParseError](err); ok {
		return fmt.Errorf("line %d: %w", e.StartLine, e.Err)
	}
	return err
}

// limited is a reader that fails where the file goes on after its limit.
type limited struct {
	r    io.Reader
	left int64
}

func (l *limited) Read(p []byte) (int, error) {
	n, err := l.r.Read(p)
	if l.left -= int64(n); l.left < 0 {
		return 0, fmt.Errorf("is larger than %d MiB", maxFile>>20)
	}
	return n, err
}
