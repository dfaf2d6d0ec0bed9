package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"

	"github.com/oino-dev/oinod/session"
)

func (p *process) gcCommand() *cobra.Command {
	var olderThan age
	var dryRun bool
	c := &cobra.Command{
		Use:   "gc",
		Short: "Free the space of what no session needs any more",
		Long: `Remove kept contents that no session needs, the captures of directories that no
session works in any more, and what crashes left, and compress the logs of
sessions that nobody has written to for a while. With --older-than, first remove
the sessions without activity for so long (30d, 12h, 2w), unless they are open.

It is safe beside running processes: it waits for a moment in which none is
storing anything, and says so when there is none. Where a log is damaged, or was
written by a newer oinod, nothing is removed at all, because what it needs is
not known; "oinod check" tells more.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.withStored(cmd, func(ctx context.Context, r *session.Registry, set settings) error {
				bar := newBar(p.stderr, "reading sessions")
				freed, err := r.Collect(ctx, session.CollectParams{
					OlderThan: time.Duration(olderThan), PackAfter: set.compressAfter, DryRun: dryRun, Progress: bar.show,
				})
				bar.clear()
				if err != nil {
					return err
				}
				return p.freed(freed, dryRun)
			})
		},
	}
	c.Flags().Var(&olderThan, "older-than", "also remove sessions without activity for this long, as 30d, 12h or 2w")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "only say what would be done")
	return c
}

// freed says what was freed.
func (p *process) freed(freed session.Collected, dryRun bool) error {
	removed, free := "removed", "freed"
	if dryRun {
		removed, free = "would remove", "would free"
	}
	for _, i := range freed.Removed {
		fmt.Fprintf(p.stdout, "%s session %s  %s  %s\n", removed, i.SessionID, when(i.UpdatedAt), oneLine(i.Title))
	}
	for _, i := range freed.Kept {
		fmt.Fprintf(p.stdout, "kept session %s, which is open in another process\n", i.SessionID)
	}
	if n := freed.Packed.Sessions; n > 0 {
		fmt.Fprintf(p.stdout, "compressed %s, %s to %s\n", many(n, "log", "logs"), size(freed.Packed.Before), size(freed.Packed.After))
	}
	if freed.Trees > 0 {
		fmt.Fprintf(p.stdout, "%s the captures of %s that no session works in any more\n", removed, many(freed.Trees, "directory", "directories"))
	}
	_, err := fmt.Fprintf(p.stdout, "%s %s, %s\n", free, many(freed.Blobs, "content", "contents"), size(freed.Bytes))
	return err
}

// age is a duration on the command line, in days and weeks too.
type age time.Duration

func (a *age) Type() string { return "age" }

func (a *age) String() string {
	if *a == 0 {
		return ""
	}
	return time.Duration(*a).String()
}

func (a *age) Set(s string) error {
	d, err := parseAge(s)
	if err != nil {
		return err
	}
	*a = age(d)
	return nil
}

// parseAge reads 30d, 2w, or what time.ParseDuration reads. It is positive.
func parseAge(s string) (time.Duration, error) {
	var d time.Duration
	var err error
	for unit, hours := range map[string]int{"d": 24, "w": 7 * 24} {
		if n, ok := strings.CutSuffix(s, unit); ok {
			var days int
			if days, err = strconv.Atoi(n); err == nil && days <= 100_000 {
				d = time.Duration(days*hours) * time.Hour
			}
			if err != nil || d <= 0 {
				return 0, fmt.Errorf("%q is no age; write it as 30d, 12h or 2w", s)
			}
			return d, nil
		}
	}
	if d, err = time.ParseDuration(s); err != nil || d <= 0 {
		return 0, fmt.Errorf("%q is no age; write it as 30d, 12h or 2w", s)
	}
	return d, nil
}

// bar is a progress bar on a terminal, and nothing elsewhere.
type bar struct {
	out  io.Writer // nil: no terminal
	what string
	last int // percent
}

func newBar(w io.Writer, what string) *bar {
	b := &bar{what: what, last: -1}
	if f, ok := w.(*os.File); ok && isatty.IsTerminal(f.Fd()) {
		b.out = w
	}
	return b
}

const barWidth = 30

func (b *bar) show(done, total int) {
	percent := done * 100 / max(total, 1)
	if b.out == nil || percent == b.last {
		return
	}
	b.last = percent
	full := percent * barWidth / 100
	fmt.Fprintf(b.out, "\r%s [%s%s] %3d%%", b.what, strings.Repeat("#", full), strings.Repeat(" ", barWidth-full), percent)
}

// clear takes the bar away.
func (b *bar) clear() {
	if b.out != nil && b.last >= 0 {
		fmt.Fprintf(b.out, "\r%s\r", strings.Repeat(" ", len(b.what)+barWidth+8))
	}
}
