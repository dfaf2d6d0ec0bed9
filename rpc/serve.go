package rpc

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/rs/zerolog"
	"github.com/sourcegraph/jsonrpc2"

	"github.com/oino-dev/oinod/fork"
	"github.com/oino-dev/oinod/session"
)

// Config is what Serve needs.
type Config struct {
	In  io.Reader // one JSON object a line
	Out io.Writer // gets messages and nothing else, one Write each

	Registry *session.Registry
	Forker   *fork.Forker
	// Events carries the registry's news to the client: its Send is what the
	// registry was opened with as Options.Event. nil sends none.
	Events *Events

	Log      zerolog.Logger
	Version  string           // of oinod, as initialize and _oino/stats say it
	Limits   session.Limits   // as initialize and _oino/stats say them; MaxMessageBytes is enforced here
	Tracking []string         // what session/new may ask for; nil: files only
	Now      func() time.Time // nil: time.Now
}

// Serve answers the requests that come from c.In until it ends or ctx is
// done. Either way the work in hand is finished and answered first; then
// nothing more is written. The error is that of reading c.In or writing c.Out,
// nil for an orderly end.
//
// A Read of c.In that is blocked when ctx ends is left alone: its goroutine
// ends with it.
func Serve(ctx context.Context, c Config) error {
	if c.Tracking == nil {
		c.Tracking = []string{string(session.Files)}
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	s := &server{config: c}
	s.host = alone{s}
	return serve(ctx, c, s.methods(), func(cl *client) {
		s.client = cl
		c.Events.connect(cl)
	}, func() { c.Events.connect(nil) })
}

// serve runs a connection with the given methods. ready is called with the
// client before the first message is read, over when no further will be.
func serve(ctx context.Context, c Config, methods []*method, ready func(*client), over func()) error {
	base := context.WithoutCancel(ctx) // the work in hand outlives ctx
	stream := newStream(c.In, c.Out, int(c.Limits.MaxMessageBytes), c.Log)
	open, gone := context.WithCancelCause(base)
	defer gone(errGone)
	d := newDispatcher(base, c.Log, methods)
	end := func() {
		gone(errGone)
		d.end()
	}
	stream.ended = end
	broken := make(chan error, 1)
	stream.out.broken = func(err error) { broken <- err }

	handler := &handler{ready: make(chan struct{}), take: func(req *jsonrpc2.Request) {
		t := &task{id: req.ID, key: idKey(stream.rawID(req.ID.Num)), notif: req.Notif, size: stream.size}
		if req.Params != nil {
			t.params = *req.Params
		}
		d.take(req.Method, t)
	}}
	conn := jsonrpc2.NewConn(base, stream, handler, stream.options()...)
	defer func() { _ = conn.Close() }()
	d.reply = func(_ *task, resp *jsonrpc2.Response) error { return conn.SendResponse(base, resp) }
	ready(&client{voice: connVoice{conn, stream}, tasks: d, log: c.Log, prefix: "oino-", open: open})
	defer over()
	close(handler.ready)

	var writeErr error
	select {
	case <-conn.DisconnectNotify():
	case <-ctx.Done():
	case writeErr = <-broken:
	}
	stream.stop()
	end()
	select {
	case writeErr = <-broken:
	default:
	}
	if writeErr != nil {
		return fmt.Errorf("writing to the client: %w", writeErr)
	}
	if err := stream.err(); err != nil && ctx.Err() == nil {
		return fmt.Errorf("reading from the client: %w", err)
	}
	return nil
}

// handler is jsonrpc2's way in. Conn starts reading before it is returned, so
// the first message waits until everything is in place.
type handler struct {
	take  func(*jsonrpc2.Request)
	ready chan struct{}
}

// Handle hands the request on. While it runs Conn reads nothing, not even the
// answers to our own requests.
func (h *handler) Handle(_ context.Context, _ *jsonrpc2.Conn, req *jsonrpc2.Request) {
	<-h.ready
	h.take(req)
}
