package belfry_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"

	"belfry"
)

func TestEveryReasonIsExplained(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "reasons.go", nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	named := map[belfry.Reason]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if kind, ok := spec.Type.(*ast.Ident); !ok || kind.Name != "Reason" {
			return true
		}
		name := spec.Names[0].Name
		text, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil || !strings.HasPrefix(name, "Reason") {
			t.Errorf("%s: %v", name, err)
		}
		r := belfry.Reason(text)
		if other, ok := named[r]; ok {
			t.Errorf("%s and %s are both %q", name, other, r)
		}
		named[r] = name
		return true
	})
	if len(named) < 20 {
		t.Fatalf("found only %d reasons", len(named))
	}
	for r, name := range named {
		why := belfry.Reasons[r]
		if why == "" || strings.ContainsAny(why, "\n.") || why[:1] != strings.ToLower(why[:1]) {
			t.Errorf("%s is explained as %q", name, why)
		}
		if belfry.CustomReason(string(r)) != r {
			t.Errorf("%s is not a word: %q", name, r)
		}
	}
	for r := range belfry.Reasons {
		if named[r] == "" {
			t.Errorf("%q is explained and has no name", r)
		}
	}
}
