package session

import (
	"github.com/oino-dev/oinod/checkpoints"
	"github.com/oino-dev/oinod/checkpoints/blobs"
)

// marker is told of a content that a session refers to. needed is set where
// the session has a promise to keep with it; what is not needed makes a merge
// possible, or was never kept because of its size.
type marker func(d blobs.Digest, needed bool)

func (m marker) state(s checkpoints.State, needed bool) {
	if s.Kind == checkpoints.File && s.Digest != (blobs.Digest{}) {
		m(s.Digest, needed)
	}
}

// roots marks every content that the session may still ask for: of intervals
// in play (the baseline's among them), of what a redo would bring back, of a
// rewind that was cut off, and the driver's states with their bases. Whatever
// records a log will have later, they name contents that are among these, or
// name them themselves.
func (st *state) roots(m marker) {
	interval := func(iv *interval) {
		m.state(iv.before, true)
		m.state(iv.after, false)
	}
	for _, ivs := range st.paths {
		for _, iv := range ivs {
			if !iv.out {
				interval(iv)
			}
		}
	}
	undone := func(undo map[string][]int) {
		for _, ns := range undo {
			for _, n := range ns {
				if iv, err := st.interval(n); err == nil {
					interval(iv)
				}
			}
		}
	}
	for _, rw := range st.redo {
		undone(rw.undo)
		for _, s := range rw.steps {
			m.step(s)
		}
	}
	if rw := st.pending; rw != nil {
		undone(rw.Undo)
		for _, s := range rw.Intent.Steps {
			m.step(&s)
		}
	}
	for _, r := range st.driver {
		m.chain(r)
	}
}

func (m marker) step(s *checkpoints.Step) {
	m.state(s.Saved, true)
	m.state(s.From, false)
	m.state(s.To, false)
}

func (m marker) chain(r *stateRecord) {
	for _, d := range r.Chain {
		m(d, true)
	}
}

// record marks every content that a record names.
func (m marker) record(r any) {
	intervals := func(all []intervalRecord) {
		for _, iv := range all {
			m.state(iv.Before, true)
			if iv.After != nil {
				m.state(*iv.After, false)
			}
		}
	}
	afters := func(all []afterState) {
		for _, a := range all {
			if a.State != nil {
				m.state(*a.State, false)
			}
		}
	}
	switch r := r.(type) {
	case *beforeRecord:
		intervals(r.Intervals)
	case *outsideRecord:
		intervals(r.Intervals)
	case *afterRecord:
		afters(r.Afters)
	case *endRecord:
		afters(r.Afters)
	case *knownRecord:
		afters(r.Afters)
	case *rewindRecord:
		intervals(r.Merged)
		for _, s := range r.Intent.Steps {
			m.step(&s)
		}
	case *stateRecord:
		m.chain(r)
	}
}
