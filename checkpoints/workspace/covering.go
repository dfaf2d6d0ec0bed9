package workspace

import (
	"context"
	"encoding/json"
	"path/filepath"
	"sync"

	"github.com/oino-dev/oinod/checkpoints"
)

// Rules say what of one root a capture covered, for whoever wants to know that
// when the capture is long gone. The same contents have the same ID. They are
// JSON, and safe for concurrent use.
type Rules struct {
	Root string // as the session names it
	ID   string

	lines rulesJSON

	mu     sync.Mutex
	lookup *lookup // made when first asked
}

type coveringJSON struct {
	Root  string    `json:"root"`
	Rules rulesJSON `json:"rules"`
}

// MarshalJSON encodes r as a session's log holds it.
func (r *Rules) MarshalJSON() ([]byte, error) { return json.Marshal(coveringJSON{r.Root, r.lines}) }

// UnmarshalJSON decodes what MarshalJSON wrote.
func (r *Rules) UnmarshalJSON(b []byte) error {
	var j coveringJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return err
	}
	r.Root, r.ID, r.lines = j.Root, j.Rules.ID, j.Rules
	return nil
}

// Within reports whether r are about the path.
func (r *Rules) Within(path string) bool { return within(r.Root, filepath.Clean(path)) }

// Covers reports whether a path within the root was covered, given what it is
// to be there; of what is absent or not known, whether that was known.
func (r *Rules) Covers(path string, s checkpoints.State) bool {
	rel := relTo(r.Root, filepath.Clean(path))
	if rel == "" {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lookup == nil {
		r.lookup = rulesOf(r.lines).lookup()
	}
	switch s.Kind {
	case checkpoints.Dir:
		return r.lookup.covers(rel, true)
	case checkpoints.File, checkpoints.Symlink:
		return r.lookup.covers(rel, false)
	}
	return r.lookup.covers(rel, false) || r.lookup.covers(rel, true)
}

// Rules are those of a mark's captures.
func (w *Workspace) Rules(ctx context.Context, at Mark) ([]*Rules, error) {
	var all []*Rules
	for _, r := range w.roots {
		m := at.of(r.spelled)
		if m.Seq == 0 {
			continue
		}
		err := w.visit(ctx, r, func(t *tree) error {
			c, err := t.marked(m)
			if err != nil {
				return err
			}
			f, err := t.factsAt(c)
			if err == nil {
				lines := f.lookup.rules.json()
				all = append(all, &Rules{Root: r.spelled, ID: lines.ID, lines: lines})
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}
