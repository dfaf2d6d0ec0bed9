package checkpoints

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

// setAside moves what is of another kind than what shall come out of the way.
// A directory is looked through once it is: nothing can be put into it under its
// old name any more. One that holds anything unplanned goes back.
func (a *act) setAside() {
	dirs := newParents()
	for _, j := range a.byDepth() {
		switch {
		case j.away && j.pending() && j.From.Kind == Dir: // an earlier Act set it aside
			a.lookThrough(j)
			continue
		case !j.pending() || j.Aside == "" || j.away:
			continue
		}
		v, _ := j.p.view(dirs, nil, digest)
		if !a.isFrom(j, v.state) {
			j.changed(v)
			continue
		}
		if _, err := j.aside.lstat(); !errors.Is(err, fs.ErrNotExist) {
			j.failed(CodeIO, "cannot be set aside: something is at %s", j.Aside)
			continue
		}
		if err := j.p.rename(j.aside); err != nil {
			j.failedIO("cannot be set aside", err)
			continue
		}
		j.away = true
		a.touch(j.p, j.p.dir())
		if j.From.Kind == Dir {
			a.lookThrough(j)
		}
	}
	if slices.ContainsFunc(a.jobs, func(j *job) bool { return j.away }) {
		// What is out of the way must be so for good before anything takes its name.
		a.syncDirs()
	}
	for _, j := range a.jobs {
		if j.away && j.pending() {
			if err := a.unsynced[j.p.root.path(j.p.dir())]; err != nil {
				j.failedIO("cannot be set aside", err)
			}
		}
	}
	for _, j := range a.jobs {
		if j.fail != nil && !j.stale {
			a.putBack(j)
			a.unstage(j)
		}
	}
}

// lookThrough checks that a directory that was set aside holds nothing but
// what the plan removes, as the plan saw it.
func (a *act) lookThrough(j *job) {
	a.relocate(j)
	l := lister{p: j.aside, skip: func(*root, string, string) error { return nil }}
	l.list(j.aside.rel)
	if l.more {
		j.failed(CodeKindChanged, "is a directory now, with more in it than can be listed")
		return
	}
	for _, at := range l.below {
		path := j.Path + strings.TrimPrefix(at, j.aside.path)
		child, ok := a.byPath[path]
		switch {
		case !ok && a.gone[path]:
			continue
		case !ok || child.To.Kind != Absent:
			j.failed(CodeKindChanged, "is a directory now that holds %s", path)
			return
		case child.fail == nil:
			if v, _ := child.p.viewSelf(digest); !a.isFrom(child, v.state) {
				child.changed(v)
			}
		}
		if child.fail != nil {
			j.failed(CodeKindChanged, "is a directory now that holds %s, which stays", path)
			return
		}
	}
}

// relocate tells the jobs below a directory where they are now: within its
// aside, or back.
func (a *act) relocate(j *job) {
	for _, child := range a.below(j.Path) {
		if j.away {
			child.p = j.aside.sibling(j.aside.rel + relSuffix(j.Path, child.Path))
		} else {
			child.p = j.p.sibling(j.p.rel + relSuffix(j.Path, child.Path))
		}
	}
}

// putBack gives what was set aside its name again, unless that is taken.
func (a *act) putBack(j *job) {
	if !j.away {
		return
	}
	err := twice(func() error {
		switch _, err := j.p.lstat(); {
		case err == nil:
			return ErrAppeared
		case !errors.Is(err, fs.ErrNotExist):
			return err
		}
		return j.aside.rename(j.p)
	})
	if err != nil {
		j.fail.Message += fmt.Sprintf("; it is kept as %s, for it could not be put back: %v", j.Aside, cause(err))
		return
	}
	j.away = false
	a.relocate(j)
	a.touch(j.p, j.p.dir())
}

// place puts everything that comes back at its path: directories first, then
// what goes into them.
func (a *act) place() {
	clear(a.known)
	for _, j := range a.byDepth() {
		if j.pending() && j.To.Kind == Dir {
			a.placeDir(j)
		}
		if j.fail != nil && j.away {
			// What was there goes back, so nothing is to come in its place.
			a.known[j.Path] = &dirError{doing: fmt.Sprintf("its directory %s does not come back", j.Path), err: errors.New(j.fail.Message), full: j.fail.Full}
		}
	}
	each(len(a.jobs), func(i int) string { return a.jobs[i].Path }, func(h *handle, i int) {
		if j := a.jobs[i]; j.pending() && (j.To.Kind == File || j.To.Kind == Symlink) {
			a.placeOne(j, h)
		}
	})
	for _, j := range a.jobs {
		if j.fail != nil && !j.stale {
			a.putBack(j)
		}
	}
	if slices.ContainsFunc(a.jobs, func(j *job) bool { return j.away }) {
		// What was set aside must have something in its place before it goes.
		a.syncDirs()
	}
}

// placeDir makes a directory where none is. The mode of one that is there
// already changes at the end.
func (a *act) placeDir(j *job) {
	if e := a.makeDirs(j.p); e != nil {
		j.noDir(e)
		return
	}
	v, _ := j.p.viewSelf(nil)
	switch {
	case j.From.Kind == Dir:
		if !a.isFrom(j, v.state) {
			j.changed(v)
			return
		}
	case a.made[j.Path]: // with something that goes into it
	case v.state.Kind != Absent:
		j.changed(v)
		return
	default:
		a.mu.Lock()
		err := a.makeDir(j.p)
		a.known[j.Path] = err
		a.mu.Unlock()
		if e, ok := errors.AsType[*dirError](err); ok {
			j.failedIO("the directory cannot be made", e.err)
			return
		}
	}
	j.done = true
}

// placeOne looks at a path once more and puts a file or link there.
func (a *act) placeOne(j *job, h *handle) {
	err := func() error {
		if e := a.makeDirs(j.p); e != nil {
			j.noDir(e)
			return nil
		}
		if !a.enter(j, h) {
			return nil
		}
		defer j.leave()
		v := a.see(j)
		if expected := a.isStill(j, v) && !j.away || j.away && v.state.Kind == Absent; !expected {
			j.changed(v)
			return nil
		}
		switch {
		case j.To.Same(j.From):
			return nil
		case j.chmods():
			a.mu.Lock()
			a.modes[identOf(v.info)] = j.To.Mode
			a.mu.Unlock()
			return j.p.chmod(v, j.To.Mode)
		case j.Temp != "" && v.state.Kind == Absent:
			return j.p.publish(j.temp)
		case j.Temp != "":
			return j.p.supplant(j.temp, j.To, func(q place) (bool, error) { return a.isLeft(j, q) })
		}
		return j.p.symlink(j.To.Target)
	}()
	_, late := errors.AsType[unconfirmed](err)
	_, stranded := errors.AsType[strandedError](err)
	leftover, left := errors.AsType[leftoverError](err)
	switch {
	case stranded:
		j.failed(CodeConflict, "%v", err)
		j.temp = place{} // is somebody else's now
	case left:
		j.doubted(fmt.Sprintf("is back, but its temporary name %s could not be removed", leftover.at), leftover.err)
	case late:
		j.doubted("is back, but the disk did not confirm it", err)
	case errors.Is(err, ErrAppeared) || errors.Is(err, fs.ErrExist):
		j.changed(view{})
	case errors.Is(err, fs.ErrPermission):
		j.failedIO(fmt.Sprintf("its directory %s cannot be written in", j.p.root.path(j.p.dir())), err)
	case err != nil:
		j.failedIO("cannot be put back", err)
	}
	if j.fail != nil {
		a.unstage(j)
		return
	}
	j.done = true
	if !j.chmods() {
		a.touch(j.p, j.p.dir())
		if j.Temp != "" {
			a.touch(j.p, j.temp.dir())
		}
	}
}

// chmod changes the mode of the file that v is of, durably, and of no other
// that came under its name.
func (p place) chmod(v view, mode uint32) error {
	f, err := p.open(openFile, 0)
	if err != nil {
		if p.still(v.info) != nil {
			return ErrAppeared
		}
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	// Another of its names may have given it the mode already.
	if !sameButMode(info, v.info) || modeOf(info) != modeOf(v.info) && modeOf(info) != mode {
		return ErrAppeared
	}
	if err := f.Chmod(fileMode(mode)); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return unconfirmed{err}
	}
	return nil
}
