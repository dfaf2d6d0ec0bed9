package disktest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oino-dev/oinod/checkpoints/disk"
)

// tree describes every name of r, sorted.
func tree(t testing.TB, r disk.Root) []string {
	t.Helper()
	var lines []string
	var walk func(dir string)
	walk = func(dir string) {
		entries, err := disk.ReadDir(r, dir)
		require.NoError(t, err)
		for _, e := range entries {
			name := path.Join(dir, e.Name())
			i, err := r.Lstat(name)
			require.NoError(t, err)
			line := fmt.Sprintf("%s %v", name, i.Mode())
			switch {
			case i.Mode().IsRegular():
				b, err := disk.ReadFile(r, name)
				require.NoError(t, err)
				require.EqualValues(t, len(b), i.Size())
				line += fmt.Sprintf(" %q", b)
			case i.IsDir():
				walk(name)
			case i.Mode()&fs.ModeSymlink != 0:
				target, err := r.Readlink(name)
				require.NoError(t, err)
				line += " " + target
			}
			lines = append(lines, line)
		}
	}
	walk(".")
	slices.Sort(lines)
	return lines
}

func write(t testing.TB, r disk.Root, name, data string) {
	t.Helper()
	f, err := r.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o600)
	require.NoError(t, err)
	_, err = io.WriteString(f, data)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

func syncFile(t testing.TB, r disk.Root, name string) {
	t.Helper()
	f, err := r.OpenFile(name, os.O_RDWR, 0)
	require.NoError(t, err)
	require.NoError(t, f.Sync())
	require.NoError(t, f.Close())
}

// A random life on this disk and on a real one: every operation ends the same
// way, and so do the trees.
func TestItBehavesAsARealDisk(t *testing.T) {
	if os.PathSeparator != '/' {
		t.Skip("errors have other numbers here")
	}
	names := []string{"a", "b", "d", "d/a", "d/e", "d/e/a", "l", "l/a", "d/../a", "../x", "/a", "d/l", "a/x"}
	for seed := range uint64(200) {
		dir, err := os.MkdirTemp(t.TempDir(), "")
		require.NoError(t, err)
		real, err := disk.Open(dir)
		require.NoError(t, err)
		roots := [2]disk.Root{real, New().Root("/w")}
		rnd := rand.New(rand.NewPCG(seed, 1))
		for step := range 60 {
			x, y, op := names[rnd.IntN(len(names))], names[rnd.IntN(len(names))], rnd.IntN(11)
			flags := []int{os.O_RDONLY, os.O_WRONLY | os.O_CREATE, os.O_RDWR | os.O_CREATE | os.O_EXCL,
				os.O_WRONLY | os.O_TRUNC, os.O_WRONLY | os.O_APPEND, os.O_RDONLY | disk.NoFollow}[rnd.IntN(6)]
			var results [2]string
			for i, r := range roots {
				results[i] = doOne(r, op, flags, x, y)
			}
			if results[0] != results[1] && strings.HasSuffix(results[1], syscall.ELOOP.Error()) {
				continue // a link to below itself: who gives up first is of no matter
			}
			require.Equal(t, results[0], results[1], "seed %d step %d: operation %d on %q and %q", seed, step, op, x, y)
		}
		require.Equal(t, tree(t, real), tree(t, roots[1]), "seed %d", seed)
		real.Close()
	}
}

func doOne(r disk.Root, op, flags int, x, y string) (result string) {
	var err error
	switch op {
	case 0, 1, 2:
		var f disk.File
		if f, err = r.OpenFile(x, flags, 0o600); err == nil {
			b := make([]byte, 10)
			n, rerr := f.Read(b)
			_, werr := io.WriteString(f, y)
			result = fmt.Sprint(string(b[:n]), errno(rerr), errno(werr), f.Close())
		}
	case 3:
		err = r.Mkdir(x, 0o700)
	case 4:
		err = r.Symlink(y, x)
	case 5:
		err = r.Link(x, y)
	case 6, 7:
		err = r.Rename(x, y)
	case 8:
		err = r.Remove(x)
	case 9:
		var i fs.FileInfo
		if i, err = r.Lstat(x); err == nil {
			result = fmt.Sprint(i.Mode(), i.Name())
		}
	case 10:
		result, err = r.Readlink(x)
	}
	return result + errno(err)
}

// errno is what err is, but for the words around it.
func errno(err error) string {
	if err == nil || err == io.EOF {
		return fmt.Sprint(err)
	}
	var n syscall.Errno
	if errors.As(err, &n) {
		return n.Error()
	}
	if strings.HasSuffix(err.Error(), errEscapes.Error()) {
		return errEscapes.Error()
	}
	return err.Error()
}

func TestAPowerCutLeavesWhatWasSynced(t *testing.T) {
	f := New()
	r := f.Root("/w")
	write(t, r, "a", "synced")
	syncFile(t, r, "a")
	require.NoError(t, r.SyncDir("."))
	write(t, r, "a", "SYN")
	write(t, r, "unsynced name", "x")
	syncFile(t, r, "unsynced name")
	write(t, r, "unsynced bytes", "x")
	require.Equal(t, []string{`a -rw------- "synced"`}, tree(t, f.AfterPowerCut(nil).Root("/w")))
	require.NoError(t, r.SyncDir("."))
	require.Equal(t, []string{`a -rw------- "synced"`, `unsynced bytes -rw------- ""`, `unsynced name -rw------- "x"`},
		tree(t, f.AfterPowerCut(nil).Root("/w")))
	require.Equal(t, tree(t, r), tree(t, f.AfterPowerCut(Keep(1, 100)).Root("/w")))
}

func TestARenameIsOneThing(t *testing.T) {
	f := New()
	r := f.Root("/w")
	require.NoError(t, r.Mkdir("d", 0o700))
	write(t, r, "a", "x")
	syncFile(t, r, "a")
	require.NoError(t, r.SyncDir("."))
	require.NoError(t, r.Rename("a", "d/b"))
	for seed := range uint64(50) {
		got := tree(t, f.AfterPowerCut(Keep(seed, 50)).Root("/w"))
		require.Contains(t, []string{`a -rw------- "x"|d drwx------`, `d drwx------|d/b -rw------- "x"`}, strings.Join(got, "|"))
	}
	require.NoError(t, r.SyncDir("d"))
	require.Equal(t, []string{"d drwx------", `d/b -rw------- "x"`}, tree(t, f.AfterPowerCut(nil).Root("/w")))
}

func TestPagesThatAreNotKeptAreZeros(t *testing.T) {
	const pageSize = 100
	f := New()
	f.PageSize = pageSize
	r := f.Root("/w")
	write(t, r, "a", strings.Repeat("x", 3*pageSize))
	require.NoError(t, r.SyncDir("."))
	seen := map[string]bool{}
	for seed := range uint64(200) {
		b, err := disk.ReadFile(f.AfterPowerCut(Keep(seed, 50)).Root("/w"), "a")
		require.NoError(t, err)
		pages := ""
		for ; len(b) > 0; b = b[pageSize:] {
			pages += string("0x"[b[0]/'x'])
		}
		seen[pages] = true
	}
	require.Len(t, seen, 9) // nothing, and each page there or not
}

func TestTheNthOperationFails(t *testing.T) {
	f := New()
	r := f.Root("/w")
	f.FailAt(2, syscall.ENOSPC)
	file, err := r.OpenFile("a", os.O_RDWR|os.O_CREATE, 0o600)
	require.NoError(t, err)
	require.False(t, f.Fired())
	n, err := file.Write([]byte("1234"))
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.Equal(t, 2, n, "half of it is written")
	require.True(t, f.Fired())
	_, err = file.Write([]byte("5"))
	require.NoError(t, err)
	require.Equal(t, []string{`a -rw------- "125"`}, tree(t, r))
}

func TestAFailedSyncIsNotMadeGoodByTheNext(t *testing.T) {
	f := New()
	r := f.Root("/w")
	write(t, r, "a", "synced")
	syncFile(t, r, "a")
	require.NoError(t, r.SyncDir("."))
	file, err := r.OpenFile("a", os.O_RDWR|os.O_APPEND, 0)
	require.NoError(t, err)
	_, err = io.WriteString(file, ", lost")
	require.NoError(t, err)
	f.FailAt(1, syscall.EIO)
	require.ErrorIs(t, file.Sync(), syscall.EIO)
	require.NoError(t, file.Sync())
	require.Equal(t, []string{`a -rw------- "synced, lost"`}, tree(t, r))
	require.Equal(t, []string{`a -rw------- "synced\x00\x00\x00\x00\x00\x00"`}, tree(t, f.AfterPowerCut(nil).Root("/w")))
	require.NoError(t, file.Truncate(6))
	_, err = io.WriteString(file, ", lost")
	require.NoError(t, err)
	require.NoError(t, file.Sync())
	require.Equal(t, tree(t, r), tree(t, f.AfterPowerCut(nil).Root("/w")))
}

func TestNothingWorksAfterTheKthWrite(t *testing.T) {
	f := New()
	r := f.Root("/w")
	f.CutAt(2)
	require.NoError(t, r.Mkdir("a", 0o700))
	_, err := r.Lstat("a")
	require.NoError(t, err)
	require.NoError(t, r.SyncDir("."))
	require.ErrorIs(t, r.Mkdir("b", 0o700), ErrPowerCut)
	_, err = r.Lstat("a")
	require.ErrorIs(t, err, ErrPowerCut)
	require.True(t, f.Cut())
	require.Equal(t, []string{"a drwx------"}, tree(t, f.AfterPowerCut(nil).Root("/w")))
}

func TestHardLinksStayOneFileAfterAPowerCut(t *testing.T) {
	f := New()
	r := f.Root("/w")
	write(t, r, "a", "x")
	require.NoError(t, r.Link("a", "b"))
	syncFile(t, r, "a")
	require.NoError(t, r.SyncDir("."))
	after := f.AfterPowerCut(nil).Root("/w")
	write(t, after, "a", "y")
	require.Equal(t, []string{`a -rw------- "y"`, `b -rw------- "y"`}, tree(t, after))
}

func TestASpecialFileIsNotOpened(t *testing.T) {
	r := New().Root("/w")
	require.NoError(t, Special(r, "fifo", fs.ModeNamedPipe|0o600))
	_, err := r.OpenFile("fifo", os.O_RDONLY, 0)
	require.ErrorIs(t, err, ErrSpecial)
}

func TestLocks(t *testing.T) {
	f := New()
	a, b := f.Root("/w").(*root), f.Root("/w").(*root)
	one, ok, err := a.Lock("l", true, false)
	require.NoError(t, err)
	require.True(t, ok)
	two, ok, _ := b.Lock("l", true, true)
	require.True(t, ok)
	_, ok, _ = b.Lock("l", false, false)
	require.False(t, ok)
	require.NoError(t, one())
	require.NoError(t, two())
	alone, ok, _ := b.Lock("l", false, false)
	require.True(t, ok)
	_, ok, _ = a.Lock("l", true, false)
	require.False(t, ok)
	require.NoError(t, alone())
	_, ok, _ = f.AfterPowerCut(nil).Root("/w").(*root).Lock("l", false, false)
	require.True(t, ok)
}
