package rpc

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sourcegraph/jsonrpc2"

	"github.com/oino-dev/oinod/checkpoints"
	"github.com/oino-dev/oinod/fork"
	"github.com/oino-dev/oinod/protocol"
	"github.com/oino-dev/oinod/session"
)

func (s *server) fork(ctx context.Context, t *task, p *protocol.ForkParams) (any, error) {
	opened, err := s.session(ctx, p.SessionID)
	if err != nil {
		return nil, err
	}
	r, err := s.host.fork(ctx, t, opened, fork.Params{EntryID: p.EntryID, Position: p.Position})
	if err != nil {
		return nil, err
	}
	return protocol.ForkResult{
		SessionID: r.SessionID, Text: textOf(r), Cancelled: r.Cancelled, Reason: r.Reason, Ahead: r.Ahead,
	}, nil
}

// forkSession is ACP's fork. Its answer has no place for an objection, which
// is therefore an error.
func (s *server) forkSession(ctx context.Context, t *task, p *protocol.ForkSessionParams) (any, error) {
	opened, err := s.session(ctx, p.SessionID)
	if err != nil {
		return nil, err
	}
	if !checkpoints.SameDir(p.Cwd, opened.Cwd()) {
		return nil, &session.Error{Kind: session.BadParams, Msg: fmt.Sprintf(
			"cwd is %s, but session %s works in %s, and so does a fork of it", p.Cwd, p.SessionID, opened.Cwd())}
	}
	params := fork.Params{EntryID: p.Meta.Of().EntryID, Position: p.Meta.Of().Position}
	if len(p.AdditionalDirectories) > 0 {
		params.AdditionalDirectories = p.AdditionalDirectories
	}
	r, err := s.host.fork(ctx, t, opened, params)
	if err != nil {
		return nil, err
	}
	if r.Cancelled {
		return nil, cancelledFork(r.Reason)
	}
	t.after = func() { s.announce(r.SessionID) }
	result := protocol.ForkSessionResult{SessionID: r.SessionID}
	if r.HasText || len(r.Ahead) > 0 {
		result.Meta = &protocol.Meta[protocol.ForkExtension]{Oino: &protocol.ForkExtension{Text: textOf(r), Ahead: r.Ahead}}
	}
	return result, nil
}

func cancelledFork(reason string) error {
	return &jsonrpc2.Error{
		Code: protocol.CodeRefused, Message: "the fork was cancelled: " + reason,
		Data: new(mustEncode(map[string]string{"kind": protocol.KindForkCancelled, "reason": reason})),
	}
}

func textOf(r fork.Result) *string {
	if !r.HasText {
		return nil
	}
	return &r.Text
}

// hook is the client as a handler of the forks of one request, or nil where it
// did not ask to be one.
func (s *server) hook(t *task) fork.Handler {
	if !s.client.wish().SessionBeforeFork {
		return nil
	}
	return clientHook{s.client, t}
}

// hookLimit is how long a person may think.
const hookLimit = 10 * time.Minute

// clientHook is the client as a fork.Handler.
type clientHook struct {
	client *client
	task   *task
}

// SessionBeforeFork asks the client. Whatever it answers but a clear word that
// lets it go on is an objection, and says so.
func (h clientHook) SessionBeforeFork(ctx context.Context, e fork.Event) (fork.Answer, error) {
	var answer fork.Answer
	e.SessionID = h.client.name(e.SessionID)
	err := h.client.ask(ctx, h.task, hookLimit, protocol.BeforeFork, e, &answer)
	if ce, ok := errors.AsType[*jsonrpc2.Error](err); ok {
		return answer, fmt.Errorf("the client answered with an error: %s", ce.Message)
	}
	if err != nil {
		return answer, fmt.Errorf("the client was asked: %w", err)
	}
	return answer, nil
}

// SessionForked tells the client.
func (h clientHook) SessionForked(_ context.Context, e fork.Forked) {
	e.SessionID, e.NewSessionID = h.client.name(e.SessionID), h.client.name(e.NewSessionID)
	h.client.notify(protocol.Forked, e)
}
