package content

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// FuzzObject: data is read exactly as encoding/json reads it.
func FuzzObject(f *testing.F) {
	for _, s := range []string{
		`{"a":1,"b":[true,false,null,{"c":"d"}],"e":"\u00e9\ud83d\ude00\ud800\n\"","e":-1.5e+10}`,
		" {\t\"a\" : [ ] , \"b\":{ } }\n", `{"a":"` + "\xff\xc3é" + `"}`, `{"":{"":[[[0]]]}}`, `[]`, `1`, `"x"`, `{`, `{"\\":"\\\\"}`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var want any
		d := json.NewDecoder(strings.NewReader(s))
		d.UseNumber()
		err := d.Decode(&want)
		m, isObject := want.(map[string]any)
		if !json.Valid([]byte(s)) || err != nil || !isObject {
			if got, err := object("data", json.RawMessage(s)); s != "" && err == nil {
				t.Errorf("%q was read as %v", s, got)
			}
			return
		}
		got, err := object("data", json.RawMessage(s))
		if diff := cmp.Diff(m, got); err != nil || diff != "" {
			t.Errorf("%q: %v\n%s", s, err, diff)
		}
	})
}
