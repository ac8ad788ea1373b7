package content

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/url"
	"strconv"
	"strings"
	"text/template/parse"
	"unicode/utf8"
)

type function struct {
	min, max int // arguments
	f        func(r *run, args []any) (any, error)
}

// functions is all there are. None yields more than a small multiple of what it was given.
var functions = map[string]function{
	"and":      {1, 8, nil}, // see logic
	"or":       {1, 8, nil},
	"not":      {1, 1, func(_ *run, a []any) (any, error) { return !truth(a[0]), nil }},
	"eq":       {2, 8, equalsAny},
	"ne":       {2, 2, func(_ *run, a []any) (any, error) { return not(equal(a[0], a[1])) }},
	"lt":       {2, 2, compares(func(c int) bool { return c < 0 })},
	"le":       {2, 2, compares(func(c int) bool { return c <= 0 })},
	"gt":       {2, 2, compares(func(c int) bool { return c > 0 })},
	"ge":       {2, 2, compares(func(c int) bool { return c >= 0 })},
	"default":  {2, 2, orElse},
	"len":      {1, 1, length},
	"index":    {2, 2, index},
	"join":     {2, 2, join},
	"upper":    {1, 1, onText(strings.ToUpper)},
	"lower":    {1, 1, onText(strings.ToLower)},
	"trim":     {1, 1, onText(strings.TrimSpace)},
	"urlquery": {1, 1, onText(url.QueryEscape)},
	"truncate": {2, 2, truncate},
}

var (
	errKinds = errors.New("compares values of different kinds")
	errList  = errors.New("wants a list")
	errCount = errors.New("wants a number of characters first, for example truncate 80 .text")
	errIndex = errors.New("wants a list and a position, or an object and a name")
)

func onText(f func(string) string) func(*run, []any) (any, error) {
	return func(_ *run, a []any) (any, error) {
		s, err := show(a[0])
		if err != nil {
			return nil, err
		}
		return f(s), nil
	}
}

// orElse is {{.name | default "there"}}.
func orElse(_ *run, a []any) (any, error) {
	if truth(a[1]) {
		return a[1], nil
	}
	return a[0], nil
}

func equalsAny(_ *run, a []any) (any, error) {
	for _, b := range a[1:] {
		if same, err := equal(a[0], b); same || err != nil {
			return same, err
		}
	}
	return false, nil
}

func equal(a, b any) (bool, error) {
	if a == nil || b == nil {
		return a == nil && b == nil, nil
	}
	switch a := a.(type) {
	case bool:
		if b, ok := b.(bool); ok {
			return a == b, nil
		}
	default:
		c, err := compare(a, b)
		return c == 0, err
	}
	return false, errKinds
}

func not(b bool, err error) (any, error) { return !b, err }

func compares(ok func(int) bool) func(*run, []any) (any, error) {
	return func(_ *run, a []any) (any, error) {
		c, err := compare(a[0], a[1])
		return ok(c), err
	}
}

func compare(a, b any) (int, error) {
	switch a := a.(type) {
	case string:
		if b, ok := b.(string); ok {
			return strings.Compare(a, b), nil
		}
	case json.Number:
		if b, ok := b.(json.Number); ok {
			return compareNumbers(a, b), nil
		}
	}
	return 0, errKinds
}

func compareNumbers(a, b json.Number) int {
	x, errX := strconv.ParseInt(string(a), 10, 64)
	y, errY := strconv.ParseInt(string(b), 10, 64)
	if errX == nil && errY == nil {
		return cmp.Compare(x, y)
	}
	f, _ := strconv.ParseFloat(string(a), 64) // out of range is infinite, which compares well
	g, _ := strconv.ParseFloat(string(b), 64)
	return cmp.Compare(f, g)
}

func zero(n json.Number) bool {
	f, err := strconv.ParseFloat(string(n), 64)
	return err == nil && f == 0
}

func numberOf(n *parse.NumberNode) json.Number {
	if n.IsInt {
		return json.Number(strconv.FormatInt(n.Int64, 10))
	}
	return json.Number(n.Text)
}

func length(_ *run, a []any) (any, error) {
	n := 0
	switch v := a[0].(type) {
	case nil:
	case string:
		n = utf8.RuneCountInString(v)
	case []any:
		n = len(v)
	case map[string]any:
		n = len(v)
	default:
		return nil, errors.New("wants a text, a list or an object")
	}
	return json.Number(strconv.Itoa(n)), nil
}

func index(_ *run, a []any) (any, error) {
	switch v := a[0].(type) {
	case nil:
		return nil, nil
	case []any:
		n, ok := a[1].(json.Number)
		if i, err := strconv.Atoi(string(n)); ok && err == nil {
			if i < 0 || i >= len(v) {
				return nil, nil
			}
			return v[i], nil
		}
	case map[string]any:
		if name, ok := a[1].(string); ok {
			return v[name], nil
		}
	}
	return nil, errIndex
}

// join is {{.items | join ", "}}.
func join(r *run, a []any) (any, error) {
	sep, err := show(a[0])
	if err != nil {
		return nil, err
	}
	if a[1] == nil {
		return "", nil
	}
	list, ok := a[1].([]any)
	if !ok {
		return nil, errList
	}
	var b strings.Builder
	for i, v := range list {
		if i > 0 {
			b.WriteString(sep)
		}
		s, err := show(v)
		if err != nil {
			return nil, err
		}
		if err := r.spend(len(s) + len(sep)); err != nil {
			return nil, err
		}
		b.WriteString(s)
	}
	return b.String(), nil
}

func truncate(_ *run, a []any) (any, error) {
	n, ok := a[0].(json.Number)
	count, err := strconv.Atoi(string(n))
	if !ok || err != nil || count < 1 {
		return nil, errCount
	}
	s, err := show(a[1])
	if err != nil {
		return nil, err
	}
	return cut(s, count), nil
}
