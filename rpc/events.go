package rpc

import (
	"maps"
	"sync"

	"github.com/oino-dev/oinod/protocol"
	"github.com/oino-dev/oinod/session"
)

// Events connects a registry, which is there before the client is, with the
// client that Serve talks to. The zero value is ready.
type Events struct {
	mu sync.Mutex
	to *client // nil: nobody
}

// Send passes e to the client, if there is one that asked for events. It is
// what session.Options.Event is set to.
func (e *Events) Send(ev session.Event) {
	e.mu.Lock()
	to := e.to
	e.mu.Unlock()
	if to != nil && to.hears != nil {
		to.hears(ev)
	}
	if to == nil || !to.wish().Events {
		return
	}
	params := map[string]any{}
	maps.Copy(params, ev.Data)
	params["sessionId"], params["type"] = to.name(ev.SessionID), ev.Type
	to.notify(protocol.Event, params)
}

// connect says who is to hear of events from now on. e may be nil.
func (e *Events) connect(to *client) {
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.to = to
}
