package session

import (
	"maps"
	"slices"

	"github.com/oino-dev/oinod/checkpoints/journal"
)

// with is the state with records folded in that are not in the log (yet): what
// a rewind decides on, and a dry run leaves. The state itself is not changed.
func (st *state) with(records []any) (*state, error) {
	if len(records) == 0 {
		return st, nil
	}
	c := *st
	c.nodes = maps.Clone(st.nodes)
	c.order = slices.Clone(st.order)
	c.redo = slices.Clone(st.redo)
	c.rewinds = maps.Clone(st.rewinds)
	c.labels, c.driver, c.children = maps.Clone(st.labels), maps.Clone(st.driver), maps.Clone(st.children)
	c.damage = slices.Clone(st.damage)
	c.epochs = slices.Clone(st.epochs)
	c.pathOrder = slices.Clone(st.pathOrder)

	turns := map[*turn]*turn{}
	c.turns = make(map[string]*turn, len(st.turns))
	for id, t := range st.turns {
		nt := *t
		c.turns[id], turns[t] = &nt, &nt
	}
	c.open, c.last = turns[st.open], turns[st.last]
	c.unseen = make([]*turn, len(st.unseen))
	for i, t := range st.unseen {
		c.unseen[i] = turns[t]
	}
	ivs := make(map[*interval]*interval, len(st.intervals))
	copied := func(all []*interval) []*interval {
		to := make([]*interval, len(all))
		for i, iv := range all {
			if ivs[iv] == nil {
				n := *iv
				n.turn = turns[iv.turn]
				ivs[iv] = &n
			}
			to[i] = ivs[iv]
		}
		return to
	}
	c.intervals = copied(st.intervals)
	c.paths = make(map[string][]*interval, len(st.paths))
	for path, all := range st.paths {
		c.paths[path] = copied(all)
	}
	for _, t := range c.turns {
		t.intervals = copied(t.intervals)
		newest := make(map[string]*interval, len(t.newest))
		for path, iv := range t.newest {
			newest[path] = ivs[iv]
		}
		t.newest = newest
	}
	for _, r := range records {
		if err := c.apply(r, journal.Pos{}); err != nil {
			return nil, err
		}
	}
	return &c, nil
}
