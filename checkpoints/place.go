package checkpoints

import (
	"errors"
	"io/fs"
	"path"

	"github.com/oino-dev/oinod/checkpoints/disk"
)

// place is a resolved path: a root, and a name in it. Its operations are those
// of the root on that name.
type place struct {
	path string // as Resolve gave it
	root *root
	disk disk.Root
	rel  string // slash-separated; "." for the root itself

	// in is the directory that holds the place, where a handle has it open;
	// nil goes by the whole name. Opening directory after directory is most of
	// the cost of an operation.
	in disk.Dir
}

// locate finds the root of a resolved path, the one with the longest name
// where several fit, and refuses what no plan or tool may touch.
func (w *Workspace) locate(path string) (place, error) {
	r, rel := w.rootOf(path)
	if r == nil {
		return place{}, &PathError{path, outsideRoots, "is outside the roots of the session"}
	}
	if err := w.refuse(r, rel, path); err != nil {
		return place{}, err
	}
	d, err := r.current(w.openRoot)
	if err != nil {
		return place{}, err
	}
	return place{path: path, root: r, disk: d, rel: rel}, nil
}

// rootOf splits a resolved path into its root and its name there.
func (w *Workspace) rootOf(path string) (*root, string) {
	var best *root
	for _, r := range w.roots {
		if within(r.spelled, path) && (best == nil || len(r.spelled) > len(best.spelled)) {
			best = r
		}
	}
	if best == nil {
		return nil, ""
	}
	return best, relTo(best.spelled, path)
}

// path is the resolved path of rel in r.
func (r *root) path(rel string) string { return join(r.spelled, rel) }

// dir is the directory that holds p.
func (p place) dir() string { return path.Dir(p.rel) }

// sibling is another path of the same root.
func (p place) sibling(rel string) place {
	q := place{path: p.root.path(rel), root: p.root, disk: p.disk, rel: rel}
	if p.in != nil && rel != "." && q.dir() == p.dir() {
		q.in = p.in
	}
	return q
}

// name is the directory to work in and the name there.
func (p place) name() (disk.Dir, string) {
	if p.in != nil {
		return p.in, path.Base(p.rel)
	}
	return p.disk, p.rel
}

func (p place) lstat() (fs.FileInfo, error) {
	d, name := p.name()
	return d.Lstat(name)
}

func (p place) open(flag int, perm fs.FileMode) (disk.File, error) {
	d, name := p.name()
	return d.OpenFile(name, flag, perm)
}

func (p place) readlink() (string, error) {
	d, name := p.name()
	return d.Readlink(name)
}

func (p place) symlink(target string) error {
	d, name := p.name()
	return d.Symlink(target, name)
}

func (p place) remove() error {
	d, name := p.name()
	return d.Remove(name)
}

func (p place) lchown(o owner) error {
	d, name := p.name()
	return d.Lchown(name, o.uid, o.gid)
}

// rename gives what is at p the name q.
func (p place) rename(q place) error {
	if p.in != nil && p.in == q.in {
		return p.in.Rename(path.Base(p.rel), path.Base(q.rel))
	}
	return p.disk.Rename(p.rel, q.rel)
}

// exchange swaps what p and q are of, as one thing, where the system can:
// errors.ErrUnsupported where not.
func (p place) exchange(q place) error {
	if p.in != nil && p.in == q.in {
		return p.in.Exchange(path.Base(p.rel), path.Base(q.rel))
	}
	return p.disk.Exchange(p.rel, q.rel)
}

// link gives what is at p the name q as well.
func (p place) link(q place) error {
	if p.in != nil && p.in == q.in {
		return p.in.Link(path.Base(p.rel), path.Base(q.rel))
	}
	return p.disk.Link(p.rel, q.rel)
}

// handle keeps one directory open, for a worker that goes through the paths of
// a tree in their order.
type handle struct {
	root *root
	dir  string
	in   disk.Dir
}

// enter is p with its directory open; on a disk that has no such thing p as it
// is, which works as well. An error says that the directory is not there, or not where it
// was: on Linux no link is followed to it.
func (h *handle) enter(p place) (place, error) {
	if p.rel == "." {
		return p, nil // no directory of the root's holds it
	}
	if h.in == nil || h.root != p.root || h.dir != p.dir() {
		h.close()
		in, err := disk.OpenDir(p.disk, p.dir())
		if errors.Is(err, errors.ErrUnsupported) {
			return p, nil
		}
		if err != nil {
			return p, err
		}
		*h = handle{p.root, p.dir(), in}
	}
	p.in = h.in
	return p, nil
}

func (h *handle) close() {
	if h.in != nil {
		h.in.Close()
		h.in = nil
	}
}
