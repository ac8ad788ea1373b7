package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"belfry"
	"belfry/api"
)

func pauseCommand(g *globals) *cobra.Command {
	var p api.PauseRequest
	var length, until string
	c := &cobra.Command{
		Use:   "pause",
		Short: "The stop button: hold what would be sent",
		Long: `Hold what would be sent by a category, a channel or an app, or without any of them everything of the project.
What waits expires by its own deadline; what is on the wire is not called back.`,
		Example: "  belfry pause --category price_drop --reason 'wrong prices' --for 1h\n  belfry pause --reason 'provider is down'\n  belfry pause list",
		Args:    cobra.NoArgs,
	}
	f := c.Flags()
	f.StringVar(&p.Category, "category", "", "only this category")
	f.StringVar(&p.Channel, "channel", "", "only this channel or medium")
	f.StringVar(&p.App, "app", "", "only this app")
	f.StringVar(&p.Reason, "reason", "", "why, for whoever finds it (required)")
	f.StringVar(&length, "for", "", "how long, as 30m (default: until it is resumed)")
	f.StringVar(&until, "until", "", "when it ends, as 2026-12-01T09:00:00Z")
	f.BoolVar(&p.Everywhere, "everywhere", false, "in every project")
	g.remote(c, func(c *cobra.Command, k *client, _ []string) (json.RawMessage, func(io.Writer) error, error) {
		if length != "" {
			p.For = new(belfry.Duration)
			if err := p.For.UnmarshalText([]byte(length)); err != nil {
				return nil, nil, usage("--for: %v", err)
			}
		}
		if until != "" {
			var err error
			if p.Until, err = time.Parse(time.RFC3339, until); err != nil {
				return nil, nil, usage("--until: want an instant as 2026-12-01T09:00:00Z")
			}
		}
		var answer json.RawMessage
		if err := k.do(c.Context(), http.MethodPost, "/v1/pauses", nil, p, &answer); err != nil {
			return nil, nil, err
		}
		var made api.Pause
		return answer, func(w io.Writer) error {
			fmt.Fprintf(w, "paused %s; belfry resume %s ends it\n", covers(made), made.ID)
			return nil
		}, json.Unmarshal(answer, &made)
	})
	list := &cobra.Command{Use: "list", Short: "List the pauses", Example: "  belfry pause list --json", Args: cobra.NoArgs}
	c.AddCommand(g.remote(list, func(c *cobra.Command, k *client, _ []string) (json.RawMessage, func(io.Writer) error, error) {
		var answer json.RawMessage
		pauses, err := listPauses(c, k, &answer)
		return answer, func(w io.Writer) error {
			if len(pauses) == 0 {
				fmt.Fprintln(w, "nothing is paused")
			}
			var rows [][]string
			for _, p := range pauses {
				rows = append(rows, []string{p.ID.String(), "since " + p.At.Format(time.RFC3339), covers(p), p.Reason})
			}
			table(w, rows)
			return nil
		}, err
	}))
	return c
}

func listPauses(c *cobra.Command, k *client, answer *json.RawMessage) ([]api.Pause, error) {
	var list api.PauseList
	if err := k.do(c.Context(), http.MethodGet, "/v1/pauses", nil, nil, answer); err != nil {
		return nil, err
	}
	return list.Pauses, json.Unmarshal(*answer, &list)
}

// covers is what a pause holds, in words.
func covers(p api.Pause) string {
	var parts []string
	for name, value := range map[string]string{"category": p.Category, "channel": p.Channel, "app": p.App} {
		if value != "" {
			parts = append(parts, name+" "+value)
		}
	}
	what := "everything"
	if len(parts) > 0 {
		what = strings.Join(parts, ", ")
	}
	if p.Everywhere {
		what += " in every project"
	}
	if !p.Until.IsZero() {
		what += " until " + p.Until.Format(time.RFC3339)
	}
	return what
}

func resumeCommand(g *globals) *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use:     "resume [ID]",
		Short:   "Lift a pause, or all of the project",
		Example: "  belfry resume 1j2f8m0000041\n  belfry resume --all",
		Args:    cobra.MaximumNArgs(1),
	}
	c.Flags().BoolVar(&all, "all", false, "every pause that holds the project")
	return g.remote(c, func(c *cobra.Command, k *client, args []string) (json.RawMessage, func(io.Writer) error, error) {
		if (len(args) == 1) == all {
			return nil, nil, usage("want the ID of a pause, or --all; belfry pause list shows them")
		}
		ids := args
		if all {
			pauses, err := listPauses(c, k, new(json.RawMessage))
			if err != nil {
				return nil, nil, err
			}
			for _, p := range pauses {
				ids = append(ids, p.ID.String())
			}
		}
		for _, id := range ids {
			if err := k.do(c.Context(), http.MethodDelete, "/v1/pauses/"+url.PathEscape(id), nil, nil, nil); err != nil {
				return nil, nil, err
			}
		}
		answer, err := json.Marshal(map[string]int{"lifted": len(ids)})
		return answer, func(w io.Writer) error {
			fmt.Fprintf(w, "%d lifted\n", len(ids))
			return nil
		}, err
	})
}
