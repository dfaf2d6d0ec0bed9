package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oino-dev/oinod/checkpoints/disk"
	"github.com/oino-dev/oinod/checkpoints/disk/disktest"
)

const logName = "sessions/a.jsonl"

// newDisk is a disk with the folder of logName, which is durable.
func newDisk(t testing.TB) (*disktest.FS, disk.Root) {
	t.Helper()
	f := disktest.New()
	f.PageSize = 512
	root := f.Root("/agent")
	require.NoError(t, disk.MkdirAll(root, "sessions", 0o700))
	return f, root
}

// contents is what a writer finds in the log. A log that is not there has nil.
func contents(t testing.TB, root disk.Root) []string {
	t.Helper()
	var got []string
	w, err := OpenWriter(root, logName, 1<<20, func(l Line) error {
		require.NoError(t, l.Err)
		got = append(got, string(l.Object))
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return got
}

// object is the nth object of a test's log.
func object(n int) []byte {
	return fmt.Appendf(nil, `{"n":%d,"text":"%s"}`, n, strings.Repeat("x", 1000*(n%3)))
}

func objectsUpTo(n int) []string {
	var all []string
	for i := range n {
		all = append(all, string(object(i)))
	}
	return all
}

func TestALogIsReadAsItWasWritten(t *testing.T) {
	root, err := disk.Open(t.TempDir())
	require.NoError(t, err)
	defer root.Close()
	require.NoError(t, root.Mkdir("sessions", 0o700))
	w, err := Create(root, logName, object(0), object(1))
	require.NoError(t, err)
	places, err := w.Append(object(2), object(3))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	_, err = w.Append(object(9))
	require.ErrorIs(t, err, fs.ErrClosed)

	var found []Pos
	w, err = OpenWriter(root, logName, 1<<20, func(l Line) error {
		require.NoError(t, l.Err)
		found = append(found, l.Pos)
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, places, found[2:])
	more, err := w.Append(object(4))
	require.NoError(t, err)
	for i, pos := range append(found, more...) {
		got, err := w.ReadAt(pos)
		require.NoError(t, err)
		require.Equal(t, string(object(i)), string(got))
	}
	require.NoError(t, w.Close())
	require.Equal(t, objectsUpTo(5), contents(t, root))
	if os.PathSeparator == '/' {
		i, err := root.Lstat(logName)
		require.NoError(t, err)
		require.Equal(t, fs.FileMode(0o600), i.Mode())
	}
}

func TestNothingIsAppendedByNothing(t *testing.T) {
	_, root := newDisk(t)
	w, err := Create(root, logName)
	require.NoError(t, err)
	places, err := w.Append()
	require.NoError(t, err)
	require.Empty(t, places)
	_, err = w.Append(object(0), []byte(`{}`))
	require.Error(t, err, "all or nothing")
	require.NoError(t, w.Broken())
	_, err = w.Append(object(0))
	require.NoError(t, err)
	require.Equal(t, objectsUpTo(1), contents(t, root))
}

func TestAnExistingLogIsNotCreated(t *testing.T) {
	_, root := newDisk(t)
	_, err := Create(root, logName, object(0))
	require.NoError(t, err)
	_, err = Create(root, logName, object(1))
	require.ErrorIs(t, err, fs.ErrExist)
	require.ErrorContains(t, err, logName)
	require.Equal(t, objectsUpTo(1), contents(t, root))
}

func TestAPlaceWithoutALineIsDamage(t *testing.T) {
	_, root := newDisk(t)
	w, err := Create(root, logName, object(0), object(1))
	require.NoError(t, err)
	places, err := w.Append(object(2))
	require.NoError(t, err)
	p := places[0]
	for _, pos := range []Pos{
		{p.Offset + 1, p.Length}, {p.Offset - 1, p.Length}, {p.Offset, p.Length - 1}, {p.Offset, 0},
		{-1, p.Length}, {p.Offset, -1}, {1 << 60, p.Length}, {0, 1 << 30}, {},
	} {
		_, err := w.ReadAt(pos)
		require.ErrorIs(t, err, ErrDamaged, "%+v", pos)
		require.ErrorContains(t, err, logName)
	}
}

// The end of a log as a crash may leave it, opened by the next writer.
func TestAnUnfinishedEndIsMended(t *testing.T) {
	next := string(encode(t, string(object(1))))
	for cut := range len(next) + 1 {
		_, root := newDisk(t)
		w, err := Create(root, logName, object(0))
		require.NoError(t, err)
		require.NoError(t, w.Close())
		f, err := root.OpenFile(logName, os.O_WRONLY|os.O_APPEND, 0)
		require.NoError(t, err)
		_, err = f.Write([]byte(next[:cut]))
		require.NoError(t, err)

		want := objectsUpTo(1)
		if cut >= len(next)-1 {
			want = objectsUpTo(2)
		}
		require.Equal(t, want, contents(t, root), "cut at %d", cut)
		w, err = OpenWriter(root, logName, 1<<20, func(Line) error { return nil })
		require.NoError(t, err)
		_, err = w.Append(object(2))
		require.NoError(t, err)
		require.Equal(t, append(want, string(object(2))), contents(t, root), "cut at %d", cut)
	}
}

func TestDamageIsReportedAndStays(t *testing.T) {
	_, root := newDisk(t)
	w, err := Create(root, logName, object(0), object(1), object(2))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	log, err := disk.ReadFile(root, logName)
	require.NoError(t, err)
	f, err := root.OpenFile(logName, os.O_RDWR, 0)
	require.NoError(t, err)
	log[len(encode(t, string(object(0))))+4] ^= 1
	_, err = f.Write(log)
	require.NoError(t, err)

	var lines []Line
	w, err = OpenWriter(root, logName, 1<<20, func(l Line) error {
		lines = append(lines, l)
		return nil
	})
	require.NoError(t, err)
	require.Len(t, lines, 3)
	require.NoError(t, lines[0].Err)
	require.ErrorIs(t, lines[1].Err, ErrDamaged)
	require.ErrorContains(t, lines[1].Err, logName)
	require.ErrorContains(t, lines[1].Err, "line 2")
	require.NoError(t, lines[2].Err)
	_, err = w.Append(object(3))
	require.NoError(t, err)
	now, err := disk.ReadFile(root, logName)
	require.NoError(t, err)
	require.Equal(t, string(log), string(now[:len(log)]))
}

func TestTheCallersErrorEndsTheOpening(t *testing.T) {
	_, root := newDisk(t)
	_, err := Create(root, logName, object(0))
	require.NoError(t, err)
	stop := errors.New("newer")
	_, err = OpenWriter(root, logName, 1<<20, func(Line) error { return stop })
	require.Equal(t, stop, err)
}

// life creates a log, appends to it, opens it again and appends on. It returns
// how many objects were acknowledged and how many may be there, and the first
// error.
func life(root disk.Root, retry bool) (acked, tried int, err error) {
	tried = 2
	w, err := Create(root, logName, object(0), object(1))
	if err != nil {
		return 0, tried, err
	}
	acked = 2
	for step := range 4 {
		if step == 2 {
			w.Close()
			lines := 0
			w, err = OpenWriter(root, logName, 1<<20, func(l Line) error { lines++; return l.Err })
			if err != nil {
				return acked, tried, err
			}
			if lines != acked {
				return acked, tried, fmt.Errorf("opened with %d lines of %d", lines, acked)
			}
		}
		tried = acked + 2
		_, err = w.Append(object(acked), object(acked+1))
		if err != nil && retry && w.Broken() == nil {
			if _, again := w.Append(object(acked), object(acked+1)); again != nil {
				return acked, tried, fmt.Errorf("not broken and yet: %w", again)
			}
			acked += 2
			w.Close()
			return acked, acked, err
		}
		if err != nil {
			_, again := w.Append(object(acked))
			if w.Broken() != nil && !errors.Is(again, ErrBroken) {
				return acked, tried, fmt.Errorf("broken and yet: %v", again)
			}
			w.Close()
			return acked, tried, err
		}
		acked = tried
	}
	w.Close()
	return acked, tried, nil
}

// holds checks that what was acknowledged is there, whole and first, and that
// nothing is there that was not tried.
func holds(t *testing.T, root disk.Root, acked, tried int, msg string) {
	t.Helper()
	got := contents(t, root)
	require.GreaterOrEqual(t, len(got), acked, msg)
	require.LessOrEqual(t, len(got), tried, msg)
	if len(got) > 0 {
		require.Equal(t, objectsUpTo(len(got)), got, msg)
	}
}

func TestNoFaultHarmsWhatWasAcknowledged(t *testing.T) {
	for _, injected := range []error{syscall.ENOSPC, syscall.EIO, syscall.EMFILE} {
		for _, retry := range []bool{false, true} {
			for n := 1; ; n++ {
				f, root := newDisk(t)
				f.FailAt(n, injected)
				acked, tried, err := life(root, retry)
				if !f.Fired() {
					require.NoError(t, err)
					require.Greater(t, n, 20)
					break
				}
				msg := fmt.Sprintf("operation %d, %v", n, injected)
				require.ErrorIs(t, err, injected, msg)
				require.ErrorContains(t, err, logName, msg)
				f.FailAt(0, nil)
				holds(t, root, acked, tried, msg)
				holds(t, f.AfterPowerCut(nil).Root("/agent"), acked, tried, msg)
				goesOn(t, f, root, msg)
			}
		}
	}
}

// goesOn opens a log after a fault, adds to it, and cuts the power: all that
// the writer was shown is there.
func goesOn(t *testing.T, f *disktest.FS, root disk.Root, msg string) {
	t.Helper()
	want := contents(t, root)
	w, err := OpenWriter(root, logName, 1<<20, func(l Line) error { return l.Err })
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	require.NoError(t, err, msg)
	_, err = w.Append(object(7))
	require.NoError(t, err, msg)
	require.NoError(t, w.Close())
	require.Equal(t, append(want, string(object(7))), contents(t, f.AfterPowerCut(nil).Root("/agent")), msg)
}

func TestAWriteThatFailsForAWhileDoesNotBreakTheLog(t *testing.T) {
	f, root := newDisk(t)
	w, err := Create(root, logName, object(0))
	require.NoError(t, err)
	f.FailIf(func(op disktest.Op) error {
		if op.Kind == "write" {
			return syscall.ENOSPC
		}
		return nil
	})
	for range 3 {
		_, err = w.Append(object(1), object(2))
		require.ErrorIs(t, err, syscall.ENOSPC)
		require.NoError(t, w.Broken())
		require.NotErrorIs(t, err, ErrBroken)
	}
	f.FailIf(nil)
	_, err = w.Append(object(1))
	require.NoError(t, err)
	require.Equal(t, objectsUpTo(2), contents(t, f.AfterPowerCut(nil).Root("/agent")))
}

func TestBrokenStaysBroken(t *testing.T) {
	for _, kinds := range [][]string{{"sync"}, {"write", "truncate"}, {"write", "sync"}} {
		f, root := newDisk(t)
		w, err := Create(root, logName, object(0))
		require.NoError(t, err)
		f.FailIf(func(op disktest.Op) error {
			for _, kind := range kinds {
				if op.Kind == kind {
					return syscall.EIO
				}
			}
			return nil
		})
		_, first := w.Append(object(1))
		require.ErrorIs(t, first, syscall.EIO)
		f.FailIf(nil)
		_, err = w.Append(object(1))
		require.Equal(t, first, err, "the first error, for ever")
		require.ErrorIs(t, err, ErrBroken)
		require.Equal(t, first, w.Broken())
		require.NoError(t, w.Close())
		require.Contains(t, []int{1, 2}, len(contents(t, root)))
	}
}

func TestNoPowerCutHarmsWhatWasAcknowledged(t *testing.T) {
	for k := 0; ; k++ {
		f, root := newDisk(t)
		f.CutAt(k)
		acked, tried, err := life(root, false)
		if err == nil {
			require.Greater(t, k, 10)
			return
		}
		require.ErrorIs(t, err, disktest.ErrPowerCut)
		msg := fmt.Sprintf("after write %d", k)
		holds(t, f.AfterPowerCut(nil).Root("/agent"), acked, tried, msg)
		holds(t, f.AfterPowerCut(disktest.Keep(0, 100)).Root("/agent"), acked, tried, msg)
		for seed := range uint64(20) {
			after := f.AfterPowerCut(disktest.Keep(seed, 50)).Root("/agent")
			holdsWithDamage(t, after, acked, fmt.Sprintf("%s, seed %d", msg, seed))
		}
	}
}

// holdsWithDamage is holds for a disk that kept some pages of an append and
// not others: what was acknowledged is whole, and what follows is that or damage.
func holdsWithDamage(t *testing.T, root disk.Root, acked int, msg string) {
	t.Helper()
	n := 0
	w, err := OpenWriter(root, logName, 1<<20, func(l Line) error {
		if l.Err == nil {
			require.Contains(t, objectsUpTo(acked+2), string(l.Object), msg)
		}
		if n < acked {
			require.NoError(t, l.Err, msg)
			require.Equal(t, string(object(n)), string(l.Object), msg)
		}
		n++
		return nil
	})
	if acked == 0 && errors.Is(err, fs.ErrNotExist) {
		return
	}
	require.NoError(t, err, msg)
	require.GreaterOrEqual(t, n, acked, msg)
	_, err = w.Append(object(7))
	require.NoError(t, err, msg)
	require.NoError(t, w.Close())
}

// A process that is killed between its write and its sync leaves a line that
// the next one reads, and may act on. From then on it must not vanish.
func TestWhatAWriterIsShownIsDurable(t *testing.T) {
	f, root := newDisk(t)
	file, err := root.OpenFile(logName, os.O_WRONLY|os.O_CREATE, 0o600)
	require.NoError(t, err)
	_, err = file.Write(encode(t, objectsUpTo(2)...))
	require.NoError(t, err)
	require.Equal(t, objectsUpTo(2), contents(t, root))
	require.Equal(t, objectsUpTo(2), contents(t, f.AfterPowerCut(nil).Root("/agent")))
}

func BenchmarkAppend(b *testing.B) {
	for _, n := range []int{1, 1000} {
		b.Run(fmt.Sprintf("objects=%d", n), func(b *testing.B) {
			root, err := disk.Open(b.TempDir())
			require.NoError(b, err)
			defer root.Close()
			w, err := Create(root, "log", object(0))
			require.NoError(b, err)
			objects := make([][]byte, n)
			for i := range objects {
				objects[i] = fmt.Appendf(nil, `{"type":"entry","text":"%s"}`, strings.Repeat("x", 270))
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := w.Append(objects...); err != nil {
					b.Fatal(err)
				}
			}
			b.StopTimer()
			require.NoError(b, w.Close())
		})
	}
}
