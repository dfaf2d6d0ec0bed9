package checkpoints

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// A link that takes a directory's name while files are removed from that is not
// followed: what it leads to is the user's, though it looks the same.
func TestRemovingFollowsNoLinkThatCameMeanwhile(t *testing.T) {
	for _, held := range []bool{true, false} { // is the directory still open?
		left := tree{"d/one": file("1"), "d/two": file("2"), "backup/one": file("1"), "backup/two": file("2")}
		a := tree{"backup/one": file("1"), "backup/two": file("2")}
		w, base := workspace(t, a)
		r := turn(t, w, base, a, left)
		in, failed, err := w.Prepare(t.Context(), r.plan(Keep))
		require.NoError(t, err)
		require.Empty(t, failed)
		act := w.newAct(in, false)
		dirs, h := newParents(), &handle{}
		defer h.close()
		one, two := act.byPath[base+"/d/one"], act.byPath[base+"/d/two"]
		act.removeOne(one, dirs, h)
		require.True(t, one.done)
		require.NoError(t, os.Rename(base+"/d", base+"/moved"))
		require.NoError(t, os.Symlink("backup", base+"/d"))
		if !held {
			h.close()
		}
		act.removeOne(two, dirs, h)
		tr := treeOf(t, base)
		require.Equal(t, file("2"), tr["backup/two"])
		if held {
			require.NotContains(t, tr, "moved/two", "it was seen there")
		} else {
			require.Equal(t, file("2"), tr["moved/two"])
		}
	}
}
