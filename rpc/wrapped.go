package rpc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
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

func (w *wrapped) setUp(params map[string]json.RawMessage) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.setup = params
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

// followed are the methods whose answer means work for us.
var followed = map[string]bool{
	protocol.SessionPrompt: true, protocol.SessionLoad: true, protocol.SessionResume: true,
	protocol.SessionClose: true, protocol.SessionDelete: true, protocol.SessionRewind: true,
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

// copy is a new session of ours with what the one of w has: with all of it, or
// where the params of the client's session/fork name a place that is known, with
// what comes before. now is what the agent has of it; in doubt where that is
// more, since something was rewound.
func (p *proxy) copy(ctx context.Context, w *wrapped, params map[string]json.RawMessage) (copied *session.Session, now session.Wrapped, err error) {
	s, err := w.session(ctx)
	if err != nil {
		return nil, now, err
	}
	now, _ = s.Wrapped("")
	now.Doubt = p.config.Conversation && (now.Doubt || now.Owed || now.Knows != s.LeafID())
	branch, err := s.Branch("")
	if err != nil {
		return nil, now, err
	}
	next, err := p.placeOf(ctx, w, s, now, p.offers().forkedAt(params))
	if err != nil {
		p.log.Info().Err(err).Str("session", w.id).Msg("where the client had the agent fork is not known; the fork has all of the conversation")
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
