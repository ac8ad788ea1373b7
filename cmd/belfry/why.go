package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"belfry"
)

func whyCommand(g *globals) *cobra.Command {
	var of, category, since string
	var limit int
	c := &cobra.Command{
		Use:   "why [ID]",
		Short: "Tell what became of a notification, or of a recipient's, and why",
		Long: `Tell the whole story of one notification, in UTC and on the recipient's clock; or, with --recipient, list what
was enqueued for them. That nothing was enqueued is an answer too.`,
		Example: "  belfry why 1j2f8m0000041\n  belfry why --recipient user-42 --category price_drop --since 24h",
		Args:    cobra.MaximumNArgs(1),
	}
	f := c.Flags()
	f.StringVar(&of, "recipient", "", "list those to this recipient")
	f.StringVar(&category, "category", "", "with --recipient: only this category")
	f.StringVar(&since, "since", "24h", "with --recipient: only those enqueued within this time, as 90m or 7d")
	f.IntVar(&limit, "limit", 50, "with --recipient: list at most so many, the newest")

	return g.remote(c, func(c *cobra.Command, k *client, args []string) (json.RawMessage, func(io.Writer) error, error) {
		if (len(args) == 1) == (of != "") {
			return nil, nil, usage("want the ID of a notification, or --recipient")
		}
		var answer json.RawMessage
		if len(args) == 1 {
			err := k.do(c.Context(), http.MethodGet, "/v1/notifications/"+url.PathEscape(args[0]), nil, nil, &answer)
			return answer, func(w io.Writer) error { return tellStory(w, answer) }, err
		}
		var back belfry.Duration
		if err := back.UnmarshalText([]byte(since)); err != nil {
			return nil, nil, usage("--since: %v", err)
		}
		query := url.Values{
			"recipient": {of}, "limit": {strconv.Itoa(limit)}, "since": {time.Now().Add(-back.Std()).UTC().Format(time.RFC3339)},
		}
		if category != "" {
			query.Set("category", category)
		}
		err := k.do(c.Context(), http.MethodGet, "/v1/notifications", query, nil, &answer)
		return answer, func(w io.Writer) error { return tellList(w, answer, of, category, since) }, err
	})
}

type summary struct {
	ID          string       `json:"id"`
	Recipient   string       `json:"recipient"`
	Category    string       `json:"category"`
	Subject     string       `json:"subject"`
	State       belfry.State `json:"state"`
	Reason      string       `json:"reason"`
	Explanation string       `json:"explanation"`
	CreatedAt   time.Time    `json:"created_at"`
}

// tellStory prints the answer about one notification.
func tellStory(w io.Writer, answer json.RawMessage) error {
	var n struct {
		summary
		Timeline []struct {
			At                  time.Time
			Local, What, Detail string
		}
	}
	if err := json.Unmarshal(answer, &n); err != nil {
		return err
	}
	fmt.Fprintf(w, "%s to %s, category %s", n.ID, n.Recipient, n.Category)
	if n.Subject != "" {
		fmt.Fprintf(w, ", about %s", n.Subject)
	}
	fmt.Fprintf(w, ": %s\n", statement(string(n.State), n.Reason, n.Explanation))
	var rows [][]string
	for _, line := range n.Timeline {
		what := line.What
		if line.Detail != "" {
			what += ": " + line.Detail
		}
		rows = append(rows, []string{"  " + line.At.Format("2006-01-02T15:04:05.000Z"), line.Local, what})
	}
	table(w, rows)
	return nil
}

// tellList prints the answer about a recipient.
func tellList(w io.Writer, answer json.RawMessage, recipient, category, since string) error {
	var list struct {
		Notifications []summary
		Next          string
	}
	if err := json.Unmarshal(answer, &list); err != nil {
		return err
	}
	if len(list.Notifications) == 0 {
		in := ""
		if category != "" {
			in = " in category " + category
		}
		fmt.Fprintf(w, "nothing was enqueued for %s%s within %s\n", recipient, in, since)
		return nil
	}
	var rows [][]string
	for _, n := range list.Notifications {
		rows = append(rows, []string{n.ID, n.CreatedAt.Format(time.RFC3339), n.Category, n.Subject, statement(string(n.State), n.Reason, n.Explanation)})
	}
	table(w, rows)
	if list.Next != "" {
		fmt.Fprintln(w, "there are older ones: raise --limit")
	}
	return nil
}
