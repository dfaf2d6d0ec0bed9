package checkpoints

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/oino-dev/oinod/checkpoints/blobs"
	"github.com/oino-dev/oinod/checkpoints/disk"
)

// Config is what a Workspace is opened with.
type Config struct {
	Roots     []string // absolute directories as the client gave them, cwd first
	AgentDir  string   // never part of a root, wherever it lies
	Blobs     *blobs.Store
	MaxKept   int64                               // bytes of one file whose contents Capture keeps (maxSnapshotBytes)
	OpenRoot  func(dir string) (disk.Root, error) // nil: disk.Open
	TempNames func() string                       // nil: random; the unique part of a temporary name
	// MayBeGone opens the workspace although roots are not there: their paths
	// cannot be seen until they are. See Gone.
	MayBeGone bool
}

// Workspace is the roots of one session. It is safe for concurrent use; what
// changes files is one call at a time, which is the session's to see to.
type Workspace struct {
	blobs     contents
	maxKept   int64
	openRoot  func(dir string) (disk.Root, error)
	tempNames func() string
	agentDir  string  // its real path, "" for none
	umask     uint32  // of the process, as it was when the workspace was opened
	roots     []*root // none inside another, in the client's order

	mu     sync.Mutex
	looked map[string]*seen // what LookAll has read, for the Prepare that follows
}

// contents is what a Workspace needs of a *blobs.Store.
type contents interface {
	Put(content []byte) (blobs.Digest, error)
	PutFrom(r io.ReadSeeker) (blobs.Digest, int64, error)
	Sync() error
	Get(d blobs.Digest, limit int64) ([]byte, error)
	WriteTo(w io.Writer, d blobs.Digest) (int64, error)
	Check(d blobs.Digest) error
	Has(d blobs.Digest) bool
}

// root is one directory of a workspace.
type root struct {
	spelled string // as the client gave it, cleaned: how answers begin
	real    string // without links: where it lies
	inGit   bool   // it lies below a .git itself, and nothing of it may be named

	mu    sync.Mutex
	disk  disk.Root
	ident ident // of the directory that disk is, where the system tells
}

// OpenWorkspace opens every root. One that is no directory is a *PathError.
// A root inside another root uses the outer one's.
func OpenWorkspace(c Config) (*Workspace, error) {
	w := &Workspace{
		blobs:     c.Blobs,
		maxKept:   c.MaxKept,
		openRoot:  c.OpenRoot,
		tempNames: c.TempNames,
		umask:     processUmask(),
	}
	if w.openRoot == nil {
		w.openRoot = disk.Open
	}
	if w.tempNames == nil {
		w.tempNames = func() string { return strings.ToLower(rand.Text()[:10]) }
	}
	if c.AgentDir != "" {
		w.agentDir = realPath(c.AgentDir)
	}
	var given []*root
	for _, dir := range c.Roots {
		if !filepath.IsAbs(dir) || strings.ContainsRune(dir, 0) {
			return nil, &PathError{dir, badPath, "a root must be an absolute path"}
		}
		r := &root{spelled: filepath.Clean(dir), real: realPath(dir)}
		r.inGit = namesGit(r.real)
		given = append(given, r)
	}
	for i, r := range given {
		outermost := true
		for j, o := range given {
			if o.real == r.real && j < i || o.real != r.real && within(o.real, r.real) {
				outermost = false
			}
		}
		if !outermost {
			switch fi, err := os.Stat(r.real); {
			case err == nil && !fi.IsDir():
				w.Close()
				return nil, &PathError{r.spelled, badPath, "is no directory"}
			case err != nil && !c.MayBeGone:
				w.Close()
				return nil, &PathError{r.spelled, badPath, fmt.Sprintf("cannot be opened as a directory: %v", cause(err))}
			}
			continue
		}
		if err := r.open(w.openRoot); err != nil && !(c.MayBeGone && errors.Is(err, fs.ErrNotExist)) {
			w.Close()
			return nil, &PathError{r.spelled, badPath, fmt.Sprintf("cannot be opened as a directory: %v", cause(err))}
		}
		w.roots = append(w.roots, r)
	}
	return w, nil
}

// Close closes the roots.
func (w *Workspace) Close() error {
	var errs []error
	for _, r := range w.roots {
		r.mu.Lock()
		if r.disk != nil {
			errs = append(errs, r.disk.Close())
		}
		r.mu.Unlock()
	}
	return errors.Join(errs...)
}

// Gone returns why a root that was not there when the workspace was opened
// still is not, or nil.
func (w *Workspace) Gone() error {
	for _, r := range w.roots {
		if _, err := r.current(w.openRoot); r.disk == nil && err != nil {
			return &PathError{r.spelled, badPath, "the directory is not there; nothing in it can be seen or changed until it is back"}
		}
	}
	return nil
}

// open opens the directory and notes which one it is.
func (r *root) open(openRoot func(string) (disk.Root, error)) error {
	d, err := openRoot(r.real)
	if err != nil {
		return err
	}
	r.disk, r.ident = d, ident{}
	if fi, err := os.Lstat(r.real); err == nil {
		if of, err := d.Lstat("."); err == nil && identOf(fi) == identOf(of) {
			r.ident = identOf(fi)
		}
	}
	return nil
}

// current returns the disk of the directory that has the root's name now. A
// root that was removed and made anew (a fresh clone in its place) is another
// directory: through the old one every path would look absent.
func (r *root) current(openRoot func(string) (disk.Root, error)) (disk.Root, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.disk == nil {
		if err := r.open(openRoot); err != nil {
			return nil, fmt.Errorf("the root %s cannot be opened: %w", r.spelled, cause(err))
		}
		return r.disk, nil
	}
	if r.ident == (ident{}) {
		return r.disk, nil
	}
	fi, err := os.Lstat(r.real)
	if err == nil && identOf(fi) == r.ident {
		return r.disk, nil
	}
	if err == nil && !fi.IsDir() {
		err = errors.New("it is no directory any more")
	}
	if err != nil {
		return nil, fmt.Errorf("the root %s cannot be seen: %w", r.spelled, cause(err))
	}
	old := r.disk
	if err := r.open(openRoot); err != nil {
		return nil, fmt.Errorf("the root %s cannot be opened: %w", r.spelled, cause(err))
	}
	old.Close() // an operation under way in it fails, as is right: it is gone
	return r.disk, nil
}

// join puts rel, slash-separated, below the directory dir.
func join(dir, rel string) string {
	if rel == "." || rel == "" {
		return dir
	}
	if os.IsPathSeparator(dir[len(dir)-1]) { // the root directory itself
		return dir + filepath.FromSlash(rel)
	}
	return dir + string(filepath.Separator) + filepath.FromSlash(rel)
}

// within reports whether path is dir or lies below it; both are clean.
func within(dir, path string) bool {
	if !strings.HasPrefix(path, dir) {
		return false
	}
	return len(path) == len(dir) || os.IsPathSeparator(path[len(dir)]) || os.IsPathSeparator(dir[len(dir)-1])
}

// relTo is path, which is within dir, relative to dir and with slashes.
func relTo(dir, path string) string {
	rel := strings.TrimPrefix(filepath.ToSlash(path[len(dir):]), "/")
	if rel == "" {
		return "."
	}
	return rel
}

// realPath is path with the links of what exists of it resolved.
func realPath(path string) string {
	path = filepath.Clean(path)
	real, err := filepath.EvalSymlinks(path)
	if err == nil {
		return real
	}
	dir := filepath.Dir(path)
	if dir == path || !errors.Is(err, fs.ErrNotExist) {
		return path
	}
	return filepath.Join(realPath(dir), filepath.Base(path))
}
