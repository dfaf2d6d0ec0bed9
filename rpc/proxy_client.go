package rpc

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/sourcegraph/jsonrpc2"

	"github.com/oino-dev/oinod/protocol"
)

// clientSays takes one line of the client's. The bytes are those of the
// reader's buffer.
func (p *proxy) clientSays(line []byte) {
	e := openLine(line)
	if e.isAnswer() && p.toClient.owns(e.id.of(line)) {
		p.toClient.hear(line)
		return
	}
	name := e.name()
	switch {
	case name == "":
		p.toAgentLine(line)
	case name == protocol.CancelRequest:
		id := within(line, e.params, "requestId").of(line)
		follow := p.tasks.follower(p.passing, bytes.Clone(line))
		if id == nil || !p.tasks.cancelRequestThen(idKey(id), follow) {
			p.pass(e, true)
		}
	case name == protocol.SessionCancel:
		follow := p.tasks.follower(p.passing, bytes.Clone(line))
		id := unquote(e.sessionID().of(line))
		if w := p.wrapped(id); w != nil {
			w.cancelled()
		}
		if !p.tasks.cancelTurnThen(id, follow) {
			p.pass(e, true)
		}
	case strings.HasPrefix(name, "_oino/") && e.id.to > 0 && !isID(e.id.of(line)):
		r := invalid("id must be a string or a whole number")
		_ = p.clientOut.write(answerLine(e.id.of(line), &jsonrpc2.Response{Error: &jsonrpc2.Error{Code: r.code, Message: r.msg}})) // the writer keeps its error
	case strings.HasPrefix(name, "_oino/"),
		thoughtOver[name] && e.key() != "":
		p.agentOut.flush() // this may take its time
		p.tasks.take(name, p.task(e))
	default:
		if name == protocol.Initialize {
			p.server.greet(e.params.of(line))
		}
		session := unquote(e.sessionID().of(line))
		if session != "" {
			if w := p.wrapped(session); w != nil {
				w.note(name, e)
			}
		}
		if session == "" || !p.tasks.behind(session, p.passTask(e)) {
			p.pass(e, true)
		}
	}
}

// thoughtOver are the requests that we have to think about before they are
// passed on.
var thoughtOver = map[string]bool{
	protocol.SessionPrompt: true, protocol.SessionLoad: true, protocol.SessionResume: true,
	protocol.SessionFork: true, protocol.SessionDelete: true,
}

// task is a message for the dispatcher, with bytes of its own.
func (p *proxy) task(e envelope) *task {
	line := bytes.Clone(e.line)
	t := &task{params: notNull(e.params.of(line)), line: line, size: len(line), notif: true}
	if key := e.key(); key != "" {
		t.raw, t.key, t.notif = e.id.of(line), key, false
	}
	return t
}

// passTask is a message that is passed on when its turn comes. The line is
// cloned only if it comes to that, since nearly none has to wait.
func (p *proxy) passTask(e envelope) func() *task {
	return func() *task {
		p.agentOut.flush()
		t := p.task(e)
		t.method = p.passing
		return t
	}
}

// asks are the methods whose answer says nothing without what was asked for.
var asks = map[string]bool{
	protocol.SessionNew: true, protocol.SessionLoad: true, protocol.SessionResume: true, protocol.SessionFork: true,
	protocol.SessionRewind: true,
}

// pass passes a message of the client's on to the agent. added: with the next
// flush.
func (p *proxy) pass(e envelope, added bool) {
	line, w := p.outbound(e)
	if !p.expect(e, w) {
		return
	}
	if added {
		p.toAgentLine(line)
		return
	}
	_ = p.agentOut.write(append(bytes.Clone(line), '\n')) // how the agent ended is found out elsewhere
}

func (p *proxy) toAgentLine(line []byte) { _ = p.agentOut.add(line) }

// outbound is a message of the client's as the agent should read it.
func (p *proxy) outbound(e envelope) ([]byte, *wrapped) {
	at := e.sessionID()
	if at.to == 0 {
		return e.line, nil
	}
	w := p.wrapped(unquote(at.of(e.line)))
	if w == nil {
		return e.line, nil
	}
	if id := w.agentID(); id != w.id {
		return exchanged(e.line, at, mustEncode(id)), w
	}
	return e.line, w
}

// expect notes a request, so that its answer is understood. False: there will
// be none, and the client knows.
func (p *proxy) expect(e envelope, w *wrapped) bool {
	key := e.key()
	if key == "" || e.method.to == 0 {
		return true
	}
	r := &request{id: bytes.Clone(e.id.of(e.line)), key: key, method: e.name(), session: w}
	if asks[r.method] {
		r.params = cloned(e.params.of(e.line))
	}
	return p.await(r)
}

func (p *proxy) await(r *request) bool {
	ended := false
	p.update(func(st *proxyState) {
		if ended = st.ended; !ended {
			st.pending[r.key] = append(st.pending[r.key], r)
		}
	})
	if ended {
		p.answerGone(r.id)
	}
	return !ended
}

// answered is the request that an answer is to, or nil. Of several with one id
// it is the oldest.
func (p *proxy) answered(key string) *request {
	var r *request
	p.update(func(st *proxyState) {
		rs := st.pending[key]
		if len(rs) == 0 {
			return
		}
		if r = rs[0]; len(rs) == 1 {
			delete(st.pending, key)
		} else {
			st.pending[key] = rs[1:]
		}
	})
	return r
}

// cloned are the members of params with bytes of their own.
func cloned(params []byte) map[string]json.RawMessage {
	all := map[string]json.RawMessage{}
	for name, value := range members(params) {
		all[name] = bytes.Clone(value)
	}
	return all
}
