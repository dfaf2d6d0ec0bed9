package rpc

import (
	"slices"
	"strings"

	"github.com/oino-dev/oinod/checkpoints"
	"github.com/oino-dev/oinod/protocol"
	"github.com/oino-dev/oinod/session"
)

// wholeFile is so many lines of context that a patch holds both of its files.
const wholeFile = 1 << 20

// previewCall shows what a rewind would do as a tool call: clients draw the
// diffs of one as those of an edit. In a patch the checkpoint is before and
// the present after; a rewind goes the other way.
func previewCall(to string, result session.RewindResult) protocol.ToolCall {
	call := protocol.ToolCall{ToolFields: protocol.ToolFields{Title: "Rewind to " + to}}
	call.Content = append(call.Content, protocol.ToolContent{Type: "content", Content: protocol.TextBlock(would.of(result))})
	changes := map[string]bool{}
	for _, path := range slices.Concat(result.Restored, result.Deleted) {
		changes[path] = true
	}
	left := maxPreview
	for _, f := range result.Files {
		if !changes[f.Path] || f.Patch == "" || len(f.Patch) > left {
			continue // named in the text
		}
		left -= len(f.Patch)
		checkpoint, now := sides(f.Patch)
		diff := protocol.ToolDiff{Type: "diff", Path: f.Path, OldText: &now, NewText: checkpoint}
		if f.Change == checkpoints.Deleted {
			diff.OldText = nil // it is not there now
		}
		call.Content = append(call.Content, diff)
	}
	return call
}

// maxPreview is how many bytes of patches a preview shows.
const maxPreview = 1 << 20

// sides gives the two texts of a unified patch that shows them whole.
func sides(patch string) (before, after string) {
	var a, b []string
	inHunk := false
	var last byte
	for line := range strings.Lines(patch) {
		if inHunk = inHunk || strings.HasPrefix(line, "@@"); !inHunk || line[0] == '@' {
			continue
		}
		switch line[0] {
		case ' ':
			a, b = append(a, line[1:]), append(b, line[1:])
		case '-':
			a = append(a, line[1:])
		case '+':
			b = append(b, line[1:])
		case '\\': // no newline at the end of the line before
			if last != '+' && len(a) > 0 {
				a[len(a)-1] = strings.TrimSuffix(a[len(a)-1], "\n")
			}
			if last != '-' && len(b) > 0 {
				b[len(b)-1] = strings.TrimSuffix(b[len(b)-1], "\n")
			}
		}
		last = line[0]
	}
	return strings.Join(a, ""), strings.Join(b, "")
}
