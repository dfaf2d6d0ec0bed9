package rpc

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"

	"github.com/oino-dev/oinod/protocol"
	"github.com/oino-dev/oinod/session"
)

// answer takes the agent's answer to a request of the client's.
func (p *proxy) answer(r *request, e envelope) {
	good := e.result.to > 0
	switch {
	case r.method == protocol.Initialize && good:
		p.toClientLine(p.initialized(e))
		return
	case r.method == protocol.SessionNew && good:
		if id := unquote(within(e.line, e.result, "sessionId").of(e.line)); id != "" {
			p.made(p.known(id, r), r, e.line)
			return
		}
	case r.method == protocol.SessionFork && good:
		if id := unquote(within(e.line, e.result, "sessionId").of(e.line)); id != "" {
			p.forked(p.known(id, r), r, e.line)
			return
		}
	}
	if r.method == protocol.SessionList && good && p.config.Conversation {
		line := bytes.Clone(e.line)
		p.tasks.put("", func(ctx context.Context) {
			p.toClientLine(p.listed(ctx, line))
			p.clientOut.flush()
		})
		return
	}
	if w := r.session; w != nil && (followed[r.method] || !w.lane.isIdle()) {
		line := bytes.Clone(e.line)
		w.lane.post(len(line), func() { p.endWith(r, line, good) })
		return
	}
	p.toClientLine(e.line)
}

// listed is the agent's list of sessions with those of which the client knows
// another name. Of a conversation that went on in a new session of the agent's,
// the old ones are left out.
func (p *proxy) listed(ctx context.Context, line []byte) []byte {
	names, err := p.config.Registry.Renamed(ctx, p.agentName())
	if err != nil {
		p.log.Warn().Err(err).Msg("the agent's list of sessions is shown as it is")
	}
	e := openLine(line)
	list := within(line, e.result, "sessions")
	if len(names) == 0 || !isArray(line, list) {
		return line
	}
	all := elements(list.of(line))
	idOf := func(s json.RawMessage) string { return unquote(within(s, span{0, len(s)}, "sessionId").of(s)) }
	goesOn, left := map[string]bool{}, false
	for _, s := range all {
		name, ok := names[idOf(s)]
		left = left || ok && name == ""
		if name != "" {
			goesOn[name] = true
		}
	}
	if len(goesOn) == 0 && !left {
		return line
	}
	var shown [][]byte
	for _, s := range all {
		id := idOf(s)
		name, renamed := names[id]
		switch {
		case goesOn[id], renamed && name == "":
		case renamed:
			shown = append(shown, withMember(s, span{0, len(s)}, "sessionId", mustEncode(name)))
		default:
			shown = append(shown, s)
		}
	}
	return exchanged(line, list, slices.Concat([]byte("["), bytes.Join(shown, []byte(",")), []byte("]")))
}

// end is answer for a line of our own.
func (p *proxy) end(r *request, line []byte) {
	line = bytes.TrimSuffix(line, []byte("\n"))
	if r.session == nil {
		p.toClientLine(line)
		return
	}
	r.session.lane.post(len(line), func() { p.endWith(r, line, false) })
}

// endWith lets the answer to a request of a session go on, when what the agent
// said before it is through.
func (p *proxy) endWith(r *request, line []byte, good bool) {
	w := r.session
	switch r.method {
	case protocol.SessionPrompt:
		e := openLine(line)
		w.answered(r, good, messageID(within(line, e.result, "userMessageId").of(line)))
	case protocol.SessionLoad, protocol.SessionResume:
		if good {
			p.lives(w.agentID())
		}
		p.opened(w, r, good)
	case protocol.SessionClose, protocol.SessionDelete:
		if good {
			p.dropped(w, r.method)
		}
	case protocol.SessionRewind:
		if e := openLine(line); good {
			p.wentBack(w, r.params, e.result.of(line))
		}
	}
	p.toClientLine(line)
	p.clientOut.flush()
	if good && (r.method == protocol.SessionLoad || r.method == protocol.SessionResume) {
		w.announce()
	}
}

// made takes the answer to session/new: from now on the session is kept.
func (p *proxy) made(w *wrapped, r *request, line []byte) {
	var lost *lostSession
	p.update(func(st *proxyState) { lost, st.lost = st.lost, nil })
	p.tasks.put(w.id, func(ctx context.Context) {
		if lost != nil && lost.cwd == w.cwd() && p.config.Now().Sub(lost.at) < goesOn && p.goOn(ctx, w, lost) {
			return
		}
		p.keep(ctx, w, session.Start)
	})
	p.toClientLine(line)
	w.announce()
}

// goOn keeps w where the session was kept that the client could not open again.
func (p *proxy) goOn(ctx context.Context, w *wrapped, lost *lostSession) bool {
	s, err := p.config.Registry.Get(ctx, lost.ours)
	if err == nil {
		err = s.SetWrapped(ctx, session.Wrapped{Agent: p.agentName(), ID: w.id, Since: orStart(s.LeafID())}, false)
	}
	if err != nil {
		p.log.Warn().Err(err).Msg("a conversation does not go on where it was kept")
		return false
	}
	p.keepsIn(w, s)
	return true
}

// forked takes the answer to the client's own session/fork: the new session
// has what the old one has.
func (p *proxy) forked(w *wrapped, r *request, line []byte) {
	source := r.session
	p.tasks.put(w.id, func(ctx context.Context) {
		if source == nil || source.oursID() == "" {
			p.keep(ctx, w, "")
			return
		}
		s, now, err := p.copy(ctx, source, r.params)
		if err == nil {
			at := session.Wrapped{Agent: p.agentName(), ID: w.id, Since: now.Since, Doubt: now.Doubt, Hidden: now.Hidden}
			err = s.SetWrapped(ctx, at, now.Doubt)
		}
		if err != nil {
			w.tell("the fork has none of the checkpoints", err)
			p.keep(ctx, w, "")
			return
		}
		p.keepsIn(w, s)
		w.setLike(source)
		w.saveSettings(ctx)
	})
	p.toClientLine(line)
	w.announce()
}

// dropped follows the client, who has closed or deleted the agent's session.
func (p *proxy) dropped(w *wrapped, method string) {
	ours := w.oursID()
	p.forget(w)
	if ours == "" {
		return
	}
	p.tasks.put(w.id, func(ctx context.Context) {
		var err error
		if method == protocol.SessionDelete {
			p.deleteEarlier(ctx, w, ours)
			err = p.config.Registry.Delete(ctx, ours)
		} else {
			err = p.config.Registry.Close(ctx, ours)
		}
		if err != nil {
			p.log.Warn().Err(err).Str("session", ours).Msg("what was kept of a session could not be dropped with it")
		}
	})
}
