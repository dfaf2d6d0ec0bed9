package workspace

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/oino-dev/oinod/checkpoints"
	"github.com/oino-dev/oinod/checkpoints/blobs"
)

const (
	// looks is how often a file that changes while it is read is read.
	looks = 3
	// inMemory is up to which size a content goes to the store from memory; a
	// larger one is read twice instead.
	inMemory = 32 << 20
)

// reader reads what a walk has found changed and puts it in the blob store.
type reader struct {
	*walker
	blobs *blobs.Store
	total int
	tell  func(done, total int)

	next atomic.Int64
	done atomic.Int64

	mu    sync.Mutex // guards what follows
	found found
}

// run reads all of it. An error is the blob store's, or the context's.
func (r *reader) run(all []dirReads) error {
	for _, d := range all {
		r.total += len(d.files)
	}
	if r.total == 0 {
		return nil
	}
	n := 1
	if r.total > 8 {
		n = workers(r.tree.store.procs)
	}
	return parallel(n, func() error {
		k := readWorker{reader: r}
		defer func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.found.add(&k.found)
		}()
		for {
			i := int(r.next.Add(1)) - 1
			if i >= len(all) || r.stop.Load() {
				return nil
			}
			if err := k.directory(all[i]); err != nil {
				r.stop.Store(true)
				return err
			}
		}
	})
}

// readWorker is one goroutine's own memory.
type readWorker struct {
	*reader
	found
	buf []byte
}

func (k *readWorker) directory(in dirReads) error {
	d, err := k.root.openDir(in.dir)
	if err != nil {
		// It was there a moment ago. If it is gone the next capture says so.
		if !replaced(err) {
			k.blind = append(k.blind, in.dir)
			k.uncovered = append(k.uncovered, Uncovered{Path: in.dir, Reason: checkpoints.Unreadable, Err: cause(err).Error()})
		}
		return nil
	}
	defer d.close()
	for _, f := range in.files {
		if err := k.ctx.Err(); err != nil {
			return err
		}
		if err := k.file(d, in.dir, f.name); err != nil {
			return err
		}
		if n := int(k.done.Add(1)); k.tell != nil {
			k.tell(n, k.total)
		}
	}
	return nil
}

// file reads one file and records it, if it is another than it was.
func (k *readWorker) file(d dir, in, name string) error {
	rel := join(in, name)
	e := k.tree.table.find(rel)
	state, st, why, err := k.take(d, name, e)
	if err != nil {
		return err
	}
	if state.Kind == checkpoints.Absent {
		if e != nil {
			k.gone(k.tree.table, rel, e)
		}
		return nil
	}
	if state.Kind == checkpoints.Uncovered {
		k.uncovered = append(k.uncovered, Uncovered{Path: rel, Reason: state.Reason, Err: why})
	}
	if r, ok := compare(rel, e, state, st, k.racy(st) || state.Reason == checkpoints.Unreadable); ok {
		r.seen = k.tree.walk + 1
		k.records = append(k.records, r)
	}
	return nil
}

// take says what a name is now, a regular file with its content kept. The
// error is the store's, or the context's.
func (k *readWorker) take(d dir, name string, e *entry) (s checkpoints.State, st stat, why string, err error) {
	unreadable := func(err error) (checkpoints.State, stat, string, error) {
		return checkpoints.State{Kind: checkpoints.Uncovered, Reason: checkpoints.Unreadable}, st, cause(err).Error(), nil
	}
	for range looks {
		st, err = d.lstat(name)
		if err != nil {
			if missing(err) {
				return checkpoints.State{Kind: checkpoints.Absent}, st, "", nil
			}
			return unreadable(err)
		}
		if st.kind != regular {
			s, why = stateOf(d, name, st, nil)
			return s, st, why, nil
		}
		if st.size > k.limits.MaxKept && !k.digests(e, st) {
			return tooLarge(st), st, "", nil
		}
		s, st, err = k.read(d, name)
		var ours storeError
		switch {
		case err == nil:
			return s, st, "", nil
		case errors.As(err, &ours):
			return s, st, "", ours.error
		case k.ctx.Err() != nil:
			return s, st, "", k.ctx.Err()
		case !errors.Is(err, errKind) && !missing(err):
			return unreadable(err)
		}
	}
	return unreadable(errors.New("it kept changing while it was read"))
}

func tooLarge(st stat) checkpoints.State {
	return checkpoints.State{
		Kind: checkpoints.Uncovered, Reason: checkpoints.TooLarge, Mode: st.mode, Size: st.size,
		Stamp: checkpoints.FileStamp(st.mode, st.size, st.mtime, st.ctime, st.ino),
	}
}

// digests reports whether a file too large to keep is read for its digest all
// the same. Only where what it was before can be had back must be told later
// whether it still is what a turn left; and that the stamp tells as well, unless
// a change right after now need not show in it.
func (k *readWorker) digests(e *entry, st stat) bool {
	switch {
	case e == nil || e.excluded():
		if k.first || k.idle || st.ctime < k.since {
			return false
		}
	case e.state.Kind == checkpoints.Uncovered && e.state.Digest == (blobs.Digest{}):
		return false
	case e.racy && e.stat == st && e.state.Digest != (blobs.Digest{}):
		return true // it was read the last time, and may have changed behind that
	}
	return k.racy(st) || checkpoints.FileStamp(st.mode, st.size, st.mtime, st.ctime, st.ino) == 0
}

// storeError is a failure of the blob store and not of the file.
type storeError struct{ error }

// read reads an open file whole. errKind: it was not, or did not stay, what it was.
func (k *readWorker) read(d dir, name string) (s checkpoints.State, st stat, err error) {
	f, err := d.open(name)
	if err != nil {
		return s, st, err
	}
	defer f.close()
	if st, err = f.stat(); err != nil {
		return s, st, err
	}
	s = checkpoints.State{Kind: checkpoints.File, Mode: st.mode}
	switch {
	case st.size > k.limits.MaxKept:
		s, err = k.digest(f, st)
	case st.size <= inMemory:
		s.Digest, s.Size, err = k.keep(f, st.size)
	default:
		w := &watched{file: f}
		if s.Digest, s.Size, err = k.blobs.PutFrom(w); w.err != nil {
			err = w.err
		} else if err != nil {
			err = storeError{err}
		}
	}
	after, serr := f.stat()
	if serr != nil {
		return s, st, serr
	}
	if err == nil && s.Size != st.size || after != st {
		return s, st, errKind
	}
	return s, st, err
}

// keep puts a content of size bytes in the store.
func (k *readWorker) keep(f file, size int64) (d blobs.Digest, n int64, err error) {
	if int64(cap(k.buf)) < size+1 {
		k.buf = make([]byte, max(size+1, 64<<10))
	}
	content := k.buf[:size+1]
	got, err := io.ReadFull(f, content)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return d, 0, err
	}
	if int64(got) == size {
		if d, err = k.blobs.Put(content[:got]); err != nil {
			return d, 0, storeError{err}
		}
	}
	if cap(k.buf) > 1<<20 {
		k.buf = nil // of a large file, which is rare
	}
	return d, int64(got), nil
}

// digest reads a file that is too large to keep.
func (k *readWorker) digest(f file, st stat) (checkpoints.State, error) {
	sum := sha256.New()
	n, err := io.CopyBuffer(sum, &cancelled{k.ctx, f}, make([]byte, 256<<10))
	s := tooLarge(st)
	s.Size, s.Stamp = n, 0
	sum.Sum(s.Digest[:0])
	return s, err
}

// watched keeps a file's own error apart from that of whom it is given to.
type watched struct {
	file
	err error
}

func (w *watched) Read(b []byte) (int, error) {
	n, err := w.file.Read(b)
	if err != nil && err != io.EOF {
		w.err = err
	}
	return n, err
}

// cancelled is a reader that ends with its context.
type cancelled struct {
	ctx context.Context
	r   io.Reader
}

func (c *cancelled) Read(b []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(b)
}

// withinBudget keeps of the new files those that the budget has room for, in the
// order of their paths, and drops the others.
func withinBudget(all []dirReads, files, bytes, maxKept int64) []dirReads {
	slices.SortFunc(all, func(a, b dirReads) int { return strings.Compare(a.dir, b.dir) })
	for i := range all {
		slices.SortFunc(all[i].files, func(a, b toRead) int { return strings.Compare(a.name, b.name) })
		all[i].files = slices.DeleteFunc(all[i].files, func(f toRead) bool {
			if !f.new || f.size > maxKept {
				return false
			}
			if files <= 0 || f.size > bytes {
				return true
			}
			files--
			bytes -= f.size
			return false
		})
	}
	return all
}
