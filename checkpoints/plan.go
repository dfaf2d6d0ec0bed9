package checkpoints

import (
	"cmp"
	"errors"
	"slices"
)

// OnConflict says what a rewind does with a path that is no longer what the
// agent left.
type OnConflict string

const (
	Keep      OnConflict = "keep"      // leave it, list it
	Merge     OnConflict = "merge"     // take the agent's part out of it
	Overwrite OnConflict = "overwrite" // take the target
)

// Code says why a path could not be brought back.
type Code string

const (
	CodeConflict     Code = "conflict"
	CodeMissingBlob  Code = "missing_blob"
	CodeDamagedBlob  Code = "damaged_blob"
	CodeNotCovered   Code = "not_covered"
	CodeOutsideRoots Code = "outside_roots"
	CodeKindChanged  Code = "kind_changed"
	CodeIO           Code = "io"
)

// Real reports whether the code is a real failure (of the disk or a blob),
// which keeps the conversation where it is, and not a thing decided.
func (c Code) Real() bool { return c == CodeMissingBlob || c == CodeDamagedBlob || c == CodeIO }

// Failure is a path that did not come back. Message is a sentence for a person.
type Failure struct {
	Path    string `json:"path"`
	Code    Code   `json:"code"`
	Message string `json:"error"`
	// Full is set for an io failure whose cause is a full disk or quota.
	Full bool `json:"full,omitempty"`
	// Back is set where the path is as it should be and only the disk did not
	// confirm it.
	Back bool `json:"back,omitempty"`
}

// Parent is a directory above a captured path, as it was when the path was
// captured. A Mode of 0 with Absent set: it did not exist, so a rewind that
// deletes the path removes it when it is empty.
type Parent struct {
	Path   string `json:"path"`
	Absent bool   `json:"absent,omitempty"`
	Mode   uint32 `json:"mode,omitempty"`
}

// Part is what one turn (or seam) did to a path, for merging: newest first.
type Part struct {
	Before, After State
}

// Touched is one path that the session's turns changed at or after the
// checkpoint, and all that is known of it.
type Touched struct {
	Path    string
	Target  State    // before the first change
	Left    State    // what the last change left; Unknown counts as the agent's
	Now     Sight    // on disk, as Look saw it
	Seam    bool     // somebody else changed it in between, or it is shared
	Parents []Parent // of the earliest capture, outermost first
	Parts   []Part   // newest first; used by Merge alone
}

// Sight is what Look sees at a path: its state, and what decides whether
// something could be put in its place.
type Sight struct {
	State State
	// Below is, for a directory, every path under it, at any depth (nil where
	// there is none). BelowMore is set where there are more than were listed.
	Below     []string
	BelowMore bool
	// Blocked is the first parent that is no directory now ("" if all are
	// directories or missing), and BlockedBy what it is.
	Blocked   string
	BlockedBy Kind
	// Err says why a path is Uncovered as unreadable.
	Err string
	// Outside: it was not looked at, since it is in no root (any more).
	Outside bool
}

// Step is one path that the plan changes.
type Step struct {
	Path   string `json:"path"`
	From   State  `json:"from"`             // what it is now, and must still be when its turn comes
	To     State  `json:"to"`               // what it shall be
	Merged bool   `json:"merged,omitempty"` // To is a merge, not the target
	// Parents are made where missing (with their modes), and removed when
	// empty where they were absent at the capture.
	Parents []Parent `json:"parents,omitempty"`
	// Temp and Aside are names beside the path, chosen by Prepare, under which
	// the new thing is made and one of another kind is set aside.
	Temp  string `json:"temp,omitempty"`
	Aside string `json:"aside,omitempty"`
	// Saved is From as it was kept by Prepare, so that it can come back: the
	// same state, never too large.
	Saved State `json:"saved"`
}

// Plan is what a rewind will do.
type Plan struct {
	Steps    []Step
	Failed   []Failure
	Settled  []string          // already in the target state: nothing to do
	Contents map[string][]byte // merged contents by path, to be kept by Prepare
	// AllOrNothing is the intent's.
	AllOrNothing bool
}

// NewPlan decides what a rewind does with each touched path: the decision
// table of the design, in one pure function. read gives the bytes of a state
// for Merge, and is not called otherwise; an error of it fails its path.
//
// The first row that fits decides:
//
//	1  now is the target                                  settled
//	2  the target is not known                            not_covered
//	3  now cannot give way, or its parents do not allow   kind_changed, outside_roots, io
//	   the target, as the plan leaves them
//	4  nobody but the agent changed it                    a step to the target
//	5  otherwise                                          conflict, or what on says
//
// Steps come in the order of touched, but for removals: those come last, what
// lies deeper before what holds it.
func NewPlan(touched []Touched, on OnConflict, read func(State) ([]byte, error)) Plan {
	d := decider{on: on, read: read, made: map[string]bool{}, plan: Plan{Contents: map[string][]byte{}}}
	for i := range touched {
		for _, p := range touched[i].Parents {
			if p.Absent {
				d.made[p.Path] = true
			}
		}
	}
	steps := make([]Step, 0, len(touched))
	sights := make(map[string]*Sight, len(touched))
	failed := map[string]Failure{}
	for i := range touched {
		t := &touched[i]
		sights[t.Path] = &t.Now
		steps = append(steps, Step{})
		step := &steps[len(steps)-1]
		if todo, f := d.decide(t, step); !todo {
			steps = steps[:len(steps)-1]
			if f == nil {
				d.plan.Settled = append(d.plan.Settled, t.Path)
			} else {
				failed[t.Path] = *f
			}
		}
	}
	lost := map[string]bool{}
	for path := range failed {
		lost[path] = true
	}
	good, implied, blocked := prune(steps, lost, func(path string) *Sight { return sights[path] })
	d.plan.Settled = append(d.plan.Settled, implied...)
	for _, f := range blocked {
		failed[f.Path] = f
		delete(d.plan.Contents, f.Path)
	}
	d.plan.Settled = slices.DeleteFunc(d.plan.Settled, func(path string) bool {
		f := behindLink(path, sights[path], good)
		if f != nil {
			failed[path] = *f
		}
		return f != nil
	})
	if len(failed) > 0 {
		good = d.fail(failed, good, lost, touched)
	}
	d.plan.Steps = inOrder(good, touched)
	return d.plan
}

// fail puts what failed into the plan, and what that leaves to do into the steps.
func (d *decider) fail(failed map[string]Failure, good []Step, lost map[string]bool, touched []Touched) []Step {
	obstacles, wanted := newObstacles(good, lost), wantedDirs(good)
	for i := range touched {
		t := &touched[i]
		f, ok := failed[t.Path]
		if !ok {
			continue
		}
		// A directory that is missing on the way to what comes back is made,
		// and that is no conflict.
		if f.Code == CodeConflict && t.Target.Kind == Dir && t.Now.State.Kind == Absent && wanted[t.Path] {
			good = append(good, Step{Path: t.Path, From: t.Now.State, To: t.Target, Parents: t.Parents})
			continue
		}
		// Row 3 comes before row 5, and no choice of the user's helps there.
		if f.Code == CodeConflict {
			step := Step{Path: t.Path, From: t.Now.State, To: t.Target}
			if o := obstacles.of(&step, &t.Now); o != nil {
				f = *o
			}
		}
		d.plan.Failed = append(d.plan.Failed, f)
	}
	return good
}

// inOrder puts steps in the order of touched, removals last and what lies
// deeper before what holds it.
func inOrder(steps []Step, touched []Touched) []Step {
	if areInOrder(steps, touched) {
		return steps
	}
	at := make(map[string]int, len(touched))
	for i, t := range touched {
		at[t.Path] = i
	}
	slices.SortFunc(steps, func(a, b Step) int {
		aGoes, bGoes := a.To.Kind == Absent, b.To.Kind == Absent
		switch {
		case aGoes != bGoes && bGoes:
			return -1
		case aGoes != bGoes:
			return 1
		case aGoes && depth(a.Path) != depth(b.Path):
			return cmp.Compare(depth(b.Path), depth(a.Path))
		}
		return cmp.Compare(at[a.Path], at[b.Path])
	})
	return steps
}

// areInOrder reports whether steps are in order already and remove nothing.
func areInOrder(steps []Step, touched []Touched) bool {
	n := 0
	for i := range touched {
		if n < len(steps) && steps[n].Path == touched[i].Path && steps[n].To.Kind != Absent {
			n++
		}
	}
	return n == len(steps)
}

// behindLink fails a path that cannot be seen, for a link has taken the place
// of a directory above it: what is not seen is not known to be absent. Unless
// the plan takes the link away.
func behindLink(path string, now *Sight, steps []Step) *Failure {
	if now.BlockedBy != Symlink || slices.ContainsFunc(steps, func(s Step) bool { return s.Path == now.Blocked }) {
		return nil
	}
	return &Failure{Path: path, Code: CodeOutsideRoots, Message: "its directory " + now.Blocked + " is a link now"}
}

// decider holds what one NewPlan needs for each path.
type decider struct {
	on   OnConflict
	read func(State) ([]byte, error)
	made map[string]bool // directories that were made only with something touched
	plan Plan
}

// decide is the table for one path, all but what depends on other paths: a
// step, which it fills in, a failure, or neither where nothing is to be done.
func (d *decider) decide(t *Touched, step *Step) (bool, *Failure) {
	now := t.Now.State.comparable()
	fail := func(code Code, msg string) (bool, *Failure) {
		return false, &Failure{Path: t.Path, Code: code, Message: msg}
	}
	*step = Step{Path: t.Path, From: now, To: t.Target, Parents: t.Parents}
	switch {
	case now.Same(t.Target):
		return false, nil
	case t.Target.Kind == Uncovered || t.Target.Kind == Unknown:
		return fail(CodeNotCovered, "what it was before was not kept: "+t.Target.Reason.sentence())
	case now.Kind == Uncovered && now.Reason == NotRegular:
		return fail(CodeKindChanged, "is a pipe, socket or device now, which is never touched")
	case t.Now.Outside:
		return fail(CodeOutsideRoots, t.Now.Err)
	case now.Kind == Uncovered && now.Reason == Unreadable:
		return fail(CodeIO, "cannot be read now: "+t.Now.Err)
	case now.Kind == Uncovered || now.Kind == Unknown:
		return fail(CodeNotCovered, "what it is now cannot be saved: "+now.Reason.sentence())
	case !t.Seam && (t.Left.Kind == Unknown || now.Same(t.Left) || d.onlyHolds(t)):
		return true, nil
	}
	switch d.on {
	case Overwrite:
		return true, nil
	case Merge:
		return d.merge(t, step)
	}
	if t.Seam && now.Same(t.Left) {
		return fail(CodeConflict, "changed outside the session between the agent's changes")
	}
	return fail(CodeConflict, "changed outside the session since the agent's last write")
}

// onlyHolds reports whether t is a directory now that was left absent and came
// with something touched that it holds: such a directory counts as none. (If
// it holds anything else it is an obstacle all the same.)
func (d *decider) onlyHolds(t *Touched) bool {
	return t.Left.Kind == Absent && t.Now.State.Kind == Dir && d.made[t.Path]
}

// merge makes step one that takes the agent's part out of what is there now.
func (d *decider) merge(t *Touched, step *Step) (bool, *Failure) {
	to, content, err := mergeParts(step.From, t.Parts, d.read)
	if c, ok := errors.AsType[mergeConflict](err); ok {
		return false, &Failure{Path: t.Path, Code: CodeConflict, Message: "changed outside the session, and cannot be merged: " + string(c)}
	}
	if err != nil {
		f := blobFailure(t.Path, err)
		return false, &f
	}
	step.To = to
	if to.Same(t.Target) {
		step.To = t.Target
		return true, nil
	}
	step.Merged = true
	if step.writes() {
		d.plan.Contents[t.Path] = content
	}
	return true, nil
}

// sentence says for a person why a state is not known.
func (r Reason) sentence() string {
	switch r {
	case TooLarge:
		return "the file was too large to keep"
	case NotRegular:
		return "it was a pipe, socket or device"
	case Unreadable:
		return "it could not be read"
	case Excluded:
		return "ignore rules left it out"
	case Budget:
		return "the tree was over its budget"
	case BadName:
		return "its name is not UTF-8"
	}
	return "nobody looked"
}
