package session

import (
	"fmt"
	"slices"

	"github.com/oino-dev/oinod/checkpoints"
)

func (st *state) applyBefore(r *beforeRecord) error {
	t := st.turns[r.Turn]
	if t == nil {
		return fmt.Errorf("intervals of turn %s, which is not there", r.Turn)
	}
	st.closed = false
	st.redo = nil
	t.unseen = append(t.unseen, r.Unseen...)
	for _, ir := range r.Intervals {
		if gap := ir.N - len(st.intervals) - 1; gap > 0 && gap < maxGap && len(st.damage) > 0 {
			// The missing ones were in a damaged line. Those that follow are
			// good all the same, under their own numbers.
			st.intervals = append(st.intervals, slices.Repeat([]*interval{{out: true}}, gap)...)
		}
		if ir.N != len(st.intervals)+1 {
			return fmt.Errorf("interval %d where %d was due", ir.N, len(st.intervals)+1)
		}
		iv := &interval{
			n: ir.N, turn: t, order: t.entry.order, path: ir.Path,
			before: ir.Before, parents: ir.Parents, err: ir.Error, seam: ir.Seam, linked: ir.Linked, along: ir.Along,
		}
		if ir.After != nil {
			iv.after = *ir.After
		}
		iv.shared = ir.Shared
		t.intervals = append(t.intervals, iv)
		if t.newest == nil {
			t.newest = map[string]*interval{}
		}
		t.newest[iv.path] = iv
		st.addInterval(iv)
	}
	return nil
}

func (st *state) addInterval(iv *interval) {
	st.intervals = append(st.intervals, iv)
	if len(st.paths[iv.path]) == 0 {
		st.pathOrder = append(st.pathOrder, iv.path)
	}
	st.paths[iv.path] = append(st.paths[iv.path], iv)
}

func (st *state) applySeen(r *seenRecord) error {
	t := st.turns[r.Turn]
	if t == nil {
		return fmt.Errorf("the capture of turn %s, which is not there", r.Turn)
	}
	t.mark, t.dark = r.Mark, r.Dark
	st.noteMark(r.Mark)
	if r.Blind != "" {
		t.blind = r
	}
	t.unseen = append(t.unseen, r.Unseen...)
	st.noteUnseen(t)
	st.applyRules(t, r.Rules, false)
	return nil
}

func (st *state) applyOutside(r *outsideRecord) error {
	order := len(st.order) - 1
	if r.Turn != "" {
		t := st.turns[r.Turn]
		if t == nil {
			return fmt.Errorf("changes within turn %s, which is not there", r.Turn)
		}
		order = t.entry.order
	}
	st.noteMark(r.Mark)
	for _, ir := range r.Intervals {
		if ir.N != len(st.intervals)+1 || ir.After == nil {
			return fmt.Errorf("outside interval %d where %d was due", ir.N, len(st.intervals)+1)
		}
		st.addInterval(&interval{
			n: ir.N, order: order, outside: true, session: ir.SessionID, path: ir.Path,
			before: ir.Before, after: *ir.After, parents: ir.Parents, err: ir.Error, along: ir.Along,
		})
	}
	return nil
}

func (st *state) interval(n int) (*interval, error) {
	if n > len(st.intervals) && len(st.damage) > 0 {
		return &interval{out: true}, nil // it was in a damaged line
	}
	if n < 1 || n > len(st.intervals) {
		return nil, fmt.Errorf("interval %d, which is not there", n)
	}
	return st.intervals[n-1], nil
}

func (st *state) applyAfters(afters []afterState, guessed bool) error {
	for _, a := range afters {
		iv, err := st.interval(a.N)
		if err != nil {
			return err
		}
		iv.after, iv.written, iv.guessed, iv.temp = checkpoints.State{}, a.Written, guessed, a.Temp
		if a.State != nil {
			iv.after = *a.State
		}
		if len(a.Shared) > 0 {
			iv.shared = a.Shared
		}
	}
	return nil
}

func (st *state) applyKnown(r *knownRecord) error {
	for _, a := range r.Afters {
		iv, err := st.interval(a.N)
		if err != nil {
			return err
		}
		if a.State != nil {
			iv.after = *a.State
		}
	}
	return nil
}

// guess marks what a tracked turn left as known from the rewind that ended it
// alone, except where it is what a tool of ours wrote.
func (t *turn) guess() {
	wrote := map[string]checkpoints.State{}
	for _, iv := range t.intervals[t.sealed:] {
		if iv.out && iv.written {
			wrote[iv.path] = iv.after
		}
	}
	for _, iv := range t.intervals[t.sealed:] {
		if w, ok := wrote[iv.path]; !iv.out && !iv.written && !(ok && w.Same(iv.after)) {
			iv.guessed = true
		}
	}
}

func (st *state) applyEnd(r *endRecord) error {
	t := st.turns[r.Turn]
	if t == nil {
		return fmt.Errorf("the end of turn %s, which is not there", r.Turn)
	}
	if err := st.applyAfters(r.Afters, r.Why == "rewind"); err != nil {
		return err
	}
	for _, n := range r.Drop {
		iv, err := st.interval(n)
		if err != nil {
			return err
		}
		iv.out, iv.void = true, true
	}
	if r.Why == "rewind" && t.mark != nil {
		t.guess()
	}
	t.unseen = append(t.unseen, r.Unseen...)
	t.mark, t.sealed = nil, len(t.intervals)
	st.boundary = len(st.intervals)
	st.noteMark(r.Mark)
	t.dark = t.dark || r.Dark
	st.noteUnseen(t)
	if r.Open {
		st.closed = true
		return nil
	}
	t.end(r.Why)
	if st.open == t {
		st.open, st.closed = nil, false
	}
	return nil
}

// end ends a turn. What it only looked at, and left as it was, it has not
// changed: such an interval is none.
func (t *turn) end(why string) {
	t.ended, t.why = true, why
	for _, iv := range t.intervals {
		special := iv.before.Kind == checkpoints.Uncovered && iv.before.Reason == checkpoints.NotRegular && iv.before == iv.after
		if iv.before.Same(iv.after) || special {
			iv.out, iv.void = true, true
		}
	}
}

// openIntervals are the newest intervals in play of a turn, one a path, in
// first-change order.
func (t *turn) openIntervals() []*interval {
	newest := map[string]*interval{}
	for _, iv := range t.intervals {
		if !iv.out {
			newest[iv.path] = iv
		}
	}
	return t.inOrder(newest)
}

// firstIntervals are the first ones, of what was not changed along with
// something else.
func (t *turn) firstIntervals() []*interval {
	first := map[string]*interval{}
	for _, iv := range t.intervals {
		if !iv.out && !iv.along && first[iv.path] == nil {
			first[iv.path] = iv
		}
	}
	return t.inOrder(first)
}

// inOrder puts intervals of the turn, one a path, in the order in which it
// first changed the paths; what took the place of an interval comes in its place.
func (t *turn) inOrder(of map[string]*interval) []*interval {
	ivs := make([]*interval, 0, len(of))
	done := make(map[string]bool, len(of))
	for _, iv := range t.intervals {
		if o := of[iv.path]; o != nil && !done[iv.path] {
			done[iv.path] = true
			ivs = append(ivs, o)
		}
	}
	return ivs
}
