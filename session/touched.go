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
	intervals []*interval // in play, since the target, in order: the chain that decides
	undone    []*interval // what goes out of play (of a redo: comes back) when the path does
	unchecked bool        // its after state is unknown, or only the rewind's own end of the turn fixed it
	// quiet: a directory that came or went only with something in it. It is
	// never named and never a conflict; where it cannot follow, it stays.
	quiet bool
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
			t = &touch{Touched: checkpoints.Touched{Path: path, Target: iv.before, Parents: iv.parents}, quiet: true}
			if why := st.unknownSince(iv, sp); why != "" {
				t.Target = checkpoints.State{Kind: checkpoints.Uncovered, Reason: why}
			}
		} else if breaks(last, iv.before) {
			t.Seam = true
		}
		if sp.all {
			t.Seam = t.Seam || iv.seam && !iv.linked
		} else {
			t.Seam = t.Seam || iv.seam || len(iv.shared) > 0
		}
		t.Parts = append(t.Parts, checkpoints.Part{Before: iv.before, After: iv.after})
		t.intervals = append(t.intervals, iv)
		t.quiet = t.quiet && iv.along
		t.unchecked = iv.guessed || iv.after.Kind == checkpoints.Unknown
		last = iv.after
	}
	if t != nil {
		t.Left = last
		slices.Reverse(t.Parts)
		t.undone = st.inPlay(path, t.intervals[0].n)
		return t
	}
	if !sp.all {
		return nil
	}
	// Changed by somebody after the newest boundary alone: a conflict, for what
	// is there now is not what any boundary saw.
	for _, iv := range st.paths[path] {
		if !iv.out && !iv.along && iv.order >= sp.order && iv.n > st.boundary {
			return &touch{
				Touched: checkpoints.Touched{Path: path, Target: iv.before, Left: iv.before, Parents: iv.parents},
				undone:  st.inPlay(path, iv.n),
			}
		}
	}
	return nil
}

// inPlay are the intervals of a path in play from one on, whoever's: once the
// path is back to before that one, none of them tells anything any more.
func (st *state) inPlay(path string, from int) []*interval {
	var all []*interval
	for _, iv := range st.paths[path] {
		if !iv.out && iv.n >= from {
			all = append(all, iv)
		}
	}
	return all
}

// hollows are the directories that were not there before the span, as those of
// its intervals tell that are first below each: made only with something in
// them. Where they had gone only in between, and were made anew, that is taken
// back from what touched notes. (What a rewind removes takes those above it along; these are for the
// rewind that finds nothing to remove in them.)
func (st *state) hollows(sp span, touched []*touch) []*touch {
	is := map[string]*touch{}
	wanted := map[string]bool{} // directories that are noted absent at all
	for _, t := range touched {
		is[t.Path] = t
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
	there := map[string]bool{}
	for _, dir := range slices.Sorted(maps.Keys(first)) {
		absent := slices.ContainsFunc(first[dir].parents, func(p checkpoints.Parent) bool { return p.Absent && p.Path == dir })
		switch t := is[dir]; {
		case t != nil:
			there[dir] = t.Target.Kind == checkpoints.Dir
		case absent:
			all = append(all, &touch{Touched: checkpoints.Touched{Path: dir, Target: checkpoints.State{Kind: checkpoints.Absent}}, quiet: true})
		default:
			there[dir] = true
		}
	}
	for _, t := range touched {
		if slices.ContainsFunc(t.Parents, func(p checkpoints.Parent) bool { return p.Absent && there[p.Path] }) {
			t.Parents = slices.DeleteFunc(slices.Clone(t.Parents), func(p checkpoints.Parent) bool { return p.Absent && there[p.Path] })
		}
	}
	return all
}

// idle reports whether nothing is to be done about a quiet directory: it is
// not there, or is what nobody but a user made of it.
func (t *touch) idle() bool {
	switch now := t.Now.State; t.Target.Kind {
	case checkpoints.Absent:
		return now.Kind != checkpoints.Dir
	case checkpoints.Dir:
		return now.Kind != checkpoints.Absent && !now.Same(t.Left)
	}
	return true
}

// settleQuiet parts the quiet directories that are idle from the others, to
// which nothing but what is in them will be an obstacle. One that no interval
// tells of goes by itself only where nothing that is removed takes it along.
func settleQuiet(touched []*touch) (active, idle []*touch) {
	along := map[string]bool{}
	for _, t := range touched {
		if t.Target.Kind == checkpoints.Absent && t.Now.State.Kind != checkpoints.Absent {
			for _, p := range t.Parents {
				along[p.Path] = along[p.Path] || p.Absent
			}
		}
	}
	for _, t := range touched {
		gone := t.Target.Kind == checkpoints.Absent && len(t.intervals) == 0 && along[t.Path]
		if t.quiet && (t.idle() || gone) {
			idle = append(idle, t)
			continue
		}
		if t.quiet {
			t.Seam, t.Left = false, checkpoints.State{}
		}
		active = append(active, t)
	}
	return active, idle
}

// named leaves out failures of quiet directories.
func named(failed []checkpoints.Failure, touched []*touch) []checkpoints.Failure {
	quiet := map[string]bool{}
	for _, t := range touched {
		if t.quiet {
			quiet[t.Path] = true
		}
	}
	return slices.DeleteFunc(failed, func(f checkpoints.Failure) bool { return quiet[f.Path] })
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
			if iv.outside && !iv.out && !iv.along && iv.order >= sp.order {
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
	names := map[string]bool{}
	for _, p := range paths {
		if !filepath.IsAbs(p) {
			return nil, &checkpoints.PathError{Path: p, Kind: "bad_path", Msg: "the path is not absolute"}
		}
		names[filepath.Clean(p)] = true
		resolved, err := ws.Resolve(p)
		if err == nil {
			for _, name := range resolved {
				names[name] = true
			}
		}
	}
	var some []*touch
	for _, t := range all {
		if isBelowAny(t.Path, names) {
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
