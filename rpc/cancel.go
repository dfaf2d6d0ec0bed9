package rpc

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

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
func (d *dispatcher) cancelTurn(params json.RawMessage) { d.cancelTurnThen(sessionOf(params), nil) }

// cancelTurnThen is cancelTurn for a cancel that goes on to an agent: where a
// prompt may be on its way there, follow is done right after it. False: it is
// not, since nothing is in its way.
func (d *dispatcher) cancelTurnThen(name string, follow *task) (follows bool) {
	d.update(func(st *dispatchState) {
		var prompts []*task
		for _, tasks := range st.byID {
			for _, t := range tasks {
				if t.method.prompt && t.queue.name == name {
					prompts = append(prompts, t)
				}
			}
		}
		follows = d.followFirst(d.cancelTasks(prompts, errTurnCancelled), follow)
	})
	return follows
}

// cancelRequestThen is cancelRequest for a cancel that goes on to an agent. mine:
// the agent has not seen the request, and need not hear of this.
func (d *dispatcher) cancelRequestThen(key string, follow *task) (mine bool) {
	d.update(func(st *dispatchState) {
		tasks := st.byID[key]
		mine = len(tasks) > 0
		if d.followFirst(d.cancelTasks(tasks, errRequestCancelled), follow) {
			mine = true
		}
	})
	return mine
}

// followFirst puts follow at the head of the queue of what runs.
func (d *dispatcher) followFirst(running []*task, follow *task) bool {
	if follow == nil || len(running) == 0 {
		return false
	}
	follow.queue = running[0].queue
	follow.queue.waiting = slices.Insert(follow.queue.waiting, 0, follow)
	d.room.requests++
	d.room.bytes += follow.size
	return true
}

// cancelTasks ends tasks. One that still waits leaves its queue and is
// answered at once: what is before it may take its time. Those that run have
// their context to see, and are returned.
func (d *dispatcher) cancelTasks(tasks []*task, cause error) (running []*task) {
	for _, t := range tasks {
		t.cancel(cause)
		waiting := len(t.queue.waiting)
		t.queue.waiting = without(t.queue.waiting, t)
		if len(t.queue.waiting) == waiting {
			running = append(running, t)
			continue
		}
		d.work.Go(func() { d.finish(t, outcome{err: cause}) })
	}
	return running
}
