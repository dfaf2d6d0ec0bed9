package rpc

import (
	"bytes"
	"encoding/json"
	"iter"
	"unicode/utf8"
)

// members gives the members of a JSON object in order, repeated names
// included, without copying a value. encoding/json would copy params of many
// megabytes twice, match names whatever their case, and refuse a part of an
// object; for one that is not whole or not valid this ends early.
func members(object []byte) iter.Seq2[string, json.RawMessage] {
	return func(yield func(string, json.RawMessage) bool) {
		for name, at := range spans(object) {
			if !yield(name, object[at.from:at.to:at.to]) {
				return
			}
		}
	}
}

// span is where a value stands in the bytes that hold it.
type span struct{ from, to int }

// of is the value itself; nil where there is none.
func (p span) of(b []byte) json.RawMessage {
	if p.to == 0 {
		return nil
	}
	return b[p.from:p.to:p.to]
}

// spans is members by where their values stand, so that one can be replaced
// and every other byte kept.
func spans(object []byte) iter.Seq2[string, span] {
	return func(yield func(string, span) bool) {
		if len(object) == 0 || object[0] != '{' {
			return
		}
		i := 1 // after the brace
		for {
			i = skipSpace(object, i)
			if i >= len(object) || object[i] != '"' {
				return
			}
			end := valueEnd(object, i)
			if end < 0 {
				return
			}
			name := object[i:end]
			i = skipSpace(object, end)
			if i >= len(object) || object[i] != ':' {
				return
			}
			i = skipSpace(object, i+1)
			end = valueEnd(object, i)
			if end < 0 {
				return
			}
			if !yield(memberName(name), span{i, end}) {
				return
			}
			i = skipSpace(object, end)
			if i >= len(object) || object[i] != ',' {
				return
			}
			i++
		}
	}
}

// memberName is the value of a quoted name; nearly all have no escapes, and
// the usual ones are not worth an allocation.
func memberName(quoted []byte) string {
	switch string(quoted[1 : len(quoted)-1]) {
	case "jsonrpc":
		return "jsonrpc"
	case "id":
		return "id"
	case "method":
		return "method"
	case "params":
		return "params"
	case "result":
		return "result"
	case "sessionId":
		return "sessionId"
	case "update":
		return "update"
	case "sessionUpdate":
		return "sessionUpdate"
	case "content":
		return "content"
	case "type":
		return "type"
	case "text":
		return "text"
	case "toolCallId":
		return "toolCallId"
	case "messageId":
		return "messageId"
	}
	if bytes.IndexByte(quoted, '\\') < 0 && utf8.Valid(quoted) {
		return string(quoted[1 : len(quoted)-1])
	}
	return unquote(quoted)
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\r' || b[i] == '\n') {
		i++
	}
	return i
}

// valueEnd is the index after the JSON value that starts at b[i], or -1 where
// b ends before it does.
func valueEnd(b []byte, i int) int {
	if i >= len(b) {
		return -1
	}
	switch b[i] {
	case '"':
		return stringEnd(b, i)
	case '{', '[':
		depth := 0
		for i < len(b) {
			switch b[i] {
			case '"':
				if i = stringEnd(b, i); i < 0 {
					return -1
				}
				continue
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return i + 1
				}
			}
			i++
		}
		return -1
	}
	n := bytes.IndexAny(b[i:], ",}] \t\r\n")
	if n <= 0 {
		return -1
	}
	return i + n
}

// stringEnd is the index after the string that starts with the quote at b[i],
// or -1.
func stringEnd(b []byte, i int) int {
	for i++; i < len(b); {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			return -1
		}
		backslashes := 0
		for j := i + n - 1; j >= i && b[j] == '\\'; j-- {
			backslashes++
		}
		if i += n + 1; backslashes%2 == 0 {
			return i
		}
	}
	return -1
}
