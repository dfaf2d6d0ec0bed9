package rpc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/oino-dev/oinod/protocol"
	"github.com/oino-dev/oinod/session"
)

// A turn is a prompt that the agent works on: from the moment before it hears
// of it to the moment before the client hears that it is done. A tool's status
// ends nothing.

// holdLimit is how long the agent waits for us.
const holdLimit = 120 * time.Second

// seeLimit is how long the beginning or the end of a turn may take: a session
// gives up looking at its workspace after holdLimit, and has then to write that
// down.
const seeLimit = holdLimit + 10*time.Second

// giveUp is how long after a cancel a prompt that is never answered counts as
// running: some agents forget the second of two.
const giveUp = 5 * time.Second

// prompt takes a message of the user. Before the agent hears of it, what it is
// about to change is safe.
func (p *proxy) prompt(ctx context.Context, t *task) (any, error) {
	e := openLine(t.line)
	w := p.wrapped(unquote(e.sessionID().of(t.line)))
	var params protocol.PromptParams
	if w == nil || protocol.Decode(t.params, &params) != nil { // the agent's to judge
		t.passedOn = true
		p.pass(e, false)
		return nil, nil
	}
	if c, ok := parseCommand(params.Prompt, w.names()); ok {
		return p.command(ctx, t, w, c)
	}
	kept, err := w.session(ctx)
	if kept == nil && err == nil {
		kept, err = p.foundAgain(ctx, w)
	}
	if err != nil {
		w.tell("there is no checkpoint of this message", err)
	}
	if kept == nil {
		t.passedOn = true
		p.send(e, w.begins(e), nil, nil, nil)
		return nil, nil
	}
	w.settled() // what the agent has said is not to look like something that it does not know
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	told, err := p.catchUp(ctx, w, kept, params.Prompt)
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx) // an agent that goes back is not called off, the prompt is
	}
	if err != nil {
		return nil, err
	}
	message := session.NewEntry{Role: session.User, Content: params.Prompt.Raw()}
	var before []byte
	text := textOfBlocks(params.Prompt)
	if told != nil {
		var embedded, asText bool
		p.update(func(st *proxyState) { embedded = st.embedded })
		if before, asText = told.block(embedded, params.Prompt); asText {
			text = told.text + text
			message.Told = fingerprint(text)
		}
	}
	held, cancel := context.WithTimeoutCause(ctx, seeLimit, fmt.Errorf("it was not safe within %v", seeLimit))
	defer cancel()
	w.log.Lock()
	w.mu.Lock()
	said := w.heard.take(len(w.running) == 0) // of a prompt that still runs
	w.mu.Unlock()
	r := w.begins(e) // so that the end of another turn is not the end of this one
	if err = keepHeard(held, kept, said); err == nil {
		var ids []string
		if ids, err = kept.Append(held, []session.NewEntry{message}); err == nil {
			w.became(r, ids[0], text)
		}
	}
	w.log.Unlock()
	if ctx.Err() != nil && err != nil {
		w.ends(r)
		return nil, context.Cause(ctx) // the agent has not heard of it
	}
	if err != nil {
		if held.Err() != nil {
			err = context.Cause(held)
		}
		w.tell("there is no checkpoint of this message, and what the agent does now cannot be taken back", err)
	} else if blind := kept.Blind(); blind != nil {
		w.tell(notSeen, fmt.Errorf("%s: %s", blind.Path, blind.Error))
	}
	t.passedOn = true
	p.send(e, r, kept, told, before)
	return nil, nil
}

// begins notes that a prompt is on its way to the agent.
func (w *wrapped) begins(e envelope) *request {
	r := &request{id: bytes.Clone(e.id.of(e.line)), key: e.key(), method: protocol.SessionPrompt, session: w, sent: make(chan struct{})}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running = append(w.running, &turnRequest{request: r, begun: w.proxy.config.Now()})
	w.hinted = map[string]bool{}
	return r
}

// ends notes that a prompt does not run any more, or never did.
func (w *wrapped) ends(r *request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running = slices.DeleteFunc(w.running, func(t *turnRequest) bool { return t.request == r })
}

// became notes which entry a prompt became, and all its text that the agent gets.
func (w *wrapped) became(r *request, entry, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range w.running {
		if t.request == r {
			t.entry, t.print = entry, fingerprint(text)
		}
	}
}

// send sends a prompt to the agent, with a block of ours before (nil: none).
func (p *proxy) send(e envelope, r *request, kept *session.Session, told *recap, before []byte) {
	defer close(r.sent)
	if !p.await(r) {
		r.session.ends(r)
		return
	}
	if before != nil {
		if prompt := within(e.line, e.params, "prompt"); isArray(e.line, prompt) {
			e = openLine(withElement(e.line, prompt, before, true))
		}
	}
	line, _ := p.outbound(e)
	_ = p.agentOut.write(append(bytes.Clone(line), '\n')) // how the agent ended is found out elsewhere
	if told != nil && told.wrapped != nil {
		if err := kept.SetWrapped(context.Background(), *told.wrapped, false); err != nil {
			p.log.Warn().Err(err).Msg("that the agent knows the conversation could not be kept")
		}
	}
}

// command does what the user typed, if a turn does not keep it from being done.
func (p *proxy) command(ctx context.Context, t *task, w *wrapped, c command) (any, error) {
	w.settled()
	kept, err := w.session(ctx)
	if p.client.version.Load() > 1 {
		t.after = func() {
			p.client.notify(protocol.SessionUpdate, protocol.UpdateParams{SessionID: w.id, Update: map[string]string{
				"sessionUpdate": protocol.StateUpdate, "state": "idle", "stopReason": protocol.EndTurn,
			}})
		}
	}
	if err == nil && kept == nil {
		err = errors.New("there are no checkpoints of this session")
	}
	if err == nil && (c.name == cmdRewind || c.name == cmdRedo) {
		err = w.refuseRunning()
	}
	if err != nil {
		p.client.notify(protocol.SessionUpdate, protocol.UpdateParams{SessionID: w.id, Update: p.client.words(sentence(err.Error()))})
		return protocol.PromptResult{StopReason: protocol.EndTurn}, nil
	}
	return p.server.command(ctx, t, kept, c)
}

// refuseRunning refuses what must not be done while the agent works.
func (w *wrapped) refuseRunning() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.proxy.config.Now()
	if !slices.ContainsFunc(w.running, func(r *turnRequest) bool {
		// One that was cancelled and forgotten, by an agent that is silent since.
		return r.cancelled.IsZero() || now.Sub(r.cancelled) < giveUp || now.Sub(w.spoke) < giveUp
	}) {
		return nil
	}
	return &session.Error{Kind: session.TurnRunning, Msg: fmt.Sprintf(
		"the agent is working in session %s; wait until it is done, or stop it first", w.id)}
}

// cancelled notes that the client wants the turn to end.
func (w *wrapped) cancelled() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.running {
		if r.cancelled.IsZero() {
			r.cancelled = w.proxy.config.Now()
		}
	}
}

// answered takes the answer to a prompt, before the client has it. In version
// 2 a good one only says that the agent begins. messageID is what the agent
// calls the prompt, if it says so.
func (w *wrapped) answered(r *request, good bool, messageID string) {
	if r.sent != nil {
		<-r.sent // the agent may be quicker than our disk
	}
	w.mu.Lock()
	i := slices.IndexFunc(w.running, func(t *turnRequest) bool { return t.request == r })
	if i < 0 {
		w.mu.Unlock()
		return
	}
	w.running[i].messageID = messageID
	if good && w.proxy.client.version.Load() > 1 && !w.running[i].idled {
		w.running[i].accepted = true
		w.mu.Unlock()
		return
	}
	w.name(w.running[i])
	w.running = slices.Delete(w.running, i, i+1)
	newest := i == len(w.running)
	if newest { // some agents never answer the prompt before
		for _, t := range w.running {
			if t.cancelled.IsZero() {
				t.cancelled = w.proxy.config.Now()
			}
		}
	}
	w.mu.Unlock()
	w.endTurn(newest)
}

// idle ends the turns of version 2 that the agent has begun.
func (w *wrapped) idle() {
	w.mu.Lock()
	before := len(w.running)
	for _, t := range w.running {
		if t.accepted {
			w.name(t)
		}
	}
	w.running = slices.DeleteFunc(w.running, func(t *turnRequest) bool { return t.accepted })
	some := len(w.running) < before
	if !some && before > 0 {
		select {
		case <-w.running[0].sent: // that is about this one, and came before the answer
			w.running[0].idled = true
		default:
		}
	}
	w.mu.Unlock()
	if some {
		w.endTurn(false)
	}
}

// busy takes back what idle noted before the answer to a prompt.
func (w *wrapped) busy() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range w.running {
		t.idled = false
	}
}

// name notes what the agent calls a prompt that is done. What it says again
// that is not what it was told is something else. The caller has mu.
func (w *wrapped) name(t *turnRequest) {
	if t.messageID == "" && t.print != "" {
		t.messageID = t.echo.idOf(session.User, t.print, 1)
	}
	if t.entry == "" || t.messageID == "" {
		return
	}
	if w.called == nil {
		w.called = map[string]string{}
	}
	w.called[t.entry] = t.messageID
}

// endTurn writes down what the agent has said and, when it works on nothing
// any more, or not on the newest prompt, whose turn it is, what it leaves. Only the latter is waited for: who wants to read
// the log, or to write to it, waits for the rest (see settled).
func (w *wrapped) endTurn(newest bool) {
	ctx, cancel := context.WithTimeout(context.Background(), seeLimit)
	w.log.Lock()
	w.mu.Lock()
	over := newest || len(w.running) == 0
	said := w.heard.take(over)
	called := w.called
	w.called = nil
	w.mu.Unlock()
	kept, err := w.session(ctx)
	if err != nil || kept == nil {
		cancel()
		w.log.Unlock()
		return // the user knows since the prompt
	}
	if over {
		_, err = kept.EndTurn(ctx)
		if e, ok := errors.AsType[*session.Error](err); ok && e.Kind == session.NoTurn {
			err = nil // the one that began without a checkpoint
		}
	}
	w.lane.load.work.Go(func() {
		defer w.log.Unlock()
		defer cancel()
		if err := errors.Join(err, keepHeard(ctx, kept, said)); err != nil {
			w.tell("what this turn did could not be written down whole", err)
		}
		if len(called) == 0 {
			return
		}
		if err := kept.NameMessages(ctx, called); err != nil {
			w.proxy.log.Warn().Err(err).Str("session", w.id).Msg("what the agent calls a message could not be written down")
		}
	})
}

// settled waits until all that was heard in turns that are over is in the log.
func (w *wrapped) settled() {
	w.log.Lock()
	defer w.log.Unlock()
}

func keepHeard(ctx context.Context, kept *session.Session, said []session.NewEntry) error {
	if len(said) == 0 {
		return nil
	}
	_, err := kept.Append(ctx, said)
	return err
}

// endTurns ends what runs when the agent has ended.
func (p *proxy) endTurns() {
	var all []*wrapped
	p.update(func(st *proxyState) {
		for _, w := range st.byClient {
			all = append(all, w)
		}
	})
	for _, w := range all {
		w.mu.Lock()
		runs := len(w.running) > 0
		w.running = nil
		w.mu.Unlock()
		if runs {
			w.endTurn(true)
		}
	}
}

// hear takes news of a session of ours. A turn that is not seen is the user's
// business too.
func (p *proxy) hear(e session.Event) {
	if w := p.byOurs(e.SessionID); w != nil && e.Type == "checkpoint_failed" {
		w.tell(notSeen, fmt.Errorf("%v", e.Data["error"]))
	}
}

// hear takes an update of the agent's. What it returns has to be done before
// the client has it.
func (w *wrapped) hear(u update) (before func()) {
	if u.variant == protocol.AvailableCommandsUpdate {
		w.learnCommands(u.commands)
		return nil
	}
	w.mu.Lock()
	w.spoke = w.proxy.config.Now()
	if len(w.running) == 0 || w.ours == "" {
		if names := w.replayed[w.agentsID]; w.replaying && names != nil {
			names.hear(u)
		}
		w.mu.Unlock() // the replay of a session/load, or nobody's business
		return nil
	}
	switch u.variant {
	case protocol.UserMessageChunk, protocol.UserMessage:
		w.running[0].echo.hear(u)
	case protocol.AgentMessageChunk:
		w.heard.chunk(u.content, messageID(u.message))
	case protocol.AgentMessage:
		if len(u.content) > 0 && u.content[0] == '[' {
			for _, block := range elements(u.content) {
				w.heard.chunk(block, messageID(u.message))
			}
		}
	case protocol.ToolCallStart, protocol.ToolCallUpdate:
		w.heard.call(u.all)
		wait := w.write()
		w.mu.Unlock()
		var call toolHints
		_ = json.Unmarshal(u.all, &call) // as much as can be read
		hint := w.hint(call, unquote(u.toolCall))
		switch {
		case hint == nil:
			return wait
		case wait == nil:
			return hint
		}
		return func() {
			hint()
			wait()
		}
	case protocol.StateUpdate:
		w.mu.Unlock()
		if unquote(u.state) == "idle" {
			return w.idle
		}
		return w.busy
	}
	wait := w.write()
	w.mu.Unlock()
	return wait
}

// write has what was heard written down where that is much, beside whatever
// else goes on; where it is too much, by the function that it returns. The
// caller has mu.
func (w *wrapped) write() (wait func()) {
	switch {
	case w.heard.size < muchHeard:
	case !w.writing:
		w.writing = true
		w.lane.load.work.Go(func() {
			w.endTurn(false)
			w.settled()
			w.mu.Lock()
			defer w.mu.Unlock()
			w.writing = false
		})
	case w.heard.size > maxHeard:
		return w.settled
	}
	return nil
}

// hint is what has to be done before a message goes on that names paths: they
// are looked at, once a turn, and once more where it turns out only then that
// they are changed.
func (w *wrapped) hint(call toolHints, id string) (before func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.running) == 0 || w.ours == "" {
		return nil
	}
	if call.Kind == "" {
		call.Kind = w.heard.kindOf(id)
	}
	if readingKinds[call.Kind] {
		return nil
	}
	// Agents write before they say so: what has changed in the turn already is
	// not what was there.
	since, changes := w.running[len(w.running)-1].begun, call.changes()
	var requests []session.RecordRequest
	for _, path := range hintsOf(call, unquote(w.setup["cwd"])) {
		if changed, looked := w.hinted[path]; !looked || changes && !changed {
			w.hinted[path] = changes
			requests = append(requests, session.RecordRequest{Paths: []string{path}, Since: since, Changes: changes}) // each fails alone
		}
	}
	if len(requests) == 0 {
		return nil
	}
	return func() { w.record(requests) }
}

func (w *wrapped) record(requests []session.RecordRequest) {
	ctx, cancel := context.WithTimeout(context.Background(), holdLimit)
	defer cancel()
	kept, err := w.session(ctx)
	if err != nil || kept == nil {
		return // the user knows since the prompt
	}
	for i, reply := range kept.Record(ctx, requests) {
		if reply.Err != nil { // most likely a path outside of the roots, where a command works
			w.proxy.log.Debug().Err(reply.Err).Strs("paths", requests[i].Paths).Msg("a path that the agent named is not covered")
		}
	}
}
