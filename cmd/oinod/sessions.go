package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/oino-dev/oinod/session"
)

func (p *process) sessionsCommand() *cobra.Command {
	var cwd string
	var all, asJSON bool
	c := &cobra.Command{
		Use:   "sessions",
		Short: "List sessions, newest activity first",
		Long: `List the sessions of a working directory, newest activity first: of the current
directory, of --cwd, or with --all of every one. Nothing is hidden: a session
that is damaged, or was written by a newer oinod, is listed with that. Sessions
that are open in other processes are read as they are.

With --json, a JSON array of objects: sessionId, cwd, title, createdAt and
updatedAt (epoch milliseconds), entries, size (bytes), firstUserMessage,
lastUserMessage, parentSessionId, agent, importedFrom, problem.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir := ""
			if !all {
				var err error
				if dir, err = filepath.Abs(cwd); err != nil {
					return fmt.Errorf("--cwd %s: %w", cwd, err)
				}
			}
			return p.withSessions(cmd, func(ctx context.Context, r *session.Registry, _ settings) error {
				if asJSON {
					return p.sessionsJSON(ctx, r, dir)
				}
				return p.sessions(ctx, r, dir)
			})
		},
	}
	c.Flags().StringVar(&cwd, "cwd", ".", "the working directory whose sessions are listed")
	c.Flags().BoolVar(&all, "all", false, "list the sessions of every working directory")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.MarkFlagsMutuallyExclusive("cwd", "all")
	return c
}

// sessions prints a line a session.
func (p *process) sessions(ctx context.Context, r *session.Registry, dir string) error {
	out := bufio.NewWriter(p.stdout)
	n := 0
	err := r.EachInfo(ctx, dir, func(i session.Info) error {
		if n++; n == 1 {
			fmt.Fprintf(out, "%-36s  %-16s  %7s  %s\n", "SESSION", "UPDATED", "ENTRIES", "TITLE")
		}
		title := oneLine(i.Title)
		switch i.Problem {
		case "damaged":
			title = "[damaged] " + title
		case "newer":
			title = "[written by a newer oinod] " + title
		}
		if dir == "" && i.Cwd != "" {
			title += "  (" + oneLine(i.Cwd) + ")"
		}
		fmt.Fprintf(out, "%-36s  %-16s  %7d  %s\n", oneLine(i.SessionID), when(i.UpdatedAt), i.Entries, title)
		return nil
	})
	if err != nil {
		return err
	}
	if n == 0 && dir != "" {
		fmt.Fprintf(p.stderr, "no sessions in %s; --all lists those of every directory\n", dir)
	} else if n == 0 {
		fmt.Fprintln(p.stderr, "no sessions")
	}
	return out.Flush()
}

func (p *process) sessionsJSON(ctx context.Context, r *session.Registry, dir string) error {
	out := bufio.NewWriter(p.stdout)
	separator := "["
	err := r.EachInfo(ctx, dir, func(i session.Info) error {
		b, err := json.Marshal(i)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%s\n%s", separator, b)
		separator = ","
		return nil
	})
	if err != nil {
		return err
	}
	if separator == "[" {
		fmt.Fprint(out, "[]\n")
	} else {
		fmt.Fprint(out, "\n]\n")
	}
	return out.Flush()
}
