package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/oino-dev/oinod/session"
)

func (p *process) logCommand() *cobra.Command {
	var all, asJSON bool
	c := &cobra.Command{
		Use:   "log SESSION",
		Short: "Show a session's conversation with its checkpoints",
		Long: `Show the conversation of a session, oldest entry first, and at each message of
the user that can be rewound to, which files its turn changed. SESSION is an id
or the start of one that no other id has. The log is read as it is, also while
another process writes it, and nothing is changed.

With --all, also the branches that a rewind has left, marked with "-".

With --json, a JSON object: session (as sessions --json has it), leafId,
compressed, damage (line, message), checkpoints (entryId, files, label,
uncovered), entries (id, parentId, role, createdAt, content as ACP content
blocks, and more by role; left on those of other branches).`,
		Args:              oneArg("SESSION", `an id or the start of one; "oinod sessions" lists them`),
		ValidArgsFunction: p.sessionIDs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.withStored(cmd, func(ctx context.Context, r *session.Registry, _ settings) error {
				id, err := p.findSession(ctx, r, args[0])
				if err != nil {
					return err
				}
				v, err := r.View(ctx, id)
				if err != nil {
					return err
				}
				out := bufio.NewWriter(p.stdout)
				if asJSON {
					err = logJSON(ctx, out, v, all)
				} else {
					err = logText(ctx, out, v, all)
				}
				if err != nil {
					return err
				}
				return out.Flush()
			})
		},
	}
	c.Flags().BoolVar(&all, "all", false, "also show the branches that a rewind has left")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// logText is the conversation for a person.
func logText(ctx context.Context, out *bufio.Writer, v *session.View, all bool) error {
	fmt.Fprintf(out, "session   %s\n", v.SessionID)
	if v.Title != "" {
		fmt.Fprintf(out, "title     %s\n", oneLine(v.Title))
	}
	fmt.Fprintf(out, "cwd       %s\n", oneLine(v.Cwd))
	fmt.Fprintf(out, "started   %s\n", when(v.CreatedAt))
	if v.ParentSessionID != "" {
		fmt.Fprintf(out, "fork of   %s\n", v.ParentSessionID)
	}
	if v.ImportedFrom != "" {
		fmt.Fprintf(out, "imported  from %s\n", oneLine(v.ImportedFrom))
	}
	for _, d := range v.Damage {
		where := ""
		if d.Line > 0 {
			where = fmt.Sprintf("line %d: ", d.Line)
		}
		fmt.Fprintf(out, "damaged   %s%s\n", where, oneLine(d.Message))
	}
	return v.Messages(ctx, all, func(e session.ViewEntry) error {
		mark := " "
		if e.Left {
			mark = "-"
		}
		fmt.Fprintf(out, "\n%s %s  %s  %s", mark, e.Role, oneLine(e.ID), when(e.CreatedAt))
		if e.Role == session.Tool {
			fmt.Fprintf(out, "  %s %s", oneLine(e.ToolCallID), e.Status)
		}
		if e.Label != "" {
			fmt.Fprintf(out, "  [%s]", oneLine(e.Label))
		}
		fmt.Fprintln(out)
		for _, l := range lines(shown(e.Entry)) {
			if l != "" {
				fmt.Fprint(out, "    ", l)
			}
			fmt.Fprintln(out)
		}
		if c := e.Checkpoint; c != nil && len(c.Files) > 0 {
			fmt.Fprintf(out, "  * checkpoint, %s:\n", many(len(c.Files), "file", "files"))
			for _, f := range c.Files {
				what := "changed"
				if !f.Existed {
					what = "created"
				}
				fmt.Fprintf(out, "    %s  %s\n", what, oneLine(f.Path))
			}
			for _, u := range c.Uncovered {
				fmt.Fprintf(out, "    cannot come back (%s)  %s\n", u.Reason, oneLine(u.Path))
			}
		}
		return nil
	})
}

// shown is what a person reads of an entry.
func shown(e session.Entry) string {
	content := e.Content
	if e.Display != nil {
		content = e.Display
	}
	var blocks []struct {
		Type string `json:"type"`
		Text string `json:"text"`
		URI  string `json:"uri"`
	}
	_ = json.Unmarshal(content, &blocks) // one that is not blocks shows nothing
	var parts []string
	for _, b := range blocks {
		switch {
		case b.Type == "text":
			parts = append(parts, b.Text)
		case b.URI != "":
			parts = append(parts, "["+b.Type+" "+b.URI+"]")
		default:
			parts = append(parts, "["+b.Type+"]")
		}
	}
	if len(parts) == 0 {
		return e.Summary
	}
	return strings.Join(parts, "\n")
}

// logEntry is an entry in JSON.
type logEntry struct {
	ID           string          `json:"id"`
	ParentID     *string         `json:"parentId"`
	Role         session.Role    `json:"role"`
	CreatedAt    int64           `json:"createdAt"`
	Content      json.RawMessage `json:"content"`
	Display      json.RawMessage `json:"displayContent,omitempty"`
	MessageID    string          `json:"messageId,omitempty"`
	ToolCallID   string          `json:"toolCallId,omitempty"`
	Status       string          `json:"status,omitempty"`
	Tool         json.RawMessage `json:"tool,omitempty"`
	Summary      string          `json:"summary,omitempty"`
	KeepFrom     string          `json:"keepFrom,omitempty"`
	TokensBefore int64           `json:"tokensBefore,omitempty"`
	TokensAfter  int64           `json:"tokensAfter,omitempty"`
	Label        string          `json:"label,omitempty"`
	Left         bool            `json:"left,omitempty"`
}

// logCheckpoint is a checkpoint in JSON.
type logCheckpoint struct {
	EntryID   string                   `json:"entryId"`
	CreatedAt int64                    `json:"createdAt"`
	Files     []session.CheckpointFile `json:"files"`
	Label     string                   `json:"label,omitempty"`
	Uncovered []session.Uncovered      `json:"uncovered,omitempty"`
}

// logJSON is one object, written entry by entry.
func logJSON(ctx context.Context, out *bufio.Writer, v *session.View, all bool) error {
	head := struct {
		Session     session.Info     `json:"session"`
		LeafID      *string          `json:"leafId"`
		Compressed  bool             `json:"compressed"`
		Damage      []session.Damage `json:"damage,omitempty"`
		Checkpoints []logCheckpoint  `json:"checkpoints"`
	}{Session: v.Info, LeafID: orNull(v.LeafID), Compressed: v.Packed, Damage: v.Damage, Checkpoints: []logCheckpoint{}}
	for _, c := range v.Checkpoints {
		head.Checkpoints = append(head.Checkpoints, logCheckpoint{c.EntryID, c.CreatedAt, c.Files, c.Label, c.Uncovered})
	}
	b, err := plainJSON(head)
	if err != nil {
		return err
	}
	out.Write(bytes.TrimSuffix(b, []byte("}")))
	fmt.Fprint(out, `,"entries":[`)
	separator := "\n"
	err = v.Each(ctx, all, func(e session.ViewEntry) error {
		b, err := plainJSON(logEntry{
			ID: e.ID, ParentID: orNull(e.ParentID), Role: e.Role, CreatedAt: e.CreatedAt, Content: e.Content, Display: e.Display,
			MessageID: e.MessageID, ToolCallID: e.ToolCallID, Status: e.Status, Tool: e.Tool,
			Summary: e.Summary, KeepFrom: e.KeepFrom, TokensBefore: e.TokensBefore, TokensAfter: e.TokensAfter,
			Label: e.Label, Left: e.Left,
		})
		fmt.Fprint(out, separator)
		separator = ",\n"
		out.Write(b)
		return err
	})
	if err != nil {
		return err
	}
	fmt.Fprint(out, "\n]}\n")
	return nil
}

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// plainJSON is v in JSON, with texts as they are.
func plainJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSpace(b.Bytes()), err
}
