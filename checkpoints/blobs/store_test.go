package blobs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oino-dev/oinod/checkpoints/disk"
	"github.com/oino-dev/oinod/checkpoints/disk/disktest"
)

func openTemp(t testing.TB) disk.Root {
	t.Helper()
	root, err := disk.Open(t.TempDir())
	require.NoError(t, err)
	t.Cleanup(func() { root.Close() })
	return root
}

// openSmall opens a store whose segments end after few frames.
func openSmall(root disk.Root) *Store {
	s := Open(root)
	s.sizes = sizes{segment: 2000, buffer: 500, big: 1500, index: 300}
	return s
}

func put(t testing.TB, s *Store, content []byte) Digest {
	t.Helper()
	d, err := s.Put(content)
	require.NoError(t, err)
	require.Equal(t, digest(content), d)
	return d
}

func requireHas(t testing.TB, s *Store, content []byte) {
	t.Helper()
	got, err := s.Get(digest(content), 0)
	require.NoError(t, err)
	require.True(t, bytes.Equal(content, got))
}

func requireMissing(t testing.TB, s *Store, content []byte) {
	t.Helper()
	_, err := s.Get(digest(content), 0)
	var e *Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, digest(content), e.Digest)
	require.ErrorIs(t, err, ErrMissing)
}

func names(t testing.TB, root disk.Root) []string {
	t.Helper()
	entries, err := disk.ReadDir(root, dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	require.NoError(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// count is how many files of the store end in suffix.
func count(t testing.TB, root disk.Root, suffix string) int {
	t.Helper()
	n := 0
	for _, name := range names(t, root) {
		if strings.HasSuffix(name, suffix) {
			n++
		}
	}
	return n
}

func everyStore(t *testing.T, f func(t *testing.T, s *Store)) {
	t.Run("memory", func(t *testing.T) { f(t, Memory()) })
	t.Run("disk", func(t *testing.T) {
		s := Open(openTemp(t))
		f(t, s)
		require.NoError(t, s.Close())
	})
	t.Run("small segments", func(t *testing.T) {
		s := openSmall(disktest.New().Root("/agent"))
		f(t, s)
		require.NoError(t, s.Close())
	})
}

var storeSizes = []int{0, 1, 4096, 1<<20 - frameHead - 1, 1<<20 - frameHead, 1<<20 - frameHead + 1, 1 << 20,
	partSize - 1, partSize, partSize + 1, 16<<20 - 1, 16 << 20, 16<<20 + 1}

func TestEverySizeComesBack(t *testing.T) {
	t.Parallel()
	all := noise(1, 16<<20+1)
	copy(all, text(1, partSize)) // so that some of it gets smaller
	everyStore(t, func(t *testing.T, s *Store) {
		sizes := storeSizes
		if s.memory != nil || s.sizes.segment < segmentLimit {
			sizes = sizes[:len(sizes)-3]
		}
		for _, size := range sizes {
			content := all[:size]
			d := put(t, s, content)
			requireHas(t, s, content)
			require.NoError(t, s.Sync())
			if size > 1 {
				_, err := s.Get(d, int64(size-1))
				require.ErrorIs(t, err, ErrTooLarge)
			}
			if size > partSize+1 {
				continue
			}
			var b bytes.Buffer
			n, err := s.WriteTo(&b, d)
			require.NoError(t, err)
			require.EqualValues(t, size, n)
			require.True(t, bytes.Equal(content, b.Bytes()))
			_, err = s.Get(d, int64(size))
			require.NoError(t, err)
			d2, n, err := s.PutFrom(bytes.NewReader(content))
			require.NoError(t, err)
			require.Equal(t, d, d2)
			require.EqualValues(t, size, n)
		}
		n, kept, err := s.Stats()
		require.NoError(t, err)
		require.Equal(t, len(sizes), n)
		require.Positive(t, kept)
	})
}

func TestWhatWasNotPutIsMissing(t *testing.T) {
	everyStore(t, func(t *testing.T, s *Store) {
		requireMissing(t, s, []byte("never"))
		require.ErrorIs(t, s.Check(digest([]byte("never"))), ErrMissing)
		put(t, s, []byte("something"))
		requireMissing(t, s, []byte("never"))
		require.NoError(t, s.Sync())
	})
}

func TestWhoStoresNothingMakesNothing(t *testing.T) {
	root := openTemp(t)
	s := Open(root)
	requireMissing(t, s, []byte("x"))
	n, size, err := s.Stats()
	require.NoError(t, err)
	require.Zero(t, n)
	require.Zero(t, size)
	freed, err := s.Collect(func(Digest) bool { return false }, false)
	require.NoError(t, err)
	require.Zero(t, freed)
	require.NoError(t, s.Sync())
	require.NoError(t, s.Close())
	_, err = root.Lstat(dir)
	require.ErrorIs(t, err, fs.ErrNotExist)

	f := disktest.New()
	r := f.Root("/agent")
	f.FailIf(func(op disktest.Op) error { return fmt.Errorf("%s %s", op.Kind, op.Name) })
	s = Open(r)
	require.NoError(t, s.Close(), "opening and closing touch nothing")
}

func TestAContentIsKeptOnce(t *testing.T) {
	for _, size := range []int{0, 10, 5000, partSize, partSize + 1} {
		root := openTemp(t)
		s := Open(root)
		content := noise(uint64(size), size)
		for range 3 {
			put(t, s, content)
			require.NoError(t, s.Sync())
		}
		require.NoError(t, s.Close())
		_, before, err := Open(root).Stats()
		require.NoError(t, err)
		s = Open(root) // the next process
		put(t, s, content)
		require.NoError(t, s.Close())
		n, after, err := Open(root).Stats()
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.Equal(t, before, after)
	}
}

func TestTheNextProcessGoesOnInTheSameSegment(t *testing.T) {
	root := openTemp(t)
	for i := range 20 {
		s := Open(root)
		put(t, s, fmt.Appendf(nil, "content %d", i))
		for j := range i {
			requireHas(t, s, fmt.Appendf(nil, "content %d", j))
		}
		require.NoError(t, s.Close())
	}
	require.Equal(t, 1, count(t, root, segmentSuffix))
}

func TestPrivateWhateverTheUmask(t *testing.T) {
	if os.PathSeparator != '/' {
		t.Skip("no modes here")
	}
	root := openTemp(t)
	s := openSmall(root)
	for i := range 20 {
		put(t, s, noise(uint64(i), 300))
	}
	put(t, s, large(1, partSize+1))
	release, err := s.Hold()
	require.NoError(t, err)
	release()
	_, err = s.Collect(func(d Digest) bool { return d[0]%2 == 0 }, false)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	i, err := root.Lstat(dir)
	require.NoError(t, err)
	require.Equal(t, fs.ModeDir|0o700, i.Mode())
	for _, name := range names(t, root) {
		i, err := root.Lstat(dir + "/" + name)
		require.NoError(t, err)
		require.Equal(t, fs.FileMode(0o600), i.Mode(), name)
	}
}

func TestTwoStoresSeeEachOther(t *testing.T) {
	for _, open := range []func(disk.Root) *Store{Open, openSmall} {
		root := openTemp(t)
		a, b := open(root), open(root)
		for i := range 40 {
			x, y := text(uint64(i), 200), text(uint64(1000+i), 200)
			put(t, a, x)
			require.NoError(t, a.Sync())
			requireHas(t, b, x)
			put(t, b, y)
			require.NoError(t, b.Sync())
			requireHas(t, a, y)
		}
		require.NoError(t, a.Close())
		require.NoError(t, b.Close())
		c := open(root)
		for i := range 40 {
			requireHas(t, c, text(uint64(i), 200))
			requireHas(t, c, text(uint64(1000+i), 200))
		}
		require.NoError(t, c.Close())
	}
}

func TestManyAtOnce(t *testing.T) {
	root := openTemp(t)
	stores := []*Store{openSmall(root), openSmall(root), Open(root)}
	var together sync.WaitGroup
	for worker := range 12 {
		together.Go(func() {
			s := stores[worker%len(stores)]
			for i := range 60 {
				content := text(uint64(i*7%40+worker/6*100), 100+i)
				release, err := s.Hold()
				if err != nil {
					t.Error(err)
					return
				}
				d, err := s.Put(content)
				if err == nil {
					err = s.Sync()
				}
				release()
				if err != nil {
					t.Error(err)
					return
				}
				got, err := stores[i%len(stores)].Get(d, 0)
				if err != nil || !bytes.Equal(got, content) {
					t.Errorf("%d bytes of %d: %v", len(got), len(content), err)
				}
			}
		})
	}
	for range 2 {
		together.Go(func() {
			for range 20 {
				if _, err := stores[0].Collect(func(Digest) bool { return true }, false); err != nil && !errors.Is(err, ErrInUse) {
					t.Error(err)
				}
			}
		})
	}
	together.Wait()
	for _, s := range stores {
		require.NoError(t, s.Close())
	}
}

// changing yields other bytes when it is read a second time.
type changing struct {
	io.ReadSeeker
	seeks int
}

func (c *changing) Seek(offset int64, whence int) (int64, error) {
	c.seeks++
	return c.ReadSeeker.Seek(offset, whence)
}

func (c *changing) Read(b []byte) (int, error) {
	n, err := c.ReadSeeker.Read(b)
	if c.seeks > 3 && n > 0 {
		b[0] ^= 1
	}
	return n, err
}

func TestAContentThatChangesIsNotKept(t *testing.T) {
	everyStore(t, func(t *testing.T, s *Store) {
		content := large(1, 2*partSize+5)
		_, _, err := s.PutFrom(&changing{ReadSeeker: bytes.NewReader(content)})
		require.ErrorContains(t, err, "changed")
		requireMissing(t, s, content)
		_, _, err = s.PutFrom(bytes.NewReader(content))
		require.NoError(t, err)
		requireHas(t, s, content)
	})
}

func TestPutFromStartsWhereTheReaderIs(t *testing.T) {
	everyStore(t, func(t *testing.T, s *Store) {
		for _, size := range []int{100, partSize + 100} {
			content := large(9, size)
			r := bytes.NewReader(content)
			_, err := r.Seek(50, io.SeekStart)
			require.NoError(t, err)
			_, n, err := s.PutFrom(r)
			require.NoError(t, err)
			require.EqualValues(t, size-50, n)
			requireHas(t, s, content[50:])
		}
	})
}

type failingWriter struct{ err error }

func (w failingWriter) Write(b []byte) (int, error) { return len(b) / 2, w.err }

func TestAnErrorOfTheWriterIsItsOwn(t *testing.T) {
	everyStore(t, func(t *testing.T, s *Store) {
		full := errors.New("the workspace is full")
		for _, size := range []int{100, partSize + 100} {
			d := put(t, s, large(9, size))
			_, err := s.WriteTo(failingWriter{full}, d)
			require.ErrorIs(t, err, full)
			require.NoError(t, s.Check(d))
		}
	})
}

// flip changes the byte at off of the file name.
func flip(t testing.TB, root disk.Root, name string, off int64) {
	t.Helper()
	f, err := root.OpenFile(name, os.O_RDWR, 0)
	require.NoError(t, err)
	b := make([]byte, 1)
	_, err = f.ReadAt(b, off)
	require.NoError(t, err)
	_, err = f.Seek(off, io.SeekStart)
	require.NoError(t, err)
	_, err = f.Write([]byte{b[0] ^ 0x40})
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

// Whatever byte of whatever file is damaged: no wrong content is ever read, at
// most one content is lost, and putting it again brings it back.
func TestEveryFlippedByteOfAStoreIsNoticed(t *testing.T) {
	t.Parallel()
	contents := [][]byte{[]byte("one"), text(2, 300), text(3, 700), text(4, 900), {}, text(6, 1200)}
	big := append(text(9, 200), make([]byte, 1400)...) // with a file of its own
	build := func() (*disktest.FS, disk.Root) {
		f := disktest.New()
		root := f.Root("/agent")
		s := openSmall(root)
		for _, c := range contents {
			put(t, s, c)
		}
		put(t, s, big)
		require.NoError(t, s.Close())
		return f, root
	}
	coders := newCodec()
	_, sample := build()
	require.GreaterOrEqual(t, count(t, sample, indexSuffix), 1)
	files := 0
	for _, name := range names(t, sample) {
		name = dir + "/" + name
		i, err := sample.Lstat(name)
		require.NoError(t, err)
		if strings.HasSuffix(name, lockSuffix) {
			continue
		}
		files++
		step := int64(1)
		if strings.HasSuffix(name, indexSuffix) {
			step = 37 // each byte of an index alone: TestEveryFlippedByteOfAnIndexIsNoticed
		}
		f, root := build()
		for off := int64(0); off < i.Size(); off += step {
			flip(t, root, name, off)
			s := Open(f.AfterPowerCut(disktest.Keep(0, 100)).Root("/agent"))
			s.codec = coders
			lost := 0
			for _, c := range contents {
				got, err := s.Get(digest(c), 0)
				if err != nil {
					require.True(t, errors.Is(err, ErrDamaged) || errors.Is(err, ErrMissing), "%s, byte %d: %v", name, off, err)
					lost++
					put(t, s, c)
					requireHas(t, s, c)
					continue
				}
				require.True(t, bytes.Equal(c, got), "%s, byte %d", name, off)
			}
			require.LessOrEqual(t, lost, 1, "%s, byte %d", name, off)
			if strings.HasSuffix(name, bigSuffix) || off == 0 {
				if err := s.Check(digest(big)); err != nil {
					require.ErrorIs(t, err, ErrDamaged)
					put(t, s, big)
				}
				require.NoError(t, s.Check(digest(big)))
			}
			require.NoError(t, s.Close())
			flip(t, root, name, off)
		}
	}
	require.GreaterOrEqual(t, files, 4)
}

func TestANewerSegmentIsLeftAloneAndSaid(t *testing.T) {
	root := openTemp(t)
	require.NoError(t, root.Mkdir(dir, 0o700))
	f, err := root.OpenFile(dir+"/0-00000003.seg", os.O_WRONLY|os.O_CREATE, 0o600)
	require.NoError(t, err)
	newer := append(newerHead(), frames(t, []byte("theirs"))...)
	_, err = f.Write(newer)
	require.NoError(t, err)
	require.NoError(t, f.Close())

	s := Open(root)
	_, err = s.Get(digest([]byte("theirs")), 0)
	require.ErrorIs(t, err, ErrMissing)
	require.ErrorContains(t, err, "newer")
	put(t, s, []byte("ours"))
	require.NoError(t, s.Sync())
	requireHas(t, s, []byte("ours"))
	_, err = s.Collect(func(Digest) bool { return false }, false)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	b, err := os.ReadFile(filepath.Join(root.Name(), dir, "0-00000003.seg"))
	require.NoError(t, err)
	require.Equal(t, newer, b)
}

// An index beside the wrong segment, of another length, or of nonsense, is
// never believed.
func TestAStaleIndexIsNotBelieved(t *testing.T) {
	f := disktest.New()
	root := f.Root("/agent")
	s := openSmall(root)
	var all [][]byte
	for i := range 30 {
		all = append(all, noise(uint64(i), 300))
		put(t, s, all[i])
	}
	require.NoError(t, s.Close())
	require.Greater(t, count(t, root, indexSuffix), 3)
	first, second := dir+"/0-00000001", dir+"/0-00000002"
	index, err := disk.ReadFile(root, second+indexSuffix)
	require.NoError(t, err)
	for _, wrong := range [][]byte{index, {}, []byte("nonsense"), bytes.Repeat([]byte{0}, len(index))} {
		after := f.AfterPowerCut(disktest.Keep(0, 100)).Root("/agent")
		require.NoError(t, disk.Publish(after, first+indexSuffix, wrong, 0o600))
		s := Open(after)
		for _, c := range all {
			requireHas(t, s, c)
			put(t, s, c)
		}
		n, _, err := s.Stats()
		require.NoError(t, err)
		require.Equal(t, len(all), n, "nothing was kept twice")
		require.NoError(t, s.Close())
		mended, err := disk.ReadFile(after, first+indexSuffix)
		require.NoError(t, err)
		x, err := readIndex(bytes.NewReader(mended), int64(len(mended)))
		require.NoError(t, err)
		require.Positive(t, x.count)
	}
	// Gone while a store knows it, or replaced, or damaged.
	for _, harm := range []func(root disk.Root, name string){
		func(root disk.Root, name string) { require.NoError(t, root.Remove(name)) },
		func(root disk.Root, name string) { flip(t, root, name, 2200) },
		func(root disk.Root, name string) { require.NoError(t, disk.Publish(root, name, index, 0o600)) },
	} {
		after := f.AfterPowerCut(disktest.Keep(0, 100)).Root("/agent")
		s := Open(after)
		requireHas(t, s, all[0])
		for _, name := range names(t, after) {
			if strings.HasSuffix(name, indexSuffix) {
				harm(after, dir+"/"+name)
			}
		}
		s.files.forgetAll() // as when they were not among the last that were used
		for _, c := range all {
			requireHas(t, s, c)
		}
		require.NoError(t, s.Close())
	}
}

func TestFewFilesAreOpen(t *testing.T) {
	root := openTemp(t)
	s := openSmall(root)
	for i := range 200 {
		put(t, s, noise(uint64(i), 900))
	}
	for i := range 200 {
		requireHas(t, s, noise(uint64(i), 900))
	}
	require.LessOrEqual(t, len(s.files.open), openFiles+1)
	require.NoError(t, s.Close())
	require.Empty(t, s.files.open)
	_, err := s.Get(digest(noise(1, 900)), 0)
	require.ErrorIs(t, err, fs.ErrClosed)
	_, err = s.Put([]byte("late"))
	require.ErrorIs(t, err, fs.ErrClosed)
	require.NoError(t, s.Close(), "a second time")
}
