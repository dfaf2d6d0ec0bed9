package session

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/oino-dev/oinod/checkpoints"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// box is a scratch agent directory and workspace.
type box struct {
	t          *testing.T
	agent, dir string
	reg        *Registry
	clock      time.Time
	events     []Event
}

func newBox(t *testing.T) *box {
	dir := t.TempDir()
	b := &box{t: t, agent: filepath.Join(dir, "agent"), dir: filepath.Join(dir, "work"), clock: time.UnixMilli(1_700_000_000_000)}
	require.NoError(t, os.Mkdir(b.dir, 0o755))
	b.openRegistry(DefaultLimits)
	t.Cleanup(func() { b.reg.Shutdown(context.Background()) })
	return b
}

func (b *box) openRegistry(l Limits) {
	var mu sync.Mutex // a first walk goes on beside the calls
	reg, err := OpenRegistry(Options{
		Dir: b.agent, Limits: l, App: "oinod test",
		Now: func() time.Time {
			mu.Lock()
			defer mu.Unlock()
			b.clock = b.clock.Add(time.Millisecond)
			return b.clock
		},
		Event: func(e Event) {
			mu.Lock()
			defer mu.Unlock()
			b.events = append(b.events, e)
		},
	})
	require.NoError(b.t, err)
	b.reg = reg
}

// restart ends the process, as a client that closes stdin does, and begins the next.
func (b *box) restart(s *Session) *Session {
	require.NoError(b.t, b.reg.Shutdown(b.t.Context()))
	b.openRegistry(b.reg.limits)
	s, err := b.reg.Get(b.t.Context(), s.ID())
	require.NoError(b.t, err)
	return s
}

func (b *box) create(inMemory bool) *Session {
	s, err := b.reg.Create(b.t.Context(), CreateParams{Cwd: b.dir, InMemory: inMemory})
	require.NoError(b.t, err)
	return s
}

func (b *box) path(name string) string { return filepath.Join(b.dir, name) }

// put writes a file as somebody other than oinod does.
func (b *box) put(name, content string) string {
	require.NoError(b.t, os.MkdirAll(filepath.Dir(b.path(name)), 0o755))
	require.NoError(b.t, os.WriteFile(b.path(name), []byte(content), 0o644))
	return b.path(name)
}

// has asserts what a file holds.
func (b *box) has(name, content string) {
	b.t.Helper()
	got, err := os.ReadFile(b.path(name))
	require.NoError(b.t, err)
	require.Equal(b.t, content, string(got))
}

func (b *box) lacks(name string) {
	b.t.Helper()
	require.NoFileExists(b.t, b.path(name))
}

func (b *box) prompt(s *Session, text string) string {
	b.t.Helper()
	c, err := asBlocks([]byte(`"` + text + `"`))
	require.NoError(b.t, err)
	e, err := s.Prompt(b.t.Context(), c)
	require.NoError(b.t, err)
	return e.ID
}

func (b *box) write(s *Session, name, content string) {
	b.t.Helper()
	_, err := s.Write(b.t.Context(), b.path(name), []byte(content))
	require.NoError(b.t, err)
}

func (b *box) record(s *Session, names ...string) RecordReply {
	b.t.Helper()
	var paths []string
	for _, n := range names {
		paths = append(paths, b.path(n))
	}
	r := s.Record(b.t.Context(), []RecordRequest{{Paths: paths}})
	require.NoError(b.t, r[0].Err)
	return r[0]
}

func (b *box) end(s *Session) TurnResult {
	b.t.Helper()
	r, err := s.EndTurn(b.t.Context())
	require.NoError(b.t, err)
	return r
}

func (b *box) rewind(s *Session, p RewindParams) RewindResult {
	b.t.Helper()
	r, err := s.Rewind(b.t.Context(), p)
	require.NoError(b.t, err)
	return r
}

func (b *box) redo(s *Session) RewindResult {
	b.t.Helper()
	r, err := s.Redo(b.t.Context(), RewindParams{})
	require.NoError(b.t, err)
	return r
}

// checkpointIDs are the listed checkpoints.
func (b *box) checkpointIDs(s *Session) []string {
	b.t.Helper()
	l, err := s.Checkpoints(b.t.Context())
	require.NoError(b.t, err)
	ids := []string{}
	for _, c := range l {
		ids = append(ids, c.EntryID)
	}
	return ids
}

// refused asserts the kind of a refusal.
func refused(t *testing.T, kind Kind, err error) {
	t.Helper()
	e, ok := errors.AsType[*Error](err)
	require.True(t, ok, "want %s, got %v", kind, err)
	require.Equal(t, kind, e.Kind, e.Error())
}

func TestARewindBringsBackFilesOnDiskAndInMemory(t *testing.T) {
	for _, inMemory := range []bool{false, true} {
		b := newBox(t)
		b.put("a", "a0")
		s := b.create(inMemory)
		u1 := b.prompt(s, "first")
		require.Equal(t, []string{b.path("a")}, b.record(s, "a").Recorded)
		require.Equal(t, []string{b.path("a")}, b.record(s, "a").Known)
		b.put("a", "a1")
		u2 := b.prompt(s, "second")
		b.record(s, "a", "n")
		b.put("a", "a2")
		b.put("n", "n2")
		if !inMemory {
			s = b.restart(s)
		}
		require.Equal(t, []string{u1, u2}, b.checkpointIDs(s))
		r := b.rewind(s, RewindParams{EntryID: u2})
		require.Equal(t, []string{b.path("a")}, r.Restored)
		require.Equal(t, []string{b.path("n")}, r.Deleted)
		require.Empty(t, r.Failed)
		require.Equal(t, 1, r.Turns)
		b.has("a", "a1")
		b.lacks("n")
		require.Equal(t, []string{u1}, b.checkpointIDs(s))
		b.redo(s)
		b.has("a", "a2")
		b.has("n", "n2")
		require.Equal(t, []string{u1, u2}, b.checkpointIDs(s))
		b.rewind(s, RewindParams{EntryID: u1})
		b.has("a", "a0")
		require.Empty(t, b.checkpointIDs(s))
		_, err := s.Rewind(t.Context(), RewindParams{EntryID: u1})
		refused(t, CheckpointNotFound, err)
	}
}

func TestAUsersEditIsAConflict(t *testing.T) {
	b := newBox(t)
	b.put("a", "v0\none\ntwo\n")
	s := b.create(false)
	e := b.prompt(s, "go")
	b.write(s, "a", "v1\none\ntwo\n")
	b.end(s)
	b.put("a", "v1\none\ntwo\nmine\n")
	r := b.rewind(s, RewindParams{EntryID: e})
	require.Equal(t, checkpoints.CodeConflict, r.Failed[0].Code)
	b.has("a", "v1\none\ntwo\nmine\n")
	require.Equal(t, []string{e}, b.checkpointIDs(s), "what failed stays listed")
	_, err := s.Rewind(t.Context(), RewindParams{EntryID: e, Fail: true})
	refused(t, Conflict, err)
	b.rewind(s, RewindParams{EntryID: e, OnConflict: checkpoints.Overwrite})
	b.has("a", "v0\none\ntwo\n")
	b.redo(s)
	b.has("a", "v1\none\ntwo\nmine\n")
	r = b.rewind(s, RewindParams{EntryID: e, OnConflict: checkpoints.Merge})
	require.Equal(t, []string{b.path("a")}, r.Merged)
	b.has("a", "v0\none\ntwo\nmine\n")
}
