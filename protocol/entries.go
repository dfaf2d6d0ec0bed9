package protocol

import (
	"encoding/json"
	"fmt"
)

// maxState is how many bytes of JSON a driver may keep at an entry.
const maxState = 48 << 20

// AppendParams adds entries to a conversation, all or none.
type AppendParams struct {
	SessionID string        `json:"sessionId"`
	Entries   []AppendEntry `json:"entries"`
}

// AppendEntry is one entry to add.
type AppendEntry struct {
	ID             *string  `json:"id"`
	Role           string   `json:"role"`
	Content        *Content `json:"content"`
	DisplayContent *Content `json:"displayContent"`
	MessageID      string   `json:"messageId"` // of the message that the entry is a chunk of
	ToolEntry
	CompactionEntry
}

// ToolEntry is what an entry of role tool has of its own.
type ToolEntry struct {
	ToolCallID string `json:"toolCallId,omitempty"`
	Status     string `json:"status,omitempty"`
	ToolFields
}

// CompactionEntry is what an entry of role compaction has of its own.
type CompactionEntry struct {
	Summary      string `json:"summary,omitempty"`
	KeepFrom     string `json:"keepFrom,omitempty"`
	TokensBefore int64  `json:"tokensBefore,omitempty"`
	TokensAfter  int64  `json:"tokensAfter,omitempty"`
}

func (p *AppendParams) check() error {
	if err := need("sessionId", p.SessionID); err != nil {
		return err
	}
	if len(p.Entries) == 0 {
		return wrong("entries is missing or empty")
	}
	for i, e := range p.Entries {
		if err := e.check(fmt.Sprintf("entries[%d]", i)); err != nil {
			return err
		}
	}
	return nil
}

func (e *AppendEntry) check(at string) error {
	if err := first(
		need(at+".role", e.Role),
		oneOf(at+".role", e.Role, "user", "assistant", "tool", "compaction", "custom"),
		oneOf(at+".status", e.Status, "pending", "in_progress", "completed", "failed"),
	); err != nil {
		return err
	}
	switch {
	case e.ID != nil && *e.ID == "":
		return wrong("%s.id is empty; leave it out for one of ours", at)
	case e.Role == "tool" && e.ToolCallID == "":
		return wrong("%s.toolCallId is missing", at)
	case e.Role == "compaction" && e.Summary == "" && e.Content == nil:
		return wrong("%s.summary is missing", at)
	case (e.Role == "user" || e.Role == "assistant") && e.Content == nil:
		return wrong("%s.content is missing", at)
	}
	return nil
}

// AppendResult names the entries that were added, in order.
type AppendResult struct {
	EntryIDs []string `json:"entryIds"`
}

// EntriesParams selects entries of the active branch.
type EntriesParams struct {
	SessionID string `json:"sessionId"`
	After     string `json:"after"`
	Limit     *int   `json:"limit"`
	Context   bool   `json:"context"`
}

func (p *EntriesParams) check() error {
	return first(need("sessionId", p.SessionID), notNegative("limit", p.Limit))
}

// EntriesResult is a part of the active branch, oldest first.
type EntriesResult struct {
	Entries  []Entry `json:"entries"`
	LeafID   *string `json:"leafId"` // null in an empty conversation
	Revision int64   `json:"revision"`
	More     bool    `json:"more"`
}

// Entry is one message of a conversation.
type Entry struct {
	ID             string          `json:"id"`
	ParentID       *string         `json:"parentId"` // null for the first
	Role           string          `json:"role"`
	CreatedAt      int64           `json:"createdAt"`
	Content        json.RawMessage `json:"content"`
	DisplayContent json.RawMessage `json:"displayContent,omitempty"`
	MessageID      string          `json:"messageId,omitempty"` // of the message that the entry is a chunk of
	ToolEntry
	CompactionEntry
}

// LabelParams names an entry; a null label takes the name away.
type LabelParams struct {
	SessionID string           `json:"sessionId"`
	EntryID   string           `json:"entryId"`
	Label     Nullable[string] `json:"label"`
}

func (p *LabelParams) check() error {
	if !p.Label.Set {
		return first(need("sessionId", p.SessionID), need("entryId", p.EntryID), wrong("label is missing"))
	}
	return first(need("sessionId", p.SessionID), need("entryId", p.EntryID))
}

// TitleParams names a session; a null title takes the name away.
type TitleParams struct {
	SessionID string           `json:"sessionId"`
	Title     Nullable[string] `json:"title"`
}

func (p *TitleParams) check() error {
	if !p.Title.Set {
		return first(need("sessionId", p.SessionID), wrong("title is missing"))
	}
	return need("sessionId", p.SessionID)
}

// StatePutParams keeps the driver's own state at an entry.
type StatePutParams struct {
	SessionID string          `json:"sessionId"`
	EntryID   string          `json:"entryId"`
	State     json.RawMessage `json:"state"`
}

func (p *StatePutParams) check() error {
	switch {
	case p.State == nil:
		return first(need("sessionId", p.SessionID), wrong("state is missing"))
	case len(p.State) > maxState:
		return wrong("state is %d bytes of JSON, at most %d can be kept", len(p.State), maxState)
	}
	return need("sessionId", p.SessionID)
}

// StatePutResult says at which entry the state was kept.
type StatePutResult struct {
	EntryID string `json:"entryId"`
}

// StateGetParams asks for the state of the nearest entry at or above one.
type StateGetParams struct {
	SessionID string `json:"sessionId"`
	EntryID   string `json:"entryId"`
}

func (p *StateGetParams) check() error { return need("sessionId", p.SessionID) }

// StateGetResult is a state and the entry that has it.
type StateGetResult struct {
	EntryID string          `json:"entryId"`
	State   json.RawMessage `json:"state"`
}
