package blobs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oino-dev/oinod/checkpoints/disk"
	"github.com/oino-dev/oinod/checkpoints/disk/disktest"
)

// segments is what is in the segments of a store.
func segments(t testing.TB, root disk.Root) map[string][]byte {
	t.Helper()
	found := map[string][]byte{}
	for _, name := range names(t, root) {
		if strings.HasSuffix(name, segmentSuffix) {
			b, err := disk.ReadFile(root, dir+"/"+name)
			require.NoError(t, err)
			found[name] = b
		}
	}
	return found
}

// requirePrefixes checks that nothing but additions was done to what was found.
func requirePrefixes(t testing.TB, root disk.Root, found map[string][]byte) {
	t.Helper()
	now := segments(t, root)
	for name, b := range found {
		require.True(t, bytes.HasPrefix(now[name], b), "%s: %d bytes were written over or cut off", name, len(b))
	}
}

func removeIndexes(t testing.TB, root disk.Root) {
	t.Helper()
	for _, name := range names(t, root) {
		if strings.HasSuffix(name, indexSuffix) {
			require.NoError(t, root.Remove(dir+"/"+name))
		}
	}
}

// Whatever byte of what the last process has acknowledged is flipped when the
// next one takes over: it says so, destroys nothing, and once the bytes are
// right again the content is there.
func TestADamagedContentOutlivesTheNextOwner(t *testing.T) {
	t.Parallel()
	coders := newCodec()
	contents := [][]byte{noise(1, 200), noise(2, 150), noise(3, 200)}
	victim := contents[2]
	name := dir + "/0-00000001" + segmentSuffix
	start := int64(segmentHead + 350 + 2*frameHead)
	open := func(root disk.Root) *Store {
		s := openSmall(root)
		s.codec = coders
		return s
	}
	for off := start; off < start+frameHead+200; off++ {
		f := disktest.New()
		root := f.Root("/agent")
		s := open(root)
		for _, c := range contents {
			put(t, s, c)
		}
		require.NoError(t, s.Sync())
		f.Kill()
		msg := fmt.Sprint("byte ", off)

		flip(t, root, name, off)
		found := segments(t, root)
		s = open(root)
		for i := range uint64(12) { // into several segments
			put(t, s, noise(100+i, 300))
			require.NoError(t, s.Sync())
		}
		bad := s.Check(digest(victim))
		if off < start+frameHead {
			require.True(t, errors.Is(bad, ErrDamaged) || errors.Is(bad, ErrMissing), "%s: %v", msg, bad)
		} else {
			require.ErrorIs(t, bad, ErrDamaged, msg)
			require.ErrorContains(t, bad, "another digest")
		}
		requirePrefixes(t, root, found)

		reader := open(root)
		require.Error(t, reader.Check(digest(victim)), msg)
		later := f.AfterPowerCut(disktest.Keep(0, 100)).Root("/agent")
		flip(t, root, name, off)
		for range 2 {
			requireHas(t, s, victim)
			requireHas(t, reader, victim)
			requireHas(t, open(root), victim)
			removeIndexes(t, root)
		}
		require.NoError(t, s.Close())
		flip(t, root, name, off)
		requirePrefixes(t, root, found)

		// And with one more process in between, while it was damaged.
		s = open(later)
		for i := range uint64(5) {
			put(t, s, noise(200+i, 300))
		}
		require.NoError(t, s.Close())
		flip(t, later, name, off)
		for _, c := range contents {
			requireHas(t, open(later), c)
		}
	}
}

// Putting a content again while its only copy is damaged writes a good one.
func TestADamagedContentIsKeptAnew(t *testing.T) {
	content := noise(3, 200)
	name := dir + "/0-00000001" + segmentSuffix
	for _, at := range []int64{20, frameHead + 20} { // its header, its payload
		for _, same := range []bool{true, false} { // by the process that kept it first
			f := disktest.New()
			root := f.Root("/agent")
			s := openSmall(root)
			put(t, s, noise(1, 200))
			put(t, s, content)
			require.NoError(t, s.Sync())
			if !same {
				f.Kill()
				s = openSmall(root)
			}
			off := segmentHead + 200 + frameHead + at
			flip(t, root, name, off)
			found := segments(t, root)
			if same {
				require.Error(t, s.Check(digest(content)), "who has written it finds out by reading it")
			}
			put(t, s, content)
			require.NoError(t, s.Sync())
			requireHas(t, s, content)
			requirePrefixes(t, root, found)
			f = f.AfterPowerCut(nil)
			root = f.Root("/agent")
			requireHas(t, openSmall(root), content)
			s = openSmall(root)
			put(t, s, content)
			put(t, s, noise(1, 200))
			n, _, err := s.Stats()
			require.NoError(t, err)
			require.Equal(t, 2, n, "once is enough")
			flip(t, root, name, off)
			requireHas(t, s, content)
			require.NoError(t, s.Close())
			requireHas(t, openSmall(root), content)
		}
	}
}

// Of two copies in one segment either will do.
func TestTheOtherCopyIsRead(t *testing.T) {
	f := disktest.New()
	root := f.Root("/agent")
	s := Open(root)
	content := noise(1, 300)
	d := put(t, s, content)
	s.noteDamage(d) // so that it is kept once more
	put(t, s, content)
	require.NoError(t, s.Close())
	name := dir + "/0-00000001" + segmentSuffix
	first, second := int64(segmentHead+frameHead+5), int64(segmentHead+frameHead+300+frameHead+5)
	for _, off := range []int64{first, second} {
		flip(t, root, name, off)
		requireHas(t, Open(root), content)
		s := Open(root)
		put(t, s, noise(9, 10))
		requireHas(t, s, content)
		require.NoError(t, s.Close())
		flip(t, root, name, off)
	}
	requireHas(t, Open(root), content)
}

// Collect drops no segment in which a living content is damaged, unless there
// is a good copy of it.
func TestCollectKeepsWhatIsDamaged(t *testing.T) {
	name := dir + "/0-00000001" + segmentSuffix
	for _, at := range []int64{20, frameHead + 20} {
		for _, putAgain := range []bool{false, true} {
			f := disktest.New()
			root := f.Root("/agent")
			s := Open(root)
			content := noise(5, 300)
			for i := range uint64(6) {
				put(t, s, noise(i, 300))
			}
			require.NoError(t, s.Close())
			off := segmentHead + 5*(300+frameHead) + at
			flip(t, root, name, off)
			s = Open(root)
			put(t, s, noise(50, 10)) // the next owner leaves the segment
			if putAgain {
				put(t, s, content)
			}
			require.NoError(t, s.Sync())
			live := only(content, noise(50, 10))
			would, err := s.Collect(live, true)
			require.NoError(t, err)
			did, err := s.Collect(live, false)
			require.NoError(t, err)
			_, err = root.Lstat(name)
			if putAgain && at > frameHead {
				require.Error(t, err, "there is a good copy")
				require.Equal(t, Collected{5, 5 * (300 + frameHead)}, did)
				require.Equal(t, would, did)
			} else {
				require.NoError(t, err)
				require.Zero(t, did)
				flip(t, root, name, off)
			}
			requireHas(t, s, content)
			require.NoError(t, s.Close())
			requireHas(t, Open(root), content)
		}
	}
}

// A segment whose end a crash has torn off is collected like any other.
func TestATornSegmentIsCollected(t *testing.T) {
	for _, torn := range []int64{1, frameHead - 1, frameHead, frameHead + 299} {
		f := disktest.New()
		root := f.Root("/agent")
		s := Open(root)
		put(t, s, noise(1, 300))
		put(t, s, noise(2, 300))
		require.NoError(t, s.Sync())
		require.NoError(t, s.writer.file.Truncate(segmentHead+300+frameHead+torn))
		f.Kill()
		found := segments(t, root)
		s = Open(root)
		put(t, s, noise(3, 300))
		require.NoError(t, s.Sync())
		requirePrefixes(t, root, found)
		require.Equal(t, 2, count(t, root, segmentSuffix))
		_, err := s.Collect(only(noise(3, 300)), false)
		require.NoError(t, err)
		require.Equal(t, 1, count(t, root, segmentSuffix), "torn at %d", torn)
		requireHas(t, s, noise(3, 300))
		require.NoError(t, s.Close())
	}
}

// CheckAll goes by what is known; what is hidden is damaged for who needs it.
func TestCheckAllPassesOverWhatIsHidden(t *testing.T) {
	_, root := tornDisk(t, noise(1, 300), noise(2, 300))
	s := openSmall(root)
	put(t, s, noise(3, 300))
	require.NoError(t, s.Sync())
	done, err := s.CheckAll(context.Background(), func(d Digest, _ int64, err error) {
		require.NoError(t, err)
	})
	require.NoError(t, err)
	require.Equal(t, 2, done.Blobs)
	require.ErrorIs(t, s.Check(digest(noise(2, 300))), ErrDamaged)
	require.NoError(t, s.Close())
}
