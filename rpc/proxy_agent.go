package rpc

import (
	"bytes"
	"encoding/json"

	"github.com/oino-dev/oinod/protocol"
)

// agentSays takes one line of the agent's. The bytes are those of the
// reader's buffer.
func (p *proxy) agentSays(line []byte) {
	e := openLine(line)
	switch {
	case e.isAnswer():
		id := e.id.of(line)
		if p.toAgent.owns(id) {
			p.toAgent.hear(line)
			return
		}
		if r := p.answered(e.key()); r != nil {
			p.answer(r, e)
			return
		}
	case e.method.to > 0:
		if e.openParams(); e.session.to > 0 {
			p.agentSaysOf(e)
			return
		}
	}
	p.toClientLine(line)
}

func (p *proxy) toClientLine(line []byte) { _ = p.clientOut.add(line) } // the writer keeps its error

// agentSaysOf takes what the agent says of a session.
func (p *proxy) agentSaysOf(e envelope) {
	id := unquote(e.session.of(e.line))
	w := p.byAgent(id)
	if w == nil && p.isFormer(id) {
		p.answerFormer(e)
		return
	}
	if w == nil || w.isUnknown() {
		if u := updateOf(e); u.variant == protocol.AvailableCommandsUpdate {
			// Some announce commands before they have said the session's id.
			p.meet(id).learnCommands(u.commands)
		}
		if e.name() == protocol.SessionUpdate && p.isEarly(id, e.line) {
			return
		}
	}
	if w == nil {
		p.toClientLine(e.line)
		return
	}
	if !w.lane.isIdle() {
		e.line = bytes.Clone(e.line)
		w.lane.post(len(e.line), func() { w.letGo(w.judge(e), true) })
		return
	}
	v := w.judge(e)
	if v.before == nil {
		w.letGo(v, false)
		p.learns(w, e)
		return
	}
	v.line = bytes.Clone(v.line)
	w.lane.post(len(v.line), func() { w.letGo(v, true) })
}

// verdict is what becomes of a message of the agent's.
type verdict struct {
	before func() // has to be done before it goes on; nil: nothing
	line   []byte // as the client should read it; nil: not at all
}

// letGo lets a message go on, at once where whoever reads is not here to flush.
func (w *wrapped) letGo(v verdict, atOnce bool) {
	if v.before != nil {
		v.before()
	}
	if v.line == nil {
		return
	}
	w.proxy.toClientLine(v.line)
	if atOnce {
		w.proxy.clientOut.flush()
	}
}

// judge reads a message of the agent's about a session.
func (w *wrapped) judge(e envelope) verdict {
	if id := w.agentID(); id != w.id {
		e = openLine(exchanged(e.line, e.session, mustEncode(w.id)))
		e.openParams()
	}
	v := verdict{line: e.line}
	switch e.name() {
	case protocol.SessionUpdate:
		u := updateOf(e)
		if v.before = w.hear(u); w.isMuted() {
			return verdict{before: v.before}
		}
		if u.variant == protocol.AvailableCommandsUpdate {
			v.line = w.withCommands(e.line, within(e.line, e.update, "availableCommands"))
		}
	case protocol.RequestPermission:
		v.before = w.hint(permissionHints(e))
	case protocol.WriteTextFile:
		if path := unquote(within(e.line, e.params, "path").of(e.line)); path != "" {
			v.before = w.hint(toolHints{Kind: "edit", Locations: mustEncode([]map[string]string{{"path": path}})}, "")
		}
	}
	return v
}

// update is a session/update, as far as it is read: parts of the line.
type update struct {
	variant                  string
	all                      []byte
	content, commands, state json.RawMessage
	toolCall, message        json.RawMessage // their ids
}

func updateOf(e envelope) (u update) {
	if e.name() != protocol.SessionUpdate || !isObject(e.line, e.update) {
		return u
	}
	u.all = e.update.of(e.line)
	for name, value := range members(u.all) {
		switch name {
		case "sessionUpdate":
			u.variant = variantOf(value)
		case "content":
			u.content = value
		case "availableCommands":
			u.commands = value
		case "state":
			u.state = value
		case "toolCallId":
			u.toolCall = value
		case "messageId":
			u.message = value
		}
	}
	return u
}

func variantOf(raw []byte) string {
	if string(raw) == `"agent_message_chunk"` { // nearly always
		return protocol.AgentMessageChunk
	}
	return unquote(raw)
}

// permissionHints is the tool call that a permission is asked for; version 2
// has it in subject.
func permissionHints(e envelope) (call toolHints, id string) {
	at := within(e.line, e.params, "toolCall")
	if subject := within(e.line, e.params, "subject"); at.to == 0 && isObject(e.line, subject) {
		if at = within(e.line, subject, "toolCall"); at.to == 0 {
			at = subject
		}
	}
	_ = json.Unmarshal(at.of(e.line), &call) // as much as can be read
	return call, unquote(within(e.line, at, "toolCallId").of(e.line))
}
