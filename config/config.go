// Package config gives the server's settings, and for each of them where it was set. A setting that does
// not exist, exists twice or cannot be read is an error that names its place; nothing is guessed.
//
// The built-in default.yaml is both the documentation and the defaults: an option exists because it stands
// there. The sections of drivers are decoded into the drivers' own Options by whoever knows the drivers.
package config

import (
	_ "embed"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"belfry"
)

//go:embed default.yaml
var defaults []byte

// Config is every setting. The fields are explained in default.yaml.
type Config struct {
	Data      string
	Dev       bool
	HTTP      HTTP
	Store     Store
	Engine    Engine
	Channels  Sections
	Outbound  Outbound
	Retention Retention
	Limits    Limits
	Metrics   Metrics
	Log       Log

	tree *tree
}

// HTTP is how the API listens.
type HTTP struct {
	Listen      string
	ReadTimeout time.Duration
	IdleTimeout time.Duration
}

// Store picks the driver; the sections are the drivers'.
type Store struct {
	Driver string
	Sections
}

// Engine is how work is done.
type Engine struct {
	Node    int
	Lease   time.Duration
	Poll    time.Duration
	Batch   int
	Workers int
	Drain   time.Duration
}

// Outbound is where may be sent to.
type Outbound struct {
	AllowPrivate []netip.Prefix
}

// Retention is how long things are kept.
type Retention struct {
	Content belfry.Duration
	Rows    belfry.Duration
}

// Limits protects the server from its callers.
type Limits struct {
	Rate  float64
	Burst int
}

// Metrics is where they are served.
type Metrics struct {
	Listen string
}

// Log is how the program logs.
type Log struct {
	Level  string
	Format string
}

// Sources is where settings come from, besides the defaults.
type Sources struct {
	File  string            // a YAML file; empty: none
	Env   []string          // as os.Environ gives it
	Flags map[string]string // by dotted path
}

// Load reads the settings. Its errors name the option and where it was set, and show no secret.
func Load(s Sources) (*Config, error) {
	t, err := grow(s)
	if err != nil {
		return nil, err
	}
	c := &Config{tree: t}
	if err := (Section{t, t.root, ""}).Decode(c); err != nil {
		return nil, err
	}
	return c, c.check()
}

// check refuses values that cannot work, whatever their driver.
func (c *Config) check() error {
	for path, d := range map[string]time.Duration{
		"http.read_timeout": c.HTTP.ReadTimeout, "http.idle_timeout": c.HTTP.IdleTimeout, "engine.lease": c.Engine.Lease,
		"engine.poll": c.Engine.Poll, "retention.content": c.Retention.Content.Std(), "retention.rows": c.Retention.Rows.Std(),
	} {
		if d <= 0 {
			return c.tree.errorf(path, "want more than 0s")
		}
	}
	switch {
	case c.Data == "":
		return c.tree.errorf("data", "want a folder")
	case c.Engine.Node < 0 || c.Engine.Node > belfry.MaxNode:
		return c.tree.errorf("engine.node", "want 0 to %d", belfry.MaxNode)
	case c.Engine.Lease < time.Second:
		return c.tree.errorf("engine.lease", "want at least 1s: clocks and disks stall longer than that")
	case c.Engine.Batch < 1 || c.Engine.Batch > belfry.MaxBatch:
		return c.tree.errorf("engine.batch", "want 1 to %d", belfry.MaxBatch)
	case c.Engine.Workers < 1 || c.Engine.Workers > 10_000:
		return c.tree.errorf("engine.workers", "want 1 to 10000")
	case c.Retention.Rows < c.Retention.Content:
		return c.tree.errorf("retention.rows", "want at least retention.content")
	case c.Limits.Rate < 0:
		return c.tree.errorf("limits.rate", "want 0 or more")
	case c.Limits.Burst < 0:
		return c.tree.errorf("limits.burst", "want 0 or more")
	case !slices.Contains([]string{"debug", "info", "warn", "error"}, c.Log.Level):
		return c.tree.errorf("log.level", "want debug, info, warn or error")
	case !slices.Contains([]string{"text", "json"}, c.Log.Format):
		return c.tree.errorf("log.format", "want text or json")
	}
	for _, name := range c.Channels.Names() {
		if n := child(c.Channels[name].node, enabled); n != nil && n.Value != "true" && n.Value != "false" {
			return c.tree.errorf(join(c.Channels[name].path, enabled), "want true or false")
		}
	}
	for path, listen := range map[string]string{"http.listen": c.HTTP.Listen, "metrics.listen": c.Metrics.Listen} {
		if _, _, err := net.SplitHostPort(listen); err != nil && (listen != "" || path == "http.listen") {
			return c.tree.errorf(path, "want an address and a port, such as 127.0.0.1:8025")
		}
	}
	if c.Dev && !Loopback(c.HTTP.Listen) {
		return c.tree.errorf("dev", "needs no key, so it goes with a loopback address in http.listen only, not with %s", c.HTTP.Listen)
	}
	return nil
}

// Loopback says that only this machine can reach an address to listen on.
func Loopback(listen string) bool {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return false
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.Unmap().IsLoopback()
}

// Default is the documented default file.
func Default() []byte { return slices.Clone(defaults) }
