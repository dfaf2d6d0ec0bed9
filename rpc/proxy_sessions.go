package rpc

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/sourcegraph/jsonrpc2"

	"github.com/oino-dev/oinod/fork"
	"github.com/oino-dev/oinod/protocol"
	"github.com/oino-dev/oinod/session"
)

// What the client does with sessions that it need not have opened, and what the
// agent says of those that no client knows: while we are having one made, and
// when the conversation has gone on in another.

// earlyUpdates are updates of sessions that nobody knows, while we are having
// one made: it may be about that, which the client never hears of, or about one
// that the client is having made itself.
type earlyUpdates struct {
	lines []earlyUpdate
	size  int
}

type earlyUpdate struct {
	session string
	line    []byte
}

// maxEarly bounds them, as lanes are bounded. An agent may say again all that
// was said in a session that it forks, before it answers.
const maxEarly = maxLaneBytes

// isEarly takes an update of a session that nobody knows until it is known whose
// that is. False: it goes on.
func (p *proxy) isEarly(id string, line []byte) (taken bool) {
	p.update(func(st *proxyState) {
		if taken = st.making > 0; !taken {
			return
		}
		if st.early.size+len(line) > maxEarly {
			p.log.Warn().Str("session", id).Msg("an update of a session that nobody knows yet is dropped")
			return
		}
		st.early.lines = append(st.early.lines, earlyUpdate{id, bytes.Clone(line)})
		st.early.size += len(line)
	})
	return taken
}

// takeEarly takes out what was said early of a session.
func (st *proxyState) takeEarly(id string) (lines [][]byte) {
	st.early.lines = slices.DeleteFunc(st.early.lines, func(u earlyUpdate) bool {
		if u.session == id {
			lines = append(lines, u.line)
			st.early.size -= len(u.line)
		}
		return u.session == id
	})
	return lines
}

// known is the session that the agent has made for the client, which gets what
// was said of it before.
func (p *proxy) known(id string, r *request) *wrapped {
	w := p.meet(id)
	w.setUp(r.params)
	var lines [][]byte
	p.update(func(st *proxyState) {
		st.live[id] = true
		lines = st.takeEarly(id)
	})
	for _, line := range lines {
		e := openLine(line)
		e.openParams()
		p.agentSaysOf(e)
	}
	return w
}

// madeInVain takes an answer to ask that nobody waits for any more.
func (p *proxy) madeInVain(result json.RawMessage) {
	id := unquote(within(result, span{0, len(result)}, "sessionId").of(result))
	p.update(func(st *proxyState) {
		if w := st.byAgent[id]; id != "" && (w == nil || w.isUnknown()) {
			delete(st.byAgent, id)
			delete(st.byClient, id)
			st.former[id] = true
		}
	})
	p.doneAsking(id)
}

// doneAsking ends what ask began: id is the session that was made, "" none. What
// was said of it is nobody's business; what was said of sessions that turned out
// to be neither ours nor the client's goes on.
func (p *proxy) doneAsking(id string) {
	var lines []earlyUpdate
	p.update(func(st *proxyState) {
		st.takeEarly(id)
		if st.making--; st.making == 0 {
			lines, st.early = st.early.lines, earlyUpdates{}
		}
	})
	for _, u := range lines {
		p.toClientLine(u.line)
	}
	if len(lines) > 0 {
		p.clientOut.flush()
	}
}

// isUnknown reports whether of the session no more is known than its commands.
func (w *wrapped) isUnknown() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ours == "" && w.setup == nil
}

func (p *proxy) lives(id string) { p.update(func(st *proxyState) { st.live[id] = true }) }

func (p *proxy) isLive(id string) (live bool) {
	p.update(func(st *proxyState) { live = st.live[id] })
	return live
}

func (p *proxy) isFormer(id string) (former bool) {
	p.update(func(st *proxyState) { former = st.former[id] })
	return former
}

// answerFormer takes what the agent says of a session in which the conversation
// is no more. The client, who may know that by the same name, must not take it
// for what is said in the one that it is in now.
func (p *proxy) answerFormer(e envelope) {
	if e.key() == "" {
		return
	}
	resp := &jsonrpc2.Response{Error: &jsonrpc2.Error{Code: protocol.CodeInvalidParams, Message: "the conversation has gone on in another session"}}
	if e.name() == protocol.RequestPermission {
		resp.Error, resp.Result = nil, new(json.RawMessage(`{"outcome":{"outcome":"cancelled"}}`))
	}
	_ = p.agentOut.write(answerLine(e.id.of(e.line), resp)) // how the agent ended is found out elsewhere
}

// adopt is the session that the client calls id, kept in s, which need not have
// been opened here.
func (p *proxy) adopt(id string, s *session.Session) *wrapped {
	w := p.meet(id)
	if now, ok := s.Wrapped(""); ok && p.config.Conversation && now.ID == id && currentOf(now) != w.agentID() {
		p.rename(w, currentOf(now))
	}
	p.keepsIn(w, s)
	w.setAsKept(s)
	return w
}

// look is the session that the client calls id, if it is kept; cwd "": in
// whatever directory, if there is just one.
func (p *proxy) look(ctx context.Context, cwd, id string) *wrapped {
	if w := p.wrapped(id); w != nil && w.oursID() != "" {
		return w
	}
	var ours string
	var err error
	if cwd == "" {
		ours, err = p.config.Registry.OnlyWrapped(ctx, p.agentName(), id)
	} else {
		ours, err = p.config.Registry.FindWrapped(ctx, cwd, p.agentName(), id)
	}
	var s *session.Session
	if err == nil && ours != "" {
		s, err = p.config.Registry.Get(ctx, ours)
	}
	if err != nil {
		p.log.Warn().Err(err).Str("session", id).Msg("what is kept of a session stays as it is")
	}
	if s == nil {
		return nil
	}
	return p.adopt(id, s)
}

// deleteSession takes the client's session/delete.
func (p *proxy) deleteSession(ctx context.Context, t *task) (any, error) {
	e := openLine(t.line)
	if id := unquote(e.sessionID().of(t.line)); id != "" {
		p.look(ctx, "", id)
	}
	t.passedOn = true
	p.pass(e, false)
	return nil, nil
}

// deleteEarlier has the agent delete the sessions in which the conversation of w
// was before. The client has deleted the one in which it is.
func (p *proxy) deleteEarlier(ctx context.Context, w *wrapped, ours string) {
	kept, err := p.config.Registry.Get(ctx, ours)
	if err != nil {
		return // Delete says why
	}
	ctx, cancel := context.WithTimeout(ctx, goneLimit)
	defer cancel()
	done := map[string]bool{w.agentID(): true}
	all := kept.Earlier(p.agentName(), w.id)
	if now, ok := kept.Wrapped(w.id); ok {
		all = append(all, now)
	}
	for _, was := range all {
		id := currentOf(was)
		if done[id] {
			continue
		}
		done[id] = true
		err := p.toAgent.ask(ctx, protocol.SessionDelete, mustEncode(map[string]string{"sessionId": id}), new(json.RawMessage))
		if err != nil {
			p.log.Info().Err(err).Str("session", w.id).Msg("an earlier session of the agent's could not be deleted")
		}
	}
}

// goneLimit is how long the agent may take to delete sessions.
const goneLimit = 5 * time.Second

// forkSession takes the client's own session/fork. The agent's session may hold
// what was rewound, or not what it has to be told yet: then the fork is ours to
// make.
func (p *proxy) forkSession(ctx context.Context, t *task) (any, error) {
	e := openLine(t.line)
	pass := func() (any, error) {
		t.passedOn = true
		p.pass(e, false)
		return nil, nil
	}
	var params protocol.ForkSessionParams
	if protocol.Decode(t.params, &params) != nil { // the agent's to judge
		return pass()
	}
	w := p.look(ctx, params.Cwd, params.SessionID)
	if w == nil || !p.config.Conversation {
		return pass()
	}
	w.settled()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	kept, err := w.session(ctx)
	if err != nil || kept == nil {
		return pass()
	}
	now, leaf, ok := kept.Standing()
	if !ok || now.ID != w.id || now.Knows == leaf && !now.Doubt && !now.Owed && !now.Back && len(now.PutBack) == 0 {
		return pass()
	}
	asked := cloned(t.params)
	next, err := p.placeOf(ctx, w, kept, now, p.offers().forkedAt(asked))
	if err != nil { // it will be of the whole
		p.log.Info().Err(err).Str("session", w.id).Msg("where the client wants the fork to end is not known")
	}
	hook := p.hook(t)
	r, err := p.config.Forker.Fork(ctx, kept, fork.Params{EntryID: next}, hook.handler())
	if err != nil {
		return nil, err
	}
	if r.Cancelled {
		return nil, cancelledFork(r.Reason)
	}
	setup := p.setupOf(w, kept)
	maps.Copy(setup, withoutPlace(asked))
	delete(setup, "sessionId")
	id, result, err := p.place(ctx, t, placing{source: w, s: kept, child: r.SessionID, whole: next == "", setup: setup, putBack: filesOf(kept, now)})
	if err != nil {
		return nil, err
	}
	hook.tell(ctx)
	answer := map[string]json.RawMessage{}
	_ = json.Unmarshal(result, &answer) // it was an object: it named the session
	answer["sessionId"] = mustEncode(id)
	return answer, nil
}
