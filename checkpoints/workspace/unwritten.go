package workspace

import "slices"

// A session in memory is in no journal. What it tells a tree that this process
// has open stands beside the journal, at its place among the lines of it.

// unwritten is a line that is in no file.
type unwritten struct {
	line    any    // *claimLine or *turnLine
	journal string // the id of the one that it belongs to
	after   uint64 // the capture before it
	claims  int    // lines of claims between that and it
}

// ClaimantInMemory is Claimant, of a session of which nothing may be written
// down. It tells those of this process who track, or did and may come back, and
// hears nobody.
func (s *Store) ClaimantInMemory(session string, roots []string, turn bool) *Claimant {
	c := s.Claimant(session, roots, turn)
	c.inMemory = true
	return c
}

// reopen opens a tree that this process had open, until c is closed: who left it
// and comes back is to know what happened meanwhile.
func (c *Claimant) reopen(o other) {
	s := c.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, left := s.left[o.dir]; left {
		c.trees = append(c.trees, s.tree(o.root))
	}
}

// quietTree is one that is told by a session in memory.
type quietTree struct{ openTree }

func (t quietTree) tell(lines [][]byte) (id string, err error) {
	if id = t.id(); id == "" {
		return "", nil
	}
	t.forgetUnwritten()
	last := t.last()
	for _, l := range lines {
		line, err := decodeLine(l)
		if err != nil {
			return "", err
		}
		t.unwritten = append(t.unwritten, unwritten{line, id, last.Seq, last.claims})
	}
	return id, nil
}

// forgetUnwritten drops what no capture that is held can be asked about: of
// turns that began before all of them, the newest of each session stays. It
// does so when there are twice as many as it left the last time.
func (t *tree) forgetUnwritten() {
	if len(t.unwritten) < t.enough {
		return
	}
	oldest := t.oldest()
	over := map[string]bool{}
	kept := make([]unwritten, 0, len(t.unwritten))
	for i := len(t.unwritten) - 1; i >= 0; i-- {
		u := t.unwritten[i]
		l, turn := u.line.(*turnLine)
		old := u.after < oldest
		if u.journal == t.head.ID && (!old || turn && l.Begin && !over[l.Session]) {
			kept = append(kept, u)
		}
		if turn && old {
			over[l.Session] = true
		}
	}
	slices.Reverse(kept)
	t.unwritten, t.enough = kept, max(2*len(kept), 8)
}

// unwrittenAt divides what is unwritten: what was told before a capture of the
// journal, and what since.
func (t *tree) unwrittenAt(c *capture) (before, since []unwritten) {
	for _, u := range t.unwritten {
		switch {
		case u.journal != t.head.ID: // of captures that are gone
		case u.after < c.Seq:
			before = append(before, u)
		default:
			since = append(since, u)
		}
	}
	return before, since
}

// precedes reports whether u was told before a line of the journal, which comes
// behind capture last and a number of lines of claims. Of other lines than
// captures and claims the order makes no difference.
func (u *unwritten) precedes(line any, last uint64, claims int) bool {
	switch l := line.(type) {
	case *captureLine:
		return u.after < l.Seq
	case *claimLine:
		return u.after == last && u.claims <= claims // of one before it took what came before that
	}
	return false
}
