package session

import (
	"bytes"
	"encoding/json"
)

// skim decodes the object of a line for the fold, which needs nothing of what
// was said but by the user: in a large log that is nearly all bytes. The line
// has been verified, so it is what encodeRecord made, and what it says can be
// stepped over without being looked at. Anything else is decoded whole.
func skim(object []byte) (any, error) {
	if r, ok := skimEntry(object); ok {
		return r, nil
	}
	return decodeRecord(object)
}

// skimEntry decodes an entry without its content.
func skimEntry(object []byte) (*entryRecord, bool) {
	rest, ok := bytes.CutPrefix(object, []byte(`{"type":"entry",`))
	if !ok {
		return nil, false
	}
	r := &entryRecord{Type: "entry"}
	for {
		var key, value []byte
		if key, rest, ok = cutString(rest); !ok || len(rest) < 2 || rest[0] != ':' {
			return nil, false
		}
		if value, rest, ok = cutValue(rest[1:]); !ok || len(rest) == 0 {
			return nil, false
		}
		var to any
		switch string(key) {
		case `"id"`:
			to = &r.ID
		case `"parentId"`:
			to = &r.ParentID
		case `"role"`:
			to = &r.Role
		case `"createdAt"`:
			to = &r.CreatedAt
		case `"toolCallId"`:
			to = &r.ToolCallID
		case `"status"`:
			to = &r.Status
		case `"keepFrom"`:
			to = &r.KeepFrom
		case `"content"`, `"displayContent"`, `"tool"`, `"summary"`, `"tokensBefore"`, `"tokensAfter"`, `"messageId"`:
		default:
			return nil, false
		}
		if to != nil && json.Unmarshal(value, to) != nil || r.Role == User {
			return nil, false
		}
		if rest[0] == '}' {
			return r, len(rest) == 1 && r.ID != "" && r.Role != ""
		}
		if rest[0] != ',' {
			return nil, false
		}
		rest = rest[1:]
	}
}

// cutString splits b behind the JSON string that it begins with.
func cutString(b []byte) (s, rest []byte, ok bool) {
	if len(b) == 0 || b[0] != '"' {
		return nil, nil, false
	}
	for at := 1; ; {
		i := bytes.IndexByte(b[at:], '"')
		if i < 0 {
			return nil, nil, false
		}
		end := at + i
		slashes := 0
		for b[end-1-slashes] == '\\' {
			slashes++
		}
		at = end + 1
		if slashes%2 == 0 {
			return b[:at], b[at:], true
		}
	}
}

// cutValue splits b behind the JSON value that it begins with.
func cutValue(b []byte) (value, rest []byte, ok bool) {
	depth := 0
	for at := 0; at < len(b); {
		switch b[at] {
		case '"':
			s, _, ok := cutString(b[at:])
			if !ok {
				return nil, nil, false
			}
			at += len(s)
			if depth == 0 {
				return b[:at], b[at:], true
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return b[:at], b[at:], at > 0
			}
			depth--
			if depth == 0 {
				return b[:at+1], b[at+1:], true
			}
		case ',':
			if depth == 0 {
				return b[:at], b[at:], at > 0
			}
		}
		at++
	}
	return nil, nil, false
}
