package delta

import (
	"bytes"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// noise is n bytes that do not compress, in characters that JSON does not escape.
func noise(seed uint64, n int) []byte {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	r := rand.New(rand.NewPCG(seed, 1))
	b := make([]byte, n)
	for i := range b {
		b[i] = letters[r.IntN(len(letters))]
	}
	return b
}

func TestAContentComesBack(t *testing.T) {
	long := noise(1, 10_000)
	words := bytes.Repeat([]byte("the same words again, "), 500)
	contents := [][]byte{nil, []byte("x"), long, long[:31], long[:32], long[:33], long[5000:], append(bytes.Clone(long[5000:]), long[:5000]...), words, words[7:], bytes.Repeat([]byte{0}, 3000)}
	for i, base := range contents {
		for j, c := range contents {
			d := Encode([]byte("before"), base, c)
			require.True(t, bytes.HasPrefix(d, []byte("before")))
			got, err := Apply(base, d[6:], len(c))
			require.NoError(t, err, "%d against %d", j, i)
			require.True(t, bytes.Equal(c, got), "%d against %d", j, i)
		}
	}
}

func TestADeltaIsAsLargeAsTheDifference(t *testing.T) {
	base := noise(1, 2<<20)
	for _, places := range []int{1, 10, 100} {
		content := bytes.Clone(base)
		size := 10 << 10 / places
		for i := range places {
			copy(content[i*len(content)/places:], noise(uint64(2+i), size))
		}
		d := Encode(nil, base, content)
		require.Less(t, len(d), 10<<10+places*(2*block+16), "in %d places", places)
		// What moves costs no more than what changes in its place.
		moved := append(append(append([]byte{}, content[1<<20:]...), "and something new"...), content[:1<<20]...)
		require.Less(t, len(Encode(nil, base, moved)), 10<<10+(places+1)*(2*block+16)+64)
	}
}

func TestADamagedDeltaIsRefused(t *testing.T) {
	base := noise(1, 1000)
	d := Encode(nil, base, append(bytes.Clone(base[:500]), "and an end"...))
	for cut := range d {
		_, err := Apply(base, d[:cut], 1<<20)
		require.ErrorIs(t, err, ErrDamaged, "cut at %d", cut)
	}
	_, err := Apply(base, d, 100)
	require.ErrorIs(t, err, ErrDamaged, "over the limit")
	_, err = Apply(base[:400], d, 1<<20)
	require.ErrorIs(t, err, ErrDamaged, "another base")
	huge := []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 0x03, 0x00}
	_, err = Apply(base, huge, 1<<40)
	require.ErrorIs(t, err, ErrDamaged, "a claim that nothing carries")
}

// seeds fails where the committed seeds of a fuzz target are gone.
func seeds(f *testing.F) {
	files, err := os.ReadDir("testdata/fuzz/" + f.Name())
	require.NoError(f, err)
	require.NotEmpty(f, files)
}

func FuzzEncode(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, base, content []byte) {
		d := Encode(nil, base, content)
		got, err := Apply(base, d, len(content))
		require.NoError(t, err)
		require.True(t, bytes.Equal(content, got))
	})
}

func FuzzApply(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, base, delta []byte) {
		content, err := Apply(base, delta, 1<<16)
		if err != nil {
			require.ErrorIs(t, err, ErrDamaged)
			return
		}
		require.LessOrEqual(t, len(content), 1<<16)
		again, err := Apply(base, Encode(nil, base, content), len(content))
		require.NoError(t, err)
		require.True(t, bytes.Equal(content, again))
	})
}

func BenchmarkDelta(b *testing.B) {
	base := noise(1, 2<<20)
	content := bytes.Clone(base)
	copy(content[1<<20:], noise(2, 10<<10))
	b.Run("encode", func(b *testing.B) {
		b.SetBytes(int64(len(content)))
		for b.Loop() {
			Encode(nil, base, content)
		}
	})
	b.Run("encode against nothing alike", func(b *testing.B) {
		b.SetBytes(int64(len(content)))
		other := noise(3, 2<<20)
		for b.Loop() {
			Encode(nil, other, content)
		}
	})
	d := Encode(nil, base, content)
	b.Run("apply", func(b *testing.B) {
		b.SetBytes(int64(len(content)))
		for b.Loop() {
			if _, err := Apply(base, d, len(content)); err != nil {
				b.Fatal(err)
			}
		}
	})
}
