package blobs

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oino-dev/oinod/checkpoints/disk"
	"github.com/oino-dev/oinod/checkpoints/disk/disktest"
)

// story is the life of a store, as sessions lead it: what was put, what a Sync
// has acknowledged, and what Collect was told is dead.
type story struct {
	root     disk.Root
	codec    *codec
	contents map[Digest][]byte
	acked    map[Digest]bool
	waiting  []Digest
}

func newStory(root disk.Root, c *codec) *story {
	return &story{root: root, codec: c, contents: map[Digest][]byte{}, acked: map[Digest]bool{}}
}

func (y *story) open() *Store {
	s := openSmall(y.root)
	s.codec = y.codec
	return s
}

func (y *story) put(s *Store, content []byte) error {
	y.contents[digest(content)] = content
	d, err := s.Put(content)
	if err == nil {
		y.waiting = append(y.waiting, d)
	}
	return err
}

func (y *story) sync(s *Store) error {
	if err := s.Sync(); err != nil {
		return err
	}
	for _, d := range y.waiting {
		y.acked[d] = true
	}
	y.waiting = nil
	return nil
}

// content is the nth of the story; some come twice, one has a file of its own.
func storyContent(n int) []byte {
	if n == 5 {
		return noise(5, 1600)
	}
	return noise(uint64(n%19), 100+n%19*20)
}

// live is the whole story; it returns the first error.
func (y *story) live() error {
	s := y.open()
	release, err := s.Hold()
	if err != nil {
		return err
	}
	for n := range 12 {
		if err := y.put(s, storyContent(n)); err != nil {
			return err
		}
		if n%4 == 3 {
			if err := y.sync(s); err != nil {
				return err
			}
		}
	}
	release()
	if err := s.Close(); err != nil {
		return err
	}
	s = y.open()
	other := y.open()
	for n := 12; n < 24; n++ {
		if err := y.put(s, storyContent(n)); err != nil {
			return err
		}
		if n == 18 {
			// another process, at the same time
			if _, err := other.Put(storyContent(17)); err != nil {
				return err
			}
			if err := other.Sync(); err != nil {
				return err
			}
			y.acked[digest(storyContent(17))] = true
		}
	}
	if err := y.sync(s); err != nil {
		return err
	}
	if err := other.Close(); err != nil {
		return err
	}
	dead := map[Digest]bool{}
	for n := range 24 {
		if n%3 != 0 {
			d := digest(storyContent(n))
			dead[d] = true
			delete(y.acked, d)
		}
	}
	if _, err := s.Collect(func(d Digest) bool { return !dead[d] }, false); err != nil {
		return err
	}
	for _, n := range []int{1, 2, 3, 4, 5} {
		if err := y.put(s, storyContent(n)); err != nil {
			return err
		}
	}
	if err := y.sync(s); err != nil {
		return err
	}
	return s.Close()
}

// check opens the store as the next process does: what was acknowledged is
// there, nothing is wrong, and what is put now is there after the next power
// cut, whether it was looked at before or not.
func (y *story) check(t *testing.T, f *disktest.FS, msg string) {
	t.Helper()
	other := f.AfterPowerCut(disktest.Keep(0, 100))
	y.checkPut(t, other, newStory(other.Root("/agent"), y.codec).open(), msg)
	found := segments(t, f.Root("/agent"))
	defer func() { requirePrefixes(t, f.Root("/agent"), found) }()
	s := newStory(f.Root("/agent"), y.codec).open()
	for d, content := range y.contents {
		got, err := s.Get(d, 0)
		if err != nil {
			require.True(t, errors.Is(err, ErrMissing) || errors.Is(err, ErrDamaged), "%s: %v", msg, err)
			require.False(t, y.acked[d], "%s: %v", msg, err)
			continue
		}
		require.True(t, bytes.Equal(content, got), msg)
	}
	y.checkPut(t, f, s, msg)
}

func (y *story) checkPut(t *testing.T, f *disktest.FS, s *Store, msg string) {
	t.Helper()
	next := newStory(s.root, y.codec)
	for n := range 24 {
		require.NoError(t, next.put(s, storyContent(n)), msg)
	}
	require.NoError(t, next.sync(s), msg)
	again := openSmall(f.AfterPowerCut(nil).Root("/agent"))
	again.codec = y.codec
	for d := range next.acked {
		require.NoError(t, again.Check(d), "%s: counted on what was not durable", msg)
	}
	require.NoError(t, s.Close())
}

func newFaultyDisk() (*disktest.FS, disk.Root) {
	f := disktest.New()
	f.PageSize = 64 // so that frames are torn within
	return f, f.Root("/agent")
}

// again is the disk as it is, for another process after this one was killed.
func again(f *disktest.FS) *disktest.FS {
	f.FailAt(0, nil)
	f.Kill()
	return f
}

func TestNoFaultHarmsWhatWasAcknowledged(t *testing.T) {
	t.Parallel()
	c := newCodec()
	for n := 1; ; n++ {
		injected := []error{syscall.ENOSPC, syscall.EIO, syscall.EMFILE}[n%3] // nobody asks which
		f, root := newFaultyDisk()
		y := newStory(root, c)
		f.FailAt(n, injected)
		err := y.live()
		if !f.Fired() {
			require.NoError(t, err)
			require.Greater(t, n, 100)
			return
		}
		msg := fmt.Sprintf("operation %d, %v", n, injected)
		if err != nil {
			require.ErrorIs(t, err, injected, msg)
		} // else it was a cache that could not be written, or a look that was not needed
		y.check(t, f.AfterPowerCut(nil), msg+", then a power cut")
		y.check(t, again(f), msg)
	}
}

func TestNoPowerCutHarmsWhatWasAcknowledged(t *testing.T) {
	t.Parallel()
	c := newCodec()
	for k := 0; ; k++ {
		f, root := newFaultyDisk()
		y := newStory(root, c)
		f.CutAt(k)
		err := y.live()
		if !f.Cut() {
			require.NoError(t, err)
			require.Greater(t, k, 50)
			return
		}
		msg := fmt.Sprintf("after write %d", k)
		y.check(t, f.AfterPowerCut(nil), msg)
		y.check(t, f.AfterPowerCut(disktest.Keep(0, 100)), msg)
		for seed := range uint64(4) {
			y.check(t, f.AfterPowerCut(disktest.Keep(uint64(k)*10+seed, 30+int(seed)*15)), fmt.Sprintf("%s, seed %d", msg, seed))
		}
	}
}

// The process is killed after any operation; another goes on at once, and then
// the power goes.
func TestAKilledProcessLeavesNothingToRelyOnWrongly(t *testing.T) {
	t.Parallel()
	c := newCodec()
	killed := disktest.ErrPowerCut // nothing happens any more; what happened stays
	for n := 1; ; n++ {
		f, root := newFaultyDisk()
		y := newStory(root, c)
		ops := 0
		f.FailIf(func(disktest.Op) error {
			if ops++; ops >= n {
				return killed
			}
			return nil
		})
		err := y.live()
		if !f.Fired() {
			require.NoError(t, err)
			return
		}
		f.FailIf(nil)
		y.check(t, again(f), fmt.Sprintf("after operation %d", n))
	}
}

// A header that reached the disk without its payload: nobody ever takes it for
// the content, whether there is an index or not, nor is the segment beyond
// collecting for it.
func TestATornFrameIsNeverCountedOn(t *testing.T) {
	for _, indexed := range []bool{true, false} {
		kept, torn := noise(1, 300), noise(2, 300)
		f, root := tornDisk(t, kept, torn)
		first := segments(t, root)

		s := openSmall(root)
		put(t, s, torn)
		require.NoError(t, s.Sync())
		requireHas(t, s, torn)
		requireHas(t, s, kept)
		requirePrefixes(t, root, first)
		f = f.AfterPowerCut(nil)
		root = f.Root("/agent")
		requireHas(t, openSmall(root), torn)
		requireHas(t, openSmall(root), kept)

		if !indexed {
			removeIndexes(t, root)
		}
		s = openSmall(root)
		put(t, s, torn)
		put(t, s, kept)
		require.NoError(t, s.Sync())
		n, _, err := s.Stats()
		require.NoError(t, err)
		require.Equal(t, 2, n)
		freed, err := s.Collect(only(torn), false)
		require.NoError(t, err)
		require.Equal(t, 1, freed.Blobs, "where the torn frame was is gone")
		requireHas(t, s, torn)
		freed, err = s.Collect(only(), false)
		require.NoError(t, err)
		require.Equal(t, 1, freed.Blobs)
		require.NoError(t, s.Close())
		require.Zero(t, count(t, root, segmentSuffix))
	}
}

// A process that has seen the torn frame before anybody verified it does not
// count on it afterwards either, though no index can be written, or nothing be read.
func TestWhoSawATornFrameDoesNotCountOnIt(t *testing.T) {
	for _, kind := range []string{"", "openfile", "read"} {
		kept, torn := noise(1, 300), noise(2, 300)
		f, root := tornDisk(t, kept, torn)
		early := openSmall(root)
		n, _, err := early.Stats()
		require.NoError(t, err)
		require.Equal(t, 2, n, "it sees a header")
		failing := func(op disktest.Op) error {
			if op.Kind == kind && strings.Contains(op.Name, indexSuffix+".") { // its temporary name
				return syscall.EIO
			}
			return nil
		}
		if kind != "read" {
			f.FailIf(failing)
		}
		s := openSmall(root)
		put(t, s, noise(3, 300)) // the torn one's segment is sealed
		require.NoError(t, s.Sync())
		f.FailIf(nil)
		if kind == "read" {
			removeIndexes(t, root)
			// Nor when what it would verify cannot be read.
			reads := 0
			f.FailIf(func(op disktest.Op) error {
				if op.Kind == "read" && strings.Contains(op.Name, "0-00000001"+segmentSuffix) {
					if reads++; reads > 1 {
						return syscall.EIO
					}
				}
				return nil
			})
			_, err := early.refresh()
			require.NoError(t, err)
			require.Greater(t, reads, 1)
			f.FailIf(nil)
		}
		put(t, early, torn)
		require.NoError(t, early.Sync())
		requireHas(t, early, torn)
		requireHas(t, openSmall(f.AfterPowerCut(nil).Root("/agent")), torn)
		require.NoError(t, early.Close())
		require.NoError(t, s.Close())
	}
}

// tornDisk is a store's disk that has kept, and of torn, which nobody was told
// is kept, a header with half a payload.
func tornDisk(t *testing.T, kept, torn []byte) (*disktest.FS, disk.Root) {
	t.Helper()
	f, root := newFaultyDisk()
	s := openSmall(root)
	put(t, s, kept)
	require.NoError(t, s.Sync())
	put(t, s, torn)
	require.NoError(t, s.writer.flush())
	asked := 0
	f = again(f.AfterPowerCut(func() bool { asked++; return asked <= 3 })) // the size, and the first pages
	root = f.Root("/agent")
	require.ErrorIs(t, openSmall(root).Check(digest(torn)), ErrDamaged)
	return f, root
}

// Whatever fails while the next process takes over from one that a crash has
// ended: what a later one acknowledges is there.
func TestNoFaultHarmsWhoComesAfterACrash(t *testing.T) {
	t.Parallel()
	kept, torn := noise(1, 300), noise(2, 300)
	for n := 1; ; n++ {
		f, root := tornDisk(t, kept, torn)
		first := segments(t, root)
		f.FailAt(n, syscall.EIO)
		y := newStory(root, newCodec())
		y.acked[digest(kept)], y.contents[digest(kept)] = true, kept
		s := y.open()
		err := y.put(s, storyContent(1))
		if err == nil {
			err = y.put(s, torn)
		}
		if err == nil {
			err = y.sync(s)
		}
		msg := fmt.Sprint("operation ", n)
		if err != nil {
			require.ErrorIs(t, err, syscall.EIO, msg)
		}
		fired := f.Fired()
		y.check(t, f.AfterPowerCut(nil), msg+", then a power cut")
		f = again(f)
		requirePrefixes(t, root, first)
		y.check(t, f, msg)
		removeIndexes(t, f.Root("/agent"))
		y.check(t, f, msg+", without indexes")
		if !fired {
			require.NoError(t, err)
			require.Greater(t, n, 20)
			return
		}
	}
}

// A full disk is met, freed, and nothing that was put before is lost.
func TestAFullDiskCanBeFreed(t *testing.T) {
	f, root := newFaultyDisk()
	s := openSmall(root)
	var all [][]byte
	for i := range 3 {
		all = append(all, noise(uint64(i), 100))
		put(t, s, all[i])
	}
	full := func(op disktest.Op) error {
		if op.Kind == "write" {
			return syscall.ENOSPC
		}
		return nil
	}
	f.FailIf(full)
	for range 3 {
		require.ErrorIs(t, s.Sync(), syscall.ENOSPC)
		_, err := s.Put(noise(50, 450)) // more than the buffer takes
		require.ErrorIs(t, err, syscall.ENOSPC)
		_, err = s.Put(noise(51, 2000))
		require.ErrorIs(t, err, syscall.ENOSPC)
	}
	for _, c := range all {
		requireHas(t, s, c)
	}
	requireMissing(t, s, noise(50, 450))
	f.FailIf(nil)
	put(t, s, noise(52, 300))
	require.NoError(t, s.Sync())
	all = append(all, noise(52, 300))
	after := Open(f.AfterPowerCut(nil).Root("/agent"))
	for _, c := range all {
		requireHas(t, after, c)
	}
	require.Zero(t, count(t, root, tempSuffix))
	require.NoError(t, s.Close())
}

func TestBrokenStaysBroken(t *testing.T) {
	for _, kinds := range []map[string]bool{{"sync": true}, {"write": true, "truncate": true}, {"syncdir": true}} {
		f, root := newFaultyDisk()
		s := openSmall(root)
		put(t, s, []byte("kept"))
		require.NoError(t, s.Sync())
		for i := range uint64(5) { // into another segment
			put(t, s, noise(i, 450))
		}
		f.FailIf(func(op disktest.Op) error {
			if kinds[op.Kind] {
				return syscall.EIO
			}
			return nil
		})
		first := s.Sync()
		require.ErrorIs(t, first, syscall.EIO)
		require.ErrorIs(t, first, ErrBroken)
		f.FailIf(nil)
		require.Equal(t, first, s.Sync(), "the first error, for ever")
		_, err := s.Put([]byte("new"))
		require.Equal(t, first, err)
		_, err = s.Put([]byte("kept"))
		require.Equal(t, first, err)
		_, _, err = s.PutFrom(bytes.NewReader(noise(1, 2000)))
		require.Equal(t, first, err)
		requireHas(t, s, []byte("kept"))
		require.Error(t, s.Close())
		s = openSmall(root)
		put(t, s, []byte("new"))
		require.NoError(t, s.Sync())
		requireHas(t, Open(f.AfterPowerCut(nil).Root("/agent")), []byte("kept"))
		requireHas(t, Open(f.AfterPowerCut(nil).Root("/agent")), []byte("new"))
		require.NoError(t, s.Close())
	}
}

// What another process has written but not synced may vanish with the power.
func TestNobodyCountsOnWhatIsNotSynced(t *testing.T) {
	f, root := newFaultyDisk()
	a, b := openSmall(root), openSmall(root)
	var all [][]byte
	for i := range 3 {
		all = append(all, noise(uint64(i), 300))
		put(t, a, all[i]) // the first ones are written, as the buffer is small
	}
	requireHas(t, b, all[0])
	for _, c := range all {
		put(t, b, c)
	}
	require.NoError(t, b.Sync())
	after := Open(f.AfterPowerCut(nil).Root("/agent"))
	for _, c := range all {
		requireHas(t, after, c)
	}
	// And what it has synced and sealed is not kept again.
	for i := range 20 {
		put(t, a, noise(uint64(100+i), 300))
	}
	require.NoError(t, a.Sync())
	n, _, err := b.Stats()
	require.NoError(t, err)
	put(t, b, noise(100, 300))
	require.NoError(t, b.Sync())
	m, _, err := b.Stats()
	require.NoError(t, err)
	require.Equal(t, n, m)
}

// Callers that wait for the same disk share its syncs.
func TestSyncsCoalesce(t *testing.T) {
	f, root := newFaultyDisk()
	s := Open(root)
	put(t, s, []byte("first"))
	require.NoError(t, s.Sync())
	const callers = 20
	for i := range callers {
		put(t, s, noise(uint64(i), 50))
	}
	var mu sync.Mutex
	syncs := 0
	started, goOn := make(chan struct{}), make(chan struct{})
	f.FailIf(func(op disktest.Op) error {
		if op.Kind == "sync" {
			mu.Lock()
			syncs++
			mu.Unlock()
		}
		return nil
	})
	var together sync.WaitGroup
	together.Go(func() {
		// The first is held up in its sync until all others wait.
		s.writer.mu.Lock()
		s.writer.syncing = true
		s.writer.mu.Unlock()
		close(started)
		<-goOn
		s.writer.mu.Lock()
		s.writer.syncing = false
		s.writer.done.Broadcast()
		s.writer.mu.Unlock()
	})
	<-started
	for range callers {
		together.Go(func() {
			if err := s.Sync(); err != nil {
				t.Error(err)
			}
		})
	}
	close(goOn)
	together.Wait()
	require.Equal(t, 1, syncs)
	require.NoError(t, s.Sync())
	require.Equal(t, 1, syncs, "nothing new: nothing synced")
	requireHas(t, Open(f.AfterPowerCut(nil).Root("/agent")), noise(3, 50))
	require.NoError(t, s.Close())
}

// A disk that cannot be read is not the same as a content that is not there.
func TestUnreadableIsNotMissing(t *testing.T) {
	f, root := newFaultyDisk()
	s := openSmall(root)
	put(t, s, noise(1, 300))
	put(t, s, noise(2, 2000))
	require.NoError(t, s.Close())
	for _, d := range []Digest{digest(noise(1, 300)), digest(noise(2, 2000))} {
		for _, kind := range []string{"read", "openfile", "readdir", "stat"} {
			f.FailIf(func(op disktest.Op) error {
				if op.Kind == kind {
					return syscall.EIO
				}
				return nil
			})
			err := Open(root).Check(d)
			require.ErrorIs(t, err, syscall.EIO, kind)
			require.NotErrorIs(t, err, ErrMissing, kind)
			require.NotErrorIs(t, err, ErrDamaged, kind)
			f.FailIf(nil)
			require.NoError(t, Open(root).Check(d))
		}
	}
	_, err := root.Lstat(dir)
	require.NotErrorIs(t, err, fs.ErrNotExist)
}
