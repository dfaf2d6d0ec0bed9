package protocol

import "encoding/base64"

// RecordParams captures paths before somebody else changes them.
type RecordParams struct {
	SessionID string   `json:"sessionId"`
	Paths     []string `json:"paths"`
	EntryID   string   `json:"entryId"`
}

func (p *RecordParams) check() error {
	if p.Paths == nil {
		return first(need("sessionId", p.SessionID), wrong("paths is missing"))
	}
	return need("sessionId", p.SessionID)
}

// RecordResult says what was captured now, what was before, and what could not be.
type RecordResult struct {
	EntryID   string      `json:"entryId"`
	Recorded  []string    `json:"recorded"`
	Known     []string    `json:"known"`
	Uncovered []Uncovered `json:"uncovered"`
}

// Uncovered is a path whose state could not be kept.
type Uncovered struct {
	Path   string `json:"path"`
	Reason string `json:"reason"`
	Error  string `json:"error,omitempty"`
}

// WriteParams replaces a file, by text or by bytes.
type WriteParams struct {
	SessionID string  `json:"sessionId"`
	Path      string  `json:"path"`
	Content   *string `json:"content"`
	Data      *string `json:"data"` // base64
}

func (p *WriteParams) check() error {
	if err := first(need("sessionId", p.SessionID), need("path", p.Path)); err != nil {
		return err
	}
	switch {
	case p.Content == nil && p.Data == nil:
		return wrong("content (or data, in base64) is missing")
	case p.Content != nil && p.Data != nil:
		return wrong("content and data are both given; a file has one of them")
	}
	return nil
}

// Bytes is what the file shall hold.
func (p *WriteParams) Bytes() ([]byte, error) {
	if p.Content != nil {
		return []byte(*p.Content), nil
	}
	b, err := base64.StdEncoding.DecodeString(*p.Data)
	if err != nil {
		return nil, wrong("data is not base64: %v", err)
	}
	return b, nil
}

// WriteResult says what a write did.
type WriteResult struct {
	EntryID   string      `json:"entryId"`
	Existed   bool        `json:"existed"`
	Bytes     int64       `json:"bytes"`
	Uncovered []Uncovered `json:"uncovered,omitempty"`
}

// EditParams replaces parts of a file, all or none.
type EditParams struct {
	SessionID string        `json:"sessionId"`
	Path      string        `json:"path"`
	Edits     []Replacement `json:"edits"`
}

// Replacement is one edit.
type Replacement struct {
	OldText    *string `json:"oldText"`
	NewText    *string `json:"newText"`
	ReplaceAll bool    `json:"replaceAll"`
}

func (p *EditParams) check() error {
	if err := first(need("sessionId", p.SessionID), need("path", p.Path)); err != nil {
		return err
	}
	if len(p.Edits) == 0 {
		return wrong("edits is missing or empty")
	}
	for i, e := range p.Edits {
		switch {
		case e.OldText == nil:
			return wrong("edits[%d].oldText is missing", i)
		case e.NewText == nil:
			return wrong("edits[%d].newText is missing", i)
		}
	}
	return nil
}

// EditResult says what an edit did.
type EditResult struct {
	EntryID      string `json:"entryId"`
	Replacements int    `json:"replacements"`
}

// PathChange is what happened to a path: created, modified or deleted.
type PathChange struct {
	Path   string `json:"path"`
	Change string `json:"change"`
}

// TurnEndResult is what a turn did.
type TurnEndResult struct {
	EntryID   string       `json:"entryId"`
	Changed   []PathChange `json:"changed"`
	Uncovered []Uncovered  `json:"uncovered,omitempty"`
}

// CheckpointsResult is what can be rewound to, oldest first.
type CheckpointsResult struct {
	Checkpoints []Checkpoint `json:"checkpoints"`
}

// Checkpoint is the point before a user entry.
type Checkpoint struct {
	EntryID   string           `json:"entryId"`
	CreatedAt int64            `json:"createdAt"`
	Files     []CheckpointFile `json:"files"`
	Text      string           `json:"text,omitempty"`
	Label     string           `json:"label,omitempty"`
	Uncovered []Uncovered      `json:"uncovered,omitempty"`
}

// CheckpointFile is a path that the checkpoint's turn changed.
type CheckpointFile struct {
	Path    string `json:"path"`
	Existed bool   `json:"existed"`
}

// DiffParams selects what is compared with now.
type DiffParams struct {
	SessionID string   `json:"sessionId"`
	EntryID   string   `json:"entryId"`
	Paths     []string `json:"paths"`
	Context   *int     `json:"context"`
}

func (p *DiffParams) check() error {
	return first(need("sessionId", p.SessionID), need("entryId", p.EntryID),
		notEmpty("paths", p.Paths), notNegative("context", p.Context))
}

// DiffResult is what changed since a checkpoint.
type DiffResult struct {
	Files []FileDiff `json:"files"`
}

// FileDiff is how one path changed.
type FileDiff struct {
	Path      string `json:"path"`
	Change    string `json:"change"`
	Additions int    `json:"additions"`
	Deletions int    `json:"deletions"`
	Binary    bool   `json:"binary"`
	Patch     string `json:"patch,omitempty"`
}

// StatsResult counts what the agent directory holds.
type StatsResult struct {
	Sessions    int    `json:"sessions"`
	Checkpoints int    `json:"checkpoints"`
	Blobs       int    `json:"blobs"`
	Bytes       int64  `json:"bytes"`
	Limits      any    `json:"limits"`
	Version     string `json:"version"`
}
