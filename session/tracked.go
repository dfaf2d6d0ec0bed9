package session

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/oino-dev/oinod/checkpoints"
	"github.com/oino-dev/oinod/checkpoints/workspace"
)

// A tracked session sees its workspace at the begin and the end of each turn,
// and before a rewind: a capture (package workspace). What changed between the
// two of a turn, and no other session has claimed, is the turn's, whoever made
// it; what changed between turns is outside. Both become intervals of the
// session's own log, so that a rewind needs no capture of then.
//
// A tool of ours still opens an interval before it changes a path, with what
// the path was at the turn's begin: after a crash that is what there is. The
// turn's end replaces these by what the captures tell.

// captureLimit is how long a turn waits for its capture. A turn that is not
// seen is better than one that does not begin.
const captureLimit = 120 * time.Second

// slowCapture is from when on a capture tells its progress.
const slowCapture = time.Second

// Coverage says how much of a tracked workspace is seen.
type Coverage struct {
	Complete bool
	Reason   string // why not: budget, home, root, excluded, unreadable
}

// firstLook is the capture that runs from the session's making on.
type firstLook struct {
	work sync.WaitGroup

	mu       sync.Mutex // guards what follows
	stop     context.CancelFunc
	done     chan struct{} // closed when it has ended; nil if there is none
	coverage *Coverage     // of the newest capture
}

// sight is one capture, or why there is none.
type sight struct {
	workspace.Capture
	err error
}

// track makes the session a tracked one, and in the background takes the first
// look, which is the long one.
func (s *Session) track(background bool) error {
	store, err := s.reg.tracking(true)
	if err != nil {
		return err
	}
	w, err := store.Open(s.id, append([]string{s.cwd}, s.state.dirs...))
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.tracker = w
	s.mu.Unlock()
	if background {
		s.first.begin(w, s.progress())
	}
	return nil
}

// begin takes a look in the background, which the one before gives way to.
func (f *firstLook) begin(w *workspace.Workspace, progress func(done, total int)) {
	f.end()
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	f.mu.Lock()
	f.stop, f.done, f.coverage = stop, done, nil
	f.mu.Unlock()
	f.work.Go(func() {
		defer close(done)
		c, err := w.Capture(ctx, workspace.CaptureOptions{Progress: progress})
		if err == nil {
			f.note(c.Coverage)
		}
		// What went wrong is met again, and told, when a turn begins.
	})
}

func (f *firstLook) note(c workspace.Coverage) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.coverage = &Coverage{Complete: c.Complete, Reason: c.Reason}
}

// end ends the look that runs in the background.
func (f *firstLook) end() {
	f.mu.Lock()
	stop := f.stop
	f.mu.Unlock()
	if stop != nil {
		stop()
		f.work.Wait()
	}
}

// Coverage says how much of the workspace is seen, waiting for the first look
// until ctx is done; nil where that is not known (yet), or nothing is tracked.
func (s *Session) Coverage(ctx context.Context) *Coverage {
	if s.watcher() == nil {
		return nil
	}
	s.first.mu.Lock()
	done := s.first.done
	s.first.mu.Unlock()
	if done != nil {
		select {
		case <-done:
		case <-ctx.Done():
		}
	}
	s.first.mu.Lock()
	defer s.first.mu.Unlock()
	return s.first.coverage
}

// progress tells how far a capture is that takes its time.
func (s *Session) progress() func(done, total int) {
	start := time.Now()
	return func(done, total int) {
		if time.Since(start) >= slowCapture {
			s.emit("progress", map[string]any{"done": done, "total": total})
		}
	}
}

// look captures the workspace. Its error is ctx's alone: what else goes wrong
// is in the sight, and the turn is not covered.
func (s *Session) look(ctx context.Context, begin, end bool) (sight, error) {
	var always []string
	for path, ivs := range s.state.paths {
		if slices.ContainsFunc(ivs, (*interval).touched) {
			always = append(always, path)
		}
	}
	limited, cancel := context.WithTimeout(ctx, captureLimit)
	defer cancel()
	c, err := s.tracker.Capture(limited, workspace.CaptureOptions{Begin: begin, End: end, Always: always, Progress: s.progress()})
	if err != nil && ctx.Err() != nil {
		return sight{}, ctx.Err()
	}
	if err != nil {
		s.emit("checkpoint_failed", map[string]any{"error": err.Error()})
		return sight{err: err}, nil
	}
	s.first.note(c.Coverage)
	return sight{Capture: c}, nil
}

// turnOver are the records that end the open turn and, in a tracked session,
// begin the one of the user entry: both with one capture.
func (s *Session) turnOver(ctx context.Context, entry string) (before []any, seen *seenRecord, err error) {
	t := s.state.open
	if s.tracker == nil {
		if t != nil {
			before, err = s.ending(ctx, t, "entry", true, false)
		}
		if err == nil {
			err = s.tellTurn(ctx, true)
		}
		return before, nil, err
	}
	now, err := s.look(ctx, true, t != nil)
	if err != nil {
		return nil, nil, err
	}
	s.hearOthers(ctx)
	if t != nil {
		before, err = s.seal(ctx, t, now, "entry", false)
	} else {
		before, err = s.outsideSince(ctx, now)
	}
	if err != nil {
		return nil, nil, err
	}
	seen = &seenRecord{Type: "seen", Turn: entry, Mark: now.Mark, Unseen: now.unseen(s)}
	if seen.Rules, err = s.rulesOf(ctx, now.Mark); err != nil {
		return nil, nil, err
	}
	switch {
	case now.err != nil:
		seen.Mark, seen.Unseen = nil, seen.Unseen[1:]
		seen.Blind, seen.Root, seen.Error = checkpoints.Unreadable, s.cwd, now.err.Error()
	case !now.Coverage.Complete:
		u := notWhole(now.Coverage)
		seen.Blind, seen.Root, seen.Error = u.Reason, u.Path, u.Error
	}
	seen.Dark = s.dark(now)
	return before, seen, nil
}

// outsideSince are the changes between the newest capture that the log knows
// of and now: no turn was open.
func (s *Session) outsideSince(ctx context.Context, now sight) ([]any, error) {
	if now.err != nil || s.state.mark == nil {
		return nil, nil
	}
	outside, err := s.othersSince(ctx, s.state.last, s.state.mark, now.Mark)
	if errors.Is(err, workspace.ErrGone) {
		return nil, nil // nothing can be told
	}
	if err != nil || len(outside) == 0 {
		return nil, err
	}
	records := []any{&outsideRecord{Type: "outside", Mark: now.Mark, Intervals: outside}}
	number(records, s.state.nextInterval())
	return records, nil
}

// othersSince are the changes between two marks that this session has not
// claimed. What tools opened in turn t, where that could not be seen, they tell.
func (s *Session) othersSince(ctx context.Context, t *turn, from, to workspace.Mark) ([]intervalRecord, error) {
	changed, err := s.tracker.Changes(ctx, from, to)
	if err != nil {
		return nil, err
	}
	var all []intervalRecord
	d := newDivision(changed)
	for _, c := range d.changed {
		if t != nil && t.newest[c.Path] != nil && t.blindFor(c.Path) {
			continue
		}
		for _, l := range c.Links {
			if l.Owner != s.id { // our own is a rewind's or a redo's
				all = append(all, d.interval(c.Path, l))
			}
		}
	}
	return all, nil
}

// seal are the records that end turn t with a capture: its intervals as the
// captures tell them, and what others did meanwhile. Paths that the captures do
// not cover keep the intervals that tools have opened.
func (s *Session) seal(ctx context.Context, t *turn, now sight, why string, open bool) ([]any, error) {
	end := &endRecord{Type: "end", Turn: t.entry.id, Why: why, Open: open, Mark: now.Mark, Unseen: now.unseen(s)}
	var changed []workspace.Changed
	known := now.err == nil && t.mark != nil
	if known {
		var err error
		if changed, err = s.tracker.Changes(ctx, t.mark, now.Mark); errors.Is(err, workspace.ErrGone) {
			known, end.Dark = false, true
			end.Unseen = append(end.Unseen, Uncovered{Path: s.cwd, Reason: checkpoints.Unreadable, Error: "what the workspace was at the turn's begin is lost"})
		} else if err != nil {
			return nil, err
		}
	}
	if !known {
		if now.err == nil && t.blind == nil {
			end.Unseen = append(end.Unseen, Uncovered{Path: s.cwd, Reason: checkpoints.Unreadable, Error: "what the workspace was when the turn went on is not known"})
		}
		afters, rest, err := s.fixAfters(t, nil)
		if err != nil {
			return nil, err
		}
		end.Afters = afters
		outside, err := s.unseenBy(ctx, t, now)
		if err != nil {
			return nil, err
		}
		rest = append(rest, outside...)
		number(rest, s.state.nextInterval())
		return append(rest, end), nil
	}
	d := newDivision(changed)
	skip, err := s.replaced(ctx, t, now, d)
	if err != nil {
		return nil, err
	}
	for _, iv := range t.intervals[t.sealed:] {
		if skip[iv.n] && !iv.out {
			end.Drop = append(end.Drop, iv.n)
		}
	}
	afters, records, err := s.fixAfters(t, skip)
	if err != nil {
		return nil, err
	}
	end.Afters = afters
	told := d.ofTurn(t, s.id, s.reg.aliveOnce())
	if e := s.eviction(t); e != nil {
		if i := slices.IndexFunc(told, func(r any) bool { _, ok := r.(*beforeRecord); return ok }); i >= 0 {
			told = slices.Insert(told, i+1, any(e))
		}
	}
	records = append(records, told...)
	outside, err := s.unseenBy(ctx, t, now)
	if err != nil {
		return nil, err
	}
	records = append(records, outside...)
	number(records, s.state.nextInterval())
	return append(records, end), s.syncBlobs()
}

// replaced are the intervals of which the captures know better than a look
// would: those that tools have opened of paths that both captures cover, and
// those that an end before has fixed.
func (s *Session) replaced(ctx context.Context, t *turn, now sight, d *division) (map[int]bool, error) {
	var paths []string
	var open []*interval
	replaced := map[int]bool{}
	for i, iv := range t.intervals {
		switch {
		case iv.out:
		case i >= t.sealed && d.has[iv.path]:
			replaced[iv.n] = true
		default:
			paths, open = append(paths, iv.path), append(open, iv)
		}
	}
	if len(paths) == 0 {
		return replaced, nil
	}
	was, err := s.tracker.States(ctx, t.mark, paths)
	if err != nil {
		return nil, err
	}
	is, err := s.tracker.States(ctx, now.Mark, paths)
	if err != nil {
		return nil, err
	}
	sealed := map[*interval]bool{} // of before the session was closed and opened again
	for _, iv := range t.intervals[:t.sealed] {
		sealed[iv] = true
	}
	for i, iv := range open {
		switch {
		case sealed[iv]: // its after stands
			replaced[iv.n] = !neverSeen(was[i])
		case was[i].Kind != checkpoints.Uncovered && was[i].Same(is[i]):
			replaced[iv.n] = true
		}
	}
	return replaced, nil
}

// sharers are the other sessions that may have made an unclaimed change: a turn
// of theirs was open at the time.
func sharers(l workspace.Link, alive func(id string) bool) []string {
	var all []string
	for _, o := range l.Shared {
		if !o.Open || alive(o.Session) {
			all = append(all, o.Session)
		}
	}
	return all
}

// captureBefore is what a path was before the turn changed it: what the turn's
// first capture saw, where it covers the path, else what is there now.
func (s *Session) captureBefore(t *turn, path string) (checkpoints.Captured, error) {
	seen := map[string]checkpoints.Captured{}
	if s.seenBefore(t, []string{path}, seen) == nil {
		return seen[path], nil
	}
	return s.ws.Capture(path)
}

// seenBefore puts what the turn's first capture saw of paths into seen, and
// returns the others.
func (s *Session) seenBefore(t *turn, paths []string, seen map[string]checkpoints.Captured) (others []string) {
	if s.tracker == nil || t.mark == nil {
		return paths
	}
	was, err := s.tracker.States(context.Background(), t.mark, paths)
	if err != nil {
		return paths
	}
	for i, path := range paths {
		if was[i].Kind == checkpoints.Uncovered {
			others = append(others, path)
			continue
		}
		seen[path] = checkpoints.Captured{State: was[i], Parents: s.ws.Parents(path)}
	}
	return others
}

// upToNow are the records that bring the log up to now, for a rewind: the end
// of the open turn, or what changed outside since the last one; and the span
// that the rewind is about.
func (s *Session) upToNow(ctx context.Context, p RewindParams) ([]any, span, error) {
	records, sp, err := s.sinceLast(ctx, p)
	if err != nil || s.tracker == nil {
		return records, sp, err
	}
	known, err := s.recognize(records, sp, p.Paths)
	if err == nil && known != nil {
		records = append(records, known)
	}
	return records, sp, err
}

// sinceLast is upToNow without what a rewind alone needs to know.
func (s *Session) sinceLast(ctx context.Context, p RewindParams) ([]any, span, error) {
	sp := span{order: s.state.targetOrder(p.EntryID), all: p.ScopeAll}
	if t := s.state.open; t != nil {
		records, err := s.ending(ctx, t, "rewind", !p.DryRun, false)
		return records, sp, err
	}
	if s.tracker == nil {
		return nil, sp, nil
	}
	now, err := s.look(ctx, false, false)
	if err != nil {
		return nil, sp, err
	}
	records, err := s.outsideSince(ctx, now)
	return records, sp, err
}

// letGo tells the tracker that captures before the newest that the log knows
// of are not needed any more. A failure keeps them longer.
func (s *Session) letGo(ctx context.Context) {
	if s.tracker != nil && s.state.mark != nil {
		_ = s.tracker.Release(context.WithoutCancel(ctx), s.state.mark)
	}
}

// maxOutside is how many outside changes a rewind names.
const maxOutside = 200

func (r *RewindResult) tellOutside(all []OutsideChange, p RewindParams) {
	if p.ScopeAll {
		return
	}
	if n := len(all) - maxOutside; n > 0 {
		all, r.OutsideMore = all[:maxOutside], n
	}
	r.Outside = all
}
