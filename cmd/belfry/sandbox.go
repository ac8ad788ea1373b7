package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"belfry/sandbox"
)

func sandboxCommand(*globals) *cobra.Command {
	var listen, log string
	c := &cobra.Command{
		Use:   "sandbox",
		Short: "Run pretend providers that keep a log of all they accepted",
		Long: `Run pretend webhook receivers and a pretend web push service. They answer as real ones do, follow a script
(PUT /script) and list everything they accepted (GET /log). Send there from belfry serve --dev.`,
		Example: "  belfry sandbox --listen 127.0.0.1:8026\n  curl http://127.0.0.1:8026/log",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := sandbox.New(sandbox.Options{LogFile: log})
			if err != nil {
				return err
			}
			defer s.Close()
			l, err := net.Listen("tcp", listen)
			if err != nil {
				return err
			}
			srv := &http.Server{Handler: s, ReadHeaderTimeout: headerTimeout, MaxHeaderBytes: maxHeader}
			fmt.Fprintf(c.ErrOrStderr(), "sandbox listens on http://%s\n", l.Addr())
			stop := context.AfterFunc(c.Context(), func() {
				shut, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				if srv.Shutdown(shut) != nil {
					srv.Close() // scripts may hang an answer for long
				}
			})
			defer stop()
			if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				return err
			}
			return nil
		},
	}
	c.Flags().StringVar(&listen, "listen", "127.0.0.1:8026", "address to listen on")
	c.Flags().StringVar(&log, "log", "", "also keep the log in this file, one JSON entry a line")
	return c
}
