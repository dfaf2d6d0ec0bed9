package blobs

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// noise returns n bytes that do not compress.
func noise(seed uint64, n int) []byte {
	r := rand.New(rand.NewPCG(seed, 3))
	b := make([]byte, n+8)
	for i := 0; i < n; i += 8 {
		binary.LittleEndian.PutUint64(b[i:], r.Uint64())
	}
	return b[:n]
}

// large returns n bytes that take little time: some noise, then zeros.
func large(seed uint64, n int) []byte {
	b := make([]byte, n)
	copy(b, noise(seed, 100))
	return b
}

func someRecords(n int) []record {
	records := make([]record, n)
	for i := range records {
		records[i] = record{digest(noise(uint64(i), 20)), place{uint32(segmentHead + i*100), uint32(i % 50)}}
	}
	return records
}

func TestAnIndexFindsWhatIsInItAndNothingElse(t *testing.T) {
	for _, n := range []int{0, 1, 2, 255, 256, 5000} {
		records := someRecords(n)
		b := encodeIndex(segmentID{1}, 777, append([]record(nil), records...))
		x, err := readIndex(bytes.NewReader(b), int64(len(b)))
		require.NoError(t, err)
		require.Equal(t, n, x.count)
		require.EqualValues(t, 777, x.covered)
		for _, r := range records {
			require.True(t, x.bloom.has(r.digest))
			p, ok, err := x.find(bytes.NewReader(b), r.digest)
			require.NoError(t, err)
			require.True(t, ok)
			require.Equal(t, r.place, p)
		}
		maybe := 0
		for i := range 2000 {
			d := digest(noise(uint64(1e6+i), 20))
			if x.bloom.has(d) {
				maybe++
			}
			_, ok, err := x.find(bytes.NewReader(b), d)
			require.NoError(t, err)
			require.False(t, ok)
		}
		require.Less(t, maybe, 60, "the filter lets few through")
	}
}

func TestOfTwoCopiesTheLaterOneCounts(t *testing.T) {
	d := digest([]byte("x"))
	b := encodeIndex(segmentID{1}, 777, []record{{d, place{32, 1}}, {d, place{500, 1}}, {d, place{100, 1}}})
	x, err := readIndex(bytes.NewReader(b), int64(len(b)))
	require.NoError(t, err)
	require.Equal(t, 1, x.count)
	p, ok, err := x.find(bytes.NewReader(b), d)
	require.NoError(t, err)
	require.True(t, ok)
	require.EqualValues(t, 500, p.off)
}

func TestEveryFlippedByteOfAnIndexIsNoticed(t *testing.T) {
	b := encodeIndex(segmentID{1}, 777, someRecords(40))
	whole := func() error {
		x, err := readIndex(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			return err
		}
		return x.each(bytes.NewReader(b), func(record) {})
	}
	require.NoError(t, whole())
	for i := range b {
		b[i] ^= 0x11
		require.ErrorIs(t, whole(), errIndex, "byte %d", i)
		b[i] ^= 0x11
	}
	for cut := range b {
		_, err := readIndex(bytes.NewReader(b[:cut]), int64(cut))
		require.ErrorIs(t, err, errIndex, "cut at %d", cut)
	}
	_, err := readIndex(bytes.NewReader(append(b, 0)), int64(len(b)+1))
	require.ErrorIs(t, err, errIndex, "longer than it should be")
}

// newerHead is the header of a segment of the next format.
func newerHead() []byte {
	b := appendSegmentHead(nil, segmentID{1})
	binary.LittleEndian.PutUint32(b[8:], version+1)
	binary.LittleEndian.PutUint32(b[12:], headSum(b, 12))
	return b
}
