package pricewatch

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"belfry"

	"github.com/google/go-cmp/cmp"
)

func TestPricesAreReadAsTheyStand(t *testing.T) {
	day := func(date string, quotes ...Quote) Tick {
		for i := range quotes {
			quotes[i].Date = date
		}
		return Tick{date, quotes}
	}
	for name, c := range map[string]struct {
		text string
		want []Tick
	}{
		"date and price":       {"date,price\n2026-01-01,19.80\n2026-01-02,18\n", []Tick{day("2026-01-01", Quote{Item: "tea", Price: 19.8}), day("2026-01-02", Quote{Item: "tea", Price: 18})}},
		"a header in any case": {"DATE, Price \n2026-01-01,1\n", []Tick{day("2026-01-01", Quote{Item: "tea", Price: 1})}},
		"items of one date":    {"date,item,price\n2026-01-01,pan,2\n2026-01-01,cup,1\n", []Tick{day("2026-01-01", Quote{Item: "cup", Price: 1}, Quote{Item: "pan", Price: 2})}},
		"columns in any order": {"price,note,date,item\n3,hello,2026-01-01,cup\n", []Tick{day("2026-01-01", Quote{Item: "cup", Price: 3})}},
		"the latest first":     {"date,price\n2026-01-02,2\n2026-01-01,1\n", []Tick{day("2026-01-01", Quote{Item: "tea", Price: 1}), day("2026-01-02", Quote{Item: "tea", Price: 2})}},
		"sold out":             {"date,price\n2026-01-01,\n", []Tick{day("2026-01-01", Quote{Item: "tea", SoldOut: true})}},
		"below zero":           {"date,price\n2020-04-20,-36.98\n", []Tick{day("2020-04-20", Quote{Item: "tea", Price: -36.98})}},
		"a mark and CRLF":      {"\ufeffdate,price\r\n2026-01-01,1\r\n\r\n2026-01-02,2", []Tick{day("2026-01-01", Quote{Item: "tea", Price: 1}), day("2026-01-02", Quote{Item: "tea", Price: 2})}},
		"quotes":               {"date,item,price\n\"2026-01-01\",\"cup, \"\"big\"\"\",\"1\"\n", []Tick{day("2026-01-01", Quote{Item: `cup, "big"`, Price: 1})}},
	} {
		got, err := ReadCSV(strings.NewReader(c.text), "tea")
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

func TestABadFileIsRefusedByLine(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"nothing":             {"", "is empty: want a header such as date,price or date,item,price"},
		"no rows":             {"date,price\n", "has no row below its header"},
		"no header":           {"2026-01-01,1\n", "line 1: the header lacks date or price: want date,price or date,item,price"},
		"a column twice":      {"date,price,Price\n", "line 1: the header names Price twice"},
		"semicolons":          {"date;price\n2026-01-01;1\n", "line 1: the header lacks date or price: want date,price or date,item,price"},
		"a date of elsewhere": {"date,price\n2026-01-01,1\n01.02.2026,2\n", `line 3: date "01.02.2026": want one such as 2026-12-01`},
		"no such day":         {"date,price\n2026-02-30,1\n", `line 2: date "2026-02-30": want one such as 2026-12-01`},
		"a word":              {"date,price\n2026-01-01,cheap\n", `line 2: price "cheap": want a plain decimal such as 19.80, or nothing when it is sold out`},
		"a comma in it":       {"date,price\n2026-01-01,\"1,5\"\n", `line 2: price "1,5": want a plain decimal such as 19.80, or nothing when it is sold out`},
		"not a number":        {"date,price\n2026-01-01,NaN\n", `line 2: price "NaN": want a plain decimal such as 19.80, or nothing when it is sold out`},
		"an exponent":         {"date,price\n2026-01-01,1e300\n", `line 2: price "1e300": want a plain decimal such as 19.80, or nothing when it is sold out`},
		"two points":          {"date,price\n2026-01-01,1.2.3\n", `line 2: price "1.2.3": want a plain decimal such as 19.80, or nothing when it is sold out`},
		"too much":            {"date,price\n2026-01-01,9999999999999\n", `line 2: price "9999999999999": want at most 1000000000000`},
		"a long word":         {"date,price\n2026-01-01," + strings.Repeat("ä", 50) + "\n", `line 2: price "` + strings.Repeat("ä", 40) + `…": want a plain decimal such as 19.80, or nothing when it is sold out`},
		"a field too few":     {"date,price\n2026-01-01\n", "line 2: has 1 fields, the header has 2"},
		"no item":             {"date,item,price\n2026-01-01,,1\n", "line 2: item: must not be empty"},
		"an item of bytes":    {"date,item,price\n2026-01-01,\xff,1\n", "line 2: item: is not valid UTF-8"},
		"a date twice":        {"date,price\n2026-01-01,1\n2026-01-02,1\n2026-01-01,2\n", `line 4: "tea" has a row for 2026-01-01 already, on line 2`},
		"an open quote":       {"date,price\n2026-01-01,1\n\"2026-01-02,1\n2026-01-03,1\n", `line 3: extraneous or missing " in quoted-field`},
		"UTF-16":              {"\xff\xfed\x00a\x00", "is UTF-16: save it as UTF-8"},
	} {
		got, err := ReadCSV(strings.NewReader(c.text), "tea")
		if err == nil || err.Error() != c.want || got != nil {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

func TestAFileHasLimits(t *testing.T) {
	endless := func(row string) *repeat { return &repeat{head: "date,item,price\n", row: row} }
	for want, r := range map[string]*repeat{
		"is larger than 64 MiB":                                   endless("2026-01-01," + strings.Repeat("x", 250) + ",\n"),
		"line 10002: names one item too many: want at most 10000": endless("2026-01-01,%d,1\n"),
	} {
		if _, err := ReadCSV(r, ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// repeat is a file without an end. A row may number itself.
type repeat struct {
	head, row string
	n         int
}

func (r *repeat) Read(p []byte) (int, error) {
	for len(r.head) < len(p) {
		r.n++
		if strings.Contains(r.row, "%d") {
			r.head += fmt.Sprintf(r.row, r.n)
		} else {
			r.head += strings.Repeat(r.row, 100)
		}
	}
	n := copy(p, r.head)
	r.head = r.head[n:]
	return n, nil
}

func TestAFileOfManyYearsIsOneItemNamedAfterIt(t *testing.T) {
	ticks, err := ReadFile("testdata/crude-daily.csv")
	if err != nil {
		t.Fatal(err)
	}
	if len(ticks) != 400 || ticks[0].Quotes[0].Item != "crude-daily" || !slices.IsSortedFunc(ticks, func(a, b Tick) int { return strings.Compare(a.Date, b.Date) }) {
		t.Errorf("%d ticks, the first %+v", len(ticks), ticks[0])
	}
	bad := filepath.Join(t.TempDir(), "bad.csv")
	if err := os.WriteFile(bad, []byte("a,b\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadFile(bad); err == nil || !strings.HasPrefix(err.Error(), bad+": line 1: ") {
		t.Errorf("%v", err)
	}
}

func TestTheWalkIsTheSameEveryTime(t *testing.T) {
	first := slices.Collect(head(Walk(seed), 200))
	if d := cmp.Diff(first, slices.Collect(head(Walk(seed), 200))); d != "" {
		t.Error(d)
	}
	soldOut, cheaper := 0, 0
	for i, tick := range first {
		if len(tick.Quotes) != len(catalogue) {
			t.Fatalf("%+v", tick)
		}
		for j, q := range tick.Quotes {
			switch {
			case q.SoldOut:
				soldOut++
			case q.Price <= 0:
				t.Errorf("%s: %+v", tick.Date, q)
			case i > 0 && q.Price < first[i-1].Quotes[j].Price:
				cheaper++
			}
		}
	}
	if soldOut < 50 || cheaper < 500 {
		t.Errorf("a dull walk: %d times sold out, %d times cheaper", soldOut, cheaper)
	}
}

func head(ticks func(func(Tick) bool), n int) func(func(Tick) bool) {
	return func(yield func(Tick) bool) {
		for t := range ticks {
			if n--; n < 0 || !yield(t) {
				return
			}
		}
	}
}

func TestAPriceIsWrittenAsMoney(t *testing.T) {
	for p, want := range map[Price]string{0: "0.00", 19.8: "19.80", 18: "18.00", -36.98: "-36.98", 1.2345: "1.2345", 1e12: "1000000000000.00"} {
		if got := p.String(); got != want {
			t.Errorf("%v is written %s, want %s", float64(p), got, want)
		}
	}
}

// Whatever the file: no panic, and what is taken is sorted, complete and within its bounds.
func FuzzReadCSV(f *testing.F) {
	for _, s := range []string{
		"date,price\n2026-01-01,19.80\n", "\ufeffDate,Item,Price\r\n2026-01-01,\"a\"\"b\",\r\n", "date,price\n2026-01-01,-1\n2026-01-01,2\n",
		"price,date\n+.5,0001-01-01\n", "date,item,price,x\n2026-12-31,a,1.,\n", "\xff\xfe", "date,price\n\"",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		ticks, err := ReadCSV(strings.NewReader(s), "item")
		if err != nil {
			if ticks != nil || strings.ContainsAny(err.Error(), "\x00\n") {
				t.Errorf("%v, %q", ticks, err)
			}
			return
		}
		last := ""
		for _, tick := range ticks {
			if tick.Date <= last || len(tick.Quotes) == 0 {
				t.Errorf("%+v after %q", tick, last)
			}
			last = tick.Date
			if _, err := time.Parse(time.DateOnly, tick.Date); err != nil {
				t.Error(err)
			}
			for i, q := range tick.Quotes {
				if math.Abs(float64(q.Price)) > maxPrice || q.SoldOut && q.Price != 0 || q.Date != tick.Date ||
					belfry.CheckName("item", q.Item) != nil || i > 0 && q.Item <= tick.Quotes[i-1].Item {
					t.Errorf("%+v", tick)
				}
			}
		}
	})
}
