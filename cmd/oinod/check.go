package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/oino-dev/oinod/session"
)

func (p *process) checkCommand() *cobra.Command {
	var asJSON, repair bool
	c := &cobra.Command{
		Use:   "check",
		Short: "Verify every session log and every kept content",
		Long: `Read every session log and every kept content, and report what is not as it was
written. It can run beside other processes, and changes nothing.

With --repair it cuts last lines that a crash left unfinished, removes compressed
logs that one left beside the plain ones, and makes the caches anew. It never
drops a whole record: damage stays where it is, and what does not need it works.

With --json, a JSON object: sessions, entries, blobs, bytes, damaged (true or
false), findings (kind, sessionId, file, line, digest, neededBy, message,
repaired).

Exits with 1 where something that was kept is lost. What a crash left unfinished,
and what only a newer oinod can read, is reported and no damage.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.withStored(cmd, func(ctx context.Context, r *session.Registry, _ settings) error {
				found, err := r.Check(ctx, repair)
				if err != nil {
					return err
				}
				damaged := 0
				for _, f := range found.Findings {
					if f.Damage() {
						damaged++
					}
				}
				if asJSON {
					b, err := plainJSON(struct {
						session.Checked
						Damaged bool `json:"damaged"`
					}{found, damaged > 0})
					if err != nil {
						return err
					}
					if _, err := fmt.Fprintf(p.stdout, "%s\n", b); err != nil {
						return err
					}
				} else if err := p.report(found); err != nil {
					return err
				}
				if damaged > 0 {
					return errors.New("there is damage: " + many(damaged, "finding", "findings"))
				}
				return nil
			})
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.Flags().BoolVar(&repair, "repair", false, "cut unfinished tails and make the caches anew")
	return c
}

// report prints findings for a person.
func (p *process) report(found session.Checked) error {
	for _, f := range found.Findings {
		where := f.File
		if f.Line > 0 {
			where += fmt.Sprintf(", line %d", f.Line)
		}
		if f.Digest != "" {
			where = "content " + f.Digest
		}
		what := "note"
		switch {
		case f.Damage():
			what = "DAMAGE"
		case f.Repaired:
			what = "repaired"
		}
		fmt.Fprintf(p.stdout, "%s: %s: %s\n", what, oneLine(where), oneLine(f.Message))
		if len(f.NeededBy) > 0 {
			fmt.Fprintf(p.stdout, "  needed by session %s\n", strings.Join(f.NeededBy, ", "))
		}
	}
	_, err := fmt.Fprintf(p.stdout, "%s with %s, %s of %s\n",
		many(found.Sessions, "session", "sessions"), many(found.Entries, "entry", "entries"),
		many(found.Blobs, "content", "contents"), size(found.Bytes))
	return err
}
