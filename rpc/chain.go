package rpc

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/rs/zerolog"

	"github.com/oino-dev/oinod/protocol"
)

// chain is the one stream of a component that stands in a proxy chain. To its
// left it speaks as ever; what goes to its right or comes from there is in an
// envelope, a message proxy/successor, and all goes through the conductor. A
// chain makes two streams of it, so that a proxy need not know:
//
//	               ┌── all else ─────────▶ client ┐
//	conductor ──▶ read                            proxy
//	    ▲          └── proxy/successor ──▶ agent  ┘
//	    └───── write ◀── as it is ◀────── to the client
//	             ▲────── proxy/successor ◀── to the agent
//
// An answer is in no envelope; whose it is says its id. The conductor's ids are
// its own, whichever side a request is of. Ours are those of two sides: one to
// the right gets another, which says what it was.
//
// See https://agentclientprotocol.com/rfds/proxy-chains.
type chain struct {
	in     *lineReader
	out    *lineWriter
	log    zerolog.Logger
	prefix string      // of the ids of requests to the right
	older  atomic.Bool // the conductor is one whose methods are called _proxy/…

	agent *os.File      // what comes from the right is written here
	left  chan struct{} // something is in queue, or it has ended

	mu    sync.Mutex
	asked map[string]bool // ids of requests from the right that are not answered
	queue [][]byte        // what comes from the left; see feed
	ended bool
}

// The methods of a proxy chain. Older conductors have them with an underscore.
const (
	proxyInitialize = "proxy/initialize"
	proxySuccessor  = "proxy/successor"
	olderPrefix     = "_"
)

// joinChain makes two streams of c.In and c.Out: c's are then those of the
// client, and the agent's are its successor's in the chain.
func joinChain(c *WrapConfig) (*agent, error) {
	out, agentIn, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	ch := &chain{
		in:  newLineReader(c.In, int(c.Limits.MaxMessageBytes)+headBytes), // with its envelope
		out: &lineWriter{w: c.Out, broken: func(error) {}},                // whoever writes hears of it
		log: c.Log, prefix: "oino-" + rand.Text()[:8] + "-right-",
		agent: agentIn, left: make(chan struct{}, 1), asked: map[string]bool{},
	}
	fromLeft, toProxy := io.Pipe()
	go ch.feed(toProxy) // ends with the input
	go ch.read()        // ends with the input
	c.In, c.Out = fromLeft, &chainWriter{chain: ch, as: func(line []byte) []byte { return line }}
	return &agent{in: &chainWriter{chain: ch, as: ch.toRight}, out: out, ended: make(chan struct{}), done: make(chan struct{})}, nil
}

// read takes what the conductor says.
func (c *chain) read() {
	for {
		ln, err := c.in.next()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				c.log.Warn().Err(err).Msg("reading from the conductor")
			}
			_ = c.agent.Close()
			c.take(nil, true)
			return
		}
		if ln.tooLong {
			c.log.Warn().Msg("a message that is too long is not passed on")
			ln.bytes = c.instead(ln.bytes)
		}
		if line, right := c.sort(ln.bytes); right {
			_, _ = c.agent.Write(append(line, '\n')) // nobody reads it when we end
		} else if line != nil {
			c.take(line, false)
		}
	}
}

// instead is what is taken for a line that nobody can hold: for an answer that
// it was too long. A request is answered so.
func (c *chain) instead(ends []byte) []byte {
	e, id := openLine(ends), endsID(ends)
	answer := bytes.TrimSuffix(tooLong(id, c.in.max), []byte("\n"))
	if e.method.to > 0 || e.params.to > 0 {
		if e.key() != "" {
			_ = c.out.write(append(answer, '\n')) // the writer keeps its error
		}
		return nil
	}
	return answer
}

// sort is a line as the side gets it that it is for.
func (c *chain) sort(line []byte) (sorted []byte, right bool) {
	e := openLine(line)
	switch name := e.name(); strings.TrimPrefix(name, olderPrefix) {
	case "":
		if e.isAnswer() {
			if id, ours := strings.CutPrefix(unquote(e.id.of(line)), c.prefix); ours {
				return exchanged(line, e.id, []byte(id)), true
			}
		}
	case proxyInitialize:
		c.older.Store(strings.HasPrefix(name, olderPrefix))
		return exchanged(line, e.method, mustEncode(protocol.Initialize)), false
	case proxySuccessor:
		if key := e.key(); key != "" {
			c.mu.Lock()
			c.asked[key] = true
			c.mu.Unlock()
		}
		method, params := within(line, e.params, "method"), within(line, e.params, "params")
		return messageLine(e.id.of(line), method.of(line), params.of(line)), true
	case protocol.CancelRequest:
		c.mu.Lock()
		defer c.mu.Unlock()
		return line, c.asked[idKey(within(line, e.params, "requestId").of(line))]
	}
	return line, false
}

// toRight is a line to the agent as the conductor gets it.
func (c *chain) toRight(line []byte) []byte {
	e := openLine(line)
	name := e.name()
	switch {
	case name == "":
		if key := e.key(); e.isAnswer() && key != "" {
			c.mu.Lock()
			delete(c.asked, key)
			c.mu.Unlock()
		}
		return line // what is no message is the conductor's to refuse
	case name == protocol.CancelRequest: // of the request between us and the conductor
		if id := within(line, e.params, "requestId"); id.to > 0 {
			return exchanged(line, id, c.idOf(id.of(line)))
		}
		return line
	}
	successor := proxySuccessor
	if c.older.Load() {
		successor = olderPrefix + successor
	}
	id := e.id.of(line)
	if id != nil {
		id = c.idOf(id)
	}
	params := append([]byte(`{"method":`), e.method.of(line)...)
	if p := e.params.of(line); p != nil {
		params = append(append(params, `,"params":`...), p...)
	}
	return messageLine(id, mustEncode(successor), append(params, '}'))
}

// idOf is what a request to the right is called between us and the conductor.
func (c *chain) idOf(id []byte) []byte { return mustEncode(c.prefix + string(id)) }

// messageLine is a request or (id nil) a notification. params: nil for none.
func messageLine(id, method, params []byte) []byte {
	line := []byte(`{"jsonrpc":"2.0"`)
	for _, m := range []struct {
		name  string
		value []byte
	}{{`,"id":`, id}, {`,"method":`, method}, {`,"params":`, params}} {
		if m.value != nil {
			line = append(append(line, m.name...), m.value...)
		}
	}
	return append(line, '}')
}

// take puts a line from the left in the queue, or (ended) ends it.
func (c *chain) take(line []byte, ended bool) {
	c.mu.Lock()
	if c.ended = c.ended || ended; line != nil {
		c.queue = append(c.queue, line)
	}
	c.mu.Unlock()
	select {
	case c.left <- struct{}{}:
	default:
	}
}

// feed passes on what comes from the left. It is a queue without a bound since
// the client may say so much that the proxy has to wait for the agent before it
// takes more: what comes from there must not be behind it.
func (c *chain) feed(to *io.PipeWriter) {
	defer to.Close()
	for range c.left {
		c.mu.Lock()
		lines, ended := c.queue, c.ended
		c.queue = nil
		c.mu.Unlock()
		for _, line := range lines {
			if _, err := to.Write(append(line, '\n')); err != nil {
				return
			}
		}
		if ended {
			return
		}
	}
}

// chainWriter is one side's way to the conductor. What is written to it is
// whole lines.
type chainWriter struct {
	chain *chain
	as    func(line []byte) []byte
}

func (w *chainWriter) Write(b []byte) (int, error) {
	for line := range bytes.Lines(b) {
		if err := w.chain.out.add(w.as(bytes.TrimSuffix(line, []byte("\n")))); err != nil {
			return 0, err
		}
	}
	w.chain.out.flush()
	return len(b), nil
}

// Close leaves the conductor, who hears the other side too, alone.
func (w *chainWriter) Close() error { return nil }
