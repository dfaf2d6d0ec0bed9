package workspace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oino-dev/oinod/checkpoints"
	"github.com/oino-dev/oinod/checkpoints/blobs"
	"github.com/oino-dev/oinod/checkpoints/disk"
	"github.com/oino-dev/oinod/checkpoints/disk/disktest"
	"github.com/oino-dev/oinod/checkpoints/journal"
)

var errInjected = errors.New("injected")

// session is what one does over and over: captures around an edit, a claim, a
// release. It returns the marks that were acknowledged, each with what the tree
// was, and the first error.
type acknowledged struct {
	mark Mark
	tree map[string]checkpoints.State
}

func captureUntilError(t *testing.T, a *agentDir, dir string) (acked []acknowledged, err error) {
	w, err := a.store.Open("s", []string{dir})
	require.NoError(t, err)
	defer w.Close()
	for i := range 5 {
		put(t, dir, map[string]string{"a": fmt.Sprint(i), fmt.Sprintf("new%d", i): strings.Repeat("x", i)})
		if i > 0 {
			require.NoError(t, os.Remove(filepath.Join(dir, fmt.Sprintf("new%d", i-1))))
		}
		c, err := w.Capture(context.Background(), CaptureOptions{Begin: true, End: true})
		if err != nil {
			return acked, err
		}
		acked = append(acked, acknowledged{c.Mark, scan(t, dir, nil)})
		if err := w.Claim(context.Background(), func() ([]Claim, error) {
			return []Claim{{filepath.Join(dir, "a"), checkpoints.State{Kind: checkpoints.Absent}, checkpoints.State{Kind: checkpoints.Dir}}}, nil
		}); err != nil {
			return acked, err
		}
		if i == 2 {
			if err := w.Release(context.Background(), acked[1].mark); err != nil {
				return acked, err
			}
			acked = acked[1:]
		}
	}
	return acked, nil
}

// requireHolds checks that all that was acknowledged is there, and that the
// tree can be captured on.
func requireHolds(t *testing.T, f *disktest.FS, dir string, acked []acknowledged, when string) {
	t.Helper()
	a := onDisk(f, nil)
	a.store.compact = 600
	w := a.open(t, "s", dir)
	defer w.Close()
	defer a.close()
	c, err := w.Capture(context.Background(), CaptureOptions{})
	require.NoError(t, err, when)
	require.Empty(t, c.Lost, when)
	now := scan(t, dir, nil)
	for _, m := range acked {
		got := map[string][2]checkpoints.State{}
		all, err := w.Changes(context.Background(), m.mark, c.Mark)
		require.NoError(t, err, when)
		for _, c := range all {
			if b, n := c.Links[0].Before, c.Links[len(c.Links)-1].After; b != n { // else it is what was claimed, and is not so any more
				got[c.Path[len(dir)+1:]] = [2]checkpoints.State{b, n}
			}
		}
		want := map[string][2]checkpoints.State{}
		for rel := range union(m.tree, now) {
			if b, n := stateIn(m.tree, rel), stateIn(now, rel); b != n {
				want[rel] = [2]checkpoints.State{b, n}
			}
		}
		require.Equal(t, want, got, when)
		for rel, s := range m.tree {
			if s.Kind == checkpoints.File {
				require.NoError(t, a.blobs.Check(s.Digest), "%s: %s", when, rel)
			}
		}
	}
}

func emptyTree(t *testing.T) string {
	dir := t.TempDir()
	put(t, dir, map[string]string{"d/x": "1", "d/y": "2"})
	return dir
}

func TestNoFaultBreaksAnAcknowledgedCapture(t *testing.T) {
	for n := 1; ; n++ {
		f, dir := disktest.New(), emptyTree(t)
		a := onDisk(f, nil)
		a.store.compact = 600
		f.FailAt(n, errInjected)
		acked, err := captureUntilError(t, a, dir)
		a.close()
		fired := f.Fired()
		f.FailAt(0, nil)
		f.Kill()
		requireHolds(t, f, dir, acked, fmt.Sprintf("operation %d failed: %v", n, err))
		if !fired {
			require.NoError(t, err)
			t.Logf("%d operations failed", n-1)
			return
		}
	}
}

func TestNoPowerCutTakesAnAcknowledgedCapture(t *testing.T) {
	for k := 1; ; k++ {
		f, dir := disktest.New(), emptyTree(t)
		a := onDisk(f, nil)
		a.store.compact = 600
		f.CutAt(k)
		acked, err := captureUntilError(t, a, dir)
		cut := f.Cut()
		for _, share := range []int{0, 50, 100} {
			after := f.AfterPowerCut(disktest.Keep(uint64(k), share))
			requireHolds(t, after, dir, acked, fmt.Sprintf("cut after %d writes, %d %% kept: %v", k, share, err))
		}
		if !cut {
			t.Logf("%d cuts", k-1)
			return
		}
	}
}

// journalOf is the one journal of an agent directory on a disk in memory.
func journalOf(t *testing.T, f *disktest.FS) (root disk.Root, name string, content []byte) {
	t.Helper()
	root = f.Root("/agent")
	trees, err := disk.ReadDir(root, topDir)
	require.NoError(t, err)
	require.Len(t, trees, 1)
	gen, _, err := newest(root, topDir+"/"+trees[0].Name())
	require.NoError(t, err)
	require.NotZero(t, gen)
	name = fmt.Sprintf("%s/%s/%s%d%s", topDir, trees[0].Name(), journalPrefix, gen, journalSuffix)
	content, err = disk.ReadFile(root, name)
	require.NoError(t, err)
	return root, name, content
}

// A journal cut at any byte behind the last acknowledged capture is that of
// all that was acknowledged; cut before it, captures are missing, which is said.
func TestATornJournalIsCutAndADamagedOneSetAside(t *testing.T) {
	dir := emptyTree(t)
	f := disktest.New()
	a := onDisk(f, nil)
	w := a.open(t, "s", dir)
	first := captured(t, w, CaptureOptions{})
	put(t, dir, map[string]string{"a": "1"})
	second := captured(t, w, CaptureOptions{})
	_, _, whole := journalOf(t, f)
	firstEnd := int(w.roots[0].tree.captures[0].end)
	w.Close()
	reopen := func(content []byte) (*Workspace, Capture) {
		g := disktest.New()
		b := onDisk(g, nil)
		v := b.open(t, "s", dir)
		require.NoError(t, disk.MkdirAll(b.root, v.roots[0].tree.dir, 0o700))
		require.NoError(t, disk.Publish(b.root, v.roots[0].tree.journalName(1), content, 0o600))
		return v, captured(t, v, CaptureOptions{})
	}
	for cut := firstEnd; cut <= len(whole); cut++ {
		v, c := reopen(whole[:cut])
		require.Empty(t, c.Lost, "cut at %d", cut)
		require.Equal(t, []told{{"a", checkpoints.Absent, checkpoints.File}}, changes(t, v, first.Mark, c.Mark), "cut at %d", cut)
		_, err := v.Changes(t.Context(), second.Mark, c.Mark)
		if cut == len(whole) || cut == len(whole)-1 {
			require.NoError(t, err, "cut at %d", cut)
		} else if c.Mark[0].Seq == second.Mark[0].Seq {
			require.NoError(t, err) // the number is used again by a capture of the same tree
		}
	}
	for at := 0; at < len(whole)-1; at += 7 {
		damaged := []byte(string(whole))
		damaged[at] ^= 0x40
		v, c := reopen(damaged)
		require.NotEmpty(t, c.Lost, "damaged at %d", at)
		_, err := v.Changes(t.Context(), first.Mark, c.Mark)
		require.ErrorIs(t, err, ErrGone)
		require.Empty(t, captured(t, v, CaptureOptions{}).Lost, "it is told once")
	}
}

// What a capture that was cut off has left is nobody's: not the next one's
// either, when that has nothing to record.
func TestPartsOfAnUnfinishedCaptureCountForNothing(t *testing.T) {
	dir := emptyTree(t)
	f := disktest.New()
	w := onDisk(f, nil).open(t, "s", dir)
	first := captured(t, w, CaptureOptions{})
	end := int(w.roots[0].tree.end)
	put(t, dir, map[string]string{"a": "1"})
	captured(t, w, CaptureOptions{})
	root, name, content := journalOf(t, f)
	parts := end + bytes.IndexByte(content[end:], '\n') + 1
	require.Contains(t, string(content[end:parts]), `"type":"part"`)
	require.NoError(t, os.Remove(filepath.Join(dir, "a")))
	require.NoError(t, disk.Publish(root, name, content[:parts], 0o600))
	v := onDisk(f, nil).open(t, "s", dir)
	second := captured(t, v, CaptureOptions{})
	require.Empty(t, changes(t, v, first.Mark, second.Mark))
	require.Equal(t, checkpoints.State{Kind: checkpoints.Absent}, statesOf(t, v, first.Mark, "a")[0])
	again := onDisk(f, nil).open(t, "s", dir)
	again.store.compact = -1 << 40
	third := captured(t, again, CaptureOptions{})
	require.Empty(t, changes(t, again, first.Mark, third.Mark))
	require.NotContains(t, known(again.roots[0].tree), "a")
}

func TestANewerJournalIsLeftUntouched(t *testing.T) {
	dir := emptyTree(t)
	f := disktest.New()
	captured(t, onDisk(f, nil).open(t, "s", dir), CaptureOptions{})
	f.Kill()
	root, name, content := journalOf(t, f)
	var lines []byte
	newer := encodeLine(headLine{Type: "tree", Version: formatVersion + 1, ID: "x", Root: dir})
	lines, err := appendLine(lines, newer)
	require.NoError(t, err)
	require.NotEqual(t, lines, content)
	require.NoError(t, disk.Publish(root, name, lines, 0o600))
	w := onDisk(f, nil).open(t, "s", dir)
	_, err = w.Capture(t.Context(), CaptureOptions{})
	require.ErrorIs(t, err, ErrNewer)
	require.ErrorIs(t, Live(root, nil, func(d blobs.Digest) {}), ErrNewer)
	after, err := disk.ReadFile(root, name)
	require.NoError(t, err)
	require.Equal(t, lines, after)
}

func TestLiveNamesEveryContentThatIsHeld(t *testing.T) {
	dir := emptyTree(t)
	f := disktest.New()
	a := onDisk(f, nil)
	require.NoError(t, Live(a.root, nil, func(blobs.Digest) { t.Error("there is nothing") }))
	w := a.open(t, "s", dir)
	var want []checkpoints.State
	for i := range 4 {
		put(t, dir, map[string]string{"a": fmt.Sprint(i)})
		captured(t, w, CaptureOptions{})
		want = append(want, scan(t, dir, nil)["a"], scan(t, dir, nil)["d/x"])
	}
	live := map[blobs.Digest]bool{}
	require.NoError(t, Live(a.root, nil, func(d blobs.Digest) { live[d] = true }))
	for _, s := range want {
		require.True(t, live[s.Digest])
	}
	require.Len(t, live, 4)
}

// appendLine appends an object as the journal's line.
func appendLine(dst, object []byte) ([]byte, error) { return journal.Encode(dst, object) }
