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
	piece  string   // and the message
	prefix []byte   // up to and with the quote before the text
	suffix []byte   // from the quote behind it
}

// learn remembers a line whose update is a piece of a message.
func (a *again) learn(w *wrapped, e envelope) {
	a.w = nil
	text := within(e.line, within(e.line, e.update, "content"), "text")
	if !isString(text.of(e.line)) || w.agentID() != w.id {
		return
	}
	a.w, a.id, a.piece = w, w.id, messageID(within(e.line, e.update, "messageId").of(e.line))
	a.prefix = append(a.prefix[:0], e.line[:text.from+1]...)
	a.suffix = append(a.suffix[:0], e.line[text.to-1:]...)
}

// takes takes the lines at the start of lines that are like the one it learned,
// and passes them on together. It returns how many bytes that were: 0 where the
// first is another, is not whole, or something is in its way.
func (a *again) takes(p *proxy, lines []byte) int {
	if a.w == nil || !bytes.HasPrefix(lines, a.prefix) || p.byAgent(a.id) != a.w || !a.w.lane.isIdle() {
		return 0
	}
	n := a.w.hearTexts(a.piece, func(from int) ([]byte, int) { return a.text(lines[from:]) })
	if n > 0 {
		_ = p.clientOut.addLines(lines[:n]) // the writer keeps its error
	}
	return n
}

// text is the text of the line at the start of lines, as a JSON string, and the
// line's length with its break; 0 if it is not like the one that was learned.
func (a *again) text(lines []byte) (quoted []byte, n int) {
	if !bytes.HasPrefix(lines, a.prefix) {
		return nil, 0
	}
	end := len(a.prefix) + bytes.IndexByte(lines[len(a.prefix):], '\n')
	from, to := len(a.prefix)-1, end-len(a.suffix)+1
	if to < from+2 || !bytes.HasSuffix(lines[:end], a.suffix) || !isString(lines[from:to]) {
		return nil, 0
	}
	return lines[from:to], end + 1
}

// hearTexts is hear for the texts of pieces of a message, one after the other,
// JSON strings, as long as next finds any at the place it is given. It returns
// the place behind them. The next one has to be heard like any other update.
func (w *wrapped) hearTexts(message string, next func(from int) (quoted []byte, n int)) (at int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.agentsID != w.id || w.muted || w.replaying {
		return 0
	}
	kept := len(w.running) > 0 && w.ours != ""
	for w.heard.size < muchHeard || w.writing && w.heard.size < maxHeard {
		text, n := next(at)
		if n == 0 {
			break
		}
		if kept {
			w.heard.of(message)
			w.heard.plain(text)
		}
		at += n
	}
	if at > 0 {
		w.spoke = w.proxy.config.Now()
	}
	return at
}

// learns remembers an update if it is worth it.
func (p *proxy) learns(w *wrapped, e envelope) {
	if u := updateOf(e); u.variant == protocol.AgentMessageChunk {
		p.again.learn(w, e)
	}
}
