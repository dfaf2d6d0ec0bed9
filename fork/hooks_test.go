package fork

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oino-dev/oinod/checkpoints"
	"github.com/oino-dev/oinod/session"
)

// voter is a Handler whose word is fixed, and which remembers what it heard.
type voter struct {
	name  string
	vote  func(Event) (Answer, error) // nil: go on
	heard func(Forked)                // nil: nothing
	log   *[]string
}

func (v *voter) SessionBeforeFork(_ context.Context, e Event) (Answer, error) {
	*v.log = append(*v.log, v.name+" asked")
	if v.vote == nil {
		return Answer{}, nil
	}
	return v.vote(e)
}

func (v *voter) SessionForked(_ context.Context, e Forked) {
	*v.log = append(*v.log, v.name+" told "+e.NewSessionID)
	if v.heard != nil {
		v.heard(e)
	}
}

func TestHandlersAreAskedInOrderUntilOneCancels(t *testing.T) {
	no := func(Event) (Answer, error) { return Answer{Cancel: true, Reason: "no"}, nil }
	for name, tt := range map[string]struct {
		votes  []func(Event) (Answer, error)
		asked  []string
		answer Answer
	}{
		"nobody": {},
		"all go on": {
			votes: []func(Event) (Answer, error){nil, nil},
			asked: []string{"a asked", "b asked"},
		},
		"the first cancels": {
			votes:  []func(Event) (Answer, error){no, nil},
			asked:  []string{"a asked"},
			answer: Answer{Cancel: true, Reason: "no"},
		},
		"the last cancels": {
			votes:  []func(Event) (Answer, error){nil, nil, no},
			asked:  []string{"a asked", "b asked", "c asked"},
			answer: Answer{Cancel: true, Reason: "no"},
		},
		"no reason": {
			votes:  []func(Event) (Answer, error){func(Event) (Answer, error) { return Answer{Cancel: true}, nil }},
			asked:  []string{"a asked"},
			answer: Answer{Cancel: true, Reason: "a session_before_fork handler cancelled and gave no reason"},
		},
		"an error": {
			votes:  []func(Event) (Answer, error){func(Event) (Answer, error) { return Answer{}, errors.New("the tree is dirty") }, nil},
			asked:  []string{"a asked"},
			answer: Answer{Cancel: true, Reason: "the tree is dirty"},
		},
		"a panic": {
			votes:  []func(Event) (Answer, error){func(Event) (Answer, error) { panic("oops") }, nil},
			asked:  []string{"a asked"},
			answer: Answer{Cancel: true, Reason: "a session_before_fork handler panicked: oops"},
		},
		"a reason alone": {
			votes: []func(Event) (Answer, error){func(Event) (Answer, error) { return Answer{Reason: "fine"}, nil }},
			asked: []string{"a asked"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var log []string
			var handlers []Handler
			for i, vote := range tt.votes {
				handlers = append(handlers, &voter{name: string(rune('a' + i)), vote: vote, log: &log})
			}
			answer, err := ask(t.Context(), handlers, Event{})
			require.NoError(t, err)
			require.Equal(t, tt.asked, log)
			require.Equal(t, tt.answer, answer)
		})
	}
}

func TestACancelledRequestIsNobodysAnswer(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var log []string
	first := &voter{name: "a", log: &log, vote: func(Event) (Answer, error) {
		cancel()
		return Answer{Cancel: true, Reason: "too late"}, nil
	}}
	_, err := ask(ctx, []Handler{first, &voter{name: "b", log: &log}}, Event{})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, []string{"a asked"}, log)
}

func TestAHandlerCannotChangeWhatTheNextOneIsTold(t *testing.T) {
	var log []string
	vandal := &voter{name: "a", log: &log, vote: func(e Event) (Answer, error) {
		e.Files[0].Path = "/other"
		return Answer{}, nil
	}}
	var seen string
	next := &voter{name: "b", log: &log, vote: func(e Event) (Answer, error) {
		seen = e.Files[0].Path
		return Answer{}, nil
	}}
	_, err := ask(t.Context(), []Handler{vandal, next}, Event{Files: []session.PathChange{{Path: "/w/a", Change: checkpoints.Modified}}})
	require.NoError(t, err)
	require.Equal(t, "/w/a", seen)
}

func TestEveryHandlerIsToldOnceWhateverTheOthersDo(t *testing.T) {
	var log []string
	var reported []string
	f := New(nil,
		&voter{name: "a", log: &log, heard: func(Forked) { panic("oops") }},
		&Command{On: AfterFork, Argv: []string{"/no/such/program"}},
	)
	f.Report = func(err error) { reported = append(reported, err.Error()) }
	client := &voter{name: "client", log: &log}

	ctx, cancel := context.WithCancel(t.Context())
	cancel() // the fork is made: a cancel no longer keeps them from hearing of it
	f.tell(ctx, f.with(client), Forked{NewSessionID: "s2", Cwd: t.TempDir()})

	require.Equal(t, []string{"a told s2", "client told s2"}, log)
	require.Len(t, reported, 2)
	require.Equal(t, "a session_fork handler panicked: oops", reported[0])
	require.Contains(t, reported[1], "the session_fork hook /no/such/program cannot be started")
}

func TestTheClientComesLastAndStaysForOneCall(t *testing.T) {
	var log []string
	f := New(nil, &voter{name: "a", log: &log})
	client := &voter{name: "client", log: &log}
	require.Equal(t, []Handler{f.handlers[0], client}, f.with(client))
	require.Len(t, f.with(nil), 1)
}
