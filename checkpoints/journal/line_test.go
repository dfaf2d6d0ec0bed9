package journal

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var objects = []string{
	`{"a":1}`,
	`{"":""}`,
	`{"crc":"00000000"}`,
	`{"a":"x","crc":"12345678"}`,
	`{"nested":{"crc":"1"},"list":[1,2,{}]}`,
	`{"text":"` + strings.Repeat("ü,\\\"crc\\\":", 300) + `"}`,
}

func encode(t testing.TB, objects ...string) []byte {
	t.Helper()
	var b []byte
	for _, o := range objects {
		var err error
		b, err = Encode(b, []byte(o))
		require.NoError(t, err)
	}
	return b
}

// The format is what is on people's disks: these bytes never change.
func TestTheLineIsPinned(t *testing.T) {
	require.Equal(t, `{"a":1,"crc":"149cdbb2"}`+"\n", string(encode(t, `{"a":1}`)))
	require.Equal(t, `{"type":"session","version":1,"crc":"5807e982"}`+"\n", string(encode(t, `{"type":"session","version":1}`)))
}

func TestALineGivesItsObjectBack(t *testing.T) {
	for _, o := range objects {
		line := encode(t, o)
		got, err := Decode(line[:len(line)-1])
		require.NoError(t, err)
		require.Equal(t, o, string(got))
	}
}

func TestWhatCannotBeALineIsRefused(t *testing.T) {
	for _, o := range []string{
		``, `{`, `{}`, `{ }`, `[]`, `null`, `{"`, ` {"a":1}`, `{"a":1} `, "{\"a\":\n1}", "{\"a\":1}\n", `{ "a":1}`, `"a":1}`,
	} {
		b, err := Encode([]byte("before"), []byte(o))
		require.Error(t, err, "%q", o)
		require.Equal(t, "before", string(b))
	}
}

func TestEveryFlippedByteOfALineIsNoticed(t *testing.T) {
	for _, o := range objects {
		line := encode(t, o)
		line = line[:len(line)-1]
		for i := range line {
			for _, flip := range []byte{1, 0x20, 0x80, 0xff} {
				line[i] ^= flip
				_, err := Decode(line)
				require.ErrorIs(t, err, ErrDamaged, "byte %d of %s", i, o)
				line[i] ^= flip
			}
		}
	}
}

func TestEveryCutOfALineIsNoticed(t *testing.T) {
	for _, o := range objects {
		line := encode(t, o)
		for cut := range len(line) - 1 {
			_, err := Decode(line[:cut])
			require.ErrorIs(t, err, ErrDamaged, "%d bytes of %s", cut, o)
		}
		_, err := Decode(line)
		require.ErrorIs(t, err, ErrDamaged, "with its newline")
	}
}

// seeds is a fuzz target's first inputs. A folder that has moved must not pass
// for one with nothing to say.
func seeds(f *testing.F) {
	f.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "fuzz", f.Name(), "*"))
	require.NoError(f, err)
	require.NotEmpty(f, files, "no seeds for %s", f.Name())
}

func FuzzDecode(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, line []byte) {
		object, err := Decode(bytes.Clone(line))
		if err != nil {
			require.ErrorIs(t, err, ErrDamaged)
			require.Nil(t, object)
			return
		}
		again, err := Encode(nil, object)
		require.NoError(t, err)
		require.Equal(t, string(line)+"\n", string(again))
	})
}

func FuzzEncode(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, object []byte) {
		line, err := Encode(nil, object)
		if err != nil {
			return
		}
		require.Equal(t, 1, bytes.Count(line, []byte("\n")))
		got, err := Decode(line[:len(line)-1])
		require.NoError(t, err)
		require.Equal(t, string(object), string(got))
	})
}

func FuzzScan(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, log []byte, maxLine uint16) {
		end, last := int64(0), 0
		tail, err := Scan(bytes.NewReader(log), int(maxLine), func(l Line) error {
			if l.Number == last { // behind zeros
				end--
			}
			last = l.Number
			require.Equal(t, end, l.Pos.Offset)
			line := log[end:][:l.Pos.Length]
			require.NotContains(t, string(line), "\n")
			end += int64(l.Pos.Length) + 1
			if l.Err != nil {
				require.ErrorIs(t, l.Err, ErrDamaged)
				require.Nil(t, l.Object)
				return nil
			}
			require.LessOrEqual(t, len(line), int(maxLine))
			again, err := Encode(nil, l.Object)
			require.NoError(t, err)
			require.Equal(t, string(line)+"\n", string(again))
			return nil
		})
		require.NoError(t, err)
		if tail.Unclosed {
			end--
		}
		require.Equal(t, end, tail.End)
		require.EqualValues(t, len(log), tail.End+tail.Torn)
	})
}

// TestMain can write the seeds anew: OINO_WRITE_SEEDS=1 go test ./checkpoints/journal
func TestMain(m *testing.M) {
	if os.Getenv("OINO_WRITE_SEEDS") != "" {
		writeSeeds()
	}
	if os.Getenv(holderEnv) != "" {
		holdLock(os.Getenv(holderEnv))
	}
	os.Exit(m.Run())
}

func writeSeeds() {
	write := func(target, name string, args ...string) {
		dir := filepath.Join("testdata", "fuzz", target)
		must(os.MkdirAll(dir, 0o755))
		must(os.WriteFile(filepath.Join(dir, name), []byte("go test fuzz v1\n"+strings.Join(args, "\n")+"\n"), 0o644))
	}
	bytesArg := func(b []byte) string { return fmt.Sprintf("[]byte(%q)", b) }
	var log []byte
	for i, o := range objects[:5] {
		line, err := Encode(nil, []byte(o))
		must(err)
		log = append(log, line...)
		write("FuzzDecode", fmt.Sprint("object-", i), bytesArg(line[:len(line)-1]))
		write("FuzzEncode", fmt.Sprint("object-", i), bytesArg([]byte(o)))
	}
	write("FuzzDecode", "empty-object", bytesArg(append(appendSum([]byte(`{,"crc":"`), []byte("{")), `"}`...)))
	write("FuzzEncode", "empty-object", bytesArg([]byte(`{}`)))
	limit := func(n int) string { return fmt.Sprintf("uint16(%d)", n) }
	write("FuzzScan", "whole", bytesArg(log), limit(1000))
	write("FuzzScan", "unclosed", bytesArg(log[:len(log)-1]), limit(1000))
	write("FuzzScan", "torn", bytesArg(log[:len(log)-9]), limit(1000))
	write("FuzzScan", "long-lines", bytesArg(log), limit(30))
	write("FuzzScan", "zeros", bytesArg(append(bytes.Clone(log[:40]), make([]byte, 50)...)), limit(1000))
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
