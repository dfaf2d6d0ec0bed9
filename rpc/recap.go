package rpc

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/oino-dev/oinod/protocol"
	"github.com/oino-dev/oinod/session"
)

// recap is what the agent has to be told with a prompt.
type recap struct {
	text    string           // "": nothing
	short   bool             // the agent has the conversation itself
	wrapped *session.Wrapped // what the session is called once the prompt is on its way; nil: as before
}

// block is the recap as a content block that goes before a prompt; nil where
// there is nothing to tell. asText: it is then part of the text of the user's
// message. A short one is, so that what the agent has of that message is known,
// and can be told from others again (anchors.go).
func (r *recap) block(embedded bool, prompt protocol.Blocks) (block []byte, asText bool) {
	switch {
	case r.text == "":
		return nil, false
	case !embedded || r.short && !looksLikeCommand(prompt):
		return protocol.TextBlock(r.text), true
	}
	return mustEncode(map[string]any{"type": "resource", "resource": map[string]string{
		"uri": "oino:///conversation", "mimeType": "text/plain", "text": r.text,
	}}), false
}

// maxRecap bounds what an agent is told of what was said, in bytes.
const maxRecap = 256 << 10

// recapOf is what was said up to an entry (session.Start: nothing), as one would
// tell of it, and which files were put back; "" where nothing was.
func (p *proxy) recapOf(ctx context.Context, kept *session.Session, through string, files []string) (string, error) {
	if through == session.Start {
		return putBack(files), nil
	}
	page, err := kept.Entries(ctx, session.EntriesQuery{Through: through, Context: true})
	if err != nil || len(page.Entries) == 0 {
		return putBack(files), err
	}
	var said []string
	size, cut := 0, false
	for _, e := range slices.Backward(page.Entries) {
		line := spoken(e)
		if size += len(line); size > maxRecap {
			if cut = true; len(said) == 0 { // else nothing at all would be told
				said = append(said, "[…] "+strings.ToValidUTF8(line[len(line)-maxRecap:], ""))
			}
			break
		}
		if line != "" {
			said = append(said, line)
		}
	}
	slices.Reverse(said)
	var b strings.Builder
	b.WriteString("The conversation so far, as it was taken up again from an earlier point. Anything else that was said does not count any more.\n")
	if len(files) > 0 {
		b.WriteString(filesLine(files))
	}
	if cut {
		b.WriteString("The beginning is left out.\n")
	}
	for _, line := range said {
		b.WriteString("\n" + line + "\n")
	}
	return b.String(), nil
}

// spoken is an entry as one would tell of it; "" for what need not be told.
func spoken(e session.Entry) string {
	if e.Role == session.Tool {
		var call protocol.ToolFields
		_ = json.Unmarshal(e.Tool, &call) // without a title it has its id
		if call.Title == "" {
			call.Title = e.ToolCallID
		}
		return fmt.Sprintf("Tool: %s (%s)", call.Title, e.Status)
	}
	blocks, err := protocol.ParseBlocks(e.Content)
	if err != nil {
		return ""
	}
	var parts []string
	for _, block := range blocks {
		var other struct {
			Type     string `json:"type"`
			URI      string `json:"uri"`
			Resource struct {
				URI  string `json:"uri"`
				Text string `json:"text"`
			} `json:"resource"`
		}
		if text, ok := block.Text(); ok {
			parts = append(parts, text)
		} else if json.Unmarshal(block, &other) == nil {
			parts = append(parts, strings.TrimSpace(fmt.Sprintf("[%s] %s%s\n%s", other.Type, other.URI, other.Resource.URI, other.Resource.Text)))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	who := "Assistant"
	if e.Role == session.User {
		who = "User"
	}
	return who + ": " + strings.Join(parts, "\n")
}
