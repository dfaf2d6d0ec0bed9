package workspace

import (
	"slices"

	"github.com/oino-dev/oinod/checkpoints"
)

// lookAlways looks at the paths that are covered whatever the rules say, where
// the walk has not, and returns those that the rules of now skip.
func (t *tree) lookAlways(w *walker, now *rules, always []string, f *found) (extra []string, err error) {
	rules := now.lookup()
	for _, rel := range always {
		e := t.table.find(rel)
		if !t.never(rel) && !rules.covers(rel, e != nil && e.stat.kind == directory) {
			extra = append(extra, rel)
		}
	}
	slices.Sort(extra)
	extra = slices.Compact(extra)
	look := extra
	if len(t.store.include) > 0 {
		look = append(slices.Clone(extra), t.passed()...)
	}
	if len(look) == 0 {
		return nil, nil
	}
	recorded := map[string]bool{}
	for i := range f.records {
		recorded[f.records[i].path] = true
	}
	k := readWorker{reader: &reader{walker: w, blobs: t.store.blobs}}
	for _, rel := range look {
		e := t.table.find(rel)
		if recorded[rel] || e != nil && e.seen == t.walk+1 {
			continue // under the rules of an earlier capture the walk came there
		}
		if err := k.always(rel, e); err != nil {
			return nil, err
		}
	}
	f.add(&k.found)
	return extra, nil
}

// always looks at one path.
func (k *readWorker) always(rel string, e *entry) error {
	in, name := split(rel)
	d, err := k.root.openDir(in)
	switch {
	case err == nil:
		defer d.close()
		st, err := d.lstat(name)
		if err == nil && e != nil && !e.racy && e.state.Kind != checkpoints.Uncovered && (e.stat == st || st.kind == directory && !differs(e, st)) {
			return nil
		}
		return k.file(d, in, name)
	case replaced(err):
		if e != nil {
			k.gone(k.tree.table, rel, e)
		}
	default:
		k.blind = append(k.blind, in)
		k.uncovered = append(k.uncovered, Uncovered{Path: rel, Reason: checkpoints.Unreadable, Err: cause(err).Error()})
	}
	return nil
}

// passed are known paths that only an include line covers and whose directory
// the last walk came to through excluded ones: if that directory is gone, no
// listing tells.
func (t *tree) passed() []string {
	var all []string
	for dir, f := range t.table.folders {
		if dir == "" {
			continue
		}
		if e := t.table.find(dir); e != nil {
			continue
		}
		for _, e := range f.entries {
			if e.seen == t.walk {
				all = append(all, join(dir, e.name))
			}
		}
	}
	return all
}
