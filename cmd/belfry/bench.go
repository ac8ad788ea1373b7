package main

import (
	"github.com/spf13/cobra"

	"belfry/lab"
)

func benchCommand(g *globals) *cobra.Command {
	var o lab.BenchOptions
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure how fast the engine is on this machine",
		Long: `Measure on this machine, on SQLite with synchronous=FULL, in a temporary folder: enqueues, whole lives, webhooks to
a pretend receiver, lateness, how long a server takes to be ready, and its memory. Every figure says how it was
measured; docs/bench.md explains them. It takes a minute or two; other work on the machine shows in the figures.`,
		Example: "  belfry bench\n  belfry bench --json\n  belfry bench --only lives,lateness_p99\n  belfry bench --dir /var/lib/belfry",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			o.JSON, o.Out, o.Err = g.json, c.OutOrStdout(), c.ErrOrStderr()
			_, err := lab.Bench(c.Context(), o)
			return err
		},
	}
	c.Flags().StringVar(&o.Dir, "dir", "", "folder on the disk to be measured (default: the one for temporary files)")
	c.Flags().BoolVar(&o.Quick, "quick", false, "a tenth of everything: for a first look, not for quoting")
	c.Flags().StringSliceVar(&o.Only, "only", nil, "keys of the figures to take (default: all)")
	return g.jsonFlag(c)
}
