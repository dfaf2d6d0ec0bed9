package workspace

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/oino-dev/oinod/checkpoints"
	"github.com/oino-dev/oinod/checkpoints/journal"
)

// States says what paths were at a mark: a state that a capture has seen,
// absent where one has seen that, uncovered with the reason where none can
// tell. A path outside the roots, or in one that was not captured, is
// uncovered as excluded.
func (w *Workspace) States(ctx context.Context, at Mark, paths []string) ([]checkpoints.State, error) {
	states := make([]checkpoints.State, len(paths))
	byRoot := map[*trackedRoot][]int{}
	for i, p := range paths {
		states[i] = notCovered(checkpoints.Excluded)
		if r, rel := w.locate(p); r != nil && rel != "" {
			byRoot[r] = append(byRoot[r], i)
		}
	}
	for r, places := range byRoot {
		m := at.of(r.spelled)
		if m.Seq == 0 {
			continue
		}
		err := w.visit(ctx, r, func(t *tree) error {
			c, err := t.marked(m)
			if err != nil {
				return err
			}
			facts, err := t.factsAt(c)
			if err != nil {
				return err
			}
			rels := make([]string, len(places))
			for n, i := range places {
				_, rels[n] = w.locate(paths[i])
			}
			got, err := t.statesAt(c, facts, rels)
			for n, i := range places {
				if err == nil {
					states[i] = got[n]
				}
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return states, nil
}

func notCovered(r checkpoints.Reason) checkpoints.State {
	return checkpoints.State{Kind: checkpoints.Uncovered, Reason: r}
}

// statesAt undoes what was recorded since capture c.
func (t *tree) statesAt(c *capture, f *facts, rels []string) ([]checkpoints.State, error) {
	wanted := map[string]*record{} // the first since c
	for _, rel := range rels {
		for ; rel != ""; rel, _ = split(rel) {
			wanted[rel] = nil
		}
	}
	var parts gather
	err := t.scan(c.end, t.end, func(line any, _ journal.Pos) error {
		switch l := line.(type) {
		case *partLine:
			return parts.part(l)
		case *captureLine:
			return parts.take(l, func(p *partLine) error {
				return p.eachRecord(func(r record) {
					if first, ok := wanted[r.path]; ok && first == nil && r.op != restat {
						wanted[r.path] = &r
					}
				})
			})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	at := func(rel string) checkpoints.State {
		if f.looked(rel) {
			return f.state(rel, wanted[rel], t.table.find(rel))
		}
		// Nothing is below what was seen not to be a directory.
		for dir, _ := split(rel); dir != ""; dir, _ = split(dir) {
			if f.looked(dir) {
				if s := f.state(dir, wanted[dir], t.table.find(dir)); s.Kind == checkpoints.Absent || s.Kind == checkpoints.File || s.Kind == checkpoints.Symlink {
					return checkpoints.State{Kind: checkpoints.Absent}
				}
				break
			}
		}
		return notCovered(checkpoints.Excluded)
	}
	states := make([]checkpoints.State, len(rels))
	for i, rel := range rels {
		states[i] = at(rel)
	}
	return states, nil
}

// facts are what a capture knew beside its records: what it covered.
type facts struct {
	tree    *tree
	capture *capture
	lookup  *lookup
	extra   map[string]bool
}

func (t *tree) factsAt(c *capture) (*facts, error) {
	r := t.rules[c.Rules]
	if r == nil {
		return nil, fmt.Errorf("%w: the rules of capture %d of %s are missing", errDamaged, c.Seq, t.root)
	}
	f := &facts{tree: t, capture: c, lookup: r.lookup(), extra: map[string]bool{}}
	for _, p := range c.Extra {
		f.extra[p] = true
	}
	return f, nil
}

// covers reports whether the capture looked at the path, or would have.
func (f *facts) covers(rel string, isDir bool) bool {
	return !f.tree.never(rel) && (f.extra[rel] || f.lookup.covers(rel, isDir))
}

// looked reports whether the capture knew if there was anything at the path: it
// would have covered a directory there, or what is none.
func (f *facts) looked(rel string) bool { return f.covers(rel, false) || f.covers(rel, true) }

// never reports whether no rules make a walk go there: to anything named .git
// or below, and to the agent directory.
func (t *tree) never(rel string) bool {
	for name := range strings.SplitSeq(rel, "/") {
		if isGit(name) {
			return true
		}
	}
	agent := t.store.agentDir
	return agent != "" && within(agent, t.realPath(rel))
}

// blind reports whether the capture could not see what is at the path.
func (f *facts) blind(rel string) bool {
	return slices.ContainsFunc(f.capture.Blind, func(dir string) bool { return strings.HasPrefix(rel, dir+"/") })
}

// state is what a path that the capture looked at was, given the first record
// since then, or nil, and its entry now, or nil.
func (f *facts) state(rel string, r *record, now *entry) checkpoints.State {
	switch {
	case r != nil:
		return f.before(r)
	case f.blind(rel):
		return notCovered(checkpoints.Unreadable)
	case now != nil:
		return f.asCovered(rel, now.state)
	case f.capture.Over:
		return notCovered(checkpoints.Budget)
	}
	return checkpoints.State{Kind: checkpoints.Absent}
}

// before is what a path was at the capture when r is the first record of it since.
func (f *facts) before(r *record) checkpoints.State {
	switch {
	case f.blind(r.path):
		return notCovered(checkpoints.Unreadable)
	case r.op != came:
		return f.asCovered(r.path, r.before)
	case f.capture.Over:
		return notCovered(checkpoints.Budget)
	}
	return checkpoints.State{Kind: checkpoints.Absent}
}

// asCovered is what a path was, if the capture covered it as that. A directory
// may be known from another's rules where only what is none was covered.
func (f *facts) asCovered(rel string, s checkpoints.State) checkpoints.State {
	switch s.Kind {
	case checkpoints.Dir, checkpoints.File, checkpoints.Symlink:
		if !f.covers(rel, s.Kind == checkpoints.Dir) {
			return notCovered(checkpoints.Excluded)
		}
	}
	return s
}
