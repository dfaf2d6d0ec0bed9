package workspace

import (
	"context"
	"errors"
	"math"
	"slices"

	"github.com/oino-dev/oinod/checkpoints"
)

// Claim says that the session itself changed a path from one state to another.
type Claim struct {
	Path          string
	Before, After checkpoints.State
}

// Claim runs act, which changes files of the workspace, and writes down what
// it says it has done, durably. No capture of any process looks at the roots
// meanwhile: so each sees the files as they were before or as they are after,
// and knows whose the change is. What act returns is claimed even with an
// error, which is returned. A process killed inside act has claimed nothing.
// act must not use the Workspace, which waits for it.
func (w *Workspace) Claim(ctx context.Context, act func() ([]Claim, error)) error {
	var locks []func(context.Context) (func(), error)
	var dirs []string
	add := func(dir string, lock func(context.Context) (func(), error)) {
		i, _ := slices.BinarySearch(dirs, dir) // in one order for everybody
		dirs, locks = slices.Insert(dirs, i, dir), slices.Insert(locks, i, lock)
	}
	for _, r := range w.roots {
		if w.store.refuses(r.tree.root) == "" {
			add(r.tree.dir, r.tree.lock)
		}
	}
	others, err := w.overlapping(false)
	if err != nil {
		return err
	}
	for _, o := range others {
		add(o.dir, o.lock)
	}
	for i, lock := range locks {
		unlock, err := lock(ctx)
		if errors.Is(err, errPruned) {
			others = slices.DeleteFunc(others, func(o other) bool { return o.dir == dirs[i] })
			continue
		}
		if err != nil {
			return err
		}
		defer unlock()
	}
	claims, err := act()
	var errs []error
	now := w.store.now().UnixMilli()
	byRoot := map[*trackedRoot][]claim{}
	for _, c := range claims {
		if r, rel := w.locate(c.Path); r != nil && rel != "" {
			byRoot[r] = append(byRoot[r], claim{rel, c.Before, c.After})
		}
	}
	for r, of := range byRoot {
		if r.tree.last() != nil { // else nobody has seen what was before, and nobody will miss it
			errs = append(errs, r.tree.append(claimLines(w.session, now, of), nil))
		}
		for _, o := range others {
			if in := o.claims(r.tree.root, of); len(in) > 0 {
				errs = append(errs, o.append(claimLines(w.session, now, in)))
			}
		}
	}
	if lost := errors.Join(errs...); lost != nil {
		return errors.Join(err, lost)
	}
	return err
}

func claimLines(session string, now int64, claims []claim) [][]byte {
	var lines [][]byte
	for part := range slices.Chunk(claims, maxClaim) {
		lines = append(lines, encodeLine(claimLine{"claim", session, now, part}))
	}
	return lines
}

// Release says that the session needs no mark before this one any more: what
// it wanted to know of earlier ones is in its own log. That is written with
// the next capture or at the close; until then they are held.
func (w *Workspace) Release(ctx context.Context, before Mark) error {
	for _, r := range w.roots {
		if m := before.of(r.spelled); m.Seq > 0 {
			if err := w.queue(ctx, r, releaseLine{Type: "release", Session: w.session, Below: m.Seq}, m.Journal); err != nil {
				return err
			}
		}
	}
	return nil
}

// ReleaseAll says that the session needs no mark at all any more, as when it
// is deleted.
func (w *Workspace) ReleaseAll(ctx context.Context) error {
	for _, r := range w.roots {
		if err := w.queue(ctx, r, releaseLine{Type: "release", Session: w.session, Below: math.MaxUint64, Gone: true}, ""); err != nil {
			return err
		}
	}
	return nil
}

func (w *Workspace) queue(ctx context.Context, r *trackedRoot, l releaseLine, journal string) error {
	leave, err := r.tree.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if t := r.tree; journal == "" || journal == t.head.ID {
		t.queued = append(t.queued, encodeLine(l))
	}
	return nil
}
