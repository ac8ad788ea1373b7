package strictjson

import (
	"bytes"
	"iter"
	"strconv"
)

// Kind is the kind of the value.
func (v Value) Kind() Kind { return v.node().kind }

// IsZero says that the value is that of no document, as a member that was not there leaves it.
func (v Value) IsZero() bool { return v.d == nil }

func (v Value) node() *node { return &v.d.nodes[v.i] }

// Raw is the value as it was sent.
func (v Value) Raw() []byte { n := v.node(); return v.d.src[n.start:n.end] }

// Text is the text of a string, "" for any other value.
func (v Value) Text() string {
	if v.Kind() != String {
		return ""
	}
	return string(v.d.text(v.i))
}

// Len is the number of members or elements.
func (v Value) Len() int { return int(v.node().n) }

// Elements are the elements of an array, none for any other value.
func (v Value) Elements() iter.Seq2[int, Value] {
	return func(yield func(int, Value) bool) {
		if v.Kind() != Array {
			return
		}
		for i, at := 0, v.i+1; i < v.Len(); i, at = i+1, v.d.nodes[at].next {
			if !yield(i, Value{v.d, at}) {
				return
			}
		}
	}
}

// Members are the members of an object in the order they were sent, none for any other value.
func (v Value) Members() iter.Seq2[string, Value] {
	return func(yield func(string, Value) bool) {
		if v.Kind() != Object {
			return
		}
		for i, at := 0, v.i+1; i < v.Len(); i, at = i+1, v.d.nodes[at+1].next {
			if !yield(string(v.d.text(at)), Value{v.d, at + 1}) {
				return
			}
		}
	}
}

// Member is the member with that name.
func (v Value) Member(name string) (Value, bool) {
	if v.Kind() != Object {
		return Value{}, false
	}
	for i, at := 0, v.i+1; i < v.Len(); i, at = i+1, v.d.nodes[at+1].next {
		if string(v.d.text(at)) == name {
			return Value{v.d, at + 1}, true
		}
	}
	return Value{}, false
}

// Canonical appends the canonical form of the value to dst. Two values have the same form when they are the
// same JSON value: the order of members, white space and the way characters are escaped do not count, and
// numbers are equal when they are the same decimal number (1, 1.0 and 10e-1 are; nothing is rounded, and -0
// is 0). Members of an object named without are left out, of this object only; give "" for none.
func (v Value) Canonical(dst []byte, without string) []byte { return v.d.canonical(dst, v.i, without) }

func (d *document) canonical(dst []byte, i int32, without string) []byte {
	n := &d.nodes[i]
	switch n.kind {
	case Object:
		dst = append(dst, '{')
		for _, name := range d.order[n.ref : n.ref+n.n] {
			text := d.text(name)
			if without != "" && string(text) == without {
				continue
			}
			if dst[len(dst)-1] != '{' {
				dst = append(dst, ',')
			}
			dst = append(appendString(dst, text), ':')
			dst = d.canonical(dst, name+1, "")
		}
		return append(dst, '}')
	case Array:
		dst = append(dst, '[')
		for k, at := int32(0), i+1; k < n.n; k, at = k+1, d.nodes[at].next {
			if k > 0 {
				dst = append(dst, ',')
			}
			dst = d.canonical(dst, at, "")
		}
		return append(dst, ']')
	case String:
		return appendString(dst, d.text(i))
	case Number:
		return appendNumber(dst, d.src[n.start:n.end])
	}
	return append(dst, d.src[n.start:n.end]...)
}

func appendString(dst, text []byte) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	for _, c := range text {
		switch {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c < 0x20:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			dst = append(dst, c)
		}
	}
	return append(dst, '"')
}

// appendNumber writes a decimal as its digits without zeros at either end, and the power of ten.
func appendNumber(dst, raw []byte) []byte {
	minus := raw[0] == '-'
	if minus {
		raw = raw[1:]
	}
	power := 0
	if e := bytes.IndexAny(raw, "eE"); e >= 0 {
		power, _ = strconv.Atoi(string(raw[e+1:]))
		raw = raw[:e]
	}
	whole, fraction, _ := bytes.Cut(raw, []byte("."))
	power -= len(fraction)
	from := len(dst)
	if minus {
		dst = append(dst, '-')
	}
	sign := len(dst)
	dst = append(append(dst, whole...), fraction...)
	first := sign
	for first < len(dst) && dst[first] == '0' {
		first++
	}
	if first == len(dst) {
		return append(dst[:from], '0')
	}
	dst = append(dst[:sign], dst[first:]...)
	for dst[len(dst)-1] == '0' {
		dst, power = dst[:len(dst)-1], power+1
	}
	if power != 0 {
		dst = strconv.AppendInt(append(dst, 'e'), int64(power), 10)
	}
	return dst
}
