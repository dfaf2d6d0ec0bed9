package workspace

import (
	"path/filepath"
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
