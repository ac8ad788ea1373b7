package content

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/template/parse"
	"unicode/utf8"

	"belfry"
)

// MaxSource is how many bytes one template may have.
const MaxSource = 16 << 10

// maxDepth bounds how far blocks and parentheses nest.
const maxDepth = 32

// Template renders the content of one category. Safe for concurrent use.
type Template struct {
	fields     [numFields]block // nil: taken from the data
	attributes bool             // some template looks at the recipient's attributes
}

type field int

const (
	title field = iota
	body
	link
	image
	numFields
)

var fieldNames = [numFields]string{"title", "body", "link", "image"}

// Compile reads the templates of a category. What could run away, or is not part of the language, is an error that
// names the template (templates.title) and the line.
func Compile(templates belfry.Templates) (*Template, error) {
	t := new(Template)
	for _, name := range slices.Sorted(maps.Keys(templates)) {
		at := "templates." + name
		f := slices.Index(fieldNames[:], name)
		if f < 0 {
			return nil, belfry.Invalid(at, "is not one of: title body link image")
		}
		if err := t.compile(field(f), templates[name]); err != nil {
			return nil, belfry.Invalid(at, "%v", err)
		}
	}
	return t, nil
}

func (t *Template) compile(f field, source string) error {
	if len(source) > MaxSource {
		return fmt.Errorf("is %d bytes long, the limit is %d", len(source), MaxSource)
	}
	if !utf8.ValidString(source) {
		return errors.New("is not valid UTF-8")
	}
	set := make(map[string]*parse.Tree)
	name := fieldNames[f]
	tree, err := parse.New(name).Parse(source, "", "", set, known)
	if err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "template: "+name+":"))
	}
	for defined := range set {
		if defined != name {
			return fmt.Errorf("defines a template %q: define and block are not supported", defined)
		}
	}
	c := compiler{tree: tree}
	b, err := c.list(tree.Root, 0)
	if err != nil {
		return err
	}
	t.attributes = t.attributes || c.attributes
	t.fields[f] = b
	return nil
}

// known tells the parser which functions exist.
var known = func() map[string]any {
	m := map[string]any{"recipient": true}
	for name := range functions {
		m[name] = true
	}
	return m
}()

type compiler struct {
	tree       *parse.Tree
	attributes bool
}

func (c *compiler) errorf(n parse.Node, format string, args ...any) error {
	where, _ := c.tree.ErrorContext(n)
	_, line, _ := strings.Cut(where, ":")
	return fmt.Errorf("%s: %s", line, fmt.Sprintf(format, args...))
}

func (c *compiler) list(l *parse.ListNode, depth int) (block, error) {
	b := block{}
	if l == nil {
		return b, nil
	}
	if depth > maxDepth {
		return nil, c.errorf(l, "nests deeper than %d", maxDepth)
	}
	for _, n := range l.Nodes {
		s, err := c.statement(n, depth)
		if err != nil {
			return nil, err
		}
		b = append(b, s)
	}
	return b, nil
}

func (c *compiler) statement(n parse.Node, depth int) (statement, error) {
	switch n := n.(type) {
	case *parse.TextNode:
		return text(n.Text), nil
	case *parse.ActionNode:
		e, err := c.pipe(n.Pipe, depth)
		return print{e}, err
	case *parse.IfNode:
		return c.branch(&n.BranchNode, false, depth)
	case *parse.WithNode:
		return c.branch(&n.BranchNode, true, depth)
	case *parse.RangeNode:
		return nil, c.errorf(n, "range is not supported; join prints a list")
	case *parse.TemplateNode:
		return nil, c.errorf(n, "template is not supported")
	}
	return nil, c.errorf(n, "%s is not supported", n)
}

func (c *compiler) branch(n *parse.BranchNode, with bool, depth int) (statement, error) {
	cond, err := c.pipe(n.Pipe, depth)
	if err != nil {
		return nil, err
	}
	yes, err := c.list(n.List, depth+1)
	if err != nil {
		return nil, err
	}
	no, err := c.list(n.ElseList, depth+1)
	return branch{cond, with, yes, no}, err
}

func (c *compiler) pipe(p *parse.PipeNode, depth int) (expr, error) {
	if depth > maxDepth {
		return nil, c.errorf(p, "nests deeper than %d", maxDepth)
	}
	if len(p.Decl) > 0 {
		return nil, c.errorf(p, "variables are not supported")
	}
	if len(p.Cmds) > maxDepth {
		return nil, c.errorf(p, "pipes longer than %d are not supported", maxDepth)
	}
	var value expr
	for _, cmd := range p.Cmds {
		e, err := c.command(cmd, value, depth)
		if err != nil {
			return nil, err
		}
		value = e
	}
	return value, nil
}

// command is a value alone, or a function with its arguments, the last of which is what was piped in.
func (c *compiler) command(cmd *parse.CommandNode, piped expr, depth int) (expr, error) {
	first := cmd.Args[0]
	id, ok := first.(*parse.IdentifierNode)
	if !ok || id.Ident == "recipient" {
		if len(cmd.Args) > 1 || piped != nil {
			return nil, c.errorf(cmd, "%s is not a function", first)
		}
		return c.operand(first, depth)
	}
	return c.call(cmd, id.Ident, cmd.Args[1:], piped, depth)
}

func (c *compiler) call(n parse.Node, name string, args []parse.Node, piped expr, depth int) (expr, error) {
	f := functions[name]
	e := call{name: name, f: f.f}
	for _, a := range args {
		arg, err := c.operand(a, depth+1)
		if err != nil {
			return nil, err
		}
		e.args = append(e.args, arg)
	}
	if piped != nil {
		e.args = append(e.args, piped)
	}
	if len(e.args) < f.min || len(e.args) > f.max {
		return nil, c.errorf(n, "%s takes %d to %d arguments, not %d", name, f.min, f.max, len(e.args))
	}
	switch name {
	case "and", "or":
		return logic{e.args, name == "or"}, nil
	}
	return e, nil
}

func (c *compiler) operand(n parse.Node, depth int) (expr, error) {
	switch n := n.(type) {
	case *parse.DotNode:
		return path{}, nil
	case *parse.FieldNode:
		return path{false, n.Ident}, nil
	case *parse.VariableNode: // only $ is known without a declaration, and those are refused
		return path{true, n.Ident[1:]}, nil
	case *parse.ChainNode:
		if id, ok := n.Node.(*parse.IdentifierNode); ok && id.Ident == "recipient" {
			return c.recipient(n, n.Field)
		}
		from, err := c.operand(n.Node, depth)
		return member{from, n.Field}, err
	case *parse.IdentifierNode:
		if n.Ident == "recipient" {
			return c.recipient(n, nil)
		}
		return c.call(n, n.Ident, nil, nil, depth)
	case *parse.PipeNode:
		return c.pipe(n, depth+1)
	case *parse.StringNode:
		return literal{n.Text}, nil
	case *parse.BoolNode:
		return literal{n.True}, nil
	case *parse.NumberNode:
		if !n.IsInt && !n.IsFloat {
			return nil, c.errorf(n, "%s is not a number of this language", n)
		}
		return literal{numberOf(n)}, nil
	}
	return nil, c.errorf(n, "%s is not supported", n)
}

func (c *compiler) recipient(n parse.Node, names []string) (expr, error) {
	if len(names) == 0 {
		return nil, c.errorf(n, "name a member: recipient.id, locale, zone or attributes")
	}
	switch names[0] {
	case "id", "locale", "zone":
	case "attributes":
		c.attributes = true
	default:
		return nil, c.errorf(n, "a recipient has no %s: want id, locale, zone or attributes", names[0])
	}
	return recipient{names}, nil
}
