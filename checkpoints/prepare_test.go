package checkpoints

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oino-dev/oinod/checkpoints/blobs"
)

// manyFiles are n files, in directories, of which each holds content and its number.
func manyFiles(n int, content string) tree {
	tr := tree{}
	for i := range n {
		tr[fmt.Sprintf("d%d/f%d", i/50, i)] = file(fmt.Sprint(content, i))
	}
	return tr
}

// What is overwritten is in the store before, also where the look that made the
// plan is all that there was.
func TestTheUsersOwnIsSavedBeforeItIsOverwritten(t *testing.T) {
	for _, n := range []int{3, 200} {
		a, b := manyFiles(n, "v0 "), manyFiles(n, "v1 ")
		w, base := workspace(t, a)
		r := turn(t, w, base, a, b)
		users := manyFiles(n, "the user's ")
		become(t, base, users)
		settle(t, base)
		redo, failed := r.run(Overwrite)
		require.Empty(t, failed)
		require.Len(t, redo.touched, n)
		for _, touched := range redo.touched {
			_, err := w.blobs.Get(touched.Target.Digest, 0)
			require.NoError(t, err, touched.Path)
		}
		_, failed = redo.run(Keep)
		require.Empty(t, failed)
		require.Equal(t, withDirs(users), treeOf(t, base))
	}
}

// withDirs is a tree with the directories that its files lie in.
func withDirs(tr tree) tree {
	all := with(tr)
	for name := range tr {
		for parent := range above("/" + name) {
			all[parent[1:]] = dir()
		}
	}
	return all
}

// A save between the look that made a plan and its preparation: of a plan that is
// all or nothing it is told before there is an intent, of another its path is kept.
func TestASaveBeforeThePreparation(t *testing.T) {
	const n = 100
	for _, all := range []bool{true, false} {
		a, b := manyFiles(n, "v0 "), manyFiles(n, "v1 ")
		w, base := workspace(t, a)
		r := turn(t, w, base, a, b)
		settle(t, base)
		for _, touched := range r.touched { // as the end of a turn does
			_, err := w.Capture(touched.Path)
			require.NoError(t, err)
		}
		p := r.plan(Keep)
		p.AllOrNothing = all
		saved := base + "/d1/f77"
		require.NoError(t, os.WriteFile(saved, []byte("saved"), 0o644))
		in, failed, err := w.Prepare(t.Context(), p)
		require.NoError(t, err)
		if all {
			require.Equal(t, map[string]Code{"d1/f77": CodeConflict}, codes(base, failed))
			continue
		}
		o := w.Act(t.Context(), in, false)
		require.Equal(t, map[string]Code{"d1/f77": CodeConflict}, codes(base, append(failed, o.Failed...)))
		require.Len(t, o.Done, n-1)
		content, err := os.ReadFile(saved)
		require.NoError(t, err)
		require.Equal(t, "saved", string(content))
		require.Empty(t, in.seen, "nothing is kept of what was seen")
	}
}

// A content that turns out damaged when it is staged: its path alone fails and
// keeps what it had, whatever kind it is of; of a plan that is all or nothing nothing
// is prepared.
func TestADamagedContentFailsItsPathAlone(t *testing.T) {
	for name, left := range map[string]tree{
		"a file":      {"p": file("v1")},
		"nothing":     {},
		"a directory": {"p": dir(), "p/n": file("new")},
		"a link":      {"p": link("o")},
	} {
		for _, all := range []bool{true, false} {
			t.Run(fmt.Sprint(name, all), func(t *testing.T) {
				many := manyFiles(100, "v0 ")
				a := with(tree{"p": file("lost"), "o": file("o0")}, many)
				b := with(left, tree{"o": file("o1")}, manyFiles(100, "v1 "))
				w, base := workspace(t, a)
				r := turn(t, w, base, a, b)
				w.blobs.(*memory).fail = func(op string, d blobs.Digest) error {
					if op != "has" && d == digestOf([]byte("lost")) {
						return &blobs.Error{Digest: d, Err: blobs.ErrDamaged}
					}
					return nil
				}
				before := treeOf(t, base)
				p := r.plan(Keep)
				p.AllOrNothing = all
				in, failed, err := w.Prepare(t.Context(), p)
				require.NoError(t, err)
				if all {
					require.Equal(t, map[string]Code{"p": CodeDamagedBlob}, codes(base, failed))
					require.Equal(t, before, treeOf(t, base))
					return
				}
				require.Empty(t, failed)
				o := w.Act(t.Context(), in, false)
				require.Equal(t, map[string]Code{"p": CodeDamagedBlob}, codes(base, o.Failed))
				want := withDirs(with(tree{"o": file("o0")}, many))
				if kept, ok := left["p"]; ok {
					want["p"] = kept // without what the agent made in it: that goes by itself
				}
				require.Equal(t, want, treeOf(t, base))
			})
		}
	}
}

// Files around the size that is read at once are all of what they are.
func TestFilesAroundTheSizeOfABuffer(t *testing.T) {
	w, base := workspace(t, nil)
	for _, size := range []int{0, 1, readSize - 1, readSize, readSize + 1, 2 * readSize} {
		content := make([]byte, size)
		for i := range content {
			content[i] = byte(i * 7)
		}
		plantOne(t, base+"/f", file(string(content)))
		require.Equal(t, fileState(0o644, string(content)), w.Look(base+"/f").State, size)
		c, err := w.Capture(base + "/f")
		require.NoError(t, err)
		require.Equal(t, fileState(0o644, string(content)), c.State, size)
		kept, err := w.blobs.Get(c.State.Digest, 0)
		require.NoError(t, err)
		require.Equal(t, content, kept)
		require.NoError(t, os.Remove(base+"/f"))
	}
}

// What is known of a directory in one root says nothing of its namesake in another.
func TestLookAllKeepsRootsApart(t *testing.T) {
	_, one := workspace(t, tree{"d/f": file("one"), "e/f": file("one")})
	_, two := workspace(t, tree{"d": link("x"), "x/f": file("two")})
	_, three := workspace(t, tree{"e/f": file("three")})
	w := open(t, one, two, three)
	var paths []string
	for _, base := range []string{one, two, three} {
		paths = append(paths, base+"/d/f", base+"/e/f")
	}
	for i, s := range w.LookAll(paths) {
		require.Equal(t, w.Look(paths[i]), s, paths[i])
	}
}
