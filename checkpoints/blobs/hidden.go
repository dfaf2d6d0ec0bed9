package blobs

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"github.com/oino-dev/oinod/checkpoints/disk"
)

// Nothing is ever written over what may have been acknowledged, so a segment
// may hold what nobody counts on: a frame that did not verify when the segment
// was indexed, one whose header is damaged, an earlier copy of a content. That
// is hidden: Put does not know it, and a read comes here before it gives up,
// as the bytes may be right again.

// span is a part of a segment's file.
type span struct{ off, end int64 }

// hidden returns the parts of seg's file that no known frame lies in, and the
// file's size. Of most segments there are none.
func (s *Store) hidden(seg *segment) (spans []span, size int64, err error) {
	seg.mu.RLock()
	spans, size = seg.hidden, seg.size
	x, of := seg.index, seg.hiddenOf
	seg.mu.RUnlock()
	if x != nil && x == of {
		return spans, size, nil
	}
	spans = nil
	// The size comes first: what is behind it by then is not asked for.
	err = s.files.with(seg.file(), func(f disk.File) error {
		info, err := f.Stat()
		if err == nil {
			size = info.Size()
		}
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	records, err := s.healedRecords(seg)
	if err != nil {
		return nil, 0, err
	}
	slices.SortFunc(records, func(a, b record) int { return cmp.Compare(a.place.off, b.place.off) })
	next := int64(segmentHead)
	for _, r := range records {
		off := min(int64(r.place.off), size)
		if off > next {
			spans = append(spans, span{next, off})
		}
		next = max(next, r.place.end())
	}
	if next < size {
		spans = append(spans, span{next, size})
	}
	seg.mu.Lock()
	defer seg.mu.Unlock()
	if seg.complete && seg.index == x { // it stays like this
		seg.hidden, seg.size, seg.hiddenOf = spans, size, x
	}
	return spans, size, nil
}

// eachHeader passes on every header in part of r that could be a frame's.
// Frames may begin within others: what a damaged one would take up is not
// believed.
func eachHeader(r io.ReaderAt, part span, f func(off int64, h header) error) error {
	w := window{r: r, end: part.end}
	for off := part.off; ; off++ {
		var err error
		if off, err = w.find(off); err == io.EOF || err == nil && off+frameHead > part.end {
			return nil
		} else if err != nil {
			return err
		}
		b, err := w.at(off, frameHead)
		if err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		h, err := parseHeader(b)
		if err != nil || !h.fits(off) {
			continue
		}
		if err := f(off, h); err != nil {
			return err
		}
	}
}

var errFound = errors.New("found")

// readHidden reads d from what is hidden in the segments of c, when it could
// not be had from what is known, which has failed.
func (s *Store) readHidden(c *catalog, d Digest, limit int64, yield func(size int64, part []byte) error, failed error) error {
	for _, seg := range c.segments {
		if seg.isNewer() != nil {
			continue
		}
		spans, _, err := s.hidden(seg)
		if err == nil && len(spans) > 0 {
			err = s.files.with(seg.file(), func(f disk.File) error {
				for _, part := range spans {
					err := eachHeader(f, part, func(off int64, h header) error {
						if h.digest != d {
							return nil
						}
						err := s.codec.read(f, off, off+h.length(), d, limit, yield)
						if errors.Is(err, ErrDamaged) {
							failed = graver(failed, seg, err)
							return nil
						} else if err != nil {
							return err
						}
						return errFound
					})
					if err != nil {
						return err
					}
				}
				return nil
			})
		}
		var ours *writeError
		switch {
		case err == nil:
		case err == errFound:
			return nil
		case errors.Is(err, ErrTooLarge), errors.As(err, &ours):
			return err
		default:
			failed = graver(failed, seg, err)
		}
	}
	return failed
}

// graver returns what to say of a content that could not be had, failed, and
// in seg not either: what the disk says is more than damage, which is more
// than nothing.
func graver(failed error, seg *segment, err error) error {
	if errors.Is(err, fs.ErrNotExist) { // collected
		return failed
	}
	if errors.Is(failed, ErrMissing) || errors.Is(failed, ErrDamaged) {
		return fmt.Errorf("%s: %w", seg.file(), err)
	}
	return failed
}

// remains returns the frames that are hidden in seg, and whether that is all:
// where anything else is in it, there may be a content that we do not see.
// What a crash has torn off at the end, and zeros, can be none.
func (s *Store) remains(seg *segment) (records []record, all bool, err error) {
	spans, size, err := s.hidden(seg)
	if err != nil || len(spans) == 0 {
		return nil, err == nil, err
	}
	all = true
	err = s.files.with(seg.file(), func(f disk.File) error {
		for _, part := range spans {
			err := eachHeader(f, part, func(off int64, h header) error {
				if off+h.length() <= size {
					records = append(records, record{h.digest, place{uint32(off), h.stored}})
				}
				return nil
			})
			if err != nil {
				return err
			}
			legible, err := isLegible(f, part, size)
			if err != nil {
				return err
			}
			all = all && legible
		}
		return nil
	})
	return records, all, err
}

// isLegible reports whether part of r, a segment of size bytes, is frames with
// good headers one behind the other, zeros, and at the segment's end what is
// too short to be a frame.
func isLegible(r io.ReaderAt, part span, size int64) (bool, error) {
	w := window{r: r, end: part.end}
	for off := part.off; off < part.end; {
		n := min(frameHead, part.end-off)
		b, err := w.at(off, int(n))
		if err == io.EOF {
			return false, nil
		} else if err != nil {
			return false, err
		}
		if zeros := n - int64(len(bytes.TrimLeft(b, "\x00"))); zeros > 0 {
			off += zeros
			continue
		}
		if n < frameHead {
			return part.end == size, nil
		}
		h, err := parseHeader(b)
		if err != nil {
			return false, nil
		}
		off += h.length()
		if off > part.end {
			return off > size, nil
		}
	}
	return true, nil
}
