package rpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/oino-dev/oinod/protocol"
	"github.com/oino-dev/oinod/session"
)

// Whether the agent's conversation is the one that the log has can be read from
// the log: the agent knows the conversation up to an entry, and where that is
// not the leaf, something was rewound since (or redone, and all is well
// again). So a rewind has nothing to do here; the next prompt finds that the
// agent has to go back (proxy_rewind.go), or else to be told, in a session that
// has heard nothing of the rest.

// catchUp sees to it that the next prompt goes to a session of the agent's
// that knows what the log has and nothing else. nil: it does already.
//
// A message for a command of the agent's own goes bare: what the agent has to be
// told goes with the next one that is not.
func (p *proxy) catchUp(ctx context.Context, w *wrapped, kept *session.Session, prompt protocol.Blocks) (*recap, error) {
	now, leaf, ok := kept.Standing()
	if !p.config.Conversation || !ok || now.ID != w.id {
		return nil, nil
	}
	bare := w.callsAgentsCommand(prompt)
	if now.Knows != leaf || now.Doubt {
		if was, ok := p.goOnEarlier(ctx, w, kept); ok {
			now = was
		}
	}
	if now.Knows == leaf && !now.Doubt {
		if current := currentOf(now); current != w.agentID() {
			p.rename(w, current) // one that was made for a prompt which was then called off
		}
		switch {
		case bare:
			return nil, nil
		case now.Owed:
			text, err := p.recapOf(ctx, kept, now.Since, now.PutBack)
			return &recap{text: text, wrapped: &session.Wrapped{
				Agent: p.agentName(), ID: w.id, Current: currentOf(now), Since: orStart(leaf), Hidden: true,
			}}, err
		case now.Back, len(now.PutBack) > 0: // for a prompt that was then called off, or it is a fork
			return &recap{text: putBack(filesOf(kept, now)), short: true}, nil
		}
		return nil, nil
	}
	if told := p.goBack(ctx, w, kept, now); told != nil {
		if bare {
			told.text = ""
		}
		return told, nil
	}
	if now.Knows != "" || now.Doubt {
		if _, err := p.begin(ctx, w, kept); err != nil {
			return nil, fmt.Errorf("the agent could not begin a conversation from the point it was rewound to: %w", err)
		}
	}
	at := &session.Wrapped{Agent: p.agentName(), ID: w.id, Current: w.agentID(), Since: orStart(leaf)}
	text, err := p.recapOf(ctx, kept, at.Since, filesOf(kept, now))
	if err != nil {
		return nil, err
	}
	if bare && text != "" {
		text, at.Owed, at.PutBack = "", true, filesOf(kept, now)
	}
	return &recap{text: text, wrapped: at}, nil
}

// earlier are sessions of the agent's in which the conversation was before and
// that know just what the log has now, since a rewind was redone; the newest first.
func (p *proxy) earlier(w *wrapped, kept *session.Session) (all []session.Wrapped) {
	leaf := kept.LeafID()
	for _, was := range slices.Backward(kept.Earlier(p.agentName(), w.id)) {
		if leaf != "" && was.Knows == leaf && !was.Doubt {
			was.Current = currentOf(was)
			all = append(all, was)
		}
	}
	return all
}

// goOnEarlier has the conversation go on in one of these, if the agent still has
// it. was is what it is called from now on.
func (p *proxy) goOnEarlier(ctx context.Context, w *wrapped, kept *session.Session) (was session.Wrapped, ok bool) {
	before := w.agentID()
	for _, was := range p.earlier(w, kept) {
		var err error
		if p.isLive(was.Current) {
			p.rename(w, was.Current)
		} else {
			_, err = p.resume(ctx, w, kept, was.Current)
		}
		if err == nil {
			p.setAs(ctx, w, was.Current)
			err = kept.SetWrapped(ctx, was, false)
		}
		if err == nil {
			return was, true
		}
		p.log.Info().Err(err).Str("session", w.id).Msg("the agent does not go on with an earlier conversation of its own")
		p.rename(w, before)
	}
	return session.Wrapped{}, false
}

// orStart is an entry, or the place before the first.
func orStart(entry string) string {
	if entry == "" {
		return session.Start
	}
	return entry
}

// currentOf is what the agent calls a session now.
func currentOf(w session.Wrapped) string {
	if w.Current != "" {
		return w.Current
	}
	return w.ID
}

// begin has the agent begin a session that w is from now on, set as the editor
// has set w. The answer is the agent's.
func (p *proxy) begin(ctx context.Context, w *wrapped, kept *session.Session) (json.RawMessage, error) {
	result, id, err := p.ask(ctx, protocol.SessionNew, p.setupOf(w, kept))
	if err != nil {
		return nil, err
	}
	p.rename(w, id)
	p.doneAsking(id)
	p.setAs(ctx, w, id)
	return result, nil
}

// ask has the agent make a session. What it says of that session before it is
// known goes nowhere; doneAsking ends that.
func (p *proxy) ask(ctx context.Context, method string, params map[string]json.RawMessage) (result json.RawMessage, id string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, holdLimit, fmt.Errorf("the agent did not answer %s within %v", method, holdLimit))
	defer cancel()
	p.update(func(st *proxyState) { st.making++ })
	err = p.toAgent.askOrLate(ctx, method, mustEncode(params), &result, p.madeInVain)
	if _, late := errors.AsType[errNoAnswer](err); late {
		return nil, "", context.Cause(ctx)
	}
	if err == nil {
		if id = unquote(within(result, span{0, len(result)}, "sessionId").of(result)); id == "" {
			err = fmt.Errorf("the agent's answer to %s names no session", method)
		}
	}
	if err != nil {
		p.doneAsking("")
		return nil, "", err
	}
	p.lives(id)
	return result, id, nil
}

// setupOf is what a session like w is made with.
func (p *proxy) setupOf(w *wrapped, kept *session.Session) map[string]json.RawMessage {
	params := map[string]json.RawMessage{"cwd": mustEncode(kept.Cwd()), "mcpServers": json.RawMessage("[]")}
	if w == nil {
		return params
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range []string{"cwd", "mcpServers", "additionalDirectories", "_meta"} {
		if value := w.setup[name]; value != nil {
			params[name] = value
		}
	}
	return params
}

// setAs sets the agent's session id as the editor has set w.
// What it says of that is not for the editor, who has set it so.
func (p *proxy) setAs(ctx context.Context, w *wrapped, id string) {
	if !w.isMuted() {
		w.mute(true)
		defer w.mute(false)
	}
	ctx, cancel := context.WithTimeout(ctx, setLimit)
	defer cancel()
	w.mu.Lock()
	settings := slices.Clone(w.settings)
	w.mu.Unlock()
	for _, s := range settings {
		params := withMember(s.Params, span{0, len(s.Params)}, "sessionId", mustEncode(id))
		if err := p.toAgent.ask(ctx, s.Method, params, new(json.RawMessage)); err != nil {
			p.log.Warn().Err(err).Str("method", s.Method).Msg("a new conversation of the agent is not set as the old one was")
		}
	}
}

// setLimit is how long the agent may take for that.
const setLimit = 20 * time.Second

// What follows is the host of the methods: see host.

func (p *proxy) session(ctx context.Context, id string) (*session.Session, error) {
	w := p.wrapped(id)
	if w != nil && w.oursID() != "" {
		w.settled()
		return w.session(ctx)
	}
	ours, err := p.config.Registry.FindWrapped(ctx, "", p.agentName(), id)
	if err != nil {
		return nil, err
	}
	if ours == "" {
		return p.config.Registry.Get(ctx, id) // our own id, or nobody's
	}
	s, err := p.config.Registry.Get(ctx, ours)
	if err != nil {
		return nil, err
	}
	p.adopt(id, s)
	return s, nil
}

func (p *proxy) commands(sessionID string) names {
	if w := p.byOurs(sessionID); w != nil {
		return w.names()
	}
	return names{}
}

func (p *proxy) rewind(ctx context.Context, t *task, s *session.Session, rp session.RewindParams) (session.RewindResult, error) {
	w := p.byOurs(s.ID())
	if err := p.mayMove(w, rp.Conversation); err != nil {
		return session.RewindResult{}, err
	}
	hook := p.hook(t)
	r, err := p.config.Forker.Rewind(ctx, s, rp, hook.handler())
	if err != nil {
		return r, err
	}
	if r.SessionID != "" {
		now, _ := s.Wrapped("")
		at := placing{source: w, s: s, child: r.SessionID, setup: p.setupOf(w, s), putBack: filesOf(s, now)}
		if r.SessionID, _, err = p.place(ctx, t, at); err != nil {
			r.Reason = sentence(err.Error()) // the files are back, whatever the agent says
		}
	}
	hook.tell(ctx)
	return r, nil
}

func (p *proxy) redo(ctx context.Context, _ *task, s *session.Session, rp session.RewindParams) (session.RewindResult, error) {
	if err := p.mayMove(p.byOurs(s.ID()), session.KeepConversation); err != nil {
		return session.RewindResult{}, err
	}
	r, err := s.Redo(ctx, rp)
	r.SessionID = ""
	return r, err
}

// mayMove refuses what must not be done while the agent works, and what was
// not to be done at all.
func (p *proxy) mayMove(w *wrapped, c session.Conversation) error {
	if w != nil {
		if err := w.refuseRunning(); err != nil {
			return err
		}
	}
	return p.mayFork(c)
}
