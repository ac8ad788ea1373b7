package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// tree is the default file with other sources laid over it. What does not stand in the default file is no
// option.
type tree struct {
	root    *yaml.Node
	origins map[string]string // by dotted path; none: default
	secrets map[string]bool   // options with a _file beside them
}

const (
	envPrefix = "BELFRY_"
	fileEnd   = "_file"
	maxFile   = 1 << 20
)

func grow(s Sources) (*tree, error) {
	root, err := parse(defaults)
	if err != nil {
		return nil, fmt.Errorf("config: default.yaml: %w", err)
	}
	t := &tree{root: root, origins: map[string]string{}, secrets: map[string]bool{}}
	if s.File != "" {
		text, err := readFile(s.File)
		if err != nil {
			return nil, fmt.Errorf("config: %w", err)
		}
		over, err := parse(text)
		if err == nil && over != nil {
			err = t.lay(t.root, over, "", s.File)
		}
		if err != nil {
			return nil, fmt.Errorf("config: %s: %w", s.File, err)
		}
	}
	env := slices.Sorted(slices.Values(s.Env))
	for _, e := range env {
		if err := t.setEnv(e); err != nil {
			return nil, err
		}
	}
	for path, value := range s.Flags {
		if err := t.set(path, value, "--"+path[strings.LastIndexByte(path, '.')+1:]); err != nil {
			return nil, fmt.Errorf("config: %w", err)
		}
	}
	return t, t.readSecrets()
}

func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("%s is larger than 1 MiB", name)
	}
	return text, err
}

// parse reads one document whose top is a mapping; nil when there is nothing in it.
func parse(text []byte) (*yaml.Node, error) {
	d := yaml.NewDecoder(bytes.NewReader(text))
	var doc yaml.Node
	if err := d.Decode(&doc); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, nil
		}
		return nil, err
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, errors.New("holds a second document")
	}
	top := doc.Content[0]
	if top.Kind == yaml.ScalarNode && top.Tag == "!!null" {
		return nil, nil
	}
	if top.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("line %d: want options, as in http: {listen: …}", top.Line)
	}
	return top, nil
}

func child(n *yaml.Node, key string) *yaml.Node {
	if n == nil {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

// find is the option or section at a dotted path.
func (t *tree) find(path string) (*yaml.Node, error) {
	n := t.root
	for key := range strings.SplitSeq(path, ".") {
		next := child(n, key)
		if next == nil {
			return nil, fmt.Errorf("%s: no such option%s", path, near(n, key))
		}
		n = next
	}
	return n, nil
}

// each visits every option.
func (t *tree) each(n *yaml.Node, path string, visit func(path string, n *yaml.Node) error) error {
	for i := 0; i+1 < len(n.Content); i += 2 {
		p, value := join(path, n.Content[i].Value), n.Content[i+1]
		err := error(nil)
		if value.Kind == yaml.MappingNode {
			err = t.each(value, p, visit)
		} else {
			err = visit(p, value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// lay puts a mapping of a file over one of the tree.
func (t *tree) lay(base, over *yaml.Node, path, file string) error {
	seen := map[string]bool{}
	for i := 0; i+1 < len(over.Content); i += 2 {
		key, value := over.Content[i], over.Content[i+1]
		p := join(path, key.Value)
		to := child(base, key.Value)
		switch {
		case to == nil:
			return fmt.Errorf("line %d: %s: no such option%s", key.Line, p, near(base, key.Value))
		case seen[key.Value]:
			return fmt.Errorf("line %d: %s: is set twice", key.Line, p)
		case value.Kind == yaml.AliasNode:
			return fmt.Errorf("line %d: %s: aliases are not read: write the value", value.Line, p)
		case value.Kind == yaml.ScalarNode && value.Tag == "!!null":
			return fmt.Errorf("line %d: %s: has no value: leave the line out for the default", key.Line, p)
		case value.Kind != to.Kind:
			return fmt.Errorf("line %d: %s: want %s", value.Line, p, kindName(to.Kind))
		}
		seen[key.Value] = true
		if to.Kind == yaml.MappingNode {
			if err := t.lay(to, value, p, file); err != nil {
				return err
			}
			continue
		}
		if to.Kind == yaml.SequenceNode {
			for _, item := range value.Content {
				if item.Kind != yaml.ScalarNode {
					return fmt.Errorf("line %d: %s: want a list of values", item.Line, p)
				}
			}
		}
		put(to, value)
		t.origins[p] = fmt.Sprintf("%s:%d", file, value.Line)
	}
	return nil
}

// put takes over a value and keeps the comments and, of text, the type.
func put(to, value *yaml.Node) {
	to.Value, to.Content, to.Style = value.Value, value.Content, value.Style
	if to.Tag != "!!str" {
		to.Tag = value.Tag
	}
}

func kindName(k yaml.Kind) string {
	switch k {
	case yaml.MappingNode:
		return "options below it"
	case yaml.SequenceNode:
		return "a list"
	}
	return "a single value"
}

// near names the option that was probably meant.
func near(base *yaml.Node, key string) string {
	squeeze := func(s string) string { return strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(s)) }
	for i := 0; i+1 < len(base.Content); i += 2 {
		if known := base.Content[i].Value; squeeze(known) == squeeze(key) || distance(known, key) <= 2 {
			return ": did you mean " + known + "?"
		}
	}
	return ""
}

// distance is the number of letters to change, add or take away (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}

func (t *tree) setEnv(e string) error {
	name, value, _ := strings.Cut(e, "=")
	rest, ours := strings.CutPrefix(name, envPrefix)
	if !ours {
		return nil
	}
	path := strings.ReplaceAll(strings.ToLower(rest), "__", ".")
	if !strings.Contains(path, ".") {
		// Other variables of the program look like this too, so only options count.
		if n := child(t.root, path); n == nil || n.Kind == yaml.MappingNode {
			return nil
		}
	}
	if err := t.set(path, value, name); err != nil {
		return fmt.Errorf("config: %s: %w", name, err)
	}
	return nil
}

// set gives an option a value written as text.
func (t *tree) set(path, text, origin string) error {
	n, err := t.find(path)
	if err != nil {
		return err
	}
	switch n.Kind {
	case yaml.MappingNode:
		return fmt.Errorf("%s: is a section, not an option", path)
	case yaml.SequenceNode:
		list := &yaml.Node{Kind: yaml.SequenceNode, Tag: n.Tag, Style: n.Style}
		for item := range strings.SplitSeq(text, ",") {
			if item = strings.TrimSpace(item); item != "" {
				list.Content = append(list.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: item})
			}
		}
		put(n, list)
	default:
		put(n, &yaml.Node{Kind: yaml.ScalarNode, Value: text})
	}
	t.origins[path] = origin
	return nil
}

// readSecrets puts the content of the file that x_file names into x.
func (t *tree) readSecrets() error {
	return t.each(t.root, "", func(path string, file *yaml.Node) error {
		secretPath, isFile := strings.CutSuffix(path, fileEnd)
		secret, err := t.find(secretPath)
		if !isFile || err != nil {
			return nil
		}
		t.secrets[secretPath] = true
		if file.Value == "" {
			return nil
		}
		if secret.Value != "" {
			return t.errorf(path, "goes without %s: give one of them", secretPath)
		}
		text, err := readFile(file.Value)
		if err != nil {
			return t.errorf(path, "%v", err)
		}
		if secret.Value = strings.TrimRight(string(text), "\r\n"); secret.Value == "" {
			return t.errorf(path, "%s is empty", file.Value)
		}
		t.origins[secretPath] = file.Value
		return nil
	})
}

func (t *tree) errorf(path, format string, args ...any) error {
	return fmt.Errorf("config: %s (%s): %s", path, t.origin(path), fmt.Sprintf(format, args...))
}

func (t *tree) origin(path string) string { return cmp.Or(t.origins[path], "default") }
