package workspace

import (
	"iter"
	"slices"

	"github.com/oino-dev/oinod/checkpoints"
)

// compactAbove is how long a journal may get, beside three times what it was.
const compactAbove = 1 << 20

// compact begins a shorter journal at the oldest capture that is held, where
// the old one has become much longer than it was when it began. Failing it is
// no loss.
func (t *tree) compact() error {
	short := t.short
	if short == 0 {
		short = t.captures[0].end
	}
	if t.end < t.store.compact+3*short {
		return nil
	}
	if err := t.rebase(t.oldest()); err != nil {
		return err
	}
	t.short = t.end
	return nil
}

// rebase begins a journal at capture seq.
func (t *tree) rebase(seq uint64) error {
	i := slices.IndexFunc(t.captures, func(c capture) bool { return c.Seq == seq })
	if i < 0 {
		return nil
	}
	c := t.captures[i]
	tail := newCondenser(t.heldSeqs())
	if err := t.scan(c.end, t.end, tail.line); err != nil {
		return err
	}
	before := tail.first // what the captures since have changed, undone
	stale, err := t.stale(before)
	if err != nil {
		return err
	}
	h := headLine{ID: t.head.ID, Base: seq, Holds: t.holdsBefore(seq), Turns: t.turnsBefore(i)}
	for _, r := range stale {
		before[r.path] = record{op: came} // was not there, as far as anybody wants to know
	}
	lines := partLines("base", t.stateBefore(before))
	// The rules that a capture since then has followed go along.
	needed := map[string]bool{}
	for _, c := range t.captures[i:] {
		needed[c.Rules] = needed[c.Rules] || tail.held[c.Seq]
	}
	for id, is := range needed {
		if r := t.rules[id]; r != nil && is {
			lines = append(lines, encodeLine(r.json()))
		}
	}
	c.Parts = 0 // they are in the base
	lines = append(lines, encodeLine(c.captureLine))
	old := t.file
	if err := t.create(h, append(lines, tail.end()...), stale); err != nil {
		return err
	}
	_ = t.store.root.Remove(old)
	return nil
}

// stale are known paths that nobody wants to know any more, to be forgotten:
// the last walk did not cover them, nor does any capture that is held, and
// nothing has changed them since. Without this a tree of modules that was once
// covered would be kept for ever.
func (t *tree) stale(changed map[string]record) ([]record, error) {
	if t.walkRules == nil {
		return nil, nil // the last walk was another process's: it will tell
	}
	var held []*facts
	for seq := range t.heldSeqs() {
		f, err := t.factsAt(t.capture(seq))
		if err != nil {
			return nil, err
		}
		held = append(held, f)
	}
	var all []record
	for dir, f := range t.table.folders {
		for i := range f.entries {
			e := &f.entries[i]
			if e.seen == t.walk {
				continue
			}
			rel := join(dir, e.name)
			if _, is := changed[rel]; !is && !slices.ContainsFunc(held, func(f *facts) bool { return f.looked(rel) }) {
				all = append(all, record{op: gone, path: rel})
			}
		}
	}
	sortRecords(all)
	return all, nil
}

// heldSeqs are all captures that somebody holds, and the newest.
func (t *tree) heldSeqs() map[uint64]bool {
	held := map[uint64]bool{}
	for _, seqs := range t.holds {
		for _, s := range seqs {
			held[s] = true
		}
	}
	if last := t.last(); last != nil {
		held[last.Seq] = true
	}
	return held
}

// holdsBefore are the holds that no line behind capture seq tells.
func (t *tree) holdsBefore(seq uint64) map[string][]uint64 {
	holds := map[string][]uint64{}
	for session, seqs := range t.holds {
		for _, s := range seqs {
			if s <= seq {
				holds[session] = append(holds[session], s)
			}
		}
	}
	return holds
}

// stateBefore are base records of the table with records undone, in order.
func (t *tree) stateBefore(undone map[string]record) iter.Seq[*record] {
	return func(yield func(*record) bool) {
		dirs := make([]string, 0, len(t.table.folders))
		back := map[string][]record{} // what was there and is gone, by directory
		for path, r := range undone {
			if r.op == gone && t.table.find(path) == nil || r.op == changed && t.table.find(path) == nil {
				dir, _ := split(path)
				back[dir] = append(back[dir], r)
			}
		}
		for dir := range t.table.folders {
			dirs = append(dirs, dir)
		}
		for dir := range back {
			if t.table.folders[dir] == nil {
				dirs = append(dirs, dir)
			}
		}
		slices.Sort(dirs)
		for _, dir := range dirs {
			var rs []record
			if f := t.table.folders[dir]; f != nil {
				for i := range f.entries {
					e := &f.entries[i]
					r := record{op: base, path: join(dir, e.name), after: e.state, stat: e.stat, racy: e.racy}
					if u, ok := undone[r.path]; ok {
						if u.op == came {
							continue
						}
						r.after, r.stat, r.racy = u.before, statBefore(u.before), true
					}
					rs = append(rs, r)
				}
			}
			for _, u := range back[dir] {
				rs = append(rs, record{op: base, path: u.path, after: u.before, stat: statBefore(u.before), racy: true})
			}
			sortRecords(rs)
			for i := range rs {
				if !yield(&rs[i]) {
					return
				}
			}
		}
	}
}

// statBefore is the stat of a state that is no more: only its kind is known.
func statBefore(s checkpoints.State) stat {
	if s.Kind == checkpoints.Dir {
		return stat{kind: directory}
	}
	return stat{}
}
