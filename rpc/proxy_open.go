package rpc

import (
	"context"
	"encoding/json"
	"time"

	"github.com/oino-dev/oinod/protocol"
	"github.com/oino-dev/oinod/session"
)

// open takes session/load and session/resume. What the agent knows by another
// name, or knows too much of, is opened here; all else is the agent's.
func (p *proxy) open(ctx context.Context, t *task) (any, error) {
	e := openLine(t.line)
	var params protocol.OpenParams
	if protocol.Decode(t.params, &params) != nil {
		t.passedOn = true
		p.pass(e, false)
		return nil, nil
	}
	w := p.meet(params.SessionID)
	w.setUp(cloned(t.params))
	kept, err := p.findKept(ctx, w, params)
	if err != nil {
		w.tell("there are no checkpoints of this session", err)
	}
	w.mu.Lock()
	w.elsewhere = err != nil
	w.mu.Unlock()
	if kept != nil && p.config.Conversation {
		if now, leaf, ok := kept.Standing(); ok && now.ID == w.id && (now.Current != "" || now.Doubt || now.Knows != leaf) {
			return p.reopen(ctx, t, w, kept, now)
		}
	}
	w.replays(true)
	t.passedOn = true
	p.pass(e, false)
	return nil, nil
}

// findKept is where w is kept; nil for a session that was not, so far.
func (p *proxy) findKept(ctx context.Context, w *wrapped, params protocol.OpenParams) (*session.Session, error) {
	ours, err := p.config.Registry.FindWrapped(ctx, params.Cwd, p.agentName(), w.id)
	if err != nil || ours == "" {
		return nil, err
	}
	kept, err := p.config.Registry.Load(ctx, ours, params.Cwd, params.AdditionalDirectories)
	if err != nil {
		return nil, err
	}
	p.keepsIn(w, kept)
	w.setAsKept(kept)
	return kept, nil
}

// foundAgain is where w is kept, when another process had that as the client
// opened it: that may be over.
func (p *proxy) foundAgain(ctx context.Context, w *wrapped) (*session.Session, error) {
	w.mu.Lock()
	elsewhere := w.elsewhere
	w.mu.Unlock()
	if !elsewhere {
		return nil, nil
	}
	soon, cancel := context.WithTimeout(ctx, anotherLook)
	defer cancel()
	kept, err := p.findKept(soon, w, protocol.OpenParams{SessionID: w.id, Cwd: w.cwd(), AdditionalDirectories: w.directories()})
	if err != nil && ctx.Err() == nil {
		p.log.Info().Err(err).Str("session", w.id).Msg("the session is still kept elsewhere") // the user knows
		return nil, nil
	}
	w.mu.Lock()
	w.elsewhere = false
	w.mu.Unlock()
	return kept, err
}

// anotherLook is how long a prompt waits for a session that another process had.
const anotherLook = 200 * time.Millisecond

// opened takes the agent's answer to session/load or session/resume.
func (p *proxy) opened(w *wrapped, r *request, good bool) {
	ours := w.oursID()
	w.mu.Lock()
	elsewhere := w.elsewhere
	w.mu.Unlock()
	w.replays(false)
	switch {
	case elsewhere:
	case good && ours == "":
		p.tasks.put(w.id, func(ctx context.Context) { p.keep(ctx, w, "") })
	case !good && ours != "":
		lost := &lostSession{ours: ours, cwd: w.cwd(), at: p.config.Now()}
		p.update(func(st *proxyState) { st.lost = lost })
	}
}

// reopen opens a session whose conversation the agent knows by another name.
// What was said is shown from the log: the agent's own record holds what it
// was told by us, or what was rewound.
func (p *proxy) reopen(ctx context.Context, t *task, w *wrapped, kept *session.Session, now session.Wrapped) (any, error) {
	var result json.RawMessage
	opened := false
	leaf := kept.LeafID()
	asItIs := !now.Doubt && (now.Knows == leaf || now.Knows == "")
	if now.Doubt || now.Knows != leaf {
		for _, was := range p.earlier(w, kept) {
			var err error
			if result, err = p.resume(ctx, w, kept, was.Current); err == nil {
				if err := kept.SetWrapped(ctx, was, false); err != nil {
					return nil, err
				}
				opened = true
				break
			}
			p.log.Info().Err(err).Str("session", w.id).Msg("the agent no longer has an earlier conversation")
		}
	}
	if !opened && !asItIs {
		_, _, err := p.cutOf(ctx, w, kept, now, kept.LeafID())
		asItIs = err == nil // it can go back in it with the next prompt
	}
	if !opened && asItIs {
		var err error
		if result, err = p.resume(ctx, w, kept, currentOf(now)); err != nil {
			p.log.Info().Err(err).Str("session", w.id).Msg("the agent no longer has the conversation; it will be told what was said")
		}
		opened = err == nil
	}
	if !opened {
		var err error
		if result, err = p.begin(ctx, w, kept); err != nil {
			return nil, err
		}
		at := session.Wrapped{Agent: p.agentName(), ID: w.id, Current: w.agentID(), Since: orStart(leaf), PutBack: filesOf(kept, now)}
		if err := kept.SetWrapped(ctx, at, true); err != nil {
			return nil, err
		}
	}
	replays := t.method.name == protocol.SessionLoad
	for name, value := range members(t.params) {
		replays = replays || name == "replayFrom" && string(value) != "null"
	}
	if replays {
		if err := p.server.replay(ctx, kept); err != nil {
			return nil, err
		}
	}
	t.after = w.announce
	answer := map[string]json.RawMessage{}
	_ = json.Unmarshal(result, &answer) // null is as good as an empty one
	delete(answer, "sessionId")
	return answer, nil
}

// resume has the agent open a session of its own; what it says of it meanwhile
// is not for the client.
func (p *proxy) resume(ctx context.Context, w *wrapped, kept *session.Session, id string) (result json.RawMessage, err error) {
	ctx, cancel := context.WithTimeout(ctx, holdLimit)
	defer cancel()
	p.rename(w, id)
	w.mute(true)
	defer w.mute(false)
	w.replays(true)
	defer w.replays(false)
	method := protocol.SessionLoad
	p.update(func(st *proxyState) {
		if st.resumes {
			method = protocol.SessionResume
		}
	})
	params := p.setupOf(w, kept)
	params["sessionId"] = mustEncode(id)
	if err = p.toAgent.ask(ctx, method, mustEncode(params), &result); err == nil {
		p.lives(id)
	}
	return result, err
}
