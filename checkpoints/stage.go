package checkpoints

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
)

// fewSyncs is up to how many files or directories are synced one by one where
// all of a disk can be synced at once.
const fewSyncs = 16

// open lets the process into the directories that it must change and that do
// not let their owner write.
func (a *act) open() {
	for _, dir := range a.in.Open { // outermost first
		a.opened[dir.Path] = dir.Mode
		p, err := a.w.locate(dir.Path)
		if err != nil {
			continue
		}
		info, err := p.lstat()
		if err == nil && kindOf(info) == Dir && modeOf(info) == dir.Mode {
			// That it fails is met again, with a name to it, by whoever writes there.
			p.disk.Chmod(p.rel, fileMode(dir.Mode|0o700))
		}
	}
}

// stage makes all new contents under their temporary names, and makes them
// durable, so that a full disk or a lost content is met before any path has changed.
func (a *act) stage() {
	staged := map[*root][]*job{}
	for _, j := range a.jobs {
		if j.pending() && j.Temp != "" && j.usesTemp() && !j.To.Same(j.From) {
			staged[j.temp.root] = append(staged[j.temp.root], j)
		}
	}
	for _, jobs := range staged {
		syncAll, ok := syncerOf(jobs[0].temp.disk)
		one := !ok || len(jobs) <= fewSyncs
		each(len(jobs), func(i int) string { return jobs[i].Path }, func(h *handle, i int) { a.stageOne(jobs[i], one, h) })
		if one {
			continue
		}
		if err := syncAll(); err != nil {
			for _, j := range jobs {
				if j.fail == nil {
					j.failedIO("its content could not be made durable", err)
				}
			}
		}
	}
	for _, j := range a.jobs {
		if j.fail != nil {
			a.unstage(j)
		}
	}
}

// stageOne makes what a job puts at its path, under its temporary name.
func (a *act) stageOne(j *job, sync bool, h *handle) {
	if j.temp.dir() == j.p.dir() {
		if err := a.makeDirs(j.p); err != nil {
			j.noDir(err)
			return
		}
		if !a.enter(j, h) {
			return
		}
		defer j.leave()
	}
	to := nobody
	if s, ok := a.seen[j.Path]; ok {
		to = s.owner
	} else if info, err := j.p.lstat(); err == nil {
		to = ownerOf(info)
	}
	var err error
	if j.To.Kind == Symlink {
		if err = j.temp.symlink(j.To.Target); err == nil && to != nobody {
			j.temp.lchown(to) // nobody but root may
		}
	} else {
		out := &written{}
		err = j.temp.stage(j.To, to, func(w io.Writer) error {
			out.Writer = w
			_, err := a.w.blobs.WriteTo(out, j.To.Digest)
			if err != nil && out.err == nil {
				f := blobFailure(j.Path, err)
				j.fail = &f
			}
			return err
		}, sync)
	}
	switch {
	case err == nil || j.fail != nil:
	case errors.Is(err, fs.ErrPermission):
		j.failedIO(fmt.Sprintf("its directory %s cannot be written in", j.temp.root.path(j.temp.dir())), err)
	default:
		j.failedIO("its new content cannot be written", err)
	}
}

// enter opens the directory of a job's path, and of its temporary name where that
// is the same one; if that is not possible the job has failed.
func (a *act) enter(j *job, h *handle) bool {
	p, err := h.enter(j.p)
	if err != nil {
		if v, _ := j.p.view(nil, nil, nil); v.cause != nil || len(v.parents) > 0 && v.parents[len(v.parents)-1].kind != Dir {
			j.changed(v)
		} else {
			j.failedIO(fmt.Sprintf("its directory %s cannot be opened", j.p.root.path(j.p.dir())), err)
		}
		return false
	}
	j.p = p
	if j.Temp != "" && j.temp.dir() == p.dir() {
		j.temp.in = p.in
	}
	return true
}

// leave undoes enter: the handle goes on to another directory.
func (j *job) leave() { j.p.in, j.temp.in = nil, nil }

// written keeps the writer's own error apart from that of whom it is given to.
type written struct {
	io.Writer
	err error
}

func (w *written) Write(b []byte) (int, error) {
	n, err := w.Writer.Write(b)
	if err != nil {
		w.err = err
	}
	return n, err
}

// unstage removes what a job left under its temporary name.
func (a *act) unstage(j *job) {
	if j.Temp == "" || j.temp.disk == nil {
		return
	}
	switch err := twice(j.temp.remove); {
	case err == nil:
		a.touch(j.temp, j.temp.dir()) // nor is it to come back
	case !absent(err) && j.fail != nil:
		if _, lerr := j.temp.lstat(); lerr == nil {
			j.fail.Message += fmt.Sprintf("; its temporary file %s could not be removed: %v", j.temp.path, cause(err))
			j.temp = place{}
		}
	}
}

// dirError is a directory that a job needs and cannot have.
type dirError struct {
	doing string
	err   error
	kind  Kind // of what is in the way, if that is it
	full  bool // for want of space
}

func (e *dirError) Error() string { return fmt.Sprintf("%s: %v", e.doing, cause(e.err)) }
func (e *dirError) Unwrap() error { return e.err }

// makeDirs makes the missing directories above p, closed to others until
// finish gives them their modes. No link is followed on the way.
func (a *act) makeDirs(p place) *dirError {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range len(p.rel) {
		if p.rel[i] != '/' {
			continue
		}
		dir := p.rel[:i]
		err, ok := a.known[p.root.path(dir)]
		if !ok {
			err = a.makeDir(p.sibling(dir))
			a.known[p.root.path(dir)] = err
		}
		if err != nil {
			e, _ := errors.AsType[*dirError](err)
			return e
		}
	}
	return nil
}

// makeDir makes a directory unless it is there. The caller holds mu.
func (a *act) makeDir(p place) error {
	info, err := p.lstat()
	if errors.Is(err, fs.ErrNotExist) {
		if err = p.disk.Mkdir(p.rel, 0o700); err == nil {
			a.made[p.path] = true
			a.dirty[p.root.path(p.dir())] = p.sibling(p.dir())
			return nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return &dirError{doing: fmt.Sprintf("its directory %s cannot be made", p.path), err: err}
		}
		info, err = p.lstat()
	}
	if err != nil {
		return &dirError{doing: fmt.Sprintf("its directory %s cannot be seen", p.path), err: err}
	}
	if k := kindOf(info); k != Dir {
		return &dirError{doing: fmt.Sprintf("its directory %s", p.path), err: fmt.Errorf("is %s now", article(State{Kind: k, Reason: NotRegular})), kind: k}
	}
	return nil
}

// noDir fails a job for want of its directory.
func (j *job) noDir(e *dirError) {
	switch e.kind {
	case Unknown:
		j.failedIO(e.doing, e.err)
		j.fail.Full = j.fail.Full || e.full
	case Symlink:
		j.failed(CodeOutsideRoots, "%v", e)
	default:
		j.failed(CodeKindChanged, "%v", e)
	}
}

// syncDirs makes the changed names and modes durable, and notes which
// directories could not be.
func (a *act) syncDirs() {
	byRoot := map[*root][]string{}
	for path, p := range a.dirty {
		byRoot[p.root] = append(byRoot[p.root], path)
	}
	for _, paths := range byRoot {
		d := a.dirty[paths[0]].disk
		if syncAll, ok := syncerOf(d); ok && len(paths) > fewSyncs {
			if err := syncAll(); err != nil {
				for _, path := range paths {
					a.unsynced[path] = err
				}
			}
			continue
		}
		slices.Sort(paths)
		for _, path := range paths {
			if err := d.SyncDir(a.dirty[path].rel); err != nil && !absent(err) {
				a.unsynced[path] = err
			}
		}
	}
	clear(a.dirty)
}

// doubt tells which jobs are done and may not outlive a power cut. A sync that
// succeeds after one that failed proves nothing.
func (a *act) doubt() {
	for _, j := range a.jobs {
		if !j.done || j.fail != nil {
			continue
		}
		err := a.unsynced[j.Path]
		for dir := range above(j.Path) {
			if e := a.unsynced[dir]; e != nil {
				err = e
			}
		}
		if err != nil {
			j.doubted("is back, but the disk did not confirm it", err)
		}
	}
}
