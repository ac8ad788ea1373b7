package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

const pollInterval = 50 * time.Millisecond

// notification is what send asks for; the API checks it.
type notification struct {
	Recipient any             `json:"recipient"`
	Category  string          `json:"category,omitempty"`
	Subject   string          `json:"subject,omitempty"`
	Data      json.RawMessage `json:"data,omitempty"`
	At        string          `json:"at,omitempty"`
	LocalTime string          `json:"local_time,omitempty"`
	ExpiresIn string          `json:"expires_in,omitempty"`
	Once      map[string]any  `json:"once,omitempty"`
	Channels  []string        `json:"channels,omitempty"`
	To        []any           `json:"to,omitempty"`
	Key       string          `json:"key,omitempty"`
}

func sendCommand(g *globals) *cobra.Command {
	var n notification
	var data, title, body, zone, once string
	var endpoints, to []string
	var dryRun bool
	var wait time.Duration
	c := &cobra.Command{
		Use:   "send RECIPIENT",
		Short: "Enqueue a notification",
		Long: `Enqueue a notification to a recipient. With --zone or --endpoint the recipient is made, or updated, with it.

The text comes from the category's templates, and without them from title and body in the data, which
--title and --body set.`,
		Example: "  belfry send user-42 --title Hello --endpoint webhook=https://shop.example/hooks\n" +
			"  belfry send user-42 --category price_drop --subject watch-981 --with '{\"price\": 1980}' --once day\n" +
			"  belfry send user-42 --title 'Good morning' --zone Asia/Tokyo --local-time 2026-12-01T09:00",
		Args: cobra.ExactArgs(1),
	}
	f := c.Flags()
	f.StringVar(&n.Category, "category", "", "kind of notification (default: default)")
	f.StringVar(&n.Subject, "subject", "", "what it is about: a watch, an order")
	f.StringVar(&data, "with", "", "data, a JSON object; @FILE reads it from a file, @- from standard input")
	f.StringVar(&title, "title", "", "title in the data")
	f.StringVar(&body, "body", "", "body in the data")
	f.StringVar(&n.At, "at", "", "due time, as 2026-12-01T09:00:00Z (default: now)")
	f.StringVar(&n.LocalTime, "local-time", "", "due time on the recipient's clock, as 2026-12-01T09:00")
	f.StringVar(&n.ExpiresIn, "expires-in", "", "how long after the due time it may be sent, as 2h (default: the category's)")
	f.StringVar(&once, "once", "", "tell the fact once per day, hour, week, ever, or while open")
	f.StringSliceVar(&n.Channels, "channels", nil, "channels or media it may take")
	f.StringArrayVar(&to, "to", nil, "go there and nowhere else: CHANNEL=ADDRESS")
	f.StringVar(&n.Key, "key", "", "idempotency key: the same request again makes nothing new")
	f.StringVar(&zone, "zone", "", "the recipient's time zone, as Asia/Tokyo")
	f.StringArrayVar(&endpoints, "endpoint", nil, "where the recipient can be reached: CHANNEL=ADDRESS")
	f.BoolVar(&dryRun, "dry-run", false, "say what would happen, and change nothing")
	f.DurationVar(&wait, "wait", 0, "wait for its end, this long at most")

	return g.remote(c, func(c *cobra.Command, k *client, args []string) (json.RawMessage, func(io.Writer) error, error) {
		var err error
		if n.Recipient, err = recipient(args[0], zone, endpoints); err != nil {
			return nil, nil, err
		}
		if n.Data, err = readData(data, title, body); err != nil {
			return nil, nil, err
		}
		for _, t := range to {
			channel, address, ok := strings.Cut(t, "=")
			if !ok {
				return nil, nil, usage("--to: want CHANNEL=ADDRESS")
			}
			n.To = append(n.To, map[string]string{"channel": channel, "address": address})
		}
		if once != "" {
			n.Once = map[string]any{"per": once}
		}
		query := url.Values{}
		if dryRun {
			query.Set("dry_run", "true")
		}
		var answer json.RawMessage
		if err := k.do(c.Context(), http.MethodPost, "/v1/notifications", query, n, &answer); err != nil {
			return nil, nil, err
		}
		var told struct {
			ID, Result, State, Reason, Explanation, Detail string
			DueAt                                          string `json:"due_at"`
			DueLocal                                       string `json:"due_local"`
			Deadline                                       string
			Deliveries                                     []struct{ Channel, Device string }
		}
		if err := json.Unmarshal(answer, &told); err != nil {
			return nil, nil, err
		}
		if dryRun {
			return answer, func(w io.Writer) error {
				fmt.Fprintln(w, "would be", statement(told.State, told.Reason, told.Explanation))
				for _, d := range told.Deliveries {
					fmt.Fprintln(w, strings.TrimRight("  by "+d.Channel+" "+d.Device, " "))
				}
				if told.Detail != "" {
					fmt.Fprintln(w, "  "+told.Detail)
				}
				return nil
			}, nil
		}
		if wait > 0 {
			answer, err = waitForEnd(c.Context(), k, told.ID, wait)
			return answer, func(w io.Writer) error { return tellStory(w, answer) }, err
		}
		return answer, func(w io.Writer) error {
			fmt.Fprintf(w, "%s %s: %s, due %s, not after %s\n", told.Result, told.ID, statement(told.State, told.Reason, ""), told.DueLocal, told.Deadline)
			return nil
		}, nil
	})
}

func recipient(id, zone string, endpoints []string) (any, error) {
	if zone == "" && len(endpoints) == 0 {
		return id, nil
	}
	r := map[string]any{"id": id}
	if zone != "" {
		r["zone"] = zone
	}
	for _, e := range endpoints {
		channel, address, ok := strings.Cut(e, "=")
		if !ok {
			return nil, usage("--endpoint: want CHANNEL=ADDRESS")
		}
		if _, twice := r[channel]; twice {
			return nil, usage("--endpoint: %s is given twice", channel)
		}
		r[channel] = address
	}
	return r, nil
}

// readData is the data with title and body put in. What is not an object is for the API to refuse.
func readData(data, title, body string) (json.RawMessage, error) {
	if name, isFile := strings.CutPrefix(data, "@"); isFile {
		var text []byte
		var err error
		if name == "-" {
			text, err = io.ReadAll(io.LimitReader(os.Stdin, 1<<20))
		} else {
			text, err = os.ReadFile(name)
		}
		if err != nil {
			return nil, usage("--with: %v", err)
		}
		data = string(text)
	}
	if data != "" && !json.Valid([]byte(data)) {
		return nil, usage("--with: is not JSON")
	}
	if title == "" && body == "" {
		return json.RawMessage(data), nil
	}
	members := map[string]json.RawMessage{}
	if data != "" && json.Unmarshal([]byte(data), &members) != nil {
		return nil, usage("--with: want a JSON object, to put --title and --body into")
	}
	for name, text := range map[string]string{"title": title, "body": body} {
		if text != "" {
			members[name], _ = json.Marshal(text)
		}
	}
	return json.Marshal(members)
}

// waitForEnd asks until the notification has ended. When it has not in time, that is told with a status of
// its own.
func waitForEnd(ctx context.Context, k *client, id string, most time.Duration) (json.RawMessage, error) {
	give, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		var story json.RawMessage
		if err := k.do(ctx, http.MethodGet, "/v1/notifications/"+id, nil, nil, &story); err != nil {
			return nil, err
		}
		var at struct {
			Ended time.Time `json:"ended_at"`
		}
		if err := json.Unmarshal(story, &at); err != nil {
			return nil, err
		}
		if !at.Ended.IsZero() {
			return story, nil
		}
		select {
		case <-tick.C:
		case <-give.Done():
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			return nil, &exit{exitPartial, fmt.Errorf("%s is enqueued and has not ended within %v: see belfry why %s", id, most, id)}
		}
	}
}

// statement is a state and why.
func statement(state, reason, explanation string) string {
	if reason == "" {
		return state
	}
	if explanation == "" {
		return state + " (" + reason + ")"
	}
	return state + " (" + reason + "): " + explanation
}
