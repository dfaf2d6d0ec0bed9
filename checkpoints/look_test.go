package checkpoints

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oino-dev/oinod/checkpoints/blobs"
	"github.com/oino-dev/oinod/checkpoints/disk"
)

func fileState(mode uint32, content string) State {
	return State{Kind: File, Mode: mode, Size: int64(len(content)), Digest: digestOf([]byte(content))}
}

func TestLookSaysWhatIsThere(t *testing.T) {
	w, base := workspace(t, tree{
		"f":         mfile(0o640, "hello"),
		"empty":     mfile(0o600, ""),
		"suid":      mfile(0o4755, "x"),
		"to":        link("nowhere"),
		"toDir":     link("d"),
		"d/a":       file("a"),
		"d/s/b":     file("b"),
		"none":      mdir(0o1777),
		"pipe":      fifo(),
		"d2/.git/x": file("x"),
	})
	sock, err := net.Listen("unix", filepath.Join(base, "sock"))
	require.NoError(t, err)
	defer sock.Close()

	require.Equal(t, Sight{State: fileState(0o640, "hello")}, w.Look(base+"/f"))
	require.Equal(t, Sight{State: fileState(0o600, "")}, w.Look(base+"/empty"))
	require.Equal(t, Sight{State: fileState(0o4755, "x")}, w.Look(base+"/suid"))
	require.Equal(t, Sight{State: State{Kind: Symlink, Target: "nowhere"}}, w.Look(base+"/to"))
	require.Equal(t, Sight{State: State{Kind: Symlink, Target: "d"}}, w.Look(base+"/toDir"))
	require.Equal(t, Sight{State: State{Kind: Dir, Mode: 0o1777}}, w.Look(base+"/none"))
	require.Equal(t, Sight{State: State{Kind: Absent}}, w.Look(base+"/x"))
	require.Equal(t, Sight{State: State{Kind: Absent}}, w.Look(base+"/x/y/z"))
	for _, special := range []string{"pipe", "sock"} { // opening the pipe would wait for ever
		require.Equal(t, Sight{State: State{Kind: Uncovered, Reason: NotRegular}}, w.Look(base+"/"+special))
	}

	s := w.Look(base + "/d")
	slices.Sort(s.Below)
	require.Equal(t, Sight{
		State: State{Kind: Dir, Mode: 0o755},
		Below: []string{base + "/d/a", base + "/d/s", base + "/d/s/b"},
	}, s)
	require.Equal(t, []string{base + "/d2/.git"}, w.Look(base+"/d2").Below, "nothing looks into .git")

	// Below what is no directory nothing is, and Look says what is in the way.
	require.Equal(t, Sight{State: State{Kind: Absent}, Blocked: base + "/f", BlockedBy: File}, w.Look(base+"/f/x/y"))
	require.Equal(t, Sight{State: State{Kind: Absent}, Blocked: base + "/toDir", BlockedBy: Symlink}, w.Look(base+"/toDir/a"))
	require.Equal(t, Sight{State: State{Kind: Absent}, Blocked: base + "/pipe", BlockedBy: Uncovered}, w.Look(base+"/pipe/a"))

	// Outside, and a name that a log cannot hold.
	require.Equal(t, Uncovered, w.Look("/etc/passwd").State.Kind)
	require.Equal(t, Uncovered, w.Look(base+"/d2/.git/x").State.Kind)
	require.Equal(t, Sight{State: State{Kind: Uncovered, Reason: BadName}}, w.Look(base+"/a\xffb"))
}

func TestLookAllSeesWhatLookSees(t *testing.T) {
	tr := tree{"a/x": file("x"), "b": link("a"), "c/d/e": file("e")}
	var paths []string
	for i := range 300 {
		tr[fmt.Sprintf("many/d%d/f%d", i%7, i)] = file(fmt.Sprint(i))
	}
	w, base := workspace(t, tr)
	for name := range tr {
		paths = append(paths, base+"/"+name, base+"/"+name+"/below", filepath.Dir(base+"/"+name))
	}
	paths = append(paths, base+"/b/x", base+"/none/x")
	sights := w.LookAll(paths)
	for i, path := range paths {
		one := w.Look(path)
		slices.Sort(one.Below)
		slices.Sort(sights[i].Below)
		require.Equal(t, one, sights[i], path)
	}
}

func TestADirectoryTooFullToListSaysSo(t *testing.T) {
	w, base := workspace(t, tree{"d/a": file("a")})
	l := lister{p: place{path: base, root: w.roots[0], disk: w.roots[0].disk, rel: "."}, skip: w.refuse}
	l.below = make([]string, maxBelow-1)
	l.list(".")
	require.Len(t, l.below, maxBelow)
	require.True(t, l.more)
}

// meddling is a disk on which something happens right after each look at a
// file, or instead of an operation.
type meddling struct {
	disk.Root
	afterLstat func(name string)
	onOpen     func(name string) error
	onLstat    func(name string) error
}

func (m meddling) Lstat(name string) (fs.FileInfo, error) {
	if m.onLstat != nil {
		if err := m.onLstat(name); err != nil {
			return nil, &fs.PathError{Op: "lstat", Path: name, Err: err}
		}
	}
	fi, err := m.Root.Lstat(name)
	if m.afterLstat != nil {
		m.afterLstat(name)
	}
	return fi, err
}

func (m meddling) OpenFile(name string, flag int, perm fs.FileMode) (disk.File, error) {
	if m.onOpen != nil {
		if err := m.onOpen(name); err != nil {
			return nil, &fs.PathError{Op: "open", Path: name, Err: err}
		}
	}
	return m.Root.OpenFile(name, flag, perm)
}

func meddle(w *Workspace, m meddling) {
	m.Root = w.roots[0].disk
	w.roots[0].disk = m
}

func TestWhatCannotBeSeenIsNeverAbsent(t *testing.T) {
	for _, errno := range []error{syscall.EACCES, syscall.EIO, syscall.EMFILE, syscall.ELOOP, syscall.ESTALE} {
		for _, on := range []string{"open", "lstat", "parent"} {
			w, base := workspace(t, tree{"d/f": file("x")})
			fail := func(at string) func(string) error {
				return func(name string) error {
					if name == at {
						return errno
					}
					return nil
				}
			}
			switch on {
			case "open":
				meddle(w, meddling{onOpen: fail("d/f")})
			case "lstat":
				meddle(w, meddling{onLstat: fail("d/f")})
			case "parent":
				meddle(w, meddling{onLstat: fail("d")})
			}
			s := w.Look(base + "/d/f")
			require.Equal(t, State{Kind: Uncovered, Reason: Unreadable}, s.State, "%s: %v", on, errno)
			require.NotEmpty(t, s.Err)
			c, err := w.Capture(base + "/d/f")
			require.NoError(t, err, "that is no failure of the store")
			require.Equal(t, s.State, c.State)
			require.NotEmpty(t, c.Err)
		}
	}
}

// Between the look at a name and its opening anything may come there.
func TestAFileSwappedUnderTheEyeIsNotOpenedAsAnother(t *testing.T) {
	for _, swap := range []string{fifo(), link("other"), link("/etc/passwd"), dir()} {
		w, base := workspace(t, tree{"f": file("x"), "other": file("not this")})
		done := false
		meddle(w, meddling{afterLstat: func(name string) {
			if name == "f" && !done {
				done = true
				require.NoError(t, os.Remove(base+"/f"))
				plantOne(t, base+"/f", swap)
			}
		}})
		s := w.Look(base + "/f")
		require.True(t, done)
		require.NotEqual(t, File, s.State.Kind, swap)
		require.Equal(t, []State{
			{Kind: Uncovered, Reason: NotRegular}, {Kind: Symlink, Target: "other"},
			{Kind: Symlink, Target: "/etc/passwd"}, {Kind: Dir, Mode: 0o755},
		}[slices.Index([]string{fifo(), link("other"), link("/etc/passwd"), dir()}, swap)], s.State)
	}
}

func TestAFileThatKeepsChangingIsUncovered(t *testing.T) {
	w, base := workspace(t, tree{"f": file("x")})
	n := 0
	meddle(w, meddling{afterLstat: func(string) {
		n++
		require.NoError(t, os.Remove(base+"/f"))
		plantOne(t, base+"/f", file(strings.Repeat("x", n)))
	}})
	s := w.Look(base + "/f")
	require.Equal(t, State{Kind: Uncovered, Reason: Unreadable}, s.State)
	require.Equal(t, errChanged.Error(), s.Err)
	require.Equal(t, looks, n)
}

func TestCaptureKeepsWhatFits(t *testing.T) {
	big := strings.Repeat("0123456789", 1000)
	w, base := workspace(t, tree{
		"small": file("small"), "big": mfile(0o600, big), "to": link("big"), "d": mdir(0o700), "pipe": fifo(),
	})
	w.maxKept = 100
	kept := w.blobs.(*memory).kept

	for path, want := range map[string]Captured{
		"small": {State: fileState(0o644, "small")},
		"big":   {State: State{Kind: Uncovered, Reason: TooLarge, Mode: 0o600, Size: 10000, Digest: digestOf([]byte(big))}},
		"to":    {State: State{Kind: Symlink, Target: "big"}},
		"d":     {State: State{Kind: Dir, Mode: 0o700}},
		"pipe":  {State: State{Kind: Uncovered, Reason: NotRegular}},
		"none":  {State: State{Kind: Absent}},
	} {
		info, err := os.Lstat(base + "/" + path)
		if err != nil {
			info, err = os.Lstat(base)
		}
		require.NoError(t, err)
		want.Changed = time.Unix(0, max(info.ModTime().UnixNano(), changeTime(info)))
		c, err := w.Capture(base + "/" + path)
		require.NoError(t, err)
		require.Equal(t, want, c, path)
	}
	require.Equal(t, map[blobs.Digest][]byte{digestOf([]byte("small")): []byte("small")}, kept)

	full := errors.New("the store is full")
	w.blobs.(*memory).fail = func(string, blobs.Digest) error { return full }
	_, err := w.Capture(base + "/small")
	require.ErrorIs(t, err, full)
	_, err = w.Capture(base + "/big")
	require.NoError(t, err)
}

func TestAContentTooLargeForMemoryIsKeptAsWell(t *testing.T) {
	w, base := workspace(t, tree{})
	content := make([]byte, inMemory+1)
	rand.Read(content[:1000])
	require.NoError(t, os.WriteFile(base+"/big", content, 0o600))
	w.maxKept = int64(len(content))
	c, err := w.Capture(base + "/big")
	require.NoError(t, err)
	require.Equal(t, fileState(0o600, string(content)), c.State)
	require.NoError(t, w.blobs.Check(digestOf(content)))
	full := errors.New("the store is full")
	w.blobs.(*memory).fail = func(string, blobs.Digest) error { return full }
	_, err = w.Capture(base + "/big")
	require.ErrorIs(t, err, full)
}

func TestCaptureNotesTheParentsThatMatter(t *testing.T) {
	w, base := workspace(t, tree{
		"plain/x/f": file("f"), "closed/in/f": file("f"), "closed": mdir(0o555), "closed/in": mdir(0o2700), "file": file("x"), "to": link("plain"),
	})
	for path, want := range map[string][]Parent{
		"plain/x/f":   nil,
		"closed/in/f": {{Path: base + "/closed", Mode: 0o555}, {Path: base + "/closed/in", Mode: 0o2700}},
		"closed/a/b":  {{Path: base + "/closed", Mode: 0o555}, {Path: base + "/closed/a", Absent: true}},
		"new":         nil,
		"n/e/w":       {{Path: base + "/n", Absent: true}, {Path: base + "/n/e", Absent: true}},
		"file/a/b":    {{Path: base + "/file", Absent: true}, {Path: base + "/file/a", Absent: true}},
		"to/x":        {{Path: base + "/to", Absent: true}},
	} {
		c, err := w.Capture(base + "/" + path)
		require.NoError(t, err)
		require.Equal(t, want, c.Parents, path)
	}
}

func TestAStampIsTrustedOnlyWhenTheClockHasMovedOn(t *testing.T) {
	w, base := workspace(t, tree{"f": file("x")})
	p, err := w.locate(base + "/f")
	require.NoError(t, err)
	v, err := p.view(nil, nil, digest)
	require.NoError(t, err)
	last := time.Unix(0, max(v.stamp.mtime, v.stamp.ctime))
	require.False(t, v.stamp.settled(last))
	require.False(t, v.stamp.settled(last.Add(10*time.Millisecond)))
	require.True(t, v.stamp.settled(last.Add(5*time.Second)))
	require.False(t, stamp{}.settled(last), "nothing is known of a stamp without an inode")
}
