package blobs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"sort"
)

// An index file:
//
//	 0           8           12      16           32          40        44
//	┌───────────┬───────────┬───────┬────────────┬───────────┬─────────┬─────────┐
//	│ "oinoIDX" │ version 4 │ sum 4 │ segment 16 │ covered 8 │ count 4 │ bloom 4 │
//	├───────────┴───────────┴───────┴────────────┴───────────┴─────────┴─────────┤ 48
//	│ 256 × (records up to and with this bucket 4 │ sum of the bucket 4)         │
//	├────────────────────────────────────────────────────────────────────────────┤ 2096
//	│ bloom filter                                                               │
//	├────────────────────────────────────────────────────────────────────────────┤
//	│ count × (digest 32 │ offset 4 │ stored 4), sorted by digest                │
//	└────────────────────────────────────────────────────────────────────────────┘
//
// The first sum is CRC-32C of all before the records but itself. A bucket is
// the records whose digests begin with the same byte; it is read and verified
// as one. Only what is before the records is kept in memory: 2 KiB and some
// 1.25 bytes for each content.
var indexMagic = [8]byte{'o', 'i', 'n', 'o', 'I', 'D', 'X', '\n'}

const (
	indexHead  = 48
	fanoutEnd  = indexHead + 256*8
	recordSize = 40
	// maxRecords is more than a segment can hold.
	maxRecords = 2 * segmentLimit / frameHead
)

// record is a content in an index.
type record struct {
	digest Digest
	place  place
}

// index is an index file's part in memory.
type index struct {
	id      segmentID
	covered int64 // bytes of the segment whose frames are in it
	count   int
	ends    [256]uint32
	sums    [256]uint32
	bloom   bloom
}

var errIndex = errors.New("not an index, or a damaged one")

// encodeIndex returns the index file of the records, which it sorts. Of two
// with the same digest the one behind counts.
func encodeIndex(id segmentID, covered int64, records []record) []byte {
	slices.SortFunc(records, func(a, b record) int {
		if c := bytes.Compare(a.digest[:], b.digest[:]); c != 0 {
			return c
		}
		return int(int64(b.place.off) - int64(a.place.off))
	})
	records = slices.CompactFunc(records, func(a, b record) bool { return a.digest == b.digest })

	filter := newBloom(len(records))
	b := make([]byte, fanoutEnd, fanoutEnd+len(filter)+len(records)*recordSize)
	copy(b, indexMagic[:])
	binary.LittleEndian.PutUint32(b[8:], version)
	copy(b[16:], id[:])
	binary.LittleEndian.PutUint64(b[32:], uint64(covered))
	binary.LittleEndian.PutUint32(b[40:], uint32(len(records)))
	binary.LittleEndian.PutUint32(b[44:], uint32(len(filter)))
	for _, r := range records {
		filter.add(r.digest)
	}
	b = append(b, filter...)
	head := len(b)
	next := 0
	for i := range 256 {
		start := len(b)
		for next < len(records) && int(records[next].digest[0]) == i {
			r := records[next]
			b = append(b, r.digest[:]...)
			b = binary.LittleEndian.AppendUint32(b, r.place.off)
			b = binary.LittleEndian.AppendUint32(b, r.place.stored)
			next++
		}
		binary.LittleEndian.PutUint32(b[indexHead+8*i:], uint32(next))
		binary.LittleEndian.PutUint32(b[indexHead+8*i+4:], crc32.Checksum(b[start:], castagnoli))
	}
	binary.LittleEndian.PutUint32(b[12:], headSum(b[:head], 12))
	return b
}

// readIndex reads the part of an index file of size bytes that is kept in
// memory. It says errIndex of anything but a whole index.
func readIndex(r io.ReaderAt, size int64) (*index, error) {
	b := make([]byte, fanoutEnd)
	if size < fanoutEnd {
		return nil, errIndex
	}
	if _, err := r.ReadAt(b, 0); err != nil {
		return nil, cacheError(err)
	}
	x := &index{
		id:      segmentID(b[16:32]),
		covered: int64(binary.LittleEndian.Uint64(b[32:])),
		count:   int(binary.LittleEndian.Uint32(b[40:])),
	}
	length := int(binary.LittleEndian.Uint32(b[44:]))
	if [8]byte(b) != indexMagic || binary.LittleEndian.Uint32(b[8:]) != version ||
		x.count > maxRecords || length != len(newBloom(x.count)) || size != x.recordsAt(length)+int64(x.count)*recordSize {
		return nil, errIndex
	}
	b = append(b, make([]byte, length)...)
	if _, err := r.ReadAt(b[fanoutEnd:], fanoutEnd); err != nil {
		return nil, cacheError(err)
	}
	if binary.LittleEndian.Uint32(b[12:]) != headSum(b, 12) {
		return nil, errIndex
	}
	last := uint32(0)
	for i := range 256 {
		x.ends[i] = binary.LittleEndian.Uint32(b[indexHead+8*i:])
		x.sums[i] = binary.LittleEndian.Uint32(b[indexHead+8*i+4:])
		if x.ends[i] < last {
			return nil, errIndex
		}
		last = x.ends[i]
	}
	if int(last) != x.count || x.covered < segmentHead {
		return nil, errIndex
	}
	x.bloom = bloom(b[fanoutEnd:])
	return x, nil
}

// recordsAt is where the records begin behind a bloom filter of length bytes.
func (x *index) recordsAt(length int) int64 { return fanoutEnd + int64(length) }

// find looks d up in the index file r.
func (x *index) find(r io.ReaderAt, d Digest) (place, bool, error) {
	b, err := x.bucket(r, int(d[0]))
	if err != nil {
		return place{}, false, err
	}
	n := len(b) / recordSize
	i := sort.Search(n, func(i int) bool { return bytes.Compare(b[i*recordSize:][:32], d[:]) >= 0 })
	if i == n {
		return place{}, false, nil
	}
	rec := parseRecord(b[i*recordSize:])
	return rec.place, rec.digest == d, nil
}

// bucket reads and verifies the records whose digests begin with byte i.
func (x *index) bucket(r io.ReaderAt, i int) ([]byte, error) {
	start := uint32(0)
	if i > 0 {
		start = x.ends[i-1]
	}
	b := make([]byte, int(x.ends[i]-start)*recordSize)
	if len(b) == 0 {
		return nil, nil
	}
	if _, err := r.ReadAt(b, x.recordsAt(len(x.bloom))+int64(start)*recordSize); err != nil {
		return nil, cacheError(err)
	}
	if crc32.Checksum(b, castagnoli) != x.sums[i] {
		return nil, errIndex
	}
	return b, nil
}

// each passes on every record of the index file r.
func (x *index) each(r io.ReaderAt, f func(record)) error {
	for i := range 256 {
		b, err := x.bucket(r, i)
		if err != nil {
			return err
		}
		for ; len(b) > 0; b = b[recordSize:] {
			f(parseRecord(b))
		}
	}
	return nil
}

func parseRecord(b []byte) record {
	return record{Digest(b[:32]), place{
		off:    binary.LittleEndian.Uint32(b[32:]),
		stored: binary.LittleEndian.Uint32(b[36:]),
	}}
}

// cacheError makes the end of an index file that should be longer what it is.
func cacheError(err error) error {
	if err == io.EOF {
		return errIndex
	}
	return fmt.Errorf("reading an index: %w", err)
}

// bloom answers "surely not" for most digests that are not in an index. A
// digest is random already; its own bytes are the hash.
type bloom []byte

const (
	bloomBits   = 10 // per digest
	bloomProbes = 7  // one digest in 120 that is not there is looked up in vain
)

func newBloom(n int) bloom { return make(bloom, max(8, (n*bloomBits+7)/8)) }

func (b bloom) probe(d Digest, f func(bit uint64) bool) bool {
	h, step := binary.LittleEndian.Uint64(d[8:]), binary.LittleEndian.Uint64(d[16:])|1
	for range bloomProbes {
		if !f(h % uint64(8*len(b))) {
			return false
		}
		h += step
	}
	return true
}

func (b bloom) add(d Digest) {
	b.probe(d, func(bit uint64) bool { b[bit/8] |= 1 << (bit % 8); return true })
}

func (b bloom) has(d Digest) bool {
	return b.probe(d, func(bit uint64) bool { return b[bit/8]&(1<<(bit%8)) != 0 })
}
