package rpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"github.com/sourcegraph/jsonrpc2"

	"github.com/oino-dev/oinod/protocol"
	"github.com/oino-dev/oinod/session"
)

// errGone is a question to a client that can no longer answer.
var errGone = errors.New("the client is gone")

// voice is how a client is spoken to.
type voice interface {
	notify(method string, params json.RawMessage) error
	// call sends a request and waits for its answer. The error is the
	// client's own (*jsonrpc2.Error), errGone, or that of ctx.
	call(ctx context.Context, id, method string, params json.RawMessage, result any) error
}

// client is the other side of the connection: what we ask and tell it.
type client struct {
	voice  voice
	tasks  *dispatcher
	log    zerolog.Logger
	prefix string // of the ids of our requests
	lastID atomic.Int64
	// nameOf is what the client calls the session with an id of ours.
	nameOf func(sessionID string) string
	// said is a text of ours with sessions as the client calls them; nil: as it is.
	said func(text string) string
	// hears of every event, whatever the client wants; nil: nobody does.
	hears func(session.Event)

	// open ends when the client can no longer answer.
	open context.Context

	wants   atomic.Pointer[protocol.ClientExtension] // what initialize said; nil: nothing
	noMenus atomic.Bool                              // the client does not know session/request_permission
	version atomic.Int64                             // of the protocol; 0: the first
}

// wish is what the client asked for in initialize.
func (c *client) wish() protocol.ClientExtension {
	if w := c.wants.Load(); w != nil {
		return *w
	}
	return protocol.ClientExtension{}
}

// notify tells the client something. What is told before an answer is written
// by the same goroutine arrives before it.
func (c *client) notify(method string, params any) {
	raw, err := protocol.Encode(params)
	if err == nil {
		err = c.voice.notify(method, raw)
	}
	if err != nil {
		c.log.Debug().Err(err).Str("method", method).Msg("the client could not be told")
	}
}

// update tells the client one update of a session.
func (c *client) update(sessionID string, update any) {
	if call, ok := update.(protocol.ToolCall); ok && c.version.Load() > 1 {
		call.SessionUpdate = protocol.ToolCallUpdate // which begins one too
		update = call
	}
	c.notify(protocol.SessionUpdate, protocol.UpdateParams{SessionID: c.name(sessionID), Update: update})
}

// name is what the client calls the session with the id.
func (c *client) name(sessionID string) string {
	if c.nameOf == nil {
		return sessionID
	}
	return c.nameOf(sessionID)
}

// words are something that we say to the user in the place of an agent.
func (c *client) words(text string) protocol.Chunk {
	if c.said != nil {
		text = c.said(text)
	}
	chunk := protocol.Chunk{SessionUpdate: protocol.AgentMessageChunk, Content: protocol.TextBlock(text)}
	if c.version.Load() > 1 { // which wants an id
		chunk.MessageID = c.nextID()
	}
	return chunk
}

// nextID is an id for a request of ours.
func (c *client) nextID() string { return fmt.Sprintf("%s%d", c.prefix, c.lastID.Add(1)) }

// ask sends the client a request on behalf of t and waits for the answer, at
// most for limit. The error is the client's own (*jsonrpc2.Error), errGone, a
// time-out, or that of ctx, t's. The client is told when nobody waits any more.
func (c *client) ask(ctx context.Context, t *task, limit time.Duration, method string, params, result any) error {
	raw, err := protocol.Encode(params)
	if err != nil {
		return err
	}
	timeout := fmt.Errorf("the client did not answer within %v", limit)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, timeout)
	defer cancel()
	ctx, leave := context.WithCancelCause(ctx)
	defer leave(nil)
	defer context.AfterFunc(c.open, func() { leave(errGone) })()

	c.tasks.setAsking(t, 1)
	defer c.tasks.setAsking(t, -1)
	id := c.nextID()
	err = c.voice.call(ctx, id, method, raw, result)
	if err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		c.notify(protocol.CancelRequest, protocol.CancelRequestParams{RequestID: mustEncode(id)})
		return context.Cause(ctx)
	}
	return err
}

// connVoice speaks through a jsonrpc2.Conn.
type connVoice struct {
	conn   *jsonrpc2.Conn
	stream *stream
}

func (v connVoice) notify(method string, params json.RawMessage) error {
	return v.conn.Notify(context.Background(), method, nil, withParams(params))
}

func (v connVoice) call(ctx context.Context, id, method string, params json.RawMessage, result any) error {
	call, err := v.conn.DispatchCall(ctx, method, nil, withParams(params), jsonrpc2.PickID(jsonrpc2.ID{Str: id, IsString: true}))
	if err != nil {
		return errGone
	}
	err = call.Wait(ctx, result)
	switch {
	case errors.Is(err, jsonrpc2.ErrClosed):
		return errGone
	case err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()):
		v.stream.forget(id)
	}
	return err
}
