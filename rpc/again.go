package rpc

import (
	"bytes"

	"github.com/oino-dev/oinod/protocol"
)

// again is what the last piece of a message looked like around its text. An
// answer comes in thousands of pieces that differ in nothing else, and what
// was read once need not be read again. Only the goroutine that reads the
// agent touches it.
type again struct {
	w      *wrapped // nil: nothing was learned
	id     string   // what the agent calls it
	prefix []byte   // up to and with the quote before the text
	suffix []byte   // from the quote behind it
}

// learn remembers a line whose update is a piece of a message.
func (a *again) learn(w *wrapped, e envelope) {
	a.w = nil
	text := within(e.line, within(e.line, e.update, "content"), "text")
	if !isPlain(text.of(e.line)) || w.agentID() != w.id {
		return
	}
	a.w, a.id = w, w.id
	a.prefix = append(a.prefix[:0], e.line[:text.from+1]...)
	a.suffix = append(a.suffix[:0], e.line[text.to-1:]...)
}

// takes takes a line that is like the one it learned, and passes it on. False:
// it is another, or something is in its way.
func (a *again) takes(p *proxy, line []byte) bool {
	if a.w == nil || len(line) <= len(a.prefix)+len(a.suffix) || !bytes.HasPrefix(line, a.prefix) || !bytes.HasSuffix(line, a.suffix) {
		return false
	}
	text := line[len(a.prefix)-1 : len(line)-len(a.suffix)+1]
	if !isPlain(text) || p.byAgent(a.id) != a.w || !a.w.lane.isIdle() || !a.w.hearText(text) {
		return false
	}
	p.toClientLine(line)
	return true
}

// hearText is hear for the text of a piece of a message, a plain string. False:
// it has to be heard like any other update.
func (w *wrapped) hearText(text []byte) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.agentsID != w.id || w.muted || w.heard.size >= muchHeard && !w.writing || w.heard.size >= maxHeard {
		return false
	}
	w.spoke = w.proxy.config.Now()
	if len(w.running) > 0 && w.ours != "" {
		w.heard.plain(text)
	}
	return true
}

// learns remembers an update if it is worth it.
func (p *proxy) learns(w *wrapped, e envelope) {
	if u := updateOf(e); u.variant == protocol.AgentMessageChunk {
		p.again.learn(w, e)
	}
}
