package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/oino-dev/oinod/rpc"
	"github.com/oino-dev/oinod/session"
)

func (p *process) serveCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "serve",
		Short: "Serve one client on stdin and stdout",
		Long: `Serve one client: JSON-RPC 2.0, one object a line, requests on stdin, answers
on stdout, the log on stderr. It ends when stdin does, or at SIGTERM, SIGINT
or SIGHUP, once the work in hand is finished.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return p.serve(cmd.Context()) },
	}
}

// serve answers the client at stdin until it goes or a signal ends it.
func (p *process) serve(ctx context.Context) error {
	if ctx == nil {
		ctx = context.Background()
	}
	log, err := p.logger()
	if err != nil {
		return err
	}
	b, err := p.openBackend(log, 0, session.Files, session.Workspace)
	if err != nil {
		return err
	}
	ctx, stop := orderlyEnd(ctx)
	defer stop()
	return failed(b.run(ctx, func(config rpc.Config) error {
		if err := rpc.Serve(ctx, config); err != nil {
			return fmt.Errorf("the client is gone: %w", err)
		}
		return nil
	}))
}

// warn says what the user should know but nothing fails for, whatever the
// log level; "" is nothing.
func (p *process) warn(msg string) {
	if msg != "" {
		fmt.Fprintf(p.stderr, "oinod: warning: %s\n", msg)
	}
}

// logger logs to stderr from the level that --log-level or OINO_LOG names.
func (p *process) logger() (zerolog.Logger, error) {
	level, from := p.logLevel, "--log-level"
	if level == "" {
		level, from = p.getenv("OINO_LOG"), "OINO_LOG"
	}
	switch level {
	case "":
		level = "warn"
	case "trace", "debug", "info", "warn", "error":
	default:
		return zerolog.Nop(), fmt.Errorf("%s is %q, want trace, debug, info, warn or error", from, level)
	}
	l, err := zerolog.ParseLevel(level)
	return zerolog.New(p.stderr).Level(l).With().Timestamp().Logger(), err
}

// orderlyEnd makes the signals that ask a process to end the end of the
// context; a second one ends the process at once. A client that closed our
// stdout is an error of the write and not the end of us in the middle of one.
func orderlyEnd(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop)
	pipe := make(chan os.Signal, 1) // nobody reads it
	signal.Notify(pipe, syscall.SIGPIPE)
	return ctx, func() {
		stop()
		signal.Stop(pipe)
	}
}
