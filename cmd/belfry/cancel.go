package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"
)

func cancelCommand(g *globals) *cobra.Command {
	var f struct {
		Recipient  string `json:"recipient,omitempty"`
		Category   string `json:"category,omitempty"`
		Subject    string `json:"subject,omitempty"`
		Everything bool   `json:"everything,omitempty"`
	}
	var dryRun bool
	c := &cobra.Command{
		Use:   "cancel [ID]",
		Short: "Cancel a notification, or all that match",
		Long: `Cancel one notification by its ID, or all that match every filter that is given. What may be on the wire
cannot be called back; it is counted as in flight, and nothing more is tried.`,
		Example: "  belfry cancel 1j2f8m0000041\n  belfry cancel --category price_drop --dry-run\n  belfry cancel --everything --project shop",
		Args:    cobra.MaximumNArgs(1),
	}
	c.Flags().StringVar(&f.Recipient, "recipient", "", "those to this recipient")
	c.Flags().StringVar(&f.Category, "category", "", "those of this category")
	c.Flags().StringVar(&f.Subject, "subject", "", "those about this subject")
	c.Flags().BoolVar(&f.Everything, "everything", false, "all of the project")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "count, and change nothing")

	return g.remote(c, func(c *cobra.Command, k *client, args []string) (json.RawMessage, func(io.Writer) error, error) {
		some := f.Recipient != "" || f.Category != "" || f.Subject != ""
		if len(args) == 1 {
			if some || f.Everything || dryRun {
				return nil, nil, usage("an ID goes without filters and --dry-run")
			}
			var answer json.RawMessage
			err := k.do(c.Context(), http.MethodPost, "/v1/notifications/"+url.PathEscape(args[0])+"/cancel", nil, nil, &answer)
			return answer, func(w io.Writer) error {
				fmt.Fprintf(w, "%s is cancelled: it reaches nobody\n", args[0])
				return nil
			}, err
		}
		if some == f.Everything {
			return nil, nil, usage("want an ID, some of --recipient --category --subject, or --everything alone")
		}
		query := url.Values{}
		if dryRun {
			query.Set("dry_run", "true")
		}
		type count struct {
			Cancelled int      `json:"cancelled"`
			InFlight  []string `json:"in_flight"`
			Ended     int      `json:"ended"`
			More      bool     `json:"more"`
		}
		total := count{InFlight: []string{}}
		for {
			var n count
			if err := k.do(c.Context(), http.MethodPost, "/v1/notifications/cancel", query, f, &n); err != nil {
				return nil, nil, err
			}
			total.Cancelled += n.Cancelled
			total.InFlight = append(total.InFlight, n.InFlight...)
			total.Ended += n.Ended
			total.More = n.More
			if !n.More || dryRun {
				break
			}
		}
		answer, err := json.Marshal(total)
		return answer, func(w io.Writer) error {
			would := ""
			if dryRun {
				would = "would be "
			}
			more := ""
			if total.More {
				more = ", and there are more"
			}
			fmt.Fprintf(w, "%s%d cancelled, %d in flight, %d ended before%s\n", would, total.Cancelled, len(total.InFlight), total.Ended, more)
			return nil
		}, err
	})
}
