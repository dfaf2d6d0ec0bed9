package protocol

// Codes of JSON-RPC errors. Which error has which code is decided in one
// place, package rpc's wireError.
const (
	CodeParseError     = -32700
	CodeInvalidRequest = -32600
	CodeMethodNotFound = -32601
	CodeInvalidParams  = -32602
	CodeInternalError  = -32603
	CodeNotFound       = -32002 // ACP: resource not found
	CodeCancelled      = -32800 // ACP: request cancelled
	CodeRefused        = -32010 // locked, running, or an objection
	CodeConflict       = -32011
	CodeStorage        = -32012
)

// Kinds of errors that arise on the wire itself. The others are named by the
// packages below that find them.
const (
	KindMessageTooLarge = "message_too_large"
	KindBadPath         = "bad_path"
	KindForkCancelled   = "fork_cancelled"
	KindTooManyRequests = "too_many_requests"
)

// ErrorData is what an error's data carries at least.
type ErrorData struct {
	Kind string `json:"kind"`
}
