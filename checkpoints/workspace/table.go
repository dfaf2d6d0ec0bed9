package workspace

import (
	"slices"
	"strings"

	"github.com/oino-dev/oinod/checkpoints"
)

// entry is one known path: what it was when it was last looked at, and the
// stat that says whether it may have changed since.
type entry struct {
	name  string
	state checkpoints.State
	stat  stat   // zero where it must be looked at again in any case
	racy  bool   // a change right after it was read need not show in the stat
	seen  uint32 // the walk that covered it last
}

// folder is the known entries of one directory, by name.
type folder struct {
	entries []entry
}

// table is the stat cache: every known path of a tree. Names share the
// directory's, so that 100,000 files take some 20 MB.
type table struct {
	folders map[string]*folder // by directory, "" for the root
	count   int
}

func newTable() *table { return &table{folders: map[string]*folder{}} }

// find returns the entry of rel, or nil.
func (t *table) find(rel string) *entry {
	dir, name := split(rel)
	return t.folders[dir].find(name)
}

func (f *folder) find(name string) *entry {
	if f == nil {
		return nil
	}
	if i, ok := slices.BinarySearchFunc(f.entries, name, func(e entry, n string) int { return strings.Compare(e.name, n) }); ok {
		return &f.entries[i]
	}
	return nil
}

// index is where the entry of name is, or -1. It makes no string of name.
func (f *folder) index(name []byte) int {
	if f == nil {
		return -1
	}
	lo, hi := 0, len(f.entries)
	for lo < hi {
		mid := int(uint(lo+hi) / 2)
		if f.entries[mid].name < string(name) {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo < len(f.entries) && f.entries[lo].name == string(name) {
		return lo
	}
	return -1
}

// apply makes the table what records say. They are in the order of compare,
// so that those of one directory lie together.
func (t *table) apply(records []record) {
	for len(records) > 0 {
		dir, _ := split(records[0].path)
		n := 1
		for n < len(records) {
			if d, _ := split(records[n].path); d != dir {
				break
			}
			n++
		}
		t.applyIn(dir, records[:n])
		records = records[n:]
	}
}

func (t *table) applyIn(dir string, records []record) {
	f := t.folders[dir]
	if f == nil {
		f = &folder{}
		t.folders[strings.Clone(dir)] = f
	}
	t.count -= len(f.entries)
	f.merge(records)
	t.count += len(f.entries)
	if len(f.entries) == 0 {
		delete(t.folders, dir)
	}
}

// merge folds records, ordered by name, into the entries.
func (f *folder) merge(records []record) {
	old := f.entries
	if len(old) > 0 && !slices.ContainsFunc(records, func(r record) bool {
		_, name := split(r.path)
		return r.op == gone || f.find(name) == nil
	}) {
		for _, r := range records { // the usual case: nothing came, nothing went
			_, name := split(r.path)
			r.set(f.find(name))
		}
		return
	}
	entries := make([]entry, 0, len(old)+len(records))
	for _, r := range records {
		_, name := split(r.path)
		for len(old) > 0 && old[0].name < name {
			entries, old = append(entries, old[0]), old[1:]
		}
		e := entry{name: name}
		if len(old) > 0 && old[0].name == name {
			e, old = old[0], old[1:]
		}
		if r.op != gone {
			r.set(&e)
			entries = append(entries, e)
		}
	}
	f.entries = slices.Clip(append(entries, old...))
}

// below calls f for every known path below the directory rel, each directory
// before what is in it.
func (t *table) below(rel string, f func(rel string, e *entry)) {
	in := t.folders[rel]
	if in == nil {
		return
	}
	for i := range in.entries {
		e := &in.entries[i]
		path := join(rel, e.name)
		f(path, e)
		if e.stat.kind == directory || e.state.Kind == checkpoints.Dir {
			t.below(path, f)
		}
	}
}
