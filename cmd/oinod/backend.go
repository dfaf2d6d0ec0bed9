package main

import (
	"context"
	"errors"
	"time"

	"github.com/rs/zerolog"

	"github.com/oino-dev/oinod/fork"
	"github.com/oino-dev/oinod/rpc"
	"github.com/oino-dev/oinod/session"
)

// backend is what answers a client, with an agent behind it or without: the
// sessions of the agent directory, as its settings have it.
type backend struct {
	registry      *session.Registry
	config        rpc.Config
	compressAfter time.Duration
}

// openBackend finds the agent directory, reads its settings, and opens it for
// the kinds of tracking that are offered, the usual one first. patience is that
// with a session which another process has (0: the usual).
func (p *process) openBackend(log zerolog.Logger, patience time.Duration, tracking ...session.Tracking) (*backend, error) {
	dir, err := p.findAgentDir()
	if err != nil {
		return nil, err
	}
	warning, err := checkAgentDir(dir)
	if err != nil {
		return nil, err
	}
	p.warn(warning)
	set, err := readSettings(dir, p.warn)
	if err != nil {
		return nil, err
	}
	events := new(rpc.Events)
	registry, err := session.OpenRegistry(session.Options{
		Dir: dir, Limits: set.limits, App: "oinod " + version(), Event: events.Send, LockPatience: patience,
		Tracked: session.TrackedOptions{
			MaxFiles: int(set.workspace.maxFiles), MaxBytes: int64(set.workspace.maxBytes),
			Include: set.workspace.include, Exclude: set.workspace.exclude, Home: p.getenv("HOME"),
		},
	})
	if err != nil {
		return nil, err
	}
	forker := fork.New(registry, set.handlers(p.env)...)
	forker.Report = func(err error) { log.Warn().Err(err).Msg("a handler failed after a fork was made") }
	config := rpc.Config{
		In: p.stdin, Out: p.stdout,
		Registry: registry, Forker: forker, Events: events,
		Log: log, Version: version(), Limits: set.limits,
	}
	for _, t := range tracking {
		config.Tracking = append(config.Tracking, string(t))
	}
	return &backend{registry, config, set.compressAfter}, nil
}

// run lets serve answer the client, compresses idle logs beside it, and closes
// the sessions: all of it also when ctx is done.
func (b *backend) run(ctx context.Context, serve func(rpc.Config) error) error {
	endCompressing := compressIdle(ctx, b.registry, b.compressAfter, b.config.Log)
	err := serve(b.config)
	endCompressing()
	return errors.Join(err, b.registry.Shutdown(context.WithoutCancel(ctx)))
}
