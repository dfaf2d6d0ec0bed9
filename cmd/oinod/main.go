// Command oinod is rewind for any coding agent, spoken over newline-delimited
// JSON-RPC 2.0 on stdio. See the README for what it does.
//
// This package is how the process starts and stops: arguments, environment,
// settings, signals and exit codes. Nothing below it reads the environment.
//
// # Exit codes
//
//	0  done; serve ends so at the end of its input and at SIGTERM, SIGINT, SIGHUP
//	1  what was asked for failed
//	2  it was not begun: bad arguments, settings or agent directory
//
// stdout carries what was asked for (of serve: protocol messages) and nothing
// else. What stops the process is one line on stderr that starts with "oinod:".
package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"
)

func main() { os.Exit(run(os.Args[1:], os.Environ(), os.Stdin, os.Stdout, os.Stderr)) }

// process is what a process is given besides its arguments.
type process struct {
	env            []string
	stdin          io.Reader
	stdout, stderr io.Writer

	agentDir, logLevel string // flags; "" where not given
}

// run is the whole program, and returns its exit code.
func run(args, env []string, stdin io.Reader, stdout, stderr io.Writer) int {
	p := &process{env: env, stdin: stdin, stdout: stdout, stderr: stderr}
	root := p.command()
	root.SetArgs(append([]string{}, args...)) // never nil, for which cobra would look at os.Args
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.Execute()
	if err == nil {
		return 0
	}
	own, ok := errors.AsType[*exit](err)
	if !ok || own.err != nil {
		fmt.Fprintf(stderr, "oinod: %v\n", err)
	}
	if ok {
		return own.code
	}
	if _, failed := errors.AsType[*failure](err); failed {
		return 1
	}
	return 2
}

// failure is an error of what was asked for. Every other one kept it from
// being begun.
type failure struct{ err error }

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// failed makes err, if there is one, a failure.
func failed(err error) error {
	if err == nil {
		return nil
	}
	return &failure{err}
}

func (p *process) command() *cobra.Command {
	root := &cobra.Command{
		Use:   "oinod",
		Short: "Rewind for any coding agent, over stdio",
		Long: `oinod is rewind for any coding agent. A frontend spawns it and speaks
newline-delimited JSON-RPC 2.0 in the style of the Agent Client Protocol.
It keeps what every file was before an agent changed it, and puts it back
when the user asks: "undo everything since that message".

Without a command it serves, when its input is not a terminal.`,
		Version:       version(),
		Args:          noArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if isTerminal(p.stdin) {
				return cmd.Help() // a person; serve would wait for JSON in silence
			}
			return p.serve(cmd.Context())
		},
	}
	root.SetVersionTemplate("oinod {{.Version}}\n")
	flags := root.PersistentFlags()
	flags.StringVar(&p.agentDir, "agent-dir", "", "where sessions and settings.json are kept (default: OINO_AGENT_DIR, else ~/.oino)")
	flags.StringVar(&p.logLevel, "log-level", "", "what is logged to stderr: trace, debug, info, warn, error (default: OINO_LOG, else warn)")
	root.AddCommand(p.serveCommand(), p.wrapCommand(), p.sessionsCommand(), p.logCommand(), p.checkCommand(), p.gcCommand(), p.importCommand(), p.demoCommand(), p.versionCommand())
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usage(cmd, "%v", err) })
	root.SetHelpCommand(helpCommand())
	root.InitDefaultCompletionCmd()
	if completion, _, err := root.Find([]string{"completion"}); err == nil {
		group(completion)
		for _, shell := range completion.Commands() {
			shell.Args = noArgs
		}
	}
	return root
}

// isTerminal reports whether a person sits at r. (/dev/null is a character
// device, but no terminal.)
func isTerminal(r io.Reader) bool {
	f, ok := r.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}
