// Command belfry is the notification delivery engine as one program: the server, the commands that talk to
// it, and the means to try it out.
//
// It decides nothing. Here the rooms are wired together, and what they say is printed; drivers.go is the
// only place that names drivers.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"belfry"
)

// Exit statuses. The help of the program shows them.
const (
	exitFailed      = 1
	exitUsage       = 2
	exitUnreachable = 3
	exitNotFound    = 4
	exitPartial     = 5
	exitInterrupted = 130
)

const exitHelp = `Exit status: 0 done, 1 failed, 2 wrong usage, 3 the server cannot be reached, 4 there is no such thing,
5 done in part or not ready, 130 interrupted.`

// exit is an error with a status of its own.
type exit struct {
	status int
	err    error // nil: everything was said already
}

func (e *exit) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e *exit) Unwrap() error { return e.err }

func usage(format string, args ...any) error { return &exit{exitUsage, fmt.Errorf(format, args...)} }

// codes is the one table from error codes to exit statuses; what is not in it has failed.
var codes = map[belfry.Code]int{
	belfry.CodeNotFound:         exitNotFound,
	belfry.CodeUnknownRecipient: exitNotFound,
	belfry.CodeUnknownCategory:  exitNotFound,
	belfry.CodeInvalid:          exitUsage,
	belfry.CodeUnknownChannel:   exitUsage,
	belfry.CodeUnknownZone:      exitUsage,
	"malformed":                 exitUsage,
}

func statusOf(err error) int {
	if e, ok := errors.AsType[*exit](err); ok {
		return e.status
	}
	if e, ok := errors.AsType[*problem](err); ok {
		if s, listed := codes[e.Code]; listed {
			return s
		}
		return exitFailed
	}
	if errors.Is(err, context.Canceled) {
		return exitInterrupted
	}
	return exitFailed
}

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run is the program but for the end of the process.
func run(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := command()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	started := false
	root.PersistentPreRun = func(*cobra.Command, []string) { started = true }
	err := root.ExecuteContext(ctx)
	switch {
	case err == nil:
		return 0
	case !started: // cobra refused a command, an argument or a flag
		fmt.Fprintf(stderr, "belfry: %v\nSee belfry --help.\n", err)
		return exitUsage
	case errors.Is(err, context.Canceled):
		fmt.Fprintln(stderr, "belfry: interrupted")
	case err.Error() != "":
		fmt.Fprintln(stderr, "belfry:", err)
	}
	return statusOf(err)
}

// globals are the flags of every command.
type globals struct {
	config string
	data   string
	json   bool
}

func command() *cobra.Command {
	g := &globals{}
	root := &cobra.Command{
		Use:   "belfry",
		Short: "Deliver notifications once, on time, to a device that lives, and only while they are true",
		Long: `Belfry delivers notifications: once, at their time, on a device that lives, and only while they are true.

belfry serve runs the engine; the other commands talk to it through a socket in its data folder, or over
HTTP with --server. Start with: belfry serve --dev

` + exitHelp,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	flags := root.PersistentFlags()
	flags.StringVar(&g.config, "config", os.Getenv("BELFRY_CONFIG"), "settings file (YAML); see belfry config print")
	flags.StringVar(&g.data, "data", "", "data folder (default belfry-data)")
	root.AddCommand(
		serveCommand(g), sendCommand(g), whyCommand(g), cancelCommand(g), pauseCommand(g), resumeCommand(g), keysCommand(g),
		doctorCommand(g), configCommand(g), sandboxCommand(g), demoCommand(g), benchCommand(g), labCommand(g), versionCommand(g),
	)
	return root
}
