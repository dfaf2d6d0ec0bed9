package rpc

import (
	"bytes"
	"encoding/json"
)

// What is passed on is never decoded and encoded again: it is read where it
// lies, and of the few lines that have to say something else the bytes in
// question are exchanged.

// envelope is where the members of a message stand in its line. Nothing is
// checked: a line that is no message has none of them.
type envelope struct {
	line                            []byte
	id, method, params, result, err span
	session, update                 span // of params, once openParams was called
}

func openLine(line []byte) envelope {
	e := envelope{line: line}
	from := skipSpace(line, 0)
	for name, at := range spans(line[from:]) {
		at.from, at.to = at.from+from, at.to+from
		switch name {
		case "id":
			e.id = at
		case "method":
			e.method = at
		case "params":
			e.params = at
		case "result":
			e.result = at
		case "error":
			e.err = at
		}
	}
	return e
}

// name is the method; "" of an answer, and of what is no message.
func (e *envelope) name() string {
	raw := e.method.of(e.line)
	if len(raw) < 2 {
		return ""
	}
	switch string(raw[1 : len(raw)-1]) { // the usual ones are not worth an allocation
	case "session/update":
		return "session/update"
	case "session/prompt":
		return "session/prompt"
	}
	return unquote(raw)
}

// isAnswer reports whether the line answers a request.
func (e *envelope) isAnswer() bool {
	return e.method.to == 0 && e.id.to > 0 && (e.result.to > 0 || e.err.to > 0)
}

// key is what the id of a request is known by; "" is no request: without an
// id, or with one that no answer can be told by.
func (e *envelope) key() string {
	raw := e.id.of(e.line)
	if raw == nil || string(raw) == "null" {
		return ""
	}
	return idKey(raw)
}

// within is where a member of the object at in stands.
func within(line []byte, in span, member string) span {
	var found span
	if in.to == 0 {
		return found
	}
	for name, at := range spans(line[in.from:in.to]) {
		if name == member {
			found = span{in.from + at.from, in.from + at.to}
		}
	}
	return found
}

// openParams looks for what concerns a session in params.
func (e *envelope) openParams() {
	e.session, e.update = span{}, span{}
	if e.params.to == 0 {
		return
	}
	for name, at := range spans(e.line[e.params.from:e.params.to]) {
		switch name {
		case "sessionId":
			e.session = span{at.from + e.params.from, at.to + e.params.from}
		case "update":
			e.update = span{at.from + e.params.from, at.to + e.params.from}
		}
	}
}

// sessionID is where params.sessionId stands.
func (e *envelope) sessionID() span { return within(e.line, e.params, "sessionId") }

// exchanged is line with the bytes at one span exchanged.
func exchanged(line []byte, at span, with []byte) []byte {
	out := make([]byte, 0, len(line)-(at.to-at.from)+len(with))
	out = append(out, line[:at.from]...)
	out = append(out, with...)
	return append(out, line[at.to:]...)
}

// inserted is line with bytes put in at an index.
func inserted(line []byte, at int, what []byte) []byte {
	return exchanged(line, span{at, at}, what)
}

// withMember is line with a member set in the object at in, which grows at its
// end where it has no such member.
func withMember(line []byte, in span, member string, value []byte) []byte {
	if at := within(line, in, member); at.to > 0 {
		return exchanged(line, at, value)
	}
	end := in.to - 1 // before the brace
	var b []byte
	if len(bytes.TrimSpace(line[in.from+1:end])) > 0 {
		b = append(b, ',')
	}
	b = append(append(append(b, mustEncode(member)...), ':'), value...)
	return inserted(line, end, b)
}

// withElement is line with elements put into the array at in, at its start or
// its end. elements are encoded, a comma between two.
func withElement(line []byte, in span, elements []byte, first bool) []byte {
	empty := len(bytes.TrimSpace(line[in.from+1:in.to-1])) == 0
	switch {
	case empty:
		return inserted(line, in.from+1, elements)
	case first:
		return inserted(line, in.from+1, append(bytes.Clone(elements), ','))
	}
	return inserted(line, in.to-1, append([]byte{','}, elements...))
}

// isObject and isArray say what stands at a span.
func isObject(line []byte, at span) bool { return at.to > 0 && line[at.from] == '{' }
func isArray(line []byte, at span) bool  { return at.to > 0 && line[at.from] == '[' }

// elements cuts an array into its values, which are parts of it.
func elements(array []byte) []json.RawMessage {
	var all []json.RawMessage
	for i := skipSpace(array, 1); i < len(array) && array[i] != ']'; {
		end := valueEnd(array, i)
		if end < 0 {
			return all
		}
		all = append(all, array[i:end:end])
		if i = skipSpace(array, end); i < len(array) && array[i] == ',' {
			i = skipSpace(array, i+1)
		}
	}
	return all
}
