package protocol

import "encoding/json"

// UpdateParams is a session/update notification. Update is one of the types
// below; a variant that ACP does not know must never be sent, since clients
// drop or garble it.
type UpdateParams struct {
	SessionID string `json:"sessionId"`
	Update    any    `json:"update"`
}

// Variants of updates.
const (
	UserMessageChunk        = "user_message_chunk"
	AgentMessageChunk       = "agent_message_chunk"
	ToolCallStart           = "tool_call"
	ToolCallUpdate          = "tool_call_update"
	AvailableCommandsUpdate = "available_commands_update"
	SessionInfoUpdate       = "session_info_update"
	UserMessage             = "user_message"  // of version 2: a whole message
	AgentMessage            = "agent_message" // of version 2: a whole message
	StateUpdate             = "state_update"  // of version 2: whether the agent works
)

// Chunk is a piece of a message: UserMessageChunk or AgentMessageChunk.
type Chunk struct {
	SessionUpdate string `json:"sessionUpdate"`
	MessageID     string `json:"messageId,omitempty"`
	Content       Block  `json:"content"`
}

// ToolFields is what a tool call says of itself, beside its id and status.
type ToolFields struct {
	Title     string            `json:"title,omitempty"`
	Kind      string            `json:"kind,omitempty"`
	Locations []json.RawMessage `json:"locations,omitempty"`
	RawInput  json.RawMessage   `json:"rawInput,omitempty"`
	RawOutput json.RawMessage   `json:"rawOutput,omitempty"`
}

// ToolCall is a tool_call or tool_call_update, or (without SessionUpdate) the tool call
// that a permission is asked for.
type ToolCall struct {
	SessionUpdate string `json:"sessionUpdate,omitempty"`
	ToolCallID    string `json:"toolCallId"`
	Status        string `json:"status,omitempty"`
	ToolFields
	Content []any `json:"content,omitempty"`
}

// ToolContent is a content block in a tool call.
type ToolContent struct {
	Type    string `json:"type"` // content
	Content Block  `json:"content"`
}

// ToolDiff is a file's change in a tool call.
type ToolDiff struct {
	Type    string  `json:"type"` // diff
	Path    string  `json:"path"`
	OldText *string `json:"oldText"` // null for a file that was made
	NewText string  `json:"newText"`
}

// Commands announces slash commands.
type Commands struct {
	SessionUpdate     string    `json:"sessionUpdate"` // AvailableCommandsUpdate
	AvailableCommands []Command `json:"availableCommands"`
}

// Command is one slash command.
type Command struct {
	Name        string        `json:"name"`
	Description string        `json:"description"`
	Input       *CommandInput `json:"input,omitempty"`
}

// CommandInput says what may follow the command's name.
type CommandInput struct {
	Hint string `json:"hint"`
}

// InfoUpdate says a session's new title; null where it has none.
type InfoUpdate struct {
	SessionUpdate string  `json:"sessionUpdate"` // SessionInfoUpdate
	Title         *string `json:"title"`
}

// PermissionParams asks the user to choose.
type PermissionParams struct {
	SessionID string             `json:"sessionId"`
	ToolCall  ToolCall           `json:"toolCall"`
	Options   []PermissionOption `json:"options"`
}

// PermissionParams2 is PermissionParams in version 2 of the protocol.
type PermissionParams2 struct {
	SessionID string             `json:"sessionId"`
	Title     string             `json:"title"`
	Subject   PermissionSubject  `json:"subject"`
	Options   []PermissionOption `json:"options"`
}

// PermissionSubject is what a permission is asked for, in version 2.
type PermissionSubject struct {
	Type     string   `json:"type"` // tool_call
	ToolCall ToolCall `json:"toolCall"`
}

// PermissionOption is one choice.
type PermissionOption struct {
	OptionID string `json:"optionId"`
	Name     string `json:"name"`
	Kind     string `json:"kind"` // AllowOnce or RejectOnce, a hint for icons
}

// Kinds of choices.
const (
	AllowOnce  = "allow_once"
	RejectOnce = "reject_once"
)

// PermissionResult is what the user chose.
type PermissionResult struct {
	Outcome struct {
		Outcome  string `json:"outcome"` // selected or cancelled
		OptionID string `json:"optionId"`
	} `json:"outcome"`
}
