package checkpoints

import (
	"context"
	"fmt"
	"os"
	"path"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oino-dev/oinod/checkpoints/blobs"
)

// codes are the failures by path, as their codes.
func codes(base string, failed []Failure) map[string]Code {
	out := map[string]Code{}
	for _, f := range failed {
		out[strings.TrimPrefix(f.Path, base+"/")] = f.Code
	}
	return out
}

// settle waits until what is in a workspace is old enough that Prepare's look
// counts, where it ever does.
func settle(t *testing.T, base string) {
	t.Helper()
	for name := range treeOf(t, base) {
		info, err := os.Lstat(base + "/" + name)
		require.NoError(t, err)
		s := stampOf(info)
		require.Eventually(t, func() bool { return s.ctime == 0 || s.settled(time.Now()) }, time.Minute, time.Millisecond, name)
	}
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
				if trusted {
					settle(t, base)
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
		p := NewPlan(r.touched, on, func(s State) ([]byte, error) {
			if content, err := w.blobs.Get(s.Digest, 0); err == nil {
				return content, nil
			}
			return w.Read(base+"/f", s.Size) // the present
		})
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
