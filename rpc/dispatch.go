package rpc

import (
	"context"
	"errors"
	"runtime/debug"
	"sync"

	"github.com/rs/zerolog"
	"github.com/sourcegraph/jsonrpc2"

	"github.com/oino-dev/oinod/fork"
	"github.com/oino-dev/oinod/protocol"
)

// commonWidth is how many requests that belong to no session run at a time.
const commonWidth = 16

// dispatcher runs requests: in order within a session, side by side otherwise.
type dispatcher struct {
	methods map[string]*method
	log     zerolog.Logger
	base    context.Context // of every request's
	reply   func(*task, *jsonrpc2.Response) error

	work sync.WaitGroup // every goroutine below

	mu    sync.Mutex
	state dispatchState // touch only inside update
	room  backlog       // touch only inside update
}

type dispatchState struct {
	queues map[string]*queue
	common *queue
	byID   map[string][]*task // not answered; several may have one id
	ending bool               // set once; nothing is taken after it
}

func newDispatcher(base context.Context, log zerolog.Logger, methods []*method) *dispatcher {
	d := &dispatcher{log: log, base: base, methods: map[string]*method{}, room: newBacklog()}
	for _, m := range methods {
		d.methods[m.name] = m
	}
	d.state = dispatchState{
		queues: map[string]*queue{},
		common: &queue{width: commonWidth},
		byID:   map[string][]*task{},
	}
	return d
}

func (d *dispatcher) update(f func(*dispatchState)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f(&d.state)
}

// take is called for every message, in order, by the goroutine that reads. It
// blocks for want of room alone: see backlog. Of t, everything above queue is
// set but the method.
func (d *dispatcher) take(name string, t *task) {
	m := d.methods[name]
	if m == nil {
		if t.notif {
			d.log.Debug().Str("method", name).Msg("an unknown notification is ignored")
			return
		}
		m = &method{name: name, common: true, run: unknownMethod}
	}
	t.method = m
	if m.first != nil {
		if m.first(t.params); t.notif {
			return // a cancel, which must not wait for room
		}
	}
	if !d.admit(t.size) {
		if t.notif {
			d.log.Warn().Str("method", m.name).Msg("too many requests are waiting: a notification is dropped")
			return
		}
		d.answer(t, outcome{err: errTooMany})
		return
	}
	t.ctx, t.cancel = context.WithCancelCause(d.base)
	queue := ""
	if !m.common {
		queue = sessionOf(t.params)
	}
	d.update(func(st *dispatchState) { d.enqueue(st, queue, t) })
}

// enqueue puts t in its queue, and sees to it that the queue is worked off.
func (d *dispatcher) enqueue(st *dispatchState, name string, t *task) {
	if st.ending {
		d.room.release(t.size)
		return // the process ends: nobody will hear of it
	}
	if !t.notif {
		st.byID[t.key] = append(st.byID[t.key], t)
	}
	q := st.common
	if name != "" {
		if q = st.queues[name]; q == nil {
			q = &queue{name: name, width: 1}
			st.queues[name] = q
		}
	}
	t.queue = q
	if q.asking > 0 && t.method.reads {
		d.work.Go(func() { d.runOne(t) })
		return
	}
	q.waiting = append(q.waiting, t)
	if q.running < q.width {
		q.running++
		d.work.Go(func() { d.drain(q) })
	}
}

// drain works q off. It ends, and the queue with it, when nothing waits.
func (d *dispatcher) drain(q *queue) {
	for {
		var tasks []*task
		d.update(func(st *dispatchState) {
			if tasks = q.next(); len(tasks) > 0 {
				return
			}
			if q.running--; q.running == 0 && q != st.common {
				delete(st.queues, q.name)
			}
		})
		switch {
		case len(tasks) == 0:
			return
		case tasks[0].method.runAll != nil:
			d.runBatch(tasks)
		default:
			d.runOne(tasks[0])
		}
	}
}

// runOne runs and answers one task.
func (d *dispatcher) runOne(t *task) {
	var o outcome
	if err := context.Cause(t.ctx); err != nil {
		o.err = err
	} else {
		func() {
			defer d.caught(t.method, func(err error) { o.err = err })
			o.result, o.err = t.method.run(fork.WithWait(t.ctx, func() func() { return d.letRead(t) }), t)
			o.after = t.after
		}()
	}
	d.finish(t, o)
}

// runBatch runs tasks of one method in one go and answers them in order.
func (d *dispatcher) runBatch(tasks []*task) {
	outcomes := make([]outcome, len(tasks))
	func() {
		defer d.caught(tasks[0].method, func(err error) {
			for i := range outcomes {
				outcomes[i] = outcome{err: err}
			}
		})
		copy(outcomes, tasks[0].method.runAll(tasks))
	}()
	for i, t := range tasks {
		d.finish(t, outcomes[i])
	}
}

// caught turns a panic into an error. One request that meets a bug of ours
// must not end everybody's sessions.
func (d *dispatcher) caught(m *method, report func(error)) {
	if p := recover(); p != nil {
		d.log.Error().Str("method", m.name).Interface("panic", p).Bytes("stack", debug.Stack()).Msg("a bug in oinod")
		report(errBug)
	}
}

// setAsking notes that t waits for the client (1) or no longer does (-1).
// Meanwhile methods that only read pass it, whatever waits before them: the
// client may need them to find its answer.
func (d *dispatcher) setAsking(t *task, n int) {
	d.update(func(st *dispatchState) {
		d.room.asking += n
		d.room.wake()
		d.passing(st, t.queue, n)
	})
}

// letRead lets methods that only read pass t, which waits for somebody other
// than the client, until over is called.
func (d *dispatcher) letRead(t *task) (over func()) {
	d.update(func(st *dispatchState) { d.passing(st, t.queue, 1) })
	return func() { d.update(func(st *dispatchState) { d.passing(st, t.queue, -1) }) }
}

// passing notes that in q one more request (or, with -1, one less) may be
// passed by methods that only read.
func (d *dispatcher) passing(st *dispatchState, q *queue, n int) {
	if q == nil {
		return
	}
	q.asking += n
	if n < 0 || q == st.common {
		return
	}
	var left []*task
	for _, w := range q.waiting {
		if w.method.reads {
			d.work.Go(func() { d.runOne(w) })
		} else {
			left = append(left, w)
		}
	}
	q.waiting = left
}

// end takes no more requests and returns when those in hand are answered.
func (d *dispatcher) end() {
	d.update(func(st *dispatchState) { st.ending = true })
	d.work.Wait()
}

// finish answers t. From then on it is no longer in hand.
func (d *dispatcher) finish(t *task, o outcome) {
	if cause := context.Cause(t.ctx); cause != nil && errors.Is(o.err, context.Canceled) {
		o.err = cause
	}
	if errors.Is(o.err, errTurnCancelled) && t.method.prompt {
		o.result, o.err = protocol.PromptResult{StopReason: protocol.Cancelled}, nil
	}
	if !t.passedOn {
		d.answer(t, o)
	}
	if o.after != nil {
		o.after()
	}
	t.cancel(nil)
	d.update(func(st *dispatchState) {
		if !t.notif {
			st.forget(t)
		}
		d.room.release(t.size)
	})
}

func (st *dispatchState) forget(t *task) {
	left := without(st.byID[t.key], t)
	if len(left) == 0 {
		delete(st.byID, t.key)
		return
	}
	st.byID[t.key] = left
}

// answer writes the answer to t, if it is one that is answered.
func (d *dispatcher) answer(t *task, o outcome) {
	resp := &jsonrpc2.Response{ID: t.id}
	if o.err == nil {
		result, err := protocol.Encode(o.result)
		if err != nil {
			o.err = err
		}
		resp.Result = &result
	}
	if o.err != nil {
		resp.Result, resp.Error = nil, wireError(o.err)
	}
	logAnswer(d.log, t, resp)
	if t.notif {
		return
	}
	if err := d.reply(t, resp); err != nil {
		d.log.Debug().Err(err).Str("method", t.method.name).Msg("an answer could not be written")
	}
}
