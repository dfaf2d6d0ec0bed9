package checkpoints

import (
	"context"
	"errors"
	"fmt"
)

// Intent is a prepared plan: everything Act needs, before and after a crash.
// It is JSON in the session's log.
type Intent struct {
	Steps []Step `json:"steps"`
	// MakeDirs are directories that Act will have to make, outermost first.
	MakeDirs []string `json:"makeDirs,omitempty"`
	// Open are directories that do not let their owner write, with their
	// modes: Act lets itself in for the time, and closes them again.
	Open []Parent `json:"open,omitempty"`
	// AllOrNothing calls everything off when one new content cannot be made,
	// before any path has changed. A crash does not bring the question back.
	AllOrNothing bool `json:"allOrNothing,omitempty"`

	// seen is what Prepare saw, by path, for the Act that follows at once. After a
	// crash it is nil.
	seen map[string]*seen
}

// seen is a path as Prepare saw it, for the Act that follows at once: what has
// the same stamp still need not be read again.
type seen struct {
	stamp   stamp
	state   State
	owner   owner
	trusted bool // a change since would show in the stamp
}

// seenNow is what v has just seen.
func seenNow(v *view) seen {
	s := seen{stamp: v.stamp, state: v.state, owner: nobody, trusted: v.info != nil && v.stamp.settled(v.at)}
	if v.info != nil {
		s.owner = ownerOf(v.info)
	}
	return s
}

// Prepare sees that every content that the plan needs is in the store, saves the
// present of every path it will touch (whatever its size, in the blob store;
// synced when Prepare returns), keeps merged contents, and chooses temporary
// names. Steps that cannot be carried out are not in the intent but in the
// failures. Nothing in the workspace changes. The error is the blob store's (then
// nothing was prepared) or ctx's.
//
// What LookAll has seen last, for this very plan, is not looked at again: Act
// does that. Contents are verified where they are read, which is when Act stages
// them, still before any path changes. Of a plan that is all or nothing, both is
// done here as well, so that most of what calls it off leaves no intent.
func (w *Workspace) Prepare(ctx context.Context, p Plan) (Intent, []Failure, error) {
	steps, now, failed, err := w.ready(ctx, p.Steps, readying{save: true, verify: p.AllOrNothing, merged: p.Contents})
	if err != nil {
		return Intent{}, nil, err
	}
	if err := w.blobs.Sync(); err != nil {
		return Intent{}, nil, fmt.Errorf("saving the present: %w", err)
	}
	in := w.intent(steps)
	in.seen, in.AllOrNothing = now, p.AllOrNothing
	return in, failed, nil
}

// Verify says which steps would be carried out, saving nothing: for a dry run.
func (w *Workspace) Verify(steps []Step) (good []Step, failed []Failure) {
	good, _, failed, _ = w.ready(context.Background(), steps, readying{verify: true})
	return good, failed
}

// readying is what ready does besides looking.
type readying struct {
	save   bool // the present is saved, and merged contents are
	verify bool // paths are looked at again, and contents are read and not only known to be there
	merged map[string][]byte
}

// ready returns the steps that can be carried out, and what their paths are now.
// The error is the blob store's, or ctx's.
func (w *Workspace) ready(ctx context.Context, steps []Step, how readying) ([]Step, map[string]*seen, []Failure, error) {
	type result struct {
		step  Step
		sight Sight
		seen  seen
		fail  *Failure
		err   error
	}
	results := make([]result, len(steps))
	dirs, last := newParents(), w.lastSeen()
	each(len(steps), func(i int) string { return steps[i].Path }, func(h *handle, i int) {
		r := &results[i]
		r.step = steps[i]
		if r.err = ctx.Err(); r.err != nil {
			return
		}
		was := last[r.step.Path]
		if was != nil && was.trusted && !how.verify && w.blobs.Has(was.state.Digest) {
			// It was looked at a moment ago, and is in the store. Act looks again.
			r.seen, r.sight = *was, Sight{State: was.state}
		} else {
			v, err := w.inspect(r.step, dirs, h, how.save)
			if err != nil {
				r.err = err
				return
			}
			r.seen, r.sight = seenNow(&v), Sight{State: v.state, Err: v.err}
			r.sight.Blocked, r.sight.BlockedBy = w.blocked(r.step.Path, v)
		}
		now := r.seen.state
		r.step.Saved = now
		switch {
		case now.Kind == Uncovered && now.Reason == Unreadable:
			r.fail = &Failure{Path: r.step.Path, Code: CodeIO, Message: "cannot be read now: " + r.sight.Err}
		case !now.Same(r.step.From):
			r.fail = &Failure{Path: r.step.Path, Code: CodeConflict, Message: "changed outside the session while the rewind was being prepared"}
		default:
			r.fail, r.err = w.supply(r.step, how)
		}
	})
	var failed []Failure
	good := make([]Step, 0, len(steps))
	lost := map[string]bool{}
	sights := make(map[string]*Sight, len(steps))
	was := make(map[string]*seen, len(steps))
	for i := range results {
		r := &results[i]
		switch {
		case r.err != nil:
			return nil, nil, nil, r.err
		case r.fail != nil:
			failed = append(failed, *r.fail)
			lost[r.step.Path] = true
		default:
			good = append(good, r.step)
			was[r.step.Path] = &r.seen
		}
		sights[r.step.Path] = &r.sight
	}
	for i := range good {
		if s := &good[i]; s.From.Kind == Dir && s.To.Kind != Dir {
			*sights[s.Path] = w.look(s.Path, nil, nil)
		}
	}
	good, _, blocked := prune(good, lost, func(path string) *Sight { return sights[path] })
	return good, was, append(failed, blocked...), nil
}

// inspect looks at a step's path, keeping what is there if save is set.
func (w *Workspace) inspect(s Step, dirs *parents, h *handle, save bool) (view, error) {
	p, err := dirs.locate(w, s.Path)
	if err != nil {
		return view{state: State{Kind: Uncovered, Reason: Unreadable}, err: cause(err).Error()}, nil
	}
	if !save {
		return p.view(dirs, h, digest)
	}
	return p.view(dirs, h, w.keep)
}

// blocked is Sight's Blocked and BlockedBy for what was seen at path.
func (w *Workspace) blocked(path string, v view) (string, Kind) {
	if len(v.parents) == 0 {
		return "", Unknown
	}
	last := v.parents[len(v.parents)-1]
	if last.kind == Dir || last.kind == Absent {
		return "", Unknown
	}
	r, _ := w.rootOf(path)
	return r.path(last.rel), last.kind
}

// supply sees to it that what a step puts there can be had.
func (w *Workspace) supply(s Step, how readying) (*Failure, error) {
	content, merged := how.merged[s.Path]
	switch {
	case !s.writes():
		return nil, nil
	case merged && how.save:
		d, err := w.blobs.Put(content)
		if err == nil && d != s.To.Digest {
			err = errors.New("a merge is not what the plan says")
		}
		return nil, err
	case s.Merged:
		return nil, nil
	case !how.verify && w.blobs.Has(s.To.Digest):
		return nil, nil
	}
	if err := w.blobs.Check(s.To.Digest); err != nil {
		fail := blobFailure(s.Path, err)
		return &fail, nil
	}
	return nil, nil
}
