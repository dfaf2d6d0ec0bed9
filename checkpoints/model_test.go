package checkpoints

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/oino-dev/oinod/checkpoints/disk/disktest"
)

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
		s.fs = disktest.New()
		u.plantOn(t, s.fs.Root("/w"))
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
