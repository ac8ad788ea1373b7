package config

import (
	"encoding/json"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

const hidden = "[redacted]"

// WriteYAML writes the settings in force as a file that could be given, with its explanations; only secrets
// are hidden. With origin there are no explanations, and each line says where its value comes from.
func (c *Config) WriteYAML(w io.Writer, origin bool) error {
	lines := strings.SplitAfter(string(defaults), "\n")
	err := c.tree.each(c.tree.root, "", func(path string, n *yaml.Node) error {
		value, err := yaml.Marshal(c.tree.shown(path, n))
		if err != nil {
			return err
		}
		line := &lines[n.Line-1]
		*line = (*line)[:n.Column-1] + strings.TrimSuffix(string(value), "\n")
		if origin {
			*line += " # " + c.tree.origin(path)
		}
		*line += "\n"
		return nil
	})
	if err != nil {
		return err
	}
	if origin {
		lines = slices.DeleteFunc(lines, func(l string) bool {
			l = strings.TrimSpace(l)
			return l == "" || l[0] == '#'
		})
	}
	_, err = io.WriteString(w, strings.Join(lines, ""))
	return err
}

// shown is the value of an option as it may be seen, on one line.
func (t *tree) shown(path string, n *yaml.Node) *yaml.Node {
	out := &yaml.Node{Kind: n.Kind, Tag: n.Tag, Value: n.Value, Style: n.Style & (yaml.SingleQuotedStyle | yaml.DoubleQuotedStyle), Content: n.Content}
	switch {
	case t.secrets[path] && n.Value != "":
		out.Value = hidden
	case n.Kind == yaml.SequenceNode:
		out.Style = yaml.FlowStyle
	case strings.Contains(n.Value, "\n"):
		out.Style = yaml.DoubleQuotedStyle
	}
	return out
}

// WriteJSON writes the settings in force as one object, secrets hidden; with origin as an object of
// {"value", "origin"} by dotted path.
func (c *Config) WriteJSON(w io.Writer, origin bool) error {
	out := map[string]any{}
	err := c.tree.each(c.tree.root, "", func(path string, n *yaml.Node) error {
		var value any
		if err := c.tree.shown(path, n).Decode(&value); err != nil {
			return err
		}
		if origin {
			out[path] = map[string]any{"value": value, "origin": c.tree.origin(path)}
			return nil
		}
		section, key := out, path
		for name, rest, more := strings.Cut(key, "."); more; name, rest, more = strings.Cut(key, ".") {
			if _, ok := section[name]; !ok {
				section[name] = map[string]any{}
			}
			section, key = section[name].(map[string]any), rest
		}
		section[key] = value
		return nil
	})
	if err != nil {
		return err
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(out)
}
