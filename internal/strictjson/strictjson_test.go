package strictjson_test

import (
	"bytes"
	"encoding/json"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"belfry"
	"belfry/internal/strictjson"
)

func canonical(t testing.TB, doc string) string {
	t.Helper()
	v, err := strictjson.Parse([]byte(doc))
	if err != nil {
		t.Fatalf("%.200q: %v", doc, err)
	}
	return string(v.Canonical(nil, ""))
}

func TestEqualDocumentsHaveOneForm(t *testing.T) {
	for name, docs := range map[string][]string{
		"order of members": {`{"a":1,"b":{"c":2,"d":3}}`, `{"b":{"d":3,"c":2},"a":1}`},
		"white space":      {`{"a":[1,2]}`, " {\t\"a\" :\r\n[ 1 , 2 ] } "},
		"numbers":          {`[1]`, `[1.0]`, `[1e0]`, `[10E-1]`, `[0.01e+2]`, `[1.000]`},
		"large numbers":    {`[12345678901234567890]`, `[1234567890123456789e1]`, `[12345678901234567890.0]`},
		"zeros":            {`[0]`, `[-0]`, `[0.00]`, `[0e7]`, `[-0E-7]`},
		"escapes":          {`["aé😀/\n"]`, `["\u0061\u00e9\ud83d\uDE00\/\u000a"]`},
		"escapes in names": {`{"a":1,"b":2}`, `{"\u0062":2,"\u0061":1}`},
		"many members": {
			`{"a":1,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1,"h":1,"i":1,"j":1,"k":1,"l":1,"m":1,"n":1}`,
			`{"n":1,"m":1,"l":1,"k":1,"j":1,"i":1,"h":1,"g":1,"f":1,"e":1,"d":1,"c":1,"b":1,"\u0061":1}`,
		},
	} {
		for _, doc := range docs[1:] {
			if a, b := canonical(t, docs[0]), canonical(t, doc); a != b {
				t.Errorf("%s: %s and %s have the forms %s and %s", name, docs[0], doc, a, b)
			}
		}
	}
}

func TestDifferentDocumentsHaveDifferentForms(t *testing.T) {
	docs := []string{
		`1`, `"1"`, `-1`, `10`, `0.1`, `1e1000`, `9007199254740993`, `9007199254740992`, `[1]`, `[[1]]`, `{"1":1}`,
		`[]`, `{}`, `null`, `"null"`, `true`, `false`, `""`, `"a"`, `"A"`, `"a\u0000"`, `"\\u0061"`, `[1,2]`, `[2,1]`,
		`["a,b"]`, `["a","b"]`, `{"a":{"b":1}}`, `{"a":[{"b":1}]}`, `{"a":null}`,
	}
	forms := map[string]string{}
	for _, doc := range docs {
		form := canonical(t, doc)
		if other, taken := forms[form]; taken {
			t.Errorf("%s and %s have the same form %s", doc, other, form)
		}
		forms[form] = doc
	}
}

func TestOneMemberMayBeLeftOut(t *testing.T) {
	v, _ := strictjson.Parse([]byte(`{"z":1,"key":"k","data":{"key":2}}`))
	if got := string(v.Canonical(nil, "key")); got != `{"data":{"key":2},"z":1}` {
		t.Error(got)
	}
}

func TestWhatTwoReadersCouldTakeDifferentlyIsRefused(t *testing.T) {
	deep := func(n int) string { return strings.Repeat(`[`, n) + strings.Repeat(`]`, n) }
	wide := func(n int) string {
		var b strings.Builder
		for i := range n {
			b.WriteString(`,"` + strings.Repeat("k", i/26+1) + string(rune('a'+i%26)) + `":0`)
		}
		return `{` + b.String()[1:] + `}`
	}
	for _, c := range []struct{ doc, field, detail string }{
		{``, "", "is empty"},
		{"  \n", "", "is empty"},
		{"\xef\xbb\xbf{}", "", "byte order mark"},
		{`{"to":1,"to":2}`, "to", "occurs twice"},
		{`{"to":1,"\u0074o":2}`, "to", "occurs twice"},
		{`{"data":{"list":[0,{"a":1,"b":1,"a":1}]}}`, "data.list.1.a", "occurs twice"},
		{`{"a":"` + "\xff" + `"}`, "a", "UTF-8"},
		{`{"a":"` + "\xed\xa0\x80" + `"}`, "a", "UTF-8"},
		{`{"` + "\xc0\x80" + `":1}`, "", "UTF-8"},
		{`["\ud800"]`, "0", "surrogate"},
		{`["\ud800\u0041"]`, "0", "surrogate"},
		{`["\udc00\ud800"]`, "0", "surrogate"},
		{`{"a":NaN}`, "a", "no value begins like this"},
		{`[Infinity]`, "0", "no value"},
		{`[-Infinity]`, "0", "no number"},
		{`[01]`, "0", "no number"},
		{`[+1]`, "0", "no value"},
		{`[.5]`, "0", "no value"},
		{`[1.]`, "0", "decimal point"},
		{`[1e]`, "0", "follow the e"},
		{`[1e99999]`, "0", "exponent"},
		{`[1,]`, "1", "no value"},
		{`{"a":1,}`, "", "name in double quotes"},
		{`{a:1}`, "", "name in double quotes"},
		{`{'a':1}`, "", "name in double quotes"},
		{`{"a" 1}`, "", "colon"},
		{`{"a":1 "b":2}`, "", "comma"},
		{`[1 2]`, "", "comma"},
		{`{"a":1`, "", "ends too early"},
		{`["a`, "0", "ends too early"},
		{`["a\`, "0", "ends too early"},
		{`["\`, "0", "ends too early"},
		{`{"a":`, "a", "ends too early"},
		{`["\u00"]`, "0", "hexadecimal"},
		{`["\x"]`, "0", "no escape"},
		{"[\"a\tb\"]", "0", "control character"},
		{"[\"\\n\tb\"]", "0", "control character"},
		{`nul`, "", "no value"},
		{`{} {}`, "", "more follows"},
		{`{}x`, "", "more follows"},
		{`// c` + "\n{}", "", "no value"},
		{deep(33), strings.TrimSuffix(strings.Repeat("0.", 32), "."), "deeper than 32"},
		{strings.Repeat(`[`, 10_000), strings.TrimSuffix(strings.Repeat("0.", 32), "."), "deeper than 32"},
		{wide(1001), "", "more than 1000 members"},
		{`[` + strings.Repeat(`0,`, strictjson.MaxValues) + `0]`, "524287", "more than 524288 values"},
	} {
		_, err := strictjson.Parse([]byte(c.doc))
		e, ok := err.(*strictjson.Error)
		if !ok || e.Field != c.field || !strings.Contains(e.Detail, c.detail) {
			t.Errorf("%.60q: %v, want %s: …%s…", c.doc, err, c.field, c.detail)
		}
	}
	for _, doc := range []string{deep(32), wide(1000), `"\\"`, `"\""`, `{"":0}`, `{"a":{"a":{"a":1}}}`, ` 1 `} {
		if _, err := strictjson.Parse([]byte(doc)); err != nil {
			t.Errorf("%.60q: %v", doc, err)
		}
	}
}

type inner struct {
	Address string `json:"address"`
}

type embedded struct {
	Channels []string `json:"channels,omitempty"`
}

type outer struct {
	To   []inner          `json:"to,omitempty"`
	Wait belfry.Duration  `json:"wait,omitempty"`
	At   time.Time        `json:"at,omitzero"`
	Data json.RawMessage  `json:"data,omitempty"`
	N    int              `json:"n,omitempty"`
	F    float64          `json:"f,omitempty"`
	On   map[string]*bool `json:"on,omitempty"`
	In   *inner           `json:"in,omitempty"`
	embedded
	Hidden string `json:"-"`
	Must   string `json:"must"`
}

func TestDecodeFillsWhatIsThere(t *testing.T) {
	v, err := strictjson.Parse([]byte(`{"must":"\u0061","to":[{"address":"x"}],"wait":"2d","at":"2026-12-01T09:00:00+09:00",
		"data":{"a": 1.0},"n":1e3,"f":0.5,"on":{"email":false,"sms":null},"in":{"address":"y"},"channels":["push"]}`))
	if err != nil {
		t.Fatal(err)
	}
	var got outer
	if err := v.Decode(&got); err != nil {
		t.Fatal(err)
	}
	off := false
	want := outer{
		To: []inner{{"x"}}, Wait: belfry.Duration(48 * time.Hour), At: time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC),
		Data: json.RawMessage(`{"a": 1.0}`), N: 1000, F: 0.5, On: map[string]*bool{"email": &off, "sms": nil},
		In: &inner{"y"}, embedded: embedded{[]string{"push"}}, Must: "a",
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(outer{}), cmp.Comparer(time.Time.Equal)); diff != "" {
		t.Error(diff)
	}
}

func TestDecodeNamesWhatItRefuses(t *testing.T) {
	for _, c := range []struct{ doc, want string }{
		{`[]`, "must be an object, not an array"},
		{`{}`, "must: is missing"},
		{`{"must":"","Must":""}`, "Must: is not known here; write it must"},
		{`{"must":"","hidden":""}`, "hidden: is not known here"},
		{`{"must":"","Hidden":""}`, "Hidden: is not known here"},
		{`{"must":"","` + strings.Repeat("é", 100) + `":1}`, strings.Repeat("é", 32) + "…: is not known here"},
		{`{"must":null}`, "must: must not be null; leave it out, or give a string"},
		{`{"must":1}`, "must: must be a string, not a number"},
		{`{"must":"","to":[{"address":"a"},{"addr":"b"}]}`, "to.1.addr: is not known here"},
		{`{"must":"","to":[{}]}`, "to.0.address: is missing"},
		{`{"must":"","to":{}}`, "to: must be an array, not an object"},
		{`{"must":"","wait":5}`, "wait: must be a string, not a number"},
		{`{"must":"","wait":"soon"}`, "wait: not a duration: want for example 90s, 15m, 6h or 3d"},
		{`{"must":"","at":"2026-12-01"}`, "at: must be an instant as 2026-12-01T09:00:00Z"},
		{`{"must":"","at":"0001-01-01T00:00:00Z"}`, "at: must be an instant as 2026-12-01T09:00:00Z"},
		{`{"must":"","n":1.5}`, "n: must be a whole number"},
		{`{"must":"","n":9223372036854775808}`, "n: must be a smaller whole number"},
		{`{"must":"","n":1e400}`, "n: must be a whole number"},
		{`{"must":"","f":1e400}`, "f: is too large a number"},
		{`{"must":"","on":{"email":"no"}}`, "on.email: must be a boolean, not a string"},
	} {
		v, err := strictjson.Parse([]byte(c.doc))
		if err != nil {
			t.Fatal(err)
		}
		if err := v.Decode(new(outer)); err == nil || err.Error() != c.want {
			t.Errorf("%s: %v, want %s", c.doc, err, c.want)
		}
	}
}

// same reads a document with encoding/json and writes the numbers as exact fractions.
func same(t *testing.T, doc []byte) any {
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("encoding/json refuses %q: %v", doc, err)
	}
	var walk func(any) any
	walk = func(v any) any {
		switch v := v.(type) {
		case json.Number:
			r, ok := new(big.Rat).SetString(v.String())
			if !ok {
				t.Fatalf("no number: %s", v)
			}
			return r.String()
		case []any:
			for i := range v {
				v[i] = walk(v[i])
			}
		case map[string]any:
			for k := range v {
				v[k] = walk(v[k])
			}
		}
		return v
	}
	return walk(v)
}

func FuzzCanonical(f *testing.F) {
	for _, doc := range []string{
		`{"b":[1.0,-0,1e2],"a":"\ud83d\ude00\u0000"}`, `{"a":1,"\u0061":2}`, `[[[]]]`, `"\\\""`, `1e-9999`, `{"é":null}`, `{"a":tru}`,
	} {
		f.Add([]byte(doc))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		v, err := strictjson.Parse(doc)
		if err != nil {
			return
		}
		form := v.Canonical(nil, "")
		again, err := strictjson.Parse(form)
		if err != nil {
			t.Fatalf("%q has the form %q, which is refused: %v", doc, form, err)
		}
		if twice := again.Canonical(nil, ""); !bytes.Equal(form, twice) {
			t.Fatalf("%q has the form %q, and that %q", doc, form, twice)
		}
		if diff := cmp.Diff(same(t, doc), same(t, form)); diff != "" {
			t.Fatalf("%q does not mean what %q does:\n%s", doc, form, diff)
		}
		if !bytes.Equal(v.Raw(), bytes.Trim(doc, " \t\r\n")) {
			t.Fatalf("%q has the raw text %q", doc, v.Raw())
		}
	})
}

func BenchmarkParseDecode(b *testing.B) {
	doc := []byte(`{"must":"user-42","to":[{"address":"a@example.com"}],"wait":"2h","at":"2026-12-01T00:00:00Z","data":{"item":"kettle","price":1980},"channels":["push"]}`)
	b.ReportAllocs()
	b.SetBytes(int64(len(doc)))
	for b.Loop() {
		v, err := strictjson.Parse(doc)
		if err != nil {
			b.Fatal(err)
		}
		var into outer
		if err := v.Decode(&into); err != nil {
			b.Fatal(err)
		}
		_ = v.Canonical(nil, "must")
	}
}
