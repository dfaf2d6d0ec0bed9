package rpc

import (
	"bytes"
	"encoding/binary"
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
	return isQuoted(raw) && plainLen(raw[1:len(raw)-1]) == len(raw)-2 && utf8.Valid(raw)
}

// isString reports whether raw is one whole JSON string.
func isString(raw []byte) bool {
	if !isQuoted(raw) {
		return false
	}
	for rest := raw[1 : len(raw)-1]; ; {
		if rest = rest[plainLen(rest):]; len(rest) == 0 {
			return utf8.Valid(raw)
		}
		n := escapeLen(rest)
		if n == 0 {
			return false
		}
		rest = rest[n:]
	}
}

func isQuoted(raw []byte) bool {
	return len(raw) > 1 && raw[0] == '"' && raw[len(raw)-1] == '"'
}

// escapeLen is how long the escape is that b begins with; 0: none that is one.
func escapeLen(b []byte) int {
	if len(b) < 2 || b[0] != '\\' {
		return 0
	}
	switch b[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		if len(b) < 6 {
			return 0
		}
		for _, c := range b[2:6] {
			if !('0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'f') {
				return 0
			}
		}
		return 6
	}
	return 0
}

// plainLen is how many bytes b begins with that a JSON string can hold as they
// are. It looks at eight at a time: all that an agent says goes through here.
func plainLen(b []byte) (n int) {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	for ; n+8 <= len(b); n += 8 {
		v := binary.LittleEndian.Uint64(b[n:])
		quote, slash := v^'"'*ones, v^'\\'*ones
		// A byte of x is less than m where (x - m*ones) borrows into a high bit
		// that x does not have.
		if ((v-' '*ones)&^v|(quote-ones)&^quote|(slash-ones)&^slash)&highs != 0 {
			break
		}
	}
	for n < len(b) && b[n] >= ' ' && b[n] != '"' && b[n] != '\\' {
		n++
	}
	return n
}

// endsID looks for a usable id in what the ends of a line say that is too long
// to be read: a client that waits for an answer by id shall get one.
func endsID(ends []byte) json.RawMessage {
	for name, value := range members(ends) {
		if name == "id" && isID(value) && utf8.Valid(value) {
			return value
		}
	}
	return nil
}
