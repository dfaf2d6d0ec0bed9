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
	rw.undo, rw.steps = map[string][]int{}, map[string]checkpoints.Step{}
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
	for _, s := range rw.Intent.Steps {
		if done[s.Path] {
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

// applyEvict folds turns into the baseline: of each path the earliest before,
// the latest after, and whether there is a seam between.
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
		ivs := st.paths[path]
		var base *interval
		kept := ivs[:0:0]
		for _, iv := range ivs {
			switch {
			case iv.out && iv.order < st.evicted:
				// No redo can bring it back: a recorded change came before the eviction.
			case iv.order >= st.evicted:
				kept = append(kept, iv)
			case iv.outside:
				// What lies between two of ours shows as a seam.
			case base == nil:
				b := *iv
				b.turn, b.seam = nil, b.seam || len(b.shared) > 0
				base = &b
			default:
				base.seam = base.seam || iv.seam || len(iv.shared) > 0 || breaks(base.after, iv.before)
				base.along = base.along && iv.along
				base.after, base.written, base.guessed = iv.after, iv.written, iv.guessed
			}
		}
		if base != nil {
			st.intervals[base.n-1] = base
			kept = append([]*interval{base}, kept...)
		}
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
