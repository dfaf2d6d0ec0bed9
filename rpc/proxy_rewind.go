package rpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/oino-dev/oinod/protocol"
	"github.com/oino-dev/oinod/session"
)

// An agent that can go back in its own conversation does (adverts.go says in
// which ways, anchors.go where to). Then it has its own messages, and needs no
// recap.
//
// It is asked with the next prompt, not when the user rewinds: the files are
// back by then, nothing has to be undone at the agent for a redo, and of
// several rewinds it sees the last. Until then its session is as it was. A
// session that is opened in between is opened as it is.
//
// _session/rewind changes the agent's session for good. So the log first says
// that nobody knows what it knows (session.Wrapped.Doubt), and after a good
// answer where it stands. Whatever else comes of it, that session is not used
// again: the agent may have gone back all the same, and the user gets a new one
// that is told what was kept. A redo afterwards has to do the same, for what it
// brings back is gone there.
//
// session/fork leaves the agent's session as it is. The fork takes its place
// when the prompt is on its way; whatever goes wrong before changes nothing.
//
// In either case the user sees no difference, and the log tells of it.
//
// A client may also know these ways, and go them itself. The agent's answer is
// then all that tells of it: the log follows where that is a good one and the
// place one that it knows. Of a place that it does not know it only says that
// nobody knows any more what the agent has of what was said.

// rewindLimit is how long an agent may take to go back: some write their
// history first and read it again.
const rewindLimit = 30 * time.Second

// goBack has the agent go back in its conversation to where the log is. nil: it
// has not, and is to begin a new one.
func (p *proxy) goBack(ctx context.Context, w *wrapped, kept *session.Session, now session.Wrapped) *recap {
	c, offers, err := p.cutOf(ctx, w, kept, now, kept.LeafID())
	if err != nil {
		p.log.Info().Err(err).Str("session", w.id).Msg("the agent cannot be told where to go back to; it begins anew and is told what was said")
		return nil
	}
	if offers.rewind && c.canRewind() {
		if err = p.rewindAgent(ctx, w, kept, now, c); err == nil {
			return &recap{text: putBack(filesOf(kept, now)), short: true}
		}
		p.log.Warn().Err(err).Str("session", w.id).Msg("the agent did not go back in its conversation")
	}
	if ctx.Err() != nil {
		return nil
	}
	params := p.setupOf(w, kept)
	if !offers.forkAt(c, params) {
		return nil
	}
	params["sessionId"] = mustEncode(currentOf(now))
	_, id, err := p.ask(ctx, protocol.SessionFork, params)
	if err != nil {
		p.log.Warn().Err(err).Str("session", w.id).Msg("the agent did not fork its conversation at an earlier point")
		return nil
	}
	p.rename(w, id)
	p.doneAsking(id)
	p.setAs(ctx, w, id)
	return &recap{text: putBack(filesOf(kept, now)), short: true, wrapped: &session.Wrapped{
		Agent: p.agentName(), ID: w.id, Current: id, Since: now.Since, Hidden: now.Hidden,
	}}
}

// offers are the ways in which the agent can go back.
func (p *proxy) offers() (offers adverts) {
	p.update(func(st *proxyState) { offers = st.adverts })
	return offers
}

// cutOf is where the agent's session has to end so that it ends with the entry
// leaf ("": before the first). An error: it cannot be told so.
func (p *proxy) cutOf(ctx context.Context, w *wrapped, kept *session.Session, now session.Wrapped, leaf string) (c cut, offers adverts, err error) {
	offers = p.offers()
	switch {
	case now.Doubt || now.Owed || now.Knows == "":
		return c, offers, errors.New("its session is not one to go back in")
	case offers == adverts{}:
		return c, offers, errors.New("it offers no way")
	}
	said, err := heardBy(ctx, kept, now)
	if err != nil {
		return c, offers, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	c, err = cutAfter(said, leaf, now.Since, now.Hidden, w.replayed[currentOf(now)])
	if err == nil && !offers.canGoBack(c) {
		err = errors.New("it offers no way that leads there")
	}
	return c, offers, err
}

// heardBy is what was said in the agent's session, as the log has it.
func heardBy(ctx context.Context, kept *session.Session, now session.Wrapped) ([]session.Entry, error) {
	after := now.Since
	if after == session.Start {
		after = ""
	}
	page, err := kept.Entries(ctx, session.EntriesQuery{Through: now.Knows, After: after})
	return page.Entries, err
}

// placeOf is the entry that comes first behind a place which the client has
// named to the agent; "": none does, or none was named.
func (p *proxy) placeOf(ctx context.Context, w *wrapped, kept *session.Session, now session.Wrapped, at place) (next string, err error) {
	if at.role == "" {
		return "", nil
	}
	if now.Doubt || now.Owed || now.Knows == "" {
		return "", errors.New("nobody knows what is in its session")
	}
	said, err := heardBy(ctx, kept, now)
	if err != nil {
		return "", err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return at.next(said, now.Since, now.Hidden, w.replayed[currentOf(now)])
}

// hasRewound reports whether an answer to _session/rewind of the agent's session
// id is a good one.
func hasRewound(result json.RawMessage, id string) bool {
	var answer struct {
		Rewound   bool   `json:"rewound"`
		SessionID string `json:"sessionId"`
	}
	return protocol.Decode(result, &answer) == nil && answer.Rewound && (answer.SessionID == "" || answer.SessionID == id)
}

// wentBack follows the agent where the client has had it go back in its
// conversation itself: with these params, and the agent answered with result.
// The files stay as they are, and what was done to them can still be rewound.
// Where the client names no message that the log knows, or the agent works
// already, the log keeps what was said, and says no more that the agent has it.
func (p *proxy) wentBack(w *wrapped, params map[string]json.RawMessage, result []byte) {
	if !p.config.Conversation || !hasRewound(result, w.agentID()) {
		return
	}
	w.log.Lock() // no prompt begins meanwhile, and what was said before is in the log
	defer w.log.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), seeLimit)
	defer cancel()
	kept, err := w.session(ctx)
	if err == nil && kept == nil {
		return
	}
	if err == nil {
		if err = w.refuseRunning(); err == nil {
			err = p.followBack(ctx, w, kept, params)
		}
		if err != nil {
			err = errors.Join(err, p.losesTrack(ctx, w, kept))
		}
	}
	if err != nil {
		p.log.Warn().Err(err).Str("session", w.id).Msg("the agent went back in its conversation, and what is kept of it stays as it was")
	}
}

// followBack has the log go back to where the client has had the agent go.
func (p *proxy) followBack(ctx context.Context, w *wrapped, kept *session.Session, params map[string]json.RawMessage) error {
	at := place{role: session.User}
	_ = protocol.Decode(params["beforeMessage"], &at.at) // else it is none that is known
	now, ok := kept.Wrapped("")
	if !ok || now.ID != w.id {
		return errors.New("another client goes on with it")
	}
	next, err := p.placeOf(ctx, w, kept, now, at)
	if err != nil {
		return err
	}
	if _, err := kept.Rewind(ctx, session.RewindParams{EntryID: next, Conversation: session.RewindConversation, NoFiles: true}); err != nil {
		return err
	}
	w.forgetNames(currentOf(now), at.at.MessageID)
	return kept.SetWrapped(ctx, session.Wrapped{
		Agent: p.agentName(), ID: w.id, Current: currentOf(now), Since: now.Since, Back: true, Hidden: now.Hidden, PutBack: now.PutBack,
	}, false)
}

// losesTrack notes that the agent went back in its conversation to where nobody
// here knows. Of what the log has the agent may have any part; known is what
// comes from now on. Its session goes on all the same, for so the client wants
// it: only where the log was already elsewhere is it not used any more.
func (p *proxy) losesTrack(ctx context.Context, w *wrapped, kept *session.Session) error {
	now, leaf, ok := kept.Standing()
	if !ok || now.ID != w.id || now.Doubt || now.Owed {
		return nil // it is said already, or not ours to say
	}
	lost := now.Knows != leaf
	return kept.SetWrapped(ctx, session.Wrapped{
		Agent: p.agentName(), ID: w.id, Current: currentOf(now), Since: orStart(leaf), Doubt: lost, Back: now.Back, Hidden: true, PutBack: now.PutBack,
	}, lost)
}

// rewindAgent has the agent forget what comes after the cut. A cancel of the
// prompt that this is for does not end it: half done is worse.
func (p *proxy) rewindAgent(ctx context.Context, w *wrapped, kept *session.Session, now session.Wrapped, c cut) error {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), p.rewindLimit, fmt.Errorf("no answer within %v", p.rewindLimit))
	defer cancel()
	at := session.Wrapped{Agent: p.agentName(), ID: w.id, Current: currentOf(now), Since: now.Since, Hidden: now.Hidden}
	doubt := at
	doubt.Doubt = true
	if err := kept.SetWrapped(ctx, doubt, true); err != nil {
		return err
	}
	params := map[string]any{"sessionId": at.Current, "beforeMessage": c.before}
	if c.last != nil {
		params["resumeAtMessage"] = c.last
	}
	var result json.RawMessage
	if err := p.toAgent.ask(ctx, protocol.SessionRewind, mustEncode(params), &result); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return err
	}
	if !hasRewound(result, at.Current) {
		return fmt.Errorf("it answered %.200s", result)
	}
	at.Back = true
	if err := kept.SetWrapped(ctx, at, false); err != nil {
		return err
	}
	p.rename(w, at.Current)
	w.forgetNames(at.Current, c.before.MessageID)
	return nil
}

// forkAgent has the agent fork the session of source, with params, so that the
// fork ends with the entry leaf.
func (p *proxy) forkAgent(
	ctx context.Context, source *wrapped, s *session.Session, now session.Wrapped, leaf string, params map[string]json.RawMessage,
) (result json.RawMessage, id string, err error) {
	c, offers, err := p.cutOf(ctx, source, s, now, leaf)
	if err != nil {
		return nil, "", err
	}
	if !offers.forkAt(c, params) {
		return nil, "", errors.New("it offers no way of a fork that leads there")
	}
	params["sessionId"] = mustEncode(currentOf(now))
	return p.ask(ctx, protocol.SessionFork, params)
}

// forgetNames forgets what the agent has called a message of the user's in its
// session id, and all that came after it.
func (w *wrapped) forgetNames(id, from string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if names := w.replayed[id]; names != nil {
		names.forget(from)
	}
}

// replays says that the agent is about to open the session that w is now, and
// will say again what was said in it; or (false) that it has.
func (w *wrapped) replays(on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.replaying = on; !on {
		return
	}
	if w.replayed == nil {
		w.replayed = map[string]*named{}
	}
	w.replayed[w.agentsID] = &named{}
}

// putBack is what an agent that has gone back by itself has to be told: it
// knows nothing of files. "": nothing.
func putBack(files []string) string {
	if len(files) == 0 {
		return ""
	}
	return "The conversation was taken back to this point. " + filesLine(files)
}

// filesOf are the paths that the agent has to be told of.
func filesOf(kept *session.Session, now session.Wrapped) []string {
	files := slices.Concat(kept.PutBack(), now.PutBack)
	slices.Sort(files)
	return slices.Compact(files)
}

// filesLine says which files were put back.
func filesLine(files []string) string {
	const most = 100
	more := ""
	if len(files) > most {
		files, more = files[:most], fmt.Sprintf(" and %d more", len(files)-most)
	}
	return fmt.Sprintf("Files that were put back as they were at that point: %s%s.\n", strings.Join(files, ", "), more)
}

// callsAgentsCommand reports whether a message is for a command that the agent
// has announced. Nothing may stand before that: not even a block of ours.
func (w *wrapped) callsAgentsCommand(blocks protocol.Blocks) bool {
	name, ok := strings.CutPrefix(firstText(blocks), "/")
	if end := strings.IndexAny(name, " \t\r\n"); end >= 0 {
		name = name[:end]
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return ok && w.taken[name]
}

// looksLikeCommand reports whether a message may be for a command of the agent's,
// announced or not: its text begins with a slash, as it has to for that.
func looksLikeCommand(blocks protocol.Blocks) bool {
	return strings.HasPrefix(firstText(blocks), "/")
}

// firstText is the text of the first text block; "" where there is none.
func firstText(blocks protocol.Blocks) string {
	for _, b := range blocks {
		if text, ok := b.Text(); ok {
			return text
		}
	}
	return ""
}
