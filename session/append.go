package session

import (
	"context"
	"encoding/json"
)

// Prompt appends a user entry with content (blocks), ends the turn before it
// and opens a new one.
func (s *Session) Prompt(ctx context.Context, content json.RawMessage) (Entry, error) {
	ids, err := s.Append(ctx, []NewEntry{{Role: User, Content: content}})
	if err != nil {
		return Entry{}, err
	}
	s.mu.RLock()
	n := s.state.nodes[ids[0]]
	s.mu.RUnlock()
	return Entry{ID: n.id, ParentID: n.parentID, Role: User, CreatedAt: n.createdAt, Content: content}, nil
}

// Append appends entries, all or none; one of role user opens a turn as
// Prompt does.
func (s *Session) Append(ctx context.Context, entries []NewEntry) (ids []string, err error) {
	end, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	records, err := s.entryRecords(entries)
	if err != nil {
		return nil, err
	}
	if len(records) == 0 {
		return []string{}, nil
	}
	var all []any
	turn := "" // the one that will be open
	for _, r := range records {
		ids = append(ids, r.ID)
		if r.Role == User {
			turn = r.ID
		}
	}
	var seen *seenRecord
	if turn != "" {
		if all, seen, err = s.turnOver(ctx, turn); err != nil {
			return nil, err
		}
	}
	for _, r := range records {
		all = append(all, r)
	}
	if seen != nil {
		all = append(all, seen)
	}
	if err := s.commit(all...); err != nil {
		return nil, err
	}
	if turn != "" {
		s.letGo(ctx)
	}
	for _, r := range records {
		if r.Role == User {
			s.emit("checkpoint", map[string]any{"entryId": r.ID})
		}
	}
	return ids, nil
}

// entryRecords checks entries to append and makes their records, each below
// the one before.
func (s *Session) entryRecords(entries []NewEntry) ([]*entryRecord, error) {
	parent := ""
	if s.state.leaf != nil {
		parent = s.state.leaf.id
	}
	given := map[string]bool{}
	var records []*entryRecord
	for i, e := range entries {
		switch e.Role {
		case User, Assistant, Tool, Compaction, Custom:
		default:
			return nil, refuse(BadParams, "entries[%d] has role %q; the roles are user, assistant, tool, compaction and custom", i, e.Role)
		}
		switch {
		case e.ID == "":
			e.ID = s.reg.newID()
		case !validID(e.ID):
			return nil, refuse(BadParams, "entries[%d] has id %q; an id is 1 to 128 of A-Z a-z 0-9 . _ : -", i, e.ID)
		case e.ID == Start:
			return nil, refuse(BadParams, "entries[%d] has id %q, which names the state before the first turn", i, e.ID)
		}
		if s.state.nodes[e.ID] != nil || given[e.ID] {
			return nil, refuse(BadParams, "entries[%d] has id %q, which the session has already", i, e.ID)
		}
		given[e.ID] = true
		if e.Role == Compaction && len(e.Content) == 0 {
			e.Content, _ = encodeJSON(e.Summary)
		}
		content, err := asBlocks(e.Content)
		if err != nil {
			return nil, refuse(BadParams, "entries[%d]: %v", i, err)
		}
		if e.Display != nil {
			if e.Display, err = asBlocks(e.Display); err != nil {
				return nil, refuse(BadParams, "entries[%d]: displayContent: %v", i, err)
			}
		}
		if len(e.MessageID) > 128 {
			return nil, refuse(BadParams, "entries[%d] has a messageId of %d bytes; at most 128 are kept", i, len(e.MessageID))
		}
		if e.Role == Tool && e.ToolCallID == "" {
			return nil, refuse(BadParams, "entries[%d] of role tool has no toolCallId", i)
		}
		if e.Role == Compaction && e.KeepFrom != "" && s.state.nodes[e.KeepFrom] == nil && !given[e.KeepFrom] {
			return nil, refuse(EntryNotFound, "entries[%d] keeps from entry %q, which the session does not have", i, e.KeepFrom)
		}
		records = append(records, &entryRecord{
			Type: "entry", ID: e.ID, ParentID: parent, Role: e.Role, CreatedAt: s.now(),
			Content: content, Display: e.Display, ToolCallID: e.ToolCallID, Status: e.Status, Tool: e.Tool,
			Summary: e.Summary, KeepFrom: e.KeepFrom, TokensBefore: e.TokensBefore, TokensAfter: e.TokensAfter,
			MessageID: e.MessageID, Told: e.Told,
		})
		parent = e.ID
	}
	return records, nil
}

// validID reports whether a client may give an entry this id.
func validID(id string) bool {
	if id == "" || len(id) > 128 {
		return false
	}
	for _, c := range []byte(id) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '_', c == ':', c == '-':
		default:
			return false
		}
	}
	return true
}
