package content

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"unicode/utf8"

	"belfry"
)

// MaxOutput is how many bytes the rendered fields of one content may have together.
const MaxOutput = 64 << 10

// maxWork bounds the bytes that functions look at, so that a template full of calls over large data ends soon.
const maxWork = 1 << 20

// Render makes the content of one notification. An error is a [*belfry.Error] that names the field and never quotes
// the data: the output is too large, the work is too much, a function got a value it has no meaning for, a link is not
// http, https or mailto, or the data is not a JSON object (empty counts as {}).
//
// A link or image that comes from the data without a template, and is not one, is left out: it was not meant as such.
func (t *Template) Render(data json.RawMessage, r belfry.Recipient) (belfry.Content, error) {
	out := belfry.Content{Data: data}
	members, err := object("data", data)
	if err != nil {
		return out, err
	}
	run := run{data: members, who: &r}
	if t.attributes {
		if run.attributes, err = object("attributes", r.Attributes); err != nil {
			return out, err
		}
	}
	var rendered [numFields]string
	for f, b := range t.fields {
		if b == nil {
			s, _ := members[fieldNames[f]].(string)
			if rendered[f] = tidy(field(f), s); checkLink(field(f), rendered[f]) != nil {
				rendered[f] = ""
			}
			continue
		}
		run.out = run.out[:0]
		err := b.write(&run, members)
		if err == nil {
			rendered[f] = tidy(field(f), string(run.out))
			err = checkLink(field(f), rendered[f])
		}
		if err != nil {
			return belfry.Content{Data: data}, belfry.Invalid(fieldNames[f], "%v", err)
		}
	}
	out.Title, out.Body, out.Link, out.Image = rendered[title], rendered[body], rendered[link], rendered[image]
	return out, nil
}

// tidy drops the white space that blocks leave around a field. Only a body has lines.
func tidy(f field, s string) string {
	s = strings.TrimSpace(s)
	clean := func(r rune) bool { return r < ' ' && (f != body || r != '\n' && r != '\t') || r == 0x7f }
	if strings.IndexFunc(s, clean) < 0 {
		return s
	}
	s = strings.ReplaceAll(s, "\r\n", "\n")
	return strings.Map(func(r rune) rune {
		switch {
		case !clean(r):
			return r
		case f == title || f == body:
			return ' '
		}
		return -1 // as browsers do: a link with a line break is one without
	}, s)
}

func checkLink(f field, s string) error {
	if s == "" || f != link && f != image {
		return nil
	}
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return errors.New("is not a URL") // the error would quote it
	case (u.Scheme == "http" || u.Scheme == "https") && u.Host != "":
		return nil
	case f == link && u.Scheme == "mailto" && u.Opaque != "":
		return nil
	case f == image:
		return errors.New("is not an http or https URL")
	}
	return errors.New("is not an http, https or mailto URL")
}

// run is one rendering.
type run struct {
	data       map[string]any
	who        *belfry.Recipient
	attributes map[string]any // of who
	out        []byte         // of this field
	size       int            // bytes written, of all fields
	work       int            // bytes looked at by functions
}

var (
	errOutput = fmt.Errorf("renders to more than %d bytes", MaxOutput)
	errWork   = errors.New("is too much work")
)

func (r *run) write(s string) error {
	if r.size += len(s); r.size > MaxOutput {
		return errOutput
	}
	r.out = append(r.out, s...)
	return nil
}

func (r *run) spend(n int) error {
	if r.work += n + 1; r.work > maxWork {
		return errWork
	}
	return nil
}

// A block is what a template is made of. It is nil for a field that has none.
type block []statement

type statement interface {
	write(r *run, dot any) error
}

func (b block) write(r *run, dot any) error {
	for _, s := range b {
		if err := s.write(r, dot); err != nil {
			return err
		}
	}
	return nil
}

type text string

func (t text) write(r *run, _ any) error { return r.write(string(t)) }

type print struct{ expr }

func (p print) write(r *run, dot any) error {
	v, err := p.eval(r, dot)
	if err != nil {
		return err
	}
	s, err := show(v)
	if err != nil {
		return err
	}
	return r.write(s)
}

type branch struct {
	cond    expr
	with    bool
	yes, no block
}

func (b branch) write(r *run, dot any) error {
	v, err := b.cond.eval(r, dot)
	switch {
	case err != nil:
		return err
	case !truth(v):
		return b.no.write(r, dot)
	case b.with:
		dot = v
	}
	return b.yes.write(r, dot)
}

// An expr yields what JSON knows: nil, bool, json.Number, string, []any, map[string]any.
type expr interface {
	eval(r *run, dot any) (any, error)
}

type literal struct{ value any }

func (l literal) eval(*run, any) (any, error) { return l.value, nil }

// path is .a.b, or $.a.b when it starts at the root.
type path struct {
	root  bool
	names []string
}

func (p path) eval(r *run, dot any) (any, error) {
	if p.root {
		dot = r.data
	}
	return walk(dot, p.names), nil
}

// recipient is recipient.id and the like.
type recipient struct{ names []string }

func (p recipient) eval(r *run, _ any) (v any, err error) {
	switch p.names[0] {
	case "id":
		v = r.who.ID
	case "locale":
		v = r.who.Locale
	case "zone":
		v = r.who.Zone
	case "attributes":
		v = r.attributes
	}
	return walk(v, p.names[1:]), nil
}

type member struct {
	of    expr
	names []string
}

func (m member) eval(r *run, dot any) (any, error) {
	v, err := m.of.eval(r, dot)
	return walk(v, m.names), err
}

// walk yields nil where there is nothing: data may leave members out.
func walk(at any, names []string) any {
	for _, name := range names {
		m, _ := at.(map[string]any)
		at = m[name]
	}
	return at
}

type call struct {
	name string
	f    func(r *run, args []any) (any, error)
	args []expr
}

func (c call) eval(r *run, dot any) (any, error) {
	var room [4]any
	args := room[:0]
	for _, e := range c.args {
		v, err := e.eval(r, dot)
		if err != nil {
			return nil, err
		}
		if err := r.spend(weight(v)); err != nil {
			return nil, err
		}
		args = append(args, v)
	}
	v, err := c.f(r, args)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.name, err)
	}
	return v, nil
}

// weight is how much a function may have to look at.
func weight(v any) int {
	switch v := v.(type) {
	case string:
		return len(v)
	case json.Number:
		return len(v)
	case []any:
		return len(v)
	}
	return 1
}

// logic is and, or: like text/template's, it yields the argument that decides and looks at no other.
type logic struct {
	args []expr
	or   bool
}

func (l logic) eval(r *run, dot any) (v any, err error) {
	for _, e := range l.args {
		if v, err = e.eval(r, dot); err != nil || truth(v) == l.or {
			return v, err
		}
	}
	return v, nil
}

// truth is false for nothing, false, zero and what is empty.
func truth(v any) bool {
	switch v := v.(type) {
	case bool:
		return v
	case string:
		return v != ""
	case json.Number:
		return !zero(v)
	case []any:
		return len(v) > 0
	case map[string]any:
		return len(v) > 0
	}
	return false
}

var errShow = errors.New("prints an object; name a member of it")
var errShowList = errors.New("prints a list; use join or index")

func show(v any) (string, error) {
	switch v := v.(type) {
	case string:
		return v, nil
	case json.Number:
		return string(v), nil
	case bool:
		if v {
			return "true", nil
		}
		return "false", nil
	case map[string]any:
		return "", errShow
	case []any:
		return "", errShowList
	}
	return "", nil
}

// cut shortens s to n characters, the last an ellipsis when something was cut off.
func cut(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	if n < 1 {
		return ""
	}
	for i := range s {
		if n--; n == 0 {
			return s[:i] + "…"
		}
	}
	return s
}
