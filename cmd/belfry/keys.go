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

	"belfry/api"
)

func keysCommand(g *globals) *cobra.Command {
	c := &cobra.Command{Use: "keys", Short: "Make, list and revoke API keys"}
	c.AddCommand(keysCreate(g), keysList(g), keysRevoke(g), keysSigning(g))
	return c
}

func keysCreate(g *globals) *cobra.Command {
	var k api.KeyRequest
	c := &cobra.Command{
		Use:     "create",
		Short:   "Make a key and print it, this once",
		Example: "  belfry keys create --scopes send --name shop-backend\n  belfry keys create --scopes read --project shop --json",
		Args:    cobra.NoArgs,
	}
	c.Flags().StringSliceVar(&k.Scopes, "scopes", nil, "what it allows: some of send, read, admin (required)")
	c.Flags().StringVar(&k.Name, "name", "", "what it is for")
	c.Flags().BoolVar(&k.Everywhere, "everywhere", false, "for every project")
	return g.remote(c, func(c *cobra.Command, cl *client, _ []string) (json.RawMessage, func(io.Writer) error, error) {
		if len(k.Scopes) == 0 {
			return nil, nil, usage("--scopes: want some of send, read, admin")
		}
		var answer json.RawMessage
		if err := cl.do(c.Context(), http.MethodPost, "/v1/keys", nil, k, &answer); err != nil {
			return nil, nil, err
		}
		var made api.NewKey
		return answer, func(w io.Writer) error {
			fmt.Fprintln(w, made.Text)
			return nil
		}, json.Unmarshal(answer, &made)
	})
}

func keysList(g *globals) *cobra.Command {
	c := &cobra.Command{Use: "list", Short: "List the keys, without their secrets", Example: "  belfry keys list --json", Args: cobra.NoArgs}
	return g.remote(c, func(c *cobra.Command, cl *client, _ []string) (json.RawMessage, func(io.Writer) error, error) {
		var answer json.RawMessage
		if err := cl.do(c.Context(), http.MethodGet, "/v1/keys", nil, nil, &answer); err != nil {
			return nil, nil, err
		}
		var list api.KeyList
		return answer, func(w io.Writer) error {
			if len(list.Keys) == 0 {
				fmt.Fprintln(w, "there are no keys: belfry keys create makes one")
			}
			var rows [][]string
			for _, k := range list.Keys {
				good := "good"
				if !k.RevokedAt.IsZero() {
					good = "revoked " + k.RevokedAt.Format(time.RFC3339)
				}
				rows = append(rows, []string{k.ID, k.Project, strings.Join(k.Scopes, ","), k.CreatedAt.Format(time.RFC3339), good, k.Name})
			}
			table(w, rows)
			return nil
		}, json.Unmarshal(answer, &list)
	})
}

func keysRevoke(g *globals) *cobra.Command {
	c := &cobra.Command{
		Use:     "revoke ID",
		Short:   "Revoke a key at once",
		Example: "  belfry keys revoke 3k9q0c2v7m1x5t8z",
		Args:    cobra.ExactArgs(1),
	}
	return g.remote(c, func(c *cobra.Command, cl *client, args []string) (json.RawMessage, func(io.Writer) error, error) {
		if err := cl.do(c.Context(), http.MethodDelete, "/v1/keys/"+url.PathEscape(args[0]), nil, nil, nil); err != nil {
			return nil, nil, err
		}
		answer, err := json.Marshal(map[string]string{"revoked": args[0]})
		return answer, func(w io.Writer) error {
			fmt.Fprintf(w, "%s is revoked\n", args[0])
			return nil
		}, err
	})
}

// keysSigning shows secrets, which the API never does: only the socket of the data folder has the route.
func keysSigning(g *globals) *cobra.Command {
	c := &cobra.Command{
		Use:   "signing",
		Short: "Print the secrets that the project's receivers verify with",
		Long: `Print the secret that rechecks of the project are signed with, and the one of webhook endpoints that have none of
their own. It works through the socket of the data folder only.`,
		Example: "  belfry keys signing --project shop",
		Args:    cobra.NoArgs,
	}
	return g.remote(c, func(c *cobra.Command, cl *client, _ []string) (json.RawMessage, func(io.Writer) error, error) {
		if cl.server != "" {
			return nil, nil, usage("secrets are shown on the server's own machine only: leave --server out")
		}
		var answer json.RawMessage
		if err := cl.do(c.Context(), http.MethodGet, "/local/signing", nil, nil, &answer); err != nil {
			return nil, nil, err
		}
		var s signingSecrets
		return answer, func(w io.Writer) error {
			rows := [][]string{{"check", s.Check}}
			if s.Webhook != "" {
				rows = append(rows, []string{"webhook", s.Webhook})
			}
			table(w, rows)
			return nil
		}, json.Unmarshal(answer, &s)
	})
}
