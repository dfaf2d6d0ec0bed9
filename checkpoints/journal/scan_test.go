package journal

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

// scan returns what Scan delivers: objects, and "damaged" for what is.
func scan(t testing.TB, r io.Reader, maxLine int) ([]string, Tail) {
	t.Helper()
	got := []string{}
	again := 0 // zeros and the line behind them have one number
	tail, err := Scan(r, maxLine, func(l Line) error {
		if l.Number == len(got)-again {
			require.Equal(t, "damaged", got[len(got)-1])
			again++
		}
		require.Equal(t, len(got)+1-again, l.Number)
		if l.Err != nil {
			require.ErrorIs(t, l.Err, ErrDamaged)
			got = append(got, "damaged")
		} else {
			got = append(got, string(l.Object))
		}
		return nil
	})
	require.NoError(t, err)
	return got, tail
}

func TestEveryCutOfALogIsAPrefix(t *testing.T) {
	log := encode(t, objects...)
	for cut := range len(log) + 1 {
		got, tail := scan(t, bytes.NewReader(log[:cut]), 1<<20)
		require.Equal(t, objects[:len(got)], got, "cut at byte %d", cut)
		require.EqualValues(t, cut, tail.End+tail.Torn)
		require.Equal(t, cut > 0 && log[cut-1] != '\n' && tail.Torn == 0, tail.Unclosed, "cut at byte %d", cut)
		require.Equal(t, len(encode(t, got...)), int(tail.End)+map[bool]int{true: 1}[tail.Unclosed], "cut at byte %d", cut)
	}
}

// A flipped byte costs the line it is in, or two when it is the newline
// between them, and is always told.
func TestEveryFlippedByteOfALogIsNoticed(t *testing.T) {
	few := objects[:4]
	log := encode(t, few...)
	for i := range log {
		log[i] ^= 0x04
		got, tail := scan(t, bytes.NewReader(log), 1<<20)
		if i == len(log)-1 {
			require.Equal(t, few[:3], got, "the last newline")
			require.NotZero(t, tail.Torn)
		} else {
			require.Contains(t, got, "damaged", "byte %d", i)
			whole := 0
			for _, o := range got {
				if o != "damaged" {
					require.Contains(t, few, o)
					whole++
				}
			}
			require.GreaterOrEqual(t, whole, len(few)-2, "byte %d", i)
		}
		log[i] ^= 0x04
	}
}

func TestHowALogEnds(t *testing.T) {
	a, b := string(encode(t, `{"a":1}`)), string(encode(t, `{"b":2}`))
	bad := strings.Replace(b, "2", "3", 1)
	whole := int64(len(a))
	tests := []struct {
		name, log string
		want      []string
		tail      Tail
	}{
		{"nothing", "", []string{}, Tail{}},
		{"a whole line", a, []string{`{"a":1}`}, Tail{End: whole}},
		{"torn", a + b[:9], []string{`{"a":1}`}, Tail{End: whole, Torn: 9}},
		{"without its newline", a + b[:len(b)-1], []string{`{"a":1}`, `{"b":2}`}, Tail{End: 2*whole - 1, Unclosed: true}},
		{"wrong, with its newline", a + bad, []string{`{"a":1}`, "damaged"}, Tail{End: 2 * whole}},
		{"wrong, without its newline", a + bad[:len(bad)-1], []string{`{"a":1}`}, Tail{End: whole, Torn: whole - 1}},
		{"wrong, and another after it", bad + a, []string{"damaged", `{"a":1}`}, Tail{End: 2 * whole}},
		{"zeros at the end", a + "\x00\x00\x00", []string{`{"a":1}`}, Tail{End: whole, Torn: 3}},
		{"zeros between", a + "\x00\x00\n" + b, []string{`{"a":1}`, "damaged", `{"b":2}`}, Tail{End: 2*whole + 3}},
		{"zeros before a line", "\x00\x00" + a + b, []string{"damaged", `{"a":1}`, `{"b":2}`}, Tail{End: 2*whole + 2}},
		{"zeros before the last line, without its newline", "\x00\x00" + a[:len(a)-1], []string{"damaged", `{"a":1}`}, Tail{End: whole + 1, Unclosed: true}},
		{"zeros before a bad line", "\x00\x00" + bad + a, []string{"damaged", `{"a":1}`}, Tail{End: 2*whole + 2}},
		{"an empty line", a + "\n" + b, []string{`{"a":1}`, "damaged", `{"b":2}`}, Tail{End: 2*whole + 1}},
		{"not ours", "hello\n", []string{"damaged"}, Tail{End: 6}},
	}
	for _, test := range tests {
		for _, r := range []io.Reader{
			strings.NewReader(test.log), iotest.OneByteReader(strings.NewReader(test.log)), iotest.DataErrReader(strings.NewReader(test.log)),
		} {
			got, tail := scan(t, r, 100)
			require.Equal(t, test.want, got, test.name)
			require.Equal(t, test.tail, tail, test.name)
		}
	}
}

func TestALineAroundTheLimit(t *testing.T) {
	long := `{"a":"` + strings.Repeat("x", 300<<10) + `"}`
	log := encode(t, `{"a":1}`, long, `{"b":2}`)
	length := len(encode(t, long)) - 1
	for limit := length - 2; limit <= length+2; limit++ {
		want := []string{`{"a":1}`, long, `{"b":2}`}
		if limit < length {
			want[1] = "damaged"
		}
		got, tail := scan(t, bytes.NewReader(log), limit)
		require.Equal(t, want, got, "limit %d", limit)
		require.EqualValues(t, len(log), tail.End)
	}
	// Lengths around the first buffer.
	for n := 64<<10 - 60; n < 64<<10+10; n++ {
		o := `{"a":"` + strings.Repeat("x", n) + `"}`
		got, _ := scan(t, bytes.NewReader(encode(t, o, `{"b":2}`)), 1<<20)
		require.Equal(t, []string{o, `{"b":2}`}, got)
	}
}

// endless is a line of n bytes that nobody has in memory.
type endless struct{ n int64 }

func (e *endless) Read(b []byte) (int, error) {
	if e.n == 0 {
		return 0, io.EOF
	}
	n := int(min(e.n, int64(len(b))))
	e.n -= int64(n)
	clear(b[:n])
	return n, nil
}

func TestAnOverlongLineTakesNoMemory(t *testing.T) {
	const size = 1 << 30
	last := encode(t, `{"a":1}`)
	r := io.MultiReader(&endless{size}, strings.NewReader("\n"), bytes.NewReader(last))
	s := scanner{r: r, maxLine: 100 << 10, buf: make([]byte, 0, 64<<10)}
	_, length, closed, err := s.next()
	require.NoError(t, err)
	require.True(t, closed)
	require.EqualValues(t, size, length)
	require.LessOrEqual(t, cap(s.buf), 256<<10)
	line, _, _, err := s.next()
	require.NoError(t, err)
	require.Equal(t, string(last), string(line)+"\n")
}

func TestAnErrorEndsTheScan(t *testing.T) {
	log := encode(t, objects...)
	broken := errors.New("the disk is gone")
	n := 0
	tail, err := Scan(io.MultiReader(bytes.NewReader(log[:len(log)-5]), iotest.ErrReader(broken)), 1<<20, func(Line) error { n++; return nil })
	require.ErrorIs(t, err, broken)
	require.Equal(t, len(objects)-1, n)
	require.EqualValues(t, len(encode(t, objects[:n]...)), tail.End)

	tail, err = Scan(bytes.NewReader(log), 1<<20, func(l Line) error {
		if l.Number == 2 {
			return broken
		}
		return nil
	})
	require.ErrorIs(t, err, broken)
	require.EqualValues(t, len(encode(t, objects[:2]...)), tail.End)
}

func BenchmarkScan(b *testing.B) {
	o := `{"type":"entry","text":"` + strings.Repeat("x", 270) + `"}`
	log := bytes.Repeat(encode(b, o), 100_000)
	b.SetBytes(int64(len(log)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Scan(bytes.NewReader(log), 1<<20, func(Line) error { return nil }); err != nil {
			b.Fatal(err)
		}
	}
}
