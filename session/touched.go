package session

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/oino-dev/oinod/checkpoints"
)

// touch is one path that turns at or after a target changed: what a plan needs
// of it but its present, and what a rewind takes out of play.
type touch struct {
	checkpoints.Touched
	intervals []*interval // in play, since the target, in order
	unchecked bool        // its after state is unknown, or only the rewind's own end of the turn fixed it
	// hollow: a directory that came only with something touched, which has gone
	// by itself since. It goes too if it is empty, and is never named.
	hollow bool
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

// hollows are the directories that were not there before the span, as those of
// its intervals tell that are first below each: made only with something in
// them. (What a rewind removes takes those above it along; these are for the
// rewind that finds nothing to remove in them.)
func (st *state) hollows(sp span, touched []*touch) []*touch {
	is := map[string]bool{}
	wanted := map[string]bool{} // directories that are noted absent at all
	for _, t := range touched {
		is[t.Path] = true
		for _, iv := range t.intervals {
			for _, p := range iv.parents {
				if p.Absent {
					wanted[p.Path] = true
				}
			}
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	first := map[string]*interval{} // below each
	for _, path := range st.pathOrder {
		for _, iv := range st.paths[path] {
			if iv.out || iv.order < sp.order {
				continue
			}
			for dir := filepath.Dir(path); dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
				if f := first[dir]; wanted[dir] && (f == nil || iv.n < f.n) {
					first[dir] = iv
				}
			}
		}
	}
	var all []*touch
	for _, dir := range slices.Sorted(maps.Keys(first)) {
		if !is[dir] && slices.ContainsFunc(first[dir].parents, func(p checkpoints.Parent) bool { return p.Absent && p.Path == dir }) {
			absent := checkpoints.State{Kind: checkpoints.Absent}
			all = append(all, &touch{Touched: checkpoints.Touched{Path: dir, Target: absent}, hollow: true})
		}
	}
	return all
}

// unneeded drops the hollow directories that are not there, and those that
// something which a rewind removes takes along.
func unneeded(touched []*touch) []*touch {
	along := map[string]bool{}
	for _, t := range touched {
		if t.Target.Kind == checkpoints.Absent && t.Now.State.Kind != checkpoints.Absent {
			for _, p := range t.Parents {
				along[p.Path] = along[p.Path] || p.Absent
			}
		}
	}
	return slices.DeleteFunc(touched, func(t *touch) bool {
		return t.hollow && (t.Now.State.Kind != checkpoints.Dir || along[t.Path])
	})
}

// withoutHollow leaves failures of hollow directories out: such a directory
// simply stays.
func withoutHollow(failed []checkpoints.Failure, touched []*touch) []checkpoints.Failure {
	hollow := map[string]bool{}
	for _, t := range touched {
		if t.hollow {
			hollow[t.Path] = true
		}
	}
	return slices.DeleteFunc(failed, func(f checkpoints.Failure) bool { return hollow[f.Path] })
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
		if first == nil || neverSeen(first.before) {
			continue
		}
		if c := checkpoints.ChangeOf(first.before, last.after); c != "" {
			all = append(all, OutsideChange{Path: path, Change: c, SessionID: last.session})
		}
	}
	return all
}

// neverSeen reports that a state is one of which nobody knows whether it has
// changed since. (Of what is too large, or no file, the captures know.)
func neverSeen(st checkpoints.State) bool {
	return st.Kind == checkpoints.Uncovered && st.Reason != checkpoints.TooLarge && st.Reason != checkpoints.NotRegular
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
		return nil, refuse(PathNotInCheckpoint, "no turn since this checkpoint changed anything at or below %s", strings.Join(paths, ", "))
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
			return nil, refuse(CheckpointNotFound, "entry %q is on a branch of session %s that the conversation has left; rewind to an earlier entry or to %q, or redo first", n.id, s.id, Start)
		case n.dropped && (p.Conversation == "" || p.Conversation == KeepConversation):
			return nil, refuse(CheckpointNotFound, "the checkpoint of entry %q was rewound already; redo brings it back", n.id)
		}
	}
	if d := st.damagedSince(order); d != nil {
		return nil, &Error{Kind: LogDamaged, Msg: "line " + itoa(d.line) + " of the log of session " + s.id + " is damaged, and the way back to this checkpoint may need it", Err: d.err}
	}
	return n, nil
}
