package rpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/oino-dev/oinod/protocol"
	"github.com/oino-dev/oinod/session"
)

// wrapped is a session of the agent's, as this process knows it.
type wrapped struct {
	proxy *proxy
	id    string // what the client calls it, for good
	lane  lane

	mu        sync.Mutex
	agentsID  string // what the agent calls it
	ours      string // our session, "": none
	setup     map[string]json.RawMessage
	settings  []session.Setting
	saving    bool            // these are on their way to the log
	commands  json.RawMessage // the agent's own, an array
	taken     map[string]bool // their names
	running   []*turnRequest  // prompts that the agent works on
	heard     heard
	called    map[string]string // what the agent calls messages of the user, by entry: on its way to the log
	replayed  map[string]*named // messages as the agent has named them when it opened its session (by its id) here
	replaying bool              // it is doing so
	hinted    map[string]bool   // paths of this turn that were looked at: whether they were said to be changed
	spoke     time.Time         // the agent, last
	muted     bool              // what the agent says of it is a replay that we asked for
	told      map[string]bool   // what the user knows that is not kept
	elsewhere bool              // it is kept, and cannot be now: in another process, say
	writing   bool              // what was heard is on its way to the log

	log  sync.Mutex // held while something is on its way to the log; taken before mu
	save sync.Mutex // held while the settings are on their way to the log; taken before mu
}

// turnRequest is a prompt that the agent works on.
type turnRequest struct {
	*request
	begun     time.Time
	accepted  bool // version 2: it was answered, and is worked on
	idled     bool // version 2: the agent was idle before it answered
	cancelled time.Time
	entry     string // that the prompt became; "": none
	print     string // its fingerprint, as the agent has it
	messageID string // what the agent calls it, if its answer said so
	echo      named  // what the agent says again of the user's messages
}

// lostSession is one that the agent could not open again. A client that knows
// the conversation goes on with a new one.
type lostSession struct {
	ours, cwd string
	at        time.Time
}

// goesOn is how soon after a session was lost a new one takes its place. A
// client does that by itself; a person who begins something else takes longer.
const goesOn = 5 * time.Second

func (p *proxy) wrapped(clientID string) (w *wrapped) {
	p.update(func(st *proxyState) { w = st.byClient[clientID] })
	return w
}

func (p *proxy) byAgent(agentID string) (w *wrapped) {
	p.update(func(st *proxyState) { w = st.byAgent[agentID] })
	return w
}

func (p *proxy) byOurs(sessionID string) (w *wrapped) {
	p.update(func(st *proxyState) { w = st.byOurs[sessionID] })
	return w
}

// inClientsNames is a text of ours for the client, who does not know our ids.
func (p *proxy) inClientsNames(text string) string {
	p.update(func(st *proxyState) {
		for id, w := range st.byOurs {
			text = strings.ReplaceAll(text, id, w.id)
		}
	})
	return text
}

// nameOf is what the client calls a session of ours.
func (p *proxy) nameOf(sessionID string) string {
	if w := p.byOurs(sessionID); w != nil {
		return w.id
	}
	return sessionID
}

// meet is the session that client and agent call id, noted if it is new.
func (p *proxy) meet(id string) (w *wrapped) {
	p.update(func(st *proxyState) {
		if w = st.byClient[id]; w == nil {
			w = &wrapped{proxy: p, id: id, agentsID: id, lane: lane{load: p.held}}
			st.byClient[id], st.byAgent[id] = w, w
			delete(st.former, id)
		}
	})
	return w
}

// rename is what the agent calls w from now on.
func (p *proxy) rename(w *wrapped, agentID string) {
	p.update(func(st *proxyState) {
		old := w.agentID()
		if st.byAgent[old] == w {
			delete(st.byAgent, old)
		}
		if stub := st.byAgent[agentID]; stub != nil && stub != w { // it announced its commands already
			delete(st.byClient, stub.id)
			w.learnCommands(stub.agentCommands())
		}
		st.byAgent[agentID] = w
		if old != agentID {
			st.former[old] = true
		}
		delete(st.former, agentID)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.agentsID = agentID
	})
}

// keepsIn is where what happens in w is kept.
func (p *proxy) keepsIn(w *wrapped, s *session.Session) {
	p.update(func(st *proxyState) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if st.byOurs[w.ours] == w {
			delete(st.byOurs, w.ours)
		}
		w.ours = s.ID()
		st.byOurs[w.ours] = w
	})
}

// forget forgets a session that is closed or deleted.
func (p *proxy) forget(w *wrapped) {
	p.update(func(st *proxyState) {
		delete(st.byClient, w.id)
		delete(st.live, w.agentID())
		for id, other := range st.byAgent {
			if other == w {
				delete(st.byAgent, id)
			}
		}
		for id, other := range st.byOurs {
			if other == w {
				delete(st.byOurs, id)
			}
		}
	})
}

func (w *wrapped) agentID() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.agentsID
}

func (w *wrapped) oursID() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ours
}

func (w *wrapped) isMuted() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.muted
}

func (w *wrapped) mute(muted bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.muted = muted
}

// session is where what happens in w is kept; nil where nothing is.
func (w *wrapped) session(ctx context.Context) (*session.Session, error) {
	id := w.oursID()
	if id == "" {
		return nil, nil
	}
	return w.proxy.config.Registry.Get(ctx, id)
}

// setUp says with which params w was made or opened.
func (w *wrapped) setUp(params map[string]json.RawMessage) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.setup = withoutPlace(params)
}

func (w *wrapped) cwd() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return unquote(w.setup["cwd"])
}

// directories are the additional ones that the client has named.
func (w *wrapped) directories() (dirs []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = json.Unmarshal(w.setup["additionalDirectories"], &dirs) // those that are none are the agent's to refuse
	return dirs
}

// notSeen is what the user is told of a turn that is not covered.
const notSeen = "not all of the workspace is looked at, so a rewind may miss what this turn does"

// tell tells the user, once, that something is not kept.
func (w *wrapped) tell(what string, err error) {
	w.proxy.log.Warn().Err(err).Str("session", w.id).Msg(what)
	w.mu.Lock()
	told := w.told[what]
	if w.told == nil {
		w.told = map[string]bool{}
	}
	w.told[what] = true
	w.mu.Unlock()
	if !told {
		w.proxy.client.notify(protocol.SessionUpdate, protocol.UpdateParams{SessionID: w.id, Update: w.proxy.client.words(fmt.Sprintf(
			"oinod: %s: %v\n\n", what, err))})
	}
}

// agentName is the agent's name.
func (p *proxy) agentName() (name string) {
	p.update(func(st *proxyState) { name = st.agentName })
	return name
}

// followed are the methods whose answer means work for us.
var followed = map[string]bool{
	protocol.SessionPrompt: true, protocol.SessionLoad: true, protocol.SessionResume: true,
	protocol.SessionClose: true, protocol.SessionDelete: true, protocol.SessionRewind: true,
}

// keep makes a session of ours for w, in which the agent has since
// (session.Wrapped) what will be said.
func (p *proxy) keep(ctx context.Context, w *wrapped, since string) {
	tracking := p.config.Tracking
	var meta protocol.Meta[protocol.NewExtension]
	w.mu.Lock()
	_ = json.Unmarshal(w.setup["_meta"], &meta) // what is no wish is none
	w.mu.Unlock()
	if wish := meta.Of().Tracking; wish != "" {
		tracking = []string{wish, string(session.Files)}
	}
	var s *session.Session
	var err error
	for _, t := range tracking {
		s, err = p.config.Registry.Create(ctx, session.CreateParams{
			Cwd: w.cwd(), AdditionalDirectories: w.directories(), Tracking: session.Tracking(t), Agent: p.agentName(),
			InMemory: meta.Of().Persist != nil && !*meta.Of().Persist,
		})
		if e, ok := errors.AsType[*session.Error](err); !ok || e.Kind != session.TrackingUnavailable {
			break
		}
		p.log.Info().Err(err).Str("session", w.id).Msg("files are seen only where a tool names them")
	}
	if err == nil {
		err = s.SetWrapped(ctx, session.Wrapped{Agent: p.agentName(), ID: w.id, Since: since}, false)
	}
	if err != nil {
		w.tell("there are no checkpoints of this session", err)
		return
	}
	p.keepsIn(w, s)
	w.saveSettings(ctx) // those that were quicker
}

// copy is a new session of ours with what the one of w has: with all of it, or
// where the params of the client's session/fork name a place that is known, with
// what comes before. now is what the agent has of it; in doubt where that is
// more, since something was rewound.
func (p *proxy) copy(ctx context.Context, w *wrapped, params map[string]json.RawMessage) (copied *session.Session, now session.Wrapped, err error) {
	s, err := w.session(ctx)
	if err != nil {
		return nil, now, err
	}
	now, leaf, _ := s.Standing()
	now.Doubt = p.config.Conversation && (now.Doubt || now.Owed || now.Knows != leaf)
	branch, err := s.Branch("")
	if err != nil {
		return nil, now, err
	}
	next, err := p.placeOf(ctx, w, s, now, p.offers().forkedAt(params))
	if err != nil {
		p.log.Info().Err(err).Str("session", w.id).Msg("where the client had the agent fork is not known; the fork has all of the conversation")
		now.Since, now.Hidden = orStart(leaf), true // of which the agent may have any part
	}
	ids := make([]string, 0, len(branch))
	for _, e := range branch {
		if e.ID == next {
			break
		}
		ids = append(ids, e.ID)
	}
	child, err := p.config.Registry.Stage(ctx, s, ids, nil)
	if err != nil {
		return nil, now, err
	}
	if err := child.Publish(ctx); err != nil {
		return nil, now, errors.Join(err, child.Discard())
	}
	copied, err = p.config.Registry.Get(ctx, child.ID())
	return copied, now, err
}
