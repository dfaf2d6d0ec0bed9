package checkpoints

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"

	"github.com/oino-dev/oinod/checkpoints/disk"
)

// Parents notes the directories above the resolved path as they are now, as
// Capture does.
func (w *Workspace) Parents(path string) []Parent {
	p, err := w.locate(path)
	if err != nil {
		return nil
	}
	parents, err := p.seeParents(nil)
	if err != nil {
		return nil
	}
	return p.parentsOf(view{parents: parents})
}

// parentsOf is what a capture notes of the directories above p.
func (p place) parentsOf(v view) []Parent {
	var noted []Parent
	for _, s := range v.parents {
		if s.kind == Dir && s.mode != 0o755 {
			noted = append(noted, Parent{Path: p.root.path(s.rel), Mode: s.mode})
		}
	}
	if n := len(v.parents); n > 0 && v.parents[n-1].kind != Dir {
		// Nothing is below what is missing, or is no directory.
		first := v.parents[n-1].rel
		for i := len(first); i <= len(p.rel); i++ {
			if i < len(p.rel) && p.rel[i] == '/' {
				noted = append(noted, Parent{Path: p.root.path(p.rel[:i]), Absent: true})
			}
		}
	}
	return noted
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
	seen  map[dirName]parent
	above map[dirName][]parent // a directory with those above it, outermost first
	disks map[*root]disk.Root
}

// dirName is a directory of a root.
type dirName struct {
	root *root
	rel  string
}

func newParents() *parents {
	return &parents{seen: map[dirName]parent{}, above: map[dirName][]parent{}, disks: map[*root]disk.Root{}}
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
	key := dirName{p.root, rel}
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
// outermost first, up to the first that is none. The caller does not change them.
func (p place) seeParents(dirs *parents) ([]parent, error) {
	end := strings.LastIndexByte(p.rel, '/')
	if end < 0 {
		return nil, nil
	}
	dir := dirName{p.root, p.rel[:end]}
	if above := dirs.row(dir); above != nil {
		return above, nil
	}
	above := make([]parent, 0, strings.Count(p.rel, "/"))
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
	dirs.note(dir, above)
	return above, nil
}

// row are a directory and those above it, if they were seen together before.
func (m *parents) row(dir dirName) []parent {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.above[dir]
}

func (m *parents) note(dir dirName, above []parent) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.above[dir] = above
}
