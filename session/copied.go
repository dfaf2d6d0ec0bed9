package session

import (
	"cmp"
	"math"
	"slices"

	"github.com/oino-dev/oinod/checkpoints"
)

// copies are what a fork takes along of what its turns did, and of what others
// did meanwhile: with it scope "all" brings the whole tree back there as it
// would have here.
type copies struct {
	first    []any // records that come before the entries
	rest     []any // and behind them
	boundary int   // how many intervals are not newer than the source's newest boundary
	n        int   // how many there are
}

// heldTurn is a turn that goes along, with what happened up to the next one.
type heldTurn struct {
	entry *node // nil: before the first
	ivs   []*interval
}

// copyIntervals copies the intervals in play of the entries' turns, and of what
// was outside up to where the conversation went on without the fork. The
// baseline goes along with the entry through which it was folded, if that is
// held: with an older one it would tell of turns that the fork does not have.
func (s *Session) copyIntervals(st *state, entryIDs []string, evicted string) (*copies, error) {
	held := []*heldTurn{{}}
	for _, id := range entryIDs {
		if n := st.nodes[id]; st.turns[id] != nil {
			held = append(held, &heldTurn{entry: n, ivs: slices.Clone(st.turns[id].intervals)})
		}
	}
	end := st.wentOn(entryIDs)
	of := func(order int) int {
		i := len(held) - 1
		for ; i > 0 && held[i].entry.order > order; i-- {
		}
		return i
	}
	withBase := false
	if e := st.nodes[evicted]; e != nil {
		withBase = !slices.ContainsFunc(st.order[e.order+1:st.evicted], func(n *node) bool { return n.role == User })
	}
	for _, path := range st.pathOrder {
		base := 0 // where the baseline goes: what is behind it stays behind it
		for _, iv := range st.paths[path] {
			switch {
			case iv.outside && iv.order < end:
				t := held[max(base, of(iv.order))]
				t.ivs = append(t.ivs, iv)
			case iv.turn == nil && !iv.outside && withBase:
				if base = of(iv.last.order); base == 0 { // its turns are on branches that were left
					base = of(st.nodes[evicted].order)
				}
				held[base].ivs = append(held[base].ivs, iv)
			}
		}
	}
	c := &copies{}
	for _, t := range held {
		slices.SortStableFunc(t.ivs, func(a, b *interval) int { return cmp.Compare(a.n, b.n) })
		records, err := s.copyHeld(c, st, t)
		if err != nil {
			return nil, err
		}
		if t.entry == nil {
			c.first = records
		} else {
			c.rest = append(c.rest, records...)
		}
	}
	c.rest = append(st.copyCovered(held[1:], end), c.rest...)
	return c, nil
}

// wentOn is the order of the newest entry with which the conversation went on
// behind the last of the entries: what was outside since is not the fork's.
func (st *state) wentOn(entryIDs []string) int {
	end := math.MaxInt
	if len(entryIDs) == 0 {
		return end
	}
	last := st.nodes[entryIDs[len(entryIDs)-1]]
	for _, n := range st.order {
		if n.parent == last {
			end = n.order
		}
	}
	return end
}

// copyHeld are the records of a held turn's intervals, in their order.
func (s *Session) copyHeld(c *copies, st *state, t *heldTurn) ([]any, error) {
	var records []any
	var before *beforeRecord
	var outside *outsideRecord
	turn := ""
	if t.entry != nil {
		turn = t.entry.id
	}
	for _, iv := range t.ivs {
		if iv.out {
			continue
		}
		after := iv.after
		if after.Kind == checkpoints.Unknown {
			now, err := s.ws.Capture(iv.path)
			if err != nil {
				return nil, storageError("the contents of "+iv.path+" could not be kept", err)
			}
			after = now.State
		}
		c.n++
		if iv.n <= st.boundary {
			c.boundary = c.n
		}
		r := intervalRecord{
			N: c.n, Path: iv.path, Before: iv.before, Parents: iv.parents, Error: iv.err, After: &after,
			Seam: iv.seam, Linked: iv.linked, Shared: iv.shared, Along: iv.along, SessionID: iv.session,
		}
		if iv.outside {
			if before = nil; outside == nil {
				outside = &outsideRecord{Type: "outside", Turn: turn}
				records = append(records, outside)
			}
			outside.Intervals = append(outside.Intervals, r)
			continue
		}
		if outside = nil; before == nil {
			before = &beforeRecord{Type: "before", Turn: turn}
			records = append(records, before)
		}
		before.Intervals = append(before.Intervals, r)
	}
	return records, nil
}

// copyCovered are the records of what the held turns' captures covered, and
// what they could not see.
func (st *state) copyCovered(held []*heldTurn, end int) []any {
	var records []any
	var last epoch
	for i, h := range held {
		t := st.turns[h.entry.id]
		below := end
		if i+1 < len(held) {
			below = held[i+1].entry.order
		}
		seen := &seenRecord{Type: "seen", Turn: h.entry.id, Unseen: t.unseen, Dark: t.dark}
		if t.blind != nil {
			seen.Blind, seen.Root, seen.Error = t.blind.Blind, t.blind.Root, t.blind.Error
		}
		var more []any
		for j, e := range st.epochsOf(h.entry.order, max(below, h.entry.order+1)) {
			switch {
			case sameRules(last.rules, e.rules):
				continue
			case j == 0:
				seen.Rules = e.rules
			default:
				more = append(more, &reopenRecord{Type: "reopen", Turn: h.entry.id, Rules: e.rules})
			}
			last = e
		}
		if seen.Blind != "" || len(seen.Unseen) > 0 || seen.Rules != nil {
			records = append(records, seen)
		}
		records = append(records, more...)
	}
	return records
}
