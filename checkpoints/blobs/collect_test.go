package blobs

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oino-dev/oinod/checkpoints/disk"
	"github.com/oino-dev/oinod/checkpoints/disk/disktest"
)

// only returns the predicate that holds for contents.
func only(contents ...[]byte) func(Digest) bool {
	live := map[Digest]bool{}
	for _, c := range contents {
		live[digest(c)] = true
	}
	return func(d Digest) bool { return live[d] }
}

// odd splits contents in two, every other one.
func odd(contents [][]byte) (kept, dropped [][]byte) {
	for i, c := range contents {
		if i%2 == 0 {
			kept = append(kept, c)
		} else {
			dropped = append(dropped, c)
		}
	}
	return kept, dropped
}

func TestCollectDropsTheDeadAndKeepsTheLiving(t *testing.T) {
	everyStore(t, func(t *testing.T, s *Store) {
		var all [][]byte
		for i := range 40 {
			all = append(all, noise(uint64(i), 300))
		}
		all = append(all, large(41, partSize+1), large(42, partSize+2))
		for _, c := range all {
			put(t, s, c)
		}
		kept, dropped := odd(all)
		before, size, err := s.Stats()
		require.NoError(t, err)
		require.Equal(t, len(all), before)

		would, err := s.Collect(only(kept...), true)
		require.NoError(t, err)
		require.Positive(t, would.Blobs)
		for _, c := range all {
			requireHas(t, s, c)
		}
		n, _, err := s.Stats()
		require.NoError(t, err)
		require.Equal(t, before, n, "nothing is changed")

		did, err := s.Collect(only(kept...), false)
		require.NoError(t, err)
		require.Equal(t, would, did)
		for _, c := range kept {
			requireHas(t, s, c)
		}
		requireMissing(t, s, dropped[len(dropped)-1])
		after, left, err := s.Stats()
		require.NoError(t, err)
		require.Equal(t, before-did.Blobs, after)
		require.Less(t, left, size)

		did, err = s.Collect(only(), false)
		require.NoError(t, err)
		require.Equal(t, after, did.Blobs)
		for _, c := range all {
			requireMissing(t, s, c)
		}
		for _, c := range all {
			put(t, s, c)
			requireHas(t, s, c)
		}
		require.NoError(t, s.Sync())
		did, err = s.Collect(only(all...), false)
		require.NoError(t, err)
		require.Zero(t, did)
	})
}

func TestNothingOfADroppedSegmentIsLeft(t *testing.T) {
	root := openTemp(t)
	s := openSmall(root)
	for i := range 60 {
		put(t, s, noise(uint64(i), 300))
	}
	require.NoError(t, s.Sync())
	require.Greater(t, count(t, root, segmentSuffix), 5)
	_, err := s.Collect(only(noise(7, 300)), false)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	require.Equal(t, 1, count(t, root, segmentSuffix))
	require.LessOrEqual(t, count(t, root, indexSuffix), 1)
	requireHas(t, Open(root), noise(7, 300))
}

func TestAHalfLivingSegmentIsLeftAsItIs(t *testing.T) {
	root := openTemp(t)
	s := Open(root)
	var all [][]byte
	for i := range 10 {
		all = append(all, noise(uint64(i), 300))
		put(t, s, all[i])
	}
	before, err := s.Collect(only(all[:6]...), false)
	require.NoError(t, err)
	require.Zero(t, before)
	for _, c := range all {
		requireHas(t, s, c)
	}
	freed, err := s.Collect(only(all[:5]...), false)
	require.NoError(t, err)
	require.Equal(t, Collected{Blobs: 5, Bytes: 5 * (300 + frameHead)}, freed)
	require.NoError(t, s.Close())
}

func TestHoldersAndCollectKeepEachOtherAway(t *testing.T) {
	for name, root := range map[string]disk.Root{"real": openTemp(t), "test": disktest.New().Root("/agent")} {
		t.Run(name, func(t *testing.T) {
			a, b := Open(root), Open(root)
			put(t, a, []byte("x"))
			require.NoError(t, a.Sync())
			for _, holder := range []*Store{a, b} {
				one, err := holder.Hold()
				require.NoError(t, err)
				two, err := holder.Hold()
				require.NoError(t, err)
				other, err := a.Hold()
				require.NoError(t, err, "holders do not mind each other")
				other()
				one()
				one() // a second time
				for _, s := range []*Store{a, b} {
					_, err = s.Collect(only(), false)
					require.ErrorIs(t, err, ErrInUse)
					_, err = s.Collect(only(), true)
					require.NoError(t, err, "a dry run asks nobody")
				}
				requireHas(t, b, []byte("x"))
				two()
			}
			held := make(chan struct{})
			_, err := b.Collect(func(Digest) bool {
				// While it runs a holder waits, here and elsewhere.
				if held != nil {
					done := held
					held = nil
					go func() {
						release, err := a.Hold()
						if err == nil {
							release()
						}
						close(done)
					}()
					_, err := a.Collect(only(), false)
					require.ErrorIs(t, err, ErrInUse)
					_, err = b.Collect(only(), false)
					require.ErrorIs(t, err, ErrInUse)
					select {
					case <-done:
						t.Error("held while Collect was running")
					default:
					}
					t.Cleanup(func() { <-done })
				}
				return true
			}, false)
			require.NoError(t, err)
			_, err = a.Hold()
			require.NoError(t, err)
			require.NoError(t, a.Close())
			_, err = b.Collect(only(), false)
			require.NoError(t, err, "a closed store holds nothing")
			require.NoError(t, b.Close())
		})
	}
}

// The trap of every store like this: one process knows a content, another
// collects it, the first "keeps" it by knowing it.
func TestWhatWasCollectedIsKeptAnew(t *testing.T) {
	root := openTemp(t)
	a, b := openSmall(root), openSmall(root)
	var all [][]byte
	for i := range 30 {
		all = append(all, noise(uint64(i), 300))
	}
	all = append(all, large(99, partSize+1))
	release, err := a.Hold()
	require.NoError(t, err)
	for _, c := range all {
		put(t, a, c)
	}
	require.NoError(t, a.Sync())
	for _, c := range all {
		put(t, a, c) // and knows where each is, with the files open
		requireHas(t, a, c)
		requireHas(t, b, c)
	}
	release()
	_, err = b.Collect(only(), false)
	require.NoError(t, err)
	release, err = a.Hold()
	require.NoError(t, err)
	for _, c := range all {
		put(t, a, c)
	}
	require.NoError(t, a.Sync())
	release()
	require.NoError(t, a.Close())
	for _, c := range all {
		requireHas(t, b, c)
		requireHas(t, Open(root), c)
	}
	require.NoError(t, b.Close())
}

// The segment that another process adds to is not touched, however dead; that
// of one that is gone is.
func TestTheSegmentOfALivingProcessStays(t *testing.T) {
	f := disktest.New()
	root := f.Root("/agent")
	other, s := Open(root), Open(root)
	put(t, other, []byte("theirs"))
	require.NoError(t, other.Sync())
	put(t, s, []byte("ours"))
	require.NoError(t, s.Sync())
	freed, err := s.Collect(only(), false)
	require.NoError(t, err)
	require.Equal(t, 1, freed.Blobs)
	requireHas(t, s, []byte("theirs"))
	requireMissing(t, s, []byte("ours"))
	put(t, other, []byte("more"))
	require.NoError(t, other.Sync())
	requireHas(t, s, []byte("more"))

	f.Kill()
	s = Open(root)
	freed, err = s.Collect(only([]byte("more")), false)
	require.NoError(t, err)
	require.Equal(t, 1, freed.Blobs)
	requireHas(t, s, []byte("more"))
	requireMissing(t, s, []byte("theirs"))
	require.NoError(t, s.Close())
}

func TestADamagedSegmentIsNotCollected(t *testing.T) {
	f := disktest.New()
	root := f.Root("/agent")
	s := Open(root)
	var all [][]byte
	for i := range 10 {
		all = append(all, noise(uint64(i), 300))
		put(t, s, all[i])
	}
	require.NoError(t, s.Close())
	name := dir + "/0-00000001" + segmentSuffix
	third := int64(segmentHead + 2*(300+frameHead))
	for what, off := range map[string]int64{"a header": third + 20, "a payload": third + frameHead + 5, "the segment's header": 3} {
		after := f.AfterPowerCut(nil).Root("/agent")
		flip(t, after, name, off)
		s := Open(after)
		freed, err := s.Collect(only(all[2]), false)
		require.NoError(t, err, what)
		require.Zero(t, freed.Blobs-map[bool]int{true: freed.Blobs}[what == "a payload"], what)
		_, err = after.Lstat(name)
		require.NoError(t, err, "%s: it is left to be looked at", what)
		require.NoError(t, s.Close())
	}
}

func TestLeftoversOfCrashesAreRemoved(t *testing.T) {
	root := openTemp(t)
	s := Open(root)
	put(t, s, []byte("x"))
	require.NoError(t, s.Sync())
	for _, name := range []string{"0-00000009.idx", "a.big.12345678.tmp", "generation.tmp"} {
		require.NoError(t, disk.Publish(root, dir+"/"+name, []byte("y"), 0o600))
	}
	_, err := s.Collect(only([]byte("x")), true)
	require.NoError(t, err)
	require.Len(t, names(t, root), 5, "the segment, its lane, and these")
	_, err = s.Collect(only([]byte("x")), false)
	require.NoError(t, err)
	left := strings.Join(names(t, root), " ")
	require.NotContains(t, left, tempSuffix)
	require.NotContains(t, left, indexSuffix)
	requireHas(t, s, []byte("x"))
	require.NoError(t, s.Close())
}

// A reader that holds nothing may meet a Collect at any operation; what is
// live it reads all the same.
func TestAReaderMeetsACollect(t *testing.T) {
	for n := 1; ; n++ {
		f := disktest.New()
		root := f.Root("/agent")
		s := openSmall(root)
		var all [][]byte
		for i := range 20 {
			all = append(all, noise(uint64(i), 300))
			put(t, s, all[i])
		}
		require.NoError(t, s.Close())
		kept, _ := odd(all)
		reader := openSmall(root)
		ops, busy := 0, false
		f.FailIf(nil)
		met := false
		fail := func(op disktest.Op) error {
			if ops++; ops == n && !busy {
				met = true
				return errMeet
			}
			return nil
		}
		f.FailIf(fail)
		for _, c := range kept {
			_, err := reader.Get(digest(c), 0)
			if errors.Is(err, errMeet) { // the disk fails once; meanwhile Collect runs
				f.FailIf(nil)
				busy = true
				_, cerr := openSmall(root).Collect(only(kept...), false)
				require.NoError(t, cerr)
				_, err = reader.Get(digest(c), 0)
			}
			require.NoError(t, err, fmt.Sprint("operation ", n))
		}
		if !met {
			require.Greater(t, n, 10)
			return
		}
	}
}

var errMeet = errors.New("met")
