package fork

import (
	"context"
	"fmt"
	"slices"
)

// with is the handlers of one call: the client, if there is one, last.
func (f *Forker) with(client Handler) []Handler {
	if client == nil {
		return f.handlers
	}
	return append(slices.Clone(f.handlers), client)
}

type waitKey struct{}

// WithWait is ctx with which it is told that handlers think: wait is called
// before the first is asked, and what it returns after the last. Whoever calls
// a Forker can let others go on meanwhile, for nothing changes.
func WithWait(ctx context.Context, wait func() (over func())) context.Context {
	return context.WithValue(ctx, waitKey{}, wait)
}

// asked reports whether h is one to ask before a fork, and not a command that
// only hears of it.
func asked(h Handler) bool {
	c, ok := h.(*Command)
	return !ok || c.On == BeforeFork
}

// ask asks each handler once, in order, until one cancels. Its error is ctx's
// alone: whatever a handler does wrong is an answer that cancels.
func ask(ctx context.Context, handlers []Handler, e Event) (Answer, error) {
	if wait, ok := ctx.Value(waitKey{}).(func() func()); ok && slices.ContainsFunc(handlers, asked) {
		defer wait()()
	}
	for _, h := range handlers {
		if err := ctx.Err(); err != nil {
			return Answer{}, err
		}
		answer := askOne(ctx, h, e)
		if err := ctx.Err(); err != nil {
			return Answer{}, err // not the handler's word but our own cancelling
		}
		if answer.Cancel {
			return answer, nil
		}
	}
	return Answer{}, nil
}

func askOne(ctx context.Context, h Handler, e Event) (answer Answer) {
	defer func() {
		if p := recover(); p != nil {
			answer = Answer{Cancel: true, Reason: fmt.Sprintf("a %s handler panicked: %v", BeforeFork, p)}
		}
	}()
	e.Files = slices.Clone(e.Files) // what one handler does to it is not the next one's event
	answer, err := h.SessionBeforeFork(ctx, e)
	if err != nil {
		return Answer{Cancel: true, Reason: err.Error()}
	}
	if answer.Cancel && answer.Reason == "" {
		answer.Reason = fmt.Sprintf("a %s handler cancelled and gave no reason", BeforeFork)
	}
	return answer
}

// teller is a Handler that can say what went wrong when it was told. Handler
// itself cannot: a fork that was made stays made.
type teller interface {
	tell(ctx context.Context, e Forked) error
}

// tell tells each handler once. The fork is made, so cancelling the request
// no longer keeps them from hearing of it.
func (f *Forker) tell(ctx context.Context, handlers []Handler, e Forked) {
	ctx = context.WithoutCancel(ctx)
	for _, h := range handlers {
		if err := tellOne(ctx, h, e); err != nil && f.Report != nil {
			f.Report(err)
		}
	}
}

func tellOne(ctx context.Context, h Handler, e Forked) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("a %s handler panicked: %v", AfterFork, p)
		}
	}()
	if t, ok := h.(teller); ok {
		return t.tell(ctx, e)
	}
	h.SessionForked(ctx, e)
	return nil
}
