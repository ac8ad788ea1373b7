package main

import (
	"time"

	"github.com/spf13/cobra"

	"belfry/lab/duplicates"
)

// labDuplicatesCommand is a subcommand of lab.
func labDuplicatesCommand(g *globals) *cobra.Command {
	var o duplicates.Options
	var delay string
	c := &cobra.Command{
		Use:   "duplicates",
		Short: "Show what it costs to receive twice, and which memory prevents it",
		Long: `Deliver notices with amounts, a few of them twice, and receive them in four ways: without defence, remembering the
last ids, remembering ids for a time, remembering every id. The same seed gives the same figures.

--delay says how long after the first copy the second one comes: immediate, a duration such as 5s, mix (one of the
first five retries of Standard Webhooks), exp:10m (exponential with this mean), a list such as 5s,5m,2h (one of them),
or csv:FILE (one of those in the first column, as durations or in seconds).

--through http sends every copy for real, with the webhook channel, to a receiver on SQLite and to a pretend one that
takes whatever comes; the first answer for a notice that is delivered twice is dropped after the effect.`,
		Example: "  belfry lab duplicates\n  belfry lab duplicates --delay immediate\n  belfry lab duplicates --delay exp:1m --rate 10\n  belfry lab duplicates --through http",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			var err error
			if o.Delay, err = duplicates.ParseDelay(delay); err != nil {
				return usage("%w", err)
			}
			if o.Dup == 0 {
				o.Dup = -1 // the zero value stands for the default
			}
			r, err := duplicates.Run(c.Context(), o)
			switch {
			case err != nil:
				return err
			case g.json:
				return printJSON(c.OutOrStdout(), r)
			}
			return r.Print(c.OutOrStdout())
		},
	}
	f := c.Flags()
	f.IntVar(&o.Notices, "notices", 1000, "how many notices")
	f.Float64Var(&o.Rate, "rate", 1, "notices a second")
	f.Float64Var(&o.Dup, "dup", 0.05, "share of notices that are delivered twice")
	f.StringVar(&delay, "delay", "mix", "when the second copy comes")
	f.IntVar(&o.Memory, "memory", 100, "how many ids the short memory holds")
	f.DurationVar(&o.Window, "window", 5*time.Minute, "how long the timed memory holds an id")
	f.Uint64Var(&o.Seed, "seed", 1, "seed of chance")
	f.StringVar(&o.Through, "through", "", "http: send every copy for real")
	return g.jsonFlag(c)
}
