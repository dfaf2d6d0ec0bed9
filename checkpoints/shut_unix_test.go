//go:build unix

package checkpoints

import (
	"io/fs"
	"os"
	"path"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oino-dev/oinod/checkpoints/disk"
)

// strict is a disk that keeps whoever asks out of directories whose mode does,
// also root, as whom tests may run.
type strict struct{ disk.Root }

// ask reports what a mode forbids: going through the directories above name,
// and opening name itself, if it is a directory.
func (d strict) ask(op, name string) error {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if info, err := d.Root.Lstat(dir); err == nil && info.IsDir() && info.Mode()&0o100 == 0 {
			return &fs.PathError{Op: op, Path: name, Err: syscall.EACCES}
		}
	}
	if info, err := d.Root.Lstat(name); err == nil && info.IsDir() && info.Mode()&0o400 == 0 {
		return &fs.PathError{Op: op, Path: name, Err: syscall.EACCES}
	}
	return nil
}

func (d strict) OpenFile(name string, flag int, perm fs.FileMode) (disk.File, error) {
	if err := d.ask("open", name); err != nil {
		return nil, err
	}
	return d.Root.OpenFile(name, flag, perm)
}

func (d strict) SyncDir(name string) error {
	if err := d.ask("sync", name); err != nil {
		return err
	}
	return d.Root.SyncDir(name)
}

// A directory that was shut to its owner is shut again, with what came back in
// it, and the disk has confirmed all of it.
func TestADirectoryThatIsShutComesBack(t *testing.T) {
	for name, modes := range map[string]map[string]uint32{
		"empty":                  {"empty": 0o000},
		"not to be listed":       {"d": 0o300},
		"not to be gone through": {"d": 0o400},
		"with a file":            {"d": 0o000},
		"with more below":        {"d": 0o000, "d/e": 0o000, "d/g": 0o600},
	} {
		t.Run(name, func(t *testing.T) {
			was := tree{"empty": dir(), "d": dir(), "d/f": file("v0"), "d/e": dir(), "d/e/f": file("v0"), "d/g": dir(), "d/g/h": file("v0")}
			now := tree{"empty": dir(), "d": dir(), "d/f": file("v1"), "d/e": dir(), "d/e/f": file("v1"), "d/g": dir(), "d/g/h": file("v1")}
			w, base := workspace(t, was)
			r := turn(t, w, base, was, now)
			for i, touched := range r.touched {
				if mode, ok := modes[touched.Path[len(base)+1:]]; ok {
					r.touched[i].Target.Mode = mode
				}
			}
			w.roots[0].disk = strict{w.roots[0].disk}
			_, failed := r.run(Keep)
			require.Empty(t, failed)
			for _, d := range []string{"empty", "d", "d/e", "d/g"} { // opened one after the other, to look in
				want, ok := modes[d]
				if !ok {
					want = 0o755
				}
				info, err := os.Lstat(base + "/" + d)
				require.NoError(t, err)
				require.Equal(t, want, modeOf(info), d)
				require.NoError(t, os.Chmod(base+"/"+d, 0o755))
			}
			require.Equal(t, was, treeOf(t, base))
		})
	}
}
