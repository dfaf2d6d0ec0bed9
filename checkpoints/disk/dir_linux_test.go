package disk

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// No link is followed on the way to a directory, and one that cannot be listed
// can be opened.
func TestADirIsReachedThroughDirectoriesAlone(t *testing.T) {
	dir, r, _ := openedDirs(t)
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "real/deep"), 0o755))
	require.NoError(t, os.Symlink("real", filepath.Join(dir, "link")))
	require.NoError(t, os.Symlink("deep", filepath.Join(dir, "real/last")))
	for _, name := range []string{"sub/link", "sub/link/deep", "sub/real/last"} {
		_, err := OpenDir(r, name)
		require.Error(t, err, name)
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "real/deep/f"), nil, 0o600))
	require.NoError(t, os.Chmod(filepath.Join(dir, "real/deep"), 0o300))
	for _, name := range []string{".", "sub/real/deep"} {
		d, err := OpenDir(r, name)
		require.NoError(t, err, name)
		require.NoError(t, d.Close())
		require.Error(t, d.Close())
	}
	d, err := OpenDir(r, "sub/real/deep")
	require.NoError(t, err)
	defer d.Close()
	_, err = d.Lstat("f")
	require.NoError(t, err)
	f, err := d.OpenFile("g", os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	require.NoError(t, err)
	flags, err := unix.FcntlInt(uintptr(f.(*rawFile).fd), unix.F_GETFD, 0)
	require.NoError(t, err)
	require.NotZero(t, flags&unix.FD_CLOEXEC, "no program that is started has it")
	require.NoError(t, f.Close())
}

// A kernel that does not know openat2 gets the same, name by name.
func TestOpeningStepByStep(t *testing.T) {
	dir, _, _ := openedDirs(t)
	deep := strings.Repeat("d/", 30) + "d"
	require.NoError(t, os.MkdirAll(filepath.Join(dir, deep), 0o755))
	require.NoError(t, os.Symlink("d", filepath.Join(dir, "link")))
	top, err := unix.Open(dir, unix.O_PATH, 0)
	require.NoError(t, err)
	defer unix.Close(top)
	for name, want := range map[string]error{deep: nil, ".": nil, "link": unix.ENOTDIR, "link/d": unix.ENOTDIR, "d/none": unix.ENOENT} {
		fd, err := openSteps(top, name, unix.O_PATH)
		require.ErrorIs(t, err, want, name)
		if err == nil {
			require.NoError(t, unix.Close(fd))
		}
	}
}
