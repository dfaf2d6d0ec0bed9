package rpc

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	"github.com/oino-dev/oinod/fork"
	"github.com/oino-dev/oinod/protocol"
	"github.com/oino-dev/oinod/session"
)

func (p *proxy) fork(ctx context.Context, t *task, s *session.Session, fp fork.Params) (fork.Result, error) {
	if err := p.mayFork(session.ForkConversation); err != nil {
		return fork.Result{}, err
	}
	hook := p.hook(t)
	r, err := p.config.Forker.Fork(ctx, s, fp, hook.handler())
	if err != nil || r.SessionID == "" {
		return r, err
	}
	w := p.byOurs(s.ID())
	now, _ := s.Wrapped("")
	at := placing{source: w, s: s, child: r.SessionID, whole: fp.EntryID == "", setup: p.setupOf(w, s), putBack: filesOf(s, now)}
	if r.SessionID, _, err = p.place(ctx, t, at); err != nil {
		return fork.Result{}, err
	}
	hook.tell(ctx)
	return r, nil
}

func (p *proxy) mayFork(c session.Conversation) error {
	if p.config.Conversation || c == "" || c == session.KeepConversation {
		return nil
	}
	return &session.Error{Kind: session.BadParams, Msg: "conversations stay as they are here (wrap runs with --conversation=off); files can be brought back"}
}

// placing is a fork that is made and has no place with the agent yet.
type placing struct {
	source  *wrapped // nil: the agent's is not known
	s       *session.Session
	child   string
	whole   bool                       // it is of the whole conversation
	setup   map[string]json.RawMessage // what it is made with
	putBack []string                   // paths of which the agent has to be told
}

// place finds a place with the agent for a fork, and returns what the client
// calls it and what the agent answered. Without one there is no fork.
func (p *proxy) place(ctx context.Context, t *task, f placing) (id string, result json.RawMessage, err error) {
	source, s, child := f.source, f.s, f.child
	defer func() {
		if err != nil {
			if left := p.config.Registry.Delete(context.WithoutCancel(ctx), child); left != nil {
				p.log.Warn().Err(left).Str("session", child).Msg("a fork that has no place with the agent is left over")
			}
		}
	}()
	made, err := p.config.Registry.Get(ctx, child)
	if err != nil {
		return "", nil, err
	}
	at := session.Wrapped{Agent: p.agentName(), PutBack: f.putBack}
	fresh := true
	var forks bool
	p.update(func(st *proxyState) { forks = st.forks })
	if now, leaf, ok := s.Standing(); ok && source != nil && !now.Doubt {
		at.Since, at.Hidden = now.Since, now.Hidden
		params := maps.Clone(f.setup)
		if f.whole && forks && now.Knows == leaf && !now.Owed {
			params["sessionId"] = mustEncode(source.agentID())
			result, id, err = p.ask(ctx, protocol.SessionFork, params)
		} else {
			result, id, err = p.forkAgent(ctx, source, s, now, made.LeafID(), params)
		}
		if fresh = err != nil; fresh { // else its own fork knows all that it should
			p.log.Info().Err(err).Str("session", source.id).Msg("the agent does not fork its conversation there; the fork is told what was said")
		}
	}
	if fresh {
		at.Since, at.Hidden = orStart(made.LeafID()), false // up to there it will be told
		if result, id, err = p.ask(ctx, protocol.SessionNew, f.setup); err != nil {
			return "", nil, fmt.Errorf("the agent could not begin a conversation for the fork: %w", err)
		}
	}
	w := p.meet(id)
	p.doneAsking(id)
	w.setUp(f.setup)
	if source != nil {
		w.setLike(source)
		p.setAs(ctx, w, id)
	}
	at.ID = id
	if err := made.SetWrapped(ctx, at, fresh); err != nil {
		return "", nil, err
	}
	p.keepsIn(w, made)
	w.saveSettings(ctx)
	after := t.after
	t.after = func() {
		if after != nil {
			after()
		}
		w.announce()
	}
	return id, result, nil
}

// laterHook is the client as a handler that hears of a fork only when it has a
// name for it.
type laterHook struct {
	fork.Handler
	forked []fork.Forked
}

func (p *proxy) hook(t *task) *laterHook { return &laterHook{Handler: p.server.hook(t)} }

func (h *laterHook) handler() fork.Handler {
	if h.Handler == nil {
		return nil
	}
	return h
}

// SessionForked keeps the news.
func (h *laterHook) SessionForked(_ context.Context, e fork.Forked) { h.forked = append(h.forked, e) }

func (h *laterHook) tell(ctx context.Context) {
	for _, e := range h.forked {
		h.Handler.SessionForked(ctx, e)
	}
}
