package checkpoints

import (
	"fmt"
	"io"
	"time"

	"github.com/oino-dev/oinod/checkpoints/disk"
)

// inMemory is up to which size a content goes to the store from memory; a
// larger one is read twice instead.
const inMemory = 32 << 20

// Captured is a path as Capture kept it.
type Captured struct {
	State   State
	Parents []Parent // see Touched.Parents: only the absent ones and those with a mode other than 0755
	Err     string   // of an Uncovered state: what the disk said
	// Changed is when it was last changed, or, of an Absent one, any name in its
	// directory; zero where nobody can tell.
	Changed time.Time
}

// Capture looks at the resolved path and puts its contents in the blob store
// (the caller syncs it). A file over MaxKept has its digest taken only and is
// Uncovered TooLarge. The error is the blob store's alone.
func (w *Workspace) Capture(path string) (Captured, error) {
	return w.capture(path, nil, nil)
}

// CaptureAll captures every path, several at a time: most of a capture is
// reading and compressing. An error names the first that could not be kept.
func (w *Workspace) CaptureAll(paths []string) ([]Captured, error) {
	all, errs := make([]Captured, len(paths)), make([]error, len(paths))
	dirs := newParents()
	each(len(paths), func(i int) string { return paths[i] }, func(h *handle, i int) {
		all[i], errs[i] = w.capture(paths[i], dirs, h)
	})
	for i, err := range errs {
		if err != nil {
			return nil, fmt.Errorf("%s: %w", paths[i], err)
		}
	}
	return all, nil
}

func (w *Workspace) capture(path string, dirs *parents, h *handle) (Captured, error) {
	p, err := dirs.locate(w, path)
	if err != nil {
		return Captured{State: State{Kind: Uncovered, Reason: Unreadable}, Err: cause(err).Error()}, nil
	}
	v, err := p.view(dirs, h, func(f disk.File, size int64) (State, error) {
		if size <= w.maxKept {
			return w.keep(f, size)
		}
		s, err := digest(f, size)
		s.Kind, s.Reason = Uncovered, TooLarge
		return s, err
	})
	if err != nil {
		return Captured{}, err
	}
	return Captured{State: v.state, Parents: p.parentsOf(v), Err: v.err, Changed: p.changed(v)}, nil
}

// changed is Captured.Changed of what v saw at p.
func (p place) changed(v view) time.Time {
	info := v.info
	if v.state.Kind == Absent {
		info, _ = p.sibling(p.dir()).lstat()
	}
	if info == nil {
		return time.Time{}
	}
	s := stampOf(info)
	return time.Unix(0, max(s.mtime, s.ctime))
}

// keep takes a file into the blob store. A failure of the store is a takeError.
func (w *Workspace) keep(f disk.File, size int64) (State, error) {
	if size <= inMemory {
		var content []byte
		if size < readSize {
			buf := reading.Get().(*[readSize]byte)
			defer reading.Put(buf)
			content = buf[:size+1]
		} else {
			content = make([]byte, size+1)
		}
		n, err := readFull(f, content)
		if err != nil {
			return State{}, err
		}
		if int64(n) != size {
			return State{}, errChanged
		}
		d, err := w.blobs.Put(content[:n])
		if err != nil {
			return State{}, takeError{err}
		}
		return State{Kind: File, Size: size, Digest: d}, nil
	}
	before, err := f.Stat()
	if err != nil {
		return State{}, err
	}
	r := &watched{ReadSeeker: f}
	d, n, err := w.blobs.PutFrom(r)
	if r.err != nil {
		return State{}, r.err
	}
	if err != nil {
		// The store also refuses a content that is another one when it is read
		// for the second time, and that is no failure of the store's.
		if after, serr := f.Stat(); serr != nil || !sameThing(before, after) {
			return State{}, errChanged
		}
		return State{}, takeError{err}
	}
	return State{Kind: File, Size: n, Digest: d}, nil
}

// watched keeps the reader's own error apart from that of whom it is given to.
type watched struct {
	io.ReadSeeker
	err error
}

func (r *watched) Read(b []byte) (int, error) {
	n, err := r.ReadSeeker.Read(b)
	if err != nil && err != io.EOF {
		r.err = err
	}
	return n, err
}

func (r *watched) Seek(offset int64, whence int) (int64, error) {
	n, err := r.ReadSeeker.Seek(offset, whence)
	if err != nil {
		r.err = err
	}
	return n, err
}
