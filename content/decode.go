package content

import (
	"encoding/json"
	"strings"

	"belfry"
)

// object reads a JSON object as [encoding/json] does with UseNumber; empty counts as {}. It is written by hand because
// reading the data is most of what rendering costs.
func object(field string, raw json.RawMessage) (map[string]any, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	if !json.Valid(raw) {
		return nil, belfry.Invalid(field, "is not valid JSON")
	}
	d := decoder{string(raw), 0}
	m, ok := d.value().(map[string]any)
	if !ok {
		return nil, belfry.Invalid(field, "is not a JSON object")
	}
	return m, nil
}

// decoder reads JSON that is known to be valid.
type decoder struct {
	s string
	i int
}

// next skips white space and what separates, and returns the byte that follows.
func (d *decoder) next() byte {
	for {
		switch c := d.s[d.i]; c {
		case ' ', '\t', '\r', '\n', ',', ':':
			d.i++
		default:
			return c
		}
	}
}

func (d *decoder) value() any {
	switch d.next() {
	case '{':
		m := make(map[string]any)
		for d.i++; d.next() != '}'; {
			name := d.text()
			m[name] = d.value()
		}
		d.i++
		return m
	case '[':
		l := []any{}
		for d.i++; d.next() != ']'; {
			l = append(l, d.value())
		}
		d.i++
		return l
	case '"':
		return d.text()
	case 't':
		d.i += len("true")
		return true
	case 'f':
		d.i += len("false")
		return false
	case 'n':
		d.i += len("null")
		return nil
	}
	rest := d.s[d.i:]
	if n := strings.IndexAny(rest, ",]} \t\r\n"); n >= 0 {
		rest = rest[:n]
	}
	d.i += len(rest)
	return json.Number(rest)
}

func (d *decoder) text() string {
	start := d.i
	plain := true
	for d.i++; d.s[d.i] != '"'; d.i++ {
		if c := d.s[d.i]; c == '\\' {
			plain = false
			d.i++
		} else if c >= 0x80 {
			plain = false // it may be invalid UTF-8
		}
	}
	d.i++
	if plain {
		return d.s[start+1 : d.i-1]
	}
	var s string
	_ = json.Unmarshal([]byte(d.s[start:d.i]), &s)
	return s
}
