package session

import (
	"os"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oino-dev/oinod/checkpoints"
	"github.com/oino-dev/oinod/checkpoints/journal"
)

// withFaults opens the registry anew on a disk that can fail.
func (b *box) withFaults(f *faults) {
	b.t.Helper()
	reg, err := OpenRegistry(Options{
		Dir: b.agent, Limits: DefaultLimits, App: "oinod test", OpenRoot: f.open,
		Now: func() time.Time { b.clock = b.clock.Add(time.Millisecond); return b.clock },
	})
	require.NoError(b.t, err)
	b.reg = reg
}

// whileStaging is a fault while the temporary file of a name is written.
func whileStaging(name string) func(op, file string) bool {
	return func(op, file string) bool {
		return op == "write" && strings.HasPrefix(path.Base(file), "."+name+".oino")
	}
}

// A redo that is called off for one path keeps all of them to be redone.
func TestARedoThatIsCalledOffCanBeTriedAgain(t *testing.T) {
	b := newBox(t)
	var f faults
	b.withFaults(&f)
	b.put("a", "a0")
	b.put("b", "b0")
	s := b.create(false)
	e := b.prompt(s, "one")
	b.write(s, "a", "a1")
	b.write(s, "b", "b1")
	b.end(s)
	b.rewind(s, RewindParams{EntryID: e})
	f.fail = whileStaging("b")
	_, err := s.Redo(t.Context(), RewindParams{Fail: true})
	refused(t, StorageFailed, err)
	b.has("a", "a0")
	b.has("b", "b0")
	f.fail = nil
	b.redo(s)
	b.has("a", "a1")
	b.has("b", "b1")
}

// A rewind that is called off moves no conversation and leaves no fork.
func TestARewindThatIsCalledOffLeavesNothing(t *testing.T) {
	for _, conversation := range []Conversation{RewindConversation, ForkConversation} {
		b := newBox(t)
		var f faults
		b.withFaults(&f)
		b.put("a", "a0")
		s := b.create(false)
		e := b.prompt(s, "one")
		b.write(s, "a", "a1")
		b.end(s)
		p := RewindParams{EntryID: e, Conversation: conversation, Fail: true}
		if conversation == ForkConversation {
			c, err := b.reg.Stage(t.Context(), s, nil, nil)
			require.NoError(t, err)
			defer c.Discard()
			p.Child = c
		}
		f.fail = whileStaging("a")
		_, err := s.Rewind(t.Context(), p)
		refused(t, StorageFailed, err)
		f.fail = nil
		b.has("a", "a1")
		require.Equal(t, []string{e}, b.checkpointIDs(s))
		page, err := s.Entries(t.Context(), EntriesQuery{})
		require.NoError(t, err)
		require.Equal(t, e, page.LeafID)
		files, err := os.ReadDir(path.Join(b.agent, s.place.dir))
		require.NoError(t, err)
		for _, f := range files {
			require.NotContains(t, f.Name(), stagedSuffix)
		}
	}
}

// A shared change is a conflict also when its turn was evicted.
func TestTheBaselineRemembersWhatWasShared(t *testing.T) {
	st := newState()
	file := func(size int64) checkpoints.State {
		return checkpoints.State{Kind: checkpoints.File, Mode: 0o644, Size: size}
	}
	apply := func(r any) { require.NoError(t, st.apply(r, journal.Pos{})) }
	turn := func(id, parent string, n int, before, after checkpoints.State, shared ...string) {
		apply(&entryRecord{ID: id, ParentID: parent, Role: User, Content: []byte("[]")})
		apply(&beforeRecord{Turn: id, Intervals: []intervalRecord{{N: n, Path: "/f", Before: before, After: &after, Shared: shared}}})
		apply(&endRecord{Turn: id})
	}
	apply(&headerRecord{Type: "session"})
	turn("1", "", 1, file(1), file(2), "other")
	turn("2", "1", 2, file(2), file(3))
	turn("3", "2", 3, file(3), file(4))
	require.True(t, st.touched(span{order: -1})[0].Seam)
	apply(&evictRecord{Through: "2"})
	require.True(t, st.touched(span{order: -1})[0].Seam)
	require.False(t, st.touched(span{order: 2})[0].Seam)
}

// A dry run tells no other session anything.
func TestADryRunIsNobodysConflict(t *testing.T) {
	b := newBox(t)
	b.put("f", "0")
	s1, s2 := b.create(false), b.create(false)
	b.prompt(s1, "one")
	e2 := b.prompt(s2, "two")
	b.record(s1, "f")
	b.record(s2, "f")
	b.put("f", "1")
	b.rewind(s1, RewindParams{EntryID: Start, DryRun: true})
	b.put("f", "0")
	b.end(s1)
	b.put("f", "2") // by the second's agent alone
	b.end(s2)
	require.Equal(t, []string{b.path("f")}, b.rewind(s2, RewindParams{EntryID: e2}).Restored)
}

// U6: the user saves between the rewind's check and its write. It is seen at
// the last moment, kept and named; the other path comes back.
func TestU6TheUserSavesAtTheLastMoment(t *testing.T) {
	b := newBox(t)
	var f faults
	b.withFaults(&f)
	b.put("a", "a0")
	b.put("b", "b0")
	s := b.create(false)
	e := b.prompt(s, "one")
	b.write(s, "a", "a1")
	b.write(s, "b", "b1")
	b.end(s)
	saved := false
	staged := whileStaging("b")
	f.fail = func(op, file string) bool {
		if staged(op, file) && !saved {
			saved = true
			b.put("b", "mine")
		}
		return false
	}
	r := b.rewind(s, RewindParams{EntryID: e})
	require.True(t, saved)
	require.Equal(t, []string{b.path("a")}, r.Restored)
	require.Len(t, r.Failed, 1)
	require.Equal(t, b.path("b"), r.Failed[0].Path)
	require.Equal(t, checkpoints.CodeConflict, r.Failed[0].Code)
	b.has("a", "a0")
	b.has("b", "mine")
}
