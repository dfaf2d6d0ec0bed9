package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

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

// overlapping lists them.
func (w *Workspace) overlapping() ([]other, error) {
	ours := map[string]bool{}
	var roots []string
	for _, r := range w.roots {
		ours[r.tree.dir] = true
		roots = append(roots, r.tree.root)
	}
	all, err := w.store.overlapping(roots)
	return slices.DeleteFunc(all, func(o other) bool { return ours[o.dir] }), err
}

// overlapping lists the trees that overlap one of roots, by directory. Which
// root a tree has is read once.
func (s *Store) overlapping(roots []string) ([]other, error) {
	entries, err := disk.ReadDir(s.root, topDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing the captures: %w", err)
	}
	var all []other
	for _, e := range entries {
		dir := topDir + "/" + e.Name()
		root := s.rootOf(dir)
		if root != "" && slices.ContainsFunc(roots, func(r string) bool { return within(root, r) || within(r, root) }) {
			all = append(all, other{s, dir, root})
		}
	}
	slices.SortFunc(all, func(a, b other) int { return strings.Compare(a.dir, b.dir) })
	return all, nil
}

// rootOf is the root of the tree in dir, "" where that cannot be told.
func (s *Store) rootOf(dir string) string {
	s.mu.Lock()
	root := s.roots[dir]
	s.mu.Unlock()
	if root != "" {
		return root
	}
	gen, _, err := newest(s.root, dir)
	if err != nil || gen == 0 {
		return ""
	}
	f, err := s.root.OpenFile(journalName(dir, gen), os.O_RDONLY, 0)
	if err != nil {
		return ""
	}
	defer f.Close()
	enough := errors.New("the first line is enough")
	_, _ = journal.Scan(f, maxLine, func(l journal.Line) error {
		if line, err := decodeLine(l.Object); err == nil {
			if h, ok := line.(*headLine); ok {
				root = h.Root
			}
		}
		return enough
	})
	if root != "" {
		s.mu.Lock()
		s.roots[dir] = root
		s.mu.Unlock()
	}
	return root
}

func (o *other) lock(ctx context.Context) (func(), error) {
	unlock, err := lockFile(ctx, o.store.root, o.dir+"/"+lockName)
	if errors.Is(err, fs.ErrNotExist) {
		return func() {}, nil // it was pruned, and wants to know nothing
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
	w, err := o.open(gen)
	if w == nil {
		return err
	}
	defer w.Close()
	_, err = w.Append(lines...)
	return err
}

// open opens the journal of a generation for appending; nil where it is not
// one that this oinod writes: whoever reads it says what is the matter with it.
func (o *other) open(gen uint64) (*journal.Writer, error) {
	fits := true
	w, err := journal.OpenWriter(o.store.root, journalName(o.dir, gen), maxLine, func(l journal.Line) error {
		if l.Pos.Offset == 0 {
			line, err := decodeLine(l.Object)
			h, ok := line.(*headLine)
			fits = err == nil && ok && h.Version <= formatVersion
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if !fits {
		return nil, w.Close()
	}
	return w, nil
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
	others, err := w.overlapping()
	if err != nil {
		return err
	}
	for _, o := range others {
		unlock, err := o.lock(ctx)
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
