package workspace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/oino-dev/oinod/checkpoints/journal"
)

// Claimant is a session that tracks nothing itself. It tells those that do,
// where their trees overlap its roots, what it changes and when it has a turn,
// so that they do not take that for theirs. It walks and makes nothing: where
// no tree overlaps, it costs one look for trees. It is safe for concurrent use.
type Claimant struct {
	session  string
	store    *Store
	roots    []claimRoot
	real     []string // theirs
	inMemory bool     // nothing of it is written

	mu     sync.Mutex
	turn   bool
	told   map[string]string // the ids of journals that know of the turn, by directory: a tree that was pruned, and made anew, has another
	looked time.Time         // for trees that do not know of the turn
	files  map[string]*heldJournal
	trees  []*tree // that are open for this one in memory
}

// claimRoot is a root as the session names it, and its real path.
type claimRoot struct{ spelled, real string }

// heldJournal is a journal that is kept open from claim to claim.
type heldJournal struct {
	gen    uint64
	id     string
	writer *journal.Writer
	info   fs.FileInfo // behind what was written: where that is not so any more, somebody else was at it
}

// Claimant returns the claimant of a session with these roots, absolute
// directories as the client gave them, and whether it has a turn open, of which
// nobody knows. Nothing is read yet.
func (s *Store) Claimant(session string, roots []string, turn bool) *Claimant {
	c := &Claimant{session: session, store: s, turn: turn, told: map[string]string{}, files: map[string]*heldJournal{}}
	for _, r := range roots {
		real := realPath(r)
		c.roots = append(c.roots, claimRoot{filepath.Clean(r), real})
		c.real = append(c.real, real)
	}
	return c
}

// Close closes what is open. What was told stays.
func (c *Claimant) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for _, f := range c.files {
		errs = append(errs, f.writer.Close())
	}
	clear(c.files)
	for _, t := range c.trees {
		errs = append(errs, c.store.leave(t))
	}
	c.trees = nil
	return errors.Join(errs...)
}

// Claim is that of a Workspace, with the trees of others alone: act runs while
// none of them is looked at. A tree whose lock cannot be had while ctx allows,
// or that cannot be written to, is not told, which the error says; act runs in
// any case. It must not use the Claimant.
func (c *Claimant) Claim(ctx context.Context, act func() ([]Claim, error)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.with(ctx, false, func(trees []hearer) error {
		claims, err := act()
		errs := []error{err}
		now := c.store.now().UnixMilli()
		for _, t := range trees {
			lines := append(c.news(t), claimLines(c.session, now, c.claimsIn(t.rootDir(), claims))...)
			errs = append(errs, c.tell(t, lines))
		}
		return errors.Join(errs...)
	})
}

// Turn says that a turn of the session begins, or that it ended. A turn that
// was open before is over. A tree that could not be told is with the next Claim
// or Remind.
func (c *Claimant) Turn(ctx context.Context, begin bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.turn, c.looked = begin, time.Time{}
	if !begin && len(c.told) == 0 {
		return nil
	}
	before := c.told
	if begin {
		c.told = map[string]string{}
	}
	err := c.with(ctx, true, func(trees []hearer) error {
		var errs []error
		for _, t := range trees {
			var lines [][]byte
			if id := t.id(); id != "" && before[t.where()] == id {
				lines = append(lines, c.turnLine(false))
			}
			if begin {
				lines = append(lines, c.turnLine(true))
			}
			errs = append(errs, c.tell(t, lines))
		}
		return errors.Join(errs...)
	})
	if !begin && err == nil {
		clear(c.told)
	}
	return err
}

// remindEvery is how often one looks for trees that do not know of the turn, who
// is asked often.
const remindEvery = time.Second

// Remind tells of the turn where that is not known yet: to trees that are there
// only since it began. With often it looks once in a second.
func (c *Claimant) Remind(ctx context.Context, often bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.turn && len(c.told) == 0 {
		return nil
	}
	now := c.store.now()
	if since := now.Sub(c.looked); often && since >= 0 && since < remindEvery {
		return nil
	}
	c.looked = now
	others, err := c.store.overlapping(c.real, !often)
	if err != nil {
		return err
	}
	for _, o := range others {
		head, _ := c.store.headOf(o.dir)
		if head.ID != "" && c.knows(o.dir, head.ID) != c.turn {
			return c.with(ctx, false, func(trees []hearer) error {
				var errs []error
				for _, t := range trees {
					errs = append(errs, c.tell(t, c.news(t)))
				}
				return errors.Join(errs...)
			})
		}
	}
	return nil
}

// knows reports whether a journal was told of the turn.
func (c *Claimant) knows(dir, id string) bool { return id != "" && c.told[dir] == id }

// news is what a tree does not know of the session's turn.
func (c *Claimant) news(t hearer) [][]byte {
	if c.knows(t.where(), t.id()) == c.turn {
		return nil
	}
	return [][]byte{c.turnLine(c.turn)}
}

// Heard is a claim of another session.
type Heard struct {
	Claim
	Session string
}

// Heard are the claims of others since the session's turn began, in the order in
// which they were made, where they overlap its roots. A shorter journal that was
// begun meanwhile may have forgotten some.
func (c *Claimant) Heard(ctx context.Context) ([]Heard, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.told) == 0 || c.inMemory {
		return nil, nil
	}
	var all []Heard
	err := c.with(ctx, false, func(trees []hearer) error {
		for _, t := range trees {
			if c.knows(t.where(), t.id()) {
				heard, err := c.heardIn(t)
				if err != nil {
					return err
				}
				all = append(all, heard...)
			}
		}
		return nil
	})
	return all, err
}

func (c *Claimant) heardIn(t hearer) ([]Heard, error) {
	gen, _, err := newest(c.store.root, t.where())
	if missingFile(err) || err == nil && gen == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	f, err := c.store.root.OpenFile(journalName(t.where(), gen), os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var all []Heard
	_, err = journal.Scan(f, maxLine, func(l journal.Line) error {
		if l.Err != nil || !bytes.HasPrefix(l.Object, []byte(`{"type":"claim"`)) && !bytes.HasPrefix(l.Object, []byte(`{"type":"turn"`)) {
			return nil // what is damaged is said by whoever captures
		}
		line, err := decodeLine(l.Object)
		if err != nil {
			return nil
		}
		switch line := line.(type) {
		case *turnLine:
			if line.Session == c.session && line.Begin {
				all = nil
			}
		case *claimLine:
			for _, cl := range line.Claims {
				if path := c.named(t.rootDir(), cl.Path); path != "" && line.Session != c.session {
					all = append(all, Heard{Claim{path, cl.Before, cl.After}, line.Session})
				}
			}
		}
		return nil
	})
	return all, err
}

// named is what the session calls a path of the tree with the root; "" where it
// lies outside its roots.
func (c *Claimant) named(root, rel string) string {
	path := filepath.Join(root, filepath.FromSlash(rel))
	var best *claimRoot
	for i, r := range c.roots {
		if within(r.real, path) && (best == nil || len(r.real) > len(best.real)) {
			best = &c.roots[i]
		}
	}
	if best == nil {
		return ""
	}
	return filepath.Join(best.spelled, filepath.FromSlash(relTo(best.real, path)))
}

func (c *Claimant) turnLine(begin bool) []byte {
	return encodeLine(turnLine{"turn", c.session, begin})
}

// tell makes lines durable in a tree, which knows of an open turn by then, or
// that none is.
func (c *Claimant) tell(t hearer, lines [][]byte) error {
	if len(lines) == 0 {
		return nil
	}
	id, err := t.tell(lines)
	switch {
	case err != nil:
		return err
	case c.turn && id != "":
		c.told[t.where()] = id
	default:
		delete(c.told, t.where())
	}
	return nil
}

// claimsIn are those that lie in the tree with the root, named from there.
func (c *Claimant) claimsIn(root string, claims []Claim) []claim {
	var in []claim
	for _, cl := range claims {
		var best *claimRoot
		for i, r := range c.roots {
			if within(r.spelled, cl.Path) && (best == nil || len(r.spelled) > len(best.spelled)) {
				best = &c.roots[i]
			}
		}
		if best == nil {
			continue
		}
		path := filepath.Join(best.real, filepath.FromSlash(relTo(best.spelled, cl.Path)))
		if path != root && within(root, path) {
			in = append(in, claim{relTo(root, path), cl.Before, cl.After})
		}
	}
	return in
}

// hearer is a tree that wants to know, with its lock had.
type hearer interface {
	where() string // its directory
	rootDir() string
	id() string // of its journal; "" where it has none that can be written to
	// tell says what id does: that is whom was told.
	tell(lines [][]byte) (id string, err error)
}

// with calls f with all that overlap, holding their locks: each as this
// process has it open, or else its journal alone. Those that it cannot have are
// left out, and in the error.
func (c *Claimant) with(ctx context.Context, anew bool, f func([]hearer) error) error {
	others, err := c.store.overlapping(c.real, anew)
	errs := []error{err}
	var trees []hearer
	for _, o := range others { // in one order for everybody
		if c.inMemory {
			c.reopen(o)
		}
		if t := c.store.inUse(o.dir); t != nil {
			defer func() { _ = c.store.leave(t) }()
			unlock, err := t.lock(ctx)
			switch {
			case errors.Is(err, ErrNewer):
				continue // whoever reads it says what is the matter with it
			case err != nil:
				errs = append(errs, err)
				continue
			}
			defer unlock()
			if c.inMemory {
				trees = append(trees, quietTree{openTree{t}})
			} else {
				trees = append(trees, openTree{t})
			}
			continue
		}
		if c.inMemory {
			continue
		}
		unlock, err := o.lock(ctx)
		switch {
		case errors.Is(err, errPruned):
			continue
		case err != nil:
			errs = append(errs, fmt.Errorf("telling the captures of %s: %w", o.root, err))
			continue
		}
		defer unlock()
		trees = append(trees, &closedTree{other: o, claimant: c})
	}
	return errors.Join(append(errs, f(trees))...)
}

// inUse returns the tree of dir if this process has it open: it then is until
// it is left. Else nil.
func (s *Store) inUse(dir string) *tree {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.trees[dir]
	if t != nil {
		t.refs++
	}
	return t
}

// openTree is one that this process has read.
type openTree struct{ *tree }

func (t openTree) where() string   { return t.dir }
func (t openTree) rootDir() string { return t.root }

func (t openTree) id() string {
	if t.last() == nil {
		return "" // it begins with what is there now
	}
	return t.head.ID
}

func (t openTree) tell(lines [][]byte) (id string, err error) {
	if id = t.id(); id == "" {
		return "", nil
	}
	return id, t.append(lines, nil)
}

// closedTree is one whose journal is written to, and kept open.
type closedTree struct {
	other
	claimant *Claimant
	held     *heldJournal // as it is since the lock is had
}

func (t *closedTree) where() string   { return t.dir }
func (t *closedTree) rootDir() string { return t.root }

func (t *closedTree) id() string {
	if held, err := t.hold(); err == nil && held != nil {
		return held.id
	}
	return "" // which who tells it something learns
}

// hold opens the journal, or has it open; nil where there is none to write to.
func (t *closedTree) hold() (*heldJournal, error) {
	if t.held != nil {
		return t.held, nil
	}
	gen, _, err := newest(t.store.root, t.dir)
	if missingFile(err) || err == nil && gen == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	held := t.claimant.files[t.dir]
	if held != nil {
		info, err := t.store.root.Lstat(journalName(t.dir, gen))
		if held.gen != gen || err != nil || !os.SameFile(info, held.info) || info.Size() != held.info.Size() {
			t.letGo()
			held = nil
		}
	}
	if held == nil {
		w, id, err := t.open(gen)
		if w == nil {
			return nil, err
		}
		held = &heldJournal{gen: gen, id: id, writer: w}
		t.claimant.files[t.dir] = held
		if held.info, err = t.store.root.Lstat(journalName(t.dir, gen)); err != nil {
			t.letGo()
			return nil, err
		}
	}
	t.held = held
	return held, nil
}

func (t *closedTree) tell(lines [][]byte) (id string, err error) {
	held, err := t.hold()
	if held == nil {
		return "", err
	}
	if _, err = held.writer.Append(lines...); err != nil {
		t.letGo()
		return "", err
	}
	if held.info, err = t.store.root.Lstat(journalName(t.dir, held.gen)); err != nil {
		t.letGo()
	}
	return held.id, nil
}

// letGo closes the journal.
func (t *closedTree) letGo() {
	_ = t.claimant.files[t.dir].writer.Close()
	delete(t.claimant.files, t.dir)
	t.held = nil
}
