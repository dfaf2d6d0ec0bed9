package rpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/oino-dev/oinod/fork"
	"github.com/oino-dev/oinod/protocol"
	"github.com/oino-dev/oinod/session"
)

// Whether the agent's conversation is the one that the log has can be read from
// the log: the agent knows the conversation up to an entry, and where that is
// not the leaf, something was rewound since (or redone, and all is well
// again). So a rewind has nothing to do here; the next prompt finds that the
// agent has to go back (proxy_rewind.go), or else to be told, in a session that
// has heard nothing of the rest.

// recap is what the agent has to be told with a prompt.
type recap struct {
	text    string           // "": nothing
	short   bool             // the agent has the conversation itself
	wrapped *session.Wrapped // what the session is called once the prompt is on its way; nil: as before
}

// block is the recap as a content block that goes before a prompt; nil where
// there is nothing to tell. asText: it is then part of the text of the user's
// message. A short one is, so that what the agent has of that message is known,
// and can be told from others again (anchors.go).
func (r *recap) block(embedded bool, prompt protocol.Blocks) (block []byte, asText bool) {
	switch {
	case r.text == "":
		return nil, false
	case !embedded || r.short && !looksLikeCommand(prompt):
		return protocol.TextBlock(r.text), true
	}
	return mustEncode(map[string]any{"type": "resource", "resource": map[string]string{
		"uri": "oino:///conversation", "mimeType": "text/plain", "text": r.text,
	}}), false
}

// maxRecap bounds what an agent is told of what was said, in bytes.
const maxRecap = 256 << 10

// catchUp sees to it that the next prompt goes to a session of the agent's
// that knows what the log has and nothing else. nil: it does already.
//
// A message for a command of the agent's own goes bare: what the agent has to be
// told goes with the next one that is not.
func (p *proxy) catchUp(ctx context.Context, w *wrapped, kept *session.Session, prompt protocol.Blocks) (*recap, error) {
	now, ok := kept.Wrapped("")
	if !p.config.Conversation || !ok || now.ID != w.id {
		return nil, nil
	}
	leaf, bare := kept.LeafID(), w.callsAgentsCommand(prompt)
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

// recapOf is what was said up to an entry (session.Start: nothing), as one would
// tell of it, and which files were put back; "" where nothing was.
func (p *proxy) recapOf(ctx context.Context, kept *session.Session, through string, files []string) (string, error) {
	if through == session.Start {
		return putBack(files), nil
	}
	page, err := kept.Entries(ctx, session.EntriesQuery{Through: through, Context: true})
	if err != nil || len(page.Entries) == 0 {
		return putBack(files), err
	}
	var said []string
	size, cut := 0, false
	for _, e := range slices.Backward(page.Entries) {
		line := spoken(e)
		if size += len(line); size > maxRecap {
			if cut = true; len(said) == 0 { // else nothing at all would be told
				said = append(said, "[…] "+strings.ToValidUTF8(line[len(line)-maxRecap:], ""))
			}
			break
		}
		if line != "" {
			said = append(said, line)
		}
	}
	slices.Reverse(said)
	var b strings.Builder
	b.WriteString("The conversation so far, as it was taken up again from an earlier point. Anything else that was said does not count any more.\n")
	if len(files) > 0 {
		b.WriteString(filesLine(files))
	}
	if cut {
		b.WriteString("The beginning is left out.\n")
	}
	for _, line := range said {
		b.WriteString("\n" + line + "\n")
	}
	return b.String(), nil
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
	if now, ok := s.Wrapped(""); ok && source != nil && !now.Doubt {
		at.Since, at.Hidden = now.Since, now.Hidden
		params := maps.Clone(f.setup)
		if f.whole && forks && now.Knows == s.LeafID() && !now.Owed {
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
