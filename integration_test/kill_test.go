//go:build unix

package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// killRounds is how many moments a kill test tries: a few dozen in an ordinary
// run, 300 with OINO_LONG=1.
func killRounds(ordinary int) int {
	if os.Getenv("OINO_LONG") == "1" {
		return 300
	}
	return ordinary
}

// killRand makes a round's choices, which its number repeats.
func killRand(round int) *rand.Rand { return rand.New(rand.NewPCG(uint64(round), 20)) }

// someTime passes. The moment of a kill is what these tests are about, and
// there is nothing to wait for that marks it.
func someTime(d time.Duration) { time.Sleep(d) }

// die ends the process at once and waits until all that it had said is in.
func (p *process) die() {
	p.mu.Lock()
	p.killed = true
	p.mu.Unlock()
	p.signal(syscall.SIGKILL)
	<-p.exited
}

// answered reports whether a request was answered, and how.
func (p *process) answered(id string) (message, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i, ok := p.answers[id]
	if !ok {
		return message{}, false
	}
	return p.seen[i], true
}

// TestKilledWhileRecording kills oinod in the middle of a stream of records,
// writes and edits. Whatever was answered can be restored; a file that no
// answer speaks of is as it was, or is restored as well.
func TestKilledWhileRecording(t *testing.T) {
	t.Parallel()
	const files = 60
	for round := range killRounds(24) {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			t.Parallel()
			r := killRand(round)
			b := newBox(t)
			for i := range files {
				if i%3 != 0 { // the others are new
					b.write(fmt.Sprintf("d%d/f%d", i%7, i), fmt.Sprintf("before %d\n", i))
				}
			}
			before := tree(t, b.work)
			p := b.serve()
			session := p.newSession(b.work)
			entry := p.prompt(session, "change all")

			// Sent in one go, as a driver does that need not wait.
			ids := make([]string, files)
			for i := range files {
				path := b.path(fmt.Sprintf("d%d/f%d", i%7, i))
				method, params := "_oino/write", map[string]any{"sessionId": session, "path": path, "content": fmt.Sprintf("after %d\n", i)}
				switch i % 5 {
				case 3:
					method, params = "_oino/record", map[string]any{"sessionId": session, "paths": []string{path}}
				case 4:
					if i%3 != 0 {
						method, params = "_oino/edit", map[string]any{"sessionId": session, "path": path,
							"edits": []any{map[string]any{"oldText": "before", "newText": "after"}}}
					}
				}
				var err error
				ids[i], err = p.ask(method, params)
				require.NoError(t, err)
			}
			// The moment: when so many were answered, or none.
			if k := r.IntN(files + 1); k > 0 {
				_, err := p.wait(ids[k-1])
				require.NoError(t, err)
			}
			p.die()

			answered := 0
			for i, id := range ids {
				m, ok := p.answered(id)
				if !ok {
					continue
				}
				answered++
				require.Nil(t, m.Error, "request %d", i)
				path := fmt.Sprintf("d%d/f%d", i%7, i)
				if i%5 == 3 { // recorded: now the agent may change it
					b.write(path, fmt.Sprintf("after %d\n", i))
				}
				require.Equal(t, fmt.Sprintf("after %d\n", i), b.read(path), "the effect comes before the answer")
			}

			p = b.serve()
			p.call("session/resume", map[string]any{"sessionId": session, "cwd": b.work, "mcpServers": []any{}})
			if answered == 0 {
				// Perhaps nothing was done at all; then there is nothing to rewind.
				_, err := p.try("_oino/rewind", map[string]any{"sessionId": session, "entryId": entry})
				var e *wireError
				if errors.As(err, &e) {
					require.Equal(t, "checkpoint_not_found", e.kind())
				} else {
					require.NoError(t, err)
				}
			} else {
				result := p.call("_oino/rewind", map[string]any{"sessionId": session, "entryId": entry})
				require.NotContains(t, string(result), `"failed"`)
			}
			requireSame(t, before, tree(t, b.work))
			require.Zero(t, p.exit())
		})
	}
}

// requireSame compares kinds, modes and bytes of two trees.
func requireSame(t *testing.T, want, got map[string]node) {
	t.Helper()
	require.Empty(t, differences(want, got))
}

// differences lists the paths at which two trees are not the same.
func differences(want, got map[string]node) []string {
	var differ []string
	for path, w := range want {
		if g, there := got[path]; !there || g.kind != w.kind || g.mode != w.mode || g.data != w.data {
			differ = append(differ, path)
		}
	}
	for path := range got {
		if _, there := want[path]; !there {
			differ = append(differ, path)
		}
	}
	slices.Sort(differ)
	return differ
}

// TestX1KilledWhileRewinding kills oinod in the middle of a rewind of 200
// files. At that moment each file is all old or all new; the next open of the
// session completes the rewind or finds that nothing had begun, no temporary
// file stays, and the conversation is in step with the files.
func TestX1KilledWhileRewinding(t *testing.T) {
	t.Parallel()
	var whole time.Duration // how long an undisturbed one takes
	var met atomic.Int64    // how many were met in the middle
	t.Run("undisturbed", func(t *testing.T) { whole = killOneRewind(t, -1, &met) })
	if t.Failed() {
		return
	}
	rounds := killRounds(24)
	t.Run("rounds", func(t *testing.T) {
		for round := range rounds {
			t.Run(fmt.Sprint(round), func(t *testing.T) {
				t.Parallel()
				// From before it has begun to after it has ended.
				killOneRewind(t, time.Duration(killRand(round).Float64()*1.3*float64(whole)), &met)
			})
		}
	})
	t.Logf("%d of %d rewinds were met half done", met.Load(), rounds)
	if rounds == 300 {
		require.Greater(t, met.Load(), int64(30), "the moments were badly chosen")
	}
}

// killOneRewind plays one round: the kill comes so long after the rewind was
// sent (negative: after its answer). It counts in met the rewinds that the kill
// met half done, and returns how long it was until the kill.
func killOneRewind(t *testing.T, after time.Duration, met *atomic.Int64) time.Duration {
	const files = 200
	b := newBox(t)
	name := func(i int) string { return fmt.Sprintf("d%d/f%d", i%9, i) }
	for i := range files {
		if i%4 != 0 { // the others are new
			b.write(name(i), strings.Repeat(fmt.Sprintf("before %d\n", i), 50))
		}
	}
	before := tree(t, b.work)
	p := b.start()
	events := map[string]any{"_meta": map[string]any{"oino": map[string]any{"events": true}}}
	p.initialize(events)
	session := p.newSession(b.work)
	p.prompt(session, "talk")
	entry := p.prompt(session, "change all")
	paths := make([]string, files)
	for i := range files {
		paths[i] = b.path(name(i))
	}
	p.call("_oino/record", map[string]any{"sessionId": session, "paths": paths})
	for i, path := range paths {
		if i%8 == 7 {
			require.NoError(t, os.Remove(path))
			continue
		}
		b.write(name(i), strings.Repeat(fmt.Sprintf("after %d\n", i), 40))
	}
	p.call("_oino/turn_end", map[string]any{"sessionId": session})
	changed := tree(t, b.work)

	sent := time.Now()
	id, err := p.ask("_oino/rewind", map[string]any{"sessionId": session, "entryId": entry, "conversation": "rewind"})
	require.NoError(t, err)
	if after < 0 {
		_, err := p.wait(id)
		require.NoError(t, err)
	} else {
		someTime(after)
	}
	took := time.Since(sent)
	p.die()

	// Before anybody looks after it: no file is half of anything.
	dirty := false
	torn := tree(t, b.work)
	for path, n := range torn {
		old, wasOld := before[path]
		new, wasNew := changed[path]
		switch {
		case !wasOld && !wasNew:
			dirty = true // a temporary name
		case n.kind == "file":
			require.True(t, wasOld && n.data == old.data || wasNew && n.data == new.data, "half of a file: %s", path)
		}
	}
	dirty = dirty || len(differences(before, torn)) > 0 && len(differences(changed, torn)) > 0
	answer, wasAnswered := p.answered(id)
	if wasAnswered {
		require.Nil(t, answer.Error)
	}

	p = b.start()
	p.initialize(events)
	p.call("session/resume", map[string]any{"sessionId": session, "cwd": b.work, "mcpServers": []any{}})
	now := tree(t, b.work)
	entries := field[[]any](t, p.call("_oino/entries", map[string]any{"sessionId": session}), "entries")
	switch {
	case len(differences(before, now)) == 0: // completed
		require.Len(t, entries, 1, "the files are back and the conversation is not")
		if dirty {
			met.Add(1)
			require.True(t, p.wasTold("recovered"), "a rewind was completed, and nobody was told")
		}
		p.call("_oino/redo", map[string]any{"sessionId": session})
		requireSame(t, changed, tree(t, b.work))
		entries = field[[]any](t, p.call("_oino/entries", map[string]any{"sessionId": session}), "entries")
		require.Len(t, entries, 2)
	case len(differences(changed, now)) == 0: // not begun
		require.False(t, wasAnswered, "an answered rewind was lost")
		require.Len(t, entries, 2, "the conversation is back and the files are not")
	default:
		require.Empty(t, differences(before, now), "neither completed nor not begun; against the old tree")
	}
	if dirty || after < 0 { // and again, with what the recovery has left
		p.call("_oino/rewind", map[string]any{"sessionId": session, "entryId": entry})
		requireSame(t, before, tree(t, b.work))
	}
	require.Zero(t, p.exit())
	return took
}

// wasTold reports whether an event of the type has come.
func (p *process) wasTold(kind string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.seen, func(m message) bool {
		var e struct {
			Type string `json:"type"`
		}
		return m.Method == "_oino/event" && json.Unmarshal(m.Params, &e) == nil && e.Type == kind
	})
}

// changeAll lets the open turn change so many files f0, f1 …, and ends it.
func (p *process) changeAll(b *box, session string, files int) {
	p.t.Helper()
	paths := make([]string, files)
	for i := range files {
		paths[i] = b.path(fmt.Sprintf("f%d", i))
	}
	p.call("_oino/record", map[string]any{"sessionId": session, "paths": paths})
	for i := range files {
		b.write(fmt.Sprintf("f%d", i), fmt.Sprintf("after %d\n", i))
	}
	p.call("_oino/turn_end", map[string]any{"sessionId": session})
}

// TestKilledAgainWhileRecovering: the open that completes a rewind is killed
// itself, several times, and the next one completes it all the same.
func TestKilledAgainWhileRecovering(t *testing.T) {
	t.Parallel()
	const files = 200
	for round := range killRounds(4) {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			t.Parallel()
			r := killRand(1000 + round)
			b := newBox(t)
			p := b.serve()
			session := p.newSession(b.work)
			for i := range files {
				b.write(fmt.Sprintf("f%d", i), fmt.Sprintf("before %d\n", i))
			}
			before := tree(t, b.work)
			entry := p.prompt(session, "change all")
			p.changeAll(b, session, files)
			changed := tree(t, b.work)
			_, err := p.ask("_oino/rewind", map[string]any{"sessionId": session, "entryId": entry})
			require.NoError(t, err)
			for range 4 {
				someTime(time.Duration(r.IntN(25)) * time.Millisecond)
				p.die()
				p = b.serve()
				_, err = p.ask("session/resume", map[string]any{"sessionId": session, "cwd": b.work, "mcpServers": []any{}})
				require.NoError(t, err)
			}
			p.call("_oino/entries", map[string]any{"sessionId": session})
			now := tree(t, b.work)
			if len(differences(changed, now)) > 0 {
				requireSame(t, before, now)
				return
			}
			p.call("_oino/rewind", map[string]any{"sessionId": session, "entryId": entry})
			requireSame(t, before, tree(t, b.work))
		})
	}
}

// TestKilledWhileForking kills oinod in the middle of a rewind with a fork. After
// the next open the fork is there, whole, if the files are back, and not at all
// if they are not; nothing half-made stays in the store.
func TestKilledWhileForking(t *testing.T) {
	t.Parallel()
	const files = 60
	for round := range killRounds(10) {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			t.Parallel()
			r := killRand(3000 + round)
			b := newBox(t)
			for i := range files {
				b.write(fmt.Sprintf("f%d", i), fmt.Sprintf("before %d\n", i))
			}
			before := tree(t, b.work)
			p := b.serve()
			session := p.newSession(b.work)
			first := p.prompt(session, "talk")
			entry := p.prompt(session, "change all")
			p.changeAll(b, session, files)
			changed := tree(t, b.work)
			_, err := p.ask("_oino/rewind", map[string]any{"sessionId": session, "entryId": entry, "conversation": "fork"})
			require.NoError(t, err)
			someTime(time.Duration(r.IntN(60)) * time.Millisecond)
			p.die()

			p = b.serve()
			p.call("session/resume", map[string]any{"sessionId": session, "cwd": b.work, "mcpServers": []any{}})
			now := tree(t, b.work)
			var list struct{ Sessions []struct{ SessionID string } }
			require.NoError(t, json.Unmarshal(p.call("session/list", map[string]any{}), &list))
			if len(differences(changed, now)) == 0 {
				require.Len(t, list.Sessions, 1, "a fork without its rewind")
			} else {
				requireSame(t, before, now)
				require.Len(t, list.Sessions, 2, "a rewind without its fork")
				for _, s := range list.Sessions {
					if s.SessionID != session {
						var entries struct{ Entries []struct{ ID string } }
						require.NoError(t, json.Unmarshal(p.call("_oino/entries", map[string]any{"sessionId": s.SessionID}), &entries))
						require.Len(t, entries.Entries, 1)
						require.Equal(t, first, entries.Entries[0].ID)
					}
				}
			}
			require.Zero(t, p.exit())
			logs, err := filepath.Glob(filepath.Join(b.agent, "sessions", "*", "*.jsonl"))
			require.NoError(t, err)
			require.Len(t, logs, len(list.Sessions))
			staged, err := filepath.Glob(filepath.Join(b.agent, "sessions", "*", "*.staged*"))
			require.NoError(t, err)
			require.Empty(t, staged, "half-made")
		})
	}
}

// TestUserEditsAfterACrash: what the user changes between the crash in a rewind
// and the next open is kept.
func TestUserEditsAfterACrash(t *testing.T) {
	t.Parallel()
	const files = 200
	for round := range killRounds(6) {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			t.Parallel()
			r := killRand(2000 + round)
			b := newBox(t)
			for i := range files {
				b.write(fmt.Sprintf("f%d", i), fmt.Sprintf("before %d\n", i))
			}
			before := tree(t, b.work)
			p := b.serve()
			session := p.newSession(b.work)
			entry := p.prompt(session, "change all")
			p.changeAll(b, session, files)
			_, err := p.ask("_oino/rewind", map[string]any{"sessionId": session, "entryId": entry})
			require.NoError(t, err)
			someTime(time.Duration(r.IntN(40)) * time.Millisecond)
			p.die()

			mine := map[string]string{}
			for range 5 {
				name := fmt.Sprintf("f%d", r.IntN(files))
				mine[name] = "mine\n"
				b.write(name, "mine\n")
			}
			p = b.serve()
			p.call("session/resume", map[string]any{"sessionId": session, "cwd": b.work, "mcpServers": []any{}})
			_, err = p.try("_oino/rewind", map[string]any{"sessionId": session, "entryId": entry}) // where it had not begun
			var e *wireError
			if err != nil {
				require.ErrorAs(t, err, &e)
			}
			want := maps.Clone(before)
			for name := range mine {
				n := want[name]
				n.data = "mine\n"
				want[name] = n
			}
			requireSame(t, want, tree(t, b.work))
		})
	}
}
