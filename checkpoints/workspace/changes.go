package workspace

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/oino-dev/oinod/checkpoints"
	"github.com/oino-dev/oinod/checkpoints/journal"
)

// Changed is what happened to one path between two marks.
type Changed struct {
	Path  string
	Links []Link // in order; each begins where the one before ended
}

// Link is one step of a path's way from one state to another.
type Link struct {
	// Owner is the session that said "this was me"; "" if nobody did.
	Owner         string
	Before, After checkpoints.State
	// Shared are the other sessions that had a turn open at the time, of a
	// link that nobody owns.
	Shared []Overlap
}

// Overlap is another session's turn.
type Overlap struct {
	Session string
	// Open: it has not ended, so that it only counts while some live process
	// has the session open.
	Open bool
}

// Changes says what changed between two marks of this session, by path. Only
// what the rules at from covered is told, and what they did not but a turn had
// touched: that is what can be told exactly. A root that was not captured at
// both marks says nothing. ErrGone: a capture is not there any more.
func (w *Workspace) Changes(ctx context.Context, from, to Mark) ([]Changed, error) {
	var all []Changed
	for _, r := range w.roots {
		a, b := from.of(r.spelled), to.of(r.spelled)
		if a.Seq == 0 || b.Seq == 0 {
			continue
		}
		if err := w.visit(ctx, r, func(t *tree) error {
			changed, err := t.changes(w.session, a, b)
			for i := range changed {
				changed[i].Path = r.path(changed[i].Path)
			}
			all = append(all, changed...)
			return err
		}); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// visit calls f with the tree of r, with the lock only if something must be
// read first: nothing is yet, or a mark is one of another process.
func (w *Workspace) visit(ctx context.Context, r *trackedRoot, f func(t *tree) error) error {
	leave, err := r.tree.enter(ctx)
	if err != nil {
		return err
	}
	if r.tree.writer != nil {
		err = f(r.tree)
		leave()
		if !errors.Is(err, ErrGone) && !missing(err) { // or another process has begun a shorter journal
			return err
		}
	} else {
		leave()
	}
	unlock, err := r.tree.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	return f(r.tree)
}

// marked finds the capture of a mark.
func (t *tree) marked(m RootMark) (*capture, error) {
	c := t.capture(m.Seq)
	if c == nil || t.head.ID != m.Journal {
		return nil, fmt.Errorf("capture %d of %s: %w", m.Seq, t.root, ErrGone)
	}
	return c, nil
}

func (t *tree) changes(session string, from, to RootMark) ([]Changed, error) {
	a, err := t.marked(from)
	if err != nil {
		return nil, err
	}
	b, err := t.marked(to)
	if err != nil {
		return nil, err
	}
	facts, err := t.factsAt(a)
	if err != nil {
		return nil, err
	}
	s := story{tree: t, session: session, paths: map[string]*course{}, facts: facts, met: map[string]bool{}, last: a.Seq}
	s.from = a
	s.open = t.turnsBefore(slices.IndexFunc(t.captures, func(c capture) bool { return c.Seq == a.Seq }))
	(&capture{captureLine: a.captureLine}).turns(s.open) // what came after it is told by lines
	var before []unwritten
	before, s.unwritten = t.unwrittenAt(a)
	for _, u := range before {
		if l, ok := u.line.(*turnLine); ok {
			l.turns(s.open, u.after)
		}
	}
	if err := t.scan(a.end, b.end, s.line); err != nil {
		return nil, err
	}
	var all []Changed
	for rel, p := range s.paths {
		if p.links = mergeLinks(p.links); len(p.links) > 0 && facts.tells(rel, p) {
			all = append(all, Changed{rel, p.links})
		}
	}
	slices.SortFunc(all, func(x, y Changed) int { return strings.Compare(x.Path, y.Path) })
	return all, nil
}

// story is the journal between two captures, told path by path.
type story struct {
	tree    *tree
	session string
	facts   *facts
	paths   map[string]*course
	open    map[string]uint64 // turns, as of the line read last
	met     map[string]bool   // sessions with a turn at some time since the last capture
	last    uint64            // the last capture's number
	parts   gather            // of the capture that is read
	claims  []owned           // since the last one that looked at their paths
	passed  int               // lines of claims since the last capture
	from    *capture          // where it begins

	unwritten []unwritten // what comes yet
}

// owned is a claim and whose it is.
type owned struct {
	claim
	owner string
}

// course is one path on its way.
type course struct {
	now   checkpoints.State // where its links have come to
	links []Link
}

// tells reports whether a capture that covered what its rules do not skip has
// something to say of a path: at some time there was something there that it
// would have looked at.
func (f *facts) tells(rel string, p *course) bool {
	something := func(s checkpoints.State) bool {
		s = f.asCovered(rel, s)
		return s.Kind != checkpoints.Absent && (s.Kind != checkpoints.Uncovered || s.Reason != checkpoints.Excluded)
	}
	return f.looked(rel) && (something(p.links[0].Before) || slices.ContainsFunc(p.links, func(l Link) bool { return something(l.After) }))
}

// line takes a line of the journal, behind what was told before it and not written.
func (s *story) line(line any, _ journal.Pos) error {
	for len(s.unwritten) > 0 && s.unwritten[0].precedes(line, s.last, s.passed) {
		if err := s.take(s.unwritten[0].line); err != nil {
			return err
		}
		s.unwritten = s.unwritten[1:]
	}
	if _, is := line.(*claimLine); is {
		s.passed++
	}
	return s.take(line)
}

func (s *story) take(line any) error {
	switch l := line.(type) {
	case *partLine:
		return s.parts.part(l)
	case *claimLine:
		for _, c := range l.Claims {
			s.claims = append(s.claims, owned{c, l.Session})
		}
	case *captureLine:
		return s.capture(l)
	case *turnLine:
		l.turns(s.open, 0)
		s.met[l.Session] = true
	case *releaseLine:
		if l.Gone {
			delete(s.open, l.Session)
		}
	}
	return nil
}

// capture tells what happened up to one capture: what was claimed since the
// one before, in order, and whatever of what it saw that does not explain.
// Claims and captures exclude each other, so their order is exact.
func (s *story) capture(l *captureLine) error {
	shared := s.overlaps()
	seen := map[string]*record{}
	if err := s.parts.take(l, func(p *partLine) error {
		return p.eachRecord(func(r record) {
			if r.op != restat {
				seen[r.path] = &r
			}
		})
	}); err != nil {
		return err
	}
	is := map[string]checkpoints.State{} // what the capture saw, of paths of which there is something to tell
	for _, r := range seen {
		s.course(r)
		is[r.path] = r.after
		if r.op == gone {
			is[r.path] = checkpoints.State{Kind: checkpoints.Absent}
		}
	}
	later, err := s.cameBack(l, is)
	if err != nil {
		return err
	}
	for _, c := range s.claims {
		if _, saw := is[c.Path]; saw {
			p := s.paths[c.Path]
			p.step("", c.Before, shared)
			p.step(c.owner, c.After, nil)
		}
	}
	for path, after := range is {
		s.paths[path].step("", after, shared)
	}
	s.claims = later
	(&capture{captureLine: *l}).turns(s.open)
	s.last, s.passed = l.Seq, 0
	clear(s.met)
	return nil
}

// cameBack puts into is the claimed paths of which capture l has no record: they
// are what they were at the last one. What it did not look at is claimed later.
func (s *story) cameBack(l *captureLine, is map[string]checkpoints.State) (later []owned, err error) {
	var unknown []string // what was not claimed or recorded before
	looked := s.tree.looking(l)
	put := map[string]bool{} // into one or the other
	for _, c := range s.claims {
		if _, saw := is[c.Path]; saw || put[c.Path] {
			continue
		}
		if !looked(c.Path) {
			later = append(later, c)
			continue
		}
		put[c.Path] = true
		if p := s.paths[c.Path]; p != nil {
			is[c.Path] = p.now
		} else {
			unknown = append(unknown, c.Path)
		}
	}
	if len(unknown) == 0 {
		return later, nil
	}
	// Nothing has recorded them since the mark.
	states, err := s.tree.statesAt(s.from, s.facts, unknown)
	for i, path := range unknown {
		if err == nil {
			s.paths[path] = &course{now: states[i]}
			is[path] = states[i]
		}
	}
	return later, err
}

// looking tells of which paths capture l would have a record, had they changed.
func (t *tree) looking(l *captureLine) func(rel string) bool {
	var all []*facts
	for _, id := range append([]string{l.Rules}, l.Held...) {
		c := &capture{captureLine: *l}
		c.Rules = id
		if f, err := t.factsAt(c); err == nil { // else they were forgotten: nobody holds it
			all = append(all, f)
		}
	}
	return func(rel string) bool {
		return slices.ContainsFunc(all, func(f *facts) bool { return f.looked(rel) && !f.blind(rel) })
	}
}

// course is that of a record's path, which begins at what it was at the mark.
func (s *story) course(r *record) *course {
	p := s.paths[r.path]
	if p == nil {
		p = &course{now: s.facts.before(r)}
		s.paths[r.path] = p
	}
	return p
}

// overlaps are the turns of others since the last capture.
func (s *story) overlaps() []Overlap {
	var all []Overlap
	for session := range s.open {
		s.met[session] = true
	}
	for session := range s.met {
		if session != s.session {
			all = append(all, Overlap{Session: session, Open: s.tree.turnOpen(session, s.last)})
		}
	}
	slices.SortFunc(all, func(a, b Overlap) int { return strings.Compare(a.Session, b.Session) })
	return all
}

// turnOpen reports whether the session's turn, which was open at some time
// behind capture seq, is so to this day.
func (t *tree) turnOpen(session string, seq uint64) bool {
	for i := range t.captures {
		c := &t.captures[i]
		if c.Seq > seq && c.Session == session && (c.Begin || c.End) ||
			c.Seq >= seq && slices.ContainsFunc(c.after, func(l turnLine) bool { return l.Session == session && !l.Begin }) {
			return false
		}
	}
	return !slices.ContainsFunc(t.unwritten, func(u unwritten) bool {
		l, turn := u.line.(*turnLine)
		return turn && u.journal == t.head.ID && u.after >= seq && l.Session == session && !l.Begin
	})
}

// step brings the path to a state by a link, unless it is there.
func (p *course) step(owner string, to checkpoints.State, shared []Overlap) {
	if equal(p.now, to) {
		return
	}
	p.links = append(p.links, Link{Owner: owner, Before: p.now, After: to, Shared: shared})
	p.now = to
}

// equal reports that a and b are one state as far as can be told.
func equal(a, b checkpoints.State) bool {
	return a == b && a.Kind != checkpoints.Uncovered || a.Same(b)
}

// mergeLinks joins neighbours of one owner and drops what led nowhere.
func mergeLinks(links []Link) []Link {
	var all []Link
	for _, l := range links {
		if n := len(all); n > 0 && all[n-1].Owner == l.Owner && slices.Equal(all[n-1].Shared, l.Shared) {
			all[n-1].After = l.After
			if equal(all[n-1].Before, l.After) {
				all = all[:n-1]
			}
			continue
		}
		all = append(all, l)
	}
	return all
}
