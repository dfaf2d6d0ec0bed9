package session

import (
	"slices"

	"github.com/oino-dev/oinod/checkpoints/blobs"
)

// recognize takes the digests of files that were too large to be read when a
// turn left them, and are still what it left, for a rewind compares digests;
// nil if there is none.
func (s *Session) recognize(records []any, sp span, paths []string) (any, error) {
	if !s.state.stamped(records) {
		return nil, nil
	}
	now, err := s.state.with(records)
	if err != nil {
		return nil, err
	}
	touched := now.touched(sp)
	if some, err := only(s.ws, touched, paths); err == nil {
		touched = some
	}
	known := &knownRecord{Type: "known"}
	for _, t := range touched {
		if after, ok := s.ws.Recognize(t.Path, t.Left); ok && len(t.intervals) > 0 {
			known.Afters = append(known.Afters, afterState{N: t.intervals[len(t.intervals)-1].n, State: &after})
		}
	}
	if len(known.Afters) == 0 {
		return nil, nil
	}
	return known, nil
}

// stamped reports whether anything was left that only its stamp tells of.
func (st *state) stamped(records []any) bool {
	for _, iv := range st.intervals {
		if iv.after.Stamp != 0 && iv.after.Digest == (blobs.Digest{}) && !iv.out {
			return true
		}
	}
	for _, r := range records {
		var ivs []intervalRecord
		switch r := r.(type) {
		case *beforeRecord:
			ivs = r.Intervals
		case *outsideRecord:
			ivs = r.Intervals
		}
		if slices.ContainsFunc(ivs, func(iv intervalRecord) bool { return iv.After != nil && iv.After.Stamp != 0 }) {
			return true
		}
	}
	return false
}
