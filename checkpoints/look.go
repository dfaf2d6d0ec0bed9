package checkpoints

import (
	"crypto/sha256"
	"errors"
	"io"
	"io/fs"
	"path"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/oino-dev/oinod/checkpoints/disk"
)

const (
	// looks is how often a path that changes under the eye is looked at.
	looks = 3
	// maxBelow is how many paths of a directory a Sight lists.
	maxBelow = 50_000
)

// Look says what the resolved path is now. It reads a regular file for its
// digest, never opens anything else, and never fails: what cannot be seen is
// Uncovered.
func (w *Workspace) Look(path string) Sight {
	return w.look(path, nil, nil)
}

// LookAll looks at every path, several at a time. It is much faster than as
// many calls of Look: parents are looked at once. What it has seen is kept for
// the Prepare or Verify of the plan that is made of it, which comes next.
func (w *Workspace) LookAll(paths []string) []Sight {
	sights, views := make([]Sight, len(paths)), make([]view, len(paths))
	dirs := newParents()
	each(len(paths), func(i int) string { return paths[i] }, func(h *handle, i int) { sights[i], views[i] = w.sight(paths[i], dirs, h) })
	looked, seens := make(map[string]*seen, len(paths)), make([]seen, len(paths))
	for i := range views {
		if views[i].state.Kind == File {
			seens[i] = seenNow(&views[i])
			looked[paths[i]] = &seens[i]
		}
	}
	w.mu.Lock()
	w.looked = looked
	w.mu.Unlock()
	return sights
}

// lastSeen hands over what LookAll has read, once.
func (w *Workspace) lastSeen() map[string]*seen {
	w.mu.Lock()
	defer w.mu.Unlock()
	last := w.looked
	w.looked = nil
	return last
}

func (w *Workspace) look(path string, dirs *parents, h *handle) Sight {
	s, _ := w.sight(path, dirs, h)
	return s
}

func (w *Workspace) sight(path string, dirs *parents, h *handle) (Sight, view) {
	p, err := dirs.locate(w, path)
	if e, ok := errors.AsType[*PathError](err); ok {
		return Sight{State: State{Kind: Uncovered, Reason: Unreadable}, Err: e.Msg, Outside: e.Kind == outsideRoots}, view{}
	}
	if err != nil {
		return Sight{State: State{Kind: Uncovered, Reason: Unreadable}, Err: cause(err).Error()}, view{}
	}
	v, _ := p.view(dirs, h, digest)
	s := Sight{State: v.state, Err: v.err}
	if len(v.parents) > 0 {
		if last := v.parents[len(v.parents)-1]; last.kind != Dir && last.kind != Absent {
			s.Blocked, s.BlockedBy = p.root.path(last.rel), last.kind
		}
	}
	if s.State.Kind == Dir {
		l := lister{p: p, skip: w.refuse}
		l.list(p.rel)
		s.Below, s.BelowMore = l.below, l.more
	}
	return s, v
}

// view is what was seen at a place.
type view struct {
	state   State
	err     string      // of an unreadable state: why
	cause   error       // the same
	info    fs.FileInfo // nil unless something is there
	stamp   stamp       // of info, when the state was taken
	at      time.Time   // before the state was taken
	parents []parent    // outermost first, up to the first that is no directory
}

// taker reads a regular file, whose size is as given, and returns what it is.
// An error that is a takeError ends the view.
type taker func(f disk.File, size int64) (State, error)

// takeError is a failure that has nothing to do with the file taken.
type takeError struct{ error }

func (e takeError) Unwrap() error { return e.error }

// digest takes a file's digest.
func digest(f disk.File, size int64) (State, error) {
	buf := reading.Get().(*[readSize]byte)
	defer reading.Put(buf)
	if size < readSize {
		n, err := readFull(f, buf[:size+1])
		return State{Kind: File, Size: int64(n), Digest: sha256.Sum256(buf[:n])}, err
	}
	h := sha256.New()
	n, err := io.CopyBuffer(h, io.LimitReader(f, size+1), buf[:])
	if err != nil {
		return State{}, err
	}
	s := State{Kind: File, Size: n}
	h.Sum(s.Digest[:0])
	return s, nil
}

// readSize is up to which size a file is read at once.
const readSize = 64 << 10

// reading are buffers for files on their way. Without it, getting memory for
// each is a quarter of the time that a look at a small file takes.
var reading = sync.Pool{New: func() any { return new([readSize]byte) }}

// readFull reads all there is, up to len(b) bytes.
func readFull(f disk.File, b []byte) (int, error) {
	n, err := io.ReadFull(f, b)
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		err = nil
	}
	return n, err
}

// view looks at a place: its parents, then itself without following a link,
// then, if it is a regular file, its bytes through take. What changes while it
// is looked at is looked at again. The error is take's own; with a nil take no
// file is opened, and its digest stays unknown.
func (p place) view(dirs *parents, h *handle, take taker) (view, error) {
	above, err := p.seeParents(dirs)
	if err != nil {
		return view{state: State{Kind: Uncovered, Reason: Unreadable}, err: err.Error(), cause: err, parents: above}, nil
	}
	if n := len(above); n > 0 && above[n-1].kind != Dir && utf8.ValidString(p.path) {
		return view{state: State{Kind: Absent}, parents: above}, nil
	}
	if h != nil && (len(above) == 0 || above[len(above)-1].kind == Dir) {
		in, err := h.enter(p)
		if err != nil { // it is another than it was a moment ago
			return p.view(nil, nil, take)
		}
		p = in
	}
	v, err := p.viewSelf(take)
	v.parents = above
	return v, err
}

// viewSelf is view without the parents, which the caller has seen.
func (p place) viewSelf(take taker) (view, error) {
	unreadable := func(err error) (view, error) {
		return view{state: State{Kind: Uncovered, Reason: Unreadable}, err: cause(err).Error(), cause: cause(err)}, nil
	}
	if !utf8.ValidString(p.path) {
		return view{state: State{Kind: Uncovered, Reason: BadName}}, nil
	}
	for range looks {
		at := time.Now()
		info, err := p.lstat()
		if errors.Is(err, fs.ErrNotExist) {
			return view{state: State{Kind: Absent}}, nil
		}
		if errors.Is(err, syscall.ENOTDIR) {
			continue // a parent that was a directory is none now
		}
		if err != nil {
			return unreadable(err)
		}
		v := view{info: info, stamp: stampOf(info), at: at}
		switch kindOf(info) {
		case Dir:
			v.state = State{Kind: Dir, Mode: modeOf(info)}
			return v, nil
		case Symlink:
			target, err := p.readlink()
			if absent(err) || errors.Is(err, syscall.EINVAL) {
				continue
			}
			if err != nil {
				return unreadable(err)
			}
			v.state = State{Kind: Symlink, Target: target}
			return v, nil
		case File:
			if take == nil {
				v.state = State{Kind: File, Mode: modeOf(info), Size: info.Size()}
				return v, nil
			}
			state, info, err := p.take(info, take)
			if e, ok := errors.AsType[takeError](err); ok {
				return v, e.error
			}
			if absent(err) || errors.Is(err, errChanged) {
				continue
			}
			if err != nil {
				return unreadable(err)
			}
			v.state, v.info, v.stamp = state, info, stampOf(info)
			return v, nil
		default:
			v.state = State{Kind: Uncovered, Reason: NotRegular}
			return v, nil
		}
	}
	return unreadable(errChanged)
}

// take reads the file that info is of through take. errChanged: something else
// has its name now, or it changed while it was read.
func (p place) take(info fs.FileInfo, take taker) (State, fs.FileInfo, error) {
	f, err := p.open(openFile, 0)
	if err != nil {
		// A link that came there in between may lead to any error.
		if now, lerr := p.lstat(); lerr == nil && !sameThing(info, now) {
			err = errChanged
		}
		return State{}, nil, err
	}
	defer f.Close()
	before, err := f.Stat()
	if err != nil {
		return State{}, nil, err
	}
	if !sameThing(info, before) {
		return State{}, nil, errChanged
	}
	s, err := take(f, before.Size())
	if err != nil {
		return State{}, nil, err
	}
	after, err := f.Stat()
	if err != nil {
		return State{}, nil, err
	}
	if !sameThing(before, after) || s.Size != before.Size() {
		return State{}, nil, errChanged
	}
	s.Mode = modeOf(after)
	return s, after, nil
}

// lister lists what is below a directory.
type lister struct {
	p     place
	skip  func(r *root, rel, given string) error
	below []string
	more  bool // there is more, or something could not be listed
}

func (l *lister) list(dir string) {
	if l.more {
		return
	}
	names, err := listDir(l.p.disk, dir, maxBelow-len(l.below)+1)
	if err != nil {
		l.more = true
		return
	}
	for _, e := range names {
		if len(l.below) == maxBelow {
			l.more = true
			return
		}
		rel := path.Join(dir, e.Name())
		l.below = append(l.below, l.p.root.path(rel))
		// Nothing below what is refused is anybody's business: the name alone
		// keeps the directory.
		if e.IsDir() && l.skip(l.p.root, rel, rel) == nil {
			l.list(rel)
		}
	}
}

// listDir lists at most n entries of a directory.
func listDir(d disk.Root, dir string, n int) ([]fs.DirEntry, error) {
	f, err := d.OpenFile(dir, openDir, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	entries, err := f.ReadDir(n)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return entries, err
}
