package session

import (
	"cmp"
	"path/filepath"
	"slices"

	"github.com/oino-dev/oinod/checkpoints"
	"github.com/oino-dev/oinod/checkpoints/workspace"
)

// division divides what captures tell into intervals.
type division struct {
	changed []workspace.Changed
	has     map[string]bool
	along   map[string]bool   // directories that came or went only with something in them
	made    map[string]bool   // directories that were made
	gone    map[string]uint32 // directories that went, with their modes
}

func newDivision(changed []workspace.Changed) *division {
	d := &division{changed: changed, has: map[string]bool{}, along: map[string]bool{}, made: map[string]bool{}, gone: map[string]uint32{}}
	came, went := map[string]bool{}, map[string]bool{} // directories above something that came or went
	for _, c := range changed {
		first, last := c.Links[0].Before, c.Links[len(c.Links)-1].After
		for dir := filepath.Dir(c.Path); ; dir = filepath.Dir(dir) {
			came[dir] = came[dir] || last.Kind != checkpoints.Absent
			went[dir] = went[dir] || first.Kind != checkpoints.Absent
			if dir == filepath.Dir(dir) {
				break
			}
		}
	}
	for _, c := range changed {
		d.has[c.Path] = true
		first, last := c.Links[0].Before, c.Links[len(c.Links)-1].After
		if first.Kind == checkpoints.Absent && last.Kind == checkpoints.Dir {
			d.made[c.Path], d.along[c.Path] = true, came[c.Path]
		}
		if first.Kind == checkpoints.Dir && last.Kind == checkpoints.Absent {
			d.gone[c.Path], d.along[c.Path] = first.Mode, went[c.Path]
		}
	}
	return d
}

// interval is a link as a record. Numbers are given out when the records are
// put in order.
func (d *division) interval(path string, l workspace.Link) intervalRecord {
	after := l.After
	iv := intervalRecord{Path: path, Before: l.Before, After: &after, SessionID: l.Owner, Along: d.along[path]}
	for dir := filepath.Dir(path); dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if d.made[dir] {
			iv.Parents = append([]checkpoints.Parent{{Path: dir, Absent: true}}, iv.Parents...)
		} else if mode, ok := d.gone[dir]; ok {
			iv.Parents = append([]checkpoints.Parent{{Path: dir, Mode: mode}}, iv.Parents...)
		}
	}
	return iv
}

// ofTurn are the records of what changed inside turn t of a session: its own
// intervals, and in between what others claimed, so that those of a path are in
// the order of its links. What tools opened comes first, as they did.
func (d *division) ofTurn(t *turn, session string, alive func(id string) bool) []any {
	opened := map[string]int{}
	for i, iv := range t.intervals {
		if _, ok := opened[iv.path]; !ok {
			opened[iv.path] = i
		}
	}
	changed := slices.Clone(d.changed)
	slices.SortStableFunc(changed, func(a, b workspace.Changed) int {
		i, first := opened[a.Path]
		j, second := opened[b.Path]
		switch {
		case first && second:
			return cmp.Compare(i, j)
		case first:
			return -1
		case second:
			return 1
		}
		return 0
	})
	var records []any
	var before *beforeRecord   // the one that is the last of records
	var outside *outsideRecord // the same
	others := &outsideRecord{Type: "outside", Turn: t.entry.id}
	for _, c := range changed {
		links := ownSteps(c.Links, session, alive)
		theirs := !slices.ContainsFunc(links, func(l step) bool { return l.own })
		for _, l := range links {
			iv := d.interval(c.Path, l.Link)
			switch {
			case theirs:
				others.Intervals = append(others.Intervals, iv)
			case l.own:
				if before == nil {
					before, outside = &beforeRecord{Type: "before", Turn: t.entry.id}, nil
					records = append(records, before)
				}
				iv.Shared, iv.SessionID = l.shared, ""
				before.Intervals = append(before.Intervals, iv)
			default:
				if outside == nil {
					before, outside = nil, &outsideRecord{Type: "outside", Turn: t.entry.id}
					records = append(records, outside)
				}
				outside.Intervals = append(outside.Intervals, iv)
			}
		}
	}
	if len(others.Intervals) > 0 {
		records = append(records, others)
	}
	return records
}

// step is a link, and whether it is the turn's, alone or with others.
type step struct {
	workspace.Link
	own    bool
	shared []string
}

// ownSteps are the links of a path without those that are the turn's alone and,
// one behind the other, led nowhere.
func ownSteps(links []workspace.Link, session string, alive func(id string) bool) []step {
	var all []step
	run := 0 // where the last ones that are the turn's alone begin
	for _, l := range links {
		s := step{Link: l, own: l.Owner == "" || l.Owner == session}
		if s.own {
			s.shared = sharers(l, alive)
		}
		if all = append(all, s); !s.own || len(s.shared) > 0 {
			run = len(all)
		} else if all[run].Before.Same(l.After) {
			all = all[:run]
		}
	}
	return all
}

// number gives the intervals of records their numbers.
func number(records []any, next int) {
	for _, r := range records {
		var ivs []intervalRecord
		switch r := r.(type) {
		case *beforeRecord:
			ivs = r.Intervals
		case *outsideRecord:
			ivs = r.Intervals
		}
		for i := range ivs {
			ivs[i].N = next
			next++
		}
	}
}
