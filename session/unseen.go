package session

import (
	"context"
	"errors"
	"slices"

	"github.com/oino-dev/oinod/checkpoints"
	"github.com/oino-dev/oinod/checkpoints/workspace"
)

// notWhole says that a root is not covered.
func notWhole(c workspace.Coverage) Uncovered {
	return Uncovered{Path: c.Root, Reason: reasonOf(c.Reason), Error: "the workspace is not seen whole (" + c.Reason + "): only what tools name can be brought back"}
}

// dark reports whether a capture did not see a root that none has seen before.
func (s *Session) dark(now sight) bool {
	for _, root := range s.tracker.Roots() {
		if now.err == nil && now.Mark.Saw(root) {
			continue
		}
		if !s.state.mark.Saw(root) {
			return true
		}
	}
	return false
}

// unseen is what nobody can tell of a capture: of a file that is too large, or
// is no file, a change is known.
func (c sight) unseen(s *Session) []Uncovered {
	var all []Uncovered
	if c.err != nil {
		for _, root := range s.tracker.Roots() {
			all = append(all, Uncovered{Path: root, Reason: checkpoints.Unreadable, Error: c.err.Error()})
		}
		return all
	}
	for _, u := range c.Uncovered {
		switch u.Reason {
		case checkpoints.Unreadable, checkpoints.BadName, checkpoints.Budget:
			all = append(all, Uncovered{Path: u.Path, Reason: u.Reason, Error: u.Err})
		}
	}
	if c.More > 0 {
		all = append(all, Uncovered{Path: s.cwd, Reason: checkpoints.Unreadable, Error: "more of it could not be seen than is named"})
	}
	return all
}

// notSeen is what nobody has seen of the turn.
func (t *turn) notSeen() []Uncovered {
	var all []Uncovered
	if b := t.blind; b != nil {
		all = append(all, Uncovered{Path: b.Root, Reason: b.Blind, Error: b.Error})
	}
	return distinct(append(all, t.unseen...))
}

// distinct names each path once for each reason.
func distinct(all []Uncovered) []Uncovered {
	type about struct {
		path   string
		reason checkpoints.Reason
	}
	named := map[about]bool{}
	return slices.DeleteFunc(all, func(u Uncovered) bool {
		a := about{u.Path, u.Reason}
		again := named[a]
		named[a] = true
		return again
	})
}

// reasonOf is the reason of a state for a workspace that is not covered.
func reasonOf(coverage string) checkpoints.Reason {
	switch r := checkpoints.Reason(coverage); r {
	case checkpoints.Budget, checkpoints.Excluded, checkpoints.Unreadable:
		return r
	}
	return checkpoints.Budget // a home directory or a whole disk is over any
}

// unseenBy are the records of what changed in roots that the turn's begin did
// not see: by whom, nobody can tell.
func (s *Session) unseenBy(ctx context.Context, t *turn, now sight) ([]any, error) {
	if now.err != nil {
		return nil, nil
	}
	var from workspace.Mark
	for _, r := range s.state.mark {
		if !t.mark.Saw(r.Root) {
			from = append(from, r)
		}
	}
	if len(from) == 0 {
		return nil, nil
	}
	outside, err := s.othersSince(ctx, t, from, now.Mark)
	if errors.Is(err, workspace.ErrGone) {
		return nil, nil
	}
	if err != nil || len(outside) == 0 {
		return nil, err
	}
	return []any{&outsideRecord{Type: "outside", Turn: t.entry.id, Intervals: outside}}, nil
}

// blindSince names what turns since the order could not see.
func (st *state) blindSince(order int) []Uncovered {
	var all []Uncovered
	for _, n := range st.order {
		if t := st.turns[n.id]; t != nil && n.order >= order {
			all = append(all, t.notSeen()...)
		}
	}
	return distinct(all)
}
