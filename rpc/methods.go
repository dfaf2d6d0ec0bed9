package rpc

import (
	"context"
	"slices"
	"strings"

	"github.com/oino-dev/oinod/protocol"
)

// server serves the methods of one client.
type server struct {
	config Config
	client *client
	host   host
	// filesOnly: commands do not move the conversation.
	filesOnly bool
}

// on serves a method whose params are a P.
func on[P any](name string, f func(context.Context, *task, *P) (any, error)) *method {
	return &method{name: name, run: func(ctx context.Context, t *task) (any, error) {
		var p P
		if err := protocol.Decode(t.params, &p); err != nil {
			return nil, err
		}
		return f(ctx, t, &p)
	}}
}

// common marks a method that belongs to no session.
func common(m *method) *method { m.common = true; return m }

// reads marks a method that changes nothing.
func reads(m *method) *method { m.reads = true; return m }

// methods is all that is served.
func (s *server) methods() []*method {
	initialize := common(on(protocol.Initialize, s.initialize))
	initialize.first = s.greet
	prompt := on(protocol.SessionPrompt, s.prompt)
	prompt.prompt = true
	return []*method{
		initialize,
		common(on(protocol.SessionNew, s.newSession)),
		on(protocol.SessionLoad, s.load),
		on(protocol.SessionResume, s.resume),
		common(on(protocol.SessionList, s.list)),
		on(protocol.SessionClose, s.closeSession),
		on(protocol.SessionDelete, s.deleteSession),
		on(protocol.SessionFork, s.forkSession),
		prompt,
		{name: protocol.SessionCancel, common: true, first: s.cancelTurn, run: nothing},
		{name: protocol.CancelRequest, common: true, first: s.cancelRequest, run: nothing},

		on(protocol.Append, s.appendEntries),
		reads(on(protocol.Entries, s.entries)),
		{name: protocol.Record, runAll: s.record},
		on(protocol.Write, s.write),
		on(protocol.Edit, s.edit),
		on(protocol.TurnEnd, s.turnEnd),
		reads(on(protocol.Checkpoints, s.checkpoints)),
		reads(on(protocol.Diff, s.diff)),
		on(protocol.Rewind, s.rewind),
		on(protocol.Redo, s.redo),
		on(protocol.Fork, s.fork),
		on(protocol.Label, s.label),
		on(protocol.Title, s.title),
		on(protocol.StatePut, s.statePut),
		reads(on(protocol.StateGet, s.stateGet)),
		common(on(protocol.Stats, s.stats)),
	}
}

// nothing is a method whose work was done when it was read.
func nothing(context.Context, *task) (any, error) { return protocol.Empty{}, nil }

// extensions is the names of those methods that ACP does not have.
func extensions(methods []*method) []string {
	var names []string
	for _, m := range methods {
		if strings.HasPrefix(m.name, "_oino/") {
			names = append(names, m.name)
		}
	}
	slices.Sort(names)
	return names
}

// list is values, never nil: null is no list on the wire.
func list[T any](values []T) []T {
	if values == nil {
		return []T{}
	}
	return values
}
