package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"belfry/config"
)

// finding is what one check of the doctor came to.
type finding struct {
	Check  string `json:"check"`
	Status string `json:"status"` // ok, warn or fail
	Detail string `json:"detail"`
	Do     string `json:"do,omitempty"`
}

func ok(check, detail string) finding         { return finding{check, "ok", detail, ""} }
func warned(check, detail, do string) finding { return finding{check, "warn", detail, do} }
func failed(check, detail, do string) finding { return finding{check, "fail", detail, do} }

func doctorCommand(g *globals) *cobra.Command {
	k := &client{}
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Check the settings, the data folder and the running server",
		Long: `Check the settings, the data folder, the clock and, when one runs, the server. It changes nothing.
Exit status: 0 all is well, 5 with warnings, 1 with failures.`,
		Example: "  belfry doctor --data /var/lib/belfry --json",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			findings := examine(c.Context(), g, k)
			if g.json {
				if err := printJSON(c.OutOrStdout(), findings); err != nil {
					return err
				}
			} else {
				tellFindings(c.OutOrStdout(), findings)
			}
			return verdict(findings)
		},
	}
	return g.jsonFlag(c)
}

func verdict(findings []finding) error {
	status := 0
	for _, f := range findings {
		switch {
		case f.Status == "fail":
			return &exit{status: exitFailed}
		case f.Status == "warn":
			status = exitPartial
		}
	}
	if status != 0 {
		return &exit{status: status}
	}
	return nil
}

func tellFindings(w io.Writer, findings []finding) {
	var rows [][]string
	for _, f := range findings {
		detail := f.Detail
		if f.Do != "" {
			detail += ": " + f.Do
		}
		rows = append(rows, []string{f.Status, f.Check, detail})
	}
	table(w, rows)
}

func examine(ctx context.Context, g *globals, k *client) []finding {
	conf, err := g.load(nil)
	if err != nil {
		return []finding{failed("config", err.Error(), "mend it; belfry config print shows every option")}
	}
	from := "defaults and environment"
	if g.config != "" {
		from = g.config
	}
	out := []finding{ok("config", from)}
	out = append(out, examineSettings(conf)...)
	out = append(out, examineFolder(conf)...)
	if err := k.connect(g); err != nil {
		return append(out, failed("server", err.Error(), "mend it"))
	}
	var served []finding
	switch err := k.do(ctx, http.MethodGet, "/local/doctor", nil, nil, &served); {
	case err == nil:
		out = append(out, ok("server", "running"))
		out = append(out, served...)
	case statusOf(err) == exitUnreachable && locked(filepath.Join(conf.Data, stores[conf.Store.Driver].file+".lock")):
		out = append(out, failed("server", "something holds the data folder and does not answer", "find the process that has it open and stop it"))
	default:
		out = append(out, warned("server", "not running", "start belfry serve"))
	}
	return out
}

func examineSettings(c *config.Config) (out []finding) {
	if c.Dev {
		out = append(out, warned("dev", "no key is needed and private addresses may be sent to", "leave dev out in production"))
	}
	if !config.Loopback(c.HTTP.Listen) {
		out = append(out, warned("listen", c.HTTP.Listen+" can be reached from elsewhere, without TLS", "put a reverse proxy with TLS in front, or listen on 127.0.0.1"))
	}
	return append(out, examineDrivers(c)...)
}

const (
	lowSpace = 1 << 30
	noSpace  = 16 << 20
)

// freeSpace is how many bytes may still be written to a folder's disk.
func freeSpace(dir string) (free uint64, known bool) {
	var disk syscall.Statfs_t
	if syscall.Statfs(dir, &disk) != nil {
		return 0, false
	}
	return disk.Bavail * uint64(disk.Bsize), true
}

// examineFolder looks at the data folder without opening the store, which would bring it up to date.
func examineFolder(c *config.Config) (out []finding) {
	info, err := os.Stat(c.Data)
	if errors.Is(err, fs.ErrNotExist) {
		return append(out, ok("data", c.Data+" will be made on the first start"))
	}
	if err != nil || !info.IsDir() {
		return append(out, failed("data", c.Data+" is not a folder that can be read", "choose another with --data, or mend its rights"))
	}
	switch {
	case syscall.Access(c.Data, 7) != nil:
		out = append(out, failed("data", c.Data+" cannot be written to", "give it to the user that runs the server"))
	case info.Mode().Perm()&0o077 != 0:
		out = append(out, warned("data", fmt.Sprintf("%s is open to others (%v)", c.Data, info.Mode().Perm()), "chmod 700 "+c.Data))
	default:
		out = append(out, ok("data", c.Data))
	}
	if free, known := freeSpace(c.Data); known {
		detail := fmt.Sprintf("%d MiB free", free>>20)
		switch {
		case free < noSpace:
			out = append(out, failed("disk", detail, "make room"))
		case free < lowSpace:
			out = append(out, warned("disk", detail, "make room, or shorten retention.content and retention.rows"))
		default:
			out = append(out, ok("disk", detail))
		}
	}
	return append(out, examineClock(c))
}

// examineClock compares the clock with what was written last.
func examineClock(c *config.Config) finding {
	var last time.Time
	for _, end := range []string{"", "-wal"} {
		if info, err := os.Stat(filepath.Join(c.Data, stores[c.Store.Driver].file+end)); err == nil && info.ModTime().After(last) {
			last = info.ModTime()
		}
	}
	now := time.Now()
	switch {
	case now.Year() < 2024:
		return failed("clock", "it says "+now.UTC().Format(time.RFC3339), "set it: nothing falls due before its time")
	case last.Sub(now) > 2*time.Second:
		return failed("clock", fmt.Sprintf("the data was written %v in the future: the clock went back", last.Sub(now).Round(time.Second)), "set it; due times and leases go by it")
	}
	return ok("clock", now.UTC().Format(time.RFC3339))
}

// locked says that a process holds the lock file.
func locked(name string) bool {
	f, err := os.Open(name)
	if err != nil {
		return false
	}
	defer f.Close()
	return errors.Is(syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB), syscall.EWOULDBLOCK)
}
