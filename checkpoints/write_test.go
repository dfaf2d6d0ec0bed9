package checkpoints

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/oino-dev/oinod/checkpoints/disk"
)

func TestWriteLeavesTheStateItForetells(t *testing.T) {
	w, base := workspace(t, tree{"f": mfile(0o600, "old"), "x.sh": mfile(0o755, "old"), "d": dir()})
	for name, mode := range map[string]uint32{"f": 0o600, "x.sh": 0o755, "new": 0o644 &^ w.umask, "d/new": 0o644 &^ w.umask, "n/e/w": 0o644 &^ w.umask} {
		for _, content := range []string{"content of " + name, ""} {
			foretold, err := w.StateOf(base+"/"+name, []byte(content))
			require.NoError(t, err)
			s, err := w.Write(base+"/"+name, []byte(content), w.TempName(), State{})
			require.NoError(t, err)
			require.Equal(t, fileState(mode, content), s)
			require.Equal(t, s, foretold)
			require.Equal(t, s, w.Look(base+"/"+name).State)
			got, err := w.Read(base+"/"+name, 100)
			require.NoError(t, err)
			require.Equal(t, content, string(got))
		}
	}
	require.Len(t, treeOf(t, base), 8, "and no temporary file: %v", treeOf(t, base))
}

func TestWriteRefusesWhatIsNoRegularFile(t *testing.T) {
	tr := tree{"d/x": file("x"), "to": link("d/x"), "dangling": link("nowhere"), "pipe": fifo(), "f": file("f")}
	w, base := workspace(t, tr)
	before := treeOf(t, base)
	for _, name := range []string{"d", "to", "dangling", "pipe", "pipe/x", "f/x", "to/x", "dangling/x"} {
		_, err := w.Write(base+"/"+name, []byte("new"), w.TempName(), State{})
		require.Error(t, err, name)
		require.Contains(t, err.Error(), base+"/"+name)
		_, err = w.StateOf(base+"/"+name, nil)
		require.Error(t, err, name)
	}
	for _, name := range []string{"d", "to", "pipe", "none", "f/x"} {
		_, err := w.Read(base+"/"+name, 100)
		require.Error(t, err, name)
	}
	_, err := w.Read(base+"/none", 100)
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = w.Read(base+"/f", 0)
	require.ErrorContains(t, err, "limit")
	require.Equal(t, before, treeOf(t, base))
}

func TestOtherNamesOfAFileKeepTheirBytes(t *testing.T) {
	w, base := workspace(t, tree{"a": file("old")})
	require.NoError(t, os.Link(base+"/a", base+"/b"))
	_, err := w.Write(base+"/a", []byte("new"), w.TempName(), State{})
	require.NoError(t, err)
	require.Equal(t, tree{"a": file("new"), "b": file("old")}, treeOf(t, base))
}

func TestAFileKeepsItsOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may give files away")
	}
	w, base := workspace(t, tree{"a": mfile(0o4750, "old")})
	require.NoError(t, os.Chown(base+"/a", 1234, 4321))
	require.NoError(t, os.Chmod(base+"/a", fileMode(0o4750)))
	_, err := w.Write(base+"/a", []byte("new"), w.TempName(), State{})
	require.NoError(t, err)
	info, err := os.Lstat(base + "/a")
	require.NoError(t, err)
	require.Equal(t, owner{1234, 4321}, ownerOf(info))
	require.Equal(t, uint32(0o4750), modeOf(info))
}

// fork is a disk on which one operation does something else.
type fork struct {
	disk.Root
	link     func(old, new string) error
	rename   func(old, new string) error
	exchange func(old, new string) error
	remove   func(name string) error
	open     func(name string, flag int) error
}

func (d fork) Link(old, new string) error {
	if d.link != nil {
		if err := d.link(old, new); err != nil {
			return &os.LinkError{Op: "link", Old: old, New: new, Err: err}
		}
	}
	return d.Root.Link(old, new)
}

func (d fork) Rename(old, new string) error {
	if d.rename != nil {
		if err := d.rename(old, new); err != nil {
			return &os.LinkError{Op: "rename", Old: old, New: new, Err: err}
		}
	}
	return d.Root.Rename(old, new)
}

func (d fork) Exchange(old, new string) error {
	if d.exchange != nil {
		if err := d.exchange(old, new); err != nil {
			return &os.LinkError{Op: "exchange", Old: old, New: new, Err: err}
		}
	}
	return d.Root.Exchange(old, new)
}

func (d fork) Remove(name string) error {
	if d.remove != nil {
		if err := d.remove(name); err != nil {
			return &fs.PathError{Op: "remove", Path: name, Err: err}
		}
	}
	return d.Root.Remove(name)
}

func (d fork) OpenFile(name string, flag int, perm fs.FileMode) (disk.File, error) {
	if d.open != nil {
		if err := d.open(name, flag); err != nil {
			return nil, &fs.PathError{Op: "open", Path: name, Err: err}
		}
	}
	return d.Root.OpenFile(name, flag, perm)
}

func onFork(w *Workspace, d fork) {
	d.Root = w.roots[0].disk
	w.roots[0].disk = d
}

func TestAFileMadeAtTheLastMomentIsNotWrittenOver(t *testing.T) {
	for _, links := range []bool{true, false} {
		w, base := workspace(t, tree{})
		onFork(w, fork{link: func(_, new string) error {
			plantOne(t, base+"/"+new, file("the user's"))
			if links {
				return nil
			}
			return syscall.ENOTSUP
		}})
		_, err := w.Write(base+"/d/f", []byte("ours"), w.TempName(), State{})
		require.ErrorIs(t, err, ErrAppeared)
		require.Equal(t, tree{"d/f": file("the user's")}, treeOf(t, base).bare())
	}
	// Without hard links, and nobody there, it is a rename.
	w, base := workspace(t, tree{})
	onFork(w, fork{link: func(string, string) error { return syscall.EPERM }})
	_, err := w.Write(base+"/f", []byte("ours"), w.TempName(), State{})
	require.NoError(t, err)
	require.Equal(t, tree{"f": file("ours")}, treeOf(t, base))
}

func TestAFailedWriteLeavesWhatWasThere(t *testing.T) {
	full := func(string, string) error { return syscall.ENOSPC }
	for _, tr := range []tree{{"d/f": file("old")}, {"e": file("e")}} {
		w, base := workspace(t, tr)
		onFork(w, fork{link: full, rename: full, exchange: full})
		_, err := w.Write(base+"/d/f", []byte("new"), w.TempName(), State{})
		require.ErrorIs(t, err, syscall.ENOSPC)
		require.NotContains(t, err.Error(), ".oino-")
		require.Equal(t, tr, treeOf(t, base).bare(), "no file, no directory, no temporary file more or less")
	}
	w, base := workspace(t, tree{"d": dir()})
	onFork(w, fork{open: func(_ string, flag int) error {
		if flag&os.O_CREATE != 0 {
			return syscall.EACCES
		}
		return nil
	}})
	_, err := w.Write(base+"/d/f", []byte("new"), w.TempName(), State{})
	require.ErrorIs(t, err, fs.ErrPermission)
	require.ErrorContains(t, err, "the directory "+base+"/d cannot be written in")
}

func TestATemporaryNameFitsBesideAnyName(t *testing.T) {
	for _, name := range []string{"a", ".a", "...", strings.Repeat("n", 255), strings.Repeat("é", 127), "a\nb", "-n", "名前" + strings.Repeat("字", 80)} {
		for _, in := range []string{"", "d/", "d/e/"} {
			temp := tempNear(in+name, strings.Repeat("u", 12))
			require.True(t, strings.HasPrefix(temp, in+"."), temp)
			require.LessOrEqual(t, len(temp)-len(in), 255)
			require.True(t, utf8.ValidString(temp))
			require.NotContains(t, temp[len(in):], "/")
		}
	}
	w, base := workspace(t, tree{})
	for i, name := range []string{strings.Repeat("n", 255), strings.Repeat("é", 127), " a ", "a\nb\t'\"", "[id].tsx", ":(top)x", "-n", "e\u0301", "\u00e9", "😀"} {
		_, err := w.Write(base+"/"+name, fmt.Append(nil, i), w.TempName(), State{})
		require.NoError(t, err, name)
		require.Equal(t, fileState(0o644&^w.umask, fmt.Sprint(i)), w.Look(base+"/"+name).State)
	}
	_, err := w.Write(base+"/a\xffb", nil, w.TempName(), State{})
	require.Error(t, err)
	var e *PathError
	_, err = w.Write("/etc/oinod-test", nil, w.TempName(), State{})
	require.True(t, errors.As(err, &e))
}

// To put another file in the place of one needs no more than its directory: who
// may not read or write a file is not to get around that through us.
func TestWriteRefusesWhatMayNotBeReadOrWritten(t *testing.T) {
	for _, forbidden := range []int{os.O_RDONLY, os.O_WRONLY} {
		w, base := workspace(t, tree{"shut": file("old"), "open": file("old")})
		onFork(w, fork{open: func(name string, flag int) error {
			if name == "shut" && flag&(os.O_WRONLY|os.O_RDWR) == forbidden {
				return syscall.EACCES
			}
			return nil
		}})
		before := treeOf(t, base)
		_, err := w.Write(base+"/shut", []byte("new"), w.TempName(), State{})
		require.ErrorContains(t, err, "permissions")
		_, err = w.StateOf(base+"/shut", []byte("new"))
		require.ErrorContains(t, err, "permissions")
		require.Equal(t, before, treeOf(t, base))
		_, err = w.Write(base+"/open", []byte("new"), w.TempName(), State{})
		require.NoError(t, err)
	}
}
