package protocol

import "encoding/json"

// Implementation names a program.
type Implementation struct {
	Name    string `json:"name"`
	Title   string `json:"title,omitempty"`
	Version string `json:"version"`
}

// InitializeParams is what a client says of itself.
type InitializeParams struct {
	ProtocolVersion    *int               `json:"protocolVersion"`
	ClientCapabilities ClientCapabilities `json:"clientCapabilities"`
	ClientInfo         *Implementation    `json:"clientInfo"`
}

// ClientCapabilities is what a client can do, as far as we ask for it.
type ClientCapabilities struct {
	Meta *Meta[ClientExtension] `json:"_meta"`
}

// ClientExtension is what a client wants to hear of us.
type ClientExtension struct {
	SessionBeforeFork bool `json:"sessionBeforeFork"`
	Events            bool `json:"events"`
}

func (p *InitializeParams) check() error {
	if p.ProtocolVersion == nil {
		return wrong("protocolVersion is missing")
	}
	return nil
}

// InitializeResult is what we say of ourselves.
type InitializeResult struct {
	ProtocolVersion   int               `json:"protocolVersion"`
	AgentInfo         Implementation    `json:"agentInfo"`
	AgentCapabilities AgentCapabilities `json:"agentCapabilities"`
	AuthMethods       []json.RawMessage `json:"authMethods"`
}

// AgentCapabilities is what we can do.
type AgentCapabilities struct {
	LoadSession         bool                  `json:"loadSession"`
	PromptCapabilities  PromptCapabilities    `json:"promptCapabilities"`
	SessionCapabilities SessionCapabilities   `json:"sessionCapabilities"`
	Meta                *Meta[AgentExtension] `json:"_meta,omitempty"`
}

// PromptCapabilities is what a prompt may hold.
type PromptCapabilities struct {
	Image           bool `json:"image"`
	Audio           bool `json:"audio"`
	EmbeddedContext bool `json:"embeddedContext"`
}

// SessionCapabilities is which session methods are served: an object, empty
// for now, says yes.
type SessionCapabilities struct {
	List                  struct{} `json:"list"`
	Resume                struct{} `json:"resume"`
	Close                 struct{} `json:"close"`
	Delete                struct{} `json:"delete"`
	Fork                  struct{} `json:"fork"`
	AdditionalDirectories struct{} `json:"additionalDirectories"`
}

// AgentExtension is what we offer beyond ACP.
type AgentExtension struct {
	Version  int      `json:"version"`
	Methods  []string `json:"methods"` // of those "_oino/", the ones that are served
	Tracking []string `json:"tracking"`
	Limits   any      `json:"limits"`
}

// NewParams asks for a new session.
type NewParams struct {
	Cwd                   string              `json:"cwd"`
	AdditionalDirectories []string            `json:"additionalDirectories"`
	MCPServers            []json.RawMessage   `json:"mcpServers"` // typed, and otherwise none of our business
	Meta                  *Meta[NewExtension] `json:"_meta"`
}

// NewExtension says how the session is kept.
type NewExtension struct {
	Tracking string // which there are is not the wire's to say
	Wished   bool   // tracking was given
	Persist  *bool
}

// UnmarshalJSON notes whether there is a wish.
func (e *NewExtension) UnmarshalJSON(b []byte) error {
	var f struct {
		Tracking *string `json:"tracking"`
		Persist  *bool   `json:"persist"`
	}
	if err := json.Unmarshal(exactly(b, &f), &f); err != nil {
		return err
	}
	if *e = (NewExtension{Persist: f.Persist}); f.Tracking != nil {
		e.Tracking, e.Wished = *f.Tracking, true
	}
	return nil
}

func (p *NewParams) check() error { return need("cwd", p.Cwd) }

// NewResult is a session that was made.
type NewResult struct {
	SessionID string                  `json:"sessionId"`
	Meta      *Meta[SessionExtension] `json:"_meta,omitempty"`
}

// SessionExtension is how a session's changes are seen.
type SessionExtension struct {
	Tracking string    `json:"tracking"`
	Coverage *Coverage `json:"coverage,omitempty"`
}

// Coverage says whether a workspace is seen whole.
type Coverage struct {
	Complete bool   `json:"complete"`
	Reason   string `json:"reason,omitempty"`
}

// OpenParams asks for a stored session: load or resume.
type OpenParams struct {
	SessionID             string            `json:"sessionId"`
	Cwd                   string            `json:"cwd"`
	AdditionalDirectories []string          `json:"additionalDirectories"`
	MCPServers            []json.RawMessage `json:"mcpServers"`
}

func (p *OpenParams) check() error {
	return first(need("sessionId", p.SessionID), need("cwd", p.Cwd))
}

// SessionParams names a session and nothing else.
type SessionParams struct {
	SessionID string `json:"sessionId"`
}

func (p *SessionParams) check() error { return need("sessionId", p.SessionID) }

// ListParams asks for a page of sessions.
type ListParams struct {
	Cwd    string `json:"cwd"`
	Cursor string `json:"cursor"`
}

// ListResult is a page of sessions, newest activity first.
type ListResult struct {
	Sessions   []SessionInfo `json:"sessions"`
	NextCursor string        `json:"nextCursor,omitempty"`
}

// SessionInfo is one session in a list.
type SessionInfo struct {
	SessionID             string               `json:"sessionId"`
	Cwd                   string               `json:"cwd"`
	AdditionalDirectories []string             `json:"additionalDirectories,omitempty"`
	Title                 string               `json:"title,omitempty"`
	UpdatedAt             string               `json:"updatedAt"` // ISO 8601
	Meta                  *Meta[InfoExtension] `json:"_meta,omitempty"`
}

// InfoExtension is what ACP's SessionInfo does not say.
type InfoExtension struct {
	CreatedAt       int64  `json:"createdAt"`
	Entries         int    `json:"entries"`
	LastUserMessage string `json:"lastUserMessage,omitempty"`
	ParentSessionID string `json:"parentSessionId,omitempty"`
	Agent           string `json:"agent,omitempty"`
	Problem         string `json:"problem,omitempty"`
	ImportedFrom    string `json:"importedFrom,omitempty"`
}

// ForkSessionParams asks for ACP's fork, with our anchor.
type ForkSessionParams struct {
	SessionID             string            `json:"sessionId"`
	Cwd                   string            `json:"cwd"`
	AdditionalDirectories []string          `json:"additionalDirectories"`
	MCPServers            []json.RawMessage `json:"mcpServers"`
	Meta                  *Meta[ForkAnchor] `json:"_meta"`
}

// ForkAnchor is where a conversation is cut.
type ForkAnchor struct {
	EntryID  string `json:"entryId"`
	Position string `json:"position"`
}

func (p *ForkSessionParams) check() error {
	return first(
		need("sessionId", p.SessionID),
		need("cwd", p.Cwd),
		oneOf("_meta.oino.position", p.Meta.Of().Position, "before", "at"),
	)
}

// ForkSessionResult is a fork that was made.
type ForkSessionResult struct {
	SessionID string               `json:"sessionId"`
	Meta      *Meta[ForkExtension] `json:"_meta,omitempty"`
}

// ForkExtension is what ACP's answer to a fork does not say.
type ForkExtension struct {
	Text  *string  `json:"text,omitempty"`
	Ahead []string `json:"ahead,omitempty"`
}

// PromptParams is a message of the user.
type PromptParams struct {
	SessionID string `json:"sessionId"`
	Prompt    Blocks `json:"prompt"`
}

func (p *PromptParams) check() error {
	if p.Prompt == nil {
		return first(need("sessionId", p.SessionID), wrong("prompt is missing"))
	}
	return need("sessionId", p.SessionID)
}

// Why a prompt was answered.
const (
	EndTurn   = "end_turn"
	Cancelled = "cancelled"
)

// PromptResult ends a prompt's request.
type PromptResult struct {
	StopReason string                 `json:"stopReason"`
	Meta       *Meta[PromptExtension] `json:"_meta,omitempty"`
}

// PromptExtension says which entry the message became. TurnOpen is true
// where whoever drives the session now plays the agent's part.
type PromptExtension struct {
	EntryID  string `json:"entryId"`
	TurnOpen bool   `json:"turnOpen"`
}

// CancelRequestParams names a request to give up.
type CancelRequestParams struct {
	RequestID json.RawMessage `json:"requestId"`
}

// Empty is the result of a method that has nothing to say.
type Empty struct{}
