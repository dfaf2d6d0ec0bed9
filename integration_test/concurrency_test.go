//go:build unix

package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

// TestTheOwnerIsNamed: who has a session is told by its process id, and the
// lock of a killed one is free at once.
func TestTheOwnerIsNamed(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	first := b.serve()
	session := first.newSession(b.work)
	first.prompt(session, "mine")
	second := b.serve()
	open := map[string]any{"sessionId": session, "cwd": b.work, "mcpServers": []any{}}
	e := second.refused("session/resume", open)
	require.Equal(t, -32010, e.Code)
	require.Equal(t, "session_locked", e.kind())
	require.EqualValues(t, first.pid(), e.Data["pid"])
	require.Contains(t, e.Message, fmt.Sprint(first.pid()), "a person is told, too")
	first.die()
	second.call("session/resume", open)
	third := b.serve()
	require.EqualValues(t, second.pid(), third.refused("session/resume", open).Data["pid"])
	second.call("session/close", map[string]any{"sessionId": session})
	third.call("session/resume", open)
}

// TestEightProcesses: eight processes with three sessions each write side by
// side in one workspace and one agent directory; some are killed in the end.
// Every checkpoint of every session is good.
func TestEightProcesses(t *testing.T) {
	t.Parallel()
	const processes, sessions, turns, files = 8, 3, 4, 3
	type written struct {
		session string
		entries []string
	}
	b := newBox(t)
	name := func(p, s, f int) string { return fmt.Sprintf("shared%d/p%d_s%d_f%d", f, p, s, f) }
	content := func(p, s, turn, f int) string {
		if turn < 0 {
			return "in the beginning\n"
		}
		if f == 0 {
			return fmt.Sprintf("of turn %d\n", turn) // the same in all sessions: one content, many writers
		}
		return fmt.Sprintf("process %d session %d turn %d\n", p, s, turn)
	}
	var all [processes][sessions]written
	var procs [processes]*process
	for p := range processes {
		for s := range sessions {
			for f := range files {
				b.write(name(p, s, f), content(p, s, -1, f))
			}
		}
		procs[p] = b.serve()
	}
	before := tree(t, b.work)
	var group errgroup.Group
	for p := range processes {
		for s := range sessions {
			group.Go(func() error {
				w := &all[p][s]
				made, err := procs[p].try("session/new", map[string]any{"cwd": b.work, "mcpServers": []any{}})
				if err != nil {
					return err
				}
				var id struct{ SessionID string }
				if err := json.Unmarshal(made, &id); err != nil {
					return err
				}
				w.session = id.SessionID
				for turn := range turns {
					said, err := procs[p].try("session/prompt", promptParams(w.session, fmt.Sprintf("turn %d", turn)))
					if err != nil {
						return err
					}
					var prompted struct {
						Meta struct{ Oino struct{ EntryID string } } `json:"_meta"`
					}
					if err := json.Unmarshal(said, &prompted); err != nil {
						return err
					}
					w.entries = append(w.entries, prompted.Meta.Oino.EntryID)
					for f := range files {
						_, err := procs[p].try("_oino/write", map[string]any{"sessionId": w.session, "path": b.path(name(p, s, f)), "content": content(p, s, turn, f)})
						if err != nil {
							return err
						}
					}
				}
				_, err = procs[p].try("_oino/turn_end", map[string]any{"sessionId": w.session})
				return err
			})
		}
	}
	require.NoError(t, group.Wait())
	for i, p := range procs {
		if i%2 == 0 {
			p.die()
		} else {
			require.Zero(t, p.exit())
		}
	}

	one := b.serve()
	listed := field[[]any](t, one.call("session/list", map[string]any{"cwd": b.work}), "sessions")
	require.Len(t, listed, processes*sessions)
	for p := range processes {
		for s := range sessions {
			for turn := turns - 1; turn >= 0; turn-- {
				result := one.call("_oino/rewind", map[string]any{"sessionId": all[p][s].session, "entryId": all[p][s].entries[turn]})
				require.NotContains(t, string(result), `"failed"`)
				for f := range files {
					require.Equal(t, content(p, s, turn-1, f), b.read(name(p, s, f)))
				}
			}
		}
	}
	requireSame(t, before, tree(t, b.work))
}

// TestSessionsRunSideBySide: a session that waits for its client holds up
// neither another session nor who only reads.
func TestSessionsRunSideBySide(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	p := b.start()
	p.initialize(map[string]any{"_meta": map[string]any{"oino": map[string]any{"sessionBeforeFork": true}}})
	waiting, other := p.newSession(b.work), p.newSession(b.work)
	entry := p.prompt(waiting, "one")
	p.call("_oino/write", map[string]any{"sessionId": waiting, "path": b.path("a"), "content": "a\n"})
	p.call("_oino/turn_end", map[string]any{"sessionId": waiting})
	rewind, err := p.ask("_oino/rewind", map[string]any{"sessionId": waiting, "entryId": entry, "conversation": "rewind"})
	require.NoError(t, err)
	question, _, err := p.await(func(_ int, m message) bool { return m.Method == "_oino/session_before_fork" }, "", 0)
	require.NoError(t, err)

	// What changes the waiting session waits, too.
	behind, err := p.ask("_oino/append", map[string]any{"sessionId": waiting, "entries": []any{map[string]any{"role": "user", "content": "two"}}})
	require.NoError(t, err)
	// Who reads sees the state before.
	require.Len(t, field[[]any](t, p.call("_oino/entries", map[string]any{"sessionId": waiting}), "entries"), 1)
	require.Len(t, field[[]any](t, p.call("_oino/checkpoints", map[string]any{"sessionId": waiting}), "checkpoints"), 1)
	// The other session does all its work meanwhile.
	e2 := p.prompt(other, "other")
	p.call("_oino/write", map[string]any{"sessionId": other, "path": b.path("b"), "content": "b\n"})
	p.call("_oino/rewind", map[string]any{"sessionId": other, "entryId": e2})
	require.NoFileExists(t, b.path("b"))
	require.FileExists(t, b.path("a"))
	for _, id := range []string{rewind, behind} {
		_, done := p.answered(id)
		require.False(t, done)
	}
	require.NoError(t, p.send([]byte(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{}}`, question.ID))))
	_, err = p.wait(rewind)
	require.NoError(t, err)
	_, err = p.wait(behind)
	require.NoError(t, err)
	require.NoFileExists(t, b.path("a"))
	entries := p.call("_oino/entries", map[string]any{"sessionId": waiting})
	require.Len(t, field[[]any](t, entries, "entries"), 1)
	require.Contains(t, string(entries), "two")
}

// TestCancelPassesWhatWaits: a request that waits behind another can be given
// up, and then has done nothing.
func TestCancelPassesWhatWaits(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	p := b.start()
	p.initialize(map[string]any{"_meta": map[string]any{"oino": map[string]any{"sessionBeforeFork": true}}})
	session := p.newSession(b.work)
	entry := p.prompt(session, "one")
	p.call("_oino/write", map[string]any{"sessionId": session, "path": b.path("a"), "content": "a\n"})
	p.call("_oino/turn_end", map[string]any{"sessionId": session})
	before := tree(t, b.work)
	rewind, err := p.ask("_oino/rewind", map[string]any{"sessionId": session, "entryId": entry, "conversation": "fork"})
	require.NoError(t, err)
	_, _, err = p.await(func(_ int, m message) bool { return m.Method == "_oino/session_before_fork" }, "", 0)
	require.NoError(t, err)
	behind, err := p.ask("_oino/append", map[string]any{"sessionId": session, "entries": []any{map[string]any{"role": "assistant", "content": "no"}}})
	require.NoError(t, err)
	prompt, err := p.ask("session/prompt", promptParams(session, "no"))
	require.NoError(t, err)
	cancel := func(id string) {
		require.NoError(t, p.send([]byte(`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":`+id+`}}`)))
	}
	cancelled := func(id string) {
		t.Helper()
		_, err := p.wait(id)
		var e *wireError
		require.ErrorAs(t, err, &e)
		require.Equal(t, -32800, e.Code)
	}
	cancel(behind)
	cancelled(behind)
	require.NoError(t, p.send([]byte(`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"`+session+`"}}`)))
	said, err := p.wait(prompt)
	require.NoError(t, err)
	require.Equal(t, "cancelled", field[string](t, said, "stopReason"))
	// The rewind itself, while it asks.
	cancel(rewind)
	cancelled(rewind)
	requireSame(t, before, tree(t, b.work))
	require.Len(t, field[[]any](t, p.call("_oino/entries", map[string]any{"sessionId": session}), "entries"), 1)
	require.Len(t, field[[]any](t, p.call("session/list", map[string]any{}), "sessions"), 1)
	// What is not there, or done, is no matter.
	cancel(`"never was"`)
	cancel(behind)
	require.Equal(t, 0, p.exit())
}

// TestFlood sends 2,000 requests at once. The answers of a session are in the
// order of its requests, and the conversation is, too.
func TestFlood(t *testing.T) {
	t.Parallel()
	const requests, sessions = 2000, 4
	b := newBox(t)
	p := b.serve()
	var ids [sessions]string
	for s := range sessions {
		ids[s] = p.newSession(b.work)
		p.prompt(ids[s], "go")
	}
	var sent [sessions][]string
	var said [sessions][]string
	for i := range requests {
		s := i % sessions
		method, params := "_oino/append", map[string]any{"sessionId": ids[s]}
		switch i / sessions % 4 {
		case 0:
			text := fmt.Sprintf("message %d", i)
			said[s] = append(said[s], text)
			params["entries"] = []any{map[string]any{"role": "assistant", "content": text}}
		case 1:
			method, params["path"], params["content"] = "_oino/write", b.path(fmt.Sprintf("s%d/f%d", s, i%23)), fmt.Sprintf("%d\n", i)
		case 2:
			method, params["limit"] = "_oino/entries", 1
		case 3:
			method, params["paths"] = "_oino/record", []string{b.path(fmt.Sprintf("s%d/r%d", s, i))}
		}
		id, err := p.ask(method, params)
		require.NoError(t, err)
		sent[s] = append(sent[s], id)
	}
	place := func(id string) int {
		t.Helper()
		_, err := p.wait(id)
		require.NoError(t, err)
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.answers[id]
	}
	for s := range sessions {
		order := make([]int, len(sent[s]))
		for i, id := range sent[s] {
			order[i] = place(id)
		}
		require.True(t, slices.IsSorted(order), "an answer overtook another of its session")
		var entries struct {
			Entries []struct{ Content []struct{ Text string } }
		}
		require.NoError(t, json.Unmarshal(p.call("_oino/entries", map[string]any{"sessionId": ids[s]}), &entries))
		var texts []string
		for _, e := range entries.Entries[1:] {
			texts = append(texts, e.Content[0].Text)
		}
		require.Equal(t, said[s], texts)
	}
}

// TestEndWithWorkInHand: when stdin ends, or a signal says so, 500 requests are
// in hand. All of them are answered, and the exit code is 0.
func TestEndWithWorkInHand(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(p *process){
		"EOF":     func(p *process) { p.hangUp() },
		"SIGTERM": func(p *process) { p.signal(syscall.SIGTERM) },
		"SIGINT":  func(p *process) { p.signal(syscall.SIGINT) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBox(t)
			p := b.serve()
			session := p.newSession(b.work)
			entry := p.prompt(session, "go")
			var ids []string
			for i := range 500 {
				id, err := p.ask("_oino/write", map[string]any{"sessionId": session, "path": b.path(fmt.Sprintf("d%d/f%d", i%10, i)), "content": fmt.Sprintf("%d\n", i)})
				require.NoError(t, err)
				ids = append(ids, id)
			}
			if name != "EOF" {
				// A signal passes what is still in the pipe: it is in hand once
				// something that was sent later is answered.
				p.call("initialize", map[string]any{"protocolVersion": 1})
			}
			end(p)
			require.Zero(t, p.waitExit())
			for i, id := range ids {
				m, ok := p.answered(id)
				require.True(t, ok, "request %d was not answered", i)
				require.Nil(t, m.Error)
			}
			data, err := os.ReadFile(b.path("d9/f499"))
			require.NoError(t, err)
			require.Equal(t, "499\n", string(data))
			again := b.serve()
			again.call("_oino/rewind", map[string]any{"sessionId": session, "entryId": entry})
			require.Empty(t, tree(t, b.work))
		})
	}
}

// TestEndWhileTheClientIsAsked: nobody will answer any more, so what waits for
// the client is an objection, and the process ends.
func TestEndWhileTheClientIsAsked(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	p := b.start()
	p.initialize(map[string]any{"_meta": map[string]any{"oino": map[string]any{"sessionBeforeFork": true}}})
	session := p.newSession(b.work)
	entry := p.prompt(session, "one")
	p.call("_oino/write", map[string]any{"sessionId": session, "path": b.path("a"), "content": "a\n"})
	rewind, err := p.ask("_oino/rewind", map[string]any{"sessionId": session, "entryId": entry, "conversation": "rewind"})
	require.NoError(t, err)
	_, _, err = p.await(func(_ int, m message) bool { return m.Method == "_oino/session_before_fork" }, "", 0)
	require.NoError(t, err)
	asked := time.Now()
	require.Zero(t, p.exit())
	require.Less(t, time.Since(asked), patience/2)
	_, answered := p.answered(rewind)
	require.True(t, answered)
	require.Equal(t, "a\n", b.read("a"))
}
