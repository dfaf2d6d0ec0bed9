package blobs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"

	"github.com/oino-dev/oinod/checkpoints/disk"
)

// sizes is where things end. A test makes them small.
type sizes struct {
	segment int64 // of a segment: the next frame begins another
	buffer  int   // of the frames that wait in memory for a Sync
	big     int64 // of a content in a segment: a longer one has a file of its own
	// index is how much of a segment may be without an index when its process
	// ends: what the next one has to verify.
	index int64
}

// segmentLimit is the longest segment that there is.
const segmentLimit = 64 << 20

func usualSizes() sizes {
	return sizes{segment: segmentLimit, buffer: 1 << 20, big: partSize, index: 2 << 20}
}

// writer is the store's own end of it: one segment of one lane.
type writer struct {
	mu   sync.Mutex
	done sync.Cond // a sync has ended

	unlock func() error // of the lane; nil until the first content
	lane   int
	seg    *segment  // the own segment, nil where the next content makes one
	file   disk.File // of seg
	next   uint64    // the number of the next segment

	flushed int64  // bytes in file
	buf     []byte // frames that follow them

	// Contents are counted, so that a Sync knows when those before it are safe.
	put     uint64
	durable uint64
	synced  int64 // bytes of file that are durable
	unnamed bool  // the directory has names that are not synced
	syncing bool  // a sync is under way, without mu
	broken  error // set once
	closed  bool
}

// breakWith makes err the answer to all that follows.
func (w *writer) breakWith(doing string, err error) error {
	if w.broken == nil {
		w.broken = fmt.Errorf("%s the blob store: %w: %w", doing, ErrBroken, err)
	}
	return w.broken
}

// append adds the frame of d to the own segment, unless that, or the one that
// the lane was taken with, has d already and in good order.
func (s *Store) append(d Digest, frame []byte) error {
	w := &s.writer
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.broken != nil {
		return w.broken
	}
	newest := w.seg
	if w.unlock == nil {
		var err error
		if newest, err = s.takeLane(); err != nil {
			return fmt.Errorf("opening the blob store for writing: %w", err)
		}
	}
	if newest != nil && !s.isDamaged(d) {
		if _, ok, trusted, err := s.find(newest, d); err == nil && ok && trusted {
			return nil
		}
	}
	if w.seg != nil && w.flushed+int64(len(w.buf)+len(frame)) > s.sizes.segment {
		if err := s.seal(); err != nil {
			return err
		}
	}
	if w.seg == nil {
		if err := s.create(); err != nil {
			return fmt.Errorf("making a segment of the blob store: %w", err)
		}
	}
	if len(w.buf) > 0 && len(w.buf)+len(frame) > s.sizes.buffer {
		if err := w.flush(); err != nil {
			return err
		}
	}
	p := place{off: uint32(w.flushed + int64(len(w.buf))), stored: uint32(len(frame) - frameHead)}
	w.buf = append(w.buf, frame...)
	w.put++
	w.seg.mu.Lock()
	defer w.seg.mu.Unlock()
	if w.seg.tail == nil {
		w.seg.tail = map[Digest]place{}
	}
	w.seg.tail[d] = p
	w.seg.scanned = p.end()
	s.forgetDamage(d)
	return nil
}

// flush writes what waits. When that fails the file is cut back and the frames
// go on waiting, so that nothing that was put is lost: a later flush tries
// again, and no Sync succeeds before one did.
func (w *writer) flush() error {
	if len(w.buf) == 0 {
		return nil
	}
	if _, err := w.file.Write(w.buf); err != nil {
		if cut := w.file.Truncate(w.flushed); cut != nil {
			return w.breakWith("writing", err)
		}
		return fmt.Errorf("writing the blob store: %w", err)
	}
	w.flushed += int64(len(w.buf))
	if cap(w.buf) > partSize { // a large frame was in it
		w.buf = nil
	}
	w.buf = w.buf[:0]
	return nil
}

// peek returns the n bytes at off of seg if they wait to be written.
func (w *writer) peek(seg *segment, off int64, n int) ([]byte, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if seg != w.seg || off < w.flushed || off+int64(n) > w.flushed+int64(len(w.buf)) {
		return nil, false
	}
	return append([]byte(nil), w.buf[off-w.flushed:][:n]...), true
}

// sync makes all that was put before it durable. Callers that come while
// another's sync is under way share the next one.
func (s *Store) sync() error {
	w := &s.writer
	w.mu.Lock()
	defer w.mu.Unlock()
	for want := w.put; ; {
		if w.broken != nil {
			return w.broken
		}
		if w.durable >= want {
			return nil
		}
		if w.syncing {
			w.done.Wait()
			continue
		}
		if err := s.syncOnce(); err != nil {
			return err
		}
	}
}

// syncOnce flushes and syncs. The caller holds w.mu, which is let go while the
// disk works, and w.syncing is not set.
func (s *Store) syncOnce() error {
	w := &s.writer
	if err := w.flush(); err != nil {
		return err
	}
	put, file, flushed, unnamed := w.put, w.file, w.flushed, w.unnamed
	w.syncing, w.unnamed = true, false
	w.mu.Unlock()
	var err error
	if file != nil {
		err = file.Sync()
	}
	if err == nil && unnamed {
		err = s.root.SyncDir(dir)
	}
	w.mu.Lock()
	w.syncing = false
	w.done.Broadcast()
	if err != nil {
		if file != nil {
			// What the failed sync left in memory but not on the disk would
			// be counted on by whoever takes the lane next. Best not to find it.
			_ = w.file.Truncate(w.synced)
			w.seg.cutBack(w.synced)
			w.flushed, w.buf = w.synced, nil
		}
		return w.breakWith("syncing", err)
	}
	w.durable, w.synced = put, flushed
	return nil
}

// settle waits for a sync under way and then makes everything durable.
func (s *Store) settle() error {
	w := &s.writer
	for w.broken == nil && (w.syncing || w.durable < w.put) {
		if w.syncing {
			w.done.Wait()
		} else if err := s.syncOnce(); err != nil {
			return err
		}
	}
	return w.broken
}

// seal ends the own segment: it is synced whole before another of its lane can
// be seen, which is what makes it sealed. The caller holds w.mu.
func (s *Store) seal() error {
	if err := s.settle(); err != nil {
		return err
	}
	w := &s.writer
	if w.seg == nil {
		return nil
	}
	w.seg.mu.Lock()
	_ = s.writeIndex(w.seg, w.flushed) // a cache; whoever misses it makes it
	w.seg.mu.Unlock()
	w.file.Close()
	w.next = w.seg.seq + 1
	w.seg, w.file = nil, nil
	s.own.Store(nil)
	return nil
}

// create makes the next segment, whose header waits to be written with its
// first frames. The caller holds w.mu.
func (s *Store) create() error {
	w := &s.writer
	seg := &segment{lane: w.lane, seq: w.next, id: segmentID([]byte(s.random(len(segmentID{}) / 2)))}
	f, err := s.root.OpenFile(seg.file(), os.O_RDWR|os.O_APPEND|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err := f.Chmod(0o600); err != nil {
		f.Close()
		s.root.Remove(seg.file())
		return err
	}
	seg.scanned, seg.sound = segmentHead, true
	w.seg, w.file = seg, f
	w.flushed, w.synced, w.unnamed = 0, 0, true
	w.buf = appendSegmentHead(w.buf[:0], seg.id)
	s.own.Store(seg)
	s.add(seg)
	return nil
}

// takeLane takes the first lane that no other process has, and goes on with
// its newest segment if there is room and all of it is whole. It returns that
// segment, verified, or nil where there is none. The caller holds w.mu.
func (s *Store) takeLane() (newest *segment, err error) {
	w := &s.writer
	if err := s.nameDir(); err != nil {
		return nil, err
	}
	lane, unlock, err := s.freeLane()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			unlock()
		}
	}()
	// Only now does nobody else add to the lane.
	c, err := s.refresh()
	if err != nil {
		return nil, err
	}
	w.next = 1
	for _, seg := range c.segments {
		if seg.lane == lane { // the newest is the first
			w.next = seg.seq + 1
			if err := s.adopt(seg); err != nil {
				return nil, err
			}
			newest = seg
			break
		}
	}
	w.lane, w.unlock = lane, unlock
	return newest, nil
}

func (s *Store) freeLane() (lane int, unlock func() error, err error) {
	for lane := 0; ; lane++ {
		unlock, ok, err := lockFile(s.root, fmt.Sprintf("%s/%d%s", dir, lane, lockSuffix), false, false)
		if err != nil {
			return 0, nil, err
		}
		if ok {
			return lane, unlock, nil
		}
	}
}

// adopt makes seg, which another process has left, the own segment. Of what is
// behind its index nobody knows whether it was synced, or written whole: it is
// verified and synced. Where all of it is whole the lane goes on in it.
// Otherwise a crash has torn something, or something that was acknowledged is
// damaged, and nobody can tell which: the segment is left as it is, with an
// index of what may be counted on, and the lane goes on in another.
func (s *Store) adopt(seg *segment) error {
	w := &s.writer
	seg.mu.Lock()
	defer seg.mu.Unlock()
	if seg.newer != nil {
		return nil // nothing of ours
	}
	f, err := s.root.OpenFile(seg.file(), os.O_RDWR|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	goOn := false
	err = func() error {
		info, err := f.Stat()
		if err != nil {
			return err
		}
		whole := false
		if seg.id != (segmentID{}) {
			if whole, err = s.verifyTail(seg, f, info.Size()); err != nil {
				return err
			}
			seg.scanned = seg.covered()
			for _, p := range seg.tail {
				seg.scanned = max(seg.scanned, p.end())
			}
		}
		if err := f.Sync(); err != nil {
			return w.breakWith("syncing", err)
		}
		if err := s.root.SyncDir(dir); err != nil {
			return err
		}
		goOn = whole && seg.scanned < s.sizes.segment-int64(s.sizes.buffer) // else it is nearly full
		if !goOn {
			// A cache: who misses it verifies. It covers no more than the
			// last frame that is whole, so that who takes the lane before
			// there is another segment sees that something follows.
			_ = s.writeIndex(seg, seg.scanned)
		}
		return nil
	}()
	if err != nil || !goOn {
		return errors.Join(err, f.Close())
	}
	w.seg, w.file = seg, f
	w.flushed, w.synced = seg.scanned, seg.scanned
	s.own.Store(seg)
	return nil
}

// nameDir makes the store's directory, if it is not there, and its name
// durable, whoever made it.
func (s *Store) nameDir() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.named {
		return nil
	}
	if err := s.makeDir(); err != nil {
		return err
	}
	if err := s.root.SyncDir("."); err != nil {
		return err
	}
	s.named = true
	return nil
}

func (s *Store) makeDir() error {
	if _, err := s.root.Lstat(dir); err == nil {
		return nil
	}
	err := s.root.Mkdir(dir, 0o700)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return s.root.Chmod(dir, 0o700)
}

// closeWriter syncs, leaves an index where the next process would have much to
// verify, and lets the lane go.
func (s *Store) closeWriter() error {
	w := &s.writer
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil
	}
	w.closed = true
	err := s.settle()
	if w.seg != nil {
		if err == nil && w.flushed-w.seg.indexed() > s.sizes.index {
			w.seg.mu.Lock()
			_ = s.writeIndex(w.seg, w.flushed)
			w.seg.mu.Unlock()
		}
		err = errors.Join(err, w.file.Close())
	}
	_ = w.breakWith("writing", fs.ErrClosed)
	w.seg, w.file, w.buf = nil, nil, nil
	s.own.Store(nil)
	if w.unlock != nil {
		err = errors.Join(err, w.unlock())
		w.unlock = nil
	}
	return err
}
