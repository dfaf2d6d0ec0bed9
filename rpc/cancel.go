package rpc

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/sourcegraph/jsonrpc2"

	"github.com/oino-dev/oinod/protocol"
)

// cancelError is why a request's context ended; context.Canceled for whoever
// does not care.
type cancelError string

func (e cancelError) Error() string        { return string(e) }
func (e cancelError) Is(target error) bool { return target == context.Canceled }

const (
	errRequestCancelled cancelError = "the client cancelled the request"
	errTurnCancelled    cancelError = "the client cancelled the turn"
)

// errTooMany answers a request for which there is no room.
var errTooMany error = &jsonrpc2.Error{
	Code:    protocol.CodeInternalError,
	Message: "too many requests are waiting: send it again when some are answered",
	Data:    new(mustEncode(protocol.ErrorData{Kind: protocol.KindTooManyRequests})),
}

// errBug answers a request that met a bug of ours.
var errBug error = &jsonrpc2.Error{
	Code:    protocol.CodeInternalError,
	Message: "oinod met a bug of its own in this request; its log has the details",
}

func unknownMethod(_ context.Context, t *task) (any, error) {
	return nil, &jsonrpc2.Error{Code: protocol.CodeMethodNotFound, Message: fmt.Sprintf("there is no method %q", t.method.name)}
}

// cancelRequest ends the requests with the id that the client names.
func (d *dispatcher) cancelRequest(params json.RawMessage) {
	var p protocol.CancelRequestParams
	if err := protocol.Decode(params, &p); err != nil {
		d.log.Debug().Err(err).Msg("a cancel is ignored")
		return
	}
	key := idKey(p.RequestID)
	d.update(func(st *dispatchState) { d.cancelTasks(st.byID[key], errRequestCancelled) })
}

// cancelTurn ends the prompts of the session that the client names. What else
// waits there goes on: a file that a driver wants recorded is no part of what
// the user wants to stop.
func (d *dispatcher) cancelTurn(params json.RawMessage) {
	name := sessionOf(params)
	d.update(func(st *dispatchState) {
		var prompts []*task
		for _, tasks := range st.byID {
			for _, t := range tasks {
				if t.method.prompt && t.queue.name == name {
					prompts = append(prompts, t)
				}
			}
		}
		d.cancelTasks(prompts, errTurnCancelled)
	})
}

// cancelTasks ends tasks. One that still waits leaves its queue and is
// answered at once: what is before it may take its time.
func (d *dispatcher) cancelTasks(tasks []*task, cause error) {
	for _, t := range tasks {
		t.cancel(cause)
		waiting := len(t.queue.waiting)
		t.queue.waiting = without(t.queue.waiting, t)
		if len(t.queue.waiting) == waiting {
			continue // it runs, and has its context to see
		}
		d.work.Go(func() { d.finish(t, outcome{err: cause}) })
	}
}
