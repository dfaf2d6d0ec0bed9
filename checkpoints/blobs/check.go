package blobs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/oino-dev/oinod/checkpoints/disk"
)

// Checked is what CheckAll read.
type Checked struct {
	Blobs int
	Bytes int64 // of the contents
}

// healedRecords returns what is known of seg, with a good index.
func (s *Store) healedRecords(seg *segment) ([]record, error) {
	for tries := 0; ; tries++ {
		seg.mu.RLock()
		x := seg.index
		records, err := s.records(seg)
		seg.mu.RUnlock()
		if err == nil || tries == 2 || x == nil || !errors.Is(err, errIndex) && !errors.Is(err, fs.ErrNotExist) {
			return records, err
		}
		if err := s.heal(seg, x); err != nil {
			return nil, err
		}
	}
}

// CheckAll reads every content there is and passes each on, with the *Error
// that Get would give for it. A segment of a newer version, whose contents are
// not known, is passed on under the zero Digest.
func (s *Store) CheckAll(ctx context.Context, f func(d Digest, size int64, err error)) (Checked, error) {
	var done Checked
	if s.memory != nil {
		return done, nil
	}
	c, err := s.refresh()
	if err != nil {
		return done, fmt.Errorf("reading the blob store: %w", err)
	}
	one := func(d Digest) error {
		n := int64(0)
		err := s.read(d, 0, func(_ int64, part []byte) error {
			n += int64(len(part))
			return ctx.Err()
		})
		if ctx.Err() != nil {
			return ctx.Err()
		}
		done.Blobs++
		done.Bytes += n
		f(d, n, err)
		return nil
	}
	for _, seg := range c.segments {
		if newer := seg.isNewer(); newer != nil {
			f(Digest{}, 0, &Error{Err: fmt.Errorf("%s: %w", seg.file(), newer)})
			continue
		}
		records, err := s.healedRecords(seg)
		if errors.Is(err, fs.ErrNotExist) {
			continue // collected meanwhile
		}
		if err != nil {
			return done, fmt.Errorf("reading the blob store: %s: %w", seg.file(), err)
		}
		for _, r := range records {
			if err := one(r.digest); err != nil {
				return done, err
			}
		}
	}
	entries, err := disk.ReadDir(s.root, dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return done, fmt.Errorf("reading the blob store: %w", err)
	}
	for _, e := range entries {
		var d Digest
		if hex, ok := strings.CutSuffix(e.Name(), bigSuffix); ok && d.UnmarshalText([]byte(hex)) == nil {
			if err := one(d); err != nil {
				return done, err
			}
		}
	}
	return done, nil
}
