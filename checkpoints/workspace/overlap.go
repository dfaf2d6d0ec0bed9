package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/oino-dev/oinod/checkpoints/disk"
	"github.com/oino-dev/oinod/checkpoints/journal"
)

// other is a tree of the agent directory whose root holds one of ours or lies
// in it: somebody else's session, there, wants to know what is ours. Its
// journal is written to without its table being read.
type other struct {
	store *Store
	dir   string
	root  string
}

// errPruned is a tree that is gone, and wants to know nothing.
var errPruned = errors.New("the captures were pruned")

// overlapping lists them.
func (w *Workspace) overlapping(anew bool) ([]other, error) {
	ours := map[string]bool{}
	var roots []string
	for _, r := range w.roots {
		ours[r.tree.dir] = true
		roots = append(roots, r.tree.root)
	}
	all, err := w.store.overlapping(roots, anew)
	return slices.DeleteFunc(all, func(o other) bool { return ours[o.dir] }), err
}

// overlapping lists the trees that overlap one of roots, by directory. Which
// root a tree has is read once.
func (s *Store) overlapping(roots []string, anew bool) ([]other, error) {
	dirs, err := s.treeDirs(anew)
	if err != nil {
		return nil, fmt.Errorf("listing the captures: %w", err)
	}
	var all []other
	for _, dir := range dirs {
		root := s.rootOf(dir)
		if root != "" && slices.ContainsFunc(roots, func(r string) bool { return within(root, r) || within(r, root) }) {
			all = append(all, other{s, dir, root})
		}
	}
	return all, nil
}

// treeList is the directories of the trees, in order, as they were listed last.
type treeList struct {
	dirs  []string
	mtime time.Time
	holds bool // as long as topDir has this mtime
}

// settled is how old a directory's mtime must be to tell of every change that
// comes: no file system that we know of has a clock that stands still for so long.
const settled = 3 * time.Second

// mtime is that of a directory, and whether what is listed now holds as long as
// it stays.
func (s *Store) mtime(dir string) (mtime time.Time, holds bool, err error) {
	info, err := s.root.Lstat(dir)
	if err != nil {
		return mtime, false, err
	}
	return info.ModTime(), s.now().Sub(info.ModTime()) > settled, nil
}

// treeDirs lists the directories of the trees, in order: anew, or where nothing
// can have changed as they were the last time. The caller leaves them as they are.
func (s *Store) treeDirs(anew bool) ([]string, error) {
	mtime, holds, err := s.mtime(topDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	last := s.listed
	s.mu.Unlock()
	if !anew && last.holds && last.mtime.Equal(mtime) {
		return last.dirs, nil
	}
	entries, err := disk.ReadDir(s.root, topDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	now := treeList{mtime: mtime, holds: holds}
	for _, e := range entries {
		now.dirs = append(now.dirs, topDir+"/"+e.Name())
	}
	slices.Sort(now.dirs)
	s.mu.Lock()
	s.listed = now
	s.mu.Unlock()
	return now.dirs, nil
}

// rootOf is the root of the tree in dir, "" where that cannot be told. One that
// has no journal yet is looked at again when something has come to it.
func (s *Store) rootOf(dir string) string {
	s.mu.Lock()
	root, bare := s.roots[dir], s.bare[dir]
	s.mu.Unlock()
	if root != "" {
		return root
	}
	mtime, holds, err := s.mtime(dir)
	if err != nil || !bare.IsZero() && bare.Equal(mtime) {
		return ""
	}
	head, journal := s.headOf(dir)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case head.Root != "":
		s.roots[dir] = head.Root
		delete(s.bare, dir)
	case !journal && holds:
		s.bare[dir] = mtime
	}
	return head.Root
}

// headOf reads the first line of the journal in dir, and whether there is one.
func (s *Store) headOf(dir string) (head headLine, is bool) {
	gen, _, err := newest(s.root, dir)
	if err != nil || gen == 0 {
		return head, err != nil
	}
	f, err := s.root.OpenFile(journalName(dir, gen), os.O_RDONLY, 0)
	if err != nil {
		return head, true
	}
	defer f.Close()
	enough := errors.New("the first line is enough")
	_, _ = journal.Scan(f, maxLine, func(l journal.Line) error {
		if line, err := decodeLine(l.Object); err == nil {
			if h, ok := line.(*headLine); ok {
				head = *h
			}
		}
		return enough
	})
	return head, true
}

// lock takes its lock; errPruned where there is none to take any more.
func (o *other) lock(ctx context.Context) (func(), error) {
	unlock, err := lockFile(ctx, o.store.root, o.dir+"/"+lockName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errPruned // and if it was made anew since, its lock is not had
	}
	if err != nil {
		return nil, err
	}
	return func() { _ = unlock() }, nil
}

// append adds lines to its journal. The caller has its lock.
func (o *other) append(lines [][]byte) error {
	gen, _, err := newest(o.store.root, o.dir)
	if missingFile(err) || err == nil && gen == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	w, _, err := o.open(gen)
	if w == nil {
		return err
	}
	defer w.Close()
	_, err = w.Append(lines...)
	return err
}

// open opens the journal of a generation for appending, and tells its id; nil
// where it is not one that this oinod writes: whoever reads it says what is the
// matter with it.
func (o *other) open(gen uint64) (w *journal.Writer, id string, err error) {
	fits := true
	w, err = journal.OpenWriter(o.store.root, journalName(o.dir, gen), maxLine, func(l journal.Line) error {
		if l.Pos.Offset == 0 {
			line, err := decodeLine(l.Object)
			h, ok := line.(*headLine)
			if fits = err == nil && ok && h.Version <= formatVersion; fits {
				id = h.ID
			}
		}
		return nil
	})
	if err != nil {
		return nil, "", err
	}
	if !fits {
		return nil, "", w.Close()
	}
	return w, id, nil
}

// claims are those of a tree with the root that lie in o's, named from there.
func (o *other) claims(root string, all []claim) []claim {
	var in []claim
	for _, c := range all {
		path := filepath.Join(root, filepath.FromSlash(c.Path))
		if path != o.root && within(o.root, path) {
			c.Path = relTo(o.root, path)
			in = append(in, c)
		}
	}
	return in
}

// tellOverlapping says to the trees that overlap that a turn of the session
// begins, or that it ended.
func (w *Workspace) tellOverlapping(ctx context.Context, begin bool) error {
	others, err := w.overlapping(true)
	if err != nil {
		return err
	}
	for _, o := range others {
		unlock, err := o.lock(ctx)
		if errors.Is(err, errPruned) {
			continue
		}
		if err != nil {
			return err
		}
		err = o.append([][]byte{encodeLine(turnLine{"turn", w.session, begin})})
		unlock()
		if err != nil {
			return fmt.Errorf("telling the captures of %s: %w", o.root, err)
		}
	}
	return nil
}
