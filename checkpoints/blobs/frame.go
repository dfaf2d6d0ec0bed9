package blobs

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
)

// partSize is how many bytes of a content one frame holds at most, and so what
// one frame can make a reader allocate. A longer content is in several frames.
const partSize = 4 << 20

// frameHead is the length of a frame's header.
const frameHead = 60

// maxSize bounds the length that a header can claim, so that sums do not overflow.
const maxSize = 1 << 50

// frameMagic begins each frame: it is what a reader looks for behind damage.
var frameMagic = [4]byte{0xf5, 'o', 'F', 1}

// encoding says how a frame holds its bytes.
type encoding uint8

const (
	plain encoding = iota
	zstandard
)

// header is what a frame says of itself.
//
//	 0        4        5   8        16      20       24       56     60
//	┌─────────┬────────┬───┬────────┬───────┬────────┬────────┬──────┬─────────┐
//	│ magic 4 │ enc. 1 │ 0 │ size 8 │ part 4│stored 4│ digest │ sum 4│ payload │
//	└─────────┴────────┴───┴────────┴───────┴────────┴────────┴──────┴─────────┘
//
// Numbers are little-endian. size is that of the whole content, part numbers
// the frame in it from 0, stored is the payload's length, sum is CRC-32C of
// the header before it. There is one header for its values and one set of
// values for a header: what can be derived (how many bytes the payload
// decodes to) is not in it.
type header struct {
	encoding encoding
	size     int64
	part     uint32
	stored   uint32
	digest   Digest
}

// raw is how many bytes of the content the frame holds.
func (h header) raw() int {
	return int(min(partSize, h.size-int64(h.part)*partSize))
}

// length is the whole frame's.
func (h header) length() int64 { return frameHead + int64(h.stored) }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// put writes h to b, which has frameHead bytes.
func (h header) put(b []byte) {
	copy(b, frameMagic[:])
	binary.LittleEndian.PutUint32(b[4:], uint32(h.encoding)) // and three zeros
	binary.LittleEndian.PutUint64(b[8:], uint64(h.size))
	binary.LittleEndian.PutUint32(b[16:], h.part)
	binary.LittleEndian.PutUint32(b[20:], h.stored)
	copy(b[24:], h.digest[:])
	binary.LittleEndian.PutUint32(b[56:], crc32.Checksum(b[:56], castagnoli))
}

var errFrame = errors.New("not a frame's header")

// parseHeader reads the header that b begins with.
func parseHeader(b []byte) (header, error) {
	if len(b) < frameHead || [4]byte(b) != frameMagic ||
		binary.LittleEndian.Uint32(b[56:]) != crc32.Checksum(b[:56], castagnoli) {
		return header{}, errFrame
	}
	h := header{
		encoding: encoding(b[4]),
		size:     int64(binary.LittleEndian.Uint64(b[8:])),
		part:     binary.LittleEndian.Uint32(b[16:]),
		stored:   binary.LittleEndian.Uint32(b[20:]),
		digest:   Digest(b[24:56]),
	}
	if b[5]|b[6]|b[7] != 0 || h.size < 0 || h.size > maxSize ||
		h.part > 0 && int64(h.part)*partSize >= h.size {
		return header{}, errFrame
	}
	switch {
	case h.encoding == plain && int64(h.stored) == int64(h.raw()):
	case h.encoding == zstandard && int64(h.stored) < int64(h.raw()):
	default:
		return header{}, errFrame
	}
	return h, nil
}
