package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"

	"github.com/spf13/cobra"
)

// version is that of the module, or of the commit it was built from.
var version = sync.OnceValue(func() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "devel"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	if c := setting(info, "vcs.revision"); len(c) >= 12 {
		return "devel-" + c[:12]
	}
	return "devel"
})

func setting(info *debug.BuildInfo, key string) string {
	for _, s := range info.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}

func versionCommand(g *globals) *cobra.Command {
	return g.jsonFlag(&cobra.Command{
		Use:     "version",
		Short:   "Print the version of this program",
		Example: "  belfry version --json",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			out := struct {
				Version string `json:"version"`
				Commit  string `json:"commit,omitempty"`
				Time    string `json:"time,omitempty"`
				Go      string `json:"go"`
				System  string `json:"system"`
			}{Version: version(), Go: runtime.Version(), System: runtime.GOOS + "/" + runtime.GOARCH}
			if info, ok := debug.ReadBuildInfo(); ok {
				out.Commit, out.Time = setting(info, "vcs.revision"), setting(info, "vcs.time")
			}
			if g.json {
				return printJSON(c.OutOrStdout(), out)
			}
			fmt.Fprintf(c.OutOrStdout(), "belfry %s %s %s\n", out.Version, out.Go, out.System)
			return nil
		},
	})
}
