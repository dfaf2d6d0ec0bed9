package workspace

import (
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oino-dev/oinod/checkpoints/disk"
	"github.com/oino-dev/oinod/checkpoints/disk/disktest"
)

// What a session in memory claims has its place among what others do, also when
// the journal was made shorter meanwhile, and is in no file.
func TestAClaimantInMemory(t *testing.T) {
	for _, elsewhere := range []bool{false, true} {
		for _, compact := range []bool{false, true} {
			dir := t.TempDir()
			put(t, dir, map[string]string{"x": "0", "y": "0", "z": "0"})
			f := disktest.New()
			here := onDisk(f, nil)
			there := here // who makes a journal shorter
			if elsewhere {
				there = onDisk(f, nil)
			}
			if compact {
				there.store.compact = -1 << 40
			}
			w, other := here.open(t, "tracks", dir), there.open(t, "other", dir)
			captured(t, w, CaptureOptions{})
			c := here.store.ClaimantInMemory("quiet", []string{dir}, false)
			require.NoError(t, c.Turn(t.Context(), true))
			start := captured(t, w, CaptureOptions{Begin: true})
			writing(t, c, dir, "x", "1")
			tool(t, w, "x", "2")
			writing(t, c, dir, "x", "3")
			put(t, dir, map[string]string{"x": "4"})
			middle := captured(t, w, CaptureOptions{})
			require.NoError(t, c.Turn(t.Context(), false))
			writing(t, c, dir, "y", "1")
			captured(t, other, CaptureOptions{})
			put(t, dir, map[string]string{"z": "1"})
			tool(t, other, "x", "5")
			end := captured(t, w, CaptureOptions{End: true})

			var owners []string
			links := storyOf(t, w, start.Mark, end.Mark, "x")
			for _, l := range links {
				owners = append(owners, l.Owner)
			}
			require.Equal(t, []string{"quiet", "tracks", "quiet", "", "other"}, owners)
			require.Equal(t, []Overlap{{"quiet", false}}, links[3].Shared, "its turn began before the mark, and has ended since")
			require.Len(t, storyOf(t, w, start.Mark, middle.Mark, "x"), 4)
			require.Len(t, storyOf(t, w, middle.Mark, end.Mark, "x"), 1)
			links = storyOf(t, w, middle.Mark, end.Mark, "y")
			require.Len(t, links, 1)
			require.Equal(t, "quiet", links[0].Owner)
			require.Empty(t, storyOf(t, w, middle.Mark, end.Mark, "z")[0].Shared)

			require.NotContains(t, here.written(t), "quiet")
		}
	}
}

// written is all that the journals say.
func (a *agentDir) written(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, tree := range a.trees(t) {
		gen, _, err := newest(a.root, topDir+"/"+tree)
		require.NoError(t, err)
		b, err := disk.ReadFile(a.root, journalName(topDir+"/"+tree, gen))
		require.NoError(t, err)
		all.Write(b)
	}
	return all.String()
}

// Who has no tree open here is not told, and what nobody can ask about any more
// is not kept.
func TestWhatIsUnwrittenIsForgotten(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, map[string]string{"x": "0"})
	f := disktest.New()
	here, there := onDisk(f, nil), onDisk(f, nil)
	far := there.open(t, "far", dir)
	captured(t, far, CaptureOptions{})
	c := here.store.ClaimantInMemory("quiet", []string{filepath.Join(dir, "..")}, false)
	before := here.written(t)
	require.NoError(t, c.Turn(t.Context(), true))
	writing(t, c, dir, "x", "1")
	require.Equal(t, before, here.written(t))

	w := here.open(t, "tracks", dir)
	captured(t, w, CaptureOptions{})
	require.NoError(t, c.Remind(t.Context(), false))
	for range 20 {
		writing(t, c, dir, "x", "1")
		writing(t, c, dir, "x", "2")
		require.NoError(t, w.Release(t.Context(), captured(t, w, CaptureOptions{}).Mark))
		require.NoError(t, far.ReleaseAll(t.Context()))
		captured(t, far, CaptureOptions{})
	}
	require.LessOrEqual(t, len(w.roots[0].tree.unwritten), 10)
	start := captured(t, w, CaptureOptions{})
	put(t, dir, map[string]string{"x": "3"})
	end := captured(t, w, CaptureOptions{})
	require.Equal(t, []Overlap{{"quiet", true}}, storyOf(t, w, start.Mark, end.Mark, "x")[0].Shared, "its turn goes on")
}

// What has ended is not taken for open because only its beginning was kept, and
// of a turn that goes on only the newest beginning is.
func TestATurnThatIsForgotten(t *testing.T) {
	for _, ends := range []bool{true, false} {
		dir := t.TempDir()
		put(t, dir, map[string]string{"x": "0"})
		a := onDisk(disktest.New(), nil)
		w := a.open(t, "tracks", dir)
		captured(t, w, CaptureOptions{})
		c := a.store.ClaimantInMemory("quiet", []string{dir}, false)
		for range 3 {
			require.NoError(t, c.Turn(t.Context(), true))
		}
		if ends {
			require.NoError(t, c.Turn(t.Context(), false))
		}
		require.NoError(t, w.Release(t.Context(), captured(t, w, CaptureOptions{}).Mark))
		start := captured(t, w, CaptureOptions{}) // which writes that
		tree := w.roots[0].tree
		tree.enough = 0
		tree.forgetUnwritten()
		if ends {
			require.Empty(t, tree.unwritten)
		} else {
			require.Len(t, tree.unwritten, 1)
		}
		put(t, dir, map[string]string{"x": "1"})
		end := captured(t, w, CaptureOptions{})
		require.Equal(t, !ends, len(storyOf(t, w, start.Mark, end.Mark, "x")[0].Shared) > 0)
	}
}

// Among the claims since one capture what is unwritten has the place at which
// it was told, however many there were before that capture.
func TestTheOrderOfClaimsSinceACapture(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, map[string]string{"x": "0", "y": "0"})
	a := onDisk(disktest.New(), nil)
	w := a.open(t, "tracks", dir)
	start := captured(t, w, CaptureOptions{})
	c := a.store.ClaimantInMemory("quiet", []string{dir}, false)
	tool(t, w, "y", "1")
	tool(t, w, "y", "2")
	captured(t, w, CaptureOptions{})
	tool(t, w, "x", "1")
	writing(t, c, dir, "x", "2")
	tool(t, w, "x", "3")
	end := captured(t, w, CaptureOptions{})
	var owners []string
	for _, l := range storyOf(t, w, start.Mark, end.Mark, "x") {
		owners = append(owners, l.Owner)
	}
	require.Equal(t, []string{"tracks", "quiet", "tracks"}, owners)
}

// What was told to a journal that is gone says nothing of the captures of the
// one that was begun instead, whose numbers are the same.
func TestWhatIsUnwrittenOfAnotherJournal(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, map[string]string{"x": "0"})
	a := onDisk(disktest.New(), nil)
	w := a.open(t, "tracks", dir)
	first := captured(t, w, CaptureOptions{})
	c := a.store.ClaimantInMemory("quiet", []string{dir}, false)
	require.NoError(t, c.Turn(t.Context(), true))
	writing(t, c, dir, "x", "1")
	gone, err := Prune(a.root, false, func(Tree) (bool, error) { return false, nil })
	require.NoError(t, err)
	require.Len(t, gone, 1)
	put(t, dir, map[string]string{"x": "0"})
	start := captured(t, w, CaptureOptions{})
	require.Equal(t, first.Mark[0].Seq, start.Mark[0].Seq)
	require.NotEqual(t, first.Mark[0].Journal, start.Mark[0].Journal)
	put(t, dir, map[string]string{"x": "1"})
	end := captured(t, w, CaptureOptions{})
	links := storyOf(t, w, start.Mark, end.Mark, "x")
	require.Len(t, links, 1)
	require.Empty(t, links[0].Owner)
	require.Empty(t, links[0].Shared)
}

// A session in memory hears nobody.
func TestAClaimantInMemoryHearsNobody(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, map[string]string{"x": "0"})
	a := onDisk(disktest.New(), nil)
	w := a.open(t, "tracks", dir)
	captured(t, w, CaptureOptions{})
	c := a.store.ClaimantInMemory("quiet", []string{dir}, false)
	require.NoError(t, c.Turn(t.Context(), true))
	tool(t, w, "x", "1")
	heard, err := c.Heard(t.Context())
	require.NoError(t, err)
	require.Empty(t, heard)
}

// To tell twice as much costs twice as much, and not four times.
func TestToTellCostsTheSameEachTime(t *testing.T) {
	dir := t.TempDir()
	a := onDisk(disktest.New(), nil)
	w := a.open(t, "tracks", dir)
	captured(t, w, CaptureOptions{})
	tree := quietTree{openTree{w.roots[0].tree}}
	line := claimLines("quiet", 0, []claim{{Path: "x"}})
	allocated := func(n int) uint64 {
		tree.unwritten, tree.enough = nil, 0
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range n {
			_, err := tree.tell(line)
			require.NoError(t, err)
		}
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	const n = 4096
	require.Less(t, allocated(2*n), 3*allocated(n))
	require.Len(t, tree.unwritten, n, "nothing of which may be forgotten")
}
