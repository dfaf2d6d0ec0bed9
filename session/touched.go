package session

import (
	"path/filepath"
	"slices"

	"github.com/oino-dev/oinod/checkpoints"
)

// touch is one path that turns at or after a target changed: what a plan needs
// of it but its present, and what a rewind takes out of play.
type touch struct {
	checkpoints.Touched
	intervals []*interval // in play, since the target, in order
	unchecked bool        // its after state is unknown, or only the rewind's own end of the turn fixed it
}

// span is what of the log a rewind is about.
type span struct {
	order int  // of the target: intervals of entries at or after it count
	all   bool // scope "all": what is outside counts too
}

// touched lists the paths that turns (and with scope all: anybody) changed
// within the span, in first-change order.
func (st *state) touched(sp span) []*touch {
	var all []*touch
	for _, path := range st.pathOrder {
		if t := st.touch(path, sp); t != nil {
			all = append(all, t)
		}
	}
	return all
}

func (st *state) touch(path string, sp span) *touch {
	var t *touch
	last := checkpoints.State{}
	for _, iv := range st.paths[path] {
		if iv.out || iv.order < sp.order || iv.outside && (!sp.all || iv.n > st.boundary) {
			continue
		}
		if t == nil {
			t = &touch{Touched: checkpoints.Touched{Path: path, Target: iv.before, Parents: iv.parents}}
		} else if breaks(last, iv.before) {
			t.Seam = true
		}
		t.Seam = t.Seam || iv.seam || len(iv.shared) > 0 && !sp.all
		t.Parts = append(t.Parts, checkpoints.Part{Before: iv.before, After: iv.after})
		t.intervals = append(t.intervals, iv)
		t.unchecked = iv.guessed || iv.after.Kind == checkpoints.Unknown
		last = iv.after
	}
	if t != nil {
		t.Left = last
		slices.Reverse(t.Parts)
		return t
	}
	if !sp.all {
		return nil
	}
	// Changed by somebody after the newest boundary alone: a conflict, for what
	// is there now is not what any boundary saw.
	for _, iv := range st.paths[path] {
		if !iv.out && iv.order >= sp.order && iv.n > st.boundary {
			return &touch{Touched: checkpoints.Touched{Path: path, Target: iv.before, Left: iv.before, Parents: iv.parents}}
		}
	}
	return nil
}

// outsideOf names what changed within the span and is no turn's, of paths
// that are not touched: what came of each.
func (st *state) outsideOf(sp span, touched []*touch) []OutsideChange {
	is := map[string]bool{}
	for _, t := range touched {
		is[t.Path] = true
	}
	var all []OutsideChange
	for _, path := range st.pathOrder {
		if is[path] {
			continue
		}
		var first, last *interval
		for _, iv := range st.paths[path] {
			if iv.outside && !iv.out && iv.order >= sp.order {
				if first == nil {
					first = iv
				}
				last = iv
			}
		}
		if first == nil {
			continue
		}
		if c := checkpoints.ChangeOf(first.before, last.after); c != "" {
			all = append(all, OutsideChange{Path: path, Change: c, SessionID: last.session})
		}
	}
	return all
}

// only keeps what is one of the paths or lies below it. A path is taken both
// as it was spelled and as it resolves.
func only(ws *checkpoints.Workspace, all []*touch, paths []string) ([]*touch, error) {
	if paths == nil {
		return all, nil
	}
	var names []string
	for _, p := range paths {
		if !filepath.IsAbs(p) {
			return nil, &checkpoints.PathError{Path: p, Kind: "bad_path", Msg: "the path is not absolute"}
		}
		names = append(names, filepath.Clean(p))
		resolved, err := ws.Resolve(p)
		if err == nil {
			names = append(names, resolved...)
		}
	}
	var some []*touch
	for _, t := range all {
		if slices.ContainsFunc(names, func(n string) bool { return isBelow(t.Path, n) }) {
			some = append(some, t)
		}
	}
	if len(some) == 0 {
		return nil, refuse(PathNotInCheckpoint, "no turn since this checkpoint changed anything at or below %v", paths)
	}
	return some, nil
}

// target checks that p names something that can be rewound to, and returns
// its entry (nil for the start).
func (s *Session) target(p RewindParams) (*node, error) {
	st := s.state
	order := -1
	var n *node
	if p.EntryID != Start {
		if n = st.nodes[p.EntryID]; n == nil {
			return nil, refuse(EntryNotFound, "session %s has no entry %q", s.id, p.EntryID)
		}
		order = n.order
		switch {
		case n.role != User:
			return nil, refuse(NotAUserEntry, "entry %q is of role %s; rewind to a user entry (the checkpoint before it) or to %q", n.id, n.role, Start)
		case n.order < st.evicted:
			return nil, refuse(CheckpointEvicted, "the checkpoint of entry %q is older than the %d that are kept; %q is the oldest state there is", n.id, s.reg.limits.MaxCheckpoints, Start)
		case !slices.Contains(st.branch(st.leaf), n):
			return nil, refuse(CheckpointNotFound, "entry %q is on a branch of session %s that the conversation has left", n.id, s.id)
		case n.dropped && (p.Conversation == "" || p.Conversation == KeepConversation):
			return nil, refuse(CheckpointNotFound, "the checkpoint of entry %q was rewound already; redo brings it back", n.id)
		}
	}
	if d := st.damagedSince(order); d != nil {
		return nil, &Error{Kind: LogDamaged, Msg: "line " + itoa(d.line) + " of the log of session " + s.id + " is damaged, and the way back to this checkpoint may need it", Err: d.err}
	}
	return n, nil
}
