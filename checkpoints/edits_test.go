package checkpoints

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/oino-dev/oinod/checkpoints/blobs"
	"github.com/oino-dev/oinod/checkpoints/disk"
	"github.com/oino-dev/oinod/checkpoints/disk/disktest"
)

// codes are the failures by path, as their codes.
func codes(base string, failed []Failure) map[string]Code {
	out := map[string]Code{}
	for _, f := range failed {
		out[strings.TrimPrefix(f.Path, base+"/")] = f.Code
	}
	return out
}

// What the user does between the last word of the plan and the act is seen,
// kept and told.
func TestAnEditAtTheLastMomentIsKept(t *testing.T) {
	long := strings.Repeat("x", 100)
	for name, c := range map[string]struct {
		a, b tree
		user func(t *testing.T, base string)
		want tree
		code map[string]Code
	}{
		"other bytes": {tree{"f": file("v0")}, tree{"f": file("v1")},
			func(t *testing.T, base string) { plantOne(t, base+"/f", file("mine")) },
			tree{"f": file("mine")}, map[string]Code{"f": CodeConflict}},
		"as many bytes, and the old time": {tree{"f": file(long)}, tree{"f": file(long[1:] + "1")},
			func(t *testing.T, base string) {
				info, err := os.Stat(base + "/f")
				require.NoError(t, err)
				require.NoError(t, os.WriteFile(base+"/f", []byte(long[1:]+"2"), 0o644))
				require.NoError(t, os.Chtimes(base+"/f", info.ModTime(), info.ModTime()))
			},
			tree{"f": file(long[1:] + "2")}, map[string]Code{"f": CodeConflict}},
		"another mode": {tree{"f": file("v0")}, tree{"f": file("v1")},
			func(t *testing.T, base string) { require.NoError(t, os.Chmod(base+"/f", 0o755)) },
			tree{"f": mfile(0o755, "v1")}, map[string]Code{"f": CodeConflict}},
		"removed": {tree{"f": file("v0")}, tree{"f": file("v1")},
			func(t *testing.T, base string) { require.NoError(t, os.Remove(base+"/f")) },
			tree{}, map[string]Code{"f": CodeConflict}},
		"made a link to outside": {tree{"f": file("v0")}, tree{"f": file("v1")},
			func(t *testing.T, base string) {
				require.NoError(t, os.Remove(base+"/f"))
				require.NoError(t, os.Symlink("/etc/hostname", base+"/f"))
			},
			tree{"f": link("/etc/hostname")}, map[string]Code{"f": CodeConflict}},
		"made a pipe": {tree{"f": file("v0")}, tree{"f": file("v1")},
			func(t *testing.T, base string) {
				require.NoError(t, os.Remove(base+"/f"))
				plantOne(t, base+"/f", fifo())
			},
			tree{"f": fifo()}, map[string]Code{"f": CodeConflict}},
		"made where nothing was": {tree{"f": file("v0"), "l": link("x"), "d": dir()}, tree{},
			func(t *testing.T, base string) {
				tree{"f": file("mine"), "l": file("mine"), "d": file("mine")}.plant(t, base)
			},
			tree{"f": file("mine"), "l": file("mine"), "d": file("mine")}, map[string]Code{"f": CodeConflict, "l": CodeConflict, "d": CodeConflict}},
		"a new file edited": {tree{}, tree{"f": file("v1"), "g": file("v1")},
			func(t *testing.T, base string) { plantOne(t, base+"/f", file("mine")) },
			tree{"f": file("mine")}, map[string]Code{"f": CodeConflict}},
		"put into a directory that goes": {tree{}, tree{"d": dir(), "d/f": file("v1")},
			func(t *testing.T, base string) { plantOne(t, base+"/d/mine", file("mine")) },
			tree{"d": dir(), "d/mine": file("mine")}, map[string]Code{"d": CodeKindChanged}},
		"put into a directory that becomes a file": {tree{"d": file("v0")}, tree{"d": mdir(0o700), "d/f": file("v1"), "d/s/g": file("v1")},
			func(t *testing.T, base string) { plantOne(t, base+"/d/s/mine", file("mine")) },
			tree{"d": mdir(0o700), "d/s": dir(), "d/s/mine": file("mine")}, map[string]Code{"d": CodeKindChanged}},
		"edited in a directory that becomes a file": {tree{"d": file("v0")}, tree{"d": dir(), "d/f": file("v1"), "d/g": file("v1")},
			func(t *testing.T, base string) { plantOne(t, base+"/d/f", file("mine")) },
			tree{"d": dir(), "d/f": file("mine")}, map[string]Code{"d": CodeKindChanged, "d/f": CodeConflict}},
		"put into a directory that becomes a link": {tree{"d": link("x")}, tree{"d": dir()},
			func(t *testing.T, base string) { plantOne(t, base+"/d/mine", file("mine")) },
			tree{"d": dir(), "d/mine": file("mine")}, map[string]Code{"d": CodeKindChanged}},
		"the parent made a link to outside": {tree{"d": dir(), "d/f": file("v0"), "d/g": file("v0")}, tree{"d": dir(), "d/f": file("v1"), "d/h": file("v1")},
			func(t *testing.T, base string) {
				out := t.TempDir()
				tree{"f": file("v1"), "h": file("v1")}.plant(t, out)
				t.Cleanup(func() {
					require.Equal(t, tree{"f": file("v1"), "h": file("v1")}, treeOf(t, out), "nothing outside is touched")
				})
				require.NoError(t, os.RemoveAll(base+"/d"))
				require.NoError(t, os.Symlink(out, base+"/d"))
			},
			nil, map[string]Code{"d/f": CodeOutsideRoots, "d/g": CodeOutsideRoots}},
		"the parent made a link to inside": {tree{"d": dir(), "d/f": file("v0"), "e/x": file("x")}, tree{"d": dir(), "d/f": file("v1"), "e/x": file("x")},
			func(t *testing.T, base string) {
				require.NoError(t, os.Rename(base+"/d", base+"/e/d"))
				require.NoError(t, os.Symlink("e/d", base+"/d"))
			},
			tree{"d": link("e/d"), "e": dir(), "e/d": dir(), "e/d/f": file("v1"), "e/x": file("x")}, map[string]Code{"d/f": CodeOutsideRoots}},
		"the parent made a file": {tree{"d": dir(), "d/f": file("v0")}, tree{"d": dir()},
			func(t *testing.T, base string) {
				require.NoError(t, os.Remove(base+"/d"))
				plantOne(t, base+"/d", file("mine"))
			},
			tree{"d": file("mine")}, map[string]Code{"d/f": CodeKindChanged}},
		"the parent removed": {tree{"d": dir(), "d/f": file("v0"), "d/g": file("v0")}, tree{"d": dir(), "d/g": file("v1")},
			func(t *testing.T, base string) { require.NoError(t, os.RemoveAll(base+"/d")) },
			tree{"d": dir(), "d/f": file("v0")}, map[string]Code{"d/g": CodeConflict}},
		"a directory chmodded": {tree{"d": mdir(0o700)}, tree{"d": dir()},
			func(t *testing.T, base string) { require.NoError(t, os.Chmod(base+"/d", 0o711)) },
			tree{"d": mdir(0o711)}, map[string]Code{"d": CodeConflict}},
	} {
		for _, trusted := range []bool{true, false} {
			t.Run(fmt.Sprint(name, trusted), func(t *testing.T) {
				t.Parallel()
				w, base := workspace(t, c.a)
				r := turn(t, w, base, c.a, c.b)
				if trusted { // old enough that Prepare's look counts
					time.Sleep(60 * time.Millisecond)
				}
				p := r.plan(Keep)
				in, failed, err := w.Prepare(t.Context(), p)
				require.NoError(t, err)
				require.Empty(t, append(failed, p.Failed...))
				c.user(t, base)
				o := w.Act(t.Context(), in, false)
				require.Equal(t, c.code, codes(base, o.Failed))
				if c.want != nil {
					require.Equal(t, c.want, treeOf(t, base))
				}
			})
		}
	}
}

func TestUnchangedFilesKeepInodeAndTime(t *testing.T) {
	a := tree{"same": file("s"), "mode": mfile(0o755, "x"), "edited": file("v0")}
	b := tree{"same": file("s"), "mode": mfile(0o644, "x"), "edited": file("v1")}
	w, base := workspace(t, a)
	r := turn(t, w, base, a, b)
	old := time.Unix(1577880000, 0)
	for name := range a {
		require.NoError(t, os.Chtimes(base+"/"+name, old, old))
	}
	inode := func(name string) (ident, time.Time) {
		info, err := os.Lstat(base + "/" + name)
		require.NoError(t, err)
		return identOf(info), info.ModTime()
	}
	same, _ := inode("same")
	mode, _ := inode("mode")
	_, failed := r.run(Keep)
	require.Empty(t, failed)
	require.Equal(t, a, treeOf(t, base))
	for name, was := range map[string]ident{"same": same, "mode": mode} {
		is, mtime := inode(name)
		require.Equal(t, was, is, name)
		require.True(t, mtime.Equal(old), name)
	}
}

func TestHardLinksAndOwnersInARewind(t *testing.T) {
	a := tree{"f": file("v0")}
	w, base := workspace(t, a)
	r := turn(t, w, base, a, tree{"f": file("v1")})
	require.NoError(t, os.Link(base+"/f", base+"/other"))
	if os.Geteuid() == 0 {
		require.NoError(t, os.Chown(base+"/f", 1234, 4321))
	}
	_, failed := r.run(Keep)
	require.Empty(t, failed)
	require.Equal(t, tree{"f": file("v0"), "other": file("v1")}, treeOf(t, base))
	if os.Geteuid() == 0 {
		info, err := os.Lstat(base + "/f")
		require.NoError(t, err)
		require.Equal(t, owner{1234, 4321}, ownerOf(info))
	}
}

func TestALostContentFailsItsPathAlone(t *testing.T) {
	a := tree{"f": file("v0"), "g": file("g0"), "h": mfile(0o600, "h0"), "d": file("d0")}
	b := tree{"f": file("v1"), "g": file("g1"), "h": mfile(0o644, "h0"), "n": file("n"), "d/x": file("x")}
	for _, code := range []Code{CodeMissingBlob, CodeDamagedBlob, CodeIO} {
		w, base := workspace(t, a)
		r := turn(t, w, base, a, b)
		kept := w.blobs.(*memory).kept
		lost := digestOf([]byte("v0"))
		switch code {
		case CodeMissingBlob:
			delete(kept, lost)
			delete(kept, digestOf([]byte("h0"))) // only its mode comes back: its bytes are there
			delete(kept, digestOf([]byte("d0")))
		case CodeDamagedBlob:
			kept[lost] = []byte("v?")
			kept[digestOf([]byte("d0"))] = nil
		case CodeIO:
			w.blobs.(*memory).fail = func(op string, d blobs.Digest) error {
				if op == "get" && (d == lost || d == digestOf([]byte("d0"))) {
					return syscall.EIO
				}
				return nil
			}
		}
		p := r.plan(Keep)
		good, foretold := w.Verify(p.Steps)
		_, failed := r.run(Keep)
		require.Equal(t, map[string]Code{"f": code, "d": code}, codes(base, failed))
		require.Equal(t, failed, foretold, "a dry run says the same")
		require.Len(t, good, len(p.Steps)-2)
		require.Contains(t, failed[0].Message, digestOf([]byte(map[string]string{"f": "v0", "d": "d0"}[path.Base(failed[0].Path)])).String())
		require.Equal(t, tree{"f": file("v1"), "g": file("g0"), "h": mfile(0o600, "h0"), "d": dir()}, treeOf(t, base))
	}
}

// Saving the present comes first: where that is not possible, nothing begins.
func TestNothingBeginsThatCannotBeRedone(t *testing.T) {
	a, b := tree{"f": file("v0")}, tree{"f": file("v1"), "big": file(strings.Repeat("big", 100))}
	w, base := workspace(t, a)
	w.maxKept = 10
	r := turn(t, w, base, a, b)
	for _, op := range []string{"put", "sync"} {
		w.blobs.(*memory).fail = func(o string, _ blobs.Digest) error {
			if o == op {
				return syscall.ENOSPC
			}
			return nil
		}
		_, _, err := w.Prepare(t.Context(), r.plan(Keep))
		require.ErrorIs(t, err, syscall.ENOSPC)
		require.Equal(t, b, treeOf(t, base))
	}
	w.blobs.(*memory).fail = nil
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err := w.Prepare(ctx, r.plan(Keep))
	require.ErrorIs(t, err, context.Canceled)

	// Called off before the first path: nothing has changed, nothing is left.
	in, _, err := w.Prepare(t.Context(), r.plan(Keep))
	require.NoError(t, err)
	o := w.Act(ctx, in, false)
	require.Empty(t, o.Done)
	require.Len(t, o.Failed, 2)
	require.Equal(t, b, treeOf(t, base))

	redo, failed := r.run(Keep)
	require.Empty(t, failed)
	require.Equal(t, a, treeOf(t, base))
	_, failed = redo.run(Keep) // what was too large to capture was not too large to save
	require.Empty(t, failed)
	require.Equal(t, b, treeOf(t, base))
}

func TestOverwriteAndMergeCanBeRedone(t *testing.T) {
	a := tree{"f": file("1\n2\n3\n4\n")}
	b := tree{"f": file("1\n2\n3\nFOUR\n")}
	u := tree{"f": file("one\n2\n3\nFOUR\n")}
	for on, want := range map[OnConflict]tree{Overwrite: a, Merge: {"f": file("one\n2\n3\n4\n")}, Keep: u} {
		w, base := workspace(t, a)
		r := turn(t, w, base, a, b)
		become(t, base, u)
		for i := range r.touched {
			r.touched[i].Parts = []Part{{Before: r.touched[i].Target, After: r.touched[i].Left}}
		}
		for i := range r.touched {
			r.touched[i].Now = w.Look(r.touched[i].Path)
		}
		require.NoError(t, capture(w, base+"/f")) // what the agent left is kept too
		w.blobs.Put([]byte("1\n2\n3\nFOUR\n"))
		p := NewPlan(r.touched, on, w.Contents(r.touched))
		in, failed, err := w.Prepare(t.Context(), p)
		require.NoError(t, err)
		o := w.Act(t.Context(), in, false)
		require.Empty(t, append(failed, o.Failed...))
		require.Equal(t, want, treeOf(t, base), on)
		if on == Keep {
			require.Equal(t, map[string]Code{"f": CodeConflict}, codes(base, p.Failed))
			continue
		}
		require.Equal(t, on == Merge, in.Steps[0].Merged)
		back := &rewind{t: t, w: w, base: base, touched: []Touched{{Path: base + "/f", Target: in.Steps[0].Saved, Left: in.Steps[0].To}}}
		_, failed = back.run(Keep)
		require.Empty(t, failed)
		require.Equal(t, u, treeOf(t, base))
	}
}

func capture(w *Workspace, path string) error {
	_, err := w.Capture(path)
	return err
}

// A disk that asks for permission, as it does not ask root: to change names in
// a directory takes its write bit.
func TestClosedDirectoriesAreOpenedForTheTime(t *testing.T) {
	a := tree{"d": mdir(0o555), "d/f": mfile(0o444, "v0"), "d/e": mdir(0o500), "d/e/g": file("v0"), "n": mdir(0o555), "k": mdir(0o500), "k/x": file("x")}
	b := tree{"d": mdir(0o555), "d/f": mfile(0o444, "v1"), "d/e": mdir(0o500), "d/e/g": file("v1"), "d/new": file("n"), "n": mdir(0o555), "n/m": mdir(0o555), "n/m/o": file("o"), "k": file("was closed")}
	s := newScene(t, a, b)
	permit := func(r disk.Root, changed *[]string) func(disktest.Op) error {
		return func(op disktest.Op) error {
			switch op.Kind {
			case "create", "mkdir", "remove", "rename", "link", "symlink":
				*changed = append(*changed, path.Dir(op.Name))
			}
			return nil
		}
	}
	// The disk in memory cannot be asked from within an operation, so the
	// modes are followed as they are set.
	modes := map[string]fs.FileMode{}
	for name, what := range b {
		if m, ok := strings.CutPrefix(what, "dir "); ok {
			var bits uint32
			fmt.Sscanf(m, "%o", &bits)
			modes[name] = fs.FileMode(bits)
		}
	}
	w := openOn(t, s.fs, s.kept)
	var changed []string
	var refused []string
	asked := permit(nil, &changed)
	w.roots[0].disk = permitting{w.roots[0].disk, func(dir string) error {
		if m, ok := modes[dir]; ok && m&0o300 != 0o300 {
			refused = append(refused, dir)
			return syscall.EACCES
		}
		return nil
	}, func(name string, mode fs.FileMode) { modes[name] = mode }}
	_ = asked
	_, failed := s.rewind(t, w)
	require.Empty(t, failed)
	require.Empty(t, refused)
	require.Equal(t, a, treeOn(t, s.fs.Root("/w")))
}

// permitting is a disk that asks before names change in a directory.
type permitting struct {
	disk.Root
	ask   func(dir string) error
	chmod func(name string, mode fs.FileMode)
}

func (d permitting) may(names ...string) error {
	for _, name := range names {
		if err := d.ask(path.Dir(name)); err != nil {
			return &fs.PathError{Op: "change", Path: name, Err: err}
		}
	}
	return nil
}

func (d permitting) OpenFile(name string, flag int, perm fs.FileMode) (disk.File, error) {
	if flag&os.O_CREATE != 0 {
		if err := d.may(name); err != nil {
			return nil, err
		}
	}
	return d.Root.OpenFile(name, flag, perm)
}

func (d permitting) Symlink(target, name string) error {
	return errors.Join(d.may(name), d.Root.Symlink(target, name))
}

func (d permitting) Link(old, new string) error {
	if err := d.may(new); err != nil {
		return err
	}
	return d.Root.Link(old, new)
}

func (d permitting) Mkdir(name string, perm fs.FileMode) error {
	if err := d.may(name); err != nil {
		return err
	}
	err := d.Root.Mkdir(name, perm)
	if err == nil {
		d.chmod(name, perm)
	}
	return err
}

func (d permitting) Rename(old, new string) error {
	if err := d.may(old, new); err != nil {
		return err
	}
	return d.Root.Rename(old, new)
}

func (d permitting) Remove(name string) error {
	if err := d.may(name); err != nil {
		return err
	}
	return d.Root.Remove(name)
}

func (d permitting) Chmod(name string, mode fs.FileMode) error {
	err := d.Root.Chmod(name, mode)
	if err == nil {
		d.chmod(name, mode)
	}
	return err
}

func TestADirectoryThatStaysClosedIsNamed(t *testing.T) {
	a, b := tree{"d/f": file("v0"), "e": file("v0")}, tree{"d/f": file("v1"), "e": file("v1")}
	s := newScene(t, a, b)
	w := openOn(t, s.fs, s.kept)
	w.roots[0].disk = permitting{w.roots[0].disk, func(dir string) error {
		if dir == "d" {
			return syscall.EACCES
		}
		return nil
	}, func(string, fs.FileMode) {}}
	_, failed := s.rewind(t, w)
	require.Equal(t, []Failure{{Path: "/w/d/f", Code: CodeIO, Message: "its directory /w/d cannot be written in: permission denied"}}, failed)
	require.Equal(t, tree{"d/f": file("v1"), "e": file("v0")}, treeOn(t, s.fs.Root("/w")).bare())
}

func TestADiskWithoutHardLinks(t *testing.T) {
	s := newScene(t, beforeTurn, afterTurn)
	w := openOn(t, s.fs, s.kept)
	w.roots[0].disk = fork{Root: w.roots[0].disk, link: func(string, string) error { return syscall.ENOTSUP }}
	_, failed := s.rewind(t, w)
	require.Empty(t, failed)
	require.Equal(t, beforeTurn, treeOn(t, s.fs.Root("/w")))
}

func TestPathsOfSeveralRootsAndOfNone(t *testing.T) {
	top := t.TempDir()
	tree{"a/f": file("v1"), "b/f": file("v1")}.plant(t, top)
	w := open(t, top+"/a", top+"/b")
	for _, content := range []string{"v0"} {
		w.blobs.Put([]byte(content))
	}
	var touched []Touched
	for _, p := range []string{top + "/a/f", top + "/b/f"} {
		touched = append(touched, Touched{Path: p, Target: fileState(0o644, "v0"), Left: fileState(0o644, "v1"), Now: w.Look(p)})
	}
	in, failed, err := w.Prepare(t.Context(), NewPlan(touched, Keep, never))
	require.NoError(t, err)
	require.Empty(t, failed)
	one := open(t, top+"/a") // reopened with a root less
	one.blobs = w.blobs
	o := one.Act(t.Context(), in, true)
	require.Equal(t, []string{top + "/a/f"}, o.Done)
	require.Equal(t, CodeOutsideRoots, o.Failed[0].Code)
	require.Equal(t, tree{"a/f": file("v0"), "b/f": file("v1")}, treeOf(t, top).bare())
}

// name, kind and bytes at random, deep enough that kinds collide.
func someTree() *rapid.Generator[tree] {
	return rapid.Custom(func(t *rapid.T) tree {
		tr := tree{}
		for range rapid.IntRange(0, 7).Draw(t, "n") {
			name := rapid.SampledFrom([]string{"a", "b", "a/a", "a/b", "b/a", "a/a/a", "c", "c/a", "c/a/b"}).Draw(t, "name")
			clash := false
			for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
				if what, ok := tr[dir]; ok && !strings.HasPrefix(what, "dir") {
					clash = true
				}
			}
			for other := range tr {
				clash = clash || strings.HasPrefix(other, name+"/")
			}
			if clash || tr[name] != "" {
				continue
			}
			tr[name] = rapid.SampledFrom([]string{file("1"), file("2"), mfile(0o600, "1"), link("a"), link("x"), dir(), mdir(0o700)}).Draw(t, "what")
		}
		return tr
	})
}

// whole adds the directories that a tree's names imply.
func (tr tree) whole() tree {
	out := with(tr)
	for name := range tr {
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			if out[dir] == "" {
				out[dir] = "dir 0755"
			}
		}
	}
	return out
}

// The agent makes b of a, the user u of b, at random. A rewind brings back
// what is as the agent left it, keeps what is not, and touches nothing else. Where the user
// did nothing, all comes back; and a redo undoes it.
func TestARewindKeepsTheUsersAndBringsBackTheRest(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		a, b := someTree().Draw(rt, "a").whole(), someTree().Draw(rt, "b").whole()
		u := b
		if rapid.Bool().Draw(rt, "user") {
			u = someTree().Draw(rt, "u").whole()
		}
		s := newScene(t, a, b)
		if u2 := u; true {
			s.fs = disktest.New()
			u2.plantOn(t, s.fs.Root("/w"))
		}
		w := openOn(t, s.fs, s.kept)
		touched := map[string]bool{}
		for i := range s.touched {
			s.touched[i].Now = w.Look(s.touched[i].Path)
			touched[strings.TrimPrefix(s.touched[i].Path, "/w/")] = true
		}
		p := NewPlan(s.touched, Keep, never)
		in, unprepared, err := w.Prepare(context.Background(), p)
		require.NoError(t, err)
		above := map[string][]Parent{}
		for _, step := range in.Steps {
			above[step.Path] = w.Parents(step.Path)
		}
		o := w.Act(context.Background(), in, false)
		got := treeOn(t, s.fs.Root("/w"))
		failed := codes("/w", append(append(p.Failed, unprepared...), o.Failed...))
		if len(unprepared)+len(o.Failed) > 0 {
			rt.Fatalf("the plan promised more than could be done: %v %v", unprepared, o.Failed)
		}
		holdsAny := func(name string) bool { return holds(with(a, b, u, got), name) }
		for name := range with(a, b, u, got) {
			is := got[name]
			_, bad := failed[name]
			switch {
			case touched[name] && bad:
				if is != u[name] {
					rt.Fatalf("%s failed (%s) and is %q, was %q", name, failed[name], is, u[name])
				}
			case touched[name]:
				if is != a[name] && !(a[name] == "" && strings.HasPrefix(is, "dir")) {
					rt.Fatalf("%s is %q, should be %q", name, is, a[name])
				}
				if u[name] != b[name] && u[name] != a[name] && is != u[name] && !holdsAny(name) {
					rt.Fatalf("%s was the user's %q and is %q", name, u[name], is)
				}
			case is != u[name] && !holdsAny(name):
				rt.Fatalf("%s was never touched, was %q and is %q", name, u[name], is)
			}
		}
		for name := range got {
			if strings.Contains(name, ".oino-") {
				rt.Fatal(name)
			}
		}
		if len(failed) > 0 {
			return
		}
		if len(u) == len(b) && fmt.Sprint(u) == fmt.Sprint(b) && fmt.Sprint(got) != fmt.Sprint(a) {
			rt.Fatalf("all was as the agent left it, and %v is not %v", got, a)
		}
		var back []Touched
		for _, step := range in.Steps {
			back = append(back, Touched{Path: step.Path, Target: step.Saved, Left: step.To, Parents: above[step.Path], Now: w.Look(step.Path)})
		}
		p = NewPlan(back, Keep, never)
		in, unprepared, err = w.Prepare(context.Background(), p)
		require.NoError(t, err)
		o = w.Act(context.Background(), in, false)
		if all := slices.Concat(p.Failed, unprepared, o.Failed); len(all) > 0 {
			rt.Fatalf("redo: %v", all)
		}
		if got := treeOn(t, s.fs.Root("/w")); fmt.Sprint(got) != fmt.Sprint(u) {
			rt.Fatalf("redo gives %v, was %v", got, u)
		}
	})
}

var _ = filepath.Join
