package session

import (
	"path/filepath"

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
	outside []intervalRecord
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
