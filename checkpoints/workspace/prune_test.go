package workspace

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oino-dev/oinod/checkpoints"
	"github.com/oino-dev/oinod/checkpoints/blobs"
	"github.com/oino-dev/oinod/checkpoints/disk"
	"github.com/oino-dev/oinod/checkpoints/disk/disktest"
)

func never(Tree) (bool, error) { return false, nil }

// A tree goes only when it is not needed once nobody can capture in it any
// more, and what it kept is not live any more.
func TestATreeIsPruned(t *testing.T) {
	dir, agent := t.TempDir(), t.TempDir()
	put(t, dir, map[string]string{"a": "1"})
	a := openAgentDir(t, agent, nil)
	w := a.open(t, "s1", dir)
	captured(t, w, CaptureOptions{Begin: true})
	captured(t, a.open(t, "s2", dir), CaptureOptions{})
	key := checkpoints.WorkspaceKey(dir)
	var asked []Tree
	needs := func(last bool) func(Tree) (bool, error) {
		asked = nil
		return func(t Tree) (bool, error) {
			asked = append(asked, t)
			return len(asked) == 2 && last, nil
		}
	}
	pruned, err := Prune(a.root, true, needs(false))
	require.NoError(t, err)
	require.Equal(t, []string{key}, pruned)
	require.Len(t, asked, 1)
	require.Equal(t, key, asked[0].Key)
	require.ElementsMatch(t, []string{"s1", "s2"}, asked[0].Sessions)
	live := 0
	require.NoError(t, Live(a.root, pruned, func(blobs.Digest) { live++ }))
	require.Zero(t, live)
	require.NoError(t, Live(a.root, nil, func(blobs.Digest) { live++ }))
	require.NotZero(t, live)

	pruned, err = Prune(a.root, false, needs(true)) // a session came at the last moment
	require.NoError(t, err)
	require.Empty(t, pruned)
	require.Len(t, asked, 2)
	unlock, err := lockFile(t.Context(), a.root, topDir+"/"+key+"/"+lockName)
	require.NoError(t, err)
	pruned, err = Prune(a.root, false, never) // somebody is at it
	require.NoError(t, err)
	require.Empty(t, pruned)
	require.NoError(t, unlock())
	pruned, err = Prune(a.root, false, never)
	require.NoError(t, err)
	require.Equal(t, []string{key}, pruned)
	entries, err := os.ReadDir(filepath.Join(agent, topDir))
	require.NoError(t, err)
	require.Empty(t, entries)

	// Whoever comes then begins anew, in a process that knew the tree as well.
	require.True(t, captured(t, w, CaptureOptions{}).Coverage.Complete)
	b := openAgentDir(t, agent, nil)
	c := captured(t, b.open(t, "s3", dir), CaptureOptions{})
	put(t, dir, map[string]string{"a": "2"})
	require.Equal(t, []told{{"a", checkpoints.File, checkpoints.File}}, changes(t, b.open(t, "s3", dir), c.Mark, captured(t, b.open(t, "s3", dir), CaptureOptions{}).Mark))
}

// Whoever waits for the lock of a tree while it is pruned gets the lock of the
// new one, as everybody after.
func TestALockThatWasPrunedIsNobodys(t *testing.T) {
	a := openAgentDir(t, t.TempDir(), nil)
	dir := topDir + "/x"
	require.NoError(t, os.MkdirAll(filepath.Join(a.root.Name(), dir), 0o700))
	name := dir + "/" + lockName
	unlock, err := tryLockFile(a.root, name)
	require.NoError(t, err)
	waiting := make(chan error)
	var held func() error
	go func() {
		var err error
		held, err = lockFile(context.Background(), a.root, name)
		waiting <- err
	}()
	require.NoError(t, unlock(true))
	require.NoError(t, <-waiting)
	again, err := tryLockFile(a.root, name)
	require.NoError(t, err)
	require.Nil(t, again, "it is held, under its name")
	require.NoError(t, held())
}

// A journal of a newer oinod stays; a damaged one is of no use to anybody.
func TestWhatIsPrunedUnread(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, map[string]string{"a": "1"})
	for version, goes := range map[int]bool{formatVersion + 1: false, formatVersion: true} {
		f := disktest.New()
		captured(t, onDisk(f, nil).open(t, "s1", dir), CaptureOptions{})
		f.Kill()
		root, name, content := journalOf(t, f)
		lines, err := appendLine(nil, encodeLine(headLine{Type: "tree", Version: version, ID: "x", Root: dir}))
		require.NoError(t, err)
		require.NoError(t, disk.Publish(root, name, append(lines, content[len(content)/2:]...), 0o600))
		pruned, err := Prune(root, false, never)
		require.NoError(t, err)
		require.Equal(t, goes, len(pruned) == 1)
	}
}
