package session

import (
	"os"
	"path/filepath"
	"testing"

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
