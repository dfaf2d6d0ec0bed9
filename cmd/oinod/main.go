// Command oinod is rewind for any coding agent, spoken over newline-delimited
// JSON-RPC 2.0 on stdio. See the README for what it does.
//
// # Commands
//
//	oinod serve                        serve one client on stdin and stdout
//	oinod wrap [flags] -- AGENT ARGS…  run an ACP agent with rewind, for an editor
//	oinod wrap [flags] --proxy         the same as a component of an ACP proxy chain
//	  --track workspace|files          which changes are seen (workspace)
//	  --conversation on|off            whether a rewind can move the agent's conversation too (on)
//	  --log-file FILE                  where the log goes, instead of stderr
//	oinod demo [--json]                play one whole story in a temporary directory
//	oinod sessions                     list the sessions of a directory, newest activity first
//	  --cwd DIR, --all                 of another directory (the current one); of all
//	  --json                           as JSON
//	oinod log SESSION                  show a conversation with its checkpoints
//	  --all, --json                    also branches that a rewind has left; as JSON
//	oinod check                        verify every session log and every kept content
//	  --repair, --json                 cut unfinished tails, make the caches anew; as JSON
//	oinod gc                           free the space of what no session needs any more
//	  --older-than AGE                 first remove sessions without activity for so long (30d, 12h, 2w)
//	  --dry-run                        only say what would be done
//	oinod import oino DIR              import the checkpoints of an original Oino
//	  --cwd DIR                        the working directory of the sessions (found from their paths)
//	oinod version                      print the version
//	oinod completion SHELL             print a script that completes commands: bash, zsh, fish, powershell
//	oinod help [COMMAND]               say more about a command; so does --help
//
// Without a command it serves, where stdin is no terminal, and helps where it
// is one. Every command takes
//
//	--agent-dir DIR                    where sessions and settings.json are kept (OINO_AGENT_DIR, else ~/.oino)
//	--log-level LEVEL                  trace, debug, info, warn, error (OINO_LOG, else warn)
//
// # Exit codes
//
//	0    done; serve ends so at the end of its input and at SIGTERM, SIGINT, SIGHUP
//	1    what was asked for failed; of check: something is lost; of sessions, log,
//	     check and gc: there is no directory that --agent-dir names
//	2    it was not begun: bad arguments or settings, or what should be the agent
//	     directory is a file, lies below one, or cannot be looked at
//	127  of wrap: the agent could not be started; else its exit code is the agent's
//
// An agent directory that cannot be written is a warning of serve and wrap, for
// a client may want nothing kept; a request that needs it is then an error.
//
// stdout carries what was asked for (of serve: protocol messages) and nothing
// else. What stops the process is one line on stderr that starts with "oinod:".
//
// # In this package
//
// How the process starts and stops: arguments, environment, settings, signals
// and exit codes. Nothing below it reads the environment.
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
