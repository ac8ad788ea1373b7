package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"belfry"
	"belfry/config"
)

func serveCommand(g *globals) *cobra.Command {
	var listen, paused, state string
	var dev bool
	c := &cobra.Command{
		Use:   "serve",
		Short: "Run the engine and its API",
		Long: `Run the engine and its HTTP API. No settings are needed: the state goes into ./belfry-data, the API listens
on 127.0.0.1:8025, and the first start prints an admin key, once.

SIGTERM or SIGINT stops it in order: /readyz says so, nothing more is claimed, what is on the wire is
finished. A second signal stops it at once; the next start takes over what was on the wire.`,
		Example: "  belfry serve\n  belfry serve --dev\n  belfry serve --data /var/lib/belfry --listen 127.0.0.1:8025 --config /etc/belfry.yaml",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			set := map[string]string{}
			if c.Flags().Changed("listen") {
				set["http.listen"] = listen
			}
			if c.Flags().Changed("dev") {
				set["dev"] = fmt.Sprint(dev)
			}
			if c.Flags().Changed("store") {
				set["store.driver"], set["store.postgres.url"] = "postgres", state
			}
			conf, err := g.load(set)
			if err != nil {
				return err
			}
			return serve(c.Context(), conf, paused, c.ErrOrStderr())
		},
	}
	c.Flags().StringVar(&listen, "listen", "", "address of the API (default 127.0.0.1:8025)")
	c.Flags().StringVar(&state, "store", "", "keep the state in this PostgreSQL database, as postgres://user@host/database; a password is better in store.postgres.url_file, where others on this machine do not see it")
	c.Flags().BoolVar(&dev, "dev", false, "for development: no key from this machine, private addresses allowed")
	c.Flags().StringVar(&paused, "paused", "", "hold everything from the start, for this reason, until belfry resume")
	return c
}

// load reads the settings with the flags that were given.
func (g *globals) load(set map[string]string) (*config.Config, error) {
	if set == nil {
		set = map[string]string{}
	}
	if g.data != "" {
		set["data"] = g.data
	}
	c, err := config.Load(config.Sources{File: g.config, Env: os.Environ(), Flags: set})
	if err != nil {
		return nil, &exit{exitUsage, err}
	}
	return c, nil
}

// serve runs a server until ctx ends. With a reason to pause, everything is held before anything is claimed.
func serve(ctx context.Context, conf *config.Config, paused string, stderr io.Writer) error {
	s, err := openServer(ctx, conf, logger(conf.Log, stderr))
	if err != nil {
		return err
	}
	key := ""
	if !conf.Dev {
		if key, err = firstKey(ctx, s.store); err != nil {
			s.close()
			return err
		}
	}
	if paused != "" {
		if _, err := s.engine.PutPause(ctx, belfry.Pause{Reason: paused}); err != nil {
			s.close()
			return err
		}
	}
	go func() { // the first signal has ended ctx; the second ends the process
		<-ctx.Done()
		again := make(chan os.Signal, 1)
		signal.Notify(again, os.Interrupt, syscall.SIGTERM)
		<-again
		os.Exit(exitInterrupted)
	}()
	return s.run(ctx, func() {
		switch {
		case key != "":
			fmt.Fprintf(stderr, "admin key, shown this once: %s\n", key)
		case conf.Dev:
			fmt.Fprintln(stderr, "development: no key is needed from this machine, and private addresses may be sent to")
		}
		fmt.Fprintf(stderr, "belfry %s listens on http://%s, data in %s\n", version(), s.listeners["api"].Addr(), conf.Data)
		tellSystemd("READY=1")
	})
}

func logger(c config.Log, w io.Writer) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(c.Level)) // config has checked it
	o := &slog.HandlerOptions{Level: level}
	if c.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

// tellSystemd says something to a supervisor that listens, see sd_notify(3).
func tellSystemd(state string) {
	name := os.Getenv("NOTIFY_SOCKET")
	if name == "" {
		return
	}
	if name[0] == '@' { // a name without a file
		name = "\x00" + name[1:]
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		return
	}
	defer conn.Close()
	_, _ = conn.Write([]byte(state))
}
