package checkpoints

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/oino-dev/oinod/checkpoints/blobs"
)

var (
	v0     = fileState(0o644, "one\ntwo\nthree\nfour\nfive\n")
	v1     = fileState(0o644, "ONE\ntwo\nthree\nfour\nfive\n")
	mine   = fileState(0o644, "ONE\ntwo\nthree\nfour\nfive\nmine\n")
	clash  = fileState(0o644, "uno\ntwo\nthree\nfour\nfive\n")
	merged = fileState(0o644, "one\ntwo\nthree\nfour\nfive\nmine\n")
	exec0  = fileState(0o755, "one\ntwo\nthree\nfour\nfive\n")
	exec1  = fileState(0o755, "ONE\ntwo\nthree\nfour\nfive\n")
	none   = State{Kind: Absent}
	lnk    = State{Kind: Symlink, Target: "x"}
	lnk2   = State{Kind: Symlink, Target: "y"}
	dir0   = State{Kind: Dir, Mode: 0o755}
	dir7   = State{Kind: Dir, Mode: 0o700}
	fifoS  = State{Kind: Uncovered, Reason: NotRegular}
	unread = State{Kind: Uncovered, Reason: Unreadable}
	big    = State{Kind: Uncovered, Reason: TooLarge, Mode: 0o644, Size: 9, Digest: digestOf([]byte("large one"))}
	bigNow = State{Kind: File, Mode: 0o644, Size: 9, Digest: digestOf([]byte("large one"))}
	big2   = State{Kind: Uncovered, Reason: TooLarge, Mode: 0o644, Size: 9, Digest: digestOf([]byte("large two"))}
	skip   = State{Kind: Uncovered, Reason: Excluded}
)

// texts reads the states above.
func texts(s State) ([]byte, error) {
	for _, text := range []string{
		"one\ntwo\nthree\nfour\nfive\n", "ONE\ntwo\nthree\nfour\nfive\n", "ONE\ntwo\nthree\nfour\nfive\nmine\n",
		"uno\ntwo\nthree\nfour\nfive\n", "one\ntwo\nthree\nfour\nfive\nmine\n", "large one", "a\x00b", "c\x00d", "e\x00f",
	} {
		if digestOf([]byte(text)) == s.Digest {
			return []byte(text), nil
		}
	}
	return nil, &blobs.Error{Digest: s.Digest, Err: blobs.ErrMissing}
}

// never is for plans that need no contents.
func never(State) ([]byte, error) { panic("a plan without a merge reads nothing") }

// what a plan says of one path, in a word.
func verdict(p Plan, path string) string {
	for _, s := range p.Steps {
		if s.Path == path {
			if s.Merged {
				return "merge"
			}
			return "step"
		}
	}
	for _, f := range p.Failed {
		if f.Path == path {
			return string(f.Code)
		}
	}
	if slices.Contains(p.Settled, path) {
		return "settled"
	}
	return "forgotten"
}

// The decision table, row by row: what is said under keep, merge, overwrite.
func TestTheDecisionTable(t *testing.T) {
	for _, c := range []struct {
		name              string
		target, left, now State
		seam              bool
		keep, mrg, over   string
	}{
		// Row 1: there is nothing to do, whoever did it.
		{"as it was", v0, v1, v0, false, "settled", "settled", "settled"},
		{"as it was, over a seam", v0, v1, v0, true, "settled", "settled", "settled"},
		{"still absent", none, v1, none, false, "settled", "settled", "settled"},
		{"the link again", lnk, v1, lnk, false, "settled", "settled", "settled"},
		{"too large and the same", big, v1, bigNow, false, "settled", "settled", "settled"},
		// Row 2: under every choice, and before all that follows.
		{"never kept", skip, v1, v1, false, "not_covered", "not_covered", "not_covered"},
		{"never read", unread, v1, v1, false, "not_covered", "not_covered", "not_covered"},
		{"too large", big, v1, v1, false, "not_covered", "not_covered", "not_covered"},
		{"too large, another now", big, v1, mine, true, "not_covered", "not_covered", "not_covered"},
		{"was a pipe, and is", fifoS, fifoS, fifoS, false, "not_covered", "not_covered", "not_covered"},
		{"nobody looked", State{}, v1, v1, false, "not_covered", "not_covered", "not_covered"},
		// Row 3: under every choice as well.
		{"a pipe now", v0, v1, fifoS, false, "kind_changed", "kind_changed", "kind_changed"},
		{"a pipe left and now", v0, fifoS, fifoS, false, "kind_changed", "kind_changed", "kind_changed"},
		{"a pipe in the place of a new file", none, v1, fifoS, false, "kind_changed", "kind_changed", "kind_changed"},
		{"not to be read", v0, v1, unread, false, "io", "io", "io"},
		{"not to be read, left so", v0, unread, unread, false, "io", "io", "io"},
		// Row 4: as the agent left it.
		{"edited", v0, v1, v1, false, "step", "step", "step"},
		{"made", none, v1, v1, false, "step", "step", "step"},
		{"removed", v0, none, none, false, "step", "step", "step"},
		{"made a link", v0, lnk, lnk, false, "step", "step", "step"},
		{"retargeted", lnk, lnk2, lnk2, false, "step", "step", "step"},
		{"made a directory", v0, dir0, dir0, false, "step", "step", "step"},
		{"chmod", v0, exec0, exec0, false, "step", "step", "step"},
		{"directory closed", dir0, dir7, dir7, false, "step", "step", "step"},
		{"after not known", v0, State{}, mine, false, "step", "step", "step"},
		{"after not known, gone", v0, State{}, none, false, "step", "step", "step"},
		{"after not known, made", none, State{}, mine, false, "step", "step", "step"},
		{"left too large", v0, big, bigNow, false, "step", "step", "step"},
		{"large to large", bigNow, big2, big2, false, "step", "step", "step"},
		// Row 5: a conflict.
		{"edited after", v0, v1, mine, false, "conflict", "merge", "step"},
		{"edited in the same place", v0, v1, clash, false, "conflict", "conflict", "step"},
		{"new file edited", none, v1, mine, false, "conflict", "conflict", "step"},
		{"edited and then removed", v0, v1, none, false, "conflict", "conflict", "step"},
		{"removed and made again", v0, none, mine, false, "conflict", "conflict", "step"},
		{"chmod by the user", v0, v1, exec1, false, "conflict", "merge", "step"},
		{"made a link by the user", v0, v1, lnk, false, "conflict", "conflict", "step"},
		{"retargeted by both", lnk, lnk2, State{Kind: Symlink, Target: "z"}, false, "conflict", "conflict", "step"},
		{"a seam before the same bytes", v0, v1, v1, true, "conflict", "step", "step"},
		{"a seam, and an unknown after", v0, State{}, v1, true, "conflict", "step", "step"},
		{"an after that was not kept", v0, unread, v1, false, "conflict", "conflict", "step"},
		{"an after that was skipped", v0, skip, v1, false, "conflict", "conflict", "step"},
		{"left too large, edited", v0, big, v1, false, "conflict", "conflict", "step"},
		{"a directory by the user", v0, v1, dir0, false, "conflict", "conflict", "step"},
		{"a directory closed by the user", dir0, State{Kind: Dir, Mode: 0o711}, dir7, false, "conflict", "conflict", "step"},
	} {
		for on, want := range map[OnConflict]string{Keep: c.keep, Merge: c.mrg, Overwrite: c.over, "": c.keep} {
			read := texts
			if on != Merge {
				read = never
			}
			p := NewPlan([]Touched{{
				Path: "/w/p", Target: c.target, Left: c.left, Now: Sight{State: c.now, Err: "permission denied"}, Seam: c.seam,
				Parts: []Part{{Before: c.target, After: c.left}},
			}}, on, read)
			require.Equal(t, want, verdict(p, "/w/p"), "%s, %s: %+v", c.name, on, p.Failed)
			for _, f := range p.Failed {
				require.NotEmpty(t, f.Message)
			}
			for _, s := range p.Steps {
				require.True(t, s.From.Same(c.now) || c.now == big2)
				if !s.Merged {
					require.Equal(t, c.target, s.To)
				}
			}
		}
	}
}

// Whatever the states are: no choice touches what is not known or no file,
// only overwrite and merge touch what is not as it was left, and settled is
// only what is so.
func TestNoPlanTouchesWhatItMayNot(t *testing.T) {
	states := []State{{}, v0, v1, mine, exec0, none, lnk, lnk2, dir0, dir7, fifoS, unread, big, bigNow, skip}
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) State { return rapid.SampledFrom(states).Draw(t, name) }
		c := Touched{Path: "/w/p", Target: draw("target"), Left: draw("left"), Seam: rapid.Bool().Draw(t, "seam")}
		c.Now.State = draw("now")
		if c.Now.State.Kind == Unknown {
			c.Now.State = none
		}
		c.Parts = []Part{{Before: c.Target, After: c.Left}}
		on := rapid.SampledFrom([]OnConflict{Keep, Merge, Overwrite}).Draw(t, "on")
		p := NewPlan([]Touched{c}, on, texts)
		if n := len(p.Steps) + len(p.Failed) + len(p.Settled); n != 1 {
			t.Fatalf("%d answers", n)
		}
		same := c.Now.State.Same(c.Target)
		if (len(p.Settled) == 1) != same {
			t.Fatalf("settled: %v", p.Settled)
		}
		if len(p.Steps) == 0 {
			return
		}
		if c.Target.Kind == Uncovered || c.Target.Kind == Unknown || c.Now.State.Kind == Uncovered && c.Now.State.Reason != TooLarge {
			t.Fatal("a step over what is not known")
		}
		ours := !c.Seam && (c.Left.Kind == Unknown || c.Left.Same(c.Now.State))
		if on == Keep && !ours {
			t.Fatal("a step over somebody else's change")
		}
	})
}

// at makes a Touched whose path was left as it is now.
func at(path string, target, now State, parents ...Parent) Touched {
	return Touched{Path: path, Target: target, Left: now, Now: Sight{State: now}, Parents: parents}
}

func (t Touched) holding(below ...string) Touched {
	t.Now.Below = below
	return t
}

func (t Touched) blockedBy(path string, k Kind) Touched {
	t.Now.Blocked, t.Now.BlockedBy = path, k
	return t
}

func (t Touched) left(s State) Touched { t.Left = s; return t }

func TestPathsThatDependOnEachOther(t *testing.T) {
	gone := func(paths ...string) (ps []Parent) {
		for _, p := range paths {
			ps = append(ps, Parent{Path: p, Absent: true})
		}
		return ps
	}
	for _, c := range []struct {
		name    string
		touched []Touched
		want    map[string]string
	}{
		{"a directory gives way to a file when all in it goes",
			[]Touched{at("/w/d", v0, dir0).holding("/w/d/a", "/w/d/s", "/w/d/s/b"), at("/w/d/a", none, v1), at("/w/d/s/b", none, v1, gone("/w/d/s")...)},
			map[string]string{"/w/d": "step", "/w/d/a": "step", "/w/d/s/b": "step"}},
		{"not with a user's file in it, and the rest goes all the same",
			[]Touched{at("/w/d", v0, dir0).holding("/w/d/a", "/w/d/u"), at("/w/d/a", none, v1)},
			map[string]string{"/w/d": "kind_changed", "/w/d/a": "step"}},
		{"not with a user's directory in it, empty as it may be",
			[]Touched{at("/w/d", v0, dir0).holding("/w/d/a", "/w/d/u"), at("/w/d/a", none, v1, gone("/w/d")...)},
			map[string]string{"/w/d": "kind_changed"}},
		{"not when something in it is a conflict",
			[]Touched{at("/w/d", v0, dir0).holding("/w/d/a"), at("/w/d/a", none, v1).left(v0)},
			map[string]string{"/w/d": "kind_changed", "/w/d/a": "conflict"}},
		{"nor when something in it is as it should be",
			[]Touched{at("/w/d", v0, dir0).holding("/w/d/a"), at("/w/d/a", v1, v1)},
			map[string]string{"/w/d": "kind_changed", "/w/d/a": "settled"}},
		{"nor when there is more in it than was listed",
			[]Touched{{Path: "/w/d", Target: v0, Left: dir0, Now: Sight{State: dir0, BelowMore: true}}},
			map[string]string{"/w/d": "kind_changed"}},
		{"a failure goes up level by level",
			[]Touched{at("/w/d", v0, dir0).holding("/w/d/e", "/w/d/e/u"), at("/w/d/e", none, dir0).holding("/w/d/e/u")},
			map[string]string{"/w/d": "kind_changed", "/w/d/e": "kind_changed"}},
		{"a new directory with something in it stays",
			[]Touched{at("/w/d", none, dir0).holding("/w/d/u")},
			map[string]string{"/w/d": "kind_changed"}},
		{"only its mode changes: what is in it is of no matter",
			[]Touched{at("/w/d", dir0, dir7).holding("/w/d/u")},
			map[string]string{"/w/d": "step"}},
		{"a file is a directory again and holds what it held",
			[]Touched{at("/w/d", dir0, v1), at("/w/d/a", v0, none).blockedBy("/w/d", File)},
			map[string]string{"/w/d": "step", "/w/d/a": "step"}},
		{"the directory was no path of its own: it comes with what it holds",
			[]Touched{at("/w/d", none, v1), at("/w/d/a", v0, none).blockedBy("/w/d", File)},
			map[string]string{"/w/d": "step", "/w/d/a": "step"}},
		{"and what blocks it is the user's",
			[]Touched{at("/w/d", dir0, v1).left(v0), at("/w/d/a", v0, none).blockedBy("/w/d", File)},
			map[string]string{"/w/d": "conflict", "/w/d/a": "kind_changed"}},
		{"or was never touched",
			[]Touched{at("/w/d/a", v0, none).blockedBy("/w/d", File)},
			map[string]string{"/w/d/a": "kind_changed"}},
		{"a link in the place of a directory leads nowhere we go",
			[]Touched{at("/w/d/a", v0, none).left(v1).blockedBy("/w/d", Symlink)},
			map[string]string{"/w/d/a": "outside_roots"}},
		{"unless the plan takes it away",
			[]Touched{at("/w/d", dir0, lnk), at("/w/d/a", v0, none).blockedBy("/w/d", Symlink)},
			map[string]string{"/w/d": "step", "/w/d/a": "step"}},
		{"what is not seen behind a link is not known to be gone",
			[]Touched{at("/w/d/a", none, none).left(v1).blockedBy("/w/d", Symlink)},
			map[string]string{"/w/d/a": "outside_roots"}},
		{"unless the plan takes the link away",
			[]Touched{at("/w/d", dir0, lnk), at("/w/d/a", none, none).left(v1).blockedBy("/w/d", Symlink)},
			map[string]string{"/w/d": "step", "/w/d/a": "settled"}},
		{"a directory that should be gone and holds what comes back is as it should be",
			[]Touched{at("/w/d", none, dir0), at("/w/d/a", v0, none)},
			map[string]string{"/w/d": "settled", "/w/d/a": "step"}},
		{"a redo takes a directory that came with a file for none",
			[]Touched{at("/w/d", v0, dir0).left(none).holding("/w/d/a"), at("/w/d/a", none, v1, gone("/w/d")...)},
			map[string]string{"/w/d": "step", "/w/d/a": "step"}},
		{"but not a user's directory",
			[]Touched{at("/w/d", v0, dir0).left(none)},
			map[string]string{"/w/d": "conflict"}},
		{"two that cannot both be",
			[]Touched{at("/w/d", v0, v1), at("/w/d/a", v0, none).blockedBy("/w/d", File)},
			map[string]string{"/w/d": "step", "/w/d/a": "kind_changed"}},
		{"two that cannot both be, with nothing there",
			[]Touched{at("/w/d", v0, none), at("/w/d/a/b", v0, none)},
			map[string]string{"/w/d": "step", "/w/d/a/b": "kind_changed"}},
		{"a swap of a directory and a file",
			[]Touched{at("/w/a", v0, dir0).holding("/w/a/x"), at("/w/a/x", none, v1), at("/w/b", dir0, v1), at("/w/b/x", v0, none).blockedBy("/w/b", File)},
			map[string]string{"/w/a": "step", "/w/a/x": "step", "/w/b": "step", "/w/b/x": "step"}},
	} {
		for _, touched := range [][]Touched{c.touched, reversed(c.touched)} {
			p := NewPlan(touched, Keep, never)
			for path, want := range c.want {
				require.Equal(t, want, verdict(p, path), "%s: %s %+v", c.name, path, p.Failed)
			}
		}
	}
}

func reversed[T any](s []T) []T {
	s = slices.Clone(s)
	slices.Reverse(s)
	return s
}

func TestRemovalsComeLastAndInnermostFirst(t *testing.T) {
	p := NewPlan([]Touched{
		at("/w/d", none, dir0).holding("/w/d/e", "/w/d/e/f"), at("/w/z", v0, v1), at("/w/d/e", none, dir0).holding("/w/d/e/f"),
		at("/w/d/e/f", none, v1), at("/w/a", v0, none), at("/w/b", none, v0),
	}, Keep, never)
	var order []string
	for _, s := range p.Steps {
		order = append(order, s.Path)
	}
	require.Equal(t, []string{"/w/z", "/w/a", "/w/d/e/f", "/w/d/e", "/w/d", "/w/b"}, order)
}

func TestMergeGoesTurnByTurn(t *testing.T) {
	text := func(s string) State { return fileState(0o644, s) }
	all := map[blobs.Digest]string{}
	read := func(s State) ([]byte, error) {
		content, ok := all[s.Digest]
		if !ok {
			return nil, errors.New("not kept")
		}
		return []byte(content), nil
	}
	state := func(s string) State {
		all[digestOf([]byte(s))] = s
		return text(s)
	}
	a0 := state("1\n2\n3\n4\n5\n")
	a1 := state("ONE\n2\n3\n4\n5\n")            // the agent
	u1 := state("ONE\n2\nmine\n3\n4\n5\n")      // the user
	a2 := state("ONE\n2\nmine\n3\n4\nFIVE\n")   // the agent
	u2 := state("ONE\n2\nmine\n3\nme\n4\nFIVE") // the user, no newline at the end
	parts := []Part{{Before: u1, After: a2}, {Before: a0, After: a1}}

	merge := func(now State, parts ...Part) (Plan, string) {
		p := NewPlan([]Touched{{Path: "/w/p", Target: parts[len(parts)-1].Before, Left: parts[0].After, Seam: true, Now: Sight{State: now}, Parts: parts}}, Merge, read)
		return p, verdict(p, "/w/p")
	}
	p, v := merge(a2, parts...)
	require.Equal(t, "merge", v)
	require.Equal(t, "1\n2\nmine\n3\n4\n5\n", string(p.Contents["/w/p"]))
	require.Equal(t, text("1\n2\nmine\n3\n4\n5\n"), p.Steps[0].To)

	_, v = merge(u2, parts...) // the last line is the agent's and the user's
	require.Equal(t, "conflict", v)

	p, v = merge(a2, Part{Before: a0, After: State{}}) // all of it counts as the agent's
	require.Equal(t, "step", v, "that is a plain restore")
	require.Equal(t, a0, p.Steps[0].To)
	require.Empty(t, p.Contents)

	p, v = merge(a2, Part{Before: u1, After: a2}, Part{Before: a0, After: State{}}) // an unknown after fits what the next one found
	require.Equal(t, "step", v)
	require.Equal(t, a0, p.Steps[0].To)

	// The user took the agent's part out already: nothing is left to do.
	u3 := state("1\n2\nmine\n3\n4\n5\n")
	p, v = merge(u3, Part{Before: a0, After: a1})
	require.Equal(t, "merge", v)
	require.True(t, p.Steps[0].To.Same(u3))
	require.Empty(t, p.Contents)

	// Contents that are gone fail the path, and only it.
	delete(all, a1.Digest)
	p, v = merge(u1, Part{Before: a0, After: a1})
	require.Equal(t, string(CodeIO), v)
	require.Contains(t, p.Failed[0].Message, "not kept")
}

func TestMergeOfModesAndOfWhatIsNoText(t *testing.T) {
	bin := func(s string) State { return fileState(0o644, s) }
	mode := func(s State, m uint32) State { s.Mode = m; return s }
	for _, c := range []struct {
		before, after, now State
		want               string
		to                 State
	}{
		{v0, v1, mode(mine, 0o600), "merge", mode(merged, 0o600)},
		{v0, mode(v1, 0o755), mode(mine, 0o755), "merge", merged},
		{v0, mode(v1, 0o755), mode(mine, 0o700), "conflict", State{}},
		{mode(v0, 0o755), mode(v0, 0o644), mine, "merge", mode(mine, 0o755)},
		{v0, mode(v0, 0o755), mode(v0, 0o644), "settled", State{}},
		{v0, mode(v1, 0o600), mode(v0, 0o600), "step", v0},
		{bin("a\x00b"), bin("c\x00d"), bin("e\x00f"), "conflict", State{}},
		{bin("a\x00b"), bin("c\x00d"), mode(bin("c\x00d"), 0o600), "merge", mode(bin("a\x00b"), 0o600)},
		{lnk, v1, mine, "conflict", State{}},
		{lnk, v1, mode(v1, 0o600), "step", lnk},
		{dir0, dir7, State{Kind: Dir, Mode: 0o711}, "conflict", State{}},
	} {
		p := NewPlan([]Touched{{Path: "/w/p", Target: c.before, Left: c.after, Now: Sight{State: c.now}, Parts: []Part{{c.before, c.after}}}}, Merge, texts)
		require.Equal(t, c.want, verdict(p, "/w/p"), "%+v: %+v", c, p.Failed)
		if len(p.Steps) > 0 {
			require.Equal(t, c.to, p.Steps[0].To)
		}
	}
}

func TestStatesComeBackFromJSON(t *testing.T) {
	for _, s := range []State{{}, v0, exec0, none, lnk, dir0, fifoS, unread, big, {Kind: Symlink, Target: "a\xffb"}, {Kind: Symlink, Target: "a\nb"}} {
		b, err := json.Marshal(s)
		require.NoError(t, err)
		var back State
		require.NoError(t, json.Unmarshal(b, &back))
		require.Equal(t, s, back, "%s", b)
	}
	var s State
	require.Error(t, json.Unmarshal([]byte(`{"kind":"portal"}`), &s))
}

func TestSameIsAboutWhatIsKnown(t *testing.T) {
	require.True(t, big.Same(bigNow))
	require.True(t, bigNow.Same(big))
	require.True(t, big.Same(big))
	for _, s := range []State{{}, fifoS, unread, skip, {Kind: Uncovered, Reason: TooLarge}} {
		require.False(t, s.Same(s), fmt.Sprint(s))
	}
}

func BenchmarkPlan(b *testing.B) {
	var touched []Touched
	for i := range 10_000 {
		path := fmt.Sprintf("/w/project/src/d%d/e%d/f%d", i%10, i%100, i)
		switch i % 3 {
		case 0:
			touched = append(touched, at(path, v0, v1))
		case 1:
			touched = append(touched, at(path, none, v1, Parent{Path: path[:len(path)-3], Absent: true}))
		default:
			touched = append(touched, at(path, v0, none))
		}
	}
	for b.Loop() {
		if p := NewPlan(touched, Keep, never); len(p.Steps) != len(touched) {
			b.Fatal(p.Failed)
		}
	}
}
