package session

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oino-dev/oinod/checkpoints"
)

// treeKeys are the workspaces whose captures the agent directory holds.
func (b *box) treeKeys() []string {
	b.t.Helper()
	entries, err := os.ReadDir(filepath.Join(b.agent, "workspaces"))
	require.NoError(b.t, err)
	keys := []string{}
	for _, e := range entries {
		keys = append(keys, e.Name())
	}
	return keys
}

// The captures of a workspace go when no session refers to it any more, and
// with them what only they needed; also where the workspace is gone.
func TestCapturesGoWithTheLastSession(t *testing.T) {
	for _, gone := range []bool{false, true} {
		b := newBox(t)
		b.put("big", string(noise(1, 100<<10)))
		s, other := b.createTracked(), b.createTracked()
		b.prompt(s, "one")
		b.sh(`printf 1 >a`)
		b.end(s)
		e := b.prompt(other, "one")
		b.sh(`printf 2 >a; rm big`)
		require.NoError(t, b.reg.Delete(t.Context(), s.ID()))
		require.Zero(t, b.collect(CollectParams{}).Trees, "another session has its turn open there")
		b.end(other)
		b.rewind(other, RewindParams{EntryID: e})
		b.has("big", string(noise(1, 100<<10)))
		b.has("a", "1")

		other = b.restart(other)
		require.NoError(t, b.reg.Delete(t.Context(), other.ID()))
		if gone {
			require.NoError(t, os.RemoveAll(b.dir))
		}
		size := b.storeBytes()
		would := b.collect(CollectParams{DryRun: true})
		require.Equal(t, []string{checkpoints.WorkspaceKey(b.dir)}, b.treeKeys())
		freed := b.collect(CollectParams{})
		require.Equal(t, 1, freed.Trees)
		require.Equal(t, would.Trees, freed.Trees)
		require.Equal(t, would.Blobs, freed.Blobs)
		require.Greater(t, freed.Bytes, int64(90<<10))
		require.Less(t, b.storeBytes(), size)
		require.Empty(t, b.treeKeys())
		require.Zero(t, b.collect(CollectParams{}).Trees)
		if !gone { // the next session begins anew
			again := b.createTracked()
			e := b.prompt(again, "one")
			b.sh(`rm a`)
			b.end(again)
			require.Equal(t, []string{b.path("a")}, b.rewind(again, RewindParams{EntryID: e}).Restored)
		}
	}
}

// A session that cannot be opened, because its directory is gone or a link
// leads elsewhere for the time, still needs what its open turn began with.
func TestCapturesOfAnOpenTurnStay(t *testing.T) {
	for _, how := range []string{"gone", "elsewhere", "packed"} {
		b := newBox(t)
		real, link := b.dir, filepath.Join(filepath.Dir(b.dir), "link")
		require.NoError(t, os.Symlink(real, link))
		b.dir = link
		b.put("a", "0")
		s := b.createTracked()
		e := b.prompt(s, "one")
		b.put("a", "1")
		require.NoError(t, b.reg.Close(t.Context(), s.ID()))
		away := real + "-away"
		switch how {
		case "gone":
			require.NoError(t, os.Rename(real, away))
		case "elsewhere":
			require.NoError(t, os.Remove(link))
			require.NoError(t, os.Symlink(t.TempDir(), link))
		case "packed":
			b.collect(CollectParams{PackAfter: 1})
		}
		require.Zero(t, b.collect(CollectParams{}).Trees)
		switch how {
		case "gone":
			require.NoError(t, os.Rename(away, real))
		case "elsewhere":
			require.NoError(t, os.Remove(link))
			require.NoError(t, os.Symlink(real, link))
		}
		s = b.restart(s)
		require.Empty(t, b.end(s).Uncovered)
		require.Equal(t, []string{b.path("a")}, b.rewind(s, RewindParams{EntryID: e}).Restored)
		b.has("a", "0")
	}
}

// A deleted session holds nothing any more of directories that it has left.
func TestADeletedSessionLetsGoOfEveryDirectory(t *testing.T) {
	for _, open := range []bool{true, false} {
		b := newBox(t)
		left, later := t.TempDir(), t.TempDir()
		s, err := b.reg.Create(t.Context(), CreateParams{Cwd: b.dir, AdditionalDirectories: []string{left}, Tracking: Workspace})
		require.NoError(t, err)
		b.prompt(s, "one")
		b.end(s)
		s, err = b.reg.Load(t.Context(), s.ID(), b.dir, []string{later})
		require.NoError(t, err)
		b.prompt(s, "two")
		b.end(s)
		if !open {
			s = b.restart(s)
			require.NoError(t, b.reg.Close(t.Context(), s.ID()))
		}
		require.NoError(t, b.reg.Delete(t.Context(), s.ID()))
		for _, dir := range []string{b.dir, left, later} {
			files, err := filepath.Glob(filepath.Join(b.agent, "workspaces", checkpoints.WorkspaceKey(dir), "captures-*"))
			require.NoError(t, err)
			require.Len(t, files, 1)
			journal, err := os.ReadFile(files[0])
			require.NoError(t, err)
			require.Contains(t, string(journal), `"gone":true`, "%s, open: %v", dir, open) // nobody else was there
		}
	}
}

// A tree that a session makes anew between the prune and the sweep, under the
// same key, keeps its contents.
func TestATreeThatIsMadeAnewBeforeTheSweep(t *testing.T) {
	b := newBox(t)
	b.put("a", string(noise(1, 100<<10)))
	s := b.createTracked()
	b.prompt(s, "one")
	b.end(s)
	require.NoError(t, b.reg.Delete(t.Context(), s.ID()))
	_, store, err := b.another().reg.agentDir(false)
	require.NoError(t, err)
	release, err := store.Hold()
	require.NoError(t, err)
	collected := make(chan error, 1)
	go func() {
		done, err := b.reg.Collect(t.Context(), CollectParams{})
		if err == nil && done.Trees != 1 {
			err = os.ErrInvalid
		}
		collected <- err
	}()
	require.Eventually(t, func() bool {
		entries, err := os.ReadDir(filepath.Join(b.agent, "workspaces"))
		return err == nil && len(entries) == 0
	}, 10*time.Second, time.Millisecond)
	s = b.createTracked()
	e := b.prompt(s, "two")
	release()
	require.NoError(t, <-collected)
	b.sh(`rm a`)
	b.end(s)
	s = b.restart(s) // which may have the file open that was swept
	require.Equal(t, []string{b.path("a")}, b.rewind(s, RewindParams{EntryID: e}).Restored)
	b.has("a", string(noise(1, 100<<10)))
}
