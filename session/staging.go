package session

import (
	"slices"
	"time"

	"github.com/oino-dev/oinod/checkpoints"
)

// staging collects the intervals and after states of calls that are made
// durable together.
type staging struct {
	s      *Session
	turn   *turn
	staged map[string]*interval // the newest of each path that is staged, or a copy
	next   int
	before []intervalRecord
	after  []afterState
	unseen []Uncovered // what was named and lies beyond the roots

	captured map[string]checkpoints.Captured // in advance, of paths to be opened; see capture
}

func (s *Session) stage(t *turn) *staging {
	return &staging{s: s, turn: t, staged: map[string]*interval{}, next: s.state.nextInterval()}
}

// newest is the turn's newest interval of a path, with what is staged; nil
// where there is none.
func (g *staging) newest(path string) *interval {
	if iv := g.staged[path]; iv != nil {
		return iv
	}
	if iv := g.turn.newest[path]; iv != nil && !iv.out {
		return iv
	}
	return nil
}

// open captures path as the before of a new interval.
func (g *staging) open(path string) (checkpoints.Captured, error) {
	c, ok := g.captured[path]
	if !ok {
		var err error
		if c, err = g.s.captureBefore(g.turn, path); err != nil {
			return c, storageError("the contents of "+path+" could not be kept", err)
		}
	}
	delete(g.captured, path)
	g.before = append(g.before, intervalRecord{N: g.next, Path: path, Before: c.State, Parents: c.Parents, Error: c.Err})
	g.staged[path] = &interval{n: g.next, turn: g.turn, path: path, before: c.State, err: c.Err}
	g.s.opened[g.next] = g.s.reg.neighbours.now()
	g.next++
	return c, nil
}

// capture captures in advance, and several at a time, what is about to be
// opened. Where that fails each open captures its own, so that what fails
// fails alone.
func (g *staging) capture(names [][]string) {
	var paths []string
	seen := map[string]bool{}
	for _, name := range slices.Concat(names...) {
		if !seen[name] && g.newest(name) == nil {
			seen[name] = true
			paths = append(paths, name)
		}
	}
	g.captured = make(map[string]checkpoints.Captured, len(paths))
	paths = g.s.seenBefore(g.turn, paths, g.captured)
	all, err := g.s.ws.CaptureAll(paths)
	if err != nil {
		return
	}
	for i, path := range paths {
		g.captured[path] = all[i]
	}
}

// fix sets the after state of path's newest interval; nil makes it unknown.
// temp is of the write that brings the state about.
func (g *staging) fix(path string, state *checkpoints.State, temp string) {
	iv := *g.newest(path) // what is in the state changes when it is in the log
	g.after = append(g.after, afterState{N: iv.n, State: state, Written: state != nil, Temp: temp})
	iv.after, iv.written = checkpoints.State{}, state != nil
	if state != nil {
		iv.after = *state
	}
	g.staged[path] = &iv
}

// records are what is to be committed: nil if nothing was staged.
func (g *staging) records() []any {
	var all []any
	if len(g.before) > 0 || len(g.unseen) > 0 {
		all = append(all, &beforeRecord{Type: "before", Turn: g.turn.entry.id, Intervals: g.before, Unseen: g.unseen})
	}
	if len(g.before) > 0 {
		if e := g.s.eviction(g.turn); e != nil {
			all = append(all, e)
		}
	}
	if len(g.after) > 0 {
		all = append(all, &afterRecord{Type: "after", Turn: g.turn.entry.id, Afters: g.after})
	}
	return all
}

// commit makes what was staged durable, contents first.
func (g *staging) commit() error {
	all := g.records()
	if len(all) == 0 {
		return nil
	}
	if err := g.s.syncBlobs(); err != nil {
		return err
	}
	at := g.s.now()
	for _, r := range all {
		switch r := r.(type) {
		case *beforeRecord:
			r.At = at
		case *afterRecord:
			r.At = at
		}
	}
	return g.s.commit(all...)
}

// eviction is the record that keeps the number of checkpoints with files in
// bounds when turn t gets its first interval, or nil.
func (s *Session) eviction(t *turn) *evictRecord {
	if s.state.holds(t.entry) {
		return nil
	}
	var with []*node
	for _, n := range s.state.listed() {
		if n == t.entry || s.state.holds(n) {
			with = append(with, n)
		}
	}
	over := len(with) - s.reg.limits.MaxCheckpoints
	if over <= 0 || with[over-1] == t.entry {
		return nil
	}
	return &evictRecord{Type: "evict", Through: with[over-1].id}
}

// late takes what was captured of path for what it may not be, where it was
// changed since a time: the state before that is nobody's to know.
func (g *staging) late(path string, since time.Time) {
	c, ok := g.captured[path]
	if !ok || since.IsZero() || c.Changed.Before(since) {
		return
	}
	if c.State.Kind == checkpoints.Absent && g.s.tracker == nil {
		return // most likely it was never there: a name beside it has come or gone
	}
	c.State = checkpoints.State{Kind: checkpoints.Uncovered, Reason: checkpoints.Excluded}
	c.Err = "it was changed in this turn before it was named"
	g.captured[path] = c
}

// record stages one request.
func (g *staging) record(names []string, since time.Time) (RecordReply, error) {
	r := RecordReply{EntryID: g.turn.entry.id, Recorded: []string{}, Known: []string{}}
	seen := map[string]bool{}
	for _, name := range names {
		if seen[name] {
			continue
		}
		seen[name] = true
		if iv := g.newest(name); iv != nil {
			r.Known = append(r.Known, name)
			if iv.written {
				g.fix(name, nil, "")
			}
			continue
		}
		g.late(name, since)
		c, err := g.open(name)
		if err != nil {
			return r, err
		}
		if c.State.Kind == checkpoints.Uncovered {
			r.Uncovered = append(r.Uncovered, Uncovered{Path: name, Reason: c.State.Reason, Error: c.Err})
		} else {
			r.Recorded = append(r.Recorded, name)
		}
	}
	return r, nil
}
