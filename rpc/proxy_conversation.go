package rpc

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/oino-dev/oinod/fork"
	"github.com/oino-dev/oinod/protocol"
	"github.com/oino-dev/oinod/session"
)

// Whether the agent's conversation is the one that the log has can be read from
// the log: the agent knows the conversation up to an entry, and where that is
// not the leaf, something was rewound since (or redone, and all is well
// again). So a rewind has nothing to do here; the next prompt finds that the
// agent has to be told, in a session that has heard nothing of the rest.

// recap is what the agent has to be told with a prompt.
type recap struct {
	block   []byte // a content block; nil where there is nothing to tell
	wrapped session.Wrapped
}

// maxRecap bounds what an agent is told of what was said, in bytes.
const maxRecap = 256 << 10

// catchUp sees to it that the next prompt goes to a session of the agent's
// that knows what the log has and nothing else. nil: it does already.
func (p *proxy) catchUp(ctx context.Context, w *wrapped, kept *session.Session) (*recap, error) {
	now, ok := kept.Wrapped("")
	if !p.config.Conversation || !ok || now.ID != w.id {
		return nil, nil
	}
	if now.Knows == kept.LeafID() {
		if current := currentOf(now); current != w.agentID() {
			p.rename(w, current) // one that was made for a prompt which was then called off
		}
		return nil, nil
	}
	if now.Knows != "" {
		if _, err := p.begin(ctx, w, kept); err != nil {
			return nil, fmt.Errorf("the agent could not begin a conversation from the point it was rewound to: %w", err)
		}
	}
	block, err := p.recapOf(ctx, kept)
	if err != nil {
		return nil, err
	}
	return &recap{block, session.Wrapped{Agent: p.agentName(), ID: w.id, Current: w.agentID()}}, nil
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
	p.doneAsking()
	p.setAs(ctx, w, id)
	return result, nil
}

// ask has the agent make a session. What it says of that session before it is
// known goes nowhere; doneAsking ends that.
func (p *proxy) ask(ctx context.Context, method string, params map[string]json.RawMessage) (result json.RawMessage, id string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, holdLimit, fmt.Errorf("the agent did not answer %s within %v", method, holdLimit))
	defer cancel()
	p.update(func(st *proxyState) { st.making++ })
	err = p.toAgent.ask(ctx, method, mustEncode(params), &result)
	if err == nil {
		if id = unquote(within(result, span{0, len(result)}, "sessionId").of(result)); id == "" {
			err = fmt.Errorf("the agent's answer to %s names no session", method)
		}
	}
	if err != nil {
		p.doneAsking()
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
	}
	return result, id, err
}

func (p *proxy) doneAsking() { p.update(func(st *proxyState) { st.making-- }) }

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
func (p *proxy) setAs(ctx context.Context, w *wrapped, id string) {
	w.mu.Lock()
	settings := slices.Clone(w.settings)
	w.mu.Unlock()
	for _, s := range settings {
		params := withMember(s.params, span{0, len(s.params)}, "sessionId", mustEncode(id))
		if err := p.toAgent.ask(ctx, s.method, params, new(json.RawMessage)); err != nil {
			p.log.Warn().Err(err).Str("method", s.method).Msg("a new conversation of the agent is not set as the old one was")
		}
	}
}

// recapOf is what was said, as one content block; nil where nothing was.
func (p *proxy) recapOf(ctx context.Context, kept *session.Session) ([]byte, error) {
	page, err := kept.Entries(ctx, session.EntriesQuery{Context: true})
	if err != nil || len(page.Entries) == 0 {
		return nil, err
	}
	var said []string
	size, cut := 0, false
	for _, e := range slices.Backward(page.Entries) {
		line := spoken(e)
		if size += len(line); size > maxRecap {
			cut = true
			break
		}
		if line != "" {
			said = append(said, line)
		}
	}
	slices.Reverse(said)
	var b strings.Builder
	b.WriteString("The conversation so far, as it was taken up again from an earlier point. Anything else that was said does not count any more.\n")
	if files := kept.PutBack(); len(files) > 0 {
		const most = 100
		more := ""
		if len(files) > most {
			files, more = files[:most], fmt.Sprintf(" and %d more", len(files)-most)
		}
		fmt.Fprintf(&b, "Files that were put back as they were at that point: %s%s.\n", strings.Join(files, ", "), more)
	}
	if cut {
		b.WriteString("The beginning is left out.\n")
	}
	for _, line := range said {
		b.WriteString("\n" + line + "\n")
	}
	var embedded bool
	p.update(func(st *proxyState) { embedded = st.embedded })
	if !embedded {
		return protocol.TextBlock(b.String()), nil
	}
	return mustEncode(map[string]any{"type": "resource", "resource": map[string]string{
		"uri": "oino:///conversation", "mimeType": "text/plain", "text": b.String(),
	}}), nil
}

// spoken is an entry as one would tell of it; "" for what need not be told.
func spoken(e session.Entry) string {
	if e.Role == session.Tool {
		var call protocol.ToolFields
		_ = json.Unmarshal(e.Tool, &call) // without a title it has its id
		if call.Title == "" {
			call.Title = e.ToolCallID
		}
		return fmt.Sprintf("Tool: %s (%s)", call.Title, e.Status)
	}
	blocks, err := protocol.ParseBlocks(e.Content)
	if err != nil {
		return ""
	}
	var parts []string
	for _, block := range blocks {
		var other struct {
			Type     string `json:"type"`
			URI      string `json:"uri"`
			Resource struct {
				URI  string `json:"uri"`
				Text string `json:"text"`
			} `json:"resource"`
		}
		if text, ok := block.Text(); ok {
			parts = append(parts, text)
		} else if json.Unmarshal(block, &other) == nil {
			parts = append(parts, strings.TrimSpace(fmt.Sprintf("[%s] %s%s\n%s", other.Type, other.URI, other.Resource.URI, other.Resource.Text)))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	who := "Assistant"
	if e.Role == session.User {
		who = "User"
	}
	return who + ": " + strings.Join(parts, "\n")
}

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
	p.keepsIn(p.meet(id), s)
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
		if r.SessionID, err = p.place(ctx, t, w, s, r.SessionID, false); err != nil {
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

func (p *proxy) fork(ctx context.Context, t *task, s *session.Session, fp fork.Params) (fork.Result, error) {
	if err := p.mayFork(session.ForkConversation); err != nil {
		return fork.Result{}, err
	}
	hook := p.hook(t)
	r, err := p.config.Forker.Fork(ctx, s, fp, hook.handler())
	if err != nil || r.SessionID == "" {
		return r, err
	}
	if r.SessionID, err = p.place(ctx, t, p.byOurs(s.ID()), s, r.SessionID, fp.EntryID == ""); err != nil {
		return fork.Result{}, err
	}
	hook.tell(ctx)
	return r, nil
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

func (p *proxy) mayFork(c session.Conversation) error {
	if p.config.Conversation || c == "" || c == session.KeepConversation {
		return nil
	}
	return &session.Error{Kind: session.BadParams, Msg: "conversations stay as they are here (wrap runs with --conversation=off); files can be brought back"}
}

// place finds a place with the agent for a fork of s that is made, and returns
// what the client calls it. Without one there is no fork.
func (p *proxy) place(ctx context.Context, t *task, source *wrapped, s *session.Session, child string, whole bool) (id string, err error) {
	defer func() {
		if err != nil {
			if left := p.config.Registry.Delete(context.WithoutCancel(ctx), child); left != nil {
				p.log.Warn().Err(left).Str("session", child).Msg("a fork that has no place with the agent is left over")
			}
		}
	}()
	made, err := p.config.Registry.Get(ctx, child)
	if err != nil {
		return "", err
	}
	setup := p.setupOf(source, s)
	fresh := true
	var forks bool
	p.update(func(st *proxyState) { forks = st.forks })
	if now, ok := s.Wrapped(""); whole && forks && ok && source != nil && now.Knows == s.LeafID() {
		params := p.setupOf(source, s)
		params["sessionId"] = mustEncode(source.agentID())
		if _, id, err = p.ask(ctx, protocol.SessionFork, params); err == nil {
			fresh = false // its own fork knows it all
		}
	}
	if fresh {
		if _, id, err = p.ask(ctx, protocol.SessionNew, setup); err != nil {
			return "", fmt.Errorf("the agent could not begin a conversation for the fork: %w", err)
		}
	}
	w := p.meet(id)
	p.doneAsking()
	w.setUp(setup)
	if source != nil {
		source.mu.Lock()
		settings := slices.Clone(source.settings)
		source.mu.Unlock()
		w.mu.Lock()
		w.settings = settings
		w.mu.Unlock()
		p.setAs(ctx, w, id)
	}
	if err := made.SetWrapped(ctx, session.Wrapped{Agent: p.agentName(), ID: id}, fresh); err != nil {
		return "", err
	}
	p.keepsIn(w, made)
	after := t.after
	t.after = func() {
		if after != nil {
			after()
		}
		w.announce()
	}
	return id, nil
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
		if now, ok := kept.Wrapped(""); ok && now.ID == w.id && (now.Current != "" || now.Knows != kept.LeafID()) {
			return p.reopen(ctx, t, w, kept, now)
		}
	}
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
	return kept, nil
}

// opened takes the agent's answer to session/load or session/resume.
func (p *proxy) opened(w *wrapped, r *request, good bool) {
	ours := w.oursID()
	w.mu.Lock()
	elsewhere := w.elsewhere
	w.mu.Unlock()
	switch {
	case elsewhere:
	case good && ours == "":
		p.tasks.put(w.id, func(ctx context.Context) { p.keep(ctx, w) })
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
	if now.Knows == kept.LeafID() || now.Knows == "" {
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
		if err := kept.SetWrapped(ctx, session.Wrapped{Agent: p.agentName(), ID: w.id, Current: w.agentID()}, true); err != nil {
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
	method := protocol.SessionLoad
	p.update(func(st *proxyState) {
		if st.resumes {
			method = protocol.SessionResume
		}
	})
	params := p.setupOf(w, kept)
	params["sessionId"] = mustEncode(id)
	err = p.toAgent.ask(ctx, method, mustEncode(params), &result)
	return result, err
}
