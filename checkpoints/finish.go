package checkpoints

import (
	"io/fs"
	"slices"

	"github.com/oino-dev/oinod/checkpoints/disk"
)

// finish gives directories their modes, innermost first, since one may close
// the way to what it holds; removes those that were made for nothing; and makes all
// of it durable.
func (a *act) finish() {
	dirs := map[string]bool{}
	for dir := range a.made {
		dirs[dir] = true
	}
	if a.recovering {
		for _, dir := range a.in.MakeDirs {
			dirs[dir] = true
		}
	}
	for dir := range a.opened {
		dirs[dir] = true
	}
	needed := map[string]bool{}
	for _, j := range a.jobs {
		if !j.done || j.fail != nil {
			continue
		}
		if j.To.Kind == Dir {
			dirs[j.Path], needed[j.Path] = true, true
		}
		if j.To.Kind != Absent {
			for dir := range above(j.Path) {
				needed[dir] = true
			}
		}
	}
	paths := make([]string, 0, len(dirs))
	for dir := range dirs {
		paths = append(paths, dir)
	}
	slices.SortFunc(paths, func(x, y string) int { return depth(y) - depth(x) })
	for _, dir := range paths {
		a.finishDir(dir, needed[dir])
	}
	a.syncDirs()
	a.doubt()
}

// finishDir finishes one directory that the intent made, opened or is about.
func (a *act) finishDir(dir string, needed bool) {
	p, err := a.w.locate(dir)
	if err != nil {
		a.blame(dir, err)
		return
	}
	var info fs.FileInfo
	err = twice(func() error { info, err = p.lstat(); return err })
	switch {
	case err != nil && !absent(err):
		a.blame(dir, err)
		return
	case err != nil || kindOf(info) != Dir:
		return
	}
	mode := modeOf(info)
	// An earlier Act's directory still has the mode that it was made with: any
	// other was made by somebody else.
	made := a.made[dir] || a.recovering && mode == 0o700 && slices.Contains(a.in.MakeDirs, dir)
	if made && !needed && twice(p.remove) == nil {
		a.touch(p, p.dir())
		return
	}
	want, ours := a.finalMode(dir, mode, made)
	if want == mode {
		return
	}
	if !ours {
		if j := a.byPath[dir]; j != nil && j.To.Kind == Dir && j.fail == nil {
			j.changed(view{})
		}
		return
	}
	if want&0o500 != 0o500 && a.shut(p, want) {
		return
	}
	if err := twice(func() error { return p.disk.Chmod(p.rel, fileMode(want)) }); err != nil {
		a.blame(dir, err)
		return
	}
	a.touch(p, p.rel)
}

// shut gives a directory a mode that may keep its owner out, so that it cannot
// be opened to be synced, nor what is below it: that is synced before, and the
// mode through a handle. It reports false where there is no handle to be had.
func (a *act) shut(p place, mode uint32) bool {
	f, err := p.disk.OpenFile(p.rel, openDir, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	a.syncDirs()
	if err := twice(func() error { return f.Chmod(fileMode(mode)) }); err != nil {
		a.blame(p.path, err)
	} else if err := disk.SyncOpen(f); err != nil {
		a.unsynced[p.root.path(p.rel)] = err
	}
	return true
}

// finalMode is the mode that a directory shall have, if it is still one of
// those that the intent gave it on the way: any other is somebody else's.
func (a *act) finalMode(dir string, mode uint32, made bool) (uint32, bool) {
	before, opened := a.opened[dir]
	if j := a.byPath[dir]; j != nil && j.To.Kind == Dir && j.done && j.fail == nil {
		if j.From.Kind != Dir {
			return j.To.Mode, mode == 0o700
		}
		return j.To.Mode, mode == j.From.Mode || opened && mode == before|0o700
	}
	if opened {
		return before, mode == before|0o700
	}
	if made && mode == 0o700 {
		return a.noted(dir), true
	}
	return mode, false
}

// noted is the mode that a directory had, as the captures of what it held say.
func (a *act) noted(dir string) uint32 {
	for _, s := range a.in.Steps {
		for _, p := range s.Parents {
			if p.Path == dir && !p.Absent {
				return p.Mode
			}
		}
	}
	return 0o755
}

// blame fails the jobs that a directory's mode belongs to: its own, or else
// those right in it.
func (a *act) blame(dir string, err error) {
	if j := a.byPath[dir]; j != nil && j.fail == nil && j.To.Kind == Dir {
		j.failedIO("its mode cannot be set", err)
		return
	}
	for _, j := range a.jobs {
		if j.done && j.fail == nil && j.p.root.path(j.p.dir()) == dir {
			j.doubted("is back, but the mode of its directory cannot be set", err)
		}
	}
}
