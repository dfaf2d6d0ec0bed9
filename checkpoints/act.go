package checkpoints

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Outcome is what Act did.
type Outcome struct {
	Done   []string // paths that are now in the state their step says
	Failed []Failure
	// CalledOff are paths that were left as they were because another failed
	// (Intent.AllOrNothing).
	CalledOff []string
}

// Act carries the intent out (see the package comment). A path whose step
// fails keeps what it had; the others go on. With recovering set it finishes
// what an earlier Act began: a path that is already as its step says is done;
// one that is neither that nor what it was is kept and reported as a conflict;
// no temporary name of the intent is left. The same call twice is harmless.
// It returns when all it did is durable. A ctx that ends before the first path
// is changed calls everything off; later, and when recovering, it is not asked.
//
// A failure of the last sync is the one case in which a failed path may be as
// its step says: it is in place, and the disk did not confirm it.
func (w *Workspace) Act(ctx context.Context, in Intent, recovering bool) Outcome {
	a := w.newAct(in, recovering)
	a.open()
	if recovering {
		a.takeStock()
	}
	a.stage()
	if in.AllOrNothing && !recovering && !a.anyFailed() {
		a.lookOnce()
	}
	switch err := ctx.Err(); {
	case err != nil && !recovering:
		a.callOff(err)
	case in.AllOrNothing && a.anyFailed() && !recovering:
		a.callOff(errCalledOff)
	default:
		a.setAside()
		a.place()
		a.remove()
	}
	a.finish()
	clear(in.seen) // the caller keeps the intent
	return a.outcome()
}

// act is one Act. Its phases run one after the other; within a phase several
// jobs may run at a time, each touching only itself and what mu guards.
type act struct {
	w          *Workspace
	in         Intent
	recovering bool
	jobs       []*job            // in the order of the intent
	byPath     map[string]*job   // the same
	wanted     map[string]bool   // directories that something comes back into
	gone       map[string]bool   // directories that go with what they held
	seen       map[string]*seen  // what Prepare saw, if that was just now
	opened     map[string]uint32 // directories let into, with their modes before

	mu    sync.Mutex
	known map[string]error // directories that were seen, or made, in this phase
	made  map[string]bool  // directories that came into being
	dirty map[string]place // directories whose names or modes changed
	modes map[ident]uint32 // of files that got a mode: another name of one may be a job, too

	unsynced map[string]error // directories whose sync failed
}

// job is one step under way.
type job struct {
	Step
	p         place // where the thing is: within its directory's aside while that is set aside
	temp      place
	aside     place
	fail      *Failure // why the step was not done
	doubt     *Failure // why it may not stay done
	done      bool     // the path is as the step says, but for what finish and remove add
	away      bool     // what was there is at aside
	stale     bool     // aside is left over: the path has gone its own way since
	calledOff bool     // nothing is wrong with it, but with another
}

func (w *Workspace) newAct(in Intent, recovering bool) *act {
	a := &act{
		w: w, in: in, recovering: recovering,
		byPath: map[string]*job{}, wanted: wantedDirs(in.Steps), gone: goneDirs(in.Steps, nil),
		opened: map[string]uint32{}, known: map[string]error{}, made: map[string]bool{}, dirty: map[string]place{}, modes: map[ident]uint32{}, unsynced: map[string]error{},
	}
	if !recovering {
		a.seen = in.seen
	}
	dirs := newParents()
	for _, s := range in.Steps {
		j := &job{Step: s}
		a.jobs = append(a.jobs, j)
		a.byPath[s.Path] = j
		for _, at := range []struct {
			path string
			p    *place
		}{{s.Path, &j.p}, {s.Temp, &j.temp}, {s.Aside, &j.aside}} {
			if at.path == "" {
				continue
			}
			var err error
			if *at.p, err = dirs.locate(w, at.path); err != nil {
				j.fail = &Failure{Path: s.Path, Code: CodeIO, Message: cause(err).Error()}
				if e, ok := err.(*PathError); ok {
					j.fail.Code, j.fail.Message = CodeOutsideRoots, e.Msg
				}
				break
			}
		}
	}
	return a
}

// failed notes that a job could not be done.
func (j *job) failed(code Code, format string, args ...any) {
	j.fail = &Failure{Path: j.Path, Code: code, Message: fmt.Sprintf(format, args...)}
}

func (j *job) failedIO(doing string, err error) {
	f := ioFailure(j.Path, doing, err)
	j.fail = &f
}

// doubted notes that a job is done and that not all of it is sure.
func (j *job) doubted(doing string, err error) {
	f := ioFailure(j.Path, doing, err)
	f.Back = true
	j.doubt = &f
}

// changed is the conflict of a path that is not what the plan saw.
func (j *job) changed(v view) {
	if n := len(v.parents); n > 0 && v.parents[n-1].kind == Symlink {
		j.failed(CodeOutsideRoots, "its directory %s is a link now", j.p.root.path(v.parents[n-1].rel))
		return
	}
	if v.state.Kind == Uncovered && v.state.Reason == Unreadable {
		j.failed(CodeIO, "cannot be read now: %s", v.err)
		return
	}
	j.failed(CodeConflict, "changed outside the session while the rewind was under way")
}

// pending reports whether there is still something to do for the job.
func (j *job) pending() bool { return j.fail == nil && !j.done }

// see looks at what is at the job's path now, its directory being known. What
// Prepare saw a moment ago and has not changed since is not read again.
func (a *act) see(j *job) view {
	if s, ok := a.seen[j.Path]; ok && s.trusted {
		if info, err := j.p.lstat(); err == nil && stampOf(info) == s.stamp {
			return view{state: s.state, info: info, stamp: s.stamp, at: time.Now()}
		}
	}
	v, _ := j.p.viewSelf(digest)
	return v
}

// lookOnce looks at every path before the first is changed.
func (a *act) lookOnce() {
	dirs := newParents()
	each(len(a.jobs), func(i int) string { return a.jobs[i].Path }, func(h *handle, i int) {
		j := a.jobs[i]
		if j.From.Kind == Absent { // and so may be the directory
			if v, _ := j.p.view(dirs, h, nil); v.state.Kind != Absent {
				j.changed(v)
			}
			return
		}
		if !a.enter(j, h) {
			return
		}
		defer j.leave()
		if v := a.see(j); !a.isStill(j, v) {
			j.changed(v)
		}
	})
}

// isFrom reports whether state is what the step expects: what the plan saw,
// or that with the directory let into.
func (a *act) isFrom(j *job, state State) bool {
	if mode, ok := a.opened[j.Path]; ok && state.Kind == Dir && j.From.Kind == Dir && state.Mode == mode|0o700 {
		return j.From.Mode == mode
	}
	return state.Same(j.From)
}

// isStill reports whether what was seen is what the step expects, or that with
// the mode that a job of this act has given it under another of its names.
func (a *act) isStill(j *job, v view) bool {
	if a.isFrom(j, v.state) {
		return true
	}
	if v.info == nil || v.state.Kind != File || j.From.Kind != File {
		return false
	}
	id := identOf(v.info)
	a.mu.Lock()
	mode, ok := a.modes[id]
	a.mu.Unlock()
	was := v.state
	was.Mode = j.From.Mode
	return ok && id != (ident{}) && v.state.Mode == mode && was.Same(j.From)
}

// isLeft reports whether q, which has had the job's path for its name, is what
// the step expects. It is read for that: who has mapped it may have written to it
// without a change of its times.
func (a *act) isLeft(j *job, q place) (bool, error) {
	now, _ := q.viewSelf(digest)
	return a.isStill(j, now), now.cause
}

// byDepth are the jobs, outermost first.
func (a *act) byDepth() []*job {
	jobs := slices.Clone(a.jobs)
	slices.SortStableFunc(jobs, func(x, y *job) int { return depth(x.Path) - depth(y.Path) })
	return jobs
}

// below are the jobs below a path.
func (a *act) below(path string) []*job {
	var jobs []*job
	for _, j := range a.jobs {
		if len(j.Path) > len(path) && within(path, j.Path) {
			jobs = append(jobs, j)
		}
	}
	return jobs
}

// touch notes a directory as one that must be synced.
func (a *act) touch(p place, dir string) {
	a.mu.Lock()
	a.dirty[p.root.path(dir)] = p.sibling(dir)
	a.mu.Unlock()
}

// where is the place of a path that may lie within something set aside.
func (a *act) where(path string) (place, error) {
	for _, j := range a.jobs {
		if j.away && j.From.Kind == Dir && within(j.Path, path) {
			return j.aside.sibling(j.aside.rel + relSuffix(j.Path, path)), nil
		}
	}
	return a.w.locate(path)
}

// relSuffix is what path has more than dir, with its slash.
func relSuffix(dir, path string) string {
	if len(path) == len(dir) {
		return ""
	}
	return "/" + relTo(dir, path)
}

func (a *act) anyFailed() bool {
	return slices.ContainsFunc(a.jobs, func(j *job) bool { return j.fail != nil })
}

// errCalledOff calls off what could have been done, for something else cannot.
var errCalledOff = errors.New("another path could not be prepared")

// callOff fails all jobs before any path was changed.
func (a *act) callOff(err error) {
	for _, j := range a.jobs {
		if j.fail == nil {
			j.calledOff = errors.Is(err, errCalledOff)
			j.failedIO("was called off before anything was changed", err)
		}
		a.unstage(j)
	}
}

func (a *act) outcome() Outcome {
	var o Outcome
	for _, j := range a.jobs {
		switch {
		case j.calledOff:
			o.CalledOff = append(o.CalledOff, j.Path)
		case j.fail != nil:
			o.Failed = append(o.Failed, *j.fail)
		case j.doubt != nil:
			o.Failed = append(o.Failed, *j.doubt)
		case j.done:
			o.Done = append(o.Done, j.Path)
		default: // no phase is to leave a job like this
			j.failed(CodeIO, "was left undone")
			o.Failed = append(o.Failed, *j.fail)
		}
	}
	return o
}
