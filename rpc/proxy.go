package rpc

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"github.com/sourcegraph/jsonrpc2"

	"github.com/oino-dev/oinod/protocol"
	"github.com/oino-dev/oinod/session"
)

// WrapConfig is what Wrap needs.
type WrapConfig struct {
	Config // Tracking: what a session is tried with, in this order
	Agent  AgentCommand
	// Chain: there is no agent to start. In and Out are those of a component in a
	// proxy chain, and the agent is what stands behind it there; see chain.
	Chain bool
	// Conversation: a rewind moves the agent's conversation too.
	Conversation bool
	// Signals are passed on to the agent, which then has little time to end.
	Signals <-chan os.Signal
}

// Wrap runs an agent and stands between it and the client at c.In and c.Out
// until one of them ends. It returns the agent's exit code: 0 where the client
// ended and the agent had to be made to. An agent that cannot be started is a
// *StartError.
//
// A Read of c.In that is blocked when the agent ends is left alone: its
// goroutine ends with it.
func Wrap(ctx context.Context, c WrapConfig) (code int, err error) {
	if c.Now == nil {
		c.Now = time.Now
	}
	if len(c.Tracking) == 0 {
		c.Tracking = []string{string(session.Files)}
	}
	var a *agent
	if c.Chain {
		a, err = joinChain(&c)
	} else {
		a, err = startAgent(c.Agent)
	}
	if err != nil {
		return 0, err
	}
	p := newProxy(context.WithoutCancel(ctx), c, a)
	c.Events.connect(p.client)
	defer c.Events.connect(nil)
	return p.run(ctx)
}

// proxy is what stands between a client and an agent; see the package comment.
type proxy struct {
	config WrapConfig
	log    zerolog.Logger
	agent  *agent
	server *server
	client *client
	tasks  *dispatcher
	held   *load // what the agent said and waits in a lane

	fromClient, fromAgent *lineReader
	clientOut, agentOut   *lineWriter
	toClient, toAgent     *peer // in our own name
	passing               *method
	again                 again
	gone                  context.CancelCauseFunc // the client can no longer answer
	rewindLimit           time.Duration           // how long the agent may take to go back

	endOnce sync.Once
	ending  sync.WaitGroup // of endAgent

	mu    sync.Mutex
	state proxyState // touch only inside update
}

type proxyState struct {
	pending  map[string][]*request // of the client, with the agent; several may have one id
	byClient map[string]*wrapped   // by what the client calls them
	byAgent  map[string]*wrapped   // by what the agent calls them
	byOurs   map[string]*wrapped   // by our own id
	making   int                   // sessions that we are having made
	early    earlyUpdates          // what was said of sessions meanwhile that nobody knows yet
	live     map[string]bool       // sessions that the agent has open, by what it calls them
	former   map[string]bool       // those that no client knows (any more)
	lost     *lostSession
	ended    bool // the agent is gone: nothing is pending any more

	agentName string
	embedded  bool // the agent takes resources in a prompt
	resumes   bool // it can resume a session
	forks     bool // it can fork one
	adverts   adverts
	version   int // of the protocol, as the agent answered
}

// request is one of the client's that the agent has not answered.
type request struct {
	id      json.RawMessage
	key     string
	method  string
	session *wrapped                   // nil: of none, or of one we know nothing of
	params  map[string]json.RawMessage // of one of asks
	sent    chan struct{}              // of a prompt that was read: closed once all that goes with it is done
}

func newProxy(base context.Context, c WrapConfig, a *agent) *proxy {
	prefix := "oino-" + rand.Text()[:8] + "-" // there may be another wrap behind or before us
	p := &proxy{
		config: c, log: c.Log, agent: a, held: newLoad(), rewindLimit: rewindLimit,
		fromClient: newLineReader(c.In, int(c.Limits.MaxMessageBytes)),
		fromAgent:  newLineReader(a.out, int(c.Limits.MaxMessageBytes)),
		clientOut:  &lineWriter{w: c.Out},
		agentOut:   &lineWriter{w: agentInput{a, func() bool { return hungUp(c.In) }}, broken: func(error) {}}, // how it ended is found out elsewhere
		state: proxyState{
			pending: map[string][]*request{}, byClient: map[string]*wrapped{}, byAgent: map[string]*wrapped{},
			byOurs: map[string]*wrapped{}, live: map[string]bool{}, former: map[string]bool{}, agentName: agentName(c.Agent.Args), version: protocol.Version,
		},
	}
	p.toClient, p.toAgent = newPeer(p.clientOut, prefix), newPeer(p.agentOut, prefix)
	p.passing = &method{name: "pass", run: func(_ context.Context, t *task) (any, error) {
		t.passedOn = true
		p.pass(openLine(t.line), false)
		return nil, nil
	}}
	p.server = &server{config: c.Config, host: p, filesOnly: !c.Conversation}
	p.tasks = newDispatcher(base, c.Log, p.methods())
	p.tasks.reply = func(t *task, resp *jsonrpc2.Response) error {
		if resp.Error != nil {
			e := *resp.Error // others may have it too
			e.Message = p.inClientsNames(e.Message)
			resp.Error = &e
		}
		return p.clientOut.write(answerLine(t.raw, resp))
	}
	var open context.Context
	open, p.gone = context.WithCancelCause(base)
	p.client = &client{voice: p.toClient, tasks: p.tasks, log: c.Log, prefix: prefix, nameOf: p.nameOf, said: p.inClientsNames, open: open}
	p.server.client = p.client
	p.client.hears = p.hear
	return p
}

func (p *proxy) update(f func(*proxyState)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(&p.state)
}

// methods is what the proxy answers itself, or has to think about before it
// passes it on.
func (p *proxy) methods() []*method {
	s := p.server
	prompt := &method{name: protocol.SessionPrompt, run: p.prompt, prompt: true}
	return []*method{
		prompt,
		{name: protocol.SessionLoad, run: p.open},
		{name: protocol.SessionResume, run: p.open},
		{name: protocol.SessionFork, run: p.forkSession},
		{name: protocol.SessionDelete, run: p.deleteSession},

		reads(on(protocol.Entries, s.entries)),
		reads(on(protocol.Checkpoints, s.checkpoints)),
		reads(on(protocol.Diff, s.diff)),
		on(protocol.Rewind, s.rewind),
		on(protocol.Redo, s.redo),
		on(protocol.Fork, s.fork),
		on(protocol.Label, s.label),
		on(protocol.Title, s.title),
		common(on(protocol.Stats, s.stats)),
	}
}

// run passes messages on until one side ends, and then ends the other.
func (p *proxy) run(ctx context.Context) (code int, err error) {
	broken := make(chan error, 1)
	p.clientOut.broken = func(err error) { broken <- err }
	client, agent := make(chan error, 1), make(chan struct{})
	go func() { client <- p.readClient() }() // ends with c.In
	go func() {                              // ends with the agent's output
		defer close(agent)
		defer p.toAgent.close()
		p.readAgent()
	}()
	var orderly bool
	for ended := false; !ended; {
		select {
		case err = <-client:
			client = nil
			if orderly = err == nil; err != nil {
				err = fmt.Errorf("reading from the client: %w", err)
			}
			p.endAgent()
		case werr := <-broken:
			broken = nil
			err = errors.Join(err, fmt.Errorf("writing to the client: %w", werr))
			p.endAgent()
		case s := <-p.config.Signals:
			if p.agent.cmd != nil {
				p.agent.pass(s)
			}
			p.agent.end()
		case <-ctx.Done():
			ctx = context.Background()
			p.endAgent()
		case <-agent:
			ended = true
		}
	}
	p.endAgent()    // one that has only closed its output
	p.ending.Wait() // it may still have to end the agent
	p.agent.close()
	p.held.work.Wait()
	p.endTurns()
	p.held.work.Wait()
	p.endRequests()
	p.clientOut.flush()
	p.clientOut.close()
	if orderly && p.agent.made.Load() {
		return 0, err
	}
	return p.agent.code, err
}

// endAgent ends the agent once it has all that the client has sent. It does
// not wait for that.
func (p *proxy) endAgent() {
	p.endOnce.Do(func() {
		p.gone(errGone)
		p.toClient.close()
		p.ending.Go(func() {
			p.tasks.end()
			p.agentOut.flush()
			p.agentOut.close()
			_ = p.agent.in.Close()
			p.agent.end()
		})
	})
}

// readClient takes what the client says, in order.
func (p *proxy) readClient() error {
	for {
		ln, err := p.fromClient.view()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		logLine(p.log, "in", ln.bytes)
		if ln.tooLong {
			p.refuseLong(p.clientOut, ln.bytes)
		} else {
			p.clientSays(ln.bytes)
		}
		if !p.fromClient.ready() {
			p.agentOut.flush()
		}
	}
}

// readAgent takes what the agent says, in order.
func (p *proxy) readAgent() {
	for {
		lines := p.fromAgent.ahead()
		if n := p.again.takes(p, lines); n > 0 {
			logLine(p.log, "out", lines[:n-1])
			p.fromAgent.skip(n)
		} else {
			ln, err := p.fromAgent.view()
			if err != nil {
				p.log.Debug().Err(err).Msg("the agent says no more")
				return
			}
			logLine(p.log, "out", ln.bytes)
			if ln.tooLong {
				p.dropLong(ln.bytes)
			} else {
				p.agentSays(ln.bytes)
			}
		}
		if !p.fromAgent.ready() {
			p.clientOut.flush()
		}
	}
}

// tooLong is the answer to a line that is longer than the limit, for want of
// the line itself.
func tooLong(id json.RawMessage, limit int) []byte {
	if id == nil {
		id = json.RawMessage("null")
	}
	e := &jsonrpc2.Error{
		Code:    protocol.CodeInvalidRequest,
		Message: fmt.Sprintf("the message is longer than %d bytes (limits.maxMessageBytes)", limit),
		Data:    new(mustEncode(protocol.ErrorData{Kind: protocol.KindMessageTooLarge})),
	}
	return answerLine(id, &jsonrpc2.Response{Error: e})
}

// refuseLong answers a line that nobody can read.
func (p *proxy) refuseLong(to *lineWriter, ends []byte) {
	p.log.Warn().Msg("a message that is too long is not passed on")
	_ = to.write(tooLong(endsID(ends), p.fromClient.max)) // the writer keeps its error
}

// dropLong sees to it that nobody waits for a line that the agent said in vain.
func (p *proxy) dropLong(ends []byte) {
	e := openLine(ends)
	id, key := e.id.of(ends), e.key()
	if e.method.to > 0 || e.params.to > 0 {
		if key != "" {
			p.refuseLong(p.agentOut, ends)
		}
		return
	}
	p.log.Warn().Msg("an answer that is too long is not passed on")
	switch {
	case p.toAgent.owns(id):
		p.toAgent.hear(tooLong(id, p.fromAgent.max))
	case key != "":
		if r := p.answered(key); r != nil {
			p.end(r, tooLong(r.id, p.fromAgent.max))
		}
	case id == nil && (e.result.to > 0 || e.err.to > 0):
		// To which request it was, nobody can tell. The answer to a prompt is
		// short: all others end, or one of them would be waited for as long as
		// the agent lives; and prompts where there is nothing else.
		isPrompt := func(r *request) bool { return r.method == protocol.SessionPrompt }
		left := p.takePending(func(r *request) bool { return !isPrompt(r) })
		if len(left) == 0 {
			left = p.takePending(isPrompt)
		}
		for _, r := range left {
			p.end(r, tooLong(r.id, p.fromAgent.max))
		}
	}
}

// takePending takes out what the agent has not answered and which fits.
func (p *proxy) takePending(fits func(*request) bool) (left []*request) {
	p.update(func(st *proxyState) {
		for key, all := range st.pending {
			rest := slices.DeleteFunc(slices.Clone(all), fits)
			if len(rest) == len(all) {
				continue
			}
			for _, r := range all {
				if fits(r) {
					left = append(left, r)
				}
			}
			if st.pending[key] = rest; len(rest) == 0 {
				delete(st.pending, key)
			}
		}
	})
	return left
}

// endRequests answers what the agent has left unanswered.
func (p *proxy) endRequests() {
	p.update(func(st *proxyState) { st.ended = true })
	for _, r := range p.takePending(func(*request) bool { return true }) {
		p.answerGone(r.id)
	}
}

func (p *proxy) answerGone(id json.RawMessage) {
	how := "has closed its output"
	select {
	case <-p.agent.ended:
		how = "has ended: " + p.agent.how
	default:
	}
	e := &jsonrpc2.Error{Code: protocol.CodeInternalError, Message: "the agent " + how}
	_ = p.clientOut.write(answerLine(id, &jsonrpc2.Response{Error: e})) // the writer keeps its error
}
