package disk

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// openedDirs are a directory, and it open both ways.
func openedDirs(t *testing.T) (string, Root, Dir) {
	t.Helper()
	top := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(top, "sub"), 0o755))
	r, err := Open(top)
	require.NoError(t, err)
	t.Cleanup(func() { r.Close() })
	d, err := OpenDir(r, "sub")
	require.NoError(t, err)
	t.Cleanup(func() { d.Close() })
	return filepath.Join(top, "sub"), r, d
}

// plantKinds makes one of every kind that a test can make, and returns their names.
func plantKinds(t *testing.T, dir string) []string {
	t.Helper()
	names := []string{"file", "empty", "odd\nnäme\xff", "dir", "link", "dangling", "up"}
	if runtime.GOOS == "darwin" {
		names[2] = "odd näme" // it takes no other
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), []byte("content"), 0o640))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "empty"), nil, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, names[2]), []byte("x"), 0o644))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "dir"), 0o700))
	require.NoError(t, os.Symlink("file", filepath.Join(dir, "link")))
	require.NoError(t, os.Symlink(strings.Repeat("n", 300), filepath.Join(dir, "dangling")))
	require.NoError(t, os.Symlink("../..", filepath.Join(dir, "up")))
	for i, special := range []fs.FileMode{fs.ModeSetuid, fs.ModeSetgid, fs.ModeSticky} {
		name := "special" + string(rune('0'+i))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o700))
		require.NoError(t, os.Chmod(filepath.Join(dir, name), 0o700|special))
		names = append(names, name)
	}
	return names
}

// identity is what is asked of a file beyond fs.FileInfo: what file it is, whose,
// and when it last changed.
func identity(t *testing.T, info fs.FileInfo) (all []any) {
	t.Helper()
	stat := reflect.ValueOf(info.Sys()).Elem()
	require.Equal(t, "syscall.Stat_t", stat.Type().String())
	for _, field := range []string{"Dev", "Ino", "Mode", "Nlink", "Uid", "Gid", "Size"} {
		all = append(all, stat.FieldByName(field).Interface())
	}
	for _, either := range []string{"Ctim", "Ctimespec"} {
		if f := stat.FieldByName(either); f.IsValid() {
			all = append(all, f.Interface())
		}
	}
	return all
}

// What an open directory says of a name is what its root says.
func TestADirSeesWhatItsRootSees(t *testing.T) {
	dir, r, d := openedDirs(t)
	for _, name := range append(plantKinds(t, dir), "missing") {
		want, wantErr := r.Lstat("sub/" + name)
		got, err := d.Lstat(name)
		if wantErr != nil {
			require.ErrorIs(t, err, fs.ErrNotExist, name)
			_, err = d.OpenFile(name, os.O_RDONLY, 0)
			require.ErrorIs(t, err, fs.ErrNotExist, name)
			_, err = d.Readlink(name)
			require.ErrorIs(t, err, fs.ErrNotExist, name)
			require.ErrorIs(t, d.Remove(name), fs.ErrNotExist, name)
			require.ErrorIs(t, d.Lchown(name, -1, -1), fs.ErrNotExist, name)
			require.ErrorIs(t, d.Link(name, "other"), fs.ErrNotExist, name)
			require.ErrorIs(t, d.Rename(name, "other"), fs.ErrNotExist, name)
			require.ErrorContains(t, err, name)
			continue
		}
		require.NoError(t, err, name)
		same := func(got fs.FileInfo) {
			t.Helper()
			require.Equal(t, want.Mode(), got.Mode(), name)
			require.Equal(t, want.Size(), got.Size(), name)
			require.Equal(t, want.IsDir(), got.IsDir(), name)
			require.True(t, want.ModTime().Equal(got.ModTime()), name)
			require.Equal(t, want.Name(), got.Name())
			if runtime.GOOS != "windows" { // whose Sys does not say which file it is
				require.Equal(t, identity(t, want), identity(t, got), name)
			}
		}
		same(got)
		if want.Mode()&fs.ModeSymlink != 0 {
			wantTarget, err := r.Readlink("sub/" + name)
			require.NoError(t, err)
			target, err := d.Readlink(name)
			require.NoError(t, err)
			require.Equal(t, wantTarget, target)
			continue
		}
		_, err = d.Readlink(name)
		require.Error(t, err, name)
		if want.Mode().IsRegular() {
			f, err := d.OpenFile(name, os.O_RDONLY, 0)
			require.NoError(t, err, name)
			got, err = f.Stat()
			require.NoError(t, err, name)
			same(got)
			require.NoError(t, f.Close())
			require.Error(t, f.Close())
		}
	}
}

// An open directory takes names in it and no other, and follows no link out.
func TestADirTakesNoPaths(t *testing.T) {
	dir, _, d := openedDirs(t)
	plantKinds(t, dir)
	outside := filepath.Join(filepath.Dir(dir), "outside")
	require.NoError(t, os.WriteFile(outside, []byte("o"), 0o600))
	require.NoError(t, os.Symlink("../outside", filepath.Join(dir, "out")))
	for _, name := range []string{"../outside", "up/outside", "out"} {
		for _, flag := range []int{os.O_RDONLY, os.O_WRONLY, os.O_WRONLY | os.O_CREATE, os.O_WRONLY | os.O_CREATE | os.O_EXCL, os.O_WRONLY | os.O_TRUNC} {
			_, err := d.OpenFile(name, flag, 0o600)
			require.Error(t, err, "%s %x", name, flag)
		}
	}
	for _, name := range []string{"../outside", "../new"} {
		_, err := d.Lstat(name)
		require.Error(t, err, name)
		require.Error(t, d.Symlink("t", name))
		require.Error(t, d.Link("file", name))
		require.Error(t, d.Rename("file", name))
		require.Error(t, d.Rename(name, "file"))
		require.Error(t, d.Exchange(name, "file"))
		require.Error(t, d.Remove(name))
		require.Error(t, d.Lchown(name, -1, -1))
	}
	b, err := os.ReadFile(outside)
	require.NoError(t, err)
	require.Equal(t, "o", string(b))
	b, err = os.ReadFile(filepath.Join(dir, "file"))
	require.NoError(t, err)
	require.Equal(t, "content", string(b))
	require.NoFileExists(t, filepath.Join(filepath.Dir(dir), "new"))
}

// The operations of an open directory, each seen from outside.
func TestADirsOperations(t *testing.T) {
	dir, _, d := openedDirs(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	content := func(name string) string {
		t.Helper()
		b, err := os.ReadFile(at(name))
		require.NoError(t, err)
		return string(b)
	}

	f, err := d.OpenFile("a", os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	require.NoError(t, err)
	require.Equal(t, "a", filepath.Base(f.Name()))
	n, err := f.Write([]byte("0123456789"))
	require.NoError(t, err)
	require.Equal(t, 10, n)
	part := make([]byte, 4)
	n, err = f.ReadAt(part, 8)
	require.ErrorIs(t, err, io.EOF)
	require.Equal(t, "89", string(part[:n]))
	n, err = f.ReadAt(part, 2)
	require.NoError(t, err)
	require.Equal(t, "2345", string(part[:n]))
	_, err = f.ReadAt(part, -1)
	require.Error(t, err)
	_, err = f.Seek(3, io.SeekStart)
	require.NoError(t, err)
	rest, err := io.ReadAll(f)
	require.NoError(t, err)
	require.Equal(t, "3456789", string(rest))
	n, err = f.Read(part)
	require.Zero(t, n)
	require.Equal(t, io.EOF, err)
	require.NoError(t, f.Truncate(5))
	require.NoError(t, f.Sync())
	if runtime.GOOS != "windows" {
		require.NoError(t, f.Chmod(0o640|fs.ModeSetgid))
		info, err := os.Stat(at("a"))
		require.NoError(t, err)
		require.Equal(t, 0o640|fs.ModeSetgid, info.Mode())
	}
	require.NoError(t, f.Close())
	_, err = f.Read(part)
	require.Error(t, err)
	require.Equal(t, "01234", content("a"))

	_, err = d.OpenFile("a", os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	require.ErrorIs(t, err, fs.ErrExist)
	require.NoError(t, d.Link("a", "b"))
	require.ErrorIs(t, d.Link("a", "b"), fs.ErrExist)
	require.NoError(t, d.Rename("b", "c"))
	require.Equal(t, "01234", content("c"))
	require.NoError(t, d.Remove("c"))
	require.NoError(t, os.WriteFile(at("other"), []byte("other"), 0o600))
	if err := d.Exchange("a", "other"); !errors.Is(err, errors.ErrUnsupported) {
		require.NoError(t, err)
		require.Equal(t, "other", content("a"))
		require.Equal(t, "01234", content("other"))
		require.ErrorIs(t, d.Exchange("a", "missing"), fs.ErrNotExist)
	}
	require.NoError(t, d.Symlink("missing", "l"))
	require.ErrorIs(t, d.Symlink("missing", "l"), fs.ErrExist)
	require.NoError(t, d.Link("l", "l2")) // the link itself
	target, err := d.Readlink("l2")
	require.NoError(t, err)
	require.Equal(t, "missing", target)
	require.NoError(t, d.Lchown("l", -1, -1))
	require.NoError(t, os.MkdirAll(at("full/x"), 0o755))
	require.Error(t, d.Remove("full"))
	require.DirExists(t, at("full/x"))
	require.NoError(t, os.Remove(at("full/x")))
	require.NoError(t, d.Remove("full"))
	require.NoDirExists(t, at("full"))
}

// A directory stays the one that it was when it was opened, whatever takes its name.
func TestADirStaysTheSame(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("an open directory cannot be moved there")
	}
	dir, r, d := openedDirs(t)
	require.NoError(t, os.Rename(dir, dir+".moved"))
	require.NoError(t, os.Symlink("/", dir))
	f, err := d.OpenFile("new", os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	require.FileExists(t, filepath.Join(dir+".moved", "new"))
	_, err = OpenDir(r, "sub") // leads out now
	require.Error(t, err)
	_, err = OpenDir(r, "nothing")
	require.ErrorIs(t, err, fs.ErrNotExist)
}
