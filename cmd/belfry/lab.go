package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"belfry/lab"
)

func labCommand(g *globals) *cobra.Command {
	c := &cobra.Command{
		Use:   "lab",
		Short: "Run experiments: what holds when the server is killed, and what duplicates cost",
	}
	c.AddCommand(labKillCommand(g), labDuplicatesCommand(g))
	return c
}

func labKillCommand(g *globals) *cobra.Command {
	var o lab.KillOptions
	c := &cobra.Command{
		Use:   "kill",
		Short: "Kill a server again and again, and judge whether it kept its word",
		Long: `Run a server on a fresh folder and kill it (SIGKILL) every 50 to 500 ms, now and then in the middle of its start,
while callers enqueue with idempotency keys, cancel, and opt people out, and webhook receivers answer badly: 503,
too late, cut before or after they accepted. Then let it come to rest and judge from what callers were told, what
receivers accepted (their log is synced to disk before they answer), and the attempts as the API tells them.

It fails when a notification that was acknowledged is lost, a message was accepted twice without an earlier try in
doubt (or at all, where delivery is at_most_once), something was sent after an opt-out or a cancel had been answered,
or an end is contradicted by the receivers' log. A kill does not test what a power cut does to the disk.`,
		Example: "  belfry lab kill\n  belfry lab kill --for 5m --json\n  belfry lab kill --seed 42",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			o.JSON, o.Out, o.Err = g.json, c.OutOrStdout(), c.ErrOrStderr()
			v, err := lab.Kill(c.Context(), o)
			if err != nil || v.Kept() {
				return err
			}
			return fmt.Errorf("promises were broken, with --seed %d", v.Seed)
		},
	}
	c.Flags().DurationVar(&o.For, "for", 30*time.Second, "how long it is killed")
	c.Flags().Uint64Var(&o.Seed, "seed", 0, "what happens when, and how receivers answer (default: another one every time)")
	return g.jsonFlag(c)
}
