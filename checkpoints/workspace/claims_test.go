package workspace

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oino-dev/oinod/checkpoints"
	"github.com/oino-dev/oinod/checkpoints/disk/disktest"
)

// tool writes a file as a session's tool does, and claims it.
func tool(t *testing.T, w *Workspace, name, content string) {
	t.Helper()
	dir := w.Roots()[0]
	require.NoError(t, w.Claim(t.Context(), func() ([]Claim, error) {
		before := stateIn(scan(t, dir, nil), name)
		put(t, dir, map[string]string{name: content})
		return []Claim{{filepath.Join(dir, name), before, scan(t, dir, nil)[name]}}, nil
	}))
}

// story is what a session is told of a path: who brought it to which content.
func storyOf(t *testing.T, w *Workspace, from, to Mark, name string) []Link {
	t.Helper()
	all, err := w.Changes(t.Context(), from, to)
	require.NoError(t, err)
	for _, c := range all {
		if c.Path == filepath.Join(w.Roots()[0], name) {
			return c.Links
		}
	}
	return nil
}

func TestWhatASessionClaimedIsItsOwn(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, map[string]string{"x": "0", "y": "0"})
	a := onDisk(disktest.New(), nil)
	one, two := a.open(t, "one", dir), a.open(t, "two", dir)
	state := func(content string) checkpoints.State {
		put(t, dir, map[string]string{"../state": content})
		return scan(t, filepath.Dir(dir), func(rel string, _ os.DirEntry) bool { return rel != "state" })["state"]
	}
	s0, s1, s2, s3 := state("0"), state("1"), state("2"), state("3")
	start := captured(t, two, CaptureOptions{Begin: true})
	captured(t, one, CaptureOptions{Begin: true})

	tool(t, one, "x", "1") // all of it is the other's
	tool(t, one, "y", "1")
	put(t, dir, map[string]string{"y": "2"}) // a shell, nobody knows whose
	tool(t, two, "y", "3")
	end := captured(t, two, CaptureOptions{End: true})
	require.Equal(t, []Link{{Owner: "one", Before: s0, After: s1}}, storyOf(t, two, start.Mark, end.Mark, "x"))
	require.Equal(t, []Link{
		{Owner: "one", Before: s0, After: s1},
		{Before: s1, After: s2, Shared: []Overlap{{"one", true}}},
		{Owner: "two", Before: s2, After: s3},
	}, storyOf(t, two, start.Mark, end.Mark, "y"))

	// The other's turn is told the same, and that ours has ended.
	theirs := captured(t, one, CaptureOptions{End: true})
	from := one.roots[0].tree.holds["one"][0]
	begin := Mark{{Root: dir, Journal: theirs.Mark[0].Journal, Seq: from}}
	require.Equal(t, []Link{
		{Owner: "one", Before: s0, After: s1},
		{Before: s1, After: s2, Shared: []Overlap{{"two", false}}},
		{Owner: "two", Before: s2, After: s3},
	}, storyOf(t, one, begin, theirs.Mark, "y"))

	// Nobody else's turn: what nobody claims is shared with nobody.
	start = captured(t, two, CaptureOptions{Begin: true})
	put(t, dir, map[string]string{"x": "2"})
	end = captured(t, two, CaptureOptions{End: true})
	require.Equal(t, []Link{{Before: s1, After: s2}}, storyOf(t, two, start.Mark, end.Mark, "x"))

	// There and back, by whom ever, is nothing.
	start = end
	put(t, dir, map[string]string{"x": "1"})
	captured(t, one, CaptureOptions{})
	put(t, dir, map[string]string{"x": "2"})
	end = captured(t, two, CaptureOptions{})
	require.Nil(t, storyOf(t, two, start.Mark, end.Mark, "x"))
}

func TestAClaimOutlivesAnErrorAndACompaction(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, map[string]string{"x": "0"})
	f := disktest.New()
	a := onDisk(f, nil)
	one, two := a.open(t, "one", dir), a.open(t, "two", dir)
	captured(t, one, CaptureOptions{Begin: true})
	start := captured(t, two, CaptureOptions{})
	failed := errors.New("the second file could not be written")
	require.ErrorIs(t, one.Claim(t.Context(), func() ([]Claim, error) {
		before := scan(t, dir, nil)["x"]
		put(t, dir, map[string]string{"x": "1"})
		return []Claim{{filepath.Join(dir, "x"), before, scan(t, dir, nil)["x"]}}, failed
	}), failed)
	require.NoError(t, one.ReleaseAll(t.Context()))
	a.store.compact = -1 << 40
	end := captured(t, two, CaptureOptions{})
	require.Equal(t, start.Mark[0].Seq, two.roots[0].tree.head.Base, "it was compacted to the oldest that is held")
	for _, w := range []*Workspace{two, onDisk(f, nil).open(t, "two", dir)} {
		links := storyOf(t, w, start.Mark, end.Mark, "x")
		require.Len(t, links, 1)
		require.Equal(t, "one", links[0].Owner)
	}
}

// Sessions whose roots lie one in another have a journal each, and know of
// each other's turns and claims all the same.
func TestSessionsWithRootsInOneAnother(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, map[string]string{"sub/x": "0", "sub/y": "0", "z": "0"})
	f := disktest.New()
	outer := onDisk(f, nil).open(t, "outer", dir)
	inner := onDisk(f, nil).open(t, "inner", filepath.Join(dir, "sub"))
	begin := captured(t, inner, CaptureOptions{Begin: true})
	start := captured(t, outer, CaptureOptions{Begin: true})
	tool(t, outer, "sub/x", "1")
	tool(t, inner, "y", "1")
	put(t, dir, map[string]string{"sub/x": "2", "z": "1"})
	end := captured(t, inner, CaptureOptions{End: true})
	links := storyOf(t, inner, begin.Mark, end.Mark, "x")
	require.Len(t, links, 2)
	require.Equal(t, "outer", links[0].Owner)
	require.Equal(t, []Overlap{{"outer", true}}, links[1].Shared)
	stop := captured(t, outer, CaptureOptions{End: true})
	links = storyOf(t, outer, start.Mark, stop.Mark, "sub/y")
	require.Len(t, links, 1)
	require.Equal(t, "inner", links[0].Owner)
	links = storyOf(t, outer, start.Mark, stop.Mark, "z")
	require.Len(t, links, 1)
	require.Equal(t, []Overlap{{"inner", false}}, links[0].Shared)
}
