package workspace

import (
	"unicode/utf8"

	"github.com/oino-dev/oinod/checkpoints"
)

// listing is the names of one directory on their way to being records, reads
// and further tasks.
type listing struct {
	*worker
	task  task
	dir   dir
	below []task
	reads []toRead

	files, bytes, fresh int64 // covered; of them not known
}

// entries compares the names of one directory with what is known of them and
// returns the directories among them that are to be walked.
func (k *worker) entries(t task, d dir, known *folder) []task {
	l := listing{worker: k, task: t, dir: d}
	for _, it := range k.items {
		if k.stop.Load() {
			break
		}
		var e *entry
		if it.known >= 0 {
			e = &known.entries[it.known]
		}
		l.one(it, e)
	}
	if len(l.reads) > 0 {
		k.reads = append(k.reads, dirReads{t.rel, l.reads})
	}
	k.count(l.files, l.bytes, l.fresh)
	return l.below
}

// one is one name. Most are known, covered as the last time, and their stat is
// as it was: that way there is one lstat and nothing is allocated.
func (l *listing) one(it item, e *entry) {
	if e == nil && !utf8.ValidString(it.name) {
		l.uncovered = append(l.uncovered, Uncovered{Path: join(l.task.rel, it.name), Reason: checkpoints.BadName})
		return
	}
	var st stat
	var err error
	looked := false
	if it.kind == noKind || it.kind == directory && e != nil && e.stat.kind != directory {
		if st, err = l.dir.lstat(it.name); err == nil {
			it.kind, looked = st.kind, true
		}
	}
	next, walk := task{same: l.task.same}, true
	asBefore := l.task.same && e != nil && e.seen == l.tree.walk && it.kind == e.stat.kind
	if !asBefore || it.kind == directory {
		next.rel = join(l.task.rel, it.name)
		if next.rel == l.skip { // which is never ""
			return
		}
		covered, passed := l.covers(&l.task, &next, it.name, it.kind == directory)
		if passed && !covered {
			l.below = append(l.below, next)
		}
		if !covered {
			if !l.skipped(next.rel, it, e) {
				return
			}
			walk = false
		}
	}
	if !looked {
		st, err = l.dir.lstat(it.name)
	}
	if err != nil && missing(err) {
		if e != nil {
			l.gone(l.tree.table, join(l.task.rel, it.name), e)
		}
		return
	}
	l.files++
	fresh := e == nil || e.excluded()
	if e != nil && walk {
		e.seen = l.tree.walk + 1
	}
	if fresh {
		if l.fresh++; l.new.Load()+l.fresh > 2*int64(l.limits.MaxFiles) {
			return // far over the budget: only counted
		}
	}
	if e != nil && err == nil && e.stat.kind == directory && st.kind != directory {
		l.noneBelow(l.tree.table, join(l.task.rel, it.name), e)
	}
	switch {
	case err == nil && st.kind == regular:
		if st.size <= l.limits.MaxKept {
			l.bytes += st.size
		} else {
			l.files-- // it costs nothing
		}
		if e == nil || e.racy || e.stat != st {
			l.reads = append(l.reads, toRead{name: it.name, size: st.size, new: fresh})
			return
		}
		l.still(it.name, e)
	case e == nil || err != nil || e.racy || differs(e, st):
		l.look(join(l.task.rel, it.name), l.dir, it.name, e, st, err)
	default:
		l.still(it.name, e)
	}
	if err == nil && st.kind == directory && walk {
		if next.now.rules == nil {
			next.now, next.held = l.task.now, l.task.held
		}
		next.rel, next.ino = join(l.task.rel, it.name), st.ino
		l.below = append(l.below, next)
	}
}

// skipped is for a name that the rules skip. Where they would not if it were a
// directory, or none, that it is there must be known: or what a turn puts in
// its place would be taken for something that was not there before. So it is a
// known path, uncovered as excluded, and nothing below it is. It reports true
// where the name was known as the other kind: what has taken the place of a
// covered thing is looked at, once, or nobody would know that it went.
func (l *listing) skipped(rel string, it item, e *entry) (look bool) {
	isDir := it.kind == directory
	same := e != nil && (e.stat.kind == directory) == isDir
	if same || it.kind == noKind || !l.covered(&l.task, rel, it.name, !isDir) {
		return false
	}
	if e != nil && !e.excluded() {
		return true
	}
	r := record{op: came, path: rel, after: notCovered(checkpoints.Excluded), stat: stat{kind: it.kind}}
	if e != nil {
		r.op, r.before = changed, e.state
	}
	l.records = append(l.records, r)
	return false
}

// excluded reports a known path that rules skip; see listing.skipped.
func (e *entry) excluded() bool {
	return e.state.Kind == checkpoints.Uncovered && e.state.Reason == checkpoints.Excluded
}

// still names a known path that is uncovered as it was.
func (l *listing) still(name string, e *entry) {
	if e.state.Kind == checkpoints.Uncovered {
		l.uncovered = append(l.uncovered, Uncovered{Path: join(l.task.rel, name), Reason: e.state.Reason})
	}
}

// differs reports that what is no regular file may be another than e says. Of
// a directory only its mode is a state: its times tell of what is in it.
func differs(e *entry, st stat) bool {
	if st.kind == directory {
		return e.state.Kind != checkpoints.Dir || e.state.Mode != st.mode
	}
	return e.stat != st
}

// covers asks every view about a name in t, whose path is next's, and sets what
// the views of next are if it is a directory.
func (k *worker) covers(t, next *task, name string, isDir bool) (covered, passed bool) {
	covered, included, passed := t.now.covers(next.rel, name, isDir)
	if isDir {
		next.now = t.now.below(covered, included)
	}
	for _, v := range t.held {
		c, i, p := v.covers(next.rel, name, isDir)
		covered, passed = covered || c, passed || p
		if isDir {
			next.held = append(next.held, v.below(c, i))
		}
	}
	return covered, passed
}

// covered reports whether any view covers a name in t.
func (k *worker) covered(t *task, rel, name string, isDir bool) bool {
	covered, _, _ := t.now.covers(rel, name, isDir)
	for _, v := range t.held {
		if !covered {
			covered, _, _ = v.covers(rel, name, isDir)
		}
	}
	return covered
}

// count adds to what is covered and ends a first walk that is over the budget.
func (k *worker) count(files, bytes, fresh int64) {
	n, b := k.files.Add(files), k.bytes.Add(bytes)
	k.new.Add(fresh)
	if k.first && (n > int64(k.limits.MaxFiles) || b > k.limits.MaxBytes) {
		k.fail(errOver)
	}
	if k.tell != nil && files > 0 {
		k.tell(int(n))
	}
}

// look records what a name is that is no regular file.
func (k *worker) look(rel string, d dir, name string, e *entry, st stat, err error) {
	state, why := stateOf(d, name, st, err)
	if state.Kind == checkpoints.Uncovered {
		k.uncovered = append(k.uncovered, Uncovered{Path: rel, Reason: state.Reason, Err: why})
	}
	if r, ok := compare(rel, e, state, st, k.racy(st) || state.Reason == checkpoints.Unreadable); ok {
		r.seen = k.tree.walk + 1
		k.records = append(k.records, r)
	}
}

// stateOf is the state of a name that is no regular file.
func stateOf(d dir, name string, st stat, err error) (s checkpoints.State, why string) {
	if err == nil {
		switch st.kind {
		case directory:
			return checkpoints.State{Kind: checkpoints.Dir, Mode: st.mode}, ""
		case link:
			var target string
			if target, err = d.readlink(name); err == nil {
				return checkpoints.State{Kind: checkpoints.Symlink, Target: target}, ""
			}
		default:
			return checkpoints.State{Kind: checkpoints.Uncovered, Reason: checkpoints.NotRegular}, ""
		}
	}
	return checkpoints.State{Kind: checkpoints.Uncovered, Reason: checkpoints.Unreadable}, cause(err).Error()
}

// compare makes the record of a path that was e (nil: not known) and is state
// now; ok is false where there is nothing to record.
func compare(rel string, e *entry, state checkpoints.State, st stat, racy bool) (r record, ok bool) {
	switch {
	case e == nil:
		return record{op: came, path: rel, after: state, stat: st, racy: racy}, true
	case e.state != state || state.Reason == checkpoints.TooLarge && e.stat != st:
		return record{op: changed, path: rel, before: e.state, after: state, stat: st, racy: racy}, true
	case e.racy != racy || e.stat != st && !(st.kind == directory && e.stat.kind == directory):
		return record{op: restat, path: rel, stat: st, racy: racy}, true
	}
	return record{}, false
}

// Clocks of file systems tick, in milliseconds: most with the kernel's timer,
// 1 to 10 ms; those that keep whole seconds, once or every second one.
const (
	quickTick   = 50
	slowestTick = 2500
)

// racy reports whether a change right after now need not show in the stat:
// what was touched within a tick of the walk's beginning is read again the
// next time. Where there is a ctime it alone decides: nobody can set it.
func (w *walker) racy(s stat) bool {
	last := s.ctime
	if last == 0 {
		last = s.mtime
	}
	tick := int64(quickTick * 1e6)
	if last%1e9 == 0 {
		tick = slowestTick * 1e6
	}
	return s.kind != directory && w.start-last <= tick
}
