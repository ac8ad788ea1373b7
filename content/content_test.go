package content_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"belfry"
	"belfry/content"
)

var someone = belfry.Recipient{ID: "user-42", Locale: "ja-JP", Zone: "Asia/Tokyo", Attributes: json.RawMessage(`{"name":"Aiko","tier":{"name":"gold"}}`)}

func compile(t testing.TB, templates belfry.Templates) *content.Template {
	t.Helper()
	c, err := content.Compile(templates)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func render(t testing.TB, body, data string) (string, error) {
	t.Helper()
	c, err := compile(t, belfry.Templates{"body": body}).Render(json.RawMessage(data), someone)
	return c.Body, err
}

func TestTemplatesRenderDataAndRecipient(t *testing.T) {
	const data = `{"item":"kettle","price":1980,"rate":1.10,"big":12345678901234567890,"on":true,"off":false,"none":null,
		"tags":["a","b"],"shop":{"name":"Tsubame & Co","open":{"from":9}},"zero":0,"float":0.0,"empty":"","long":"日本語のとても長い文"}`
	for source, want := range map[string]string{
		`plain`:                                 "plain",
		`{{.item}} now {{.price}} yen`:          "kettle now 1980 yen",
		`{{.rate}} {{.big}}`:                    "1.10 12345678901234567890",
		`{{.shop.open.from}}{{.shop.no.such}}.`: "9.",
		`{{.missing}}|{{.none}}|{{.on}}`:        "||true",
		`{{$.item}} {{$.shop.name}}`:            "kettle Tsubame & Co",
		`{{recipient.id}} {{recipient.locale}} {{recipient.zone}}`:                           "user-42 ja-JP Asia/Tokyo",
		`{{recipient.attributes.name}} {{recipient.attributes.tier.name}}`:                   "Aiko gold",
		`{{if .on}}y{{else}}n{{end}}{{if .off}}y{{else if .none}}m{{else}}n{{end}}`:          "yn",
		`{{if .zero}}y{{end}}{{if .float}}y{{end}}{{if .empty}}y{{end}}{{if .tags}}t{{end}}`: "t",
		`{{with .shop}}{{.name}} of {{$.item}}{{else}}-{{end}}`:                              "Tsubame & Co of kettle",
		`{{with .none}}x{{else with .shop}}{{.name}}{{end}}`:                                 "Tsubame & Co",
		`{{if and .on (gt .price 1000)}}dear{{end}}`:                                         "dear",
		`{{if or .off (lt .price 1000)}}cheap{{else}}dear{{end}}`:                            "dear",
		`{{and .off .tags}}{{or .none "x"}}`:                                                 "falsex",
		`{{if eq .item "pot" "kettle"}}y{{end}}{{if ne .item "pot"}}y{{end}}`:                "yy",
		`{{if eq .rate 1.1}}y{{end}}{{if ge .big 12345678901234567890}}y{{end}}`:             "yy",
		`{{if le .item "l"}}y{{end}}{{if not .off}}y{{end}}`:                                 "yy",
		`{{.missing | default "there"}} {{.item | default "x"}}`:                             "there kettle",
		`{{.item | upper | lower}} {{upper .item}}`:                                          "kettle KETTLE",
		`{{trim "  a "}}{{len .long}}{{len .tags}}{{len .shop}}{{len .none}}`:                "a10220",
		`{{.tags | join ", "}} {{index .tags 1}}{{index .tags 9}}{{index .shop "name"}}`:     "a, b bTsubame & Co",
		`{{truncate 4 .long}} {{truncate 10 .long}}`:                                         "日本語… 日本語のとても長い文",
		`https://shop.example/?q={{urlquery .shop.name}}`:                                    "https://shop.example/?q=Tsubame+%26+Co",
		"a\n  {{- /* a comment */ -}}\n b":                                                   "ab",
		`{{(index .shop "open").from}}`:                                                      "9",
		`{{1980}} {{0x10}} {{1.50}} {{"q"}} {{true}}`:                                        "1980 16 1.50 q true",
		"  two\r\nlines\t.\x00 ":                                                             "two\nlines\t. ",
		`<b>{{.shop.name}}</b>`:                                                              "<b>Tsubame & Co</b>",
	} {
		got, err := render(t, source, data)
		if err != nil || got != want {
			t.Errorf("%s: got %q, %v; want %q", source, got, err, want)
		}
	}
}

func TestWhatCouldRunAwayIsRefused(t *testing.T) {
	deep := strings.Repeat("{{if .a}}", 40) + strings.Repeat("{{end}}", 40)
	for source, want := range map[string]string{
		`{{env "DB_PASSWORD"}}`:                 "env",
		`{{printf "%1000000d" 1}}`:              "printf",
		`{{print .a}}`:                          "print",
		`{{html .a}}{{js .a}}`:                  "html",
		`{{call .a}}`:                           "call",
		`{{slice .a 1}}`:                        "slice",
		`{{range .a}}x{{end}}`:                  "range",
		`{{range 1000000000}}x{{end}}`:          "range",
		`{{template "body"}}`:                   "template",
		`{{template "body" .}}`:                 "template",
		`{{define "x"}}{{end}}a`:                "define",
		`{{block "x" .}}{{end}}`:                "define",
		`{{define "body"}}x{{end}}a{{$x := 1}}`: "",
		`{{$x := .a}}{{$x}}`:                    "variables",
		`{{with $x := .a}}{{$x}}{{end}}`:        "variables",
		`{{.a.Method 1}}`:                       "not a function",
		`{{.a | .b}}`:                           "not a function",
		`{{eq .a nil}}`:                         "nil",
		`{{nil}}`:                               "nil",
		`{{2i}}`:                                "not a number",
		`{{recipient}}`:                         "name a member",
		`{{recipient.token}}`:                   "no token",
		`{{recipient.attributes.x 1}}`:          "not a function",
		`{{upper}}`:                             "arguments",
		`{{upper .a .b}}`:                       "arguments",
		`{{break}}`:                             "break",
		deep:                                    "nests deeper",
		`{{` + strings.Repeat("(", 5000) + `.a` + strings.Repeat(")", 5000) + `}}`: "nests deeper",
		`{{.a` + strings.Repeat("|upper", 40) + `}}`:                               "pipes longer",
		`{{.a`:                        "unclosed",
		"\n\n{{nope}}":                "3:",
		"\xff":                        "UTF-8",
		strings.Repeat("a", 16<<10+1): "limit",
	} {
		_, err := content.Compile(belfry.Templates{"body": source})
		e, ok := err.(*belfry.Error)
		if !ok || e.Field != "templates.body" || e.Code != belfry.CodeInvalid || !strings.Contains(e.Detail, want) {
			t.Errorf("%.60s: %v", source, err)
		}
	}
	if _, err := content.Compile(belfry.Templates{"titel": "x"}); err == nil || !strings.Contains(err.Error(), "templates.titel") {
		t.Errorf("an unknown field: %v", err)
	}
	if _, err := content.Compile(belfry.Templates{"body": strings.Repeat("a", 16<<10)}); err != nil {
		t.Errorf("the largest template: %v", err)
	}
}

func TestWithoutTemplatesTheDataSpeaks(t *testing.T) {
	none := compile(t, nil)
	for data, want := range map[string]belfry.Content{
		``:   {},
		`{}`: {},
		`{"title":" Hi\nthere ","body":"a\nb","link":"https://a.example/x?y=1","image":"https://a.example/i.png","price":1}`: {
			Title: "Hi there", Body: "a\nb", Link: "https://a.example/x?y=1", Image: "https://a.example/i.png"},
		`{"title":5,"body":null,"link":["x"],"image":{}}`:                        {},
		`{"link":"javascript:alert(1)","image":"data:text/html,x"}`:              {},
		`{"link":"/relative","image":"mailto:a@b.example"}`:                      {},
		`{"link":"mailto:a@b.example"}`:                                          {Link: "mailto:a@b.example"},
		`{"link":"HTTPS://a.example/","image":" https://a.example/\u0000i.png"}`: {Link: "HTTPS://a.example/", Image: "https://a.example/i.png"},
	} {
		got, err := none.Render(json.RawMessage(data), someone)
		want.Data = json.RawMessage(data)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", data, err, diff)
		}
	}
	some := compile(t, belfry.Templates{"title": "T"})
	if got, err := some.Render(json.RawMessage(`{"title":"no","body":"b"}`), someone); err != nil || got.Title != "T" || got.Body != "b" {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestLinksAreHTTPOrMailOnly(t *testing.T) {
	for source, ok := range map[string]bool{
		"https://a.example/{{.x}}": true, "http://a.example": true, "mailto:{{.x}}@a.example": true, "": true, " {{.none}} ": true,
		"javascript:alert(1)": false, "JaVaScRiPt:alert(1)": false, "java\nscript:alert(1)": false, "data:text/html,x": false, "//a.example": false,
		"/path": false, "{{.js}}": false, "https:": false, "mailto:": false, "vbscript:x": false, "file:///etc/passwd": false, "https://%zz": false,
	} {
		_, err := compile(t, belfry.Templates{"link": source}).Render(json.RawMessage(`{"x":"y","js":"javascript:1"}`), someone)
		if e, isError := err.(*belfry.Error); (err == nil) != ok || isError && e.Field != "link" {
			t.Errorf("%q: %v", source, err)
		}
	}
	if _, err := compile(t, belfry.Templates{"image": "mailto:a@a.example"}).Render(nil, someone); err == nil {
		t.Error("an image by mail")
	}
}

func TestRenderErrorsNameTheFieldAndNotTheData(t *testing.T) {
	const data = `{"s":"hidden-text","n":7,"list":["hidden-text",{"hidden-text":1}],"object":{"hidden-text":1}}`
	for source, want := range map[string]string{
		`{{.object}}`: "object", `{{.list}}`: "list", `{{.}}`: "object", `{{$}}`: "object", `{{join "," .list}}`: "join",
		`{{join "," .s}}`: "join: wants a list", `{{gt .s .n}}`: "gt: compares", `{{eq .s .n}}`: "eq: compares", `{{eq .list .list}}`: "eq",
		`{{upper .object}}`: "upper", `{{truncate .s 3}}`: "truncate", `{{truncate 0 .s}}`: "truncate", `{{len .n}}`: "len",
		`{{index .list .s}}`: "index", `{{index .s 0}}`: "index", `{{lt true false}}`: "lt", `{{join .object .list}}`: "join",
	} {
		_, err := render(t, source, data)
		e, ok := err.(*belfry.Error)
		if !ok || e.Field != "body" || !strings.Contains(e.Detail, want) || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%s: %v", source, err)
		}
	}
	for _, data := range []string{`[]`, `"hidden"`, `{"hidden":}`, `{}{"hidden":1}`, `5`} {
		if _, err := render(t, "x", data); err == nil || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%s: %v", data, err)
		}
	}
}

func TestOutputAndWorkAreBounded(t *testing.T) {
	big := `{"s":"` + strings.Repeat("x", 60000) + `"}`
	if _, err := render(t, `{{.s}}{{.s}}`, big); err == nil || !strings.Contains(err.Error(), "renders to more") {
		t.Error(err)
	}
	both := compile(t, belfry.Templates{"title": "{{.s}}", "body": "{{.s}}"})
	if _, err := both.Render(json.RawMessage(big), someone); err == nil {
		t.Error("two fields of 60 kB passed a limit of 64 KiB")
	}
	for _, source := range []string{
		strings.Repeat(`{{if eq "" (upper .s)}}{{end}}`, 500),
		strings.Repeat(`{{if eq .s ""}}{{end}}`, 700),
		`{{.s` + strings.Repeat(" | urlquery", 20) + ` | len}}`,
	} {
		if _, err := render(t, source, big); err == nil || !strings.Contains(err.Error(), "too much work") {
			t.Errorf("%.30s: %v", source, err)
		}
	}
	list := `{"s":"` + strings.Repeat("x", 30000) + `","l":[` + strings.Repeat("1,", 10000) + `1]}`
	if _, err := render(t, `{{len (join .s .l)}}`, list); err == nil || !strings.Contains(err.Error(), "too much work") {
		t.Error(err)
	}
}

func TestOneTemplateRendersConcurrently(t *testing.T) {
	c := compile(t, belfry.Templates{"title": "{{.n}}", "body": "{{recipient.attributes.name}} {{.n}}"})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 100 {
				got, err := c.Render(json.RawMessage(fmt.Sprintf(`{"n":%d}`, i)), someone)
				if want := fmt.Sprint(i); err != nil || got.Title != want || got.Body != "Aiko "+want {
					t.Errorf("%+v, %v", got, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// FuzzRender: whatever the template and the data are, neither panics, and what comes out keeps the limits.
func FuzzRender(f *testing.F) {
	f.Add(`{{.a}} {{if .b}}{{with .c}}{{.d}}{{end}}{{end}}`, `{"a":1,"b":true,"c":{"d":"x"}}`)
	f.Add(`{{index .a 1 | join "," | truncate 3 | default "x"}}`, `{"a":[[1,2],["b"]]}`)
	f.Add(`{{and .a (or .b (not .c)) | urlquery}}{{recipient.attributes.x}}`, `{"a":1e999,"b":-0,"c":null}`)
	f.Add(`{{(index . "a").b}}{{$.c}}{{/* */}}{{- 0x1p4 -}}`, `{"a":{"b":[]}}`)
	f.Fuzz(func(t *testing.T, source, data string) {
		for _, field := range []string{"body", "link", "title"} {
			c, err := content.Compile(belfry.Templates{field: source})
			if err != nil {
				return
			}
			out, err := c.Render(json.RawMessage(data), someone)
			if n := len(out.Title) + len(out.Body) + len(out.Link); n > content.MaxOutput {
				t.Errorf("%d bytes", n)
			}
			if err == nil && (!utf8.ValidString(out.Body) || strings.ContainsAny(out.Title+out.Link, "\r\n\x00")) {
				t.Errorf("%+v", out)
			}
		}
	})
}

func BenchmarkRender(b *testing.B) {
	c := compile(b, belfry.Templates{
		"title": "{{.item}} is cheaper",
		"body":  "Now {{.price}} yen{{if gt .price 1000}}, hurry{{end}}.",
		"link":  "https://shop.example/items/{{urlquery .id}}",
	})
	data := json.RawMessage(`{"item":"kettle","price":1980,"id":"k-981"}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Render(data, someone); err != nil {
			b.Fatal(err)
		}
	}
}
