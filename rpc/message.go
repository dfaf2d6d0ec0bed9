package rpc

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"

	"github.com/oino-dev/oinod/protocol"
)

// message is one line from the client, cut into its members. The raw ones
// are parts of the line, so what they hold is as it was spelled.
type message struct {
	id     json.RawMessage // nil: none
	method string          // "": a response
	params json.RawMessage // nil: none, or null
	result json.RawMessage
	err    json.RawMessage // nil: none, or null
}

// isResponse says that the message answers one of our requests.
func (m *message) isResponse() bool { return m.method == "" }

// refusal is why a line is no message, as the peer is told.
type refusal struct {
	code int64
	msg  string
	kind string
}

// parse cuts a line into its members. When it refuses the line, the message
// still has the id to echo, if there was one that can be read.
func parse(line []byte) (message, *refusal) {
	if !utf8.Valid(line) {
		return message{}, &refusal{protocol.CodeParseError, "the line is not UTF-8", ""}
	}
	if !json.Valid(line) {
		return message{}, &refusal{protocol.CodeParseError, "the line is not JSON (or nested too deeply)", ""}
	}
	line = bytes.TrimSpace(line)
	if line[0] == '[' {
		return message{}, invalid("batches are not served: send one object a line")
	}
	if line[0] != '{' {
		return message{}, invalid("a message must be an object")
	}
	var m message
	var method, version json.RawMessage
	for name, value := range members(line) {
		switch name {
		case "id":
			m.id = value
		case "jsonrpc":
			version = value
		case "method":
			method = value
		case "params":
			m.params = notNull(value)
		case "result":
			m.result = value
		case "error":
			m.err = value
		}
	}
	if method == nil {
		if m.result == nil && m.err == nil {
			return m, invalid("the message has no method")
		}
		m.err = notNull(m.err)
		return m, nil
	}
	if method[0] != '"' {
		return m, invalid("method must be a string")
	}
	if m.method = unquote(method); m.method == "" {
		return m, invalid("the message has no method")
	}
	if version != nil && unquote(version) != "2.0" { // forgotten, it does no harm
		return m, invalid(`jsonrpc must be "2.0"`)
	}
	if m.id != nil && !isID(m.id) {
		return m, invalid("id must be a string or a whole number")
	}
	return m, nil
}

func invalid(msg string) *refusal { return &refusal{protocol.CodeInvalidRequest, msg, ""} }

// notNull is value, or nil for null.
func notNull(value json.RawMessage) json.RawMessage {
	if string(value) == "null" {
		return nil
	}
	return value
}

// isID reports whether raw is what JSON-RPC lets a request have as id. The
// specification allows fractions but warns of them; nobody sends one.
func isID(raw []byte) bool {
	if len(raw) > 0 && raw[0] == '"' {
		return json.Valid(raw)
	}
	digits := bytes.TrimPrefix(raw, []byte("-"))
	if len(digits) == 0 {
		return false
	}
	for _, c := range digits {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}

// idKey is the same for two spellings of one id, and tells "12" from 12.
func idKey(raw []byte) string {
	if len(raw) > 0 && raw[0] == '"' {
		return `"` + unquote(raw)
	}
	return string(raw)
}

// unquote is the value of a JSON string, or "".
func unquote(raw []byte) string {
	if isPlain(raw) {
		return string(raw[1 : len(raw)-1]) // nearly always
	}
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

// isPlain reports whether raw is a JSON string that stands for itself: no
// escapes, nothing that would need one.
func isPlain(raw []byte) bool {
	n := len(raw)
	if n < 2 || raw[0] != '"' || raw[n-1] != '"' {
		return false
	}
	for _, c := range raw[1 : n-1] {
		if c < ' ' || c == '"' || c == '\\' {
			return false
		}
	}
	return utf8.Valid(raw)
}

// headID looks for a usable id in the first bytes of a line that is too long
// to be read: a client that waits for an answer by id shall get one.
func headID(head []byte) json.RawMessage {
	head = bytes.TrimLeft(head, " \t\r")
	if !bytes.HasPrefix(head, []byte("{")) {
		return nil
	}
	for name, value := range members(head) {
		if name == "id" && isID(value) && utf8.Valid(value) {
			return value
		}
	}
	return nil
}
