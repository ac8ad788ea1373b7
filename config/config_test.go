package config_test

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"belfry"
	"belfry/config"
)

func load(t *testing.T, file string, env ...string) (*config.Config, error) {
	t.Helper()
	s := config.Sources{Env: env}
	if file != "" {
		s.File = filepath.Join(t.TempDir(), "belfry.yaml")
		if err := os.WriteFile(s.File, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return config.Load(s)
}

func TestTheDefaultsAreInForceWithoutAnything(t *testing.T) {
	c, err := load(t, "")
	if err != nil {
		t.Fatal(err)
	}
	if c.Data != "belfry-data" || c.Dev || c.HTTP.Listen != "127.0.0.1:8025" || c.Engine.Drain != 30*time.Second ||
		c.Retention.Content.Std() != 30*24*time.Hour || c.Outbound.AllowPrivate == nil || c.Store.Driver != "sqlite" {
		t.Errorf("%+v", c)
	}
	if diff := cmp.Diff([]string{"webhook", "webpush"}, c.Channels.Names()); diff != "" {
		t.Error(diff)
	}
}

// An option without a field is an error of Load; this is the other direction, and that each is explained.
func TestEveryOptionStandsInTheDefaultFileWithItsExplanation(t *testing.T) {
	var doc yaml.Node
	if err := yaml.Unmarshal(config.Default(), &doc); err != nil {
		t.Fatal(err)
	}
	options := map[string]bool{}
	var walk func(n *yaml.Node, path string)
	walk = func(n *yaml.Node, path string) {
		explained := ""
		for i := 0; i < len(n.Content); i += 2 {
			key, value := n.Content[i], n.Content[i+1]
			p := strings.TrimPrefix(path+"."+key.Value, ".")
			options[p] = true
			if value.Kind == yaml.MappingNode {
				walk(value, p)
				continue
			}
			name, isFile := strings.CutSuffix(key.Value, "_file")
			same := strings.HasPrefix(p, "channels.") && key.Value == "enabled" // once is enough
			if key.HeadComment == "" && !(isFile && name == explained) && !same {
				t.Errorf("%s has no explanation", p)
			}
			explained = key.Value
		}
	}
	walk(doc.Content[0], "")

	var fields func(typ reflect.Type, path string)
	fields = func(typ reflect.Type, path string) {
		for i := range typ.NumField() {
			f := typ.Field(i)
			if !f.IsExported() || f.Anonymous {
				continue
			}
			p := strings.TrimPrefix(path+"."+config.OptionName(f.Name), ".")
			if !options[p] {
				t.Errorf("%s is not in the default file", p)
			}
			if f.Type.Kind() == reflect.Struct {
				fields(f.Type, p)
			}
		}
	}
	fields(reflect.TypeFor[config.Config](), "")
}

func TestTheLaterSourceWins(t *testing.T) {
	file := filepath.Join(t.TempDir(), "belfry.yaml")
	text := "data: from-file\nengine:\n  batch: 7\n  poll: 1s\nhttp: {listen: 'localhost:1'}\noutbound:\n  allow_private: [10.1.0.0/16]\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(config.Sources{
		File:  file,
		Env:   []string{"BELFRY_ENGINE__BATCH=8", "BELFRY_HTTP__LISTEN=localhost:2", "BELFRY_KEY=whatever", "BELFRY_CONFIG=x", "PATH=/bin", "BELFRY_OUTBOUND__ALLOW_PRIVATE=10.2.0.0/16, fd00::/8"},
		Flags: map[string]string{"http.listen": "localhost:3"},
	})
	if err != nil {
		t.Fatal(err)
	}
	private := []netip.Prefix{netip.MustParsePrefix("10.2.0.0/16"), netip.MustParsePrefix("fd00::/8")}
	if c.Data != "from-file" || c.Engine.Poll != time.Second || c.Engine.Batch != 8 || c.HTTP.Listen != "localhost:3" ||
		!reflect.DeepEqual(c.Outbound.AllowPrivate, private) {
		t.Errorf("%+v", c)
	}
	var out bytes.Buffer
	if err := c.WriteJSON(&out, true); err != nil {
		t.Fatal(err)
	}
	var origins map[string]struct{ Value, Origin any }
	if err := json.Unmarshal(out.Bytes(), &origins); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"data": file + ":1", "engine.batch": "BELFRY_ENGINE__BATCH", "engine.poll": file + ":4", "http.listen": "--listen", "engine.lease": "default",
	} {
		if origins[path].Origin != want {
			t.Errorf("%s comes from %v, want %s", path, origins[path].Origin, want)
		}
	}
}

func TestWhatIsNoOptionIsRefusedByName(t *testing.T) {
	for _, c := range []struct{ file, env, want string }{
		{"htpp: {}", "", "line 1: htpp: no such option: did you mean http?"},
		{"http:\n  Listen: x", "", "line 2: http.Listen: no such option: did you mean listen?"},
		{"http:\n  readtimeout: 1s", "", "line 2: http.readtimeout: no such option: did you mean read_timeout?"},
		{"data: a\ndata: b", "", "line 2: data: is set twice"},
		{"data:", "", "line 1: data: has no value: leave the line out for the default"},
		{"data: [a]", "", "line 1: data: want a single value"},
		{"data: &a b\nlog: {level: *a}", "", "line 2: log.level: aliases are not read: write the value"},
		{"http: 8025", "", "line 1: http: want options below it"},
		{"outbound: {allow_private: 10.0.0.0/8}", "", "outbound.allow_private: want a list"},
		{"outbound: {allow_private: [[x]]}", "", "want a list of values"},
		{"data: a\n---\ndata: b", "", "holds a second document"},
		{"- a", "", "line 1: want options"},
		{"channels: {pigeon: {}}", "", "channels.pigeon: no such option"},
		{"engine: {batch: many}", "", "engine.batch (FILE:1): want a whole number"},
		{"engine: {batch: 0}", "", "engine.batch (FILE:1): want 1 to 1000"},
		{"engine: {lease: 30}", "", "engine.lease (FILE:1): not a duration: want for example 90s, 15m, 6h or 3d"},
		{"engine: {lease: 10ms}", "", "engine.lease (FILE:1): want at least 1s"},
		{"dev: yes", "", "dev (FILE:1): want true or false"},
		{"outbound: {allow_private: [10.0.0.0]}", "", "outbound.allow_private (FILE:1): want an address range such as 10.1.0.0/16"},
		{"", "BELFRY_HTTP__LISTNE=x", "BELFRY_HTTP__LISTNE: http.listne: no such option: did you mean listen?"},
		{"", "BELFRY_CHANNELS__WEBHOOK=x", "channels.webhook: is a section, not an option"},
		{"", "BELFRY_LOG__LEVEL=loud", "log.level (BELFRY_LOG__LEVEL): want debug, info, warn or error"},
		{"", "BELFRY_LOG__FORMAT=xml", "log.format (BELFRY_LOG__FORMAT): want text or json"},
		{"", "BELFRY_HTTP__LISTEN=8025", "http.listen (BELFRY_HTTP__LISTEN): want an address and a port"},
		{"dev: true\nhttp: {listen: '0.0.0.0:8025'}", "", "dev (FILE:1): needs no key"},
		{"retention: {rows: 1d}", "", "retention.rows (FILE:1): want at least retention.content"},
		{"limits: {rate: -1}", "", "limits.rate (FILE:1): want 0 or more"},
		{"limits: {rate: .nan}", "", "limits.rate (FILE:1): want a number"},
	} {
		_, err := load(t, c.file, c.env)
		if err == nil {
			t.Errorf("%q %s is accepted", c.file, c.env)
			continue
		}
		have := err.Error()
		if i, j := strings.Index(have, os.TempDir()), strings.Index(have, "belfry.yaml"); i >= 0 && j > i {
			have = have[:i] + "FILE" + have[j+len("belfry.yaml"):]
		}
		if !strings.Contains(have, c.want) {
			t.Errorf("%q %s:\n%s\nwant %s", c.file, c.env, have, c.want)
		}
	}
	if _, err := config.Load(config.Sources{File: filepath.Join(t.TempDir(), "none.yaml")}); err == nil {
		t.Error("a missing file is accepted")
	}
	if _, err := load(t, "# nothing set\n"); err != nil {
		t.Error(err)
	}
}

type driver struct {
	Secret  belfry.Secret
	Timeout time.Duration
	HTTP    any
}

func TestASecretComesFromItsFileAndIsNeverShown(t *testing.T) {
	const secret = "whsec_c2VjcmV0LXRoYXQtbm9ib2R5LXNlZXM"
	name := filepath.Join(t.TempDir(), "webhook.secret")
	if err := os.WriteFile(name, []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ file, env string }{
		{"channels: {webhook: {secret_file: " + name + "}}", ""},
		{"", "BELFRY_CHANNELS__WEBHOOK__SECRET_FILE=" + name},
		{"channels: {webhook: {secret: " + secret + "}}", ""},
	} {
		conf, err := load(t, c.file, c.env)
		if err != nil {
			t.Fatal(err)
		}
		o := driver{Timeout: time.Hour}
		if err := conf.Channels["webhook"].Decode(&o); err != nil {
			t.Fatal(err)
		}
		if o.Secret.Reveal() != secret || !conf.Channels["webhook"].Enabled() || o.Timeout != 15*time.Second {
			t.Errorf("%+v", o)
		}
		var out bytes.Buffer
		for _, origin := range []bool{false, true} {
			if err := conf.WriteYAML(&out, origin); err != nil {
				t.Fatal(err)
			}
			if err := conf.WriteJSON(&out, origin); err != nil {
				t.Fatal(err)
			}
		}
		if s := out.String(); strings.Contains(s, secret) || strings.Count(s, "[redacted]") != 4 {
			t.Error(s)
		}
	}
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{
		"channels: {webhook: {secret: x, secret_file: " + name + "}}",
		"channels: {webhook: {secret_file: " + name + "}}",
		"channels: {webhook: {secret_file: " + name + ".none}}",
	} {
		if _, err := load(t, bad); err == nil || !strings.Contains(err.Error(), "channels.webhook.secret_file") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

func TestAnOptionThatTheDriverHasNotIsAnError(t *testing.T) {
	c, err := load(t, "")
	if err != nil {
		t.Fatal(err)
	}
	var o struct{ Timeout time.Duration }
	if err := c.Channels["webhook"].Decode(&o); err == nil || err.Error() != "config: channels.webhook.secret (default): has no place in the program" {
		t.Error(err)
	}
}

func TestAChannelCanBeSwitchedOff(t *testing.T) {
	c, err := load(t, "channels: {webhook: {enabled: false}}")
	if err != nil {
		t.Fatal(err)
	}
	if c.Channels["webhook"].Enabled() || !c.Channels["webpush"].Enabled() {
		t.Error("the wrong channel is off")
	}
	if c, err = load(t, "channels: {webhook: {enabled: no}}"); err == nil {
		t.Error("no is taken for false, or for true")
	}
}

func TestWhatIsPrintedCanBeGivenBack(t *testing.T) {
	c, err := load(t, "data: '123'\nlimits: {rate: 2.5}", "BELFRY_OUTBOUND__ALLOW_PRIVATE=10.0.0.0/8", "BELFRY_LOG__LEVEL=warn", "BELFRY_CHANNELS__WEBPUSH__SUBJECT=a\nb: c")
	if err != nil {
		t.Fatal(err)
	}
	var first, second bytes.Buffer
	if err := c.WriteYAML(&first, false); err != nil {
		t.Fatal(err)
	}
	again, err := load(t, first.String())
	if err != nil {
		t.Fatalf("%v\n%s", err, first.String())
	}
	if err := again.WriteYAML(&second, false); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first.String(), second.String()); diff != "" {
		t.Error(diff)
	}
	if again.Data != "123" || again.Limits.Rate != 2.5 || len(again.Outbound.AllowPrivate) != 1 || again.Log.Level != "warn" {
		t.Errorf("%+v", again)
	}
}

func TestTheDefaultsArePrintedAsTheyAreWritten(t *testing.T) {
	c, err := load(t, "")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := c.WriteYAML(&out, false); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(config.Default()), out.String()); diff != "" {
		t.Error(diff)
	}
}
