package blobs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/oino-dev/oinod/checkpoints/disk"
)

// catalog is the segments that the store knows, newest first within a lane. It
// is never changed, only replaced.
type catalog struct {
	// generation is what the file of that name held before the directory was
	// read. When it is another, Collect has run, and nothing known is certain.
	generation string
	segments   []*segment
}

const generationFile = dir + "/generation"

// generation names the last Collect, "" before the first.
func (s *Store) generation() (string, error) {
	b, err := disk.ReadFile(s.root, generationFile)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return string(b), err
}

// known returns the catalog, and reads the directory if that was not done yet.
func (s *Store) known() (*catalog, error) {
	if c := s.catalog.Load(); c != nil {
		return c, nil
	}
	return s.refresh()
}

// refresh reads the directory again and what is new in it. Callers do not
// share one: what another began to read earlier may be too old for this one.
func (s *Store) refresh() (*catalog, error) {
	s.refreshing.Lock()
	defer s.refreshing.Unlock()
	old := s.catalog.Load()
	generation, err := s.generation()
	if err != nil {
		return nil, err
	}
	keep := map[string]*segment{}
	if old != nil {
		for _, seg := range old.segments {
			if old.generation == generation || seg == s.own.Load() {
				keep[seg.base()] = seg
			}
		}
		if old.generation != generation {
			s.files.forgetAll()
		}
	}
	entries, err := disk.ReadDir(s.root, dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	c := &catalog{generation: generation}
	newest := map[int]uint64{}
	for _, e := range entries {
		base, isSegment := strings.CutSuffix(e.Name(), segmentSuffix)
		if lane, seq, ok := parseBase(base); ok && isSegment {
			seg := keep[base]
			if seg == nil {
				seg = &segment{lane: lane, seq: seq}
			}
			c.segments = append(c.segments, seg)
			newest[lane] = max(newest[lane], seq)
		}
	}
	slices.SortFunc(c.segments, func(a, b *segment) int {
		if a.lane != b.lane {
			return a.lane - b.lane
		}
		return int(int64(b.seq) - int64(a.seq))
	})
	read := c.segments[:0]
	for _, seg := range c.segments {
		seg.sealed.Store(seg.seq < newest[seg.lane])
		if seg != s.own.Load() {
			if err := s.readSegment(seg); errors.Is(err, fs.ErrNotExist) {
				continue // collected since the directory was read
			} else if err != nil {
				return nil, err
			}
		}
		read = append(read, seg)
	}
	c.segments = read
	s.catalog.Store(c)
	return c, nil
}

// add puts the store's new segment in the catalog.
func (s *Store) add(seg *segment) {
	s.refreshing.Lock()
	defer s.refreshing.Unlock()
	old := s.catalog.Load()
	c := &catalog{generation: old.generation, segments: []*segment{seg}}
	for _, other := range old.segments {
		if other.lane != seg.lane {
			c.segments = append(c.segments, other)
		} else if other.seq != seg.seq { // not seg itself, seen by a refresh in between
			other.sealed.Store(true)
			c.segments = append(c.segments, other)
		}
	}
	s.catalog.Store(c)
}

// readSegment brings what is known of seg up to the file as it is now: its
// index where it has a good one, and the headers behind what that covers.
func (s *Store) readSegment(seg *segment) error {
	seg.mu.Lock()
	defer seg.mu.Unlock()
	if seg.complete {
		return nil
	}
	sealed := seg.sealed.Load()
	return s.files.with(seg.file(), func(f disk.File) error {
		info, err := f.Stat()
		if err != nil {
			return err
		}
		if err := seg.readHead(f, info.Size()); err != nil {
			return err
		}
		if seg.newer != nil || seg.scanned == 0 {
			return nil
		}
		if seg.index == nil || sealed && seg.index.covered < info.Size() {
			s.files.forget(seg.indexFile()) // its writer may have made a new one
			x, err := s.indexOf(seg, info.Size(), false)
			if err != nil {
				return err
			}
			if x != nil && x.covered > seg.covered() || seg.index == nil && x != nil {
				seg.use(x)
			}
		}
		if info.Size() < seg.scanned { // its writer has cut it back
			seg.forgetBehind(info.Size())
		}
		end, err := seg.scan(f, seg.scanned, info.Size())
		if err != nil {
			return err
		}
		seg.scanned = max(seg.scanned, end)
		seg.complete = sealed
		if sealed && (seg.index == nil || seg.index.covered < info.Size()) {
			// All of it is synced, so it may have an index of all. Without
			// one it is read as it is, and not counted on.
			_ = s.indexSealed(seg, f, info.Size())
		}
		return nil
	})
}

// indexSealed gives seg, whose size bytes are synced and all there will be, an
// index of what in it verifies. The caller holds seg.mu.
func (s *Store) indexSealed(seg *segment, f io.ReaderAt, size int64) error {
	if seg.id == (segmentID{}) {
		return errHead // no index could be bound to it
	}
	if _, err := s.verifyTail(seg, f, size); err != nil {
		return err
	}
	return s.writeIndex(seg, size)
}

// verifyTail replaces the tail of seg, a file of size bytes, by what of it
// verifies, and reports whether that is all there is. The caller holds seg.mu.
func (s *Store) verifyTail(seg *segment, f io.ReaderAt, size int64) (whole bool, err error) {
	walked := seg.tail
	seg.tail = nil
	if whole, err = s.verify(seg, f, seg.covered(), size); err != nil {
		seg.tail = walked
		return false, err
	}
	seg.sound = true
	return whole, nil
}

// verify reads the frames of seg from off to end and adds those that are what
// they say to the tail, but for contents that are in it from further behind.
// It reports whether these frames, one behind the other, are all there is. The
// caller holds seg.mu.
func (s *Store) verify(seg *segment, f io.ReaderAt, off, end int64) (whole bool, err error) {
	next, good := off, true
	_, err = walk(f, off, end, func(off int64, h header) error {
		good = good && off == next
		next = off + h.length()
		if !h.fits(off) {
			good = false
			return nil
		}
		err := s.codec.read(f, off, next, h.digest, 0, func(int64, []byte) error { return nil })
		if errors.Is(err, ErrDamaged) {
			good = false
			return nil
		} else if err != nil {
			return err
		}
		seg.note(off, h)
		return nil
	})
	return good && next == end, err
}

// heal is called when x, the index of seg, turns out not to be what its file
// holds: the file was replaced by one that covers more, or it is damaged or
// gone. It gives seg a good index, or walks what x was to cover.
func (s *Store) heal(seg *segment, x *index) error {
	seg.mu.Lock()
	defer seg.mu.Unlock()
	if seg.index != x {
		return nil // another caller has seen to it
	}
	return s.files.with(seg.file(), func(f disk.File) error {
		info, err := f.Stat()
		if err != nil {
			return err
		}
		s.files.forget(seg.indexFile())
		again, err := s.indexOf(seg, info.Size(), true)
		if err != nil {
			return err
		}
		if again != nil && again.covered >= x.covered {
			seg.use(again)
			return nil
		}
		if _, err := s.verify(seg, f, segmentHead, x.covered); err != nil {
			return err
		}
		seg.index = nil
		if seg.sealed.Load() && seg.sound {
			_ = s.writeIndex(seg, seg.scanned)
		}
		return nil
	})
}

// readHead reads the segment's header, once. A damaged one costs the segment
// its index and nothing else: frames are known by their own magic.
func (s *segment) readHead(f io.ReaderAt, size int64) error {
	if s.id != (segmentID{}) || s.scanned > 0 || size < segmentHead {
		return nil
	}
	b := make([]byte, segmentHead)
	if _, err := f.ReadAt(b, 0); err == io.EOF {
		return nil
	} else if err != nil {
		return err
	}
	id, err := parseSegmentHead(b)
	var newer *newerError
	if errors.As(err, &newer) {
		s.newer = newer
		return nil
	}
	s.id = id
	s.scanned = segmentHead
	return nil
}

// indexOf reads the index of seg, whose file has size bytes; nil where there
// is no good one. With all, every record is verified and not the head alone.
func (s *Store) indexOf(seg *segment, size int64, all bool) (*index, error) {
	var x *index
	err := s.files.with(seg.indexFile(), func(f disk.File) error {
		info, err := f.Stat()
		if err != nil {
			return err
		}
		x, err = readIndex(f, info.Size())
		if err != nil {
			return err
		}
		if x.id != seg.id || x.id == (segmentID{}) || x.covered > size {
			return errIndex
		}
		if all {
			return x.each(f, func(record) {})
		}
		return nil
	})
	if err != nil {
		s.files.forget(seg.indexFile())
		x = nil
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errIndex) {
		err = nil
	}
	return x, err
}

// scan adds the frames from off to end to the tail, but for contents that are
// in it from further behind, and returns where the last one ends. The caller
// holds s.mu.
func (s *segment) scan(f io.ReaderAt, off, end int64) (int64, error) {
	return walk(f, off, end, func(off int64, h header) error {
		if h.fits(off) {
			s.note(off, h)
			s.sound = false
		}
		return nil
	})
}

// note adds the frame at off to the tail. The caller holds s.mu.
func (s *segment) note(off int64, h header) {
	if s.tail == nil {
		s.tail = map[Digest]place{}
	}
	if p, has := s.tail[h.digest]; !has || int64(p.off) < off {
		s.tail[h.digest] = place{uint32(off), h.stored}
	}
}

// fits reports whether a frame like this, at off, can be a segment's.
func (h header) fits(off int64) bool { return h.size <= partSize && off <= segmentLimit }

// writeIndex writes the index of the first covered bytes of seg, which are
// synced and of which what is known was verified, and takes it into use. It is not synced itself: one that a power cut
// tears is known by its sums. The caller holds seg.mu.
func (s *Store) writeIndex(seg *segment, covered int64) error {
	if seg.id == (segmentID{}) {
		return errHead // no index could be bound to it
	}
	records, err := s.records(seg)
	if err != nil {
		return err
	}
	data := encodeIndex(seg.id, covered, records)
	if _, err := s.writeWhole(seg.indexFile(), func(f disk.File) error { _, err := f.Write(data); return err }, false); err != nil {
		return err
	}
	s.files.forget(seg.indexFile())
	x, err := readIndex(strings.NewReader(string(data)), int64(len(data)))
	if err != nil {
		return err
	}
	seg.index, seg.tail = x, nil
	seg.scanned = max(seg.scanned, covered)
	return nil
}

// records returns what is known of seg. The caller holds seg.mu.
func (s *Store) records(seg *segment) ([]record, error) {
	var records []record
	if seg.index != nil {
		err := s.files.with(seg.indexFile(), func(f disk.File) error {
			return seg.index.each(f, func(r record) {
				if _, has := seg.tail[r.digest]; !has {
					records = append(records, r)
				}
			})
		})
		if err != nil {
			return nil, err
		}
	}
	for d, p := range seg.tail {
		records = append(records, record{d, p})
	}
	return records, nil
}

// find looks d up in seg. trusted is set where the frame was verified and is
// known to be synced, or is in the store's own segment and will be synced with it.
func (s *Store) find(seg *segment, d Digest) (p place, ok, trusted bool, err error) {
	for range 2 {
		seg.mu.RLock()
		p, ok = seg.tail[d]
		x, id, sound := seg.index, seg.id, seg.sound
		seg.mu.RUnlock()
		if ok {
			return p, true, sound && (seg == s.own.Load() || seg.sealed.Load() && id != (segmentID{})), nil
		}
		if x == nil || !x.bloom.has(d) {
			return place{}, false, false, nil
		}
		err = s.files.with(seg.indexFile(), func(f disk.File) error {
			p, ok, err = x.find(f, d)
			return err
		})
		if !errors.Is(err, errIndex) && !errors.Is(err, fs.ErrNotExist) {
			return p, ok, ok, err
		}
		if err = s.heal(seg, x); err != nil {
			return place{}, false, false, err
		}
	}
	return place{}, false, false, fmt.Errorf("%s is replaced again and again", seg.indexFile())
}

// writeWhole makes the file name appear with what write gives it, whole. With
// synced its bytes are durable, its name after a SyncDir.
func (s *Store) writeWhole(name string, write func(disk.File) error, synced bool) (int64, error) {
	temp := name + "." + s.random(4) + tempSuffix
	f, err := s.root.OpenFile(temp, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, err
	}
	err = f.Chmod(0o600)
	if err == nil {
		err = write(f)
	}
	var info fs.FileInfo
	if err == nil {
		info, err = f.Stat()
	}
	if err == nil && synced {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = s.root.Rename(temp, name)
	}
	if err != nil {
		s.root.Remove(temp)
		return 0, err
	}
	return info.Size(), nil
}
