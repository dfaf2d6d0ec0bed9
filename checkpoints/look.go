package checkpoints

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/oino-dev/oinod/checkpoints/blobs"
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
// many calls of Look: parents are looked at once.
func (w *Workspace) LookAll(paths []string) []Sight {
	sights := make([]Sight, len(paths))
	dirs := newParents()
	each(len(paths), func(i int) string { return paths[i] }, func(h *handle, i int) { sights[i] = w.look(paths[i], dirs, h) })
	return sights
}

func (w *Workspace) look(path string, dirs *parents, h *handle) Sight {
	p, err := dirs.locate(w, path)
	if err != nil {
		return Sight{State: State{Kind: Uncovered, Reason: Unreadable}, Err: cause(err).Error()}
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
	return s
}

// view is what was seen at a place.
type view struct {
	state   State
	err     string      // of an unreadable state: why
	cause   error       // the same
	info    fs.FileInfo // nil unless something is there
	stamp   stamp       // of info, when the state was taken
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
	h := sha256.New()
	n, err := io.Copy(h, io.LimitReader(f, size+1))
	if err != nil {
		return State{}, err
	}
	s := State{Kind: File, Size: n}
	h.Sum(s.Digest[:0])
	return s, nil
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
		p = h.enter(p)
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
		v := view{info: info, stamp: stampOf(info)}
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

// parent is a directory above a place, as it was seen.
type parent struct {
	rel  string
	kind Kind // Dir, Absent, or what is there instead
	mode uint32
	err  error // why it could not be seen
}

// parents remembers the parents seen in one call of ours. nil remembers none.
type parents struct {
	mu    sync.Mutex
	seen  map[string]parent // by the directory's path
	disks map[*root]disk.Root
}

func newParents() *parents {
	return &parents{seen: map[string]parent{}, disks: map[*root]disk.Root{}}
}

// locate is Workspace.locate, asking once what directory a root is now.
func (m *parents) locate(w *Workspace, path string) (place, error) {
	if m == nil {
		return w.locate(path)
	}
	r, rel := w.rootOf(path)
	m.mu.Lock()
	d := m.disks[r]
	m.mu.Unlock()
	if d == nil {
		p, err := w.locate(path)
		if err == nil {
			m.mu.Lock()
			m.disks[p.root] = p.disk
			m.mu.Unlock()
		}
		return p, err
	}
	if err := w.refuse(r, rel, path); err != nil {
		return place{}, err
	}
	return place{path: path, root: r, disk: d, rel: rel}, nil
}

func (m *parents) see(p place, rel string) parent {
	if m == nil {
		return p.seeParent(rel)
	}
	key := p.root.path(rel)
	m.mu.Lock()
	s, ok := m.seen[key]
	m.mu.Unlock()
	if !ok {
		s = p.seeParent(rel)
		m.mu.Lock()
		m.seen[key] = s
		m.mu.Unlock()
	}
	return s
}

func (p place) seeParent(rel string) parent {
	s := parent{rel: rel}
	info, err := p.disk.Lstat(rel)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		s.kind = Absent
	case err != nil:
		s.err = err
	default:
		if s.kind = kindOf(info); s.kind == Dir {
			s.mode = modeOf(info)
		}
	}
	return s
}

// seeParents looks at the directories between the root and the place,
// outermost first, up to the first that is none.
func (p place) seeParents(dirs *parents) ([]parent, error) {
	n := strings.Count(p.rel, "/")
	if n == 0 {
		return nil, nil
	}
	above := make([]parent, 0, n)
	for i := range len(p.rel) {
		if p.rel[i] != '/' {
			continue
		}
		s := dirs.see(p, p.rel[:i])
		if s.err != nil {
			return above, fmt.Errorf("the directory %s: %w", p.root.path(s.rel), cause(s.err))
		}
		above = append(above, s)
		if s.kind != Dir {
			break
		}
	}
	return above, nil
}

// kindOf is the kind of what info is of; Uncovered for what is never opened.
func kindOf(info fs.FileInfo) Kind {
	switch info.Mode().Type() {
	case 0:
		return File
	case fs.ModeDir:
		return Dir
	case fs.ModeSymlink:
		return Symlink
	}
	return Uncovered
}

// modeOf is the mode of info in the bits of stat(2).
func modeOf(info fs.FileInfo) uint32 {
	m := info.Mode()
	bits := uint32(m.Perm())
	if m&fs.ModeSetuid != 0 {
		bits |= 0o4000
	}
	if m&fs.ModeSetgid != 0 {
		bits |= 0o2000
	}
	if m&fs.ModeSticky != 0 {
		bits |= 0o1000
	}
	return bits
}

// fileMode is the mode of a State as the os package has it.
func fileMode(bits uint32) fs.FileMode {
	m := fs.FileMode(bits & 0o777)
	if bits&0o4000 != 0 {
		m |= fs.ModeSetuid
	}
	if bits&0o2000 != 0 {
		m |= fs.ModeSetgid
	}
	if bits&0o1000 != 0 {
		m |= fs.ModeSticky
	}
	return m
}

// ident says which file of the machine something is; zero where unknown.
type ident struct{ dev, ino uint64 }

// owner is who a file belongs to.
type owner struct{ uid, gid int }

// nobody is the owner where none is known.
var nobody = owner{-1, -1}

// stamp is what a file's change of bytes or mode does not leave alone.
type stamp struct {
	ident
	kind         fs.FileMode
	mode         uint32
	size         int64
	mtime, ctime int64
}

func stampOf(info fs.FileInfo) stamp {
	return stamp{identOf(info), info.Mode().Type(), modeOf(info), info.Size(), info.ModTime().UnixNano(), changeTime(info)}
}

// settled reports whether a change after now would show in the stamp: clocks
// of file systems tick coarsely, some in seconds.
func (s stamp) settled(now time.Time) bool {
	last := max(s.mtime, s.ctime)
	tick := 50 * time.Millisecond
	if s.mtime%int64(time.Second) == 0 {
		tick = 2500 * time.Millisecond
	}
	return s.ident != (ident{}) && s.ctime != 0 && now.UnixNano()-last > int64(tick)
}

// sameThing reports whether a and b are of one thing that did not change in
// between. The inode alone does not tell: a new file often gets the old one's.
func sameThing(a, b fs.FileInfo) bool { return stampOf(a) == stampOf(b) }

// each calls f for 0 … n-1, several at a time where there are many, and then
// in the order of their paths, so that neighbours share a directory that is open.
func each(n int, path func(i int) string, f func(h *handle, i int)) {
	workers := min(runtime.GOMAXPROCS(0), 8)
	if n < 64 || workers < 2 {
		for i := range n {
			f(nil, i)
		}
		return
	}
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	if !slices.IsSortedFunc(order, func(i, j int) int { return cmp.Compare(path(i), path(j)) }) {
		slices.SortFunc(order, func(i, j int) int { return cmp.Compare(path(i), path(j)) })
	}
	const share = 32 // at a time: enough that a directory stays open for a while
	var next atomic.Int64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			h := &handle{}
			defer h.close()
			for {
				from := int(next.Add(share)) - share
				if from >= n {
					return
				}
				for _, i := range order[from:min(from+share, n)] {
					f(h, i)
				}
			}
		})
	}
	wg.Wait()
}

// digestOf is the digest of content.
func digestOf(content []byte) blobs.Digest { return sha256.Sum256(content) }
