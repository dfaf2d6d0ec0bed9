package blobs

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/oino-dev/oinod/checkpoints/disk"
)

// Stats counts the contents and the bytes they take on disk. A content that
// two processes kept at the same time counts twice.
func (s *Store) Stats() (count int, bytes int64, err error) {
	if s.memory != nil {
		count, bytes = s.memory.stats()
		return count, bytes, nil
	}
	count, bytes, err = s.stats()
	if err != nil {
		return 0, 0, fmt.Errorf("counting the blob store: %w", err)
	}
	return count, bytes, nil
}

func (s *Store) stats() (count int, bytes int64, err error) {
	c, err := s.refresh()
	if err != nil {
		return 0, 0, err
	}
	for _, seg := range c.segments {
		seg.mu.RLock()
		if seg.index != nil {
			count += seg.index.count
		}
		count += len(seg.tail)
		seg.mu.RUnlock()
	}
	entries, err := disk.ReadDir(s.root, dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, 0, err
	}
	for _, e := range entries {
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return 0, 0, err
		}
		bytes += info.Size()
		if strings.HasSuffix(e.Name(), bigSuffix) {
			count++
		}
	}
	s.writer.mu.Lock()
	defer s.writer.mu.Unlock()
	return count, bytes + int64(len(s.writer.buf)), nil
}
