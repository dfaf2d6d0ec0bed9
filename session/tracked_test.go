package session

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oino-dev/oinod/checkpoints"
)

func (b *box) createTracked() *Session {
	b.t.Helper()
	s, err := b.reg.Create(b.t.Context(), CreateParams{Cwd: b.dir, Tracking: Workspace})
	require.NoError(b.t, err)
	return s
}

// sh is what an agent's shell command or a user does in the workspace.
func (b *box) sh(script string) {
	b.t.Helper()
	cmd := exec.Command("sh", "-ec", script)
	cmd.Dir = b.dir
	out, err := cmd.CombinedOutput()
	require.NoError(b.t, err, "%s: %s", script, out)
}

func TestATurnsShellCommandsAreUndone(t *testing.T) {
	b := newBox(t)
	b.sh(`printf v0 >a; printf b0 >b; mkdir -p d/e empty; printf f0 >d/e/f; ln -s a link; printf x >run.sh; chmod 755 run.sh; printf k >k; chmod 600 k`)
	before := b.tree()
	s := b.createTracked()
	b.sh(`printf mine >untracked`)
	before["untracked"] = "file 644 mine"
	e1 := b.prompt(s, "one")
	b.sh(`printf v1 >>a; rm b; mv d/e/f moved; rm -r d empty; ln -sf b link; chmod 644 run.sh; mkdir -p new/deep hollow; printf n >new/deep/file; rm k; mkfifo pipe`)
	b.write(s, "a", "v2")
	b.sh(`printf v3 >>a`)
	r := b.end(s)
	require.Contains(t, r.Changed, PathChange{b.path("a"), checkpoints.Modified})
	require.Contains(t, r.Changed, PathChange{b.path("moved"), checkpoints.Created})
	require.Contains(t, r.Changed, PathChange{b.path("d/e/f"), checkpoints.Deleted})
	require.NotContains(t, r.Changed, PathChange{b.path("new"), checkpoints.Created}, "made only with a file")
	after := b.tree()
	b.sh(`printf later >user`)
	s = b.restart(s)
	got := b.rewind(s, RewindParams{EntryID: e1})
	require.Len(t, got.Failed, 1)
	require.Equal(t, b.path("pipe"), got.Failed[0].Path)
	require.Equal(t, []OutsideChange{{Path: b.path("user"), Change: checkpoints.Created}}, got.Outside)
	before["user"], before["pipe"] = "file 644 later", "other"
	require.Equal(t, before, b.tree())
	b.redo(s)
	after["user"] = "file 644 later"
	require.Equal(t, after, b.tree())
}

// tree is everything below the workspace.
func (b *box) tree() map[string]string {
	b.t.Helper()
	tree := map[string]string{}
	require.NoError(b.t, filepath.WalkDir(b.dir, func(p string, d os.DirEntry, err error) error {
		require.NoError(b.t, err)
		rel, _ := filepath.Rel(b.dir, p)
		info, err := d.Info()
		require.NoError(b.t, err)
		mode := info.Mode()
		switch {
		case rel == ".":
		case mode.IsDir():
			tree[rel] = "dir " + itoaOctal(uint32(mode.Perm()))
		case mode&os.ModeSymlink != 0:
			target, err := os.Readlink(p)
			require.NoError(b.t, err)
			tree[rel] = "link " + target
		case mode.IsRegular():
			tree[rel] = "file " + itoaOctal(uint32(mode.Perm())) + " " + b.read(rel)
		default:
			tree[rel] = "other"
		}
		return nil
	}))
	return tree
}

func itoaOctal(m uint32) string {
	return string([]byte{byte('0' + m>>6&7), byte('0' + m>>3&7), byte('0' + m&7)})
}

func TestTheUsersChangesBetweenTurnsStay(t *testing.T) {
	b := newBox(t)
	b.sh(`printf a0 >a; printf b0 >b`)
	s := b.createTracked()
	e1 := b.prompt(s, "one")
	b.sh(`printf a1 >a`)
	b.end(s)
	b.sh(`printf mine >b; printf n >n`)
	e2 := b.prompt(s, "two")
	b.sh(`printf a2 >a; printf c >c`)
	b.end(s)
	b.sh(`printf late >late`)
	all, err := s.Rewind(t.Context(), RewindParams{EntryID: e1, ScopeAll: true, DryRun: true})
	require.NoError(t, err)
	require.ElementsMatch(t, []string{b.path("a"), b.path("b")}, all.Restored)
	require.ElementsMatch(t, []string{b.path("n"), b.path("c")}, all.Deleted)
	require.Len(t, all.Failed, 1, "changed after the newest boundary")
	require.Equal(t, b.path("late"), all.Failed[0].Path)
	r := b.rewind(s, RewindParams{EntryID: e2})
	require.Equal(t, []string{b.path("a")}, r.Restored)
	b.rewind(s, RewindParams{EntryID: e1})
	require.Equal(t, map[string]string{"a": "file 644 a0", "b": "file 644 mine", "n": "file 644 n", "late": "file 644 late"}, b.tree())
	b.redo(s)
	b.redo(s)
	b.rewind(s, RewindParams{EntryID: e1, ScopeAll: true})
	require.Equal(t, map[string]string{"a": "file 644 a0", "b": "file 644 b0", "late": "file 644 late"}, b.tree())
}

// What another session's tool claimed is not this turn's; what nobody claimed
// while two turns were open is shared, and kept unless asked for.
func TestTwoSessionsInOneWorkspace(t *testing.T) {
	b := newBox(t)
	b.sh(`printf a0 >a`)
	s1, s2 := b.createTracked(), b.createTracked()
	e1 := b.prompt(s1, "one")
	e2 := b.prompt(s2, "two")
	b.write(s1, "x", "by s1")
	b.write(s2, "y", "by s2")
	b.sh(`printf by-whom >a`)
	b.end(s1)
	b.end(s2)
	r := b.rewind(s1, RewindParams{EntryID: e1})
	require.Equal(t, []string{b.path("x")}, r.Deleted)
	require.Len(t, r.Failed, 1)
	require.Equal(t, b.path("a"), r.Failed[0].Path)
	b.has("y", "by s2")
	b.has("a", "by-whom")
	r = b.rewind(s2, RewindParams{EntryID: e2})
	require.Equal(t, []string{b.path("y")}, r.Deleted)
	b.has("a", "by-whom")
}

func TestARewindIsNotAnotherTurnsChange(t *testing.T) {
	b := newBox(t)
	b.sh(`printf a0 >a`)
	s1, s2 := b.createTracked(), b.createTracked()
	e1 := b.prompt(s1, "one")
	b.sh(`printf a1 >a; mkdir d; printf n >d/n`)
	b.end(s1)
	e2 := b.prompt(s2, "two")
	b.rewind(s1, RewindParams{EntryID: e1})
	require.Empty(t, b.end(s2).Changed)
	require.Empty(t, b.rewind(s2, RewindParams{EntryID: e2}).Restored)
	b.has("a", "a0")
}

// After a crash inside a turn, what is there when the session is opened next is
// the turn's, whoever's command made it.
func TestATrackedTurnGoesOnAfterACloseAndAfterACrash(t *testing.T) {
	for _, how := range []string{"close", "crash"} {
		t.Run(how, func(t *testing.T) {
			b := newBox(t)
			b.sh(`printf 0 >a; printf 0 >b`)
			s := b.createTracked()
			e := b.prompt(s, "go")
			b.sh(`printf 1 >a; printf 1 >new`)
			if how == "close" {
				require.NoError(t, b.reg.Close(t.Context(), s.ID()))
				b.sh(`printf 2 >b`)
				s = b.restart(s)
			} else {
				b.sh(`printf 2 >b`)
				s = b.crash(s)
			}
			b.sh(`printf 3 >late`)
			b.end(s)
			r := b.rewind(s, RewindParams{EntryID: e})
			require.Empty(t, r.Failed)
			b.has("a", "0")
			b.lacks("new")
			b.lacks("late")
			if how == "close" {
				b.has("b", "2")
			} else {
				b.has("b", "0")
			}
		})
	}
}

func TestAHomeDirectoryFallsBackToFiles(t *testing.T) {
	b := newBox(t)
	b.reg.tracked.Home = b.dir
	b.put("a", "0")
	s := b.createTracked()
	c := s.Coverage(t.Context())
	require.NotNil(t, c)
	require.False(t, c.Complete)
	require.Equal(t, "home", c.Reason)
	e := b.prompt(s, "go")
	b.write(s, "a", "1")
	b.put("by-shell", "1")
	require.NotEmpty(t, b.end(s).Uncovered)
	r := b.rewind(s, RewindParams{EntryID: e})
	require.NotEmpty(t, r.Uncovered)
	b.has("a", "0")
	b.has("by-shell", "1")
}

// A path that somebody changed after the newest boundary comes back with a
// redo of the overwrite, also when it was the only one.
func TestARedoOfScopeAllBringsEverythingBack(t *testing.T) {
	for _, alone := range []bool{false, true} {
		b := newBox(t)
		b.sh(`printf orig >f; printf g0 >g`)
		s := b.createTracked()
		e := b.prompt(s, "one")
		if !alone {
			b.sh(`printf g1 >g`)
		}
		b.end(s)
		b.sh(`printf users >f`)
		before := b.tree()
		b.rewind(s, RewindParams{EntryID: e, ScopeAll: true, OnConflict: checkpoints.Overwrite})
		b.has("f", "orig")
		b.has("g", "g0")
		b.redo(s)
		require.Equal(t, before, b.tree())
		_, err := s.Redo(t.Context(), RewindParams{})
		refused(t, NothingToRedo, err)
	}
}

// What was outside goes out of play with the turns it lay between.
func TestScopeAllAfterARewindOfTurns(t *testing.T) {
	b := newBox(t)
	b.sh(`printf A >f; printf g0 >g`)
	s := b.createTracked()
	e := b.prompt(s, "one")
	b.sh(`printf B >f`)
	b.end(s)
	b.sh(`printf C >f`)
	b.prompt(s, "two")
	b.sh(`printf g1 >g`)
	b.end(s)
	b.rewind(s, RewindParams{EntryID: e, OnConflict: checkpoints.Overwrite})
	b.has("f", "A")
	b.prompt(s, "three")
	b.sh(`printf g2 >g`)
	b.end(s)
	r := b.rewind(s, RewindParams{EntryID: Start, ScopeAll: true, OnConflict: checkpoints.Overwrite})
	require.Equal(t, []string{b.path("g")}, r.Restored)
	b.has("f", "A")
}

// After a merge the user's part that is left is outside: scope all undoes it too.
func TestScopeAllAfterAMerge(t *testing.T) {
	b := newBox(t)
	b.sh(`printf '1\n2\n3\n4\n5\n' >f; printf g0 >g`)
	s := b.createTracked()
	e := b.prompt(s, "one")
	b.sh(`printf '1agent\n2\n3\n4\n5\n' >f`)
	b.end(s)
	b.sh(`printf '1agent\n2\n3\n4\n5user\n' >f`)
	b.prompt(s, "two")
	b.end(s)
	b.rewind(s, RewindParams{EntryID: e, OnConflict: checkpoints.Merge})
	b.has("f", "1\n2\n3\n4\n5user\n")
	s = b.restart(s)
	b.redo(s)
	b.has("f", "1agent\n2\n3\n4\n5user\n")
	b.rewind(s, RewindParams{EntryID: e, OnConflict: checkpoints.Merge})
	b.prompt(s, "three")
	b.sh(`printf g2 >g`)
	b.end(s)
	require.Empty(t, b.rewind(s, RewindParams{EntryID: Start, ScopeAll: true}).Failed)
	b.has("f", "1\n2\n3\n4\n5\n")
	b.has("g", "g0")
}

// New directories are tracked from the next turn on.
func TestNewDirectoriesAreTracked(t *testing.T) {
	b := newBox(t)
	other := t.TempDir()
	x := filepath.Join(other, "x")
	require.NoError(t, os.WriteFile(x, []byte("0"), 0o644))
	s := b.createTracked()
	s, err := b.reg.Load(t.Context(), s.ID(), b.dir, []string{other})
	require.NoError(t, err)
	e := b.prompt(s, "one")
	require.NoError(t, os.WriteFile(x, []byte("1"), 0o644))
	require.Equal(t, []PathChange{{x, checkpoints.Modified}}, b.end(s).Changed)
	require.Equal(t, []string{x}, b.rewind(s, RewindParams{EntryID: e}).Restored)
}
