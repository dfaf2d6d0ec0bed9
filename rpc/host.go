package rpc

import (
	"context"

	"github.com/oino-dev/oinod/fork"
	"github.com/oino-dev/oinod/session"
)

// host is what a method asks for that depends on who plays the agent's part:
// the client itself (serve), or an agent behind us (wrap), whose conversation
// has to follow.
type host interface {
	// session is the session that the client calls id, opened if it is not.
	session(ctx context.Context, id string) (*session.Session, error)
	rewind(ctx context.Context, t *task, s *session.Session, p session.RewindParams) (session.RewindResult, error)
	redo(ctx context.Context, t *task, s *session.Session, p session.RewindParams) (session.RewindResult, error)
	fork(ctx context.Context, t *task, s *session.Session, p fork.Params) (fork.Result, error)
	// commands is what our slash commands are called in a session.
	commands(sessionID string) names
}

// alone is the host of serve: nobody is behind us.
type alone struct{ server *server }

func (a alone) session(ctx context.Context, id string) (*session.Session, error) {
	return a.server.config.Registry.Get(ctx, id)
}

func (a alone) rewind(ctx context.Context, t *task, s *session.Session, p session.RewindParams) (session.RewindResult, error) {
	return a.server.config.Forker.Rewind(ctx, s, p, a.server.hook(t))
}

func (a alone) redo(ctx context.Context, _ *task, s *session.Session, p session.RewindParams) (session.RewindResult, error) {
	return s.Redo(ctx, p)
}

func (a alone) fork(ctx context.Context, t *task, s *session.Session, p fork.Params) (fork.Result, error) {
	return a.server.config.Forker.Fork(ctx, s, p, a.server.hook(t))
}

func (a alone) commands(string) names { return nil }
