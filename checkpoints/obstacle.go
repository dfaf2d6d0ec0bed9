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
// them goes with nothing.
func prune(steps []Step, lost map[string]bool, sight func(path string) Sight) (good []Step, implied []string, failed []Failure) {
	good = slices.Clone(steps)
	wanted := wantedDirs(good)
	good = slices.DeleteFunc(good, func(s Step) bool {
		if s.To.Kind == Absent && s.From.Kind == Dir && wanted[s.Path] {
			implied = append(implied, s.Path)
			return true
		}
		return false
	})
	for {
		o := newObstacles(good, lost)
		n := len(good)
		good = slices.DeleteFunc(good, func(s Step) bool {
			f := o.of(s, sight(s.Path))
			if f != nil {
				failed = append(failed, *f)
				lost[s.Path] = true
			}
			return f != nil
		})
		if len(good) == n {
			break
		}
	}
	for i := range good {
		if slices.ContainsFunc(good[i].Parents, func(p Parent) bool { return p.Absent && lost[p.Path] }) {
			good[i].Parents = slices.DeleteFunc(slices.Clone(good[i].Parents), func(p Parent) bool { return p.Absent && lost[p.Path] })
		}
	}
	return good, implied, failed
}

func depth(path string) int { return strings.Count(path, string(os.PathSeparator)) }

// wantedDirs are the directories above what the steps bring back.
func wantedDirs(steps []Step) map[string]bool {
	wanted := map[string]bool{}
	for _, s := range steps {
		if s.To.Kind == Absent {
			continue
		}
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
	o := obstacles{to: make(map[string]Kind, len(steps)), gone: map[string]bool{}}
	for _, s := range steps {
		o.to[s.Path] = s.To.Kind
		o.over = o.over || (s.From.Kind == Dir || s.From.Kind == Absent) && (s.To.Kind == File || s.To.Kind == Symlink)
		if s.To.Kind != Absent {
			continue
		}
		for _, p := range s.Parents {
			if p.Absent && !lost[p.Path] {
				o.gone[p.Path] = true
			}
		}
	}
	return o
}

// of is the failure of step, whose path is as now says; nil if nothing is in
// its way.
func (o obstacles) of(step Step, now Sight) *Failure {
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
