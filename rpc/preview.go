package rpc

import (
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
func previewCall(to string, would session.RewindResult) protocol.ToolCall {
	call := protocol.ToolCall{ToolFields: protocol.ToolFields{Title: "Rewind to " + to}}
	call.Content = append(call.Content, protocol.ToolContent{Type: "content", Content: protocol.TextBlock(wouldText(would))})
	left := maxPreview
	for _, f := range would.Files {
		checkpoint, now := sides(f.Patch)
		if f.Patch == "" || len(f.Patch) > left {
			continue // named in the text
		}
		left -= len(f.Patch)
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

// wouldText says what a rewind would do.
func wouldText(would session.RewindResult) string {
	text := outcomeText(would)
	for _, word := range []string{"Restored", "Deleted", "Merged"} {
		text = strings.Replace(text, word+" ", "To be "+strings.ToLower(word)+": ", 1)
	}
	return text
}

// sides gives the two texts of a unified patch that shows them whole.
func sides(patch string) (before, after string) {
	var a, b strings.Builder
	var last *[]*strings.Builder
	inHunk := false
	for line := range strings.Lines(patch) {
		if strings.HasPrefix(line, "@@") {
			inHunk = true
			continue
		}
		if !inHunk {
			continue
		}
		var to []*strings.Builder
		switch line[0] {
		case ' ':
			to = []*strings.Builder{&a, &b}
		case '-':
			to = []*strings.Builder{&a}
		case '+':
			to = []*strings.Builder{&b}
		default: // "\ No newline at end of file"
			if last != nil {
				for _, s := range *last {
					trimmed := strings.TrimSuffix(s.String(), "\n")
					s.Reset()
					s.WriteString(trimmed)
				}
			}
			continue
		}
		for _, s := range to {
			s.WriteString(line[1:])
		}
		last = &to
	}
	return a.String(), b.String()
}
