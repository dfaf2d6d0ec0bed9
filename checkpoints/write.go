package checkpoints

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/oino-dev/oinod/checkpoints/blobs"
	"github.com/oino-dev/oinod/checkpoints/disk"
)

// maxName is how many bytes a name may have on nearly every file system.
const maxName = 255

// Read returns the bytes of the regular file at the resolved path, at most
// limit of them (more is an error).
func (w *Workspace) Read(path string, limit int64) ([]byte, error) {
	p, err := w.locate(path)
	if err != nil {
		return nil, err
	}
	var content []byte
	v, err := p.view(nil, nil, func(f disk.File, size int64) (State, error) {
		if size > limit {
			return State{}, takeError{fmt.Errorf("%s: %d bytes, which is more than the limit of %d", path, size, limit)}
		}
		content = make([]byte, size+1)
		n, err := io.ReadFull(f, content)
		if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
			return State{}, err
		}
		content = content[:n]
		return State{Kind: File, Size: int64(n)}, nil
	})
	if err != nil {
		return nil, err
	}
	switch v.state.Kind {
	case File:
		return content, nil
	case Absent:
		return nil, fmt.Errorf("%s: %w", path, fs.ErrNotExist)
	case Uncovered:
		if v.state.Reason == Unreadable {
			return nil, fmt.Errorf("%s: cannot be read: %w", path, v.cause)
		}
	}
	return nil, &PathError{path, badPath, fmt.Sprintf("is %s, and only a regular file is read", article(v.state))}
}

// Write replaces the regular file at the resolved path by data, atomically and
// durably, keeping its mode (and owner where it may), or makes it with its parents
// (0644 and 0755, less the umask). It refuses to put a file where something
// of another kind is, and does not write over a file that somebody else makes
// at the last moment. It returns the state that it left.
//
// The file is a new one under the old name: other names of the old file (hard
// links) keep the old bytes. After an error there is what was there before,
// except where only the last sync failed. temp, from TempName, is the unique
// part of the temporary name: a caller that notes it first can Sweep what a
// crash left. was is what the caller has seen, and kept, of what is there: where
// it is something else by now nothing is written, and the error is ErrAppeared.
// An Unknown one is whatever is there.
func (w *Workspace) Write(path string, data []byte, temp string, was State) (State, error) {
	p, err := w.locate(path)
	if err != nil {
		return State{}, err
	}
	v, s, err := w.writable(p, data)
	if err == nil && was.Kind != Unknown {
		if above := v.parents; v.info != nil {
			v, err = p.viewSelf(digest)
			v.parents = above
		}
		if err == nil && !v.state.Same(was) {
			err = fmt.Errorf("%s: %w", p.path, ErrAppeared)
		}
	}
	if err != nil {
		return State{}, err
	}
	made, err := p.makeParents(v)
	if err == nil {
		err = w.replace(p, v, s, data, temp)
	}
	if err != nil {
		for _, dir := range slices.Backward(made) {
			twice(func() error { return p.disk.Remove(dir) }) // goes only if it is still empty
		}
		return State{}, err
	}
	if err := p.disk.SyncDir(p.dir()); err != nil {
		return State{}, fmt.Errorf("%s: is written, but the disk did not confirm it: %w", p.path, cause(err))
	}
	return s, nil
}

// TempName is the unique part of a new temporary name.
func (w *Workspace) TempName() string { return w.tempNames() }

// Sweep removes what a Write of path with temp left when a crash cut it off: what
// it was to leave, whole or its beginning, or what was there, one of known. What
// somebody else has saved in its last instant gets its name back, if the path
// is still what Write has left, and is kept otherwise: kept is where.
func (w *Workspace) Sweep(path, temp string, left State, known []State) (kept string, err error) {
	p, err := w.locate(path)
	if err != nil {
		return "", err
	}
	q := p.sibling(tempNear(p.rel, temp))
	v, _ := q.viewSelf(digest)
	if v.state.Kind == Absent {
		return "", nil
	}
	if !w.isLeftover(q, v, append(known, left)) {
		now, _ := p.viewSelf(digest)
		if !now.state.Same(left) || twice(func() error { return q.exchange(p) }) != nil {
			return q.path, nil
		}
	}
	if err := twice(q.remove); err != nil && !absent(err) {
		return "", fmt.Errorf("%s: what a cut-off write left cannot be removed: %w", q.path, cause(err))
	}
	return "", nil
}

// isLeftover reports whether what v saw under the temporary name q is one of
// what we know, and have kept, or the beginning of one.
func (w *Workspace) isLeftover(q place, v view, known []State) bool {
	return slices.ContainsFunc(known, func(s State) bool {
		if s.Kind == File && v.state.Kind == File && v.state.Digest == s.Digest || v.state.Same(s) {
			return true
		}
		return s.Kind == File && v.state.Kind == File && v.state.Size < s.Size && (v.state.Size == 0 || w.begins(q, v.state.Size, s))
	})
}

// begins reports whether the size bytes at q are the first of the kept content s.
func (w *Workspace) begins(q place, size int64, s State) bool {
	f, err := q.open(openFile, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	same := &sameBytes{r: f, left: size}
	_, err = w.blobs.WriteTo(same, s.Digest)
	return errors.Is(err, errSame) || err == nil && same.left == 0
}

// sameBytes compares what is written to it with what r holds, for a while.
type sameBytes struct {
	r    io.Reader
	left int64
}

var errSame, errOther = errors.New("the same"), errors.New("another")

func (c *sameBytes) Write(b []byte) (int, error) {
	n := min(int64(len(b)), c.left)
	is := make([]byte, n)
	if _, err := io.ReadFull(c.r, is); err != nil || !bytes.Equal(is, b[:n]) {
		return 0, errOther
	}
	if c.left -= n; c.left == 0 {
		return int(n), errSame
	}
	return len(b), nil
}

// replace puts data at p, in the place of the file that v has seen, or of none.
func (w *Workspace) replace(p place, v view, s State, data []byte, unique string) error {
	temp := p.sibling(tempNear(p.rel, unique))
	to, old := nobody, v.info
	if old != nil {
		to = ownerOf(old)
	}
	err := temp.stage(s, to, func(f io.Writer) error {
		_, err := f.Write(data)
		return err
	}, true)
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%s: the directory %s cannot be written in: %w", p.path, p.root.path(p.dir()), cause(err))
	}
	if err == nil {
		// The last look.
		if old != nil {
			err = p.still(old)
		}
		switch {
		case err != nil:
		case old != nil:
			err = p.supplant(temp, s, func(q place) (bool, error) {
				info, err := q.lstat()
				if err != nil || stampOf(info).moved() != v.stamp.moved() {
					return false, err
				}
				if v.state.Digest == (blobs.Digest{}) {
					return true, nil
				}
				now, _ := q.viewSelf(digest)
				return now.state.Same(v.state), now.cause
			})
		default:
			err = p.publish(temp)
		}
		if _, stranded := errors.AsType[strandedError](err); err != nil && !stranded {
			twice(temp.remove)
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", p.path, cause(err))
	}
	return nil
}

// StateOf is the state that Write will leave at path, known before it writes.
func (w *Workspace) StateOf(path string, data []byte) (State, error) {
	p, err := w.locate(path)
	if err != nil {
		return State{}, err
	}
	_, s, err := w.writable(p, data)
	return s, err
}

// writable looks at what Write would replace, without reading it, and returns
// the state it would leave.
func (w *Workspace) writable(p place, data []byte) (view, State, error) {
	v, _ := p.view(nil, nil, nil)
	s := State{Kind: File, Mode: keptMode(0o644 &^ w.umask), Size: int64(len(data)), Digest: digestOf(data)}
	if n := len(v.parents); n > 0 && v.parents[n-1].kind != Dir && v.parents[n-1].kind != Absent {
		last := v.parents[n-1]
		return v, State{}, &PathError{p.path, badPath, fmt.Sprintf("%s on the way to it is %s", p.root.path(last.rel), article(State{Kind: last.kind}))}
	}
	switch {
	case v.info != nil && kindOf(v.info) == File:
		s.Mode = modeOf(v.info)
		if err := p.mayWrite(); err != nil {
			return v, State{}, err
		}
	case v.state.Kind == Absent:
		v.info = nil
	case v.state.Kind == Uncovered && v.state.Reason != NotRegular:
		return v, State{}, fmt.Errorf("%s: cannot be seen: %w", p.path, v.cause)
	default:
		return v, State{}, &PathError{p.path, badPath, fmt.Sprintf("is %s, and only a regular file is written over", article(v.state))}
	}
	return v, s, nil
}

// mayWrite refuses a file that the process may not read and write: to put
// another in its place needs only its directory, and would get around that.
func (p place) mayWrite() error {
	for _, flag := range []int{os.O_RDONLY, os.O_WRONLY} {
		f, err := p.disk.OpenFile(p.rel, flag|openFile|disk.NoFollow, 0)
		if err == nil {
			err = f.Close()
		}
		if errors.Is(err, fs.ErrPermission) {
			return &PathError{p.path, badPath, "the permissions of the file do not let oinod read and write it"}
		}
	}
	return nil
}

// makeParents makes the missing directories above p, durably, and returns
// those it made, outermost first.
func (p place) makeParents(v view) (made []string, err error) {
	n := len(v.parents)
	if n == 0 || v.parents[n-1].kind == Dir {
		return nil, nil
	}
	first := v.parents[n-1].rel
	for i := len(first); i < len(p.rel); i++ {
		if p.rel[i] != '/' {
			continue
		}
		dir := p.rel[:i]
		err := p.disk.Mkdir(dir, 0o755)
		if err == nil {
			made = append(made, dir)
			err = p.disk.SyncDir(path.Dir(dir))
		}
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return made, fmt.Errorf("%s: the directory %s cannot be made: %w", p.path, p.root.path(dir), cause(err))
		}
	}
	return made, nil
}

// stage makes the file at p, which must not exist, with the bytes that fill
// writes and the mode of s. It belongs to to where that is somebody and the
// process may give files away. After an error nothing is there.
func (p place) stage(s State, to owner, fill func(io.Writer) error, sync bool) error {
	f, err := p.open(os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode(s.Mode).Perm())
	if err != nil {
		return err
	}
	err = fill(f)
	if err == nil {
		err = p.own(f, s.Mode, to)
	}
	if err == nil && sync {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		twice(p.remove)
	}
	return err
}

// own gives the new file f at p to its owner, and its mode. That it may not be
// given away is no error: nobody but root may. Most files have both already,
// and setting them again would cost as much as half of making the file.
func (p place) own(f disk.File, mode uint32, to owner) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	given := to != nobody && ownerOf(info) != to
	if given && p.lchown(to) != nil {
		p.lchown(owner{-1, to.gid})
	}
	if !given && modeOf(info) == mode {
		return nil
	}
	return f.Chmod(fileMode(mode)) // after the owner: giving away takes bits off
}

// ErrAppeared is a path where something is that was not there a moment ago, or
// that was something else: somebody else is at work there.
var ErrAppeared = errors.New("something else appeared there at the last moment")

// publish gives the file staged at temp the name p, where nothing is,
// atomically and over nobody. The error of a failed publish leaves both as they
// were, unless it is a leftoverError.
func (p place) publish(temp place) error {
	err := temp.link(p)
	switch {
	case err == nil:
		if err := twice(temp.remove); err != nil && !absent(err) {
			return leftoverError{temp.path, err}
		}
		return nil
	case errors.Is(err, fs.ErrExist):
		return ErrAppeared
	case !noLinks(err):
		return err
	}
	switch _, err := p.lstat(); {
	case err == nil:
		return ErrAppeared
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	return temp.rename(p)
}

// leftoverError is a temporary name that stays beside what is in place.
type leftoverError struct {
	at  string
	err error
}

func (e leftoverError) Error() string {
	return fmt.Sprintf("it is in place, but its temporary name %s could not be removed: %v", e.at, cause(e.err))
}

func (e leftoverError) Unwrap() error { return e.err }

// strandedError is what somebody saved at a path in the last moment and what
// could not be given its name back.
type strandedError struct {
	at  string // where it is
	err error
}

func (e strandedError) Error() string {
	return fmt.Sprintf("%v, and it is kept as %s, for it could not be put back: %v", ErrAppeared, e.at, cause(e.err))
}

func (e strandedError) Unwrap() error { return ErrAppeared }

// supplant gives what is staged at temp, which is in state s, the name p in the
// place of what is there, atomically. The two are swapped, and what was there is
// removed if isOld knows it, now that nobody finds it by its name any more:
// what was saved after the last look gets its name back. Where the system cannot
// swap, that is lost, and there is no work of ours in that instant. A failed
// supplant leaves both as they were, unless it is a strandedError.
func (p place) supplant(temp place, s State, isOld func(place) (bool, error)) error {
	err := temp.exchange(p)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		return temp.rename(p)
	case errors.Is(err, fs.ErrNotExist):
		if _, lerr := temp.lstat(); lerr == nil {
			return ErrAppeared // or rather, what was there has gone
		}
		return err
	case err != nil:
		return err
	}
	old, failed := isOld(temp)
	switch {
	case failed != nil:
	case !old:
		failed = ErrAppeared
	default:
		if failed = twice(temp.remove); failed == nil {
			return nil
		}
	}
	if err := twice(func() error { return temp.exchange(p) }); err != nil {
		return strandedError{temp.path, err}
	}
	switch v, _ := temp.viewSelf(digest); {
	case v.state.Kind == s.Kind && v.state.Digest == s.Digest && v.state.Target == s.Target:
		// Ours, whatever mode somebody gave it meanwhile.
	case v.cause != nil || twice(func() error { return temp.exchange(p) }) != nil:
		return strandedError{temp.path, errors.New("something else was saved meanwhile")}
	default:
		// Saved once more: the newest has the name, and the one before is kept.
		return strandedError{temp.path, errors.New("something newer was saved meanwhile")}
	}
	return failed
}

// still checks that p is what info is of.
func (p place) still(info fs.FileInfo) error {
	now, err := p.lstat()
	if err != nil && !absent(err) {
		return err
	}
	if err != nil || !sameThing(now, info) {
		return ErrAppeared
	}
	return nil
}

// tempNear is a name beside rel with a unique part: ".a.go.oino-k3j9x2". It keeps the beginning of
// rel's own name, so that whoever sees one knows what it is of.
func tempNear(rel, unique string) string {
	dir, name := path.Split(rel)
	suffix := ".oino-" + unique
	for len(name) > min(80, maxName-1-len(suffix)) {
		_, size := utf8.DecodeLastRuneInString(name)
		name = name[:len(name)-size]
	}
	return dir + "." + strings.TrimLeft(name, ".") + suffix
}

// article names what a state is, for the middle of a sentence.
func article(s State) string {
	switch s.Kind {
	case Absent:
		return "missing"
	case File:
		return "a file"
	case Symlink:
		return "a link"
	case Dir:
		return "a directory"
	}
	if s.Reason == Unreadable {
		return "unreadable"
	}
	return "a pipe, socket or device"
}
