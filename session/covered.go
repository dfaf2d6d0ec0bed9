package session

import (
	"context"
	"path/filepath"
	"slices"
	"strings"

	"github.com/oino-dev/oinod/checkpoints"
	"github.com/oino-dev/oinod/checkpoints/workspace"
)

// A path that the captures of a turn covered need not have been covered in the
// turns before: the ignore rules may have changed since. What it was at their
// checkpoints is then not known, for they may have changed it unseen, and what
// it was later is never taken for it. So the log keeps the rules of every turn,
// written where they are others than those before.

// epoch is the rules of the captures from some turn on.
type epoch struct {
	from   int  // order of the turn's entry
	within bool // the turn had begun under those before, and went on under these
	rules  []*workspace.Rules
}

// applyRules begins an epoch, if rules says so.
func (st *state) applyRules(t *turn, rules []*workspace.Rules, within bool) {
	if rules != nil {
		st.epochs = append(st.epochs, epoch{t.entry.order, within, rules})
	}
}

// rulesOf are the rules of a mark's captures, nil where the log knows that
// they are those.
func (s *Session) rulesOf(ctx context.Context, m workspace.Mark) ([]*workspace.Rules, error) {
	if m == nil {
		return nil, nil
	}
	rules, err := s.tracker.Rules(ctx, m)
	if err != nil {
		return nil, err
	}
	if n := len(s.state.epochs); n > 0 && sameRules(s.state.epochs[n-1].rules, rules) || len(rules) == 0 {
		return nil, nil
	}
	return rules, nil
}

func sameRules(a, b []*workspace.Rules) bool {
	return slices.EqualFunc(a, b, func(x, y *workspace.Rules) bool { return x.Root == y.Root && x.ID == y.ID })
}

// epochsOf are those of the turns whose entries have an order from one on and
// below another.
func (st *state) epochsOf(from, below int) []epoch {
	first := 0
	for i, e := range st.epochs {
		if e.from < from || e.from == from && !e.within {
			first = i
		}
	}
	end := first
	for end < len(st.epochs) && st.epochs[end].from < below {
		end++
	}
	return st.epochs[first:end]
}

// unknownSince is why nobody knows what the path of interval iv was when the
// span began, although it is the first in it; "" where that is known. Turns in
// between may have changed it unseen. What only a tool has named was never
// covered: there the tool's word is all there is, as with tracking "files".
func (st *state) unknownSince(iv *interval, sp span) checkpoints.Reason {
	switch {
	case st.darkSince(iv, sp):
		return checkpoints.Unreadable
	case st.excludedSince(iv, sp):
		return checkpoints.Excluded
	}
	return ""
}

func (st *state) excludedSince(iv *interval, sp span) bool {
	if len(st.epochs) == 0 || sp.order == iv.order && !iv.outside {
		return false
	}
	is := iv.before
	if is.Kind == checkpoints.Absent {
		is = iv.after
	}
	below := iv.order
	if iv.outside {
		below++ // it lies behind that turn
	} else if own := st.epochsOf(iv.order, iv.order+1); !slices.ContainsFunc(own, func(e epoch) bool { return e.covers(iv.path, is) }) {
		return false
	}
	for _, e := range st.epochsOf(max(sp.order, 0), below) {
		if !e.covers(iv.path, is) {
			// What a turn has touched stays covered.
			return !slices.ContainsFunc(st.paths[iv.path], func(o *interval) bool { return o.touched() && o.order < sp.order })
		}
	}
	return false
}

// covers reports whether the captures of an epoch covered a path, or it lies
// in no root that they saw.
func (e epoch) covers(path string, is checkpoints.State) bool {
	var of *workspace.Rules
	for _, r := range e.rules {
		if r.Within(path) && (of == nil || len(r.Root) > len(of.Root)) {
			of = r
		}
	}
	return of == nil || of.Covers(path, is)
}

// touched reports whether a turn has touched the path of an interval, so that
// its captures cover it from then on: also where a rewind took that back, but
// not where the turn only looked.
func (iv *interval) touched() bool {
	return !iv.outside && !(iv.out && iv.before.Same(iv.after))
}

// noteUnseen keeps in mind that a turn's captures could not see everything.
func (st *state) noteUnseen(t *turn) {
	if (t.blind != nil || len(t.unseen) > 0) && !slices.Contains(st.unseen, t) {
		st.unseen = append(st.unseen, t)
	}
}

// noteMark takes a turn's or a rewind's capture for the newest. Of a root that it
// could not see, the one before still is.
func (st *state) noteMark(m workspace.Mark) {
	if m == nil {
		return
	}
	was := st.mark
	st.mark = slices.Clone(m)
	for i, r := range st.mark {
		if r.Seq == 0 {
			for _, old := range was {
				if old.Root == r.Root {
					st.mark[i] = old
				}
			}
		}
	}
}

// blindFor reports whether a capture of the turn could not see what is at a
// path, so that nobody can tell the turn's changes there from others'.
func (t *turn) blindFor(path string) bool {
	at := func(dir string) bool {
		return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, string(filepath.Separator))+string(filepath.Separator))
	}
	return t.blind != nil && t.blind.Blind == checkpoints.Unreadable && at(t.blind.Root) ||
		slices.ContainsFunc(t.unseen, func(u Uncovered) bool { return u.Reason == checkpoints.Unreadable && at(u.Path) })
}

// darkSince reports that nobody knows what the path of interval iv was when the
// span began, although it is the first in it: a turn in between could not be
// seen, and the captures around it do not agree on the path.
func (st *state) darkSince(iv *interval, sp span) bool {
	for _, t := range st.unseen {
		i := t.entry.order
		if i < sp.order || i > iv.order || i == iv.order && !iv.outside || !t.blindFor(iv.path) {
			continue
		}
		if t.dark {
			return true
		}
		next := i + 1
		for next < len(st.order) && st.turns[st.order[next].id] == nil {
			next++
		}
		switch {
		case iv.outside && iv.order < next:
			// It begins with what was seen before the turn: only of the turn's own
			// checkpoint that need not be what was there.
			if i == sp.order && t.blind != nil && iv.session == "" {
				return true
			}
		case slices.ContainsFunc(st.paths[iv.path], func(o *interval) bool {
			return o.outside && o.session == "" && o.order >= i && o.order < next && o.n < iv.n
		}):
			return true
		}
	}
	return false
}
