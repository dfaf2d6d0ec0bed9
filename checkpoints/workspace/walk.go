package workspace

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/oino-dev/oinod/checkpoints"
)

// errOver ends a first walk that has found more than the budget.
var errOver = errors.New("over the budget")

// walker is one walk over a tree: it lists and compares, and says what must be
// read. It changes nothing but entry.seen.
type walker struct {
	ctx    context.Context
	tree   *tree
	root   rootDir
	limits Limits
	start  int64    // when it began, in nanoseconds
	first  bool     // there was no capture before
	idle   bool     // no turn is open, so that what is new is nobody's
	since  int64    // when the last one was, in nanoseconds
	above  above    // the root
	held   []*rules // followed besides those that are found
	same   bool     // the same rules were held in the last walk
	last   *rules   // what the last walk here found; nil
	prev   *rules   // what the last capture found; nil
	skip   string   // where the agent directory lies in the root; "": elsewhere
	skipID ident

	tell func(done int)

	files, bytes atomic.Int64 // covered so far
	new          atomic.Int64 // of them not known
	stop         atomic.Bool

	mu    sync.Mutex // guards what follows
	more  sync.Cond
	tasks []task
	busy  int
	err   error
	found found
}

// task is a directory to be walked.
type task struct {
	rel  string
	ino  uint64
	now  view
	held []view
	same bool // all that counts here is as in the last walk
}

// found is what a walk has found; each worker has its own until the end.
type found struct {
	records   []record
	reads     []dirReads
	sources   []source
	uncovered []Uncovered
	blind     []string
}

// dirReads are the files of one directory that must be read.
type dirReads struct {
	dir   string
	files []toRead
}

type toRead struct {
	name string
	size int64
	new  bool
}

// worker is one goroutine's own memory.
type worker struct {
	*walker
	found
	items   []item
	present []bool
}

// item is a name in the directory at hand.
type item struct {
	name  string
	known int // its index among the known entries, or -1
	kind  kind
}

// run walks the whole tree.
func (w *walker) run() error {
	w.more.L = &w.mu
	base := newRules(w.above.prefix, w.tree.store.include, w.tree.store.exclude, w.above.sources)
	t := task{now: base.atRoot(), same: w.same && w.last != nil && w.sameAbove()}
	for _, r := range w.held {
		t.held = append(t.held, r.atRoot())
	}
	w.found.sources = w.above.sources
	w.tasks = []task{t}
	stop := context.AfterFunc(w.ctx, func() { w.fail(w.ctx.Err()) })
	defer stop()
	_ = parallel(workers(w.tree.store.procs), func() error {
		k := worker{walker: w}
		k.work()
		w.mu.Lock()
		defer w.mu.Unlock()
		w.found.add(&k.found)
		return nil
	})
	return w.err
}

func (f *found) add(o *found) {
	f.records = append(f.records, o.records...)
	f.reads = append(f.reads, o.reads...)
	f.sources = append(f.sources, o.sources...)
	f.uncovered = append(f.uncovered, o.uncovered...)
	f.blind = append(f.blind, o.blind...)
}

// sameAbove reports that what counts in the whole tree is as in the last walk.
func (w *walker) sameAbove() bool {
	s := w.tree.store
	return w.last.prefix == w.above.prefix && slices.Equal(w.last.include, s.include) && slices.Equal(w.last.exclude, s.exclude) &&
		!slices.ContainsFunc(w.above.sources, func(a source) bool {
			old := w.last.source(a.dir)
			return old == nil || !old.equal(a)
		})
}

// fail ends the walk with the first error.
func (w *walker) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
	w.stop.Store(true)
	w.more.Broadcast()
}

// work takes directories until there are none and nobody can find another.
func (k *worker) work() {
	w := k.walker
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		for len(w.tasks) == 0 && w.busy > 0 && !w.stop.Load() {
			w.more.Wait()
		}
		if len(w.tasks) == 0 || w.stop.Load() {
			w.more.Broadcast()
			return
		}
		t := w.tasks[len(w.tasks)-1]
		w.tasks = w.tasks[:len(w.tasks)-1]
		w.busy++
		w.mu.Unlock()
		below := k.directory(t)
		w.mu.Lock()
		w.busy--
		w.tasks = append(w.tasks, below...)
		if len(below) > 1 || w.busy == 0 {
			w.more.Broadcast()
		}
	}
}

// blindTo notes a directory that cannot be seen: what is known below it stays.
func (k *worker) blindTo(rel string, err error) {
	k.blind = append(k.blind, rel)
	k.uncovered = append(k.uncovered, Uncovered{Path: rel, Reason: checkpoints.Unreadable, Err: cause(err).Error()})
}

// directory walks one directory and returns those in it.
func (k *worker) directory(t task) []task {
	d, err := k.root.openDir(t.rel)
	if err != nil {
		if t.rel == "" {
			k.fail(err)
		} else if !replaced(err) {
			// One that is gone by now was there when the capture began, and
			// the next will say that it went.
			k.blindTo(t.rel, err)
		}
		return nil
	}
	defer d.close()
	if t.ino == k.skipID.ino && t.ino != 0 {
		if id, err := d.ident(); err == nil && id == k.skipID {
			return nil // the agent directory, mounted here
		}
	}
	known := k.tree.table.folders[t.rel]
	k.items, k.present = k.items[:0], k.present[:0]
	if known != nil {
		if cap(k.present) < len(known.entries) {
			k.present = make([]bool, len(known.entries))
		}
		k.present = k.present[:len(known.entries)]
		clear(k.present)
	}
	git, ignoring := false, false
	err = d.names(func(name []byte, kd kind) {
		if len(name) >= len(".git") && isGit(string(name)) {
			git = git || string(name) == ".git"
			return
		}
		it := item{known: known.index(name), kind: kd}
		if it.known >= 0 {
			it.name = known.entries[it.known].name
			k.present[it.known] = true
		} else {
			it.name = string(name)
		}
		ignoring = ignoring || it.name == ignoreName
		k.items = append(k.items, it)
	})
	if err != nil {
		if t.rel == "" {
			k.fail(err)
			return nil
		}
		k.blindTo(t.rel, err)
	} else if known != nil {
		k.unlisted(t.rel, known)
	}
	k.rulesOf(&t, d, git, ignoring)
	return k.entries(t, d, known)
}

// unlisted records what is known in a directory and not in its list.
func (k *worker) unlisted(rel string, known *folder) {
	for i, there := range k.present {
		if e := &known.entries[i]; !there {
			k.gone(k.tree.table, join(rel, e.name), e)
		}
	}
}

// gone records that a known path is not there, nor what is below it.
func (f *found) gone(t *table, rel string, e *entry) {
	f.records = append(f.records, record{op: gone, path: rel, before: e.state})
	f.noneBelow(t, rel, e)
}

// noneBelow records that nothing is below a known path, which is no directory now.
func (f *found) noneBelow(t *table, rel string, e *entry) {
	if e.stat.kind == directory || e.state.Kind == checkpoints.Dir {
		t.below(rel, func(path string, e *entry) {
			f.records = append(f.records, record{op: gone, path: path, before: e.state})
		})
	}
}

// rulesOf brings the task's views to what the directory itself adds.
func (k *worker) rulesOf(t *task, d dir, git, ignoring bool) {
	full := k.above.prefix
	if t.rel != "" {
		full += t.rel + "/"
	}
	s := source{dir: full}
	if git {
		s.exclude, s.top = repositoryAt(k.tree.realPath(t.rel))
	}
	if ignoring {
		var err error
		if s.lines, err = readIgnore(d); err != nil {
			// What cannot be read now still says what it said: without it a
			// tree of modules would be taken for the user's work.
			if old := k.prev.source(full); old != nil {
				s.lines = old.lines
			}
		}
	}
	old := k.last.source(full)
	if s.top || len(s.lines) > 0 {
		k.found.sources = append(k.found.sources, s)
		t.now = t.now.enter(full, s.parse())
		t.same = t.same && old != nil && old.equal(s)
	} else {
		t.same = t.same && old == nil
	}
	if len(t.held) > 0 {
		held := make([]view, len(t.held))
		for i, v := range t.held {
			held[i] = v.enter(full, v.rules.added[full])
		}
		t.held = held
	}
}

// readIgnore reads the .gitignore in d. A link, as git has it, says nothing.
func readIgnore(d dir) ([]byte, error) {
	f, err := d.open(ignoreName)
	if errors.Is(err, errKind) || missing(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.close()
	return io.ReadAll(io.LimitReader(f, maxRulesFile))
}
