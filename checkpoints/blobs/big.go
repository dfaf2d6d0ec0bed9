package blobs

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/oino-dev/oinod/checkpoints/disk"
)

// A content of more than one frame has a file of its own, named by its digest:
// a segment's header, then its frames. It is written aside, synced and renamed,
// so it is whole or not there, nobody waits for it, and it is dropped by an
// unlink.

func bigFile(d Digest) string { return dir + "/" + d.String() + bigSuffix }

// putBig keeps the content d of size bytes, which r yields.
func (s *Store) putBig(d Digest, size int64, r io.Reader) error {
	if err := s.broken(); err != nil {
		return err
	}
	again := s.isDamaged(d)
	if _, err := s.root.Lstat(bigFile(d)); err != nil || again {
		if err := s.nameDir(); err != nil {
			return fmt.Errorf("keeping a content of %d bytes: %w", size, err)
		}
		_, err := s.writeWhole(bigFile(d), func(f disk.File) error {
			if _, err := f.Write(appendSegmentHead(nil, segmentID([]byte(s.random(len(segmentID{})/2))))); err != nil {
				return err
			}
			return s.codec.writeParts(f, d, size, r)
		}, true)
		if err != nil {
			return fmt.Errorf("keeping a content of %d bytes: %w", size, err)
		}
		s.files.forget(bigFile(d))
		s.forgetDamage(d)
	}
	// The name may be another process's, not synced yet: it is ours to sync
	// as well.
	s.writer.mu.Lock()
	defer s.writer.mu.Unlock()
	s.writer.put++
	s.writer.unnamed = true
	return nil
}

// writeParts writes the frames of the content d to w, one by one.
func (c *codec) writeParts(w io.Writer, d Digest, size int64, r io.Reader) error {
	sum := sha256.New()
	raw := make([]byte, min(partSize, size))
	var frame []byte
	for n := uint32(0); ; n++ {
		m, err := io.ReadFull(r, raw[:min(partSize, size-int64(n)*partSize)])
		if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
			return err
		}
		sum.Write(raw[:m])
		done := int64(n)*partSize + int64(m)
		if done < size && err != nil || done == size && Digest(sum.Sum(nil)) != d {
			return errors.New("the content changed while it was read")
		}
		if frame, err = c.appendFrame(frame[:0], d, size, n, raw[:m]); err != nil {
			return err
		}
		if _, err := w.Write(frame); err != nil {
			return err
		}
		if done == size {
			return nil
		}
	}
}

// readBig reads d from its own file; fs.ErrNotExist where it has none.
func (s *Store) readBig(d Digest, limit int64, yield func(size int64, part []byte) error) error {
	err := s.files.with(bigFile(d), func(f disk.File) error {
		info, err := f.Stat()
		if err != nil {
			return err
		}
		head := make([]byte, segmentHead)
		if _, err := f.ReadAt(head, 0); err != nil {
			return short(err)
		}
		// A damaged header is no reason not to try the frames.
		var newer *newerError
		if _, err := parseSegmentHead(head); errors.As(err, &newer) {
			return fmt.Errorf("%s: %w", bigFile(d), newer)
		}
		return s.codec.read(f, segmentHead, info.Size(), d, limit, yield)
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.files.forget(bigFile(d)) // it may have been put again
	}
	return err
}
