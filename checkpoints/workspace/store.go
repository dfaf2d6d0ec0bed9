package workspace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/oino-dev/oinod/checkpoints"
	"github.com/oino-dev/oinod/checkpoints/blobs"
	"github.com/oino-dev/oinod/checkpoints/disk"
)

// topDir holds a directory for each tracked tree.
const topDir = "workspaces"

// Limits bound what of a tree is tracked.
type Limits struct {
	MaxFiles int   // files, links and directories of one root
	MaxBytes int64 // of all files of one root that are kept
	MaxKept  int64 // of one file whose contents are kept
}

// DefaultLimits are those of settings that say nothing.
var DefaultLimits = Limits{MaxFiles: 200_000, MaxBytes: 2 << 30, MaxKept: 16 << 20}

// Config is what a Store is made with.
type Config struct {
	Root     disk.Root // the agent directory
	AgentDir string    // its path: skipped wherever it lies
	Blobs    *blobs.Store
	Home     string // the user's home directory, which is never tracked as a whole; "": not known
	Limits   Limits
	Include  []string         // lines as of a .gitignore, relative to each root: covered whatever else excludes it
	Exclude  []string         // the same: not covered
	Now      func() time.Time // nil: time.Now
	machine  machine          // nil: the real one
}

// Store is the tracked trees of an agent directory. It is safe for concurrent
// use; sessions of one process share it, and with it the stat caches.
type Store struct {
	root     disk.Root
	agentDir string
	blobs    *blobs.Store
	home     string
	limits   Limits
	include  []string
	exclude  []string
	now      func() time.Time
	machine  machine
	procs    int
	compact  int64 // how long a journal may get, beside three times its base

	mu     sync.Mutex
	trees  map[string]*tree       // by directory; those that a Workspace uses
	left   map[string][]unwritten // of trees that nobody uses any more, by directory
	roots  map[string]string      // of every tree of the agent directory that was met, by directory
	bare   map[string]time.Time   // mtimes of those that had no journal
	listed treeList
}

// New returns the store. It reads nothing yet.
func New(c Config) *Store {
	s := &Store{
		root: c.Root, agentDir: realPath(c.AgentDir), blobs: c.Blobs, limits: c.Limits,
		include: c.Include, exclude: c.Exclude, now: c.Now, machine: c.machine,
		procs: runtime.GOMAXPROCS(0), compact: compactAbove, trees: map[string]*tree{}, left: map[string][]unwritten{}, roots: map[string]string{}, bare: map[string]time.Time{},
	}
	if c.Home != "" {
		s.home = realPath(c.Home)
	}
	if s.now == nil {
		s.now = time.Now
	}
	if s.machine == nil {
		s.machine = osMachine{}
	}
	return s
}

// Workspace is the roots of one session, tracked. It is safe for concurrent use.
type Workspace struct {
	session string
	store   *Store
	roots   []*trackedRoot
	closing sync.Once
}

// trackedRoot is a root as a session names it.
type trackedRoot struct {
	spelled string
	tree    *tree
}

// Open returns the workspace of a session with these roots, absolute
// directories as the client gave them. One inside another uses the outer one's
// captures. Nothing is read yet.
func (s *Store) Open(session string, roots []string) (*Workspace, error) {
	w := &Workspace{session: session, store: s}
	var real []string
	for _, r := range roots {
		if !filepath.IsAbs(r) {
			return nil, fmt.Errorf("a root must be an absolute path, not %q", r)
		}
		real = append(real, realPath(r))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, r := range real {
		outermost := true
		for j, o := range real {
			if o == r && j < i || o != r && within(o, r) {
				outermost = false
			}
		}
		if outermost {
			w.roots = append(w.roots, &trackedRoot{spelled: filepath.Clean(roots[i]), tree: s.tree(r)})
		}
	}
	return w, nil
}

// tree returns the tree of a root. The caller holds s.mu.
func (s *Store) tree(root string) *tree {
	dir := topDir + "/" + checkpoints.WorkspaceKey(root)
	t := s.trees[dir]
	if t == nil {
		t = &tree{store: s, root: root, dir: dir, door: make(chan struct{}, 1), unwritten: s.left[dir]}
		t.reset()
		delete(s.left, dir)
		s.trees[dir] = t
	}
	t.refs++
	return t
}

// Close lets the stat caches go that nobody else uses. What the workspace has
// captured stays held.
func (w *Workspace) Close() error {
	var errs []error
	w.closing.Do(func() {
		for _, r := range w.roots {
			errs = append(errs, w.store.leave(r.tree))
		}
	})
	return errors.Join(errs...)
}

func (s *Store) leave(t *tree) error {
	s.mu.Lock()
	t.refs--
	last := t.refs == 0
	if last {
		delete(s.trees, t.dir)
		s.left[t.dir] = t.unwritten
	}
	s.mu.Unlock()
	if !last {
		return nil
	}
	// Nobody can come to it any more.
	leave, err := t.enter(context.Background())
	if err != nil {
		return err
	}
	defer leave()
	if len(t.queued) > 0 {
		if unlock, err := lockFile(context.Background(), s.root, t.dir+"/"+lockName); err == nil {
			if t.refresh() == nil && t.writer != nil {
				_ = t.append(nil, nil) // what it releases is held on, else
			}
			_ = unlock()
		}
	}
	t.reset()
	return nil
}

// Roots are the roots as the client gave them, without those inside another.
func (w *Workspace) Roots() []string {
	var all []string
	for _, r := range w.roots {
		all = append(all, r.spelled)
	}
	return all
}

// path is what a session calls rel.
func (r *trackedRoot) path(rel string) string {
	if rel == "" {
		return r.spelled
	}
	if os.IsPathSeparator(r.spelled[len(r.spelled)-1]) {
		return r.spelled + filepath.FromSlash(rel)
	}
	return r.spelled + string(filepath.Separator) + filepath.FromSlash(rel)
}

// locate is the root of a path, as a session names it, and its name there;
// nil where it is in none.
func (w *Workspace) locate(path string) (*trackedRoot, string) {
	var best *trackedRoot
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

// within reports whether path is dir or lies below it; both are clean.
func within(dir, path string) bool {
	if !strings.HasPrefix(path, dir) {
		return false
	}
	return len(path) == len(dir) || os.IsPathSeparator(path[len(dir)]) || os.IsPathSeparator(dir[len(dir)-1])
}

// relTo is path, which is within dir, relative to it and with slashes.
func relTo(dir, path string) string {
	return strings.TrimPrefix(filepath.ToSlash(path[len(dir):]), "/")
}

// realPath is path with the links of what exists of it resolved.
func realPath(path string) string {
	if path == "" {
		return ""
	}
	path = filepath.Clean(path)
	real, err := filepath.EvalSymlinks(path)
	if err == nil {
		return real
	}
	dir := filepath.Dir(path)
	if dir == path || !missing(err) {
		return path
	}
	return filepath.Join(realPath(dir), filepath.Base(path))
}
