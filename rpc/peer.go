package rpc

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	"github.com/sourcegraph/jsonrpc2"

	"github.com/oino-dev/oinod/protocol"
)

// peer speaks to one side of a proxy in our own name: the lines that it
// writes stand between those that are passed on. It is a voice.
type peer struct {
	out    *lineWriter
	prefix string // of the ids of our requests, and of nobody else's

	mu      sync.Mutex
	waiting map[string]chan reply // nil: nobody answers any more
	lastID  int
	late    map[string]func(json.RawMessage) // who hears of answers for which nobody waits any more
}

// reply is the other side's answer, with bytes of its own.
type reply struct {
	result json.RawMessage
	err    *jsonrpc2.Error
}

func newPeer(out *lineWriter, prefix string) *peer {
	return &peer{out: out, prefix: prefix, waiting: map[string]chan reply{}}
}

func (p *peer) notify(method string, params json.RawMessage) error {
	return p.out.write(fmt.Appendf(nil, `{"jsonrpc":"2.0","method":%s,"params":%s}`+"\n", mustEncode(method), params))
}

func (p *peer) call(ctx context.Context, id, method string, params json.RawMessage, result any) error {
	return p.callOrLate(ctx, id, method, params, result, nil)
}

// callOrLate is call where an answer that comes when ctx has ended is not lost:
// late gets the result of it (null of an error).
func (p *peer) callOrLate(ctx context.Context, id, method string, params json.RawMessage, result any, late func(json.RawMessage)) error {
	answer := make(chan reply, 1)
	p.mu.Lock()
	open := p.waiting != nil
	if open {
		p.waiting[id] = answer
	}
	p.mu.Unlock()
	if !open {
		return errGone
	}
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.waiting, id)
	}()
	if p.out.write(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"method":%s,"params":%s}`+"\n", mustEncode(id), mustEncode(method), params)) != nil {
		return errGone
	}
	select {
	case r, ok := <-answer:
		if !ok {
			return errGone
		}
		if r.err != nil {
			return r.err
		}
		if raw, ok := result.(*json.RawMessage); ok {
			*raw = r.result
			return nil
		}
		return json.Unmarshal(r.result, result)
	case <-ctx.Done():
		if late == nil {
			return errNoAnswer{ctx.Err()}
		}
		p.mu.Lock()
		came := p.waiting == nil || p.waiting[id] == nil
		if !came {
			if p.late == nil {
				p.late = map[string]func(json.RawMessage){}
			}
			p.late[id] = late
			delete(p.waiting, id)
		}
		p.mu.Unlock()
		if came { // just now, or there will be none
			r := <-answer
			late(r.result)
		}
		return errNoAnswer{ctx.Err()}
	}
}

// errNoAnswer is a request that was not answered as long as anybody waited.
type errNoAnswer struct{ error }

func (e errNoAnswer) Unwrap() error { return e.error }

// ask is call with an id of its own.
func (p *peer) ask(ctx context.Context, method string, params json.RawMessage, result any) error {
	return p.askOrLate(ctx, method, params, result, nil)
}

func (p *peer) askOrLate(ctx context.Context, method string, params json.RawMessage, result any, late func(json.RawMessage)) error {
	p.mu.Lock()
	p.lastID++
	id := fmt.Sprintf("%s%d", p.prefix, p.lastID)
	p.mu.Unlock()
	return p.callOrLate(ctx, id, method, params, result, late)
}

// owns reports whether an answer with this id is one to a request of ours:
// even one that nobody waits for any more concerns nobody else.
func (p *peer) owns(id json.RawMessage) bool {
	return len(id) > len(p.prefix) && id[0] == '"' && strings.HasPrefix(unquote(id), p.prefix)
}

// hear takes an answer that is ours.
func (p *peer) hear(line []byte) {
	var m struct {
		ID     string          `json:"id"`
		Result json.RawMessage `json:"result"`
		Error  json.RawMessage `json:"error"`
	}
	if json.Unmarshal(line, &m) != nil {
		return // whoever waits has a limit
	}
	r := reply{result: m.Result}
	if r.result == nil {
		r.result = json.RawMessage("null")
	}
	if notNull(m.Error) != nil {
		r.err = &jsonrpc2.Error{}
		if json.Unmarshal(m.Error, r.err) != nil {
			r.err = &jsonrpc2.Error{Code: protocol.CodeInternalError, Message: "an error that is no JSON-RPC error"}
		}
	}
	p.mu.Lock()
	late := p.late[m.ID]
	if answer := p.waiting[m.ID]; answer != nil {
		delete(p.waiting, m.ID)
		answer <- r
		late = nil
	}
	delete(p.late, m.ID)
	p.mu.Unlock()
	if late != nil {
		late(r.result)
	}
}

// close tells whoever waits that there will be no answer.
func (p *peer) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, answer := range p.waiting {
		close(answer)
	}
	p.waiting = nil
}

// answerLine is an answer with the id as it was spelled.
func answerLine(id json.RawMessage, resp *jsonrpc2.Response) []byte {
	if resp.Error != nil {
		return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":%s}`+"\n", id, mustEncode(resp.Error))
	}
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", id, *resp.Result)
}
