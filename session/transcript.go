package session

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// maxTitle is how many characters of a message a title or summary shows.
const maxTitle = 200

// textBlock is what we read of an ACP content block.
type textBlock struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

// blocksText is the text of content's text blocks, joined by newlines.
func blocksText(content json.RawMessage) string {
	var blocks []textBlock
	if json.Unmarshal(content, &blocks) != nil {
		return ""
	}
	var texts []string
	for _, b := range blocks {
		if b.Type == "text" {
			texts = append(texts, b.Text)
		}
	}
	return strings.Join(texts, "\n")
}

// asBlocks turns content, a string or blocks, into blocks.
func asBlocks(content json.RawMessage) (json.RawMessage, error) {
	if trimmed := bytes.TrimSpace(content); len(trimmed) > 0 && trimmed[0] == '"' {
		var text string
		if json.Unmarshal(content, &text) == nil {
			return encodeRecord([]textBlock{{"text", text}})
		}
	}
	if json.Valid(content) && areBlocks(content) {
		return content, nil
	}
	var blocks []textBlock // at once, since a message may be long
	if err := json.Unmarshal(content, &blocks); err != nil {
		var array []json.RawMessage
		if json.Unmarshal(content, &array) == nil && array != nil {
			return nil, refuse(BadParams, "content holds something that is not a content block with a type")
		}
	}
	if blocks == nil {
		return nil, refuse(BadParams, "content is neither a string nor an array of content blocks")
	}
	for _, b := range blocks {
		if b.Type == "" {
			return nil, refuse(BadParams, "content holds something that is not a content block with a type")
		}
	}
	return content, nil
}

// areBlocks reports that content, which is valid JSON, is surely an array of
// blocks with a type, without decoding what they say. Where it says no,
// encoding/json decides.
func areBlocks(content []byte) bool {
	rest, ok := bytes.CutPrefix(content, []byte("["))
	for ok {
		var block []byte
		if block, rest, ok = cutValue(rest); !ok || !isBlock(block) || len(rest) == 0 {
			return false
		}
		if rest[0] == ']' {
			return len(rest) == 1
		}
		rest, ok = bytes.CutPrefix(rest, []byte(","))
	}
	return false
}

// isBlock reports that object surely is a block with a type and, if it has a
// text, with one that is a string.
func isBlock(object []byte) bool {
	typed := false
	rest, ok := bytes.CutPrefix(object, []byte("{"))
	for ok {
		var key, value []byte
		if key, rest, ok = cutString(rest); !ok || len(rest) == 0 || rest[0] != ':' {
			return false
		}
		if value, rest, ok = cutValue(rest[1:]); !ok || len(rest) == 0 {
			return false
		}
		switch {
		case string(key) == `"type"`:
			typed = len(value) > 2 && value[0] == '"'
			ok = typed
		case string(key) == `"text"`:
			ok = value[0] == '"'
		case bytes.EqualFold(key, []byte(`"type"`)), bytes.EqualFold(key, []byte(`"text"`)), bytes.IndexByte(key, '\\') >= 0:
			ok = false // encoding/json might take it for one of these
		}
		if !ok {
			return false
		}
		if rest[0] == '}' {
			return typed && len(rest) == 1
		}
		rest, ok = bytes.CutPrefix(rest, []byte(","))
	}
	return false
}

// shorten collapses white space and cuts after max characters.
func shorten(s string, max int) string {
	if len(s) > 8*max {
		s = strings.ToValidUTF8(s[:8*max], "")
	}
	s = strings.Join(strings.Fields(s), " ")
	if utf8.RuneCountInString(s) <= max {
		return s
	}
	return string([]rune(s)[:max])
}

// readEntry reads an entry's line back.
func (s *Session) readEntry(n *node) (Entry, error) {
	object, err := s.log.ReadAt(n.pos)
	if err != nil {
		return Entry{}, &Error{Kind: LogDamaged, Msg: fmt.Sprintf("entry %s of session %s cannot be read", n.id, s.id), Err: err}
	}
	r, err := decodeRecord(object)
	if err != nil {
		return Entry{}, err
	}
	e, ok := r.(*entryRecord)
	if !ok {
		return Entry{}, fmt.Errorf("the line of entry %s holds something else", n.id)
	}
	return e.entry(), nil
}

// entry is what the record says.
func (e *entryRecord) entry() Entry {
	return Entry{
		ID: e.ID, ParentID: e.ParentID, Role: e.Role, CreatedAt: e.CreatedAt, Content: e.Content, Display: e.Display,
		ToolCallID: e.ToolCallID, Status: e.Status, Tool: e.Tool,
		Summary: e.Summary, KeepFrom: e.KeepFrom, TokensBefore: e.TokensBefore, TokensAfter: e.TokensAfter,
		MessageID: e.MessageID,
	}
}

// Entries reads the active branch.
func (s *Session) Entries(ctx context.Context, q EntriesQuery) (EntriesPage, error) {
	s.mu.RLock()
	branch := s.state.branch(s.state.leaf)
	page := EntriesPage{Revision: s.state.revision, Entries: []Entry{}}
	if s.state.leaf != nil {
		page.LeafID = s.state.leaf.id
	}
	s.mu.RUnlock()
	if q.Context {
		branch = forModel(branch)
	}
	if q.After != "" {
		i := indexOf(branch, q.After)
		if i < 0 {
			return EntriesPage{}, refuse(EntryNotFound, "entry %q is not on the active branch of session %s", q.After, s.id)
		}
		branch = branch[i+1:]
	}
	if q.Limit > 0 && len(branch) > q.Limit {
		branch, page.More = branch[:q.Limit], true
	}
	for _, n := range branch {
		if err := ctx.Err(); err != nil {
			return EntriesPage{}, err
		}
		e, err := s.readEntry(n)
		if err != nil {
			return EntriesPage{}, err
		}
		page.Entries = append(page.Entries, e)
	}
	return page, nil
}

// forModel is the branch as the model should see it: the newest compaction
// first, then what it kept, then what came after it, and no tool call at the
// tail that was cut off.
func forModel(branch []*node) []*node {
	for i := len(branch) - 1; i >= 0; i-- {
		c := branch[i]
		if c.role != Compaction {
			continue
		}
		seen := []*node{c}
		if k := indexOf(branch[:i], c.keepFrom); k >= 0 && c.keepFrom != "" {
			for _, n := range branch[k:i] {
				if n.role != Compaction {
					seen = append(seen, n)
				}
			}
		}
		branch = append(seen, branch[i+1:]...)
		break
	}
	return withoutCutOff(branch)
}

// withoutCutOff drops tool calls at the tail whose newest entry is not done.
func withoutCutOff(branch []*node) []*node {
	newest := map[string]string{}
	for _, n := range branch {
		if n.role == Tool {
			newest[n.toolCallID] = n.status
		}
	}
	for len(branch) > 0 {
		n := branch[len(branch)-1]
		if n.role != Tool || newest[n.toolCallID] != "pending" && newest[n.toolCallID] != "in_progress" {
			break
		}
		branch = branch[:len(branch)-1]
	}
	return branch
}

func indexOf(branch []*node, id string) int {
	for i, n := range branch {
		if n.id == id {
			return i
		}
	}
	return -1
}

// Replay passes the active branch to f, oldest first, one message at a time,
// no cut-off tool call at the tail.
//
// A driver that keeps an answer as it comes in gives its entries one MessageID:
// assistant entries with the same one, and nothing between them, are chunks and
// come as one message under the first one's id. Entries that do not say so are
// messages of their own, however close they are. Of a message that is very long
// the parts come one after another, under that id.
func (s *Session) Replay(ctx context.Context, f func(Entry) error) error {
	s.mu.RLock()
	branch := withoutCutOff(s.state.branch(s.state.leaf))
	s.mu.RUnlock()
	c := coalescer{next: f}
	for _, n := range branch {
		if err := ctx.Err(); err != nil {
			return err
		}
		e, err := s.readEntry(n)
		if err != nil {
			return err
		}
		if err := c.add(e); err != nil {
			return err
		}
	}
	return c.flush()
}

// EntryText is the text of an entry's text blocks, as for a composer.
func (s *Session) EntryText(entryID string) (string, error) {
	s.mu.RLock()
	n := s.state.nodes[entryID]
	s.mu.RUnlock()
	if n == nil {
		return "", refuse(EntryNotFound, "session %s has no entry %q", s.id, entryID)
	}
	e, err := s.readEntry(n)
	if err != nil {
		return "", err
	}
	return blocksText(e.Content), nil
}
