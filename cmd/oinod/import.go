package main

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/oino-dev/oinod/session"
)

func (p *process) importCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "import",
		Short: "Take over sessions of another store",
	}
	group(c)
	c.AddCommand(p.importOinoCommand())
	return c
}

func (p *process) importOinoCommand() *cobra.Command {
	var cwd string
	c := &cobra.Command{
		Use:   "oino DIR",
		Short: "Import the checkpoints of an original Oino",
		Long: `Import every session that an original Oino kept in its agent directory DIR
(checkpoints/<sessionId>/index.json and blobs). Each becomes a session with a
message without text for each checkpoint, in the directory --cwd, or else the
deepest one that is there and holds all its paths.

DIR is only read. What was imported before is passed over, so that it can be run
again. A content that is missing or short is reported, and the rest imported.`,
		Args: oneArg("DIR", "the agent directory of an original Oino"),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := filepath.Abs(args[0])
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			if cwd != "" {
				if cwd, err = filepath.Abs(cwd); err != nil {
					return fmt.Errorf("--cwd %s: %w", cwd, err)
				}
			}
			return p.withSessions(cmd, func(ctx context.Context, r *session.Registry, _ settings) error {
				done, err := r.Import(ctx, session.ImportParams{Dir: dir, Cwd: cwd})
				for _, problem := range done.Problems {
					fmt.Fprintf(p.stderr, "oinod: %s\n", oneLine(problem))
				}
				for _, s := range done.Sessions {
					fmt.Fprintf(p.stdout, "imported %s as %s: %s, %s, in %s\n", oneLine(s.OldID), s.SessionID,
						many(s.Checkpoints, "checkpoint", "checkpoints"), many(s.Files, "file", "files"), oneLine(s.Cwd))
				}
				if err != nil {
					return err
				}
				already := ""
				if n := len(done.Known); n > 0 {
					already = fmt.Sprintf(", %d imported before", n)
				}
				_, err = fmt.Fprintf(p.stdout, "%s imported%s\n", many(len(done.Sessions), "session", "sessions"), already)
				return err
			})
		},
	}
	c.Flags().StringVar(&cwd, "cwd", "", "the working directory of the sessions (default: found from their paths)")
	return c
}
