package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/oino-dev/oinod/rpc"
	"github.com/oino-dev/oinod/session"
)

// wrapFlags are wrap's own.
type wrapFlags struct {
	track, conversation, logFile string
	proxy                        bool
}

// wrapExample is what an editor's settings hold.
const wrapExample = `  oinod wrap -- gemini --acp
  oinod wrap --track files -- opencode acp
  oinod wrap -- npx -y @zed-industries/codex-acp`

func (p *process) wrapCommand() *cobra.Command {
	var f wrapFlags
	cmd := &cobra.Command{
		Use:   "wrap [flags] -- AGENT [ARGS...]",
		Short: "Run an ACP agent with rewind",
		Long: `Run an agent that speaks the Agent Client Protocol on stdin and stdout, and
stand between it and the editor. Every message becomes a checkpoint; the editor
gains /checkpoints, /diff, /rewind and /redo, and the _oino/ methods.

An editor is given this command in the place of its agent's. The agent gets the
arguments after -- and our environment, unchanged; its stderr passes through and
its exit code is ours.`,
		Example: wrapExample,
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.proxy && len(args) > 0 {
				return errors.New("wrap --proxy takes no command: the agent is what stands behind it in the proxy chain")
			}
			if len(args) == 0 && !f.proxy {
				return errors.New("wrap needs the agent's command, as in: oinod wrap -- gemini --acp (how to set up an editor: docs/editors.md)")
			}
			return p.wrap(cmd.Context(), f, args)
		},
	}
	flags := cmd.Flags()
	flags.SetInterspersed(false) // what follows the agent is the agent's
	flags.StringVar(&f.track, "track", "workspace", "which changes are seen: workspace (all under the session's directories) or files (those that tools name)")
	flags.StringVar(&f.conversation, "conversation", "on", "whether a rewind can move the agent's conversation too: on or off")
	flags.BoolVar(&f.proxy, "proxy", false, "run as a component of an ACP proxy chain, between its conductor's client and agent, instead of starting an agent")
	flags.StringVar(&f.logFile, "log-file", "", "where the log goes, instead of stderr; it is appended to")
	return cmd
}

// exit is the end of a command that has an exit code of its own. Without an
// error there is nothing to say about it.
type exit struct {
	code int
	err  error
}

func (e *exit) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exit) Unwrap() error { return e.err }

// notStarted is the exit code for an agent that could not be started, as
// shells have it for a command that is not there.
const notStarted = 127

// wrap runs the agent until it or the client ends.
func (p *process) wrap(ctx context.Context, f wrapFlags, args []string) error {
	if ctx == nil {
		ctx = context.Background()
	}
	tracking := []session.Tracking{session.Files}
	switch session.Tracking(f.track) {
	case session.Workspace:
		tracking = []session.Tracking{session.Workspace, session.Files}
	case session.Files:
	default:
		return fmt.Errorf("--track is %q, want workspace or files", f.track)
	}
	if f.conversation != "on" && f.conversation != "off" {
		return fmt.Errorf("--conversation is %q, want on or off", f.conversation)
	}
	stderr := p.stderr
	if f.logFile != "" {
		file, err := os.OpenFile(f.logFile, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return fmt.Errorf("the log file: %w", err)
		}
		defer file.Close()
		p.stderr = file // of the log; what is for the user still goes to stderr
	}
	log, err := p.logger()
	p.stderr = stderr
	if err != nil {
		return err
	}

	b, err := p.openBackend(log, rpc.MaxLeaving, tracking...) // clients start a process for each prompt
	if err != nil {
		return err
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	pipe := make(chan os.Signal, 1) // nobody reads it; see orderlyEnd
	signal.Notify(pipe, syscall.SIGPIPE)
	defer signal.Stop(pipe)
	code := 0
	err = b.run(ctx, func(config rpc.Config) (err error) {
		code, err = rpc.Wrap(ctx, rpc.WrapConfig{
			Config:       config,
			Agent:        rpc.AgentCommand{Args: args, Env: p.env, Stderr: p.stderr},
			Chain:        f.proxy,
			Conversation: f.conversation == "on",
			Signals:      signals,
		})
		if _, ok := errors.AsType[*rpc.StartError](err); err == nil || ok {
			return err
		}
		return fmt.Errorf("the client is gone: %w", err)
	})
	if start, ok := errors.AsType[*rpc.StartError](err); ok {
		return &exit{notStarted, start}
	}
	switch {
	case code != 0:
		return &exit{code, err}
	case err != nil:
		return failed(err)
	}
	return nil
}
