package session

import (
	"fmt"
	"slices"

	"github.com/oino-dev/oinod/checkpoints"
)

func (st *state) applyRewind(r *rewindRecord) error {
	if st.pending != nil {
		return fmt.Errorf("rewind %s begins inside rewind %s", r.ID, st.pending.ID)
	}
	rw := &rewind{rewindRecord: *r, order: len(st.order), leafFrom: st.leaf}
	if r.RedoOf != "" && st.rewinds[r.RedoOf] == nil {
		return fmt.Errorf("a redo of rewind %s, which is not there", r.RedoOf)
	}
	if r.Conversation == RewindConversation {
		target := st.nodes[r.Target]
		if r.Target != Start && target == nil {
			return fmt.Errorf("a rewind to entry %s, which is not there", r.Target)
		}
		if target != nil {
			rw.leafTo = target.parent
		}
	}
	st.rewinds[r.ID], st.pending = rw, rw
	return nil
}

func (st *state) applyRewound(r *rewoundRecord) error {
	rw := st.rewinds[r.ID]
	if rw == nil || st.pending != rw {
		return fmt.Errorf("the outcome of rewind %s, which is not under way", r.ID)
	}
	st.pending = nil
	rw.moved = r.Moved
	if rw.RedoOf != "" {
		return st.applyRedone(rw, r)
	}
	if rw.moved && rw.Child != "" {
		st.children[rw.Child] = true
	}
	if len(r.Done) == 0 && !(r.Moved && rw.Conversation == RewindConversation) {
		return nil // nothing was written, nothing moved: as if it had not been
	}
	return st.applyUndone(rw, r)
}

// applyUndone takes the intervals of every path that is back out of play.
func (st *state) applyUndone(rw *rewind, r *rewoundRecord) error {
	rw.undo, rw.steps = make(map[string][]int, len(rw.Undo)), make(map[string]*checkpoints.Step, len(r.Done))
	lost := map[*node]bool{}
	kept, done := setOf(r.Kept), setOf(r.Done)
	for path, ns := range rw.Undo {
		if kept[path] {
			continue
		}
		for _, n := range ns {
			iv, err := st.interval(n)
			if err != nil {
				return err
			}
			iv.out = true
			if iv.turn != nil {
				lost[iv.turn.entry] = true
			}
		}
		rw.undo[path] = ns
	}
	for i := range rw.Intent.Steps {
		if s := &rw.Intent.Steps[i]; done[s.Path] {
			rw.steps[s.Path] = s
		}
	}
	for _, ir := range rw.Merged {
		if ir.N != len(st.intervals)+1 || ir.After == nil {
			return fmt.Errorf("merged interval %d where %d was due", ir.N, len(st.intervals)+1)
		}
		st.addInterval(&interval{
			n: ir.N, order: len(st.order) - 1, outside: true, path: ir.Path, before: ir.Before, after: *ir.After, out: !done[ir.Path],
		})
	}
	from := st.targetOrder(rw.Target)
	for _, n := range st.branch(rw.leafFrom) {
		if n.role != User || n.order < from || n.dropped || st.holds(n) || rw.Some && !lost[n] {
			continue
		}
		n.dropped = true
		rw.dropped = append(rw.dropped, n)
	}
	if rw.moved && rw.Conversation == RewindConversation {
		st.leaf = rw.leafTo
	}
	st.redo = append(st.redo, rw)
	return nil
}

// applyRedone puts back what the undone rewind took, for each path that is
// again as it was. Paths in conflict stay with the rewind, on the stack.
func (st *state) applyRedone(rw *rewind, r *rewoundRecord) error {
	old := st.rewinds[rw.RedoOf]
	kept := setOf(r.Kept)
	for path, ns := range rw.Undo {
		if kept[path] {
			continue
		}
		for _, n := range ns {
			iv, err := st.interval(n)
			if err != nil {
				return err
			}
			iv.out = false
		}
		delete(old.undo, path)
		delete(old.steps, path)
		for _, ir := range old.Merged {
			if ir.Path == path {
				iv, err := st.interval(ir.N)
				if err != nil {
					return err
				}
				iv.out = true
			}
		}
	}
	old.dropped = slices.DeleteFunc(old.dropped, func(n *node) bool {
		if len(old.undo) == 0 || st.holds(n) || !st.held(n, old) {
			n.dropped = false
			return true
		}
		return false
	})
	if rw.moved && old.Conversation == RewindConversation {
		st.leaf, old.moved = old.leafFrom, false
	}
	if len(old.undo) == 0 {
		st.redo = slices.DeleteFunc(st.redo, func(x *rewind) bool { return x == old })
	}
	return nil
}

// holds reports whether a user entry's turn has an interval in play.
func (st *state) holds(n *node) bool {
	t := st.turns[n.id]
	return t != nil && slices.ContainsFunc(t.intervals, func(iv *interval) bool { return !iv.out })
}

// held reports whether rw still keeps an interval of a user entry's turn.
func (st *state) held(n *node, rw *rewind) bool {
	for _, ns := range rw.undo {
		for _, i := range ns {
			if iv, err := st.interval(i); err == nil && iv.turn != nil && iv.turn.entry == n {
				return true
			}
		}
	}
	return false
}

// applyEvict folds turns into the baseline: see foldPath.
func (st *state) applyEvict(r *evictRecord) error {
	through := st.nodes[r.Through]
	if through == nil {
		return fmt.Errorf("eviction through entry %s, which is not there", r.Through)
	}
	was := st.evicted
	st.evicted = max(st.evicted, through.order+1)
	leaving := map[string]bool{} // paths of the turns that leave
	for _, n := range st.order[was:st.evicted] {
		if t := st.turns[n.id]; t != nil {
			for _, iv := range t.intervals {
				leaving[iv.path] = true
			}
			t.intervals, t.newest = nil, nil
		}
	}
	emptied := false
	for path := range leaving {
		folded, kept := []*interval(nil), []*interval(nil)
		for _, iv := range st.paths[path] {
			switch {
			case iv.order >= st.evicted:
				kept = append(kept, iv)
			case !iv.out: // else no redo can bring it back: a recorded change came before the eviction
				folded = append(folded, iv)
			}
		}
		kept = append(st.foldPath(folded), kept...)
		if len(kept) == 0 {
			emptied = true
			delete(st.paths, path)
		} else {
			st.paths[path] = kept
		}
	}
	if emptied {
		st.pathOrder = slices.DeleteFunc(st.pathOrder, func(p string) bool { return st.paths[p] == nil })
	}
	return nil
}

// foldPath folds what turns that are evicted did to a path into one interval
// of the baseline: the earliest before, the latest after, and whether there is
// a seam between. What was outside before and behind that becomes one interval
// each; what was between shows as a seam, and, for scope "all", whether it is
// the whole of what lies between.
func (st *state) foldPath(ivs []*interval) []*interval {
	isTurns := func(iv *interval) bool { return !iv.outside }
	from := slices.IndexFunc(ivs, isTurns)
	if from < 0 {
		return st.foldOne(ivs)
	}
	to := len(ivs)
	for !isTurns(ivs[to-1]) {
		to--
	}
	last := st.foldOne(ivs[to:])
	for _, iv := range last {
		iv.order = st.evicted - 1 // behind the baseline also for a fork
	}
	return slices.Concat(st.foldOne(ivs[:from]), st.foldOne(ivs[from:to]), last)
}

// foldOne folds intervals of a path, in order, into one under the number of the
// first: a turn's, where any is a turn's, for then the first is.
func (st *state) foldOne(ivs []*interval) []*interval {
	if len(ivs) == 0 {
		return nil
	}
	b := *ivs[0]
	if b.turn != nil {
		b.turn, b.first, b.last = nil, b.turn.entry, b.turn.entry
	}
	gap := b.seam && !b.linked // not even what is outside explains what lies between
	b.seam = b.seam || len(b.shared) > 0
	left := b.after // by the last of the turns
	for _, iv := range ivs[1:] {
		gap = gap || iv.seam && !iv.linked || breaks(b.after, iv.before)
		b.after, b.written, b.guessed, b.temp = iv.after, iv.written, iv.guessed, ""
		if iv.outside && !b.outside {
			continue
		}
		b.seam = b.seam || iv.seam || len(iv.shared) > 0 || breaks(left, iv.before)
		b.along, b.session = b.along && iv.along, iv.session
		left = iv.after
		if iv.last != nil {
			b.last = iv.last
		} else if iv.turn != nil {
			b.last = iv.turn.entry
		}
	}
	b.linked = b.seam && !gap
	st.intervals[b.n-1] = &b
	return []*interval{&b}
}
