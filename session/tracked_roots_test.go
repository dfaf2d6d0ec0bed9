package session

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oino-dev/oinod/checkpoints"
)

// load loads a session with additional directories, as a client does.
func (b *box) load(s *Session, additional ...string) *Session {
	b.t.Helper()
	s, err := b.reg.Load(b.t.Context(), s.ID(), b.dir, additional)
	require.NoError(b.t, err)
	return s
}

// A directory that comes while a turn is open is seen from then on, and the
// turn keeps what it has done in the others, also where the new one holds them.
func TestANewDirectoryInsideATurn(t *testing.T) {
	for _, outer := range []bool{false, true} {
		b := newBox(t)
		other := filepath.Join(filepath.Dir(b.dir), "other")
		additional := other
		if outer {
			top := filepath.Join(filepath.Dir(b.dir), "top")
			require.NoError(t, os.MkdirAll(top, 0o755))
			require.NoError(t, os.Rename(b.dir, filepath.Join(top, "work")))
			b.dir, other, additional = filepath.Join(top, "work"), filepath.Join(top, "other"), top
		}
		require.NoError(t, os.Mkdir(other, 0o755))
		at := func(dir, name, content string) string {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644))
			return filepath.Join(dir, name)
		}
		a, x, y := at(b.dir, "a", "0"), at(other, "x", "0"), at(other, "y", "0")
		s := b.createTracked()
		e := b.prompt(s, "one")
		at(b.dir, "a", "1")
		at(b.dir, "n", "1")
		at(other, "y", "1")
		s = b.load(s, additional)
		require.Equal(t, &Coverage{Complete: true}, s.Coverage(t.Context()))
		at(other, "x", "1")
		at(b.dir, "a", "2")
		end := b.end(s)
		require.Empty(t, end.Uncovered)
		require.ElementsMatch(t, []PathChange{{a, checkpoints.Modified}, {b.path("n"), checkpoints.Created}, {x, checkpoints.Modified}}, end.Changed)
		s = b.restart(s)
		r := b.rewind(s, RewindParams{EntryID: e})
		require.Empty(t, r.Failed)
		require.ElementsMatch(t, []string{a, x}, r.Restored)
		b.has("a", "0")
		got, err := os.ReadFile(y)
		require.NoError(t, err)
		require.Equal(t, "1", string(got), "it was no directory of the session's then")
	}
}

// What of a new directory is not covered is said at once, and by the open turn.
func TestANewDirectoryThatIsNotCovered(t *testing.T) {
	for _, open := range []bool{false, true} {
		b := newBox(t)
		home := t.TempDir()
		b.reg.tracked.Home = home
		b.put("a", "0")
		s := b.createTracked()
		require.True(t, s.Coverage(t.Context()).Complete)
		if open {
			b.prompt(s, "one")
		}
		s = b.load(s, home)
		require.Equal(t, &Coverage{Reason: "home"}, s.Coverage(t.Context()))
		if !open {
			b.prompt(s, "one")
		}
		b.put("a", "1")
		end := b.end(s)
		require.Equal(t, []PathChange{{b.path("a"), checkpoints.Modified}}, end.Changed)
		require.Len(t, end.Uncovered, 1)
		require.Equal(t, home, end.Uncovered[0].Path)
	}
}

// What changes between turns is told when directories change then.
func TestOutsideChangesBeforeNewDirectories(t *testing.T) {
	b := newBox(t)
	b.put("a", "0")
	s := b.createTracked()
	e := b.prompt(s, "one")
	b.put("b", "1")
	b.end(s)
	b.put("a", "mine")
	s = b.load(s, t.TempDir())
	s = b.load(s)
	r := b.rewind(s, RewindParams{EntryID: e})
	require.Equal(t, []OutsideChange{{Path: b.path("a"), Change: checkpoints.Modified}}, r.Outside)
}

// A session whose directory is gone when it is opened tracks it from when it is
// back; whoever reads meanwhile is in nobody's way. (Under the race detector.)
func TestReadingWhileTheTrackedDirectoryComesBack(t *testing.T) {
	b := newBox(t)
	b.put("a", "0")
	s := b.createTracked()
	e := b.prompt(s, "one")
	b.put("a", "1")
	b.end(s)
	require.NoError(t, b.reg.Close(t.Context(), s.ID()))
	away := b.dir + "-away"
	require.NoError(t, os.Rename(b.dir, away))
	s = b.restart(s)
	require.Nil(t, s.Coverage(t.Context()))
	require.NoError(t, os.Rename(away, b.dir))
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() { s.Coverage(context.Background()) })
		readers.Go(func() { _, _ = s.Diff(context.Background(), DiffParams{EntryID: e}) })
	}
	require.Equal(t, []string{b.path("a")}, b.rewind(s, RewindParams{EntryID: e}).Restored)
	readers.Wait()
	b.has("a", "0")
}

// A lock is tried once for each session, whatever comes of it meanwhile.
func TestWhetherASessionIsAliveIsAskedOnce(t *testing.T) {
	b := newBox(t)
	s := b.createTracked()
	first := b.reg
	b.openRegistry(DefaultLimits)
	alive := b.reg.aliveOnce()
	require.True(t, alive(s.ID()))
	require.NoError(t, first.Shutdown(t.Context()))
	require.True(t, alive(s.ID()))
	require.False(t, b.reg.aliveOnce()(s.ID()))
}
