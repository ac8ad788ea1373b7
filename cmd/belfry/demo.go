package main

import (
	"time"

	"github.com/spf13/cobra"

	"belfry/examples/pricewatch"
)

func demoCommand(g *globals) *cobra.Command {
	var o pricewatch.DemoOptions
	c := &cobra.Command{
		Use:   "demo",
		Short: "Show the engine at work: a price watcher, against providers that misbehave",
		Long: `Run a price watcher with the engine inside, in this process and a fresh folder: prices change, people are told,
pretend providers fail, devices die, people opt out at bad moments. At the end it says what came of it, judged from
the providers' own log. It fails when a promise was not kept.

The prices are a made-up walk, the same on every run, or those of a CSV file with the columns date, price and
perhaps item.`,
		Example: "  belfry demo\n  belfry demo --for 10s --speed 3 --json\n  belfry demo --prices prices.csv",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			o.JSON, o.Out, o.Err = g.json, c.OutOrStdout(), c.ErrOrStderr()
			return pricewatch.Demo(c.Context(), o)
		},
	}
	c.Flags().DurationVar(&o.For, "for", 30*time.Second, "how long prices come in")
	c.Flags().Float64Var(&o.Speed, "speed", 1, "pace: 2 is twice as fast")
	c.Flags().StringVar(&o.Prices, "prices", "", "CSV file of prices (default: a made-up walk)")
	return g.jsonFlag(c)
}
