package main

import "github.com/spf13/cobra"

func configCommand(g *globals) *cobra.Command {
	c := &cobra.Command{Use: "config", Short: "Show the settings"}
	var origin bool
	show := &cobra.Command{
		Use:   "print",
		Short: "Print the settings in force, explained; secrets are hidden",
		Example: "  belfry config print > belfry.yaml\n" +
			"  BELFRY_LOG__LEVEL=debug belfry config print --origin",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			conf, err := g.load(nil)
			if err != nil {
				return err
			}
			if g.json {
				return conf.WriteJSON(c.OutOrStdout(), origin)
			}
			return conf.WriteYAML(c.OutOrStdout(), origin)
		},
	}
	show.Flags().BoolVar(&origin, "origin", false, "say where each value comes from")
	c.AddCommand(g.jsonFlag(show))
	return c
}
