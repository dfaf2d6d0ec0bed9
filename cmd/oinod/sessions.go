package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
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
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if all && cmd.Flags().Changed("cwd") {
				return usage(cmd, "--cwd and --all exclude each other")
			}
			dir := ""
			if !all {
				var err error
				if dir, err = filepath.Abs(cwd); err != nil {
					return fmt.Errorf("--cwd %s: %w", cwd, err)
				}
			}
			return p.withStored(cmd, func(ctx context.Context, r *session.Registry, _ settings) error {
				list := p.sessions
				if asJSON {
					list = p.sessionsJSON
				}
				n, err := list(ctx, r, dir)
				if err != nil || n > 0 {
					return err
				}
				return p.noSessions(dir, asJSON)
			})
		},
	}
	c.Flags().StringVar(&cwd, "cwd", ".", "the working directory whose sessions are listed")
	c.Flags().BoolVar(&all, "all", false, "list the sessions of every working directory")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// sessions prints a line a session.
func (p *process) sessions(ctx context.Context, r *session.Registry, dir string) (n int, err error) {
	out := bufio.NewWriter(p.stdout)
	err = r.EachInfo(ctx, dir, func(i session.Info) error {
		if n++; n == 1 {
			head := "TITLE"
			if dir == "" {
				head = "TITLE  (DIRECTORY)"
			}
			fmt.Fprintf(out, "%-36s  %-16s  %7s  %s\n", "SESSION", "UPDATED", "ENTRIES", head)
		}
		title := oneLine(i.Title)
		switch {
		case title != "" || i.Problem != "":
		case i.Entries == 0:
			title = "(no message)"
		default:
			title = "(no text)"
		}
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
		return n, err
	}
	return n, out.Flush()
}

// noSessions says that there are none. A directory that is gone has its
// sessions still; one that is gone and has none was never meant.
func (p *process) noSessions(dir string, quiet bool) error {
	if dir != "" {
		if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("there is no directory %s, and no session of it", dir)
		}
	}
	switch {
	case quiet:
	case dir == "":
		fmt.Fprintln(p.stderr, "no sessions")
	default:
		fmt.Fprintf(p.stderr, "no sessions in %s; --all lists those of every directory\n", dir)
	}
	return nil
}

func (p *process) sessionsJSON(ctx context.Context, r *session.Registry, dir string) (n int, err error) {
	out := bufio.NewWriter(p.stdout)
	separator := "["
	err = r.EachInfo(ctx, dir, func(i session.Info) error {
		b, err := json.Marshal(i)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%s\n%s", separator, b)
		separator = ","
		n++
		return nil
	})
	if err != nil {
		return n, err
	}
	if separator == "[" {
		fmt.Fprint(out, "[]\n")
	} else {
		fmt.Fprint(out, "\n]\n")
	}
	return n, out.Flush()
}
