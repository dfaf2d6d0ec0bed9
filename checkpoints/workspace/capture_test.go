package workspace

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oino-dev/oinod/checkpoints"
	"github.com/oino-dev/oinod/checkpoints/disk"
	"github.com/oino-dev/oinod/checkpoints/disk/disktest"
)

func TestRootsAreEachTheirOwnAndOverlappingOnesCountOnce(t *testing.T) {
	top := t.TempDir()
	put(t, top, map[string]string{"w/a": "1", "w/in/b": "1", "other/c": "1", "empty/": ""})
	at := func(name string) string { return filepath.Join(top, name) }
	require.NoError(t, os.Symlink(at("other"), at("link")))
	a := onDisk(disktest.New(), nil)
	w := a.open(t, "s", at("w"), at("w/in"), at("link"), at("other"), at("empty"))
	require.Equal(t, []string{at("w"), at("link"), at("empty")}, w.Roots())
	first := captured(t, w, CaptureOptions{})
	put(t, top, map[string]string{"w/in/b": "2", "other/c": "2", "empty/d": "1"})
	second := captured(t, w, CaptureOptions{})
	all, err := w.Changes(t.Context(), first.Mark, second.Mark)
	require.NoError(t, err)
	var names []string
	for _, c := range all {
		names = append(names, c.Path)
	}
	require.Equal(t, []string{at("w/in/b"), at("link/c"), at("empty/d")}, names)
	s, err := w.States(t.Context(), first.Mark, []string{at("link/c"), at("empty/d"), at("elsewhere")})
	require.NoError(t, err)
	require.Equal(t, []checkpoints.Kind{checkpoints.File, checkpoints.Absent, checkpoints.Uncovered}, []checkpoints.Kind{s[0].Kind, s[1].Kind, s[2].Kind})

	// A root that came later knows nothing of before, and another session that
	// has it alone knows all of it.
	alone := a.open(t, "t", at("other"))
	third := captured(t, alone, CaptureOptions{})
	require.Equal(t, second.Mark[1].Seq+1, third.Mark[0].Seq)
	_, err = os.ReadDir(at("empty"))
	require.NoError(t, err)
}

func TestACaptureCanBeCancelledAndLosesNothing(t *testing.T) {
	dir := t.TempDir()
	for i := range 30 {
		put(t, dir, map[string]string{fmt.Sprintf("d%d/a", i): "1"})
	}
	h := &hooked{}
	a := onDisk(disktest.New(), func(c *Config) { c.machine = h })
	w := a.open(t, "s", dir)
	first := captured(t, w, CaptureOptions{})
	put(t, dir, map[string]string{"d3/a": "2", "n": "1"})
	for _, in := range []string{"walk", "read"} {
		ctx, cancel := context.WithCancel(t.Context())
		if in == "walk" {
			h.openDir = func(string) error { cancel(); return nil }
		} else {
			h.open = func(string) error { cancel(); return nil }
		}
		_, err := w.Capture(ctx, CaptureOptions{})
		require.ErrorIs(t, err, context.Canceled, in)
		*h = hooked{}
		cancel()
	}
	second := captured(t, w, CaptureOptions{})
	require.Equal(t, []told{{"d3/a", checkpoints.File, checkpoints.File}, {"n", checkpoints.Absent, checkpoints.File}}, changes(t, w, first.Mark, second.Mark))
}

func TestProgressIsToldAndEnds(t *testing.T) {
	dir := t.TempDir()
	for i := range 1200 {
		put(t, dir, map[string]string{fmt.Sprintf("d%d/%d", i%40, i): "1"})
	}
	a := onDisk(disktest.New(), nil)
	w := a.open(t, "s", dir)
	var dones, totals []int
	captured(t, w, CaptureOptions{Progress: func(done, total int) { dones, totals = append(dones, done), append(totals, total) }})
	require.Contains(t, totals, 0, "while it is not known how many there are")
	require.Equal(t, []int{1200, 1200}, []int{dones[len(dones)-1], totals[len(totals)-1]})
}

// What is under the agent directory is private, whatever the umask.
func TestTheJournalIsPrivate(t *testing.T) {
	dir, agent := t.TempDir(), filepath.Join(t.TempDir(), "agent")
	put(t, dir, map[string]string{"a": "1"})
	a := openAgentDir(t, agent, nil)
	captured(t, a.open(t, "s", dir), CaptureOptions{})
	require.NoError(t, filepath.WalkDir(filepath.Join(agent, topDir), func(path string, d os.DirEntry, err error) error {
		require.NoError(t, err)
		info, err := d.Info()
		require.NoError(t, err)
		require.Zero(t, info.Mode().Perm()&0o077, path)
		return nil
	}))
}

// Only what changes is written: a thousand turns with one edit each leave a
// journal of the size of the tree, however few captures are held.
func TestTheJournalStaysShort(t *testing.T) {
	dir := t.TempDir()
	for i := range 100 {
		put(t, dir, map[string]string{fmt.Sprintf("f%d", i): "1"})
	}
	f := disktest.New()
	a := onDisk(f, nil)
	a.store.compact = 10_000
	old, w := a.open(t, "old", dir), a.open(t, "s", dir)
	first := captured(t, old, CaptureOptions{Begin: true})
	before := scan(t, dir, nil)
	for i := range 300 {
		put(t, dir, map[string]string{fmt.Sprintf("f%d", i%50): fmt.Sprint(i)})
		c := captured(t, w, CaptureOptions{Begin: true, End: true})
		require.NoError(t, w.Release(t.Context(), c.Mark))
	}
	_, _, content := journalOf(t, f)
	require.Less(t, len(content), 100_000)
	last := captured(t, old, CaptureOptions{})
	all, err := old.Changes(t.Context(), first.Mark, last.Mark)
	require.NoError(t, err)
	require.Len(t, all, 50)
	for _, c := range all {
		name := filepath.Base(c.Path)
		require.Equal(t, before[name], c.Links[0].Before)
		require.Equal(t, []Overlap{{"s", false}}, c.Links[0].Shared)
	}
	entries, err := disk.ReadDir(a.root, old.roots[0].tree.dir)
	require.NoError(t, err)
	require.Len(t, entries, 2, "the journal and the lock")
}
