package workspace

import (
	"maps"
	"slices"

	"github.com/oino-dev/oinod/checkpoints"
	"github.com/oino-dev/oinod/checkpoints/journal"
)

// condenser makes of journal lines those that a shorter journal needs: of the
// captures that nobody holds, only that they led from one held capture to the
// next, what was claimed on the way, and whose turns began and ended.
type condenser struct {
	held     map[uint64]bool
	lines    [][]byte
	claims   [][]byte            // since the last held capture
	turns    map[string]turnLine // by session: how it stands with it now
	merged   map[string]record   // of the captures since, one a path
	parts    gather
	first    map[string]record // the first of each path, but for restats
	releases map[string]releaseLine
}

func newCondenser(held map[uint64]bool) *condenser {
	return &condenser{held: held, turns: map[string]turnLine{}, merged: map[string]record{}, first: map[string]record{}, releases: map[string]releaseLine{}}
}

func (c *condenser) line(line any, _ journal.Pos) error {
	switch l := line.(type) {
	case *partLine:
		return c.parts.part(l)
	case *captureLine:
		return c.capture(l)
	case *claimLine:
		c.claims = append(c.claims, encodeLine(l))
	case *turnLine:
		c.turns[l.Session] = *l
	case *releaseLine:
		if l.Gone {
			c.turns[l.Session] = turnLine{"turn", l.Session, false}
		}
		if old, ok := c.releases[l.Session]; !ok || old.Below < l.Below {
			c.releases[l.Session] = *l
		}
	}
	return nil
}

func (c *condenser) capture(l *captureLine) error {
	if err := c.parts.take(l, func(p *partLine) error { return p.eachRecord(c.record) }); err != nil {
		return err
	}
	if !c.held[l.Seq] {
		if l.Begin || l.End {
			c.turns[l.Session] = turnLine{"turn", l.Session, l.Begin}
		}
		return nil
	}
	c.flush()
	rs := slices.Collect(maps.Values(c.merged))
	sortRecords(rs)
	parts := partLines("part", eachOf(rs))
	l.Parts = len(parts)
	c.lines = append(append(c.lines, parts...), encodeLine(l))
	clear(c.merged)
	return nil
}

func (c *condenser) record(r record) {
	if _, known := c.first[r.path]; !known && r.op != restat {
		c.first[r.path] = r
	}
	if old, ok := c.merged[r.path]; ok {
		if r, ok = follow(old, r); !ok {
			delete(c.merged, old.path)
			return
		}
	}
	c.merged[r.path] = r
}

// flush tells what was claimed and whose turns there were since the last held
// capture. A turn that came and went is told by its end alone.
func (c *condenser) flush() {
	c.lines = append(c.lines, c.claims...)
	for _, session := range slices.Sorted(maps.Keys(c.turns)) {
		c.lines = append(c.lines, encodeLine(c.turns[session]))
	}
	c.claims = nil
	clear(c.turns)
}

// end returns all lines.
func (c *condenser) end() [][]byte {
	c.flush()
	for _, session := range slices.Sorted(maps.Keys(c.releases)) {
		c.lines = append(c.lines, encodeLine(c.releases[session]))
	}
	return c.lines
}

// follow makes one record of two that follow each other; ok is false where
// nothing is left to tell. Only the path of the result is set then.
func follow(first, second record) (r record, ok bool) {
	r = second
	if second.op == restat && first.op != restat {
		r.op, r.before, r.after = first.op, first.before, first.after
		return r, true
	}
	switch first.op {
	case restat:
		return r, true
	case came:
		r.op, r.before = came, first.before
		return r, second.op != gone
	}
	r.before = first.before
	if r.op == came {
		r.op = changed
	}
	if r.op == changed && r.before == r.after && r.after.Kind != checkpoints.Uncovered {
		r.op = restat
	}
	return r, true
}
