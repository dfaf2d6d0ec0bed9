package session

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oino-dev/oinod/checkpoints"
)

// A file too large to keep that a turn makes is not read at the turn's end. A
// rewind removes it only if it is still what the turn left, and a redo brings
// it back, as often as one likes.
func TestAFileTooLargeToKeepThatATurnMade(t *testing.T) {
	b := newBox(t)
	b.clock = time.Now().Add(time.Hour) // so that no change is too new to show
	b.openRegistry(Limits{MaxCheckpoints: 10, MaxSnapshotBytes: 1 << 10, MaxMessageBytes: 1 << 20})
	first, second := strings.Repeat("1", 2<<10), strings.Repeat("2", 2<<10)
	s := b.createTracked()
	s.Coverage(t.Context())
	e1 := b.prompt(s, "one")
	b.put("new", first)
	require.Equal(t, []PathChange{{b.path("new"), checkpoints.Created}}, b.end(s).Changed)
	iv := s.state.paths[b.path("new")][0]
	require.Zero(t, iv.after.Digest, "it was read")
	e2 := b.prompt(s, "two")
	b.put("new", second)
	require.Equal(t, []PathChange{{b.path("new"), checkpoints.Modified}}, b.end(s).Changed)
	s = b.restart(s)
	r := b.rewind(s, RewindParams{EntryID: e2})
	require.Len(t, r.Failed, 1)
	require.Equal(t, checkpoints.CodeNotCovered, r.Failed[0].Code)
	would := b.rewind(s, RewindParams{EntryID: e1, DryRun: true})
	require.Equal(t, []string{b.path("new")}, would.Deleted)
	for range 3 {
		r = b.rewind(s, RewindParams{EntryID: e1})
		require.Empty(t, r.Failed)
		require.Equal(t, []string{b.path("new")}, r.Deleted)
		b.lacks("new")
		s = b.restart(s)
		b.redo(s)
		b.has("new", second)
	}

	info, err := os.Stat(b.path("new"))
	require.NoError(t, err)
	b.put("new", first)
	require.NoError(t, os.Chtimes(b.path("new"), info.ModTime(), info.ModTime()))
	r = b.rewind(s, RewindParams{EntryID: e1})
	require.Len(t, r.Failed, 1)
	require.Equal(t, checkpoints.CodeConflict, r.Failed[0].Code)
	b.has("new", first)
}

// The user's change of it is a conflict, though nobody has read it before.
func TestAFileTooLargeToKeepThatTheUserChanged(t *testing.T) {
	for _, late := range []bool{true, false} {
		b := newBox(t)
		if late {
			b.clock = time.Now().Add(time.Hour)
		}
		b.openRegistry(Limits{MaxCheckpoints: 10, MaxSnapshotBytes: 1 << 10, MaxMessageBytes: 1 << 20})
		s := b.createTracked()
		s.Coverage(t.Context())
		e := b.prompt(s, "one")
		b.put("new", strings.Repeat("1", 2<<10))
		b.end(s)
		b.put("new", strings.Repeat("2", 2<<10))
		fork := b.fork(s, "")
		for _, s := range []*Session{s, fork} {
			r := b.rewind(s, RewindParams{EntryID: e})
			require.Len(t, r.Failed, 1)
			require.Equal(t, checkpoints.CodeConflict, r.Failed[0].Code)
		}
		b.has("new", strings.Repeat("2", 2<<10))
	}
}
