package config

import (
	"encoding"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"go.yaml.in/yaml/v3"

	"belfry"
)

// Section is part of the settings, to be decoded into the Options of whoever it is for.
type Section struct {
	tree *tree
	node *yaml.Node
	path string
}

// Sections are sections by name.
type Sections map[string]Section

// Names lists them in alphabetical order.
func (s Sections) Names() []string { return slices.Sorted(maps.Keys(s)) }

// Decode fills structs: the option idle_timeout goes into the field IdleTimeout of the first of them that
// has one. An option without a field is an error; a field without an option keeps its value.
func (s Section) Decode(into ...any) error {
	for i := 0; i+1 < len(s.node.Content); i += 2 {
		key, value := s.node.Content[i].Value, s.node.Content[i+1]
		path := join(s.path, key)
		field, ok := fieldOf(key, into)
		if !ok {
			name, isFile := strings.CutSuffix(key, fileEnd)
			if _, of := fieldOf(name, into); isFile && of {
				continue
			}
			if key == enabled {
				continue
			}
			return s.tree.errorf(path, "has no place in the program")
		}
		if err := s.tree.decode(value, path, field); err != nil {
			return err
		}
	}
	return nil
}

// Enabled is what its option enabled says; a section without one is always enabled. Decode leaves the option
// out unless a field takes it.
func (s Section) Enabled() bool {
	text, there := s.Lookup(enabled)
	return !there || text == "true"
}

// Lookup is an option as it is written, and whether there is one of the name.
func (s Section) Lookup(option string) (text string, there bool) {
	if n := child(s.node, option); n != nil {
		return n.Value, true
	}
	return "", false
}

const enabled = "enabled"

var sectionsType = reflect.TypeFor[Sections]()

// fieldOf finds where an option goes. An embedded Sections takes what no field does.
func fieldOf(key string, into []any) (field reflect.Value, ok bool) {
	for _, target := range into {
		v := reflect.ValueOf(target).Elem()
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if !f.IsExported() {
				continue
			}
			if f.Anonymous && f.Type == sectionsType {
				field, ok = v.Field(i), true
				continue
			}
			if OptionName(f.Name) == key {
				return v.Field(i), true
			}
		}
	}
	return field, ok
}

// OptionName is the option that fills a field of that name: IdleTimeout is idle_timeout.
func OptionName(field string) string {
	var b strings.Builder
	runes := []rune(field)
	for i, r := range runes {
		if i > 0 && unicode.IsUpper(r) && !unicode.IsUpper(runes[i-1]) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

func (t *tree) decode(n *yaml.Node, path string, to reflect.Value) error {
	if to.Type() == sectionsType {
		return t.sections(n, path, to)
	}
	switch n.Kind {
	case yaml.MappingNode:
		if to.Kind() != reflect.Struct {
			return t.errorf(path, "has no place in the program")
		}
		return Section{t, n, path}.Decode(to.Addr().Interface())
	case yaml.SequenceNode:
		list := reflect.MakeSlice(to.Type(), len(n.Content), len(n.Content))
		for i, item := range n.Content {
			if err := scalar(item.Value, list.Index(i)); err != nil {
				return t.errorf(path, "%v", err)
			}
		}
		to.Set(list)
		return nil
	}
	if err := scalar(n.Value, to); err != nil {
		return t.errorf(path, "%v", err)
	}
	return nil
}

// sections keeps a section, of an embedded Sections, or all the sections of a field.
func (t *tree) sections(n *yaml.Node, path string, to reflect.Value) error {
	all, _ := to.Interface().(Sections)
	if all == nil {
		all = Sections{}
		to.Set(reflect.ValueOf(all))
	}
	name := path[strings.LastIndexByte(path, '.')+1:]
	if strings.Contains(path, ".") {
		all[name] = Section{t, n, path}
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i].Value
		all[key] = Section{t, n.Content[i+1], join(path, key)}
	}
	return nil
}

// scalar reads one value from its text. Its errors do not repeat the text: it may be a secret.
func scalar(text string, to reflect.Value) error {
	switch p := to.Addr().Interface().(type) {
	case *time.Duration:
		var d belfry.Duration
		if err := d.UnmarshalText([]byte(text)); err != nil {
			return err
		}
		*p = d.Std()
		return nil
	case encoding.TextUnmarshaler:
		if p.UnmarshalText([]byte(text)) != nil {
			return fmt.Errorf("want %s", want(to.Type()))
		}
		return nil
	}
	switch to.Kind() {
	case reflect.String:
		to.SetString(text)
		return nil
	case reflect.Bool:
		if text == "true" || text == "false" {
			to.SetBool(text == "true")
			return nil
		}
	case reflect.Int:
		if n, err := strconv.Atoi(text); err == nil {
			to.SetInt(int64(n))
			return nil
		}
	case reflect.Float64:
		if f, err := strconv.ParseFloat(text, 64); err == nil && f == f {
			to.SetFloat(f)
			return nil
		}
	}
	return fmt.Errorf("want %s", want(to.Type()))
}

func want(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[belfry.Duration]():
		return "a duration such as 90s, 15m, 6h or 3d"
	case t.String() == "netip.Prefix":
		return "an address range such as 10.1.0.0/16"
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() == reflect.Int:
		return "a whole number"
	case t.Kind() == reflect.Float64:
		return "a number"
	}
	return "a " + t.String()
}
