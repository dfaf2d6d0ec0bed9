package blobs

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func digest(content []byte) Digest { return sha256.Sum256(content) }

// frames returns the frames of contents, one behind the other.
func frames(t testing.TB, contents ...[]byte) []byte {
	t.Helper()
	var b bytes.Buffer
	for _, c := range contents {
		require.NoError(t, newCodec().writeParts(&b, digest(c), int64(len(c)), bytes.NewReader(c)))
	}
	return b.Bytes()
}

// readBytes is the content d whose frames b begins with.
func readBytes(c *codec, b []byte, d Digest, limit int64) ([]byte, error) {
	content := []byte{}
	err := c.read(bytes.NewReader(b), 0, int64(len(b)), d, limit, func(_ int64, part []byte) error {
		content = append(content, part...)
		return nil
	})
	return content, err
}

// The format is what is on people's disks: these bytes never change.
func TestTheFormatIsPinned(t *testing.T) {
	require.Equal(t, 1, version)
	require.Equal(t, "6f696e6f5345470a01000000"+"f39bb1d8"+"30313233343536373839616263646566",
		hex.EncodeToString(appendSegmentHead(nil, segmentID([]byte("0123456789abcdef")))))
	require.Equal(t, "f56f46010000000003000000000000000000000003000000"+
		"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"+"3ea210b5"+hex.EncodeToString([]byte("abc")),
		hex.EncodeToString(frames(t, []byte("abc"))))
	index := encodeIndex(segmentID([]byte("0123456789abcdef")), 95, []record{{digest([]byte("abc")), place{32, 3}}})
	require.Equal(t, "2d86f98abfbbcf60ef9e0ced950b870c7ff1b25a0f18eef12094e0b02c628f0a", digest(index).String())
	// What another oinod has compressed must be read for ever.
	old, err := hex.DecodeString(oldFrame)
	require.NoError(t, err)
	content := []byte(strings.Repeat("oinod ", 20))
	got, err := readBytes(newCodec(), old, digest(content), 0)
	require.NoError(t, err)
	require.Equal(t, content, got)
}

const oldFrame = "f56f46010100000078000000000000000000000017000000dcb3dc39500917c271ca41a282c056fd1acc7bfb862b047e7300c528febdbad9aba287d6" +
	"28b52ffd2078750000306f696e6f6420015406032a2f01"

var codecSizes = []int{0, 1, 2, 100, frameHead, 4096, 16<<10 - frameHead - 1, 16<<10 - frameHead, 16<<10 - frameHead + 1, 16 << 10,
	1 << 20, partSize - 1, partSize, partSize + 1, 2 * partSize, 2*partSize + 1}

func TestAContentComesBack(t *testing.T) {
	t.Parallel()
	c := newCodec()
	for _, size := range codecSizes {
		for name, content := range map[string][]byte{"random": noise(uint64(size), size), "zeros": make([]byte, size)} {
			b := frames(t, content)
			got, err := readBytes(c, b, digest(content), 0)
			require.NoError(t, err, "%s of %d bytes", name, size)
			require.True(t, bytes.Equal(content, got), "%s of %d bytes", name, size)
			if name == "random" {
				parts := max(1, (size+partSize-1)/partSize)
				require.Len(t, b, size+parts*frameHead, "what does not get smaller is kept as it is")
			}
			if size > 0 {
				_, err = readBytes(c, b, digest(content), int64(size-1))
				if size == 1 {
					require.NoError(t, err, "no limit")
				} else {
					require.ErrorIs(t, err, ErrTooLarge)
				}
			}
			_, err = readBytes(c, b, digest(content), int64(size))
			require.NoError(t, err)
		}
	}
}

func TestEveryFlippedByteOfAFrameIsNoticed(t *testing.T) {
	c := newCodec()
	for _, content := range [][]byte{{}, []byte("abc"), text(1, 3000)} {
		b := frames(t, content)
		for i := range b {
			for _, flip := range []byte{1, 0x80} {
				b[i] ^= flip
				got, err := readBytes(c, b, digest(content), 0)
				if err == nil && bytes.Equal(got, content) {
					// Two payloads may decode to one content; then nothing is lost.
					require.GreaterOrEqual(t, i, frameHead)
				} else {
					require.ErrorIs(t, err, ErrDamaged, "byte %d", i)
				}
				b[i] ^= flip
			}
		}
		for cut := range b {
			_, err := readBytes(c, b[:cut], digest(content), 0)
			require.ErrorIs(t, err, ErrDamaged, "cut at %d", cut)
		}
	}
}

// A header can be right and lie.
func TestAHugeClaimTakesNoMemory(t *testing.T) {
	content := []byte("abc")
	for _, h := range []header{
		{encoding: plain, size: maxSize, part: 0, stored: partSize, digest: digest(content)},
		{encoding: zstandard, size: maxSize, part: 0, stored: partSize - 1, digest: digest(content)},
		{encoding: zstandard, size: maxSize, part: 0, stored: 3, digest: digest(content)},
		{encoding: zstandard, size: 1 << 40, part: 0, stored: 17, digest: digest(content)},
	} {
		b := make([]byte, frameHead, 100)
		h.put(b)
		_, err := parseHeader(b)
		require.NoError(t, err)
		b = append(b, 0x28, 0xb5, 0x2f, 0xfd, 0xe0, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1, 0, 0, 0) // zstd, of 2^48 bytes
		c := newCodec()
		readBytes(c, b, digest(content), 0) // makes the decoder
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err = readBytes(c, b, digest(content), 0)
		runtime.ReadMemStats(&after)
		require.ErrorIs(t, err, ErrDamaged)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20))
	}
}

// A walk passes over damage and finds all that is whole.
func TestDamageCostsItsFrameAndNoOther(t *testing.T) {
	contents := [][]byte{[]byte("one"), text(2, 500), {}, []byte("four"), text(5, 3000)}
	log := frames(t, contents...)
	walked := func(b []byte, end int) (found []Digest, last int64) {
		last, err := walk(bytes.NewReader(b), 0, int64(end), func(_ int64, h header) error {
			found = append(found, h.digest)
			return nil
		})
		require.NoError(t, err)
		return found, last
	}
	all, last := walked(log, len(log))
	require.Len(t, all, len(contents))
	require.EqualValues(t, len(log), last)
	for i := range log {
		log[i] ^= 0x10
		found, _ := walked(log, len(log))
		require.GreaterOrEqual(t, len(found), len(contents)-1, "byte %d", i)
		require.Subset(t, all, found)
		log[i] ^= 0x10
	}
	for cut := range log {
		found, last := walked(log, cut)
		require.Equal(t, append([]Digest(nil), all[:len(found)]...), found, "every cut is a prefix")
		require.LessOrEqual(t, last, int64(cut))
		short, _ := walked(log[:cut], len(log))
		require.Subset(t, all, short, "a file that is shorter than it was")
	}
	// What begins far behind the damage, across the ends of the windows.
	for _, gap := range []int{windowSize - 3, windowSize - 1, windowSize, windowSize + 1, 3*windowSize - 2} {
		b := append(make([]byte, gap), log...)
		found, last := walked(b, len(b))
		require.Equal(t, all, found)
		require.EqualValues(t, len(b), last)
	}
}

func TestSegmentHeadsTellNewerFromDamaged(t *testing.T) {
	b := appendSegmentHead(nil, segmentID([]byte("0123456789abcdef")))
	id, err := parseSegmentHead(b)
	require.NoError(t, err)
	require.Equal(t, "0123456789abcdef", string(id[:]))
	for i := range b {
		b[i] ^= 1
		_, err := parseSegmentHead(b)
		require.Equal(t, errHead, err, "byte %d", i)
		b[i] ^= 1
	}
	for cut := range b {
		_, err := parseSegmentHead(b[:cut])
		require.Equal(t, errHead, err)
	}
	newer := newerHead()
	_, err = parseSegmentHead(newer)
	require.EqualError(t, err, "written by a newer oinod (format 2, this one knows 1)")
}

func TestSegmentNames(t *testing.T) {
	for base, ok := range map[string]bool{
		"0-00000001": true, "12-00000007": true, "3-123456789": true,
		"0-1": false, "00-00000001": false, "-1-00000001": false, "0-000000001": false, "a-00000001": false,
		"0-00000001-": false, "": false, "lock": false, "0-": false, "+1-00000001": false,
	} {
		lane, seq, got := parseBase(base)
		require.Equal(t, ok, got, base)
		if ok {
			require.Equal(t, base, (&segment{lane: lane, seq: seq}).base())
		}
	}
}

func seeds(f *testing.F) {
	f.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "fuzz", f.Name(), "*"))
	require.NoError(f, err)
	require.NotEmpty(f, files, "no seeds for %s", f.Name())
}

// There is one header for its values.
func FuzzHeader(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := parseHeader(b)
		if err != nil {
			return
		}
		again := make([]byte, frameHead)
		h.put(again)
		require.Equal(t, b[:frameHead], again)
		require.LessOrEqual(t, h.raw(), partSize)
		require.LessOrEqual(t, int(h.stored), h.raw())
	})
}

// What is read has the digest that was asked for, or there is an error. The
// header is made right, so that the payload is reached.
func FuzzRead(f *testing.F) {
	seeds(f)
	c := newCodec()
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < frameHead {
			return
		}
		b = bytes.Clone(b)
		d := Digest(b[24:56])
		h := header{encoding: encoding(b[4] & 1), size: int64(b[8]) | int64(b[9])<<8 | int64(b[10])<<20, stored: uint32(len(b) - frameHead), digest: d}
		h.put(b)
		content, err := readBytes(c, b, d, 0)
		if err != nil {
			require.ErrorIs(t, err, ErrDamaged)
			return
		}
		require.Equal(t, d, digest(content))
	})
}

func FuzzWalk(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, b []byte, from uint16) {
		end := int64(from)
		last, err := walk(bytes.NewReader(b), int64(from), int64(len(b)), func(off int64, h header) error {
			require.GreaterOrEqual(t, off, end)
			end = off + h.length()
			require.LessOrEqual(t, end, int64(len(b)))
			return nil
		})
		require.NoError(t, err)
		require.Equal(t, end, last)
	})
}

func FuzzIndex(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := readIndex(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			require.ErrorIs(t, err, errIndex)
			return
		}
		n := 0
		if err := x.each(bytes.NewReader(b), func(r record) { n++ }); err != nil {
			require.ErrorIs(t, err, errIndex)
			return
		}
		require.Equal(t, x.count, n)
	})
}

// TestMain can write the seeds anew: OINO_WRITE_SEEDS=1 go test ./checkpoints/blobs
func TestMain(m *testing.M) {
	if os.Getenv("OINO_WRITE_SEEDS") != "" {
		writeSeeds()
	}
	if os.Getenv(writerEnv) != "" {
		storeUntilKilled(os.Getenv(writerEnv))
	}
	os.Exit(m.Run())
}

func writeSeeds() {
	write := func(target, name string, b []byte, more string) {
		dir := filepath.Join("testdata", "fuzz", target)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			panic(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), fmt.Appendf(nil, "go test fuzz v1\n[]byte(%q)\n%s", b, more), 0o644); err != nil {
			panic(err)
		}
	}
	c := newCodec()
	var log []byte
	var records []record
	for i, content := range [][]byte{{}, []byte("abc"), text(1, 300), bytes.Repeat([]byte("x"), 5000)} {
		off := len(log)
		log, _ = c.appendFrame(log, digest(content), int64(len(content)), 0, content)
		records = append(records, record{digest(content), place{uint32(off), uint32(len(log) - off - frameHead)}})
		write("FuzzHeader", fmt.Sprint("frame-", i), log[off:off+frameHead], "")
		write("FuzzRead", fmt.Sprint("frame-", i), log[off:], "")
	}
	write("FuzzWalk", "whole", log, "uint16(0)\n")
	write("FuzzWalk", "from-within", log, "uint16(70)\n")
	write("FuzzWalk", "torn", log[:len(log)-3], "uint16(0)\n")
	write("FuzzIndex", "empty", encodeIndex(segmentID{1}, segmentHead, nil), "")
	write("FuzzIndex", "four", encodeIndex(segmentID{1}, int64(len(log)), records), "")
}
