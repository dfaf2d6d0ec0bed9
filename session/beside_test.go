package session

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gofrs/flock"
	"github.com/stretchr/testify/require"

	"github.com/oino-dev/oinod/checkpoints"
	"github.com/oino-dev/oinod/checkpoints/disk"
	"github.com/oino-dev/oinod/checkpoints/workspace"
)

// another is another process with the same agent directory and workspace.
func (b *box) another() *box {
	o := &box{t: b.t, agent: b.agent, dir: b.dir, clock: b.clock}
	o.openRegistry(b.reg.limits)
	b.t.Cleanup(func() { o.reg.Shutdown(context.Background()) })
	return o
}

// besides calls f with a box for a tracked session and one for another that
// tracks nothing beside it: in one process, in memory or not, and in two.
func besides(t *testing.T, f func(t *testing.T, b, o *box, beside *Session)) {
	for _, where := range []string{"here", "in memory", "another process"} {
		t.Run(where, func(t *testing.T) {
			b := newBox(t)
			o := b
			if where == "another process" {
				o = b.another()
			}
			f(t, b, o, o.create(where == "in memory"))
		})
	}
}

// unseen calls f while nobody can see the workspace.
func (b *box) unseen(f func()) {
	b.t.Helper()
	away := b.dir + " away"
	require.NoError(b.t, os.Rename(b.dir, away))
	f()
	require.NoError(b.t, os.Rename(away, b.dir))
}

// What a session with tracking "files" writes is not the change of one that
// tracks the workspace: it is named as that session's, and stays.
func TestASessionThatTracksNothingKeepsWhatItWrites(t *testing.T) {
	besides(t, func(t *testing.T, b, o *box, s2 *Session) {
		b.put("a", "0")
		s1 := b.createTracked()
		e := b.prompt(s1, "one")
		b.write(s1, "x", "1")
		o.prompt(s2, "two")
		o.write(s2, "y", "precious")
		o.write(s2, "a", "precious")
		o.end(s2)
		require.Equal(t, []PathChange{{b.path("x"), checkpoints.Created}}, b.end(s1).Changed)
		r := b.rewind(s1, RewindParams{EntryID: e})
		require.Empty(t, r.Failed)
		require.ElementsMatch(t, []OutsideChange{
			{Path: b.path("y"), Change: checkpoints.Created, SessionID: s2.ID()}, {Path: b.path("a"), Change: checkpoints.Modified, SessionID: s2.ID()},
		}, r.Outside)
		b.lacks("x")
		b.has("y", "precious")
		b.has("a", "precious")
	})
}

// X12: nor is what its rewind brings back, or its redo.
func TestARewindOfASessionThatTracksNothing(t *testing.T) {
	besides(t, func(t *testing.T, b, o *box, s1 *Session) {
		b.put("a", "0")
		e1 := o.prompt(s1, "one")
		o.write(s1, "a", "1")
		o.write(s1, "n", "1")
		o.end(s1)
		s2 := b.createTracked()
		e2 := b.prompt(s2, "two")
		o.rewind(s1, RewindParams{EntryID: e1})
		require.Empty(t, b.end(s2).Changed)
		b.rewind(s2, RewindParams{EntryID: e2})
		b.has("a", "0")
		b.lacks("n")
		e2 = b.prompt(s2, "again")
		o.redo(s1)
		require.Empty(t, b.end(s2).Changed)
		b.rewind(s2, RewindParams{EntryID: e2})
		b.has("a", "1")
		b.has("n", "1")
	})
}

// X11: what nobody claims while it has a turn open is shared, and afterwards not.
func TestAnUnclaimedChangeBesideASessionThatTracksNothing(t *testing.T) {
	besides(t, func(t *testing.T, b, o *box, s2 *Session) {
		b.put("a", "0")
		s1 := b.createTracked()
		e1 := b.prompt(s1, "one")
		o.prompt(s2, "two")
		b.put("x", "whose")
		b.end(s1)
		r := b.rewind(s1, RewindParams{EntryID: e1})
		require.Len(t, r.Failed, 1)
		require.Equal(t, b.path("x"), r.Failed[0].Path)
		b.has("x", "whose")

		o.prompt(s2, "goes on")
		e1 = b.prompt(s1, "another")
		_, err := s2.Rewind(t.Context(), RewindParams{EntryID: Start, DryRun: true})
		require.NoError(t, err, "which ends nothing")
		b.put("y", "whose")
		b.end(s1)
		o.end(s2)
		require.Len(t, b.rewind(s1, RewindParams{EntryID: e1}).Failed, 1)

		e1 = b.prompt(s1, "alone")
		b.put("z", "of s1")
		b.end(s1)
		require.Equal(t, []string{b.path("z")}, b.rewind(s1, RewindParams{EntryID: e1}).Deleted)
	})
}

// reopen closes a session, and opens it again once f was called.
func (b *box) reopen(s *Session, f func()) *Session {
	b.t.Helper()
	require.NoError(b.t, b.reg.Close(b.t.Context(), s.ID()))
	f()
	s, err := b.reg.Get(b.t.Context(), s.ID())
	require.NoError(b.t, err)
	return s
}

// A turn beside a session that tracks the workspace is known to it also when
// that was closed since, and opened again; and so is that it has ended meanwhile.
func TestATurnBesideASessionThatComesBack(t *testing.T) {
	besides(t, func(t *testing.T, b, o *box, s2 *Session) {
		s1 := b.createTracked()
		b.prompt(s1, "zero")
		b.end(s1)
		o.prompt(s2, "two")
		s1 = b.reopen(s1, func() {})
		e1 := b.prompt(s1, "one")
		b.put("x", "whose")
		b.end(s1)
		r := b.rewind(s1, RewindParams{EntryID: e1})
		require.Empty(t, r.Deleted)
		require.Len(t, r.Failed, 1)
		require.Equal(t, b.path("x"), r.Failed[0].Path)
		b.has("x", "whose")

		s1 = b.reopen(s1, func() { o.end(s2) })
		e1 = b.prompt(s1, "alone")
		b.put("y", "of s1")
		b.end(s1)
		require.Equal(t, []string{b.path("y")}, b.rewind(s1, RewindParams{EntryID: e1}).Deleted)
	})
}

// The same with what was claimed beside a turn that goes on over the close:
// before it, or only meanwhile.
func TestClaimsBesideASessionThatComesBack(t *testing.T) {
	for _, earlier := range []bool{true, false} {
		besides(t, func(t *testing.T, b, o *box, s2 *Session) {
			s1 := b.createTracked()
			e1 := b.prompt(s1, "one")
			var want []OutsideChange
			write := func(name string) {
				o.write(s2, name, "precious")
				want = append(want, OutsideChange{Path: b.path(name), Change: checkpoints.Created, SessionID: s2.ID()})
			}
			if earlier {
				o.prompt(s2, "two")
				write("y")
			}
			s1 = b.reopen(s1, func() {
				o.prompt(s2, "three")
				write("z")
				o.end(s2)
			})
			require.Empty(t, b.end(s1).Changed)
			r := b.rewind(s1, RewindParams{EntryID: e1})
			require.Empty(t, r.Deleted)
			require.Empty(t, r.Failed)
			require.ElementsMatch(t, want, r.Outside)
			b.has("z", "precious")
		})
	}
}

// A path that a session only recorded, and one of another process has written: by
// the journal of whoever tracks the workspace, that is the other's.
func TestARecordedPathThatAnotherProcessWrites(t *testing.T) {
	for _, tracked := range []bool{false, true} {
		b := newBox(t)
		o := b.another()
		b.sh(`printf 0 >a; printf 0 >b; printf 0 >c`)
		witness := b.createTracked()
		require.NotNil(t, witness.Coverage(t.Context()))
		s1, s2 := b.create(false), o.create(false)
		if tracked {
			s2 = o.createTracked()
		}
		b.prompt(s1, "earlier")
		o.prompt(s2, "two")
		b.record(s1, "c")
		o.write(s2, "c", "s2's, earlier")
		e1 := b.prompt(s1, "one")
		o.write(s2, "b", "s2's")
		b.record(s1, "a", "b", "c")
		o.write(s2, "a", "s2's")
		b.put("b", "s1's")
		b.put("c", "s1's")
		o.end(s2)
		b.end(s1)
		r := b.rewind(s1, RewindParams{EntryID: e1})
		require.ElementsMatch(t, []string{b.path("b"), b.path("c")}, r.Restored)
		b.has("a", "s2's")
		b.has("b", "s2's")
		b.has("c", "s2's, earlier")
		b.rewind(s1, RewindParams{EntryID: Start})
		b.has("c", "s2's, earlier")
	}
}

// A turn that began before anybody tracked the workspace is known to who does
// since, as soon as its session does something (in this process: at once).
func TestATurnThatBeganBeforeTheWorkspaceWasTracked(t *testing.T) {
	for _, elsewhere := range []bool{false, true} {
		b := newBox(t)
		o := b
		if elsewhere {
			o = b.another()
		}
		s2 := o.create(false)
		o.prompt(s2, "two")
		require.NoDirExists(t, filepath.Join(b.agent, "workspaces"))
		s1 := b.createTracked()
		e1 := b.prompt(s1, "one")
		if elsewhere {
			o.record(s2, "other")
		}
		b.put("x", "whose")
		b.end(s1)
		require.Len(t, b.rewind(s1, RewindParams{EntryID: e1}).Failed, 1)
		// Over a close the turn is not open, and then it is.
		require.NoError(t, o.reg.Close(t.Context(), s2.ID()))
		e1 = b.prompt(s1, "again")
		b.put("y", "of s1")
		b.end(s1)
		require.Equal(t, []string{b.path("y")}, b.rewind(s1, RewindParams{EntryID: e1}).Deleted)
		e1 = b.prompt(s1, "once more")
		_, err := o.reg.Get(t.Context(), s2.ID())
		require.NoError(t, err)
		b.put("z", "whose")
		b.end(s1)
		require.Len(t, b.rewind(s1, RewindParams{EntryID: e1}).Failed, 1)
	}
}

// What a dry run or a fork wants to know of an open turn does not end it for
// others.
func TestATurnThatDoesNotReallyEnd(t *testing.T) {
	b := newBox(t)
	s1, s2 := b.createTracked(), b.createTracked()
	e1 := b.prompt(s1, "one")
	b.prompt(s2, "two")
	_, err := s2.Rewind(t.Context(), RewindParams{EntryID: Start, DryRun: true})
	require.NoError(t, err)
	b.put("x", "whose")
	b.end(s1)
	require.Len(t, b.rewind(s1, RewindParams{EntryID: e1}).Failed, 1)
	c, err := b.reg.Stage(t.Context(), s2, nil, nil)
	require.NoError(t, err)
	require.NoError(t, c.Discard())
	e1 = b.prompt(s1, "another")
	b.put("y", "whose")
	b.end(s1)
	require.Len(t, b.rewind(s1, RewindParams{EntryID: e1}).Failed, 1)
}

// A session that tracks nothing keeps no captures of others.
func TestASessionThatTracksNothingKeepsNoCaptures(t *testing.T) {
	b := newBox(t)
	s1, s2 := b.createTracked(), b.create(false)
	b.prompt(s1, "one")
	b.prompt(s2, "two")
	b.write(s2, "x", "1")
	b.end(s1)
	require.NoError(t, b.reg.Delete(t.Context(), s1.ID()))
	require.Equal(t, 1, b.collect(CollectParams{}).Trees)
	b.write(s2, "x", "2")
	b.end(s2)
	require.Empty(t, b.treeKeys())
}

// A path that a rewind has put back, and that is as it was again at the turn's
// end, was changed in the turn.
func TestAPathThatIsBackAfterAnothersRewind(t *testing.T) {
	b := newBox(t)
	b.put("a", "0")
	s1, s2 := b.createTracked(), b.createTracked()
	e1 := b.prompt(s1, "one")
	b.put("a", "1")
	b.end(s1)
	e2 := b.prompt(s2, "two")
	b.rewind(s1, RewindParams{EntryID: e1})
	b.put("a", "1")
	require.Equal(t, []PathChange{{b.path("a"), checkpoints.Modified}}, b.end(s2).Changed)
	all, err := s2.Rewind(t.Context(), RewindParams{EntryID: e2, ScopeAll: true, DryRun: true})
	require.NoError(t, err)
	require.Empty(t, all.Restored, "its way began where it ended")
	require.Empty(t, all.Failed)
	require.Equal(t, []string{b.path("a")}, b.rewind(s2, RewindParams{EntryID: e2}).Restored)
	b.has("a", "0")
}

// The same with the session's own rewind, and the user who takes it back.
func TestAPathThatTheUserTakesBackAfterARewind(t *testing.T) {
	b := newBox(t)
	b.put("z", "users")
	s := b.createTracked()
	e0 := b.prompt(s, "zero")
	b.put("x", "1")
	b.end(s)
	e1 := b.prompt(s, "one")
	b.put("y", "1")
	b.end(s)
	require.NoError(t, os.Remove(b.path("z")))
	b.prompt(s, "two")
	b.put("w", "1")
	b.end(s)
	b.rewind(s, RewindParams{EntryID: e1, ScopeAll: true})
	b.has("z", "users")
	require.NoError(t, os.Remove(b.path("z")))
	b.prompt(s, "three")
	b.put("v", "1")
	b.end(s)
	some, err := s.Rewind(t.Context(), RewindParams{EntryID: e0, DryRun: true})
	require.NoError(t, err)
	require.Equal(t, []OutsideChange{{Path: b.path("z"), Change: checkpoints.Deleted}}, some.Outside)
	b.rewind(s, RewindParams{EntryID: e0, ScopeAll: true})
	b.has("z", "users")
}

// What a turn's own tool changed, and its shell changed back, it did not change.
func TestAPathThatATurnChangedBack(t *testing.T) {
	b := newBox(t)
	b.put("a", "0")
	s := b.createTracked()
	b.prompt(s, "one")
	b.write(s, "a", "1")
	b.put("a", "0")
	require.Empty(t, b.end(s).Changed)
	list, err := s.Checkpoints(t.Context())
	require.NoError(t, err)
	require.Empty(t, list[0].Files)
}

// What a turn has touched stays covered, also when a rewind took that back, and
// the rules do not cover it.
func TestAPathThatWasRewoundStaysCovered(t *testing.T) {
	b := newBox(t)
	b.sh(`printf '*.tmp\n' >.gitignore; printf 0 >t.tmp; printf 0 >u.tmp`)
	s := b.createTracked()
	e := b.prompt(s, "one")
	b.write(s, "t.tmp", "1")
	b.record(s, "u.tmp")
	b.end(s)
	b.rewind(s, RewindParams{EntryID: e})
	talk := b.prompt(s, "two")
	b.end(s)
	b.prompt(s, "three")
	b.put("t.tmp", "by shell")
	b.put("u.tmp", "which was only looked at")
	require.Equal(t, []PathChange{{b.path("t.tmp"), checkpoints.Modified}}, b.end(s).Changed)
	require.Equal(t, []string{b.path("t.tmp")}, b.rewind(s, RewindParams{EntryID: talk}).Restored)
	b.has("t.tmp", "0")
}

// Files are listed as they were first changed, when the turn has ended too: what
// tools opened in their order, then what was seen.
func TestFilesInFirstChangeOrder(t *testing.T) {
	b := newBox(t)
	b.sh(`printf '*.tmp\n' >.gitignore; printf 0 >b`)
	s := b.createTracked()
	e := b.prompt(s, "one")
	for _, name := range []string{"d", "i.tmp", "c", "b"} {
		b.write(s, name, "1")
	}
	b.sh(`printf 1 >a; printf 2 >c; printf 1 >e`)
	want := []string{"d", "i.tmp", "c", "b", "a", "e"}
	names := func() []string {
		list, err := s.Checkpoints(t.Context())
		require.NoError(t, err)
		var all []string
		for _, f := range list[0].Files {
			all = append(all, filepath.Base(f.Path))
		}
		return all
	}
	require.Equal(t, want[:4], names())
	end := b.end(s)
	var changed []string
	for _, c := range end.Changed {
		changed = append(changed, filepath.Base(c.Path))
	}
	require.Equal(t, want, changed)
	require.Equal(t, want, names())
	s = b.restart(s)
	require.Equal(t, want, names())
	var deleted []string
	for _, path := range b.rewind(s, RewindParams{EntryID: e}).Deleted {
		deleted = append(deleted, filepath.Base(path))
	}
	require.Equal(t, []string{"d", "i.tmp", "c", "a", "e"}, deleted)
}

// A turn whose end could not be seen: what came of it is nobody's, and what was
// there at the next turn is not taken for what was there before this one.
func TestATurnWhoseEndCouldNotBeSeen(t *testing.T) {
	b := newBox(t)
	b.sh(`printf 0 >a; printf 0 >b; printf 0 >c`)
	s := b.createTracked()
	b.prompt(s, "zero")
	e1 := b.prompt(s, "one")
	b.sh(`printf 1 >a`)
	b.write(s, "c", "1")
	b.unseen(func() { require.NotEmpty(t, b.end(s).Uncovered) })
	e2 := b.prompt(s, "two")
	b.sh(`printf 2 >a; printf 2 >b`)
	b.end(s)
	for range 2 {
		dry, err := s.Rewind(t.Context(), RewindParams{EntryID: e2, DryRun: true})
		require.NoError(t, err)
		require.Equal(t, []string{b.path("a"), b.path("b")}, dry.Restored)
		dry, err = s.Rewind(t.Context(), RewindParams{EntryID: e1, DryRun: true, OnConflict: checkpoints.Overwrite})
		require.NoError(t, err)
		require.Contains(t, dry.Restored, b.path("b"), "the captures on both sides agree")
		require.Len(t, dry.Failed, 1)
		require.Equal(t, b.path("a"), dry.Failed[0].Path)
		require.Equal(t, "not_covered", string(dry.Failed[0].Code))
		s = b.restart(s)
	}
}

// Without any capture before the turn there is nothing to compare with.
func TestTheFirstTurnCouldNotBeSeen(t *testing.T) {
	b := newBox(t)
	b.put("a", "0")
	s := b.createTracked()
	s.first.end()
	e1 := ""
	b.unseen(func() { e1 = b.prompt(s, "one") })
	b.end(s)
	b.prompt(s, "two")
	b.sh(`printf 1 >a`)
	b.end(s)
	check := func(s *Session) {
		dry, err := s.Rewind(t.Context(), RewindParams{EntryID: e1, DryRun: true})
		require.NoError(t, err)
		require.Empty(t, dry.Restored)
		require.Len(t, dry.Failed, 1)
		require.Equal(t, "not_covered", string(dry.Failed[0].Code))
	}
	check(s)
	branch, err := s.Branch("")
	require.NoError(t, err)
	var ids []string
	for _, e := range branch {
		ids = append(ids, e.ID)
	}
	c, err := b.reg.Stage(t.Context(), s, ids, nil)
	require.NoError(t, err)
	require.NoError(t, c.Publish(t.Context()))
	fork, err := b.reg.Get(t.Context(), c.ID())
	require.NoError(t, err)
	check(fork)
}

// A mark keeps what was seen of a root that a newer one did not see.
func TestAMarkOfARootThatWasNotSeen(t *testing.T) {
	st := newState()
	st.noteMark(workspace.Mark{{Root: "/a", Seq: 1}, {Root: "/b", Seq: 2}})
	st.noteMark(workspace.Mark{{Root: "/a", Seq: 0}, {Root: "/b", Seq: 3}})
	st.noteMark(nil)
	require.Equal(t, workspace.Mark{{Root: "/a", Seq: 1}, {Root: "/b", Seq: 3}}, st.mark)
	st.noteMark(workspace.Mark{{Root: "/b", Seq: 4}})
	require.Equal(t, workspace.Mark{{Root: "/b", Seq: 4}}, st.mark)
}

// Nothing of a session in memory gets into the agent directory by way of those
// who track its workspace.
func TestASessionInMemoryTellsNobody(t *testing.T) {
	b := newBox(t)
	s1, s2 := b.createTracked(), b.create(true)
	b.prompt(s1, "one")
	e := b.prompt(s2, "two")
	b.write(s2, "secret", "1")
	b.record(s2, "secret2")
	b.rewind(s2, RewindParams{EntryID: e})
	b.redo(s2)
	b.prompt(s2, "three")
	b.end(s2)
	n := 0
	require.NoError(t, filepath.WalkDir(b.agent, func(path string, d os.DirEntry, err error) error {
		require.NoError(t, err)
		if d.IsDir() {
			return nil
		}
		n++
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NotContains(t, string(content), s2.ID(), path)
		require.NotContains(t, string(content), "secret", path)
		return nil
	}))
	require.Positive(t, n)
}

// A session that tracks nothing does what it is told to, whatever keeps those
// busy who track its workspace, or is the matter with their journal.
func TestASessionThatTracksNothingDoesNotDependOnThoseWhoDo(t *testing.T) {
	b := newBox(t)
	o := b.another()
	b.put("x", "0")
	s1, s2 := o.createTracked(), b.create(false)
	o.prompt(s1, "one")
	e := b.prompt(s2, "two")
	tree := filepath.Join(b.agent, "workspaces", checkpoints.WorkspaceKey(b.dir))
	busy := flock.New(filepath.Join(tree, "lock"))
	require.NoError(t, busy.Lock())
	defer busy.Unlock()
	start := time.Now()
	b.write(s2, "x", "1")
	require.Less(t, time.Since(start), claimLimit+5*time.Second)
	b.has("x", "1")
	start = time.Now()
	require.Equal(t, []string{b.path("x")}, b.rewind(s2, RewindParams{EntryID: e}).Restored)
	require.Less(t, time.Since(start), 3*claimLimit+5*time.Second)
	b.has("x", "0")
	require.NoError(t, busy.Unlock())

	b.prompt(s2, "three")
	journals, err := filepath.Glob(filepath.Join(tree, "captures-*"))
	require.NoError(t, err)
	require.Len(t, journals, 1)
	require.NoError(t, os.Remove(journals[0]))
	require.NoError(t, os.Mkdir(journals[0], 0o700))
	b.write(s2, "x", "2")
	b.has("x", "2")
}

// listingRoot counts how often directories of the captures are listed.
type listingRoot struct {
	disk.Root
	top, below atomic.Int64
}

func (r *listingRoot) OpenFile(name string, flag int, perm fs.FileMode) (disk.File, error) {
	switch {
	case name == "workspaces":
		r.top.Add(1)
	case strings.HasPrefix(name, "workspaces/bare"):
		r.below.Add(1)
	}
	return r.Root.OpenFile(name, flag, perm)
}

// A call does not look through the captures of all workspaces.
func TestACallDoesNotListAllCaptures(t *testing.T) {
	b := newBox(t)
	s1 := b.createTracked()
	b.prompt(s1, "one")
	long := time.Now().Add(-time.Hour)
	top := filepath.Join(b.agent, "workspaces")
	for _, name := range []string{"bare1", "bare2"} {
		require.NoError(t, os.Mkdir(filepath.Join(top, name), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(top, name, "lock"), nil, 0o600))
		require.NoError(t, os.Chtimes(filepath.Join(top, name), long, long))
	}
	require.NoError(t, os.Chtimes(top, long, long))
	root := &listingRoot{}
	reg, err := OpenRegistry(Options{Dir: b.agent, Limits: DefaultLimits, App: "oinod test", OpenRoot: func(dir string) (disk.Root, error) {
		r, err := disk.Open(dir)
		if err != nil || dir != b.agent {
			return r, err
		}
		root.Root = r
		return root, nil
	}})
	require.NoError(t, err)
	o := &box{t: t, agent: b.agent, dir: b.dir, reg: reg}
	defer reg.Shutdown(context.Background())
	s2 := o.create(false)
	start := time.Now()
	o.prompt(s2, "two")
	for i := range 100 {
		o.record(s2, "r"+strconv.Itoa(i))
	}
	for i := range 10 {
		o.write(s2, "w", strconv.Itoa(i))
	}
	o.end(s2)
	most := 4 + int64(time.Since(start)/time.Second)
	require.NotNil(t, root.Root)
	require.LessOrEqual(t, root.top.Load(), most)
	require.LessOrEqual(t, root.below.Load(), int64(2))
	require.Equal(t, []PathChange{}, b.end(s1).Changed, "and yet it is told")
}
