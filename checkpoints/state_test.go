package checkpoints

import (
	"encoding/json"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// A plain file's quick encoding is the one that encoding/json would make, and
// only that is read in the quick way.
func TestTheQuickEncodingIsTheUsualOne(t *testing.T) {
	d := digestOf([]byte("x"))
	for _, mode := range []uint32{0, 0o600, 0o644, 0o4755, math.MaxUint32} {
		for _, size := range []int64{0, 1, 4096, math.MaxInt64} {
			s := State{Kind: File, Mode: mode, Size: size, Digest: d}
			quick, err := json.Marshal(s)
			require.NoError(t, err)
			usual, err := json.Marshal(stateJSON{Kind: "file", Mode: mode, Size: size, Digest: &d})
			require.NoError(t, err)
			require.Equal(t, string(usual), string(quick))
			back, ok := parseFile(quick)
			require.True(t, ok, "%s", quick)
			require.Equal(t, s, back)
			for cut := range quick {
				_, ok := parseFile(quick[:cut])
				require.False(t, ok, "%s", quick[:cut])
			}
		}
	}
	for _, other := range []string{
		`{"kind":"file"}`,
		`{"kind":"dir","mode":493}`,
		fmt.Sprintf(`{"kind":"file","mode":0420,"digest":"%v"}`, d),
		fmt.Sprintf(`{"kind":"file","mode":4294967296,"digest":"%v"}`, d),
		fmt.Sprintf(`{"kind":"file","size":99999999999999999999,"digest":"%v"}`, d),
		fmt.Sprintf(`{"kind":"file","size":1,"mode":1,"digest":"%v"}`, d),
		fmt.Sprintf(`{"kind":"file","size":-1,"digest":"%v"}`, d),
		fmt.Sprintf(`{"kind":"file","digest":"%X"}`, d[:]),
		fmt.Sprintf(`{"kind":"file","digest":"%064d"}`, 0),
		fmt.Sprintf(`{"kind":"file","digest":"%v","reason":"budget"}`, d),
		fmt.Sprintf(`{"kind":"file","digest":"%v"} `, d),
	} {
		_, ok := parseFile([]byte(other))
		require.False(t, ok, other)
	}
}

func BenchmarkStateJSON(b *testing.B) {
	s := State{Kind: File, Mode: 0o644, Size: 4096, Digest: digestOf([]byte("x"))}
	b.Run("encode", func(b *testing.B) {
		for b.Loop() {
			if _, err := s.MarshalJSON(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("encode/usual", func(b *testing.B) {
		for b.Loop() {
			if _, err := json.Marshal(stateJSON{Kind: "file", Mode: s.Mode, Size: s.Size, Digest: &s.Digest}); err != nil {
				b.Fatal(err)
			}
		}
	})
	line, err := s.MarshalJSON()
	require.NoError(b, err)
	b.Run("decode", func(b *testing.B) {
		for b.Loop() {
			if err := s.UnmarshalJSON(line); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("decode/usual", func(b *testing.B) {
		for b.Loop() {
			var j stateJSON
			if err := json.Unmarshal(line, &j); err != nil {
				b.Fatal(err)
			}
		}
	})
}
