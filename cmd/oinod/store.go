package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/oino-dev/oinod/session"
)

// withSessions runs f on the sessions of the agent directory, until it is done
// or a signal ends it. An error of f is a failure.
func (p *process) withSessions(cmd *cobra.Command, f func(ctx context.Context, r *session.Registry, set settings) error) error {
	dir, err := p.findAgentDir()
	if err != nil {
		return err
	}
	if _, err := checkAgentDir(dir); err != nil {
		return err
	}
	set, err := readSettings(dir, p.warn)
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, stop := orderlyEnd(ctx)
	defer stop()
	r, err := session.OpenRegistry(session.Options{Dir: dir, Limits: set.limits, App: "oinod " + version()})
	if err != nil {
		return err
	}
	err = f(ctx, r, set)
	return failed(errors.Join(err, r.Shutdown(context.WithoutCancel(ctx))))
}

// withStored is withSessions for what only looks at sessions that are there: an
// agent directory that was named, and is not there, is a slip.
func (p *process) withStored(cmd *cobra.Command, f func(ctx context.Context, r *session.Registry, set settings) error) error {
	if p.agentDir != "" {
		if _, err := os.Stat(p.agentDir); errors.Is(err, fs.ErrNotExist) {
			return failed(fmt.Errorf("there is no agent directory %s", p.agentDir))
		}
	}
	return p.withSessions(cmd, f)
}

// findSession is the session whose id begins with prefix. Several are listed
// on stderr, a line each.
func (p *process) findSession(ctx context.Context, r *session.Registry, prefix string) (string, error) {
	id, err := r.Find(ctx, prefix)
	if several, ok := errors.AsType[*session.AmbiguousError](err); ok {
		for _, id := range several.IDs {
			fmt.Fprintln(p.stderr, id)
		}
	}
	return id, err
}

// sessionIDs completes SESSION on a shell's command line.
func (p *process) sessionIDs(cmd *cobra.Command, args []string, start string) ([]string, cobra.ShellCompDirective) {
	var ids []string
	if len(args) == 0 {
		_ = p.withSessions(cmd, func(ctx context.Context, r *session.Registry, _ settings) error {
			return r.EachInfo(ctx, "", func(i session.Info) error {
				if strings.HasPrefix(i.SessionID, start) {
					ids = append(ids, i.SessionID+"\t"+oneLine(i.Title))
				}
				return nil
			})
		})
	}
	return ids, cobra.ShellCompDirectiveNoFileComp
}

// oneLine is text as a terminal can show it in a line: what it would take for
// a command, or for the end of the line, is a space.
func oneLine(text string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text))
}

// lines is text as a terminal can show it: lines, and nothing that it would
// take for a command.
func lines(text string) []string {
	all := strings.Split(strings.TrimRight(strings.ReplaceAll(text, "\r\n", "\n"), "\n"), "\n")
	for i, l := range all {
		all[i] = strings.TrimRightFunc(strings.Map(func(r rune) rune {
			switch {
			case r == '\t' || unicode.IsPrint(r):
				return r
			case r == unicode.ReplacementChar, unicode.IsControl(r):
				return unicode.ReplacementChar
			}
			return r
		}, l), unicode.IsSpace)
	}
	return all
}

// when is a time in epoch milliseconds as a person reads it.
func when(ms int64) string { return time.UnixMilli(ms).Format("2006-01-02 15:04") }

// many is n of a thing.
func many(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}

// size is a number of bytes as a person reads it.
func size(n int64) string {
	units := []string{"KiB", "MiB", "GiB", "TiB"}
	if n < 1024 {
		return many(int(n), "byte", "bytes")
	}
	f := float64(n)
	u := -1
	for f >= 1024 && u < len(units)-1 {
		f, u = f/1024, u+1
	}
	return fmt.Sprintf("%.1f %s", f, units[u])
}
