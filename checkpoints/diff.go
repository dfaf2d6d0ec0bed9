package checkpoints

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxDiffed is the largest content that is compared line by line.
const maxDiffed = 4 << 20

// FileDiff is how one path differs between two states.
type FileDiff struct {
	Path      string
	Change    Change
	Additions int
	Deletions int
	Binary    bool   // no text, or one that is not UTF-8
	Patch     string // unified, with n lines of context; "" for a binary or unkept content
}

// Diff compares target (read from the blob store) with what is at path now.
// A link is compared as one line, its target. What is over 4 MiB, is no text in
// UTF-8 or cannot be read has no patch; where only the mode differs there is nothing to
// show either. Where two texts have very little in common, the patch may
// replace more lines than it must.
func (w *Workspace) Diff(path string, target State, now State, context int) FileDiff {
	d := FileDiff{Path: path, Change: ChangeOf(target, now)}
	if d.Change == "" {
		return d
	}
	old, haveOld := w.text(target, func() ([]byte, error) { return w.blobs.Get(target.Digest, maxDiffed) })
	new, haveNew := w.text(now, func() ([]byte, error) { return w.content(path, now) })
	if !haveOld || !haveNew {
		return d
	}
	if binary(old) || binary(new) {
		d.Binary = string(old) != string(new)
		return d
	}
	a, b := splitLines(old), splitLines(new)
	hunks := diffLines(a, b)
	for _, h := range hunks {
		d.Deletions += h.aTo - h.aFrom
		d.Additions += h.bTo - h.bFrom
	}
	switch {
	case len(hunks) == 0:
	case !utf8.Valid(old) || !utf8.Valid(new): // who gets it as JSON would get other bytes
		d.Binary = true
	default:
		d.Patch = fmt.Sprintf("--- %s\n+++ %s\n", w.label("a", path, target), w.label("b", path, now)) + unified(a, b, hunks, max(context, 0))
	}
	return d
}

// unified formats changes as diff -u does, with so many lines of context.
func unified(a, b [][]byte, hunks []hunk, context int) string {
	var out strings.Builder
	line := func(sign byte, l []byte) {
		out.WriteByte(sign)
		out.Write(l)
		if l[len(l)-1] != '\n' {
			out.WriteString("\n\\ No newline at end of file\n")
		}
	}
	for len(hunks) > 0 {
		n := 1 // hunks so near that their contexts touch are shown as one
		for n < len(hunks) && hunks[n].aFrom-hunks[n-1].aTo <= 2*context {
			n++
		}
		first, last := hunks[0], hunks[n-1]
		before, after := min(context, first.aFrom), min(context, len(a)-last.aTo)
		fmt.Fprintf(&out, "@@ -%s +%s @@\n",
			lineRange(first.aFrom-before, last.aTo+after), lineRange(first.bFrom-before, last.bTo+after))
		at := first.aFrom - before
		for _, h := range hunks[:n] {
			for ; at < h.aFrom; at++ {
				line(' ', a[at])
			}
			for ; at < h.aTo; at++ {
				line('-', a[at])
			}
			for _, l := range b[h.bFrom:h.bTo] {
				line('+', l)
			}
		}
		for ; at < last.aTo+after; at++ {
			line(' ', a[at])
		}
		hunks = hunks[n:]
	}
	return out.String()
}

// lineRange is a stretch of lines in the head of a hunk, counted from 1; of
// none, it is the line before.
func lineRange(from, to int) string {
	switch to - from {
	case 0:
		return fmt.Sprintf("%d,0", from)
	case 1:
		return strconv.Itoa(from + 1)
	}
	return fmt.Sprintf("%d,%d", from+1, to-from)
}

// text is what a state is compared as, and whether that can be had.
func (w *Workspace) text(s State, read func() ([]byte, error)) ([]byte, bool) {
	s = s.comparable()
	switch s.Kind {
	case Absent:
		return nil, true
	case Symlink:
		return []byte(s.Target), true
	case File:
		if s.Size > maxDiffed {
			return nil, false
		}
		content, err := read()
		return content, err == nil
	}
	return nil, false
}

// content reads the file at path, or what was kept of it, if it has become another since.
func (w *Workspace) content(path string, s State) ([]byte, error) {
	content, err := w.Read(path, maxDiffed)
	if err == nil && digestOf(content) == s.comparable().Digest {
		return content, nil
	}
	return w.blobs.Get(s.Digest, maxDiffed)
}

// label names one side of a patch, relative to its root as git does.
func (w *Workspace) label(side, path string, s State) string {
	if s.Kind == Absent {
		return "/dev/null"
	}
	if r, rel := w.rootOf(path); r != nil {
		path = rel
	}
	name := side + "/" + strings.TrimPrefix(path, "/")
	if strings.ContainsFunc(name, func(c rune) bool { return c < ' ' || c == '"' || c == '\\' || c == utf8.RuneError || c == 0x7f }) {
		return strconv.Quote(name)
	}
	return name
}
