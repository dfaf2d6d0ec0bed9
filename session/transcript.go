package session

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"
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
	blocks, err := textBlocks(content)
	if err != nil {
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

// textBlocks decodes what we read of content's blocks. Names are exact, which
// they are not to encoding/json: "TEXT" is not the text.
func textBlocks(content json.RawMessage) ([]textBlock, error) {
	var blocks []textBlock
	if areBlocks(content) {
		err := json.Unmarshal(content, &blocks)
		return blocks, err
	}
	var all []map[string]json.RawMessage
	if err := json.Unmarshal(content, &all); err != nil || all == nil {
		return nil, err
	}
	blocks = make([]textBlock, len(all))
	for i, members := range all {
		for name, to := range map[string]*string{"type": &blocks[i].Type, "text": &blocks[i].Text} {
			if value := members[name]; value != nil {
				if err := json.Unmarshal(value, to); err != nil {
					return nil, err
				}
			}
		}
	}
	return blocks, nil
}

// asBlocks turns content, a string or blocks, into blocks.
func asBlocks(content json.RawMessage) (json.RawMessage, error) {
	if trimmed := bytes.TrimSpace(content); len(trimmed) > 0 && trimmed[0] == '"' {
		var text string
		if json.Unmarshal(content, &text) == nil {
			return encodeJSON([]textBlock{{"text", text}})
		}
	}
	if areBlocks(content) {
		return content, nil
	}
	blocks, err := textBlocks(content) // at once, since a message may be long
	if err != nil {
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

// areBlocks reports that content is surely valid JSON, and an array of blocks
// with a type whose members are all strings, as nearly all are. Where it says
// no, encoding/json decides, which takes ten times as long.
func areBlocks(content []byte) bool {
	rest, ok := bytes.CutPrefix(content, []byte("["))
	for ok {
		if rest, ok = cutBlock(rest); !ok || len(rest) == 0 {
			return false
		}
		if rest[0] == ']' {
			return len(rest) == 1
		}
		rest, ok = bytes.CutPrefix(rest, []byte(","))
	}
	return false
}

// cutBlock takes a block that areBlocks knows off b, where it begins with one.
func cutBlock(b []byte) (rest []byte, ok bool) {
	typed := false
	rest, ok = bytes.CutPrefix(b, []byte("{"))
	for ok {
		var key, value []byte
		if key, rest, ok = cutString(rest); !ok || len(rest) == 0 || rest[0] != ':' || !isValid(key) {
			return nil, false
		}
		if value, rest, ok = cutString(rest[1:]); !ok || len(rest) == 0 || !isValid(value) {
			return nil, false
		}
		switch {
		case string(key) == `"type"`:
			if typed = len(value) > 2; !typed {
				return nil, false
			}
		case string(key) == `"text"`:
		case bytes.EqualFold(key, []byte(`"type"`)), bytes.EqualFold(key, []byte(`"text"`)), bytes.IndexByte(key, '\\') >= 0:
			return nil, false // encoding/json might take it for one of these
		}
		if rest[0] == '}' {
			return rest[1:], typed
		}
		rest, ok = bytes.CutPrefix(rest, []byte(","))
	}
	return nil, false
}

// isValid reports whether quoted, which cutString gave, is a string in JSON.
func isValid(quoted []byte) bool {
	for i := 1; i < len(quoted)-1; i++ {
		switch c := quoted[i]; {
		case c < ' ':
			return false
		case c == '\\':
			i++ // what comes is within: an escaped quote does not end a string
			switch quoted[i] {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			case 'u':
				if i+4 >= len(quoted) || !isHex(quoted[i+1:i+5]) {
					return false
				}
			default:
				return false
			}
		}
	}
	return true
}

func isHex(b []byte) bool {
	for _, c := range b {
		if !('0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F') {
			return false
		}
	}
	return true
}

// shorten collapses white space and cuts after max characters. It looks at no
// more of a long message than that takes.
func shorten(s string, max int) string {
	var b strings.Builder
	n, space := 0, false
	for _, r := range s {
		if unicode.IsSpace(r) {
			space = n > 0
			continue
		}
		if space && n+1 < max {
			b.WriteByte(' ')
			n++
		} else if space {
			break // a space would be the last
		}
		if n == max {
			break
		}
		b.WriteRune(r)
		n, space = n+1, false
	}
	return b.String()
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
	entry := e.entry()
	if entry.MessageID == "" {
		s.mu.RLock()
		entry.MessageID = n.messageID
		s.mu.RUnlock()
	}
	return entry, nil
}

// entry is what the record says.
func (e *entryRecord) entry() Entry {
	return Entry{
		ID: e.ID, ParentID: e.ParentID, Role: e.Role, CreatedAt: e.CreatedAt, Content: e.Content, Display: e.Display,
		ToolCallID: e.ToolCallID, Status: e.Status, Tool: e.Tool,
		Summary: e.Summary, KeepFrom: e.KeepFrom, TokensBefore: e.TokensBefore, TokensAfter: e.TokensAfter,
		MessageID: e.MessageID, Told: e.Told,
	}
}

// Entries reads the active branch, or the one that ends with an entry.
func (s *Session) Entries(ctx context.Context, q EntriesQuery) (EntriesPage, error) {
	s.mu.RLock()
	tip := s.state.leaf
	if q.Through != "" {
		if tip = s.state.nodes[q.Through]; tip == nil {
			s.mu.RUnlock()
			return EntriesPage{}, refuse(EntryNotFound, "session %s has no entry %q", s.id, q.Through)
		}
	}
	branch := s.state.branch(tip)
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
			return EntriesPage{}, refuse(EntryNotFound, "entry %q is not on that branch of session %s", q.After, s.id)
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

// withoutCutOff drops tool calls at the tail whose newest entry is not done:
// of calls side by side, those that are not, wherever among the last entries.
func withoutCutOff(branch []*node) []*node {
	newest := map[string]string{}
	for _, n := range branch {
		if n.role == Tool {
			newest[n.toolCallID] = n.status
		}
	}
	tail := len(branch)
	for tail > 0 && (branch[tail-1].role == Tool || branch[tail-1].role == Custom) {
		tail--
	}
	done := slices.DeleteFunc(slices.Clone(branch[tail:]), func(n *node) bool {
		status := newest[n.toolCallID]
		return n.role == Tool && (status == "pending" || status == "in_progress")
	})
	return append(branch[:tail:tail], done...)
}

func indexOf(branch []*node, id string) int {
	for i, n := range branch {
		if n.id == id {
			return i
		}
	}
	return -1
}

// Replay passes the active branch to f, oldest first, one message at a time. A
// tool call that was cut off is told as it is.
//
// A driver that keeps an answer as it comes in gives its entries one MessageID:
// assistant entries with the same one, and nothing between them, are chunks and
// come as one message under the first one's id. Entries that do not say so are
// messages of their own, however close they are. Of a message that is very long
// the parts come one after another, under that id.
func (s *Session) Replay(ctx context.Context, f func(Entry) error) error {
	s.mu.RLock()
	branch := s.state.branch(s.state.leaf)
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
