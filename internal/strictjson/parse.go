// Package strictjson reads JSON that has exactly one meaning, or says what is wrong with it and where.
//
// It accepts what RFC 8259 does, less what two readers could understand differently: members that occur
// twice, at any depth; text that is not Unicode (invalid UTF-8, half a surrogate pair); nesting, objects and
// documents beyond its limits. Equal documents have one canonical form, see [Value.Canonical], and
// [Value.Decode] fills Go values without the leniency of encoding/json: no unknown member, no other case, no
// null for what cannot be null.
//
// Errors are [*Error]. They name the place and never repeat a value.
package strictjson

import (
	"bytes"
	"errors"
	"slices"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// Limits of a document.
const (
	MaxDepth   = 32      // arrays and objects within each other
	MaxMembers = 1000    // of one object
	MaxValues  = 1 << 19 // in all, names included; bounds the memory that a document can make us take
	MaxDigits  = 4       // of an exponent
)

// Error says what is wrong at which place.
type Error struct {
	Field  string // dotted path, as to.0.address; empty for the document itself
	Detail string
}

func (e *Error) Error() string {
	if e.Field == "" {
		return e.Detail
	}
	return e.Field + ": " + e.Detail
}

// At returns err with name put before the field of its [*Error]; other errors become one.
func At(name string, err error) error {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return &Error{clip(name), err.Error()}
	}
	field := clip(name)
	if e.Field != "" {
		field += "." + e.Field
	}
	return &Error{field, e.Detail}
}

func bad(detail string) error { return &Error{"", detail} }

// clip keeps a member's name, which is the sender's, from filling a log line.
func clip(name string) string {
	const most = 64
	if len(name) <= most {
		return name
	}
	cut := most
	for !utf8.RuneStart(name[cut]) {
		cut--
	}
	return name[:cut] + "…"
}

// Kind is the kind of a JSON value.
type Kind byte

const (
	Null Kind = iota
	Bool
	Number
	String
	Array
	Object
)

func (k Kind) String() string {
	return [...]string{"null", "a boolean", "a number", "a string", "an array", "an object"}[k]
}

// Value is one value of a parsed document. It shares the document's bytes, which must not change.
// Safe for concurrent use.
type Value struct {
	d *document
	i int32
}

type document struct {
	src   []byte
	nodes []node
	order []int32  // the names of each object, sorted
	texts [][]byte // strings that have escapes, without them
	open  []int32  // names of the objects being read
}

// node is a value or a name. A container's children follow it; next is behind the last of them.
type node struct {
	start, end, next int32
	ref              int32 // objects: first in order; strings with escapes: index in texts; else -1
	n                int32 // members or elements
	kind             Kind
}

// Parse reads a document. The error is nil or an [*Error].
func Parse(src []byte) (Value, error) {
	d := &document{src: src, nodes: make([]node, 0, min(8+len(src)/8, 64)), open: make([]int32, 0, 16), order: make([]int32, 0, 16)}
	if bytes.HasPrefix(src, []byte("\xef\xbb\xbf")) {
		return Value{}, bad("begins with a byte order mark; leave it out")
	}
	at := d.space(0)
	if at == len(src) {
		return Value{}, bad("is empty; a JSON document is wanted")
	}
	at, err := d.value(at, 0)
	if err != nil {
		return Value{}, err
	}
	if at = d.space(at); at != len(src) {
		return Value{}, d.syntax(at, "more follows after the end of the document")
	}
	return Value{d, 0}, nil
}

func (d *document) syntax(at int, detail string) error {
	if at >= len(d.src) {
		detail = "the document ends too early"
	}
	return bad("is not valid JSON: " + detail + " (byte " + strconv.Itoa(at) + ")")
}

func (d *document) space(at int) int {
	for at < len(d.src) {
		switch d.src[at] {
		case ' ', '\t', '\n', '\r':
			at++
		default:
			return at
		}
	}
	return at
}

// add appends a node that begins at start.
func (d *document) add(kind Kind, start int) (int32, error) {
	if len(d.nodes) >= MaxValues {
		return 0, bad("holds more than " + strconv.Itoa(MaxValues) + " values and names")
	}
	d.nodes = append(d.nodes, node{start: int32(start), kind: kind, ref: -1})
	return int32(len(d.nodes) - 1), nil
}

func (d *document) close(i int32, end int) int {
	d.nodes[i].end, d.nodes[i].next = int32(end), int32(len(d.nodes))
	return end
}

func (d *document) value(at, depth int) (int, error) {
	if at >= len(d.src) {
		return at, d.syntax(at, "")
	}
	switch c := d.src[at]; {
	case c == '"':
		return d.string(at)
	case c == '{':
		return d.object(at, depth+1)
	case c == '[':
		return d.array(at, depth+1)
	case c == '-' || '0' <= c && c <= '9':
		return d.number(at)
	}
	for _, word := range [...]string{"null", "true", "false"} {
		if len(d.src)-at >= len(word) && string(d.src[at:at+len(word)]) == word {
			kind := Bool
			if word == "null" {
				kind = Null
			}
			i, err := d.add(kind, at)
			if err != nil {
				return at, err
			}
			return d.close(i, at+len(word)), nil
		}
	}
	return at, d.syntax(at, "no value begins like this")
}

func (d *document) array(at, depth int) (int, error) {
	i, err := d.add(Array, at)
	if err != nil {
		return at, err
	}
	if depth > MaxDepth {
		return at, bad("is nested deeper than " + strconv.Itoa(MaxDepth) + " levels")
	}
	at = d.space(at + 1)
	if at < len(d.src) && d.src[at] == ']' {
		return d.close(i, at+1), nil
	}
	for n := int32(0); ; {
		if at, err = d.value(at, depth); err != nil {
			return at, At(strconv.Itoa(int(n)), err)
		}
		n++
		at = d.space(at)
		switch {
		case at < len(d.src) && d.src[at] == ',':
			at = d.space(at + 1)
		case at < len(d.src) && d.src[at] == ']':
			d.nodes[i].n = n
			return d.close(i, at+1), nil
		default:
			return at, d.syntax(at, "a comma or ] is missing in an array")
		}
	}
}

func (d *document) object(at, depth int) (int, error) {
	i, err := d.add(Object, at)
	if err != nil {
		return at, err
	}
	if depth > MaxDepth {
		return at, bad("is nested deeper than " + strconv.Itoa(MaxDepth) + " levels")
	}
	base := len(d.open)
	at = d.space(at + 1)
	if at < len(d.src) && d.src[at] == '}' {
		d.nodes[i].ref = int32(len(d.order))
		return d.close(i, at+1), nil
	}
	for {
		if at >= len(d.src) || d.src[at] != '"' {
			return at, d.syntax(at, "a member's name in double quotes is missing")
		}
		name := int32(len(d.nodes))
		if at, err = d.string(at); err != nil {
			return at, err
		}
		if d.open = append(d.open, name); len(d.open)-base > MaxMembers {
			return at, bad("has more than " + strconv.Itoa(MaxMembers) + " members")
		}
		if at = d.space(at); at >= len(d.src) || d.src[at] != ':' {
			return at, d.syntax(at, "a colon is missing after a member's name")
		}
		if at, err = d.value(d.space(at+1), depth); err != nil {
			return at, At(string(d.text(name)), err)
		}
		at = d.space(at)
		switch {
		case at < len(d.src) && d.src[at] == ',':
			at = d.space(at + 1)
		case at < len(d.src) && d.src[at] == '}':
			return d.close(i, at+1), d.seal(i, base)
		default:
			return at, d.syntax(at, "a comma or } is missing in an object")
		}
	}
}

// seal sorts the names of an object that was read, and finds those that occur twice.
func (d *document) seal(i int32, base int) error {
	names := d.open[base:]
	if len(names) <= 12 {
		for a := 1; a < len(names); a++ {
			for b := a; b > 0 && bytes.Compare(d.text(names[b]), d.text(names[b-1])) < 0; b-- {
				names[b], names[b-1] = names[b-1], names[b]
			}
		}
	} else {
		slices.SortFunc(names, func(a, b int32) int { return bytes.Compare(d.text(a), d.text(b)) })
	}
	for k := 1; k < len(names); k++ {
		if bytes.Equal(d.text(names[k]), d.text(names[k-1])) {
			return At(string(d.text(names[k])), bad("occurs twice"))
		}
	}
	d.nodes[i].ref, d.nodes[i].n = int32(len(d.order)), int32(len(names))
	d.order = append(d.order, names...)
	d.open = d.open[:base]
	return nil
}

// text is the text of a string or name.
func (d *document) text(i int32) []byte {
	n := &d.nodes[i]
	if n.ref >= 0 {
		return d.texts[n.ref]
	}
	return d.src[n.start+1 : n.end-1]
}

func (d *document) string(start int) (int, error) {
	i, err := d.add(String, start)
	if err != nil {
		return start, err
	}
	high, escaped, at := byte(0), false, start+1
	for ; at < len(d.src); at++ {
		c := d.src[at]
		high |= c
		switch {
		case c == '"':
			if high >= utf8.RuneSelf && !utf8.Valid(d.src[start:at]) {
				return at, bad("is not valid UTF-8")
			}
			if escaped {
				text, err := d.unescape(start+1, at)
				if err != nil {
					return at, err
				}
				d.nodes[i].ref = int32(len(d.texts))
				d.texts = append(d.texts, text)
			}
			return d.close(i, at+1), nil
		case c == '\\':
			escaped = true
			at++ // so that \" does not end the string; unescape looks at what follows
		case c < 0x20:
			return at, d.syntax(at, "a control character in a string must be escaped")
		}
	}
	return at, d.syntax(len(d.src), "")
}

func (d *document) unescape(at, end int) ([]byte, error) {
	text := make([]byte, 0, end-at)
	for at < end {
		c := d.src[at]
		if c != '\\' {
			if c < 0x20 {
				return nil, d.syntax(at, "a control character in a string must be escaped")
			}
			text = append(text, c)
			at++
			continue
		}
		switch c = d.src[at+1]; c {
		case '"', '\\', '/':
			text = append(text, c)
		case 'b':
			text = append(text, '\b')
		case 'f':
			text = append(text, '\f')
		case 'n':
			text = append(text, '\n')
		case 'r':
			text = append(text, '\r')
		case 't':
			text = append(text, '\t')
		case 'u':
			r, ok := d.hex(at, end)
			if !ok {
				return nil, d.syntax(at, "four hexadecimal digits must follow \\u")
			}
			if utf16.IsSurrogate(r) {
				low, ok := d.hex(at+6, end)
				if r = utf16.DecodeRune(r, low); !ok || r == utf8.RuneError {
					return nil, bad("holds half a surrogate pair, which is not text")
				}
				at += 6
			}
			text = utf8.AppendRune(text, r)
			at += 4
		default:
			return nil, d.syntax(at, "no escape is written like this")
		}
		at += 2
	}
	return text, nil
}

// hex reads the \uXXXX at a place.
func (d *document) hex(at, end int) (rune, bool) {
	if at+6 > end || d.src[at] != '\\' || d.src[at+1] != 'u' {
		return 0, false
	}
	var r rune
	for _, c := range d.src[at+2 : at+6] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

func (d *document) number(start int) (int, error) {
	i, err := d.add(Number, start)
	if err != nil {
		return start, err
	}
	at := start
	digits := func() int {
		from := at
		for at < len(d.src) && '0' <= d.src[at] && d.src[at] <= '9' {
			at++
		}
		return at - from
	}
	if d.src[at] == '-' {
		at++
	}
	first := at
	if n := digits(); n == 0 || n > 1 && d.src[first] == '0' {
		return at, d.syntax(first, "no number is written like this")
	}
	if at < len(d.src) && d.src[at] == '.' {
		at++
		if digits() == 0 {
			return at, d.syntax(at, "a digit must follow the decimal point")
		}
	}
	if at < len(d.src) && d.src[at]|0x20 == 'e' {
		at++
		if at < len(d.src) && (d.src[at] == '+' || d.src[at] == '-') {
			at++
		}
		switch n := digits(); {
		case n == 0:
			return at, d.syntax(at, "a digit must follow the e")
		case n > MaxDigits:
			return at, bad("has an exponent of more than " + strconv.Itoa(MaxDigits) + " digits")
		}
	}
	return d.close(i, at), nil
}
