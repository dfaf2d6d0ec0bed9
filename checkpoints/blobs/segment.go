package blobs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// segmentHead is the length of a segment's header.
const segmentHead = 32

// version is the format of segments and index files that this code writes. It
// reads no other.
const version = 1

// A segment's header:
//
//	 0          8           12      16       32
//	┌──────────┬───────────┬───────┬────────┬─────────────
//	│ "oinoSEG"│ version 4 │ sum 4 │ id 16  │ frames …
//	└──────────┴───────────┴───────┴────────┴─────────────
//
// id is random: an index file names the segment it belongs to by it. sum is
// CRC-32C of the other 28 bytes.
var segmentMagic = [8]byte{'o', 'i', 'n', 'o', 'S', 'E', 'G', '\n'}

// segmentID tells a segment from any other that had or will have its name.
type segmentID [16]byte

func appendSegmentHead(b []byte, id segmentID) []byte {
	start := len(b)
	b = append(b, segmentMagic[:]...)
	b = binary.LittleEndian.AppendUint32(b, version)
	b = append(b, 0, 0, 0, 0)
	b = append(b, id[:]...)
	binary.LittleEndian.PutUint32(b[start+12:], headSum(b[start:], 12))
	return b
}

// headSum is the sum of b but for the four bytes at at, where it belongs.
func headSum(b []byte, at int) uint32 {
	return crc32.Update(crc32.Checksum(b[:at], castagnoli), castagnoli, b[at+4:])
}

// newerError is a file that a newer oinod has written. It is left alone.
type newerError struct{ version uint32 }

func (e *newerError) Error() string {
	return fmt.Sprintf("written by a newer oinod (format %d, this one knows %d)", e.version, version)
}

var errHead = errors.New("not a segment's header")

// parseSegmentHead tells a segment from a newer one and from what is none.
func parseSegmentHead(b []byte) (segmentID, error) {
	if len(b) < segmentHead || [8]byte(b) != segmentMagic ||
		binary.LittleEndian.Uint32(b[12:]) != headSum(b[:segmentHead], 12) {
		return segmentID{}, errHead
	}
	if v := binary.LittleEndian.Uint32(b[8:]); v != version {
		return segmentID{}, &newerError{v}
	}
	return segmentID(b[16:segmentHead]), nil
}

// place is where a content lies in a segment.
type place struct {
	off    uint32
	stored uint32 // its payload
}

func (p place) end() int64 { return int64(p.off) + frameHead + int64(p.stored) }

// walk passes on each frame of r from off on that ends at or before end, and
// returns where the last one ends. A file that turns out shorter ends there. Damage is passed over: the next header that
// verifies goes on. What an inner file looks like cannot mislead it for long:
// who reads a frame verifies its digest.
func walk(r io.ReaderAt, off, end int64, f func(off int64, h header) error) (int64, error) {
	w := window{r: r, end: end}
	last := off
	for off+frameHead <= end {
		b, err := w.at(off, frameHead)
		if err == io.EOF {
			return last, nil
		} else if err != nil {
			return last, err
		}
		h, err := parseHeader(b)
		if err == nil && off+h.length() <= end {
			if err := f(off, h); err != nil {
				return last, err
			}
			off += h.length()
			last = off
			continue
		}
		if off, err = w.find(off + 1); err == io.EOF {
			return last, nil
		} else if err != nil {
			return last, err
		}
	}
	return last, nil
}

// window reads a file in pieces that hold many headers each.
type window struct {
	r   io.ReaderAt
	end int64 // of the file, for us
	buf []byte
	off int64 // of buf
}

const windowSize = 128 << 10

// at returns n bytes at off, which lie before the end.
func (w *window) at(off int64, n int) ([]byte, error) {
	if off < w.off || off+int64(n) > w.off+int64(len(w.buf)) {
		if w.buf == nil {
			w.buf = make([]byte, windowSize)
		}
		w.buf = w.buf[:min(int64(cap(w.buf)), w.end-off)]
		w.off = off
		if _, err := w.r.ReadAt(w.buf, off); err != nil {
			w.buf = w.buf[:0]
			return nil, err
		}
	}
	return w.buf[off-w.off:][:n], nil
}

// find returns where the next frame's magic is from off on, or the end.
func (w *window) find(off int64) (int64, error) {
	for off+frameHead <= w.end {
		n := int(min(windowSize, w.end-off))
		b, err := w.at(off, n)
		if err != nil {
			return off, err
		}
		if i := bytes.Index(b, frameMagic[:]); i >= 0 {
			return off + int64(i), nil
		}
		off += int64(n - len(frameMagic) + 1)
	}
	return w.end, nil
}

// segment is a segment file as this store knows it.
type segment struct {
	lane int
	seq  uint64
	// sealed is set when the segment has a successor in its lane: it changes
	// no more and all of it is synced.
	sealed atomic.Bool

	mu       sync.RWMutex
	id       segmentID        // zero until a header was read, or when that is damaged
	index    *index           // of the first index.covered bytes, or nil
	tail     map[Digest]place // what walking found behind them; it goes before the index
	sound    bool             // all of tail was verified, or written by this store
	scanned  int64            // up to where; 0 until the header was read
	complete bool             // it was sealed when it was read last: nothing new will be in it
	newer    error            // why its frames are not ours to read

	// What Store.hidden found when the segment was complete and this its index.
	hidden   []span
	size     int64
	hiddenOf *index
}

// use makes x the index: what walking found in the part that x covers counts
// no more, as it was not verified. The caller holds s.mu.
func (s *segment) use(x *index) {
	s.index = x
	maps.DeleteFunc(s.tail, func(_ Digest, p place) bool { return int64(p.off) < x.covered })
	s.scanned = max(s.scanned, x.covered)
}

// covered is how far the index goes. The caller holds s.mu.
func (s *segment) covered() int64 {
	if s.index == nil {
		return segmentHead
	}
	return s.index.covered
}

// indexed is how far the segment's index goes.
func (s *segment) indexed() int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.covered()
}

// cutBack forgets what was behind size.
func (s *segment) cutBack(size int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetBehind(size)
}

// forgetBehind is cutBack for who holds s.mu.
func (s *segment) forgetBehind(size int64) {
	maps.DeleteFunc(s.tail, func(_ Digest, p place) bool { return p.end() > size })
	s.scanned = max(segmentHead, size)
}

// isNewer returns why the segment's frames are not ours to read, or nil.
func (s *segment) isNewer() error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.newer
}

const (
	segmentSuffix = ".seg"
	indexSuffix   = ".idx"
	bigSuffix     = ".big"
	tempSuffix    = ".tmp"
	lockSuffix    = ".lock"
)

// base is the segment's name without its suffix.
func (s *segment) base() string { return fmt.Sprintf("%d-%08d", s.lane, s.seq) }

func (s *segment) file() string      { return dir + "/" + s.base() + segmentSuffix }
func (s *segment) indexFile() string { return dir + "/" + s.base() + indexSuffix }

// parseBase reads what base wrote, exactly.
func parseBase(base string) (lane int, seq uint64, ok bool) {
	l, q, _ := strings.Cut(base, "-")
	lane, lerr := strconv.Atoi(l)
	seq, qerr := strconv.ParseUint(q, 10, 64)
	if lerr != nil || qerr != nil || (&segment{lane: lane, seq: seq}).base() != base {
		return 0, 0, false
	}
	return lane, seq, true
}
