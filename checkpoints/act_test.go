package checkpoints

import (
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// rewind plays a session's part: it knows what the turn found and left, and
// brings it back.
type rewind struct {
	t       testing.TB
	w       *Workspace
	base    string
	touched []Touched
}

// turn captures every path of a before it becomes as b says, and notes what
// was left. Paths that only hold others are not touched, as in a session.
func turn(t testing.TB, w *Workspace, base string, a, b tree) *rewind {
	t.Helper()
	r := &rewind{t: t, w: w, base: base}
	paths := map[string]bool{}
	for _, name := range sortedNames(a) {
		paths[name] = true
	}
	for name := range b {
		paths[name] = true
	}
	for _, name := range sortedNames(mapOf(paths)) {
		c, err := w.Capture(base + "/" + name)
		require.NoError(t, err)
		r.touched = append(r.touched, Touched{Path: base + "/" + name, Target: c.State, Parents: c.Parents})
	}
	become(t, base, b)
	for i := range r.touched {
		r.touched[i].Left = w.Look(r.touched[i].Path).State
	}
	return r
}

func mapOf(set map[string]bool) tree {
	tr := tree{}
	for name := range set {
		tr[name] = ""
	}
	return tr
}

// become makes base exactly the tree.
func become(t testing.TB, base string, tr tree) {
	t.Helper()
	entries, err := os.ReadDir(base)
	require.NoError(t, err)
	for _, e := range entries {
		require.NoError(t, os.RemoveAll(base+"/"+e.Name()))
	}
	tr.plant(t, base)
}

// plan looks and decides.
func (r *rewind) plan(on OnConflict) Plan {
	paths := make([]string, len(r.touched))
	for i, t := range r.touched {
		paths[i] = t.Path
	}
	for i, now := range r.w.LookAll(paths) {
		r.touched[i].Now = now
	}
	return NewPlan(r.touched, on, func(s State) ([]byte, error) { return r.w.blobs.Get(s.Digest, 0) })
}

// run carries the plan out and returns what a redo needs, and what failed.
func (r *rewind) run(on OnConflict) (redo *rewind, failed []Failure) {
	r.t.Helper()
	plan := r.plan(on)
	in, unprepared, err := r.w.Prepare(r.t.Context(), plan)
	require.NoError(r.t, err)
	failed = append(plan.Failed, unprepared...)
	redo = &rewind{t: r.t, w: r.w, base: r.base}
	above := map[string][]Parent{}
	for _, s := range in.Steps {
		above[s.Path] = r.w.Parents(s.Path)
	}
	out := r.w.Act(r.t.Context(), in, false)
	done := map[string]bool{}
	for _, path := range out.Done {
		done[path] = true
	}
	for _, s := range in.Steps {
		if done[s.Path] {
			redo.touched = append(redo.touched, Touched{
				Path: s.Path, Target: s.Saved, Left: s.To, Parents: above[s.Path],
				Parts: []Part{{Before: s.Saved, After: s.To}},
			})
		}
	}
	return redo, append(failed, out.Failed...)
}

// Every kind of thing comes back from every other kind, and a redo brings the
// other back again; twice, and with something beside it that stays.
func TestEveryKindComesBackFromEveryKind(t *testing.T) {
	kinds := map[string]tree{
		"absent":     {},
		"file":       {"p": file("one")},
		"other file": {"p": file("two")},
		"same bytes": {"p": mfile(0o755, "one")},
		"empty":      {"p": mfile(0o600, "")},
		"suid":       {"p": mfile(0o4711, "one")},
		"link":       {"p": link("nowhere")},
		"other link": {"p": link("beside")},
		"dir":        {"p": dir()},
		"closed dir": {"p": mdir(0o555)},
		"full dir":   {"p": dir(), "p/a": file("a"), "p/s": dir(), "p/s/b": mfile(0o600, "b")},
		"other dir":  {"p": mdir(0o700), "p/a": link("x"), "p/s": file("s"), "p/n": dir()},
		"sealed":     {"p": mdir(0o500), "p/a": mfile(0o400, "a")},
	}
	for an, a := range kinds {
		for bn, b := range kinds {
			t.Run(an+" to "+bn, func(t *testing.T) {
				t.Parallel()
				a, b := with(a, tree{"beside": file("stays")}), with(b, tree{"beside": file("stays")})
				w, base := workspace(t, a)
				r := turn(t, w, base, a, b)
				for range 2 {
					redo, failed := r.run(Keep)
					require.Empty(t, failed)
					require.Equal(t, a, treeOf(t, base))
					r, failed = redo.run(Keep)
					require.Empty(t, failed)
					require.Equal(t, b, treeOf(t, base))
				}
			})
		}
	}
}

func with(trees ...tree) tree {
	all := tree{}
	for _, tr := range trees {
		maps.Copy(all, tr)
	}
	return all
}

// What is not in a turn's paths is implied by them: directories that came or
// went with a file are no paths of their own.
func TestWholeTreesComeBack(t *testing.T) {
	long := strings.Repeat("n", 200)
	for name, c := range map[string]struct{ a, b tree }{
		"a move":             {tree{"a": file("x")}, tree{"b": file("x")}},
		"a chain of moves":   {tree{"a": file("1"), "b": file("2"), "c": file("3")}, tree{"b": file("1"), "c": file("2"), "d": file("3")}},
		"a swap":             {tree{"a": file("1"), "b": mfile(0o755, "2")}, tree{"a": mfile(0o755, "2"), "b": file("1")}},
		"a swap of kinds":    {tree{"a": file("1"), "b/x": file("2")}, tree{"b": file("1"), "a/x": file("2")}},
		"a swap with a link": {tree{"a": link("b"), "b/x": file("2")}, tree{"b": link("a"), "a/x": file("2")}},
		"new directories":    {tree{}, tree{"d/e/f": file("x"), "d/g": file("y")}},
		"gone directories":   {tree{"d/e/f": file("x"), "d/g": file("y"), "m": mdir(0o750), "m/n": mdir(0o2700), "m/n/o": file("z")}, tree{"k": file("k")}},
		"a file above":       {tree{"d/e/f": file("x"), "d/g": file("y")}, tree{"d": file("was a directory")}},
		"a link above":       {tree{"d/e/f": file("x"), "real/e/f": file("other")}, tree{"d": link("real"), "real/e/f": file("other")}},
		"a directory below":  {tree{"d": file("was a file")}, tree{"d/e/f": file("x"), "d/g/h": link("y")}},
		"deep and mixed":     {tree{"a/b": file("1"), "c": link("a"), "d/e": dir()}, tree{"a": link("c"), "c/b/d": file("2"), "d/e": file("3"), "f/g": link("h")}},
		"a closed directory": {tree{"d": mdir(0o555), "d/f": mfile(0o444, "v0")}, tree{"d": mdir(0o755), "d/f": file("v1")}},
		"closed all the way": {tree{"d": mdir(0o500), "d/e": mdir(0o500), "d/e/f": mfile(0o400, "x")}, tree{"d": mdir(0o500), "d/e": mdir(0o500), "d/e/f": mfile(0o400, "y"), "d/e/g": file("g")}},
		"odd names": {
			tree{" a ": file("1"), "q'\"\n\t": file("2"), "[id].tsx": file("3"), "i.tsx": file("4"), ":(top)x": file("5"), "-n": file("6"), "日本/語": file("7"), "😀": link(" a "), "e\u0301": file("8"), "\u00e9": file("9"), long: file("10"), ".hid": file("11"), "..x": file("12"), "a\\b": file("13")},
			tree{" a ": file("10"), "q'\"\n\t": link("-n"), "[id].tsx/x": file("3"), "i.tsx": file("40"), "日本": file("7"), "\u00e9": file("90"), long: file("100"), long[:199] + "m": file("new"), "...": file("new")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, base := workspace(t, c.a)
			before := treeOf(t, base)
			r := turn(t, w, base, c.a, c.b)
			after := treeOf(t, base)
			for range 2 {
				redo, failed := r.run(Keep)
				require.Empty(t, failed)
				require.Equal(t, before, treeOf(t, base))
				r, failed = redo.run(Keep)
				require.Empty(t, failed)
				require.Equal(t, after, treeOf(t, base))
			}
		})
	}
}

func TestHundredsOfFilesComeBack(t *testing.T) {
	a, b := tree{}, tree{}
	for i := range 300 {
		name := fmt.Sprintf("d%d/e%d/f%d", i%10, i%30, i)
		a[name] = file(fmt.Sprint("before ", i))
		b[name] = file(fmt.Sprint("after ", i))
		if i%7 == 0 {
			delete(a, name)
		}
		if i%11 == 0 {
			delete(b, name)
		}
	}
	w, base := workspace(t, a)
	before := treeOf(t, base)
	r := turn(t, w, base, a, b)
	after := treeOf(t, base)
	redo, failed := r.run(Keep)
	require.Empty(t, failed)
	require.Equal(t, before, treeOf(t, base))
	_, failed = redo.run(Keep)
	require.Empty(t, failed)
	require.Equal(t, after, treeOf(t, base))
}
