package rpc

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/oino-dev/oinod/checkpoints"
	"github.com/oino-dev/oinod/session"
)

// What slash commands say to a person.

// maxWords is how much of a message a line shows.
const maxWords = 60

// maxPatches is how much of a diff is shown in a chat.
const maxPatches = 64 << 10

// shorten is text on one line, cut where it gets long.
func shorten(text string) string {
	var line []rune
	for word := range strings.FieldsSeq(text) {
		if len(line) > 0 {
			line = append(line, ' ')
		}
		for _, r := range word {
			if line = append(line, r); len(line) > maxWords {
				return string(line[:maxWords-1]) + "…"
			}
		}
	}
	return string(line)
}

// ago is how long something is past, as people say it.
func ago(d time.Duration) string {
	switch {
	case d < time.Minute:
		return "just now"
	case d < time.Hour:
		return fmt.Sprintf("%d min ago", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h ago", int(d.Hours()))
	}
	return fmt.Sprintf("%d days ago", int(d.Hours()/24))
}

// count is "1 file", "2 files".
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// sentence is msg with a capital and a full stop.
func sentence(msg string) string {
	if msg == "" {
		return msg
	}
	r, size := utf8.DecodeRuneInString(msg)
	msg = strings.ToUpper(string(r)) + msg[size:]
	if strings.HasSuffix(msg, ".") {
		return msg
	}
	return msg + "."
}

// tense is how a rewind is spoken of: before it is done, or after.
type tense struct{ restored, deleted, merged, failed, nothing string }

var (
	did   = tense{"Restored", "Deleted", "Merged", "Left as they are", "No file had to change."}
	would = tense{"Will be restored", "Will be deleted", "Will be merged", "Will be left as they are", "No file has to change."}
)

// of says what a rewind does to files: what comes back, what does not.
func (t tense) of(r session.RewindResult) string {
	var b strings.Builder
	paths := func(what string, paths []string) {
		if len(paths) > 0 {
			fmt.Fprintf(&b, "%s (%s):\n", what, count(len(paths), "path"))
		}
		for _, p := range paths {
			fmt.Fprintf(&b, "- %s\n", p)
		}
	}
	paths(t.restored, r.Restored)
	paths(t.deleted, r.Deleted)
	paths(t.merged, r.Merged)
	if len(r.Failed) > 0 {
		fmt.Fprintf(&b, "%s (%s):\n", t.failed, count(len(r.Failed), "path"))
	}
	for _, f := range r.Failed {
		fmt.Fprintf(&b, "- %s: %s\n", f.Path, f.Message)
	}
	if len(r.Uncovered) > 0 {
		fmt.Fprintf(&b, "Not covered (%s):\n", count(len(r.Uncovered), "path"))
	}
	for _, u := range r.Uncovered {
		fmt.Fprintf(&b, "- %s: %s\n", u.Path, u.Reason)
	}
	if n := len(r.Outside) + r.OutsideMore; n > 0 {
		fmt.Fprintf(&b, "Changed by others, and left alone: %s.\n", count(n, "path"))
	}
	if b.Len() == 0 {
		return t.nothing
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// patches is diffs as a chat shows them.
func patches(files []checkpoints.FileDiff) string {
	if len(files) == 0 {
		return "Nothing changed."
	}
	var b strings.Builder
	for _, f := range files {
		fmt.Fprintf(&b, "- %s %s (+%d −%d)\n", f.Change, f.Path, f.Additions, f.Deletions)
	}
	left := maxPatches
	for _, f := range files {
		switch {
		case f.Patch == "":
		case len(f.Patch) > left:
			fmt.Fprintf(&b, "\nThe changes of %s are too long to show here.\n", f.Path)
		default:
			left -= len(f.Patch)
			fence := "```"
			for strings.Contains(f.Patch, fence) {
				fence += "`"
			}
			fmt.Fprintf(&b, "\n%sdiff\n%s\n%s\n", fence, strings.TrimSuffix(f.Patch, "\n"), fence)
		}
	}
	return b.String()
}
