package disk

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNoFollowRefusesALink(t *testing.T) {
	if NoFollow == 0 {
		t.Skip("no such flag here")
	}
	dir := t.TempDir()
	r, err := Open(dir)
	require.NoError(t, err)
	defer r.Close()
	require.NoError(t, Publish(r, "a", []byte("x"), 0o640))
	require.NoError(t, r.Symlink("a", "l"))
	f, err := r.OpenFile("l", os.O_RDONLY, 0)
	require.NoError(t, err, "within the root a link is followed")
	require.NoError(t, f.Close())
	_, err = r.OpenFile("l", os.O_RDONLY|NoFollow, 0)
	require.ErrorIs(t, err, errLink)
	f, err = r.OpenFile("a", os.O_RDONLY|NoFollow, 0)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	_, err = r.OpenFile("../a", os.O_RDONLY, 0)
	require.Error(t, err)
}

func TestPublishIsWholeAndLeavesNothingElse(t *testing.T) {
	dir := t.TempDir()
	r, err := Open(dir)
	require.NoError(t, err)
	defer r.Close()
	require.NoError(t, MkdirAll(r, "a/b/c", 0o700))
	require.NoError(t, MkdirAll(r, "a/b/c", 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a/b/c/x.tmp"), []byte("an old one's"), 0o600))
	for _, data := range []string{"first", "", "second"} {
		require.NoError(t, Publish(r, "a/b/c/x", []byte(data), 0o666))
		got, err := ReadFile(r, "a/b/c/x")
		require.NoError(t, err)
		require.Equal(t, data, string(got))
	}
	if os.PathSeparator == '/' {
		require.NoError(t, MkdirAll(r, "a/b/open", 0o777))
		i, err := r.Lstat("a/b/open")
		require.NoError(t, err)
		require.Equal(t, fs.ModeDir|0o777, i.Mode(), "whatever the umask")
		i, err = r.Lstat("a/b/c/x")
		require.NoError(t, err)
		require.Equal(t, fs.FileMode(0o666), i.Mode(), "whatever the umask")
	}
	entries, err := ReadDir(r, "a/b/c")
	require.NoError(t, err)
	require.Len(t, entries, 1)
	_, err = ReadFile(r, "none")
	require.True(t, errors.Is(err, fs.ErrNotExist))
	require.Error(t, Publish(r, "none/x", nil, 0o600))
}
