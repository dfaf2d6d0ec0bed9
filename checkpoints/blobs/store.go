package blobs

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
	"sync/atomic"

	"github.com/oino-dev/oinod/checkpoints/disk"
)

// dir is the store's directory in its root.
const dir = "blobs"

// Store keeps contents. It is safe for concurrent use.
type Store struct {
	root   disk.Root
	random func(n int) string // n random bytes in hex
	codec  *codec
	sizes  sizes
	memory *memory // instead of all that follows

	holds holds
	files files

	refreshing sync.Mutex // held while the directory is read
	catalog    atomic.Pointer[catalog]
	own        atomic.Pointer[segment] // writer.seg, for readers

	writer writer

	mu      sync.Mutex
	named   bool            // dir is there and its name is durable
	damaged map[Digest]bool // contents that failed to verify: kept anew when they are put again
}

// Open opens the store in the directory "blobs" of root, which is made (0700)
// when the first content is put. Opening reads nothing.
func Open(root disk.Root) *Store {
	s := &Store{root: root, random: randomHex, codec: newCodec(), sizes: usualSizes()}
	s.files.root = root
	s.holds.change.L = &s.holds.mu
	s.writer.done.L = &s.writer.mu
	return s
}

func randomHex(n int) string {
	b := make([]byte, n)
	rand.Read(b) // which never fails
	return hex.EncodeToString(b)
}

// Hold keeps Collect away until release: a caller holds from its first
// look-up or Put until the log that names the content is synced. It waits
// while a Collect is under way. Release may be called more than once.
func (s *Store) Hold() (release func(), err error) {
	if s.memory != nil {
		return s.holds.hold(func() (func() error, error) { return func() error { return nil }, nil })
	}
	return s.holds.hold(func() (func() error, error) {
		unlock, err := s.takeShared()
		if err != nil {
			return nil, fmt.Errorf("holding the blob store: %w", err)
		}
		return unlock, nil
	})
}

func (s *Store) takeShared() (func() error, error) {
	if err := s.makeDir(); err != nil {
		return nil, err
	}
	unlock, _, err := lockFile(s.root, lockName, true, true)
	if err != nil {
		return nil, err
	}
	// Collect may have run since the catalog was made, and dropped what a Put
	// would find in it.
	if c := s.catalog.Load(); c != nil {
		generation, err := s.generation()
		if err == nil && generation != c.generation {
			_, err = s.refresh()
		}
		if err != nil {
			unlock()
			return nil, err
		}
	}
	return unlock, nil
}

// Put keeps content, unless it is there already. It is durable after Sync.
func (s *Store) Put(content []byte) (Digest, error) {
	if int64(len(content)) > s.sizes.big {
		d, _, err := s.PutFrom(bytes.NewReader(content))
		return d, err
	}
	d := Digest(sha256.Sum256(content))
	if s.memory != nil {
		return d, s.memory.put(s.codec, d, int64(len(content)), bytes.NewReader(content))
	}
	if err := s.broken(); err != nil {
		return d, err
	}
	if !s.isDamaged(d) && s.has(d) {
		return d, nil
	}
	buf := s.codec.buffers.Get().(*[]byte)
	defer s.codec.buffers.Put(buf)
	var err error
	if *buf, err = s.codec.appendFrame((*buf)[:0], d, int64(len(content)), 0, content); err != nil {
		return d, fmt.Errorf("compressing %s: %w", d, err)
	}
	return d, s.append(d, *buf)
}

// Has reports whether d is kept already, so that Put would add nothing and it
// is durable after Sync. It may say no of what is there.
func (s *Store) Has(d Digest) bool {
	if s.memory != nil {
		_, ok := s.memory.get(d)
		return ok
	}
	return s.broken() == nil && !s.isDamaged(d) && s.has(d)
}

// has reports whether d can be counted on as it is. Where that cannot be seen
// the content is kept once more.
func (s *Store) has(d Digest) bool {
	if own := s.own.Load(); own != nil {
		if _, ok, trusted, err := s.find(own, d); err == nil && ok && trusted {
			return true
		}
	}
	c, err := s.known()
	if err != nil {
		return false
	}
	for _, seg := range c.segments {
		if _, ok, trusted, err := s.find(seg, d); err == nil && ok && trusted {
			return true
		}
	}
	return false
}

func (s *Store) broken() error {
	s.writer.mu.Lock()
	defer s.writer.mu.Unlock()
	return s.writer.broken
}

// PutFrom keeps what r yields, of any size, without holding it in memory.
// r is read twice: once for its digest. A content that changes in between is
// an error.
func (s *Store) PutFrom(r io.ReadSeeker) (Digest, int64, error) {
	start, err := r.Seek(0, io.SeekCurrent)
	if err != nil {
		return Digest{}, 0, err
	}
	end, err := r.Seek(0, io.SeekEnd)
	if err != nil {
		return Digest{}, 0, err
	}
	if _, err := r.Seek(start, io.SeekStart); err != nil {
		return Digest{}, 0, err
	}
	small := bytes.NewBuffer(make([]byte, 0, max(0, min(end-start, s.sizes.big))+bytes.MinRead))
	if _, err := small.ReadFrom(io.LimitReader(r, s.sizes.big+1)); err != nil {
		return Digest{}, 0, err
	}
	if int64(small.Len()) <= s.sizes.big {
		d, err := s.Put(small.Bytes())
		return d, int64(small.Len()), err
	}
	sum := sha256.New()
	sum.Write(small.Bytes())
	n, err := io.Copy(sum, r)
	if err != nil {
		return Digest{}, 0, err
	}
	d, size := Digest(sum.Sum(nil)), n+int64(small.Len())
	if _, err := r.Seek(start, io.SeekStart); err != nil {
		return Digest{}, 0, err
	}
	if s.memory != nil {
		err = s.memory.put(s.codec, d, size, r)
	} else {
		err = s.putBig(d, size, r)
	}
	return d, size, err
}

// Sync makes all that was put so far durable. After a failed sync the store
// takes no more contents until it is opened again; it can still be read. After
// a failed write, as on a full disk, Sync can be called again.
func (s *Store) Sync() error {
	if s.memory != nil {
		return nil
	}
	return s.sync()
}

// Get returns a content of at most limit bytes (0: no limit), verified. Every
// error is an *Error.
func (s *Store) Get(d Digest, limit int64) ([]byte, error) {
	var content []byte
	err := s.read(d, limit, func(size int64, part []byte) error {
		if content == nil {
			// A claimed length is not worth more than some parts of memory.
			content = make([]byte, 0, min(size, 4*partSize))
		}
		content = append(content, part...)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return content, nil
}

// WriteTo writes a content of any size to w with bounded memory and verifies
// it. What w got is to be thrown away when it returns an error.
func (s *Store) WriteTo(w io.Writer, d Digest) (int64, error) {
	var n int64
	err := s.read(d, 0, func(_ int64, part []byte) error {
		m, err := w.Write(part)
		n += int64(m)
		if err != nil {
			return &writeError{err}
		}
		return nil
	})
	return n, err
}

// writeError is an error of WriteTo's w and not of the store.
type writeError struct{ err error }

func (e *writeError) Error() string { return "writing it: " + e.err.Error() }
func (e *writeError) Unwrap() error { return e.err }

// Check reads a content as Get would and returns why it cannot be had.
func (s *Store) Check(d Digest) error {
	_, err := s.WriteTo(io.Discard, d)
	return err
}

// read passes a content on part by part. Where it fails, what is known of the
// directory may be old: it is read again, once. Then what is hidden is tried.
func (s *Store) read(d Digest, limit int64, yield func(size int64, part []byte) error) error {
	if s.memory != nil {
		return wrap(d, s.memory.read(s.codec, d, limit, yield))
	}
	c, err := s.known()
	if err != nil {
		return wrap(d, err)
	}
	began := false
	once := func(size int64, part []byte) error {
		began = true
		return yield(size, part)
	}
	err = s.readFrom(c, d, limit, once)
	if err != nil && !began && !errors.Is(err, ErrTooLarge) {
		if c, err = s.refresh(); err == nil {
			err = s.readFrom(c, d, limit, once)
			if err != nil && !began && !errors.Is(err, ErrTooLarge) {
				err = s.readHidden(c, d, limit, once, err)
			}
		}
	}
	if errors.Is(err, ErrDamaged) {
		s.noteDamage(d)
	}
	return wrap(d, err)
}

func wrap(d Digest, err error) error {
	if err == nil {
		return nil
	}
	return &Error{d, err}
}

// readFrom reads d from the segments of c or from a file of its own. There may
// be several copies, of which one is enough.
func (s *Store) readFrom(c *catalog, d Digest, limit int64, yield func(size int64, part []byte) error) error {
	failed := ErrMissing
	for _, seg := range c.segments {
		if newer := seg.isNewer(); newer != nil && failed == ErrMissing {
			failed = fmt.Errorf("%w, unless it is in %s, %w", ErrMissing, seg.file(), newer)
		}
		p, ok, _, err := s.find(seg, d)
		if err == nil && !ok {
			continue
		}
		if err == nil {
			err = s.readPlace(seg, p, d, limit, yield)
		}
		var ours *writeError
		switch {
		case err == nil, errors.Is(err, ErrTooLarge), errors.As(err, &ours):
			return err
		default:
			failed = graver(failed, seg, err)
		}
	}
	err := s.readBig(d, limit, yield)
	if errors.Is(err, fs.ErrNotExist) {
		return failed
	}
	return err
}

func (s *Store) readPlace(seg *segment, p place, d Digest, limit int64, yield func(size int64, part []byte) error) error {
	if seg == s.own.Load() {
		if b, ok := s.writer.peek(seg, int64(p.off), frameHead+int(p.stored)); ok {
			return s.codec.read(bytes.NewReader(b), 0, int64(len(b)), d, limit, yield)
		}
	}
	return s.files.with(seg.file(), func(f disk.File) error {
		return s.codec.read(f, int64(p.off), p.end(), d, limit, yield)
	})
}

func (s *Store) isDamaged(d Digest) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.damaged[d]
}

func (s *Store) noteDamage(d Digest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.damaged == nil {
		s.damaged = map[Digest]bool{}
	}
	s.damaged[d] = true
}

func (s *Store) forgetDamage(d Digest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.damaged, d)
}

// Close syncs and closes the store's own segment and lets go of its locks.
func (s *Store) Close() error {
	if s.memory != nil {
		return nil
	}
	err := s.closeWriter()
	s.files.close()
	return errors.Join(err, s.holds.end())
}
