package checkpoints

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// prune is row 3 of the table for steps that depend on each other: a directory
// gives way only when all that it holds goes, and a thing needs directories
// above it. A step that fails may take others with it, never the other way
// round, so going through them until nothing changes is enough. implied are
// directories that should be gone but hold something that comes back: they are as
// they should be. lost are paths that failed already; a directory that is one of
// them goes with nothing. The steps become prune's own.
func prune(steps []Step, lost map[string]bool, sight func(path string) *Sight) (good []Step, implied []string, failed []Failure) {
	wanted := wantedDirs(steps)
	good = filter(steps, func(s *Step) bool {
		stays := s.To.Kind == Absent && s.From.Kind == Dir && wanted[s.Path]
		if stays {
			implied = append(implied, s.Path)
		}
		return !stays
	})
	for {
		o := newObstacles(good, lost)
		n := len(good)
		good = filter(good, func(s *Step) bool {
			f := o.of(s, sight(s.Path))
			if f != nil {
				failed = append(failed, *f)
				lost[s.Path] = true
			}
			return f == nil
		})
		if len(good) == n {
			break
		}
	}
	if len(lost) == 0 {
		return good, implied, failed
	}
	isLost := func(p Parent) bool { return p.Absent && lost[p.Path] }
	for i := range good {
		if slices.ContainsFunc(good[i].Parents, isLost) {
			good[i].Parents = slices.DeleteFunc(slices.Clone(good[i].Parents), isLost)
		}
	}
	return good, implied, failed
}

// filter leaves the steps that keep is true for, in their place.
func filter(steps []Step, keep func(s *Step) bool) []Step {
	n := 0
	for i := range steps {
		if keep(&steps[i]) {
			if i != n {
				steps[n] = steps[i]
			}
			n++
		}
	}
	return steps[:n]
}

func depth(path string) int { return strings.Count(path, string(os.PathSeparator)) }

// wantedDirs are the directories above what the steps bring back.
func wantedDirs(steps []Step) map[string]bool {
	wanted := map[string]bool{}
	last := ""
	for i := range steps {
		s := &steps[i]
		dir := s.Path[:max(0, strings.LastIndexByte(s.Path, os.PathSeparator))]
		if s.To.Kind == Absent || dir == last { // as of the one before, mostly
			continue
		}
		last = dir
		for dir := range above(s.Path) {
			wanted[dir] = true
		}
	}
	return wanted
}

// above yields the directories above a path, outermost first.
func above(path string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for i := 1; i < len(path); i++ {
			if os.IsPathSeparator(path[i]) && !yield(path[:i]) {
				return
			}
		}
	}
}

// obstacles answers what stands in a step's way, as a set of steps leaves it.
type obstacles struct {
	to   map[string]Kind // what each step makes of its path
	gone map[string]bool // directories that go with what they hold
	over bool            // some step puts what is no directory where things could be below
}

func newObstacles(steps []Step, lost map[string]bool) obstacles {
	o := obstacles{to: make(map[string]Kind, len(steps)), gone: goneDirs(steps, lost)}
	for i := range steps {
		s := &steps[i]
		o.to[s.Path] = s.To.Kind
		o.over = o.over || (s.From.Kind == Dir || s.From.Kind == Absent) && (s.To.Kind == File || s.To.Kind == Symlink)
	}
	return o
}

// goneDirs are the directories that go with what the steps remove, if that
// leaves them empty. lost are those that stay.
func goneDirs(steps []Step, lost map[string]bool) map[string]bool {
	gone := map[string]bool{}
	for i := range steps {
		if steps[i].To.Kind != Absent {
			continue
		}
		for _, p := range steps[i].Parents {
			if p.Absent && !lost[p.Path] {
				gone[p.Path] = true
			}
		}
	}
	return gone
}

// of is the failure of step, whose path is as now says; nil if nothing is in
// its way.
func (o *obstacles) of(step *Step, now *Sight) *Failure {
	fail := func(code Code, format string, args ...any) *Failure {
		return &Failure{Path: step.Path, Code: code, Message: fmt.Sprintf(format, args...)}
	}
	if step.To.Kind != Absent {
		if o.over {
			for dir := range above(step.Path) {
				if k, ok := o.to[dir]; ok && (k == File || k == Symlink) {
					return fail(CodeKindChanged, "its directory %s becomes %s", dir, article(State{Kind: k}))
				}
			}
		}
		if now.Blocked != "" {
			if k, ok := o.to[now.Blocked]; !ok || k != Dir && k != Absent {
				code := CodeKindChanged
				if now.BlockedBy == Symlink {
					code = CodeOutsideRoots // wherever it leads: nothing is written through it
				}
				return fail(code, "its directory %s is %s now", now.Blocked, article(State{Kind: now.BlockedBy, Reason: NotRegular}))
			}
		}
	}
	if now.State.Kind == Dir && step.To.Kind != Dir {
		if now.BelowMore {
			return fail(CodeKindChanged, "is a directory now, with more in it than can be listed")
		}
		for _, b := range now.Below {
			if k, ok := o.to[b]; (!ok || k != Absent) && !o.gone[b] {
				return fail(CodeKindChanged, "is a directory now that holds %s", b)
			}
		}
	}
	return nil
}
