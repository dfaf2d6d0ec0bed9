package checkpoints

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
)

// remove takes away what shall be gone and what was set aside: the last step,
// for nothing brings it back but a redo. What lies deeper goes first.
func (a *act) remove() {
	dirs := newParents()
	jobs := a.byDepth()
	slices.Reverse(jobs)
	for _, j := range jobs {
		if j.pending() && j.To.Kind == Absent && !j.away {
			a.removeOne(j, dirs)
		}
	}
	a.removeParents(jobs)
	for _, j := range jobs {
		switch {
		case j.away && j.stale:
			a.removeStale(j)
		case j.away && j.fail == nil:
			a.removeAside(j)
		}
	}
	a.removeParents(jobs)
}

func (a *act) removeOne(j *job, dirs *parents) {
	v, _ := j.p.view(dirs, nil, digest)
	if v.state.Kind == Absent {
		j.done = true // gone already, which is what was asked
		return
	}
	if !a.isFrom(j, v.state) {
		j.changed(v)
		return
	}
	if err := j.p.remove(); err != nil {
		if notEmpty(err) {
			j.failed(CodeKindChanged, "is a directory now that holds something")
			return
		}
		j.failedIO("cannot be removed", err)
		return
	}
	j.done = true
	a.touch(j.p, j.p.dir())
}

func notEmpty(err error) bool {
	return errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, syscall.EEXIST)
}

// removeParents removes the directories that were made only with something
// that is gone now, if they are empty. One that is not simply stays.
func (a *act) removeParents(jobs []*job) {
	var going []string
	stays := map[string]bool{}
	for _, j := range jobs {
		if j.fail == nil && j.To.Kind != Absent {
			stays[j.Path] = true
			for dir := range above(j.Path) {
				stays[dir] = true
			}
		}
	}
	for _, j := range jobs {
		if !j.done || j.fail != nil || j.To.Kind != Absent {
			continue
		}
		for _, p := range j.Parents {
			if p.Absent && !stays[p.Path] && a.byPath[p.Path] == nil {
				stays[p.Path] = true // once is enough
				going = append(going, p.Path)
			}
		}
	}
	slices.SortFunc(going, func(x, y string) int { return depth(y) - depth(x) })
	for _, dir := range going {
		p, err := a.where(dir)
		if err != nil {
			continue
		}
		parents, err := p.seeParents(nil)
		if n := len(parents); err != nil || n > 0 && parents[n-1].kind != Dir {
			continue
		}
		if info, err := p.lstat(); err != nil || kindOf(info) != Dir {
			continue
		}
		if p.remove() == nil {
			a.touch(p, p.dir())
		}
	}
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
	case errors.Is(err, errAppeared):
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
		case !a.isFrom(j, v.state):
			return errAppeared
		}
		if err = j.aside.remove(); err == nil || notEmpty(err) {
			a.touch(j.aside, j.aside.dir())
			return err
		}
	}
	return err
}
