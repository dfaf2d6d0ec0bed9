package session

import (
	"context"
	"slices"
	"sync"

	"github.com/oino-dev/oinod/checkpoints"
	"github.com/oino-dev/oinod/checkpoints/workspace"
)

// neighbours is what sessions of this process do to paths, so that a turn
// that only records a path does not take another session's work for its own.
// A tracked session learns the same, and of other processes too, from the
// captures of its workspace; any other, of other processes, from the claims in
// the journals of those that track it.
type neighbours struct {
	mu     sync.Mutex
	seq    int
	events map[string][]event // by path; kept while more than one session is open
}

// event is a change that a session claimed, or (shared) one that nobody
// claimed and two turns were waiting for.
type event struct {
	seq           int
	session       string
	before, after checkpoints.State
	shared        bool
}

// now is a moment to ask since.
func (n *neighbours) now() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.seq
}

func (n *neighbours) add(path string, e event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.seq++
	e.seq = n.seq
	if n.events == nil {
		n.events = map[string][]event{}
	}
	n.events[path] = append(n.events[path], e)
}

// since are the events of a path after a moment that are not the session's own.
func (n *neighbours) since(seq int, path, session string) []event {
	n.mu.Lock()
	defer n.mu.Unlock()
	var all []event
	for _, e := range n.events[path] {
		if e.seq > seq && e.session != session {
			all = append(all, e)
		}
	}
	return all
}

// knows reports whether a session is one whose changes to a path are events.
func (n *neighbours) knows(path, session string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.ContainsFunc(n.events[path], func(e event) bool { return e.session == session })
}

// forget drops everything: no session is left that could ask.
func (n *neighbours) forget() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.events = nil
}

// noteClaims tells the other sessions of this process what s changed.
func (s *Session) noteClaims(claims []workspace.Claim) {
	if len(s.reg.others(s)) == 0 {
		return
	}
	for _, c := range claims {
		s.reg.neighbours.add(c.Path, event{session: s.id, before: c.Before, after: c.After})
	}
}

// others are the sessions that are open here besides s.
func (r *Registry) others(s *Session) []*Session {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []*Session
	for _, o := range r.open {
		if o != s {
			all = append(all, o)
		}
	}
	return all
}

// awaits reports whether the session's open turn has recorded the path and
// does not know yet what it will leave.
func (s *Session) awaits(path string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	t := s.state.open
	return t != nil && slices.ContainsFunc(t.intervals, func(iv *interval) bool {
		return iv.path == path && !iv.out && iv.after.Kind == checkpoints.Unknown
	})
}

// divide takes other sessions' part out of what is at a recorded path at the
// turn's end. What they claimed is theirs: the turn's part ends before it, and
// begins again after it (a second interval, with a seam). What nobody claimed
// and another turn waits for too is shared.
func (s *Session) divide(iv *interval, now checkpoints.State, heard []event) (afterState, *intervalRecord) {
	a := afterState{N: iv.n, State: &now}
	var rest *intervalRecord
	left := iv.before // by the newest claim
	// Of what was heard, that after which the path was as the turn found it came
	// before the turn found it so.
	for i := len(heard) - 1; i >= 0; i-- {
		if heard[i].after.Same(iv.before) {
			heard = heard[i+1:]
			break
		}
	}
	for _, e := range append(s.reg.neighbours.since(s.openedAt(iv.n), iv.path, s.id), heard...) {
		if e.shared {
			if !slices.Contains(a.Shared, e.session) {
				a.Shared = append(a.Shared, e.session)
			}
			continue
		}
		if rest == nil {
			before := e.before
			a.State, rest = &before, &intervalRecord{Path: iv.path, After: &now}
		}
		rest.Before, left = e.after, e.after
	}
	if now.Same(left) {
		return a, nil
	}
	for _, o := range s.reg.others(s) {
		if o.awaits(iv.path) && !slices.Contains(a.Shared, o.id) {
			a.Shared = append(a.Shared, o.id)
		}
	}
	if rest != nil {
		rest.Shared, a.Shared = a.Shared, nil
	}
	return a, rest
}

// hear is what sessions of other processes have claimed since the turn began, by
// path: as far as the journals of tracked workspaces tell.
func (s *Session) hear() map[string][]event {
	c := s.claims()
	if c == nil {
		return nil
	}
	limited, cancel := context.WithTimeout(context.Background(), claimLimit)
	defer cancel()
	all, _ := c.Heard(limited)
	here := map[string]bool{}
	for _, o := range s.reg.others(s) {
		here[o.id] = true
	}
	heard := map[string][]event{}
	for _, h := range all {
		if !here[h.Session] && !s.reg.neighbours.knows(h.Path, h.Session) {
			heard[h.Path] = append(heard[h.Path], event{session: h.Session, before: h.Before, after: h.After})
		}
	}
	return heard
}

// noteEnd tells the other sessions what the end of a turn, now in the log,
// shares with them. When no turn is open in this process nobody asks any more.
func (s *Session) noteEnd(records []any) {
	ended := false
	for _, r := range records {
		switch r := r.(type) {
		case *endRecord:
			ended = true
			for _, a := range r.Afters {
				if iv, err := s.state.interval(a.N); err == nil && len(a.Shared) > 0 {
					s.reg.neighbours.add(iv.path, event{session: s.id, shared: true})
				}
			}
		case *beforeRecord:
			for _, iv := range r.Intervals {
				if len(iv.Shared) > 0 {
					s.reg.neighbours.add(iv.Path, event{session: s.id, shared: true})
				}
			}
		}
	}
	if !ended {
		return
	}
	clear(s.opened)
	if s.state.open == nil || s.state.closed {
		_ = s.tellTurn(context.Background(), false)
	}
	if s.state.open != nil {
		return
	}
	for _, o := range s.reg.others(s) {
		o.mu.RLock()
		open := o.state.open != nil
		o.mu.RUnlock()
		if open {
			return
		}
	}
	s.reg.neighbours.forget()
}

// openedAt is when an interval was opened, or the session.
func (s *Session) openedAt(n int) int {
	if at, ok := s.opened[n]; ok {
		return at
	}
	return s.openedSession
}
