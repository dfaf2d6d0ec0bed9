package rpc

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// What is looked at eight bytes at a time is a string where encoding/json says
// so, wherever in it something stands that is none.
func TestAStringIsOne(t *testing.T) {
	pieces := []string{"a", "so it is ", " ", "é", "\U0001F600", "\x7f", `\n`, `\"`, `\\`, `\/`, `\u00e9`, `\ud83d`, `\uD83D\uDE00`}
	bad := []string{`"`, `\`, `\x`, `\u12`, `\u12g4`, "\n", "\x00", "\x1f", "\xff", "\xc3"}
	r := rand.New(rand.NewPCG(1, 2))
	for range 100_000 {
		var b bytes.Buffer
		for range r.IntN(12) {
			b.WriteString(pieces[r.IntN(len(pieces))])
		}
		if r.IntN(2) == 0 {
			b.WriteString(bad[r.IntN(len(bad))])
			for range r.IntN(4) {
				b.WriteString(pieces[r.IntN(len(pieces))])
			}
		}
		raw := []byte(`"` + b.String() + `"`)
		want := json.Valid(raw) && utf8.Valid(raw)
		require.Equal(t, want, isString(raw), "%q", raw)
		require.Equal(t, want && !bytes.Contains(raw, []byte(`\`)), isPlain(raw), "%q", raw)
		require.False(t, isString(raw[1:]) && raw[1] != '"', "%q", raw[1:])
	}
	for _, s := range []string{``, `"`, `5`, `null`, `{}`, `"a`, `a"`} {
		require.False(t, isString([]byte(s)), s)
	}
}
