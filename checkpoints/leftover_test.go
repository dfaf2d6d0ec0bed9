package checkpoints

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oino-dev/oinod/checkpoints/disk/disktest"
)

// A temporary name that cannot be removed is told, whatever came of its path:
// that is in place, or keeps what it had, as is said of it.
func TestATemporaryNameThatStaysIsNamed(t *testing.T) {
	for name, c := range map[string]struct {
		left  tree
		fault string // what fails besides removing
		back  bool
		want  tree
	}{
		"a file that comes back where nothing is": {tree{}, "", true, tree{"f": file("v0"), ".f.oino-tmp-0": file("v0")}},
		"a file that cannot be staged":            {tree{"f": file("v1")}, "sync", false, tree{"f": file("v1"), ".f.oino-tmp-0": file("v0")}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, tree{"f": file("v0")}, c.left)
			w := openOn(t, s.fs, s.kept)
			s.fs.FailIf(func(o disktest.Op) error {
				if strings.Contains(o.Name, ".oino-") && (o.Kind == "remove" || o.Kind == c.fault) {
					return syscall.EIO
				}
				return nil
			})
			o, failed := s.rewind(t, w)
			s.fs.FailIf(nil)
			require.Empty(t, o.Done)
			require.Len(t, failed, 1)
			require.Equal(t, "/w/f", failed[0].Path)
			require.Equal(t, c.back, failed[0].Back)
			require.Equal(t, 1, strings.Count(failed[0].Message, "/w/.f.oino-tmp-0"), failed[0].Message)
			require.Equal(t, c.want, treeOn(t, s.fs.Root("/w")))
		})
	}
}

// Of a plan that is all or nothing nothing is done where somebody saves a path
// after it was prepared, or makes one.
func TestAllOrNothingLooksBeforeTheFirstChange(t *testing.T) {
	for _, n := range []int{4, 100} {
		for name, save := range map[string]func(t *testing.T, base string){
			"a save": func(t *testing.T, base string) {
				require.NoError(t, os.WriteFile(base+"/d0/f3", []byte("saved"), 0o644))
			},
			"a new file": func(t *testing.T, base string) { require.NoError(t, os.WriteFile(base+"/was", []byte("new"), 0o644)) },
			"a swapped dir": func(t *testing.T, base string) {
				require.NoError(t, os.Rename(base+"/d0", base+"/moved"))
				require.NoError(t, os.Symlink("moved", base+"/d0"))
			},
		} {
			t.Run(name, func(t *testing.T) {
				a, b := with(manyFiles(n, "v0 "), tree{"was": file("gone")}), manyFiles(n, "v1 ")
				w, base := workspace(t, a)
				r := turn(t, w, base, a, b)
				p := r.plan(Keep)
				p.AllOrNothing = true
				in, failed, err := w.Prepare(t.Context(), p)
				require.NoError(t, err)
				require.Empty(t, failed)
				save(t, base)
				before := treeOf(t, base)
				o := w.Act(t.Context(), in, false)
				require.Empty(t, o.Done)
				require.NotEmpty(t, o.Failed)
				require.Len(t, o.CalledOff, n+1-len(o.Failed))
				require.Equal(t, before, treeOf(t, base))
			})
		}
	}
}
