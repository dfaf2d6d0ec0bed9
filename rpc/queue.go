package rpc

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/sourcegraph/jsonrpc2"
)

// method is how one method is served.
type method struct {
	name string
	// run does the work. Exactly one of run and runAll is set.
	run func(context.Context, *task) (any, error)
	// runAll does the work of consecutive waiting requests at once and
	// returns one outcome for each.
	runAll func([]*task) []outcome
	// first is called before the request is queued, by the goroutine that
	// reads: for what later messages must find done. It must not block.
	first func(params json.RawMessage)

	common bool // belongs to no session: waits for none
	reads  bool // changes nothing: may pass requests behind one that waits for a hook or the client
	prompt bool // session/cancel ends it
}

// outcome is what a request is answered with.
type outcome struct {
	result any
	err    error
	after  func() // done after the answer was written, and before the next of the queue
}

// task is one request, or one notification, on its way through a queue.
type task struct {
	method *method
	params json.RawMessage
	id     jsonrpc2.ID     // as Conn knows it
	raw    json.RawMessage // the id as the client spelled it
	notif  bool
	key    string // of the id as the client spelled it, for cancelling
	line   []byte // the whole line, where it may be passed on
	size   int
	queue  *queue
	ctx    context.Context
	cancel context.CancelCauseFunc
	after  func() // set by run: see outcome
	// passedOn is set by run: somebody else answers.
	passedOn bool
}

// queue is the requests of one session, in the order in which they arrived.
// It is there as long as it holds any.
type queue struct {
	name    string
	width   int // how many may run at a time
	waiting []*task
	running int
	asking  int // of those running: waiting for somebody to say something
}

// maxBatch is how many requests runAll gets at once, so that the first of
// many is not answered last of all.
const maxBatch = 1000

// next takes what is to be run next: one task, or all at the head of the
// queue that are done in one go.
func (q *queue) next() []*task {
	n := 0
	for n < len(q.waiting) && n < maxBatch {
		if n > 0 && (q.waiting[n].method != q.waiting[0].method || q.waiting[0].method.runAll == nil) {
			break
		}
		n++
	}
	tasks := slices.Clone(q.waiting[:n])
	clear(q.waiting[:n]) // the array lives on, and what they hold may be large
	q.waiting = q.waiting[n:]
	return tasks
}

// sessionOf is the session that params name, or "": then they are wrong, and
// whoever decodes them says so.
func sessionOf(params json.RawMessage) string {
	if len(params) == 0 || params[0] != '{' {
		return ""
	}
	var id string
	for name, value := range members(params) {
		if name == "sessionId" {
			id = unquote(value)
		}
	}
	return id
}

// without is tasks less t, which is nearly always the first.
func without(tasks []*task, t *task) []*task {
	if len(tasks) > 0 && tasks[0] == t {
		tasks[0] = nil
		return tasks[1:]
	}
	return slices.DeleteFunc(tasks, func(other *task) bool { return other == t })
}

// put adds work of our own to a session's queue. It never blocks.
func (d *dispatcher) put(queue string, run func(context.Context)) {
	m := &method{name: "own", run: func(ctx context.Context, _ *task) (any, error) {
		run(ctx)
		return nil, nil
	}}
	t := d.follower(m, nil)
	d.update(func(st *dispatchState) {
		d.room.requests++
		d.enqueue(st, queue, t)
	})
}

// follower is a task of a message that is not answered from here.
func (d *dispatcher) follower(m *method, line []byte) *task {
	t := &task{method: m, notif: true, line: line, size: len(line)}
	t.ctx, t.cancel = context.WithCancelCause(d.base)
	return t
}

// behind puts a message into a session's queue if that holds anything. False: nothing
// that came before it is left, and it can be done at once by the goroutine that
// reads, the only one that may ask. It waits for room as take does.
func (d *dispatcher) behind(queue string, message func() *task) bool {
	held := false
	d.update(func(st *dispatchState) { held = st.queues[queue] != nil })
	if !held {
		return false
	}
	t := message()
	t.ctx, t.cancel = context.WithCancelCause(d.base)
	if !d.admit(t.size) {
		d.log.Warn().Str("session", queue).Msg("too many messages are waiting: one is not passed on")
		if !t.notif {
			d.answer(t, outcome{err: errTooMany})
		}
		return true
	}
	d.update(func(st *dispatchState) { d.enqueue(st, queue, t) })
	return true
}
