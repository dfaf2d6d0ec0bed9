package protocol

// RewindParams says what to bring back, and how.
type RewindParams struct {
	SessionID    string   `json:"sessionId"`
	EntryID      string   `json:"entryId"`
	Conversation string   `json:"conversation"` // keep, rewind or fork
	Fork         bool     `json:"fork"`         // the same as conversation "fork"
	DryRun       bool     `json:"dryRun"`
	Paths        []string `json:"paths"`
	Scope        string   `json:"scope"`      // turns or all
	OnConflict   string   `json:"onConflict"` // keep, merge, overwrite or fail
}

func (p *RewindParams) check() error {
	if p.Fork && p.Conversation != "" && p.Conversation != "fork" {
		return wrong("fork is true and conversation is %q: they contradict each other", p.Conversation)
	}
	if p.Fork {
		p.Conversation = "fork"
	}
	return first(
		need("sessionId", p.SessionID),
		need("entryId", p.EntryID),
		oneOf("conversation", p.Conversation, "keep", "rewind", "fork"),
		oneOf("scope", p.Scope, "turns", "all"),
		checkOnConflict(p.OnConflict),
		notEmpty("paths", p.Paths),
	)
}

func checkOnConflict(v string) error {
	return oneOf("onConflict", v, "keep", "merge", "overwrite", "fail")
}

// RedoParams says how to undo the newest rewind.
type RedoParams struct {
	SessionID  string `json:"sessionId"`
	OnConflict string `json:"onConflict"`
}

func (p *RedoParams) check() error {
	return first(need("sessionId", p.SessionID), checkOnConflict(p.OnConflict))
}

// RewindResult is what a rewind or a redo did, or would do.
type RewindResult struct {
	Restored    []string        `json:"restored"`
	Deleted     []string        `json:"deleted"`
	Merged      []string        `json:"merged,omitempty"`
	Failed      []Failure       `json:"failed,omitempty"`
	Uncovered   []Uncovered     `json:"uncovered,omitempty"`
	Unchecked   []string        `json:"unchecked,omitempty"`
	Outside     []OutsideChange `json:"outside,omitempty"`
	OutsideMore int             `json:"outsideMore,omitempty"`
	Turns       *int            `json:"turns,omitempty"`     // absent when cancelled
	Remaining   *int            `json:"remaining,omitempty"` // of a redo
	Text        *string         `json:"text,omitempty"`
	SessionID   string          `json:"sessionId,omitempty"`
	Cancelled   bool            `json:"cancelled"`
	Reason      string          `json:"reason,omitempty"`
	Files       *[]FileDiff     `json:"files,omitempty"` // of a dry run
}

// Failure is a path that did not come back.
type Failure struct {
	Path  string `json:"path"`
	Error string `json:"error"`
	Code  string `json:"code"`
}

// OutsideChange is a change that no turn of this session made.
type OutsideChange struct {
	Path      string `json:"path"`
	Change    string `json:"change"`
	SessionID string `json:"sessionId,omitempty"` // of the session that claimed it
}

// ForkParams says where to fork.
type ForkParams struct {
	SessionID string `json:"sessionId"`
	ForkAnchor
}

func (p *ForkParams) check() error {
	return first(need("sessionId", p.SessionID), oneOf("position", p.Position, "before", "at"))
}

// ForkResult is a fork that was made, or why not.
type ForkResult struct {
	SessionID string   `json:"sessionId,omitempty"`
	Text      *string  `json:"text,omitempty"`
	Cancelled bool     `json:"cancelled"`
	Reason    string   `json:"reason,omitempty"`
	Ahead     []string `json:"ahead,omitempty"`
}
