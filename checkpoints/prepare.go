package checkpoints

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/oino-dev/oinod/checkpoints/blobs"
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

	// fresh is what Prepare still has in hand for the Act that follows at once.
	// After a crash it is nil.
	fresh *fresh
}

// fresh spares Act to read again what Prepare has just read.
type fresh struct {
	mu       sync.Mutex
	seen     map[string]seen         // by path
	contents map[blobs.Digest][]byte // what steps put there, verified: small ones
	room     int                     // bytes that contents may still take
}

const (
	maxFresh = 64 << 10 // bytes of a content that is kept in hand
	allFresh = 48 << 20 // bytes of all
)

// get is a content from the store, kept in hand where it is small.
func (f *fresh) get(store contents, d blobs.Digest, size int64) error {
	if size > maxFresh {
		return store.Check(d)
	}
	content, err := store.Get(d, size)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.room >= len(content) {
		if _, ok := f.contents[d]; !ok {
			f.contents[d] = content
			f.room -= len(content)
		}
	}
	return nil
}

// take hands over what is in hand, once.
func (f *fresh) take() (map[string]seen, map[blobs.Digest][]byte) {
	if f == nil {
		return nil, nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	s, c := f.seen, f.contents
	f.seen, f.contents = nil, nil
	return s, c
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
func seenNow(v view) seen {
	s := seen{stamp: v.stamp, state: v.state, owner: nobody, trusted: v.info != nil && v.stamp.settled(v.at)}
	if v.info != nil {
		s.owner = ownerOf(v.info)
	}
	return s
}

// Prepare verifies every content that the plan needs, saves the present of every
// path it will touch (whatever its size, in the blob store; synced when Prepare
// returns), keeps merged contents, and chooses temporary names. Steps that
// cannot be carried out are not in the intent but in the failures. Nothing in the workspace changes. The
// error is the blob store's (then nothing was prepared) or ctx's.
func (w *Workspace) Prepare(ctx context.Context, p Plan) (Intent, []Failure, error) {
	f := &fresh{contents: map[blobs.Digest][]byte{}, room: allFresh}
	steps, failed, err := w.ready(ctx, p.Steps, p.Contents, f)
	if err != nil {
		return Intent{}, nil, err
	}
	if err := w.blobs.Sync(); err != nil {
		return Intent{}, nil, fmt.Errorf("saving the present: %w", err)
	}
	in := w.intent(steps)
	in.fresh = f
	return in, failed, nil
}

// Verify says which steps Prepare would take, saving nothing: for a dry run.
func (w *Workspace) Verify(steps []Step) (good []Step, failed []Failure) {
	good, failed, _ = w.ready(context.Background(), steps, nil, nil)
	return good, failed
}

// ready returns the steps that can be carried out. With f the present is saved
// and f filled; the error is then the blob store's.
func (w *Workspace) ready(ctx context.Context, steps []Step, merged map[string][]byte, f *fresh) ([]Step, []Failure, error) {
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
		v, err := w.inspect(r.step, last[r.step.Path], dirs, h, f != nil)
		if err != nil {
			r.err = err
			return
		}
		r.step.Saved = v.state
		r.sight = Sight{State: v.state, Err: v.err}
		r.sight.Blocked, r.sight.BlockedBy = w.blocked(r.step.Path, v)
		r.seen = seenNow(v)
		switch {
		case v.state.Kind == Uncovered && v.state.Reason == Unreadable:
			r.fail = &Failure{Path: r.step.Path, Code: CodeIO, Message: "cannot be read now: " + v.err}
		case !v.state.Same(r.step.From):
			r.fail = &Failure{Path: r.step.Path, Code: CodeConflict, Message: "changed outside the session while the rewind was being prepared"}
		default:
			r.fail, r.err = w.supply(r.step, merged, f)
		}
	})
	var failed []Failure
	var good []Step
	lost := map[string]bool{}
	sights := map[string]Sight{}
	was := make(map[string]seen, len(steps))
	for _, r := range results {
		switch {
		case r.err != nil:
			return nil, nil, r.err
		case r.fail != nil:
			failed = append(failed, *r.fail)
			lost[r.step.Path] = true
		default:
			good = append(good, r.step)
			was[r.step.Path] = r.seen
		}
		sights[r.step.Path] = r.sight
	}
	for _, s := range good {
		if s.From.Kind == Dir && s.To.Kind != Dir {
			sights[s.Path] = w.look(s.Path, nil, nil)
		}
	}
	good, _, blocked := prune(good, lost, func(path string) Sight { return sights[path] })
	if f != nil {
		f.seen = was
	}
	return good, append(failed, blocked...), nil
}

// inspect looks at a step's path, keeping what is there if save is set. What
// was looked at a moment ago, and is in the store, is not read again.
func (w *Workspace) inspect(s Step, last seen, dirs *parents, h *handle, save bool) (view, error) {
	p, err := dirs.locate(w, s.Path)
	if err != nil {
		return view{state: State{Kind: Uncovered, Reason: Unreadable}, err: cause(err).Error()}, nil
	}
	if !save {
		return p.viewSince(last, dirs, h, digest)
	}
	last.trusted = last.trusted && w.blobs.Has(last.state.Digest)
	return p.viewSince(last, dirs, h, w.keep)
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
func (w *Workspace) supply(s Step, merged map[string][]byte, f *fresh) (*Failure, error) {
	if !s.writes() {
		return nil, nil
	}
	content, ok := merged[s.Path]
	switch {
	case ok && f != nil:
		d, err := w.blobs.Put(content)
		if err == nil && d != s.To.Digest {
			err = errors.New("a merge is not what the plan says")
		}
		return nil, err
	case s.Merged:
		return nil, nil
	}
	var err error
	if f != nil {
		err = f.get(w.blobs, s.To.Digest, s.To.Size)
	} else {
		err = w.blobs.Check(s.To.Digest)
	}
	if err != nil {
		fail := blobFailure(s.Path, err)
		return &fail, nil
	}
	return nil, nil
}
