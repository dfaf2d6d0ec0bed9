package blobs

import (
	"crypto/sha256"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// codec turns contents into frames and back. Its coders are made when first
// needed, for a process that stores nothing, and reused by all goroutines.
type codec struct {
	encoder func() (*zstd.Encoder, error)
	quick   func() (*zstd.Encoder, error) // of small contents
	decoder func() (*zstd.Decoder, error)
	buffers sync.Pool // *[]byte, for payloads on their way
}

// quickSize is up to which size a content is compressed without entropy coding.
// Of 4 KiB of source, building the tables is most of the work: without them it
// takes two thirds of the time to write and half of it to read, and a quarter
// more bytes.
const quickSize = 16 << 10

func newCodec() *codec {
	encoder := func(o ...zstd.EOption) func() (*zstd.Encoder, error) {
		return sync.OnceValues(func() (*zstd.Encoder, error) {
			return zstd.NewWriter(nil, append(o,
				zstd.WithEncoderLevel(zstd.SpeedFastest),
				zstd.WithEncoderConcurrency(2),
				zstd.WithWindowSize(1<<20),
				zstd.WithSingleSegment(true),   // the length is in each zstd frame
				zstd.WithEncoderCRC(false))...) // the digest says more
		})
	}
	return &codec{
		encoder: encoder(),
		quick:   encoder(zstd.WithNoEntropyCompression(true)),
		decoder: sync.OnceValues(func() (*zstd.Decoder, error) {
			return zstd.NewReader(nil,
				zstd.WithDecoderConcurrency(2),
				zstd.WithDecoderMaxMemory(partSize))
		}),
		buffers: sync.Pool{New: func() any { return new([]byte) }},
	}
}

// appendFrame appends part number n, raw, of the content d of size bytes to
// dst as a frame.
func (c *codec) appendFrame(dst []byte, d Digest, size int64, n uint32, raw []byte) ([]byte, error) {
	encoder := c.encoder
	if len(raw) <= quickSize {
		encoder = c.quick
	}
	enc, err := encoder()
	if err != nil {
		return dst, err
	}
	start := len(dst)
	h := header{encoding: zstandard, size: size, part: n, digest: d}
	dst = append(dst, make([]byte, frameHead)...)
	payload := len(dst)
	if len(raw) > 0 {
		dst = enc.EncodeAll(raw, dst)
	}
	if len(dst)-payload >= len(raw) {
		h.encoding = plain
		dst = append(dst[:payload], raw...)
	}
	h.stored = uint32(len(dst) - payload)
	h.put(dst[start:])
	return dst, nil
}

// decode appends the bytes that payload holds to dst.
func (c *codec) decode(dst []byte, h header, payload []byte) ([]byte, error) {
	if h.encoding == plain {
		return append(dst, payload...), nil
	}
	dec, err := c.decoder()
	if err != nil {
		return dst, err
	}
	start := len(dst)
	dst, err = dec.DecodeAll(payload, dst)
	if err != nil {
		return dst, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if len(dst)-start != h.raw() {
		return dst, fmt.Errorf("%w: %d bytes where %d were kept", ErrDamaged, len(dst)-start, h.raw())
	}
	return dst, nil
}

// read verifies the content d, whose frames lie in r at off one behind the
// other and end before end, and passes it on part by part. The last part
// comes after the digest is known to be right, so that a content of one part
// is passed on whole or not at all. A part is valid until the next.
func (c *codec) read(r io.ReaderAt, off, end int64, d Digest, limit int64, yield func(size int64, part []byte) error) error {
	in, out := c.buffers.Get().(*[]byte), c.buffers.Get().(*[]byte)
	defer c.buffers.Put(in)
	defer c.buffers.Put(out)
	sum := sha256.New()
	for n := uint32(0); ; n++ {
		h, payload, err := c.frame(r, off, end, in)
		if err != nil {
			return err
		}
		if h.digest != d || h.part != n {
			return fmt.Errorf("%w: another content is in its place", ErrDamaged)
		}
		if limit > 0 && h.size > limit {
			return fmt.Errorf("%w: it has %d bytes, more than the %d allowed", ErrTooLarge, h.size, limit)
		}
		*out, err = c.decode((*out)[:0], h, payload)
		if err != nil {
			return err
		}
		sum.Write(*out)
		last := int64(n)*partSize+int64(len(*out)) == h.size
		if last && Digest(sum.Sum(nil)) != d {
			return fmt.Errorf("%w: its bytes have another digest", ErrDamaged)
		}
		if err := yield(h.size, *out); err != nil {
			return err
		}
		if last {
			return nil
		}
		off += h.length()
	}
}

// frame reads the frame at off into buf.
func (c *codec) frame(r io.ReaderAt, off, end int64, buf *[]byte) (header, []byte, error) {
	// Most contents are small: header and payload come with one read.
	first := max(frameHead, min(end-off, 16<<10))
	b := grow(buf, int(first))
	if n, err := r.ReadAt(b, off); err == io.EOF && n >= frameHead {
		b = b[:n]
	} else if err != nil {
		return header{}, nil, short(err)
	}
	h, err := parseHeader(b)
	if err != nil {
		return header{}, nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	// The header's sum is right, but a length is believed only when the file
	// is that long.
	if h.length() > end-off {
		return header{}, nil, fmt.Errorf("%w: it is cut off", ErrDamaged)
	}
	if have := len(b); int64(have) < h.length() {
		b = grow(buf, int(h.length()))
		if _, err := r.ReadAt(b[have:], off+int64(have)); err != nil {
			return header{}, nil, short(err)
		}
	}
	return h, b[frameHead:h.length()], nil
}

// short makes the end of a file that should be longer what it is: damage.
func short(err error) error {
	if err == io.EOF {
		return fmt.Errorf("%w: it is cut off", ErrDamaged)
	}
	return err
}

// grow makes buf n bytes long, keeping what it holds.
func grow(buf *[]byte, n int) []byte {
	if cap(*buf) < n {
		b := make([]byte, n)
		copy(b, (*buf)[:cap(*buf)])
		*buf = b
	}
	*buf = (*buf)[:n]
	return *buf
}
