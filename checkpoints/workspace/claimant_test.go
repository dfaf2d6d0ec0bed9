package workspace

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oino-dev/oinod/checkpoints"
	"github.com/oino-dev/oinod/checkpoints/disk"
	"github.com/oino-dev/oinod/checkpoints/disk/disktest"
)

// writing is what a session that tracks nothing does to a file.
func writing(t *testing.T, c *Claimant, dir, name, content string) {
	t.Helper()
	require.NoError(t, c.Claim(t.Context(), func() ([]Claim, error) {
		before := stateIn(scan(t, dir, nil), name)
		put(t, dir, map[string]string{name: content})
		return []Claim{{filepath.Join(dir, name), before, scan(t, dir, nil)[name]}}, nil
	}))
}

// What a session that tracks nothing claims, and when it has a turn, is known to
// those that do: in this process and in another, from a root that is theirs,
// lies in theirs, or holds it; also of a turn that began before they came.
func TestAClaimantTellsThoseWhoTrack(t *testing.T) {
	for _, roots := range []string{".", "sub", ".."} {
		for _, elsewhere := range []bool{false, true} {
			top := t.TempDir()
			dir := filepath.Join(top, "work")
			put(t, dir, map[string]string{"sub/x": "0", "a": "0", "b": "0"})
			f := disktest.New()
			here := onDisk(f, nil)
			there := here
			if elsewhere {
				there = onDisk(f, nil)
			}
			c := there.store.Claimant("files", []string{filepath.Join(dir, roots)}, false)
			require.NoError(t, c.Turn(t.Context(), true))
			_, err := disk.ReadDir(here.root, topDir)
			require.ErrorIs(t, err, os.ErrNotExist, "it makes nothing")
			w := here.open(t, "tracks", dir)
			start := captured(t, w, CaptureOptions{Begin: true})
			require.NoError(t, c.Remind(t.Context(), false))
			require.NoError(t, c.Remind(t.Context(), false))
			writing(t, c, dir, "sub/x", "1")
			writing(t, c, dir, "sub/y", "1")
			tool(t, w, "a", "1")
			writing(t, c, dir, "sub/x", "2")
			put(t, dir, map[string]string{"b": "1"})
			middle := captured(t, w, CaptureOptions{})
			require.NoError(t, c.Turn(t.Context(), false))
			put(t, dir, map[string]string{"a": "2"})
			end := captured(t, w, CaptureOptions{End: true})
			for _, name := range []string{"sub/x", "sub/y"} {
				links := storyOf(t, w, start.Mark, end.Mark, name)
				require.Len(t, links, 1, name)
				require.Equal(t, "files", links[0].Owner, name)
			}
			require.Equal(t, []Overlap{{"files", false}}, storyOf(t, w, start.Mark, end.Mark, "b")[0].Shared)
			after := captured(t, w, CaptureOptions{})
			put(t, dir, map[string]string{"a": "3"})
			last := captured(t, w, CaptureOptions{})
			require.Empty(t, storyOf(t, w, after.Mark, last.Mark, "a")[0].Shared)
			require.Equal(t, "tracks", storyOf(t, w, start.Mark, middle.Mark, "a")[0].Owner)
			require.NoError(t, c.Close())
			require.Len(t, here.trees(t), 1, "it makes nothing")
		}
	}
}

// trees are the directories of the tracked trees.
func (a *agentDir) trees(t *testing.T) []string {
	t.Helper()
	entries, err := disk.ReadDir(a.root, topDir)
	require.NoError(t, err)
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

// A claimant keeps a journal open, and notices what others do to it meanwhile:
// lines of theirs, a shorter one in its place, none at all.
func TestAClaimantFollowsTheJournal(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, map[string]string{"x": "0"})
	agent := t.TempDir()
	here, there := openAgentDir(t, agent, nil), openAgentDir(t, agent, nil)
	here.store.compact = -1 << 40
	w := here.open(t, "tracks", dir)
	c := there.store.Claimant("files", []string{dir}, true)
	defer c.Close()
	mark := captured(t, w, CaptureOptions{Begin: true})
	for i, content := range []string{"1", "2", "3", "4", "5", "6"} {
		writing(t, c, dir, "x", content)
		if i%2 == 0 {
			writing(t, c, dir, "x", content+".")
		}
		next := captured(t, w, CaptureOptions{})
		links := storyOf(t, w, mark.Mark, next.Mark, "x")
		require.Len(t, links, 1)
		require.Equal(t, "files", links[0].Owner)
		mark = next
		require.NoError(t, w.Release(t.Context(), mark.Mark))
	}
	require.NoError(t, w.ReleaseAll(t.Context()))
	require.NoError(t, w.Close())
	gone, err := Prune(here.root, false, func(Tree) (bool, error) { return false, nil })
	require.NoError(t, err)
	require.Len(t, gone, 1)
	writing(t, c, dir, "x", "7")
	require.NoError(t, c.Turn(t.Context(), false))
	require.Empty(t, here.trees(t))
}

// A path that is again what the last capture saw has its story all the same:
// whose it was to change it, and that somebody changed it back.
func TestAClaimedPathThatIsBackAtWhatItWas(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, map[string]string{"x": "1", "out/y": "1"})
	a := onDisk(disktest.New(), nil)
	one, two := a.open(t, "one", dir), a.open(t, "two", dir)
	captured(t, one, CaptureOptions{Begin: true})
	start := captured(t, two, CaptureOptions{Begin: true})
	s1 := scan(t, dir, nil)["x"]
	tool(t, one, "x", "0")
	s0 := scan(t, dir, nil)["x"]
	put(t, dir, map[string]string{"x": "1"})
	back := []Link{{Owner: "one", Before: s1, After: s0}, {Before: s0, After: s1, Shared: []Overlap{{"one", true}}}}
	end := captured(t, two, CaptureOptions{})
	require.Equal(t, back, storyOf(t, two, start.Mark, end.Mark, "x"))
	// The same where the path was told of before, and to its end by whoever claims it.
	tool(t, one, "x", "0")
	tool(t, two, "x", "1")
	later := captured(t, two, CaptureOptions{End: true})
	require.Equal(t, append(back, Link{Owner: "one", Before: s1, After: s0}, Link{Owner: "two", Before: s0, After: s1}), storyOf(t, two, start.Mark, later.Mark, "x"))
	// There and back by one, which is nothing.
	start = later
	tool(t, one, "x", "0")
	tool(t, one, "x", "1")
	end = captured(t, two, CaptureOptions{})
	require.Nil(t, storyOf(t, two, start.Mark, end.Mark, "x"))
}

// A capture that does not look where somebody has claimed something says nothing
// of it; the next one that does knows whose it is.
func TestAClaimWaitsForACaptureThatLooks(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, map[string]string{"out/y": "1"})
	a := onDisk(disktest.New(), nil)
	one, two := a.open(t, "one", dir), a.open(t, "two", dir)
	start := captured(t, two, CaptureOptions{Begin: true}) // which holds rules that cover it
	put(t, dir, map[string]string{".gitignore": "out/\n"})
	tool(t, one, "out/y", "2")
	captured(t, one, CaptureOptions{})
	end := captured(t, two, CaptureOptions{End: true})
	links := storyOf(t, two, start.Mark, end.Mark, "out/y")
	require.Len(t, links, 1)
	require.Equal(t, "one", links[0].Owner)
	require.Equal(t, checkpoints.File, links[0].After.Kind)
}

// Claims wait for a capture, and for each other, and give up with their context.
func TestAClaimantDoesNotWaitForEver(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, map[string]string{"x": "0"})
	a := openAgentDir(t, t.TempDir(), nil)
	w := a.open(t, "tracks", dir)
	captured(t, w, CaptureOptions{Begin: true})
	c := a.store.Claimant("files", []string{dir}, false)
	defer c.Close()
	unlock, err := w.roots[0].tree.lock(t.Context())
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, c.Turn(ctx, true), context.Canceled)
	unlock()
	require.NoError(t, c.Remind(t.Context(), false))
	require.NotEmpty(t, c.told[w.roots[0].tree.dir])
}

// sharedIn are those whose turns were open when somebody changed a path.
func sharedIn(t *testing.T, w *Workspace, from, to Mark, name string) []Overlap {
	t.Helper()
	links := storyOf(t, w, from, to, name)
	require.Len(t, links, 1)
	return links[0].Shared
}

// A tree that was pruned, and made anew, knows of no turn that the one before was
// told of: it is told again, however the claimant comes by it next.
func TestATreeThatIsMadeAnewIsToldAgain(t *testing.T) {
	for how, next := range map[string]func(t *testing.T, c *Claimant, dir string){
		"remind": func(t *testing.T, c *Claimant, _ string) { require.NoError(t, c.Remind(t.Context(), false)) },
		"claim":  func(t *testing.T, c *Claimant, dir string) { writing(t, c, dir, "y", "1") },
		"end":    func(t *testing.T, c *Claimant, _ string) { require.NoError(t, c.Turn(t.Context(), false)) },
	} {
		for _, elsewhere := range []bool{false, true} {
			dir, agent := t.TempDir(), t.TempDir()
			put(t, dir, map[string]string{"x": "0"})
			here := openAgentDir(t, agent, nil)
			there := here
			if elsewhere {
				there = openAgentDir(t, agent, nil)
			}
			w := here.open(t, "first", dir)
			captured(t, w, CaptureOptions{Begin: true})
			c := there.store.Claimant("files", []string{dir}, false)
			require.NoError(t, c.Turn(t.Context(), true))
			was := c.told[w.roots[0].tree.dir]
			require.NotEmpty(t, was)
			require.NoError(t, w.ReleaseAll(t.Context()))
			require.NoError(t, w.Close())
			gone, err := Prune(here.root, false, func(Tree) (bool, error) { return false, nil })
			require.NoError(t, err)
			require.Len(t, gone, 1)
			w = here.open(t, "second", dir)
			start := captured(t, w, CaptureOptions{Begin: true})
			next(t, c, dir)
			put(t, dir, map[string]string{"x": "1"})
			end := captured(t, w, CaptureOptions{End: true})
			shared := sharedIn(t, w, start.Mark, end.Mark, "x")
			if how == "end" {
				require.Empty(t, shared)
				require.Empty(t, c.told)
			} else {
				require.Equal(t, []Overlap{{"files", true}}, shared, how)
				require.NotEqual(t, was, c.told[w.roots[0].tree.dir])
			}
			require.NoError(t, c.Close())
		}
	}
}

// Nobody is told before there is a journal to be told in.
func TestATreeWithoutAJournalIsNotTold(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, map[string]string{"x": "0"})
	a := openAgentDir(t, t.TempDir(), nil)
	w := a.open(t, "tracks", dir)
	unlock, err := w.roots[0].tree.lock(t.Context())
	require.NoError(t, err)
	unlock()
	a.store.roots[w.roots[0].tree.dir] = dir // as one that was pruned
	c := a.store.Claimant("files", []string{dir}, false)
	defer c.Close()
	require.NoError(t, c.Turn(t.Context(), true))
	require.Empty(t, c.told)
	start := captured(t, w, CaptureOptions{Begin: true})
	require.NoError(t, c.Remind(t.Context(), false))
	put(t, dir, map[string]string{"x": "1"})
	end := captured(t, w, CaptureOptions{End: true})
	require.Equal(t, []Overlap{{"files", true}}, sharedIn(t, w, start.Mark, end.Mark, "x"))
}

// A tree that is gone by the time that its lock is asked for is left out: if it
// was made anew meanwhile, its lock is not had.
func TestATreeThatWasPrunedIsLeftOut(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, map[string]string{"sub/x": "0"})
	a := openAgentDir(t, t.TempDir(), nil)
	w := a.open(t, "tracks", filepath.Join(dir, "sub"))
	captured(t, w, CaptureOptions{})
	o := other{a.store, topDir + "/gone", dir}
	_, err := o.lock(t.Context())
	require.ErrorIs(t, err, errPruned)
	// One that is listed, and pruned before it is asked for its lock.
	a.store.roots[o.dir] = dir
	mtime, _, err := a.store.mtime(topDir)
	require.NoError(t, err)
	a.store.listed = treeList{[]string{w.roots[0].tree.dir, o.dir}, mtime, true}
	c := a.store.Claimant("files", []string{dir}, true)
	defer c.Close()
	writing(t, c, dir, "sub/x", "1")
	tool(t, w, "sub/x", "2")
	require.NoDirExists(t, filepath.Join(a.root.Name(), o.dir))
	require.Len(t, c.told, 1)
}

// Trees that come are noticed, also when all were long at rest, and those that
// only later get a journal.
func TestTreesThatComeLater(t *testing.T) {
	top, agent := t.TempDir(), t.TempDir()
	put(t, top, map[string]string{"one/x": "0", "two/x": "0", "three/x": "0"})
	here, there := openAgentDir(t, agent, nil), openAgentDir(t, agent, nil)
	track := func(name string) *Workspace { return there.open(t, name, filepath.Join(top, name)) }
	one, two, three := track("one"), track("two"), track("three")
	captured(t, one, CaptureOptions{})
	unlock, err := two.roots[0].tree.lock(t.Context())
	require.NoError(t, err)
	unlock() // which has only a lock now
	long := time.Now().Add(-time.Hour)
	for _, dir := range []string{topDir, one.roots[0].tree.dir, two.roots[0].tree.dir} {
		require.NoError(t, os.Chtimes(filepath.Join(agent, dir), long, long))
	}
	c := here.store.Claimant("files", []string{top}, true)
	defer c.Close()
	writing(t, c, top, "a", "1")
	require.True(t, here.store.listed.holds)
	require.Len(t, here.store.bare, 1)
	require.Len(t, c.told, 1)
	captured(t, two, CaptureOptions{})
	writing(t, c, top, "a", "2")
	require.Len(t, c.told, 2)
	captured(t, three, CaptureOptions{})
	writing(t, c, top, "a", "3")
	require.Len(t, c.told, 3)
}

// What cannot be told in time is done all the same, and that a turn has ended is
// told later.
func TestAClaimantActsInAnyCase(t *testing.T) {
	dir, agent := t.TempDir(), t.TempDir()
	put(t, dir, map[string]string{"x": "0"})
	here, there := openAgentDir(t, agent, nil), openAgentDir(t, agent, nil)
	w := here.open(t, "tracks", dir)
	captured(t, w, CaptureOptions{Begin: true})
	c := there.store.Claimant("files", []string{dir}, false)
	defer c.Close()
	require.NoError(t, c.Turn(t.Context(), true))
	unlock, err := w.roots[0].tree.lock(t.Context())
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	acted := 0
	require.ErrorIs(t, c.Claim(ctx, func() ([]Claim, error) { acted++; return nil, nil }), context.DeadlineExceeded)
	require.Equal(t, 1, acted)
	require.ErrorIs(t, c.Turn(ctx, false), context.DeadlineExceeded)
	unlock()
	require.NoError(t, c.Remind(t.Context(), true))
	require.Empty(t, c.told)
	start := captured(t, w, CaptureOptions{})
	put(t, dir, map[string]string{"x": "1"})
	end := captured(t, w, CaptureOptions{})
	require.Empty(t, sharedIn(t, w, start.Mark, end.Mark, "x"))
}

// A time that is only just over does not tell of a change: it may come in the
// same tick.
func TestTreesThatComeInTheSameTick(t *testing.T) {
	dir, agent := t.TempDir(), t.TempDir()
	a := openAgentDir(t, agent, nil)
	captured(t, a.open(t, "tracks", dir), CaptureOptions{})
	mtime, _, err := a.store.mtime(topDir)
	require.NoError(t, err)
	before, err := a.store.treeDirs(false)
	require.NoError(t, err)
	require.Len(t, before, 1)
	top := filepath.Join(agent, topDir)
	require.NoError(t, os.Mkdir(filepath.Join(top, "other"), 0o700))
	require.NoError(t, os.Chtimes(top, mtime, mtime))
	after, err := a.store.treeDirs(false)
	require.NoError(t, err)
	require.Len(t, after, 2)
}
