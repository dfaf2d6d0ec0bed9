package disktest

import (
	"errors"
	"io/fs"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/oino-dev/oinod/checkpoints/disk"
)

// ErrPowerCut is what every operation says once the power is cut.
var ErrPowerCut = errors.New("the power is cut")

// ErrSpecial is what opening a FIFO, a socket or a device says.
var ErrSpecial = errors.New("opened what is neither a file nor a directory")

// Op is one operation on the disk.
type Op struct {
	Kind  string // openfile, create, read, write, truncate, chmod, sync, syncdir, rename …
	Name  string // in its root; for open files the name they were opened with
	Write bool   // it changes the disk or makes a change durable
}

// FS is a file system. It is safe for concurrent use.
type FS struct {
	// PageSize is what is written as a whole, as far as files are concerned:
	// 4096 unless a test makes it smaller, first of all.
	PageSize int

	mu      sync.Mutex
	top     *node
	pending []change // to directories, oldest first, not synced
	locks   map[string]*lock
	changed sync.Cond // a lock was let go
	clock   time.Time // of the last change: each takes a second

	ops, writes int
	failAt      int // 0: never
	failWith    error
	failIf      func(Op) error
	fired       bool
	cutAt       int // in writes; negative: never
}

// node is a file, a directory, a link or something special.
type node struct {
	mode    fs.FileMode // with its type
	mtime   time.Time
	data    []byte // of a file; the target of a link
	entries map[string]*node

	synced        []byte
	forgotten     []byte // the data at a failed Sync: what no later one will write
	syncedMode    fs.FileMode
	syncedEntries map[string]*node
}

// change is something that happens to names, as a whole or not at all.
type change []entry

// entry is what becomes of one name.
type entry struct {
	dir  *node
	name string
	to   *node // nil: removed
}

// New returns an empty file system.
func New() *FS {
	f := &FS{PageSize: 4096, top: newNode(fs.ModeDir | 0o755), locks: map[string]*lock{}, cutAt: -1, clock: time.Unix(1e9, 0)}
	f.changed.L = &f.mu
	return f
}

func newNode(mode fs.FileMode) *node {
	n := &node{mode: mode, syncedMode: mode}
	if mode.IsDir() {
		n.entries, n.syncedEntries = map[string]*node{}, map[string]*node{}
	}
	return n
}

// Root makes the directory dir (absolute), durably, and opens it.
func (f *FS) Root(dir string) disk.Root {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.top
	for _, name := range strings.FieldsFunc(dir, func(r rune) bool { return r == '/' }) {
		child := n.entries[name]
		if child == nil {
			child = newNode(fs.ModeDir | 0o755)
			n.entries[name], n.syncedEntries[name] = child, child
		}
		n = child
	}
	return &root{fs: f, dir: n, name: dir}
}

// OpenRoot opens the directory dir (absolute), which must be there.
func (f *FS) OpenRoot(dir string) (disk.Root, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, _, n, err := (&root{fs: f, dir: f.top}).walk(strings.TrimPrefix(dir, "/")+"/.", true)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	return &root{fs: f, dir: n, name: dir}, nil
}

// FailAt makes the n-th operation from now on (1 is the next) fail with err.
func (f *FS) FailAt(n int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fired, f.failAt, f.failWith = false, f.ops+n, err
}

// FailIf asks fail before each operation; nil goes on. It replaces the last one.
func (f *FS) FailIf(fail func(Op) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fired, f.failIf = false, fail
}

// Fired reports whether an operation has failed as FailAt or FailIf wanted.
func (f *FS) Fired() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fired
}

// CutAt cuts the power after k more operations that write (0: now).
func (f *FS) CutAt(k int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cutAt = f.writes + k
}

// Cut reports whether the power is cut.
func (f *FS) Cut() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.isCut()
}

func (f *FS) isCut() bool { return f.cutAt >= 0 && f.writes >= f.cutAt }

// begin counts an operation and says how it fails.
func (f *FS) begin(op Op) error {
	if f.isCut() {
		return ErrPowerCut
	}
	f.ops++
	if op.Write {
		f.writes++
		f.clock = f.clock.Add(time.Second)
	}
	if f.failAt == f.ops {
		f.fired = true
		return f.failWith
	}
	if f.failIf != nil {
		if err := f.failIf(op); err != nil {
			f.fired = true
			return err
		}
	}
	return nil
}

// set changes names, as one thing.
func (f *FS) set(c change) {
	for _, e := range c {
		if e.to == nil {
			delete(e.dir.entries, e.name)
		} else {
			e.dir.entries[e.name] = e.to
		}
		e.dir.mtime = f.clock
	}
	f.pending = append(f.pending, c)
}

// syncDir makes the changes to dir durable, and with them what else they change.
func (f *FS) syncDir(dir *node) {
	dir.syncedMode = dir.mode
	f.pending = slices.DeleteFunc(f.pending, func(c change) bool {
		touches := slices.ContainsFunc(c, func(e entry) bool { return e.dir == dir })
		if touches {
			c.apply(func(n *node) map[string]*node { return n.syncedEntries })
		}
		return touches
	})
}

func (c change) apply(entries func(*node) map[string]*node) {
	for _, e := range c {
		if e.to == nil {
			delete(entries(e.dir), e.name)
		} else {
			entries(e.dir)[e.name] = e.to
		}
	}
}

// Keep returns a function for AfterPowerCut that keeps percent of what was not
// synced, always the same for a seed.
func Keep(seed uint64, percent int) func() bool {
	r := rand.New(rand.NewPCG(seed, 0))
	return func() bool { return r.IntN(100) < percent }
}

// AfterPowerCut returns the file system that would be found after a power cut
// now. Nobody has a lock or an open file in it. keep is asked for each change
// that was not synced; nil keeps none.
func (f *FS) AfterPowerCut(keep func() bool) *FS {
	f.mu.Lock()
	defer f.mu.Unlock()
	if keep == nil {
		keep = func() bool { return false }
	}
	after := map[*node]map[string]*node{}
	entries := func(n *node) map[string]*node {
		if after[n] == nil {
			after[n] = maps.Clone(n.syncedEntries)
		}
		return after[n]
	}
	for _, c := range f.pending {
		if keep() {
			c.apply(entries)
		}
	}
	g := New()
	g.PageSize, g.clock = f.PageSize, f.clock
	clones := map[*node]*node{}
	var clone func(n *node) *node
	clone = func(n *node) *node {
		if c := clones[n]; c != nil {
			return c
		}
		c := newNode(n.syncedMode)
		clones[n] = c
		c.mtime = n.mtime
		if c.mode.IsDir() {
			// In a fixed order, so that keep's answers mean the same each time.
			children := entries(n)
			for _, name := range slices.Sorted(maps.Keys(children)) {
				c.entries[name] = clone(children[name])
			}
			c.syncedEntries = maps.Clone(c.entries)
			return c
		}
		c.data = mix(n.synced, n.data, f.PageSize, keep)
		c.synced = slices.Clone(c.data)
		return c
	}
	g.top = clone(f.top)
	return g
}

// sync makes the data durable, but for pages that a failed sync has forgotten
// and nobody has written since.
func (n *node) sync(pageSize int) {
	synced := slices.Clone(n.data)
	for start := 0; start < min(len(n.data), len(n.forgotten)); start += pageSize {
		end := min(start+pageSize, len(n.data))
		if end <= len(n.forgotten) && slices.Equal(n.data[start:end], n.forgotten[start:end]) {
			clear(synced[start:end])
			if start < len(n.synced) {
				copy(synced[start:end], n.synced[start:])
			}
		}
	}
	n.synced, n.syncedMode = synced, n.mode
}

// failSync is a sync that fails: a real disk's pages count as written then,
// and the next sync does not try them again.
func (n *node) failSync() { n.forgotten = slices.Clone(n.data) }

// cut is a truncation to size; the page it cuts through is written again.
func (n *node) cut(size int64, pageSize int) {
	n.forgotten = n.forgotten[:min(int64(len(n.forgotten)), size/int64(pageSize)*int64(pageSize))]
}

// mix returns old with the size and pages of new that are kept.
func mix(old, new []byte, pageSize int, keep func() bool) []byte {
	size := len(old)
	if len(new) != len(old) && keep() {
		size = len(new)
	}
	mixed := make([]byte, size)
	copy(mixed, old)
	for start := 0; start < min(size, len(new)); start += pageSize {
		end := min(start+pageSize, size, len(new))
		if !slices.Equal(mixed[start:end], new[start:end]) && keep() {
			copy(mixed[start:end], new[start:end])
		}
	}
	return mixed
}

// Kill lets every lock go, as when the processes that hold them are killed.
// What they have written is still there, synced or not.
func (f *FS) Kill() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.locks = map[string]*lock{}
	f.changed.Broadcast()
}

// lock is who has locked a name.
type lock struct {
	shared int
	alone  bool
}

// Lock locks name as a file lock would: by many together or by one alone.
func (r *root) Lock(name string, shared, wait bool) (unlock func() error, ok bool, err error) {
	f := r.fs
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.begin(Op{Kind: "lock", Name: name}); err != nil {
		return nil, false, err
	}
	key := r.name + "/" + name
	l := f.locks[key]
	if l == nil {
		l = &lock{}
		f.locks[key] = l
	}
	for l.alone || !shared && l.shared > 0 {
		if !wait {
			return nil, false, nil
		}
		f.changed.Wait()
	}
	if shared {
		l.shared++
	} else {
		l.alone = true
	}
	return sync.OnceValue(func() error {
		f.mu.Lock()
		defer f.mu.Unlock()
		if shared {
			l.shared--
		} else {
			l.alone = false
		}
		f.changed.Broadcast()
		return nil
	}), true, nil
}
