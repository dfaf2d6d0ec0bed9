package rpc

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/oino-dev/oinod/session"
)

// heard puts together what an agent says in a turn, for the log: its chunks
// make one message until something else comes, and a tool call is one entry,
// as it was when it ended.
type heard struct {
	entries []session.NewEntry // ready for the log
	message string             // what the agent calls the message under way; "": nothing
	text    [][]byte           // of it, as it stands in a JSON string, in parts
	blocks  []json.RawMessage  // of it, before text
	calls   map[string]*heardCall
	order   []string // of calls under way
	kinds   map[string]string
	size    int
	whole   int // counts messages that were cut for their length, for their ids
	cut     bool
}

// heardCall is a tool call under way.
type heardCall struct {
	fields  map[string]json.RawMessage
	content json.RawMessage
	status  string
}

const (
	// muchHeard is how much is held of a turn before it goes to the log: more
	// than anybody reads, since what is written in the middle of a turn takes
	// time from it. maxHeard is how much at most while that is being written.
	muchHeard = 24 << 20
	maxHeard  = 48 << 20
	// maxHeardField bounds what is kept of one field of a tool call.
	maxHeardField = 64 << 10
)

// of is what the agent calls the message that the next piece belongs to.
// Another id begins another message.
func (h *heard) of(id string) {
	if id != h.message {
		h.endMessage(false)
		h.message = id
	}
}

// chunk takes a piece of a message. content is a content block.
func (h *heard) chunk(content []byte, id string) {
	if !isObject(content, span{0, len(content)}) {
		return
	}
	h.of(id)
	var kind, text json.RawMessage
	for name, value := range members(content) {
		switch name {
		case "type":
			kind = value
		case "text":
			text = value
		}
	}
	if string(kind) == `"text"` && len(text) > 1 && text[0] == '"' {
		if !isString(text) {
			text = mustEncode(unquote(text)) // whatever it was, it can be kept now
		}
		h.plain(text)
		return
	}
	h.size += len(content)
	// The log refuses what is no block, and would refuse all that comes with it.
	if len(content) > maxHeardField || text != nil && text[0] != '"' || len(withTypes(array([]json.RawMessage{content}))) == 0 {
		return
	}
	h.endText()
	h.blocks = append(h.blocks, bytes.Clone(content))
}

// plain takes a piece that is text: a JSON string that can be kept.
func (h *heard) plain(text []byte) {
	h.size += len(text)
	n := len(h.text)
	if n == 0 || cap(h.text[n-1])-len(h.text[n-1]) < len(text) {
		// A slice that grows with the text would be cleared and copied again and
		// again: of a long message that was most of the work.
		size := textPart
		if n == 0 {
			size = textStart
		}
		h.text = append(h.text, make([]byte, 0, max(size, len(text))))
		n++
	}
	h.text[n-1] = append(h.text[n-1], text[1:len(text)-1]...)
}

const (
	textStart = 4 << 10
	textPart  = 64 << 10
)

func (h *heard) endText() {
	if len(h.text) > 0 {
		h.blocks = append(h.blocks, bytes.Join(slices.Concat([][]byte{[]byte(`{"type":"text","text":"`)}, h.text, [][]byte{[]byte(`"}`)}), nil))
		h.text = nil
	}
}

// cutPrefix begins the ids of messages that were cut, and have none of the
// agent's.
const cutPrefix = "oino-cut-"

// endMessage makes the message under way an entry. One that goes on is told
// by an id that its parts have in common.
func (h *heard) endMessage(goesOn bool) {
	id := h.message
	if !goesOn {
		h.message = ""
	}
	if len(h.blocks) == 0 && len(h.text) == 0 {
		h.cut = h.cut && goesOn
		return
	}
	h.endText()
	e := session.NewEntry{Role: session.Assistant, Content: array(h.blocks)}
	if goesOn && !h.cut {
		h.whole++
		h.cut = true
	}
	if h.cut {
		e.MessageID = fmt.Sprintf("%s%d", cutPrefix, h.whole)
	}
	if id != "" {
		e.MessageID = id
	}
	h.cut = goesOn
	h.blocks = nil
	h.entries = append(h.entries, e)
}

// call takes the start or an update of a tool call.
func (h *heard) call(update []byte) {
	var id string
	fields := map[string]json.RawMessage{}
	for name, value := range members(update) {
		switch name {
		case "toolCallId":
			id = unquote(value)
		case "title", "kind", "status", "locations", "rawInput", "rawOutput", "content":
			fits := true
			switch name {
			case "title", "kind", "status":
				fits = value[0] == '"'
			case "locations", "content":
				fits = value[0] == '['
			}
			if fits && string(value) != "null" && len(value) <= maxHeardField && json.Valid(value) {
				fields[name] = value
			}
		}
	}
	if id == "" {
		return
	}
	c := h.calls[id]
	if c == nil {
		h.endMessage(false)
		if h.calls == nil {
			h.calls = map[string]*heardCall{}
		}
		c = &heardCall{fields: map[string]json.RawMessage{}, status: "pending"}
		h.calls[id] = c
		h.order = append(h.order, id)
	}
	for name, value := range fields {
		h.size += len(value)
		switch name {
		case "status":
			c.status = unquote(value)
		case "content":
			c.content = bytes.Clone(value)
		default:
			c.fields[name] = bytes.Clone(value)
		}
	}
	if kind := unquote(c.fields["kind"]); kind != "" {
		if h.kinds == nil {
			h.kinds = map[string]string{}
		}
		h.kinds[id] = kind
	}
	if c.status == "completed" || c.status == "failed" {
		h.endCall(id)
	}
}

// kindOf is what kind of tool a call was said to be, or "".
func (h *heard) kindOf(call string) string { return h.kinds[call] }

func (h *heard) endCall(id string) {
	c := h.calls[id]
	delete(h.calls, id)
	for i, o := range h.order {
		if o == id {
			h.order = append(h.order[:i], h.order[i+1:]...)
			break
		}
	}
	e := session.NewEntry{Role: session.Tool, ToolCallID: id, Status: c.status, Content: json.RawMessage("[]")}
	if len(c.fields) > 0 {
		e.Tool = mustEncode(c.fields)
	}
	if blocks := withTypes(c.content); len(blocks) > 0 {
		e.Content = mustEncode(blocks)
	}
	h.entries = append(h.entries, e)
}

// withTypes are the values of an array that can be kept as blocks.
func withTypes(array json.RawMessage) []json.RawMessage {
	var all, good []json.RawMessage
	if json.Unmarshal(array, &all) != nil {
		return nil
	}
	for _, b := range all {
		var t struct {
			Type string `json:"type"`
		}
		if json.Unmarshal(b, &t) == nil && t.Type != "" {
			good = append(good, b)
		}
	}
	return good
}

// take gives what is ready for the log. over: nothing more comes, so what is
// under way is given too.
func (h *heard) take(over bool) []session.NewEntry {
	if over {
		for len(h.order) > 0 { // they began before the message that is under way
			h.endCall(h.order[0])
		}
		h.kinds = nil
	}
	h.endMessage(!over)
	entries := h.entries
	h.entries, h.size = nil, 0
	for _, c := range h.calls {
		for _, f := range c.fields {
			h.size += len(f)
		}
	}
	if h.size > muchHeard { // more calls under way than can be held
		for len(h.order) > 0 {
			h.endCall(h.order[0])
		}
		entries, h.entries, h.size = append(entries, h.entries...), nil, 0
	}
	return entries
}

// array is an array of values.
func array(values []json.RawMessage) json.RawMessage {
	size := 2
	for _, v := range values {
		size += len(v) + 1
	}
	b := append(make([]byte, 0, size), '[')
	for i, v := range values {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, v...)
	}
	return append(b, ']')
}
