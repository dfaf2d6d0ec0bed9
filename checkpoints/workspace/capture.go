package workspace

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/oino-dev/oinod/checkpoints"
)

// CaptureOptions is what a session wants of a capture.
type CaptureOptions struct {
	// End and Begin say that a turn of the session ends here, and that one
	// begins: what others' turns overlap follows from them.
	Begin, End bool
	// Always are paths that are looked at whatever the rules say: those that a
	// turn of the session has touched.
	Always []string
	// Progress is told now and then, by one goroutine at a time, how many
	// files are done, of how many (0: not known yet).
	Progress func(done, total int)
}

// maxUncovered is how many uncovered paths a capture names.
const maxUncovered = 1000

// Uncovered is a path whose state could not be kept.
type Uncovered struct {
	Path   string
	Reason checkpoints.Reason
	Err    string // of an unreadable one: what the disk said
}

// Coverage says whether a tree is tracked, and why not.
type Coverage struct {
	Complete bool
	Reason   string // budget, home, root, excluded, unreadable
	Root     string // the root that it is about
}

// Capture is what one capture found.
type Capture struct {
	Mark     Mark
	Coverage Coverage
	// Uncovered names paths, at most 1,000; More counts those beyond.
	Uncovered []Uncovered
	More      int
	// Lost says why earlier captures are gone, "" if they are not: a turn that
	// began at one cannot say what it changed.
	Lost string
}

// Mark is a moment of a workspace: a capture of each of its roots. It is what
// a turn notes in its log.
type Mark []RootMark

// RootMark is a capture of one root. Seq 0: the root was not captured.
type RootMark struct {
	Root    string `json:"root"`
	Journal string `json:"journal,omitempty"`
	Seq     uint64 `json:"seq"`
}

// of returns the mark of a root.
func (m Mark) of(root string) RootMark {
	for _, r := range m {
		if r.Root == root {
			return r
		}
	}
	return RootMark{Root: root}
}

// Saw reports whether the root was captured.
func (m Mark) Saw(root string) bool { return m.of(root).Seq > 0 }

// ErrGone is a mark whose capture is no longer held, or was lost.
var ErrGone = errors.New("the capture is no longer there")

// Capture looks at the whole workspace. What has changed since the last
// capture is durable when it returns: contents, then the journal. It holds the
// mark for the session until Release. An error is of oinod's own storage or the
// context; then there is no capture, and the next one sees all that this one
// would have. It never writes in the workspace.
func (w *Workspace) Capture(ctx context.Context, o CaptureOptions) (Capture, error) {
	release, err := w.store.blobs.Hold()
	if err != nil {
		return Capture{}, err
	}
	defer release()
	c := Capture{Coverage: Coverage{Complete: true}}
	for _, r := range w.roots {
		if err := w.captureRoot(ctx, r, o, &c); err != nil {
			return Capture{}, err
		}
	}
	if o.Begin || o.End {
		if err := w.tellOverlapping(ctx, o.Begin); err != nil {
			return Capture{}, err
		}
	}
	if n := len(c.Uncovered) - maxUncovered; n > 0 {
		c.Uncovered, c.More = c.Uncovered[:maxUncovered], n
	}
	return c, nil
}

func (w *Workspace) captureRoot(ctx context.Context, r *trackedRoot, o CaptureOptions, c *Capture) error {
	mark := RootMark{Root: r.spelled}
	incomplete := func(reason string) {
		if c.Coverage.Complete {
			c.Coverage = Coverage{Reason: reason, Root: r.spelled}
		}
	}
	defer func() { c.Mark = append(c.Mark, mark) }()
	if reason := w.store.refuses(r.tree.root); reason != "" {
		incomplete(reason)
		return nil
	}
	unlock, err := r.tree.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	always := w.alwaysIn(r, o.Always)
	got, err := r.tree.take(ctx, w.session, o, always)
	var unseen *rootError
	switch {
	case errors.Is(err, errOver):
		incomplete(string(checkpoints.Budget))
	case errors.As(err, &unseen):
		incomplete(string(checkpoints.Unreadable))
		c.Uncovered = append(c.Uncovered, Uncovered{Path: r.spelled, Reason: checkpoints.Unreadable, Err: cause(unseen.error).Error()})
	case err != nil:
		return err
	default:
		last := r.tree.last()
		mark.Journal, mark.Seq = r.tree.head.ID, last.Seq
		if last.Over {
			incomplete(string(checkpoints.Budget))
		}
		_ = r.tree.compact() // only a longer journal, if it fails
	}
	slices.SortFunc(got, func(a, b Uncovered) int { return strings.Compare(a.Path, b.Path) })
	for _, u := range got {
		u.Path = r.path(escape(u.Path))
		c.Uncovered = append(c.Uncovered, u)
	}
	if r.tree.lost != "" {
		c.Lost, r.tree.lost = r.tree.lost, ""
	}
	return nil
}

// alwaysIn are the paths that lie in r, as the tree names them.
func (w *Workspace) alwaysIn(r *trackedRoot, paths []string) []string {
	var in []string
	for _, p := range paths {
		if root, rel := w.locate(p); root == r && rel != "" {
			in = append(in, rel)
		}
	}
	return in
}

// refuses says why a root is not tracked, "" if it is.
func (s *Store) refuses(root string) string {
	switch {
	case filepath.Dir(root) == root:
		return "root"
	case s.home != "" && within(root, s.home): // or one that holds all homes
		return "home"
	case s.agentDir != "" && within(s.agentDir, root):
		return string(checkpoints.Excluded)
	}
	for name := range strings.SplitSeq(filepath.ToSlash(root), "/") {
		if isGit(name) {
			return string(checkpoints.Excluded)
		}
	}
	return ""
}

// rootError is a root that cannot be seen: nothing is concluded from it.
type rootError struct{ error }

// take captures the tree for a session. The caller has its lock.
func (t *tree) take(ctx context.Context, session string, o CaptureOptions, always []string) ([]Uncovered, error) {
	s := t.store
	root, err := s.machine.openRoot(t.root)
	if err != nil {
		return nil, &rootError{err}
	}
	defer root.close()
	w := t.walker(ctx, root, session)
	if o.Progress != nil {
		known := t.table.count
		w.tell = throttle(func(done int) { o.Progress(done, known) })
	}
	// Whatever becomes of this walk, no later one takes what it has seen for
	// what the last good one saw.
	defer func(walk uint32) { t.walk = walk }(t.walk + 1)
	t.walkRules = nil
	if err := w.run(); err != nil {
		if errors.Is(err, errOver) || ctx.Err() != nil {
			return nil, err
		}
		return nil, &rootError{err}
	}
	f := &w.found
	over := false
	if files, bytes := w.files.Load(), w.bytes.Load(); files > int64(s.limits.MaxFiles) || bytes > s.limits.MaxBytes {
		over = true
		for _, d := range f.reads {
			for _, r := range d.files {
				if r.new && r.size <= s.limits.MaxKept {
					files--
					bytes -= r.size
				}
			}
		}
		f.reads = withinBudget(f.reads, int64(s.limits.MaxFiles)-files, s.limits.MaxBytes-bytes, s.limits.MaxKept)
		f.uncovered = append(f.uncovered, Uncovered{Reason: checkpoints.Budget})
	}
	r := reader{walker: w, blobs: s.blobs}
	if o.Progress != nil {
		r.tell = throttle2(o.Progress)
	}
	if err := r.run(f.reads); err != nil {
		return nil, err
	}
	f.add(&r.found)
	now := newRules(w.above.prefix, s.include, s.exclude, f.sources)
	extra, err := t.lookAlways(w, now, always, f)
	if err != nil {
		return nil, err
	}
	line := captureLine{
		Type: "capture", Seq: 1, At: s.now().UnixMilli(), Session: session, Begin: o.Begin, End: o.End,
		Rules: now.id, Extra: extra, Blind: f.blind, Over: over,
	}
	if last := t.last(); last != nil {
		line.Seq = last.Seq + 1
	} else if t.head.Base > 0 {
		line.Seq = t.head.Base + 1
	}
	for _, h := range w.held {
		line.Held = append(line.Held, h.id)
	}
	if err := t.commit(line, now, f.records); err != nil {
		return nil, err
	}
	t.walkRules, t.walkHeld = now, line.Held
	return f.uncovered, nil
}

// commit makes a capture durable, contents first, and folds it.
func (t *tree) commit(c captureLine, now *rules, records []record) error {
	sortRecords(records)
	if len(records) > 0 {
		if err := t.store.blobs.Sync(); err != nil {
			return err
		}
	}
	var lines [][]byte
	if t.rules[now.id] == nil {
		lines = append(lines, encodeLine(now.json()))
	}
	parts := partLines("part", eachOf(records))
	c.Parts = len(parts)
	return t.append(append(append(lines, parts...), encodeLine(c)), records)
}

// walker prepares a walk for a session.
func (t *tree) walker(ctx context.Context, root rootDir, session string) *walker {
	w := &walker{
		ctx: ctx, tree: t, root: root, limits: t.store.limits, start: t.store.now().UnixNano(),
		above: lookAbove(t.root), first: t.last() == nil, idle: len(t.turnsBefore(len(t.captures))) == 0,
	}
	if last := t.last(); last != nil {
		w.prev, w.since = t.rules[last.Rules], (last.At-slowestTick)*1e6
	}
	var ids []string
	for _, seq := range t.holds[session] {
		c := t.capture(seq)
		if c == nil || t.rules[c.Rules] == nil || slices.Contains(ids, c.Rules) {
			continue
		}
		ids = append(ids, c.Rules)
		w.held = append(w.held, t.rules[c.Rules])
	}
	w.last, w.same = t.walkRules, slices.Equal(ids, t.walkHeld)
	if agent := t.store.agentDir; agent != "" {
		if within(t.root, agent) {
			w.skip = relTo(t.root, agent)
		}
		w.skipID = identOfPath(agent)
	}
	return w
}

// realPath is where rel lies.
func (t *tree) realPath(rel string) string { return filepath.Join(t.root, filepath.FromSlash(rel)) }

// escape is a name as a message can hold it: bytes that are not UTF-8 as \xff.
func escape(path string) string {
	var b strings.Builder
	for i, c := range path {
		if c == '\ufffd' && path[i] != 0xef {
			fmt.Fprintf(&b, `\x%02x`, path[i])
			continue
		}
		b.WriteRune(c)
	}
	return b.String()
}
