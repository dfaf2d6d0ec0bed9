package blobs

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// text returns n bytes that compress as source code does, different for each seed.
func text(seed uint64, n int) []byte {
	words := []string{"func ", "return ", "err != nil {\n\t", "}\n", "if ", "ctx", "string", "(", ") ", "store.", "digest", ":= ", "range ", "\n\t\t"}
	r := rand.New(rand.NewPCG(seed, 7))
	b := make([]byte, 0, n+16)
	for len(b) < n {
		b = append(b, words[r.IntN(len(words))]...)
		if r.IntN(3) == 0 {
			b = binary.AppendUvarint(b, uint64(r.Uint32()))
		}
	}
	return b[:n]
}

func texts(n, size int) [][]byte {
	all := make([][]byte, n)
	for i := range all {
		all[i] = text(uint64(i), size)
	}
	return all
}

// One Sync for 200 contents of 4 KiB, none of which is there.
func BenchmarkPut4K(b *testing.B) {
	s := Open(openTemp(b))
	defer s.Close()
	content := text(1, 4096)
	b.SetBytes(4096)
	b.ReportAllocs()
	i := uint64(0)
	for b.Loop() {
		i++
		binary.LittleEndian.PutUint64(content[100:], i)
		if _, err := s.Put(content); err != nil {
			b.Fatal(err)
		}
		if i%200 == 0 {
			require.NoError(b, s.Sync())
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "puts/s")
}

// Contents that are there already, in the own segment and in a sealed one.
func BenchmarkPutAgain4K(b *testing.B) {
	root := openTemp(b)
	s := Open(root)
	contents := texts(5000, 4096)
	for _, c := range contents {
		_, err := s.Put(c)
		require.NoError(b, err)
	}
	run := func(b *testing.B) {
		b.SetBytes(4096)
		i := 0
		for b.Loop() {
			if _, err := s.Put(contents[i%len(contents)]); err != nil {
				b.Fatal(err)
			}
			i++
		}
	}
	b.Run("own", run)
	s.writer.mu.Lock()
	require.NoError(b, s.seal())
	s.writer.mu.Unlock()
	_, err := s.Put([]byte("the next segment"))
	require.NoError(b, err)
	b.Run("sealed", run)
	require.NoError(b, s.Close())
}

func BenchmarkGet(b *testing.B) {
	s := Open(openTemp(b))
	defer s.Close()
	var digests []Digest
	for _, c := range texts(5000, 4096) {
		d, err := s.Put(c)
		require.NoError(b, err)
		digests = append(digests, d)
	}
	require.NoError(b, s.Sync())
	b.SetBytes(4096)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		if _, err := s.Get(digests[i%len(digests)], 0); err != nil {
			b.Fatal(err)
		}
		i++
	}
}

// What a new process pays for its first look into a store of 100,000 contents
// in a dozen segments, and what it keeps in memory.
func BenchmarkFirstLook(b *testing.B) {
	root := openTemp(b)
	s := Open(root)
	s.sizes.segment = 1 << 20
	content := make([]byte, 32)
	var d Digest
	for i := range uint64(100_000) {
		binary.LittleEndian.PutUint64(content, i)
		var err error
		d, err = s.Put(content)
		require.NoError(b, err)
	}
	require.NoError(b, s.Close())
	b.ReportAllocs()
	for b.Loop() {
		s := Open(root)
		if _, err := s.Get(d, 0); err != nil {
			b.Fatal(err)
		}
		require.NoError(b, s.Close())
	}
}
