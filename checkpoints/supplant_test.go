package checkpoints

import (
	"encoding/json"
	"errors"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// canSwap reports whether the file system of the tests swaps names. Where it
// does not, what is saved in the instant after the last look is lost.
func canSwap(t *testing.T) bool {
	t.Helper()
	w, base := workspace(t, tree{"a": file("a"), "b": file("b")})
	err := w.roots[0].disk.Exchange("a", "b")
	if errors.Is(err, errors.ErrUnsupported) {
		require.NotEqual(t, "linux", runtime.GOOS, "on Linux the tests need a file system that swaps names")
		return false
	}
	require.NoError(t, err)
	require.Equal(t, tree{"a": file("b"), "b": file("a")}, treeOf(t, base))
	return true
}

// saves are what a user can do to a file "f" in the instant between the last
// look and the swap, and what there is then.
var saves = map[string]struct {
	do   func(t *testing.T, path string)
	left tree
}{
	"in place": {func(t *testing.T, path string) {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
		require.NoError(t, err)
		_, err = f.WriteString("mine")
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}, tree{"f": file("v1mine")}},
	"in place, of the same size": {func(t *testing.T, path string) {
		require.NoError(t, os.WriteFile(path, []byte("me"), 0o644))
	}, tree{"f": file("me")}},
	"by a rename": {func(t *testing.T, path string) {
		require.NoError(t, os.WriteFile(path+"~", []byte("mine"), 0o644))
		require.NoError(t, os.Rename(path+"~", path))
	}, tree{"f": file("mine")}},
	"a link": {func(t *testing.T, path string) {
		require.NoError(t, os.Remove(path))
		require.NoError(t, os.Symlink("mine", path))
	}, tree{"f": link("mine")}},
	"a directory": {func(t *testing.T, path string) {
		require.NoError(t, os.Remove(path))
		require.NoError(t, os.Mkdir(path, 0o755))
		require.NoError(t, os.WriteFile(path+"/x", []byte("mine"), 0o644))
	}, tree{"f": dir(), "f/x": file("mine")}},
	"removed": {func(t *testing.T, path string) {
		require.NoError(t, os.Remove(path))
	}, tree{}},
	"chmod": {func(t *testing.T, path string) {
		require.NoError(t, os.Chmod(path, 0o600))
	}, tree{"f": mfile(0o600, "v1")}},
}

// prepared is a rewind of the turn from a to b that is ready to be carried out.
func prepared(t *testing.T, a, b tree) (w *Workspace, base string, in Intent) {
	t.Helper()
	w, base = workspace(t, a)
	in, failed, err := w.Prepare(t.Context(), turn(t, w, base, a, b).plan(Keep))
	require.NoError(t, err)
	require.Empty(t, failed)
	return w, base, in
}

// first is an operation that does something before the first time, and notes it.
func first(done *bool, do func()) func(old, new string) error {
	return func(string, string) error {
		if !*done {
			*done = true
			do()
		}
		return nil
	}
}

// What is saved after the last look, however it is, is kept: by a rewind and by
// a write of the agent's, and nothing is left over.
func TestASaveInTheLastInstantIsKept(t *testing.T) {
	if !canSwap(t) {
		return
	}
	for name, save := range saves {
		for _, old := range []bool{true, false} { // so that times tell of a change
			t.Run(name, func(t *testing.T) {
				a, b := tree{"f": file("v0")}, tree{"f": file("v1")}
				w, base := workspace(t, a)
				r := turn(t, w, base, a, b)
				age := func() {
					if old {
						then := time.Now().Add(-time.Hour)
						require.NoError(t, os.Chtimes(base+"/f", then, then))
					}
				}
				age()
				in, failed, err := w.Prepare(t.Context(), r.plan(Keep))
				require.NoError(t, err)
				require.Empty(t, failed)
				saved := false
				onFork(w, fork{exchange: first(&saved, func() { save.do(t, base+"/f") })})
				o := w.Act(t.Context(), in, false)
				require.True(t, saved)
				require.Len(t, o.Failed, 1)
				require.Equal(t, CodeConflict, o.Failed[0].Code, o.Failed[0].Message)
				require.Equal(t, save.left, treeOf(t, base))

				w, base = workspace(t, b)
				age()
				saved = false
				onFork(w, fork{exchange: first(&saved, func() { save.do(t, base+"/f") })})
				_, err = w.Write(base+"/f", []byte("ours"), w.TempName(), fileState(0o644, "v1"))
				require.True(t, saved)
				require.ErrorIs(t, err, ErrAppeared)
				require.Equal(t, save.left, treeOf(t, base))
			})
		}
	}
}

// What is saved after the last look at a file that shall go is kept.
func TestASaveBeforeARemovalIsKept(t *testing.T) {
	for name, save := range saves {
		for _, old := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				a, b := tree{}, tree{"f": file("v1")}
				w, base := workspace(t, a)
				r := turn(t, w, base, a, b)
				if old {
					then := time.Now().Add(-time.Hour)
					require.NoError(t, os.Chtimes(base+"/f", then, then))
				}
				in, failed, err := w.Prepare(t.Context(), r.plan(Keep))
				require.NoError(t, err)
				require.Empty(t, failed)
				saved := false
				onFork(w, fork{rename: first(&saved, func() { save.do(t, base+"/f") })})
				o := w.Act(t.Context(), in, false)
				require.True(t, saved)
				require.Equal(t, save.left, treeOf(t, base))
				if name == "removed" {
					require.Empty(t, o.Failed)
					return
				}
				require.Len(t, o.Failed, 1)
				require.Equal(t, CodeConflict, o.Failed[0].Code, o.Failed[0].Message)
			})
		}
	}
}

// Where a new file has the name meanwhile, both are kept, and that is said.
func TestASaveBeforeARemovalAndANewFile(t *testing.T) {
	w, base, in := prepared(t, tree{}, tree{"f": file("v1")})
	onFork(w, fork{
		rename: func(string, string) error { saves["by a rename"].do(t, base+"/f"); return nil },
		link:   func(string, string) error { plantOne(t, base+"/f", file("new")); return nil },
	})
	o := w.Act(t.Context(), in, false)
	require.Len(t, o.Failed, 1)
	require.Equal(t, CodeConflict, o.Failed[0].Code)
	require.Contains(t, o.Failed[0].Message, in.Steps[0].Temp)
	require.Equal(t, tree{"f": file("new"), strings.TrimPrefix(in.Steps[0].Temp, base+"/"): file("mine")}, treeOf(t, base))
}

// Somebody saves again while what was saved first gets its name back: the newest
// has it.
func TestTwoSavesInTheLastInstant(t *testing.T) {
	if !canSwap(t) {
		return
	}
	w, base := workspace(t, tree{"f": file("v1")})
	n := 0
	onFork(w, fork{exchange: func(string, string) error {
		if n++; n < 3 {
			saves["by a rename"].do(t, base+"/f")
		}
		if n == 2 {
			require.NoError(t, os.WriteFile(base+"/f", []byte("mine again"), 0o644))
		}
		return nil
	}})
	_, err := w.Write(base+"/f", []byte("ours"), "tmp", State{})
	require.ErrorIs(t, err, ErrAppeared)
	require.Equal(t, 3, n)
	require.Equal(t, tree{"f": file("mine again"), ".f.oino-tmp": file("mine")}, treeOf(t, base))
	require.ErrorContains(t, err, base+"/.f.oino-tmp")
}

// What cannot get its name back is kept under the temporary one, and named.
func TestWhatCannotBePutBackIsKept(t *testing.T) {
	if !canSwap(t) {
		return
	}
	w, base, in := prepared(t, tree{"f": file("v0")}, tree{"f": file("v1")})
	n := 0
	failing := fork{exchange: func(string, string) error {
		if n++; n == 1 {
			saves["by a rename"].do(t, base+"/f")
			return nil
		}
		return errors.New("broken")
	}}
	onFork(w, failing)
	o := w.Act(t.Context(), in, false)
	require.Len(t, o.Failed, 1)
	require.Equal(t, CodeConflict, o.Failed[0].Code)
	require.Contains(t, o.Failed[0].Message, in.Steps[0].Temp)
	temp := strings.TrimPrefix(in.Steps[0].Temp, base+"/")
	require.Equal(t, tree{"f": file("v0"), temp: file("mine")}, treeOf(t, base))

	// So is what a kill in that instant leaves, where somebody has gone on since.
	onFork(w, fork{})
	require.NoError(t, os.WriteFile(base+"/f", []byte("v0 and more"), 0o644))
	o = w.Act(t.Context(), in, true)
	require.Len(t, o.Failed, 1)
	require.Contains(t, o.Failed[0].Message, in.Steps[0].Temp)
	require.Equal(t, tree{"f": file("v0 and more"), temp: file("mine")}, treeOf(t, base))
}

// What a kill in the middle of a swap or a removal leaves is told apart.
func TestWhatAKillLeavesUnderATemporaryName(t *testing.T) {
	if !canSwap(t) {
		return
	}
	const temp = "the temporary one"
	for name, c := range map[string]struct {
		before, after tree // the turn
		left, want    tree
		failed        bool
	}{
		"before the swap":                        {tree{"f": file("v0")}, tree{"f": file("v1")}, tree{"f": file("v1"), temp: file("v0")}, tree{"f": file("v0")}, false},
		"before it is finished":                  {tree{"f": file("v0")}, tree{"f": file("v1")}, tree{"f": file("v1"), temp: file("v")}, tree{"f": file("v0")}, false},
		"garbled by a power cut":                 {tree{"f": file("v0")}, tree{"f": file("v1")}, tree{"f": file("v1"), temp: file("\x00\x00")}, tree{"f": file("v0")}, false},
		"after the swap":                         {tree{"f": file("v0")}, tree{"f": file("v1")}, tree{"f": file("v0"), temp: file("v1")}, tree{"f": file("v0")}, false},
		"after it, and the mode was changed":     {tree{"f": file("v0")}, tree{"f": file("v1")}, tree{"f": file("v0"), temp: mfile(0o600, "v1")}, tree{"f": file("v0")}, false},
		"unfinished, and the user has restored":  {tree{"f": file("v0")}, tree{"f": file("v1")}, tree{"f": file("v0"), temp: file("")}, tree{"f": file("v0")}, false},
		"unfinished, and the user has gone on":   {tree{"f": file("v0")}, tree{"f": file("v1")}, tree{"f": file("mine"), temp: file("v")}, tree{"f": file("mine")}, true},
		"a save in the swap":                     {tree{"f": file("v0")}, tree{"f": file("v1")}, tree{"f": file("v0"), temp: file("mine")}, tree{"f": file("mine")}, true},
		"a save in the swap, and one since":      {tree{"f": file("v0")}, tree{"f": file("v1")}, tree{"f": file("mine 2"), temp: file("mine")}, tree{"f": file("mine 2"), temp: file("mine")}, true},
		"a removal":                              {tree{}, tree{"f": file("v1")}, tree{temp: file("v1")}, tree{}, false},
		"a save in the removal":                  {tree{}, tree{"f": file("v1")}, tree{temp: file("mine")}, tree{"f": file("mine")}, true},
		"a save in the removal, and one since":   {tree{}, tree{"f": file("v1")}, tree{"f": file("mine 2"), temp: file("mine")}, tree{"f": file("mine 2"), temp: file("mine")}, true},
		"a removal, and somebody made a new one": {tree{}, tree{"f": file("v1")}, tree{"f": file("mine"), temp: file("v1")}, tree{"f": file("mine")}, true},
	} {
		t.Run(name, func(t *testing.T) {
			w, base, in := prepared(t, c.before, c.after)
			named := strings.TrimPrefix(in.Steps[0].Temp, base+"/")
			logged, err := json.Marshal(in)
			require.NoError(t, err)
			in = decoded(t, logged) // in another process
			require.NoError(t, os.RemoveAll(base+"/f"))
			for name, n := range c.left {
				if name == temp {
					name = named
				}
				plantOne(t, base+"/"+name, n)
			}
			o := w.Act(t.Context(), in, true)
			got := treeOf(t, base)
			if n, ok := got[named]; ok {
				delete(got, named)
				got[temp] = n
				require.Contains(t, o.Failed[0].Message, in.Steps[0].Temp)
			}
			require.Equal(t, c.want, got)
			require.Equal(t, c.failed, len(o.Failed) > 0, o.Failed)
		})
	}
}

// A mode that somebody gives our new file, while what he has saved is put back,
// does not make it his.
func TestASaveAndAModeInTheLastInstant(t *testing.T) {
	if !canSwap(t) {
		return
	}
	w, base, in := prepared(t, tree{"f": file("v0")}, tree{"f": file("v1")})
	temp, n := strings.TrimPrefix(in.Steps[0].Temp, base+"/"), 0
	onFork(w, fork{
		exchange: func(string, string) error {
			if n++; n == 1 {
				saves["in place"].do(t, base+"/f")
			}
			return nil
		},
		open: func(name string, flag int) error {
			if name == temp && n == 1 && flag&os.O_WRONLY == 0 {
				require.NoError(t, os.Chmod(base+"/f", 0o755))
			}
			return nil
		},
	})
	o := w.Act(t.Context(), in, false)
	require.Len(t, o.Failed, 1)
	require.Equal(t, CodeConflict, o.Failed[0].Code)
	require.Equal(t, saves["in place"].left, treeOf(t, base))
}

// What a write that was cut off leaves is told apart as well.
func TestSweepTellsWhoseItIs(t *testing.T) {
	if !canSwap(t) {
		return
	}
	v0, v1 := fileState(0o644, "v0"), fileState(0o644, "v1 of the agent")
	for name, c := range map[string]struct{ path, temp, wantPath, wantTemp string }{
		"unfinished":              {"v0", "v1 of", "v0", ""},
		"empty":                   {"v0", "", "v0", ""},
		"finished":                {"v0", "v1 of the agent", "v0", ""},
		"swapped":                 {"v1 of the agent", "v0", "v1 of the agent", ""},
		"a save":                  {"v1 of the agent", "mine", "mine", ""},
		"a save, and one since":   {"mine 2", "mine", "mine 2", "mine"},
		"no swap, and a save":     {"mine", "v1 of the agent", "mine", ""},
		"longer than the agent's": {"v1 of the agent", "v1 of the agent and me", "v1 of the agent and me", ""},
	} {
		w, base := workspace(t, tree{"f": file(c.path)})
		keepText(t, w, "v1 of the agent")
		p, err := w.locate(base + "/f")
		require.NoError(t, err)
		temp := tempNear(p.rel, "tmp")
		plantOne(t, base+"/"+temp, file(c.temp))
		kept, err := w.Sweep(base+"/f", "tmp", v1, []State{v0})
		require.NoError(t, err, name)
		want := tree{"f": file(c.wantPath)}
		if c.wantTemp != "" {
			want[temp] = file(c.wantTemp)
			require.Equal(t, base+"/"+temp, kept, name)
		} else {
			require.Empty(t, kept, name)
		}
		require.Equal(t, want, treeOf(t, base), name)
	}
}

// What was there and cannot be removed gets its name back: the path failed, and
// is as it was.
func TestWhatCannotBeRemovedComesBack(t *testing.T) {
	if !canSwap(t) {
		return
	}
	w, base, in := prepared(t, tree{"f": file("v0")}, tree{"f": file("v1")})
	n := 0
	onFork(w, fork{remove: func(string) error {
		if n++; n <= 2 {
			return errors.New("broken")
		}
		return nil
	}})
	o := w.Act(t.Context(), in, false)
	require.Len(t, o.Failed, 1)
	require.Equal(t, CodeIO, o.Failed[0].Code)
	require.Equal(t, tree{"f": file("v1")}, treeOf(t, base))
}

// A file system that does not swap names gets a rename.
func TestADiskThatDoesNotSwap(t *testing.T) {
	a, b := tree{"f": file("v0"), "l": link("x")}, tree{"f": file("v1"), "l": file("now a file")}
	w, base := workspace(t, a)
	r := turn(t, w, base, a, b)
	onFork(w, fork{exchange: func(string, string) error { return errors.ErrUnsupported }})
	_, failed := r.run(Keep)
	require.Empty(t, failed)
	require.Equal(t, a, treeOf(t, base))
}
