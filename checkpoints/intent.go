package checkpoints

import (
	"path"
	"slices"
	"strconv"
)

// intent chooses names for what Act makes and sets aside, and lists what else
// must be known after a crash.
func (w *Workspace) intent(steps []Step) Intent {
	in := Intent{Steps: steps}
	unique := w.tempNames()
	wanted := wantedDirs(steps)
	dirs := newParents()
	making, opening := map[string]bool{}, map[string]bool{}
	for i := range steps {
		s := &steps[i]
		p, err := dirs.locate(w, s.Path)
		if err != nil {
			continue
		}
		name := tempNear(p.rel, unique+"-"+strconv.Itoa(i))
		if s.setsAside(wanted[s.Path]) {
			s.Aside = p.root.path(name + "-aside")
		}
		above, _ := p.seeParents(dirs)
		near := p.dir() // the directory to work in: the nearest that is there, or can be made at once
		if n := len(above); n > 0 && above[n-1].kind != Dir {
			if above[n-1].kind != Absent {
				near = path.Dir(above[n-1].rel)
			}
			if s.To.Kind != Absent {
				for i := len(above[n-1].rel); i < len(p.rel); i++ {
					if dir := p.root.path(p.rel[:i]); p.rel[i] == '/' && !making[dir] {
						making[dir] = true
						in.MakeDirs = append(in.MakeDirs, dir)
					}
				}
			}
		}
		if s.usesTemp() || s.removes() && s.Aside == "" {
			if near != p.dir() {
				name = path.Join(near, path.Base(name))
			}
			s.Temp = p.root.path(name)
		}
		for i, a := range above {
			// Names change in the last that is there, and in those whose
			// directory goes with the path; the others are only passed.
			if a.kind != Dir || a.mode&0o300 == 0o300 || s.inPlace() {
				continue
			}
			changes := i == len(above)-1 || above[i+1].kind != Dir || s.goesWith(p.root.path(above[i+1].rel))
			if dir := p.root.path(a.rel); changes && !opening[dir] {
				opening[dir] = true
				in.Open = append(in.Open, Parent{Path: dir, Mode: a.mode})
			}
		}
	}
	slices.SortStableFunc(in.MakeDirs, func(a, b string) int { return depth(a) - depth(b) })
	slices.SortStableFunc(in.Open, func(a, b Parent) int { return depth(a.Path) - depth(b.Path) })
	return in
}

// setsAside reports whether what is at the step's path has to be out of the
// way before the new thing can come: a directory for a file, and a file for a
// directory, be it one that other steps need.
func (s Step) setsAside(wantedDir bool) bool {
	switch s.From.Kind {
	case Dir:
		return s.To.Kind == File || s.To.Kind == Symlink
	case File, Symlink:
		return s.To.Kind == Dir || s.To.Kind == Absent && wantedDir
	}
	return false
}

// goesWith reports whether directory dir goes with the step's path if that
// leaves it empty.
func (s Step) goesWith(dir string) bool {
	return s.To.Kind == Absent && slices.Contains(s.Parents, Parent{Path: dir, Absent: true})
}

// usesTemp reports whether the new thing is made under a temporary name first.
// A link where nothing is comes at once, whole and over nobody, as it is.
func (s Step) usesTemp() bool {
	return s.writes() || s.To.Kind == Symlink && (s.From.Kind == File || s.From.Kind == Symlink)
}

// removes reports whether a step leaves nothing of a file or a link. It goes
// under its temporary name first (see takeAway).
func (s Step) removes() bool {
	return s.To.Kind == Absent && (s.From.Kind == File || s.From.Kind == Symlink)
}

// writes reports whether a step puts other bytes at its path.
func (s Step) writes() bool {
	return s.To.Kind == File && !s.chmods()
}

// inPlace reports whether a step leaves all names as they are.
func (s Step) inPlace() bool { return s.chmods() || s.From.Kind == Dir && s.To.Kind == Dir }

// chmods reports whether a step changes at most the mode of a file: its bytes,
// its inode and its time stay as they are.
func (s Step) chmods() bool {
	return s.To.Kind == File && s.From.Kind == File && s.To.Digest == s.From.Digest
}
