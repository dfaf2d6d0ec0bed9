package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/oino-dev/oinod/checkpoints/blobs"
	"github.com/oino-dev/oinod/checkpoints/disk"
	"github.com/oino-dev/oinod/checkpoints/journal"
	"github.com/oino-dev/oinod/checkpoints/workspace"
)

// Collecting is mark and sweep over every log of the agent directory.
//
// # Why nothing that is needed goes
//
// A process holds the blob store from its first look-up of a content until the
// log that names it is synced; blobs.Collect sweeps while nobody holds. Reading
// every log takes long and happens before, without a lock; so between this mark
// and the sweep, logs grow and new ones come, and what they name may be a
// content that was there already and dead when it was marked. Therefore the
// mark is completed when Collect asks its first question, which it does when
// nobody holds and nobody can until it has swept:
//
//   - A log only grows. Of one that is as it was up to where it was marked, the
//     lines behind that are read, and every content that one of them names is
//     marked. That is enough: whatever a record brings back (a redo, a fork, a
//     state against a base) was marked with the state before it, or is named by
//     the record itself.
//   - One that is new, is shorter, or is another file by now is marked whole.
//   - Names of logs change under a hold too (pack.go, child.go), so the list of
//     them is complete.
//
// A log that cannot be read whole may name anything: then nothing is collected
// at all, and the error says which it is. The same goes for one of a newer
// version. What has the name of a log and is none (see judgeKind) is passed over
// and left alone.
//
// What is marked and not needed any more, because the log went on meanwhile, is
// left for the next time.

// Roots names contents besides those of the sessions that must stay: it is
// asked once, when nobody holds the blob store.
type Roots func(ctx context.Context, mark func(blobs.Digest)) error

// CollectParams is what to collect.
type CollectParams struct {
	// OlderThan removes the sessions without activity for so long; 0: none.
	// One that is open in another process stays.
	OlderThan time.Duration
	// PackAfter compresses the logs that nobody has written to for so long; 0: none.
	PackAfter time.Duration
	DryRun    bool
	Roots     []Roots
	// Progress, if not nil, is told how many of the logs have been read. It is
	// called by one goroutine at a time.
	Progress func(done, total int)
}

// Collected is what Collect freed, or with DryRun would have.
type Collected struct {
	Removed []Info // sessions
	Kept    []Info // sessions that are old enough, and open elsewhere
	Trees   int    // captures of workspaces that no session refers to
	Blobs   int
	Bytes   int64 // of contents
	Packed  Packed
}

// busy is how long Collect waits for a moment in which no session is at work.
const busy = 15 * time.Second

// Collect removes old sessions, if it is asked to, and every content that no
// session needs.
func (r *Registry) Collect(ctx context.Context, p CollectParams) (Collected, error) {
	var done Collected
	root, store, err := r.agentDir(false)
	if errors.Is(err, fs.ErrNotExist) {
		return done, nil
	}
	if err != nil {
		return done, storageError("the agent directory "+r.dir+" cannot be read", err)
	}
	c := &collection{
		root: root, progress: p.Progress, live: map[blobs.Digest]struct{}{}, marked: map[string]markedLog{},
	}
	if p.OlderThan > 0 {
		c.before = r.now().Add(-p.OlderThan)
	}
	if err := c.markAll(ctx); err != nil {
		return done, err
	}
	for _, old := range c.old {
		if p.DryRun {
			done.Removed = append(done.Removed, old)
			continue
		}
		err := r.Delete(ctx, old.SessionID)
		e, ok := errors.AsType[*Error](err)
		switch {
		case err == nil:
			done.Removed = append(done.Removed, old)
		case ok && e.Kind == Locked:
			done.Kept = append(done.Kept, old) // and marked with the logs that are new
		case ok && e.Kind == NotFound:
		default:
			return done, err
		}
	}
	if !p.DryRun {
		c.old = nil
		if err := sweepLeftovers(root, r.now()); err != nil {
			return done, storageError("what crashes left cannot be removed", err)
		}
	}
	if c.pruned, err = c.prune(ctx, p.DryRun); err != nil {
		return done, storageError("the captures of workspaces that no session refers to cannot be removed", err)
	}
	if done.Trees = len(c.pruned); !p.DryRun {
		c.pruned = nil // what has one of these keys by now was made anew, and is needed
	}
	freed, err := c.sweep(ctx, store, p)
	if err != nil {
		return done, err
	}
	done.Blobs, done.Bytes = freed.Blobs, freed.Bytes
	if p.PackAfter > 0 && !p.DryRun {
		done.Packed, err = r.Pack(ctx, p.PackAfter)
	}
	return done, err
}

// collection is one Collect.
type collection struct {
	root     disk.Root
	before   time.Time // sessions without activity since are old; zero: none is
	progress func(done, total int)

	mu     sync.Mutex
	pruned []string // with a dry run: keys of workspaces whose captures would be gone

	live   map[blobs.Digest]struct{}
	marked map[string]markedLog // by the name of the log's file without its form
	old    []Info
	bad    []error
}

// markedLog is how far a log is marked.
type markedLog struct {
	info     fs.FileInfo
	packed   bool
	end      int64 // of its last whole line
	unclosed bool
	tracks   []string // directories
}

// logFile is a log, published or staged, to be marked.
type logFile struct {
	place  place
	staged string // the file's name, of a fork that is not published
}

func (f logFile) key() string { return path.Join(f.place.dir, f.place.name) }

func (f logFile) info(root disk.Root) (fs.FileInfo, error) {
	if f.staged != "" {
		return root.Lstat(f.staged)
	}
	info, _, err := f.place.stat(root)
	return info, err
}

func (f logFile) read(root disk.Root) (*stored, error) {
	if f.staged != "" {
		return readStaged(root, f)
	}
	return f.place.read(root, nil)
}

// logFiles lists all logs there are.
func logFiles(root disk.Root) ([]logFile, error) {
	dirs, err := workspaceDirs(root)
	if err != nil {
		return nil, err
	}
	var all []logFile
	for _, dir := range dirs {
		places, err := logsIn(root, dir)
		if err != nil {
			return nil, err
		}
		for _, p := range places {
			all = append(all, logFile{place: p})
		}
		files, err := disk.ReadDir(root, dir)
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			if name, _, ok := strings.Cut(f.Name(), "."); ok && strings.HasSuffix(f.Name(), stagedSuffix) {
				all = append(all, logFile{place{dir, name}, path.Join(dir, f.Name())})
			}
		}
	}
	return all, nil
}

// markAll reads every log.
func (c *collection) markAll(ctx context.Context) error {
	files, err := logFiles(c.root)
	if err != nil {
		return storageError("the sessions cannot be listed", err)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	done := 0
	for _, f := range files {
		group.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			c.markLog(f)
			c.mu.Lock()
			defer c.mu.Unlock()
			if done++; c.progress != nil {
				c.progress(done, len(files))
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return c.refusal()
}

// refusal is why nothing can be collected, or nil.
func (c *collection) refusal() error {
	if len(c.bad) == 0 {
		return nil
	}
	kind := LogDamaged
	var texts []string
	for _, err := range c.bad {
		if e, ok := errors.AsType[*Error](err); ok && e.Kind == NewerVersion {
			kind = NewerVersion
		}
		texts = append(texts, err.Error())
	}
	more := ""
	if n := len(texts); n > 5 {
		texts, more = texts[:5], fmt.Sprintf("; and %d more", n-5)
	}
	return &Error{Kind: kind, Msg: "nothing was collected, because not every log can be read, and what cannot be read may need anything: " + strings.Join(texts, "; ") + more}
}

// markLog marks one log whole.
func (c *collection) markLog(f logFile) {
	m := markedLog{}
	var err error
	var s *stored
	if f.staged != "" {
		m.info, err = c.root.Lstat(f.staged)
	} else {
		m.info, m.packed, err = f.place.stat(c.root)
	}
	if err == nil {
		s, err = f.read(c.root)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if errors.Is(err, fs.ErrNotExist) {
		return // deleted; a fork that was published is listed again
	}
	if noSession(err) {
		return // it names no content; Check names it
	}
	if err == nil && len(s.state.damage) > 0 {
		d := s.state.damage[0]
		err = fmt.Errorf("line %d of the log of session %s: %s", d.line, f.place.id(), d.message())
	}
	if err != nil {
		c.bad = append(c.bad, err)
		return
	}
	if info := s.state.info(); f.staged == "" && !c.before.IsZero() &&
		time.UnixMilli(info.UpdatedAt).Before(c.before) && m.info.ModTime().Before(c.before) {
		info.Size = m.info.Size()
		c.old = append(c.old, info)
		return
	}
	s.state.roots(c.mark)
	m.end, m.unclosed, m.tracks = s.tail.End, s.tail.Unclosed, s.state.tracks()
	c.marked[f.key()] = m
}

// mark is a marker. The caller holds c.mu, or is alone.
func (c *collection) mark(d blobs.Digest, _ bool) { c.live[d] = struct{}{} }

// readStaged reads the log of a fork that is not published.
func readStaged(root disk.Root, f logFile) (*stored, error) {
	file, err := root.OpenFile(f.staged, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	r := newLogReader(file)
	defer r.Close()
	return readFrom(r, f.place, nil)
}

// sweep lets the blob store drop what is not marked, once the mark is complete.
func (c *collection) sweep(ctx context.Context, store *blobs.Store, p CollectParams) (blobs.Collected, error) {
	asked := false
	var incomplete error
	live := func(d blobs.Digest) bool {
		if !asked {
			asked = true
			incomplete = c.complete(ctx, p)
		}
		if incomplete != nil {
			return true
		}
		_, ok := c.live[d]
		return ok
	}
	deadline := time.Now().Add(busy)
	pause := time.NewTicker(20 * time.Millisecond)
	defer pause.Stop()
	for {
		freed, err := store.Collect(live, p.DryRun)
		switch {
		case incomplete != nil:
			return blobs.Collected{}, incomplete
		case err == nil:
			return freed, nil
		case !errors.Is(err, blobs.ErrInUse):
			return blobs.Collected{}, storageError("contents could not be collected", err)
		case time.Now().After(deadline):
			return blobs.Collected{}, &Error{Kind: Locked, Msg: "no content was collected, because sessions were at work all the time; try again when they rest", Err: err}
		}
		select {
		case <-pause.C:
		case <-ctx.Done():
			return blobs.Collected{}, ctx.Err()
		}
	}
}

// complete marks what came since the logs were marked.
func (c *collection) complete(ctx context.Context, p CollectParams) error {
	if err := workspace.Live(c.root, c.pruned, func(d blobs.Digest) { c.mark(d, true) }); err != nil {
		return &Error{Kind: StorageFailed, Msg: "nothing was collected, because a tracked workspace's captures cannot be read", Err: err}
	}
	for _, roots := range p.Roots {
		if err := roots(ctx, func(d blobs.Digest) { c.mark(d, true) }); err != nil {
			return &Error{Kind: StorageFailed, Msg: "nothing was collected, because not everything that needs contents could be asked", Err: err}
		}
	}
	files, err := logFiles(c.root)
	if err != nil {
		return storageError("nothing was collected, because the sessions cannot be listed", err)
	}
	leaving := map[string]bool{} // of a dry run: old sessions, counted as if they were gone
	for _, i := range c.old {
		leaving[i.SessionID] = true
	}
	c.before = time.Time{}
	for _, f := range files {
		if err := ctx.Err(); err != nil {
			return err
		}
		if leaving[f.place.id()] {
			continue
		}
		if !c.markTail(f) {
			c.markLog(f)
		}
	}
	return c.refusal()
}

// markTail marks what was added to a log since it was marked, and reports
// whether that could be done.
func (c *collection) markTail(f logFile) bool {
	was, ok := c.marked[f.key()]
	if !ok || was.unclosed || f.staged != "" {
		return false
	}
	now, packed, err := f.place.stat(c.root)
	if err != nil || packed != was.packed || !os.SameFile(now, was.info) || now.Size() < was.end {
		return false
	}
	if packed || now.Size() == was.end {
		return true
	}
	file, err := c.root.OpenFile(f.place.log(), os.O_RDONLY, 0)
	if err != nil {
		return false
	}
	defer file.Close()
	if _, err := file.Seek(was.end, io.SeekStart); err != nil {
		return false
	}
	_, err = journal.Scan(file, maxLine, func(l journal.Line) error {
		if l.Err != nil {
			return l.Err
		}
		rec, err := decodeRecord(l.Object)
		if err == nil {
			marker(c.mark).record(rec)
		}
		return err
	})
	return err == nil
}
