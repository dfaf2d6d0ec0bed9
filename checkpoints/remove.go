package checkpoints

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"syscall"
)

// remove takes away what shall be gone and what was set aside: the last step,
// for nothing brings it back but a redo. What lies deeper goes first.
func (a *act) remove() {
	dirs, h := newParents(), &handle{}
	defer h.close()
	going := a.goingDirs()
	jobs := a.byDepth()
	slices.Reverse(jobs)
	next := 0 // of going
	for _, j := range jobs {
		for ; next < len(going) && depth(going[next].path) > depth(j.Path); next++ {
			a.removeDir(going[next])
		}
		if j.pending() && j.To.Kind == Absent && !j.away {
			a.removeOne(j, dirs, h)
		}
	}
	for _, g := range going[next:] {
		a.removeDir(g)
	}
	for _, j := range jobs {
		switch {
		case j.away && j.stale:
			a.removeStale(j)
		case j.away && j.fail == nil:
			a.removeAside(j)
		}
	}
	for _, g := range going { // those of what was aside until now
		a.removeDir(g)
	}
}

// goingDir is a directory that was made only with what the jobs of it remove.
type goingDir struct {
	path string
	of   []*job
}

// goingDirs are the directories that go when they are empty, innermost first.
// One that is a path of its own is its own job's.
func (a *act) goingDirs() []*goingDir {
	stays := map[string]bool{}
	for _, j := range a.jobs {
		if j.fail == nil && j.To.Kind != Absent {
			for dir := range above(j.Path) {
				stays[dir] = true
			}
		}
	}
	at := map[string]*goingDir{}
	var going []*goingDir
	for _, j := range a.jobs {
		if j.fail != nil || j.To.Kind != Absent {
			continue
		}
		for _, p := range j.Parents {
			if !p.Absent || stays[p.Path] || a.byPath[p.Path] != nil {
				continue
			}
			g := at[p.Path]
			if g == nil {
				g = &goingDir{path: p.Path}
				at[p.Path] = g
				going = append(going, g)
			}
			g.of = append(g.of, j)
		}
	}
	slices.SortStableFunc(going, func(x, y *goingDir) int { return depth(y.path) - depth(x.path) })
	return going
}

// removeDir removes a directory if something of it went and it is empty. One
// that is not simply stays; of one that could not be removed a path tells that went.
func (a *act) removeDir(g *goingDir) {
	i := slices.IndexFunc(g.of, func(j *job) bool { return j.done && j.fail == nil })
	if i < 0 {
		return
	}
	err := func() error {
		p, err := a.where(g.path)
		if err != nil {
			return err
		}
		parents, err := p.seeParents(nil)
		if n := len(parents); err != nil || n > 0 && parents[n-1].kind != Dir {
			return err
		}
		if info, err := p.lstat(); err != nil || kindOf(info) != Dir {
			return err
		}
		if err := p.remove(); err != nil {
			return err
		}
		a.touch(p, p.dir())
		return nil
	}()
	if err != nil && !absent(err) && !notEmpty(err) {
		g.of[i].doubted(fmt.Sprintf("is gone, but its directory %s could not be removed", g.path), err)
	}
}

func (a *act) removeOne(j *job, dirs *parents, h *handle) {
	v, _ := j.p.view(dirs, h, digest)
	if v.state.Kind == Absent {
		j.done = true // gone already, which is what was asked
		return
	}
	if !a.enter(j, h) {
		return
	}
	defer j.leave()
	if !a.isStill(j, v) {
		j.changed(v)
		return
	}
	var err error
	if j.Temp != "" && j.temp.dir() == j.p.dir() { // or nobody finds it any more as it is
		err = a.takeAway(j)
	} else {
		err = j.p.remove()
	}
	_, stranded := errors.AsType[strandedError](err)
	switch {
	case err == nil:
		j.done = true
		a.touch(j.p, j.p.dir())
	case stranded:
		j.failed(CodeConflict, "%v", err)
		j.temp = place{}
	case errors.Is(err, ErrAppeared):
		j.changed(view{})
	case notEmpty(err):
		j.failed(CodeKindChanged, "is a directory now that holds something")
	default:
		j.failedIO("cannot be removed", err)
	}
}

// takeAway removes the file or link at the job's path. It looks once more when nobody finds it by its name any more: what was saved after
// the last look gets its name back.
func (a *act) takeAway(j *job) error {
	if err := j.p.rename(j.temp); errors.Is(err, fs.ErrNotExist) {
		return nil // gone already, which is what was asked
	} else if err != nil {
		return err
	}
	old, err := a.isLeft(j, j.temp)
	switch {
	case err != nil:
	case !old:
		err = ErrAppeared
	default:
		if err = twice(j.temp.remove); err == nil {
			return nil
		}
	}
	if back := twice(func() error { return j.p.publish(j.temp) }); back != nil {
		return strandedError{j.temp.path, back}
	}
	return err
}

func notEmpty(err error) bool {
	return errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, syscall.EEXIST)
}

// removeAside removes what a job has replaced. Where that is not possible, for
// it holds something after all, the job is taken back.
func (a *act) removeAside(j *job) {
	err := a.dropAside(j)
	if err == nil {
		j.done = true
		return
	}
	switch {
	case notEmpty(err):
		j.failed(CodeKindChanged, "is a directory now that holds something")
	case errors.Is(err, ErrAppeared):
		j.changed(view{})
	default:
		j.failedIO("what was there cannot be removed", err)
	}
	j.done = false
	a.takeBack(j)
	a.putBack(j)
}

// takeBack removes what a job has put at its path, if it is still that.
func (a *act) takeBack(j *job) {
	v, _ := j.p.viewSelf(digest)
	switch {
	case v.state.Kind == Dir: // only if it is empty
	case j.To.Kind != Absent && v.state.Same(j.To):
	default:
		return
	}
	if j.p.remove() == nil {
		a.touch(j.p, j.p.dir())
	}
}

// removeStale removes what an earlier Act had set aside of a path that has
// since got something else: it is saved, and has no name to go back to.
func (a *act) removeStale(j *job) {
	if a.dropAside(j) != nil {
		j.fail.Message += fmt.Sprintf("; what was there before is kept as %s", j.Aside)
	}
}

// dropAside removes what is aside, if it is still what was put there. A
// passing fault is not to leave it.
func (a *act) dropAside(j *job) error {
	var err error
	for range 2 {
		v, _ := j.aside.viewSelf(digest)
		switch {
		case v.state.Kind == Absent:
			return nil
		case v.cause != nil:
			err = v.cause
			continue
		case !a.isStill(j, v):
			return ErrAppeared
		}
		if err = j.aside.remove(); err == nil || notEmpty(err) {
			a.touch(j.aside, j.aside.dir())
			return err
		}
	}
	return err
}
