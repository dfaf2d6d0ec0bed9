package session

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/oino-dev/oinod/checkpoints"
	"github.com/oino-dev/oinod/checkpoints/disk"
	"github.com/oino-dev/oinod/checkpoints/journal"
)

// openSession opens the session with the id for writing: its lock, its log, its
// workspace; then it finishes what the last writer may have left undone.
func (r *Registry) openSession(ctx context.Context, id string) (*Session, error) {
	root, p, err := r.find(id)
	if err != nil {
		return nil, err
	}
	lock, err := awaitLock(ctx, root, p, r.patience)
	if err != nil {
		return nil, err
	}
	s, err := r.openLocked(ctx, root, p)
	if err != nil {
		return nil, errors.Join(err, lock.Unlock())
	}
	s.lock = lock
	return s, nil
}

// awaitLock takes a session's lock, or says after some time who has it. Clients
// start a process for each prompt, and the one before may still be closing.
func awaitLock(ctx context.Context, root disk.Root, p place, patience time.Duration) (*journal.Lock, error) {
	over := time.NewTimer(patience)
	defer over.Stop()
	again := time.NewTicker(40 * time.Millisecond)
	defer again.Stop()
	for {
		lock, err := takeLock(root, p)
		if e, ok := errors.AsType[*Error](err); !ok || e.Kind != Locked {
			return lock, err
		}
		select {
		case <-again.C:
		case <-over.C:
			return nil, err
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (r *Registry) openLocked(ctx context.Context, root disk.Root, p place) (*Session, error) {
	h, err := readHeader(root, p)
	if err != nil {
		return nil, err
	}
	_, store, err := r.agentDir(false)
	if err != nil {
		return nil, storageError("the agent directory "+r.dir+" cannot be used", err)
	}
	if err := unpackLog(root, store, p); errors.Is(err, journal.ErrDamaged) {
		return nil, &Error{Kind: LogDamaged, Msg: "the compressed log of session " + p.id() + " is damaged; it can be shown and not continued", Err: err}
	} else if err != nil {
		return nil, storageError("the log of session "+p.id()+" cannot be unpacked", err)
	}
	s := r.session(h)
	s.place, s.blobs = p, store
	w, err := journal.OpenWriter(root, p.log(), maxLine, s.state.applyLine)
	if err != nil {
		return nil, storageError("the log of session "+s.id+" cannot be opened", err)
	}
	s.log = w
	if s.ws, err = r.workspace(s.cwd, s.state.dirs, store, true); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	s.asleep = true
	if err := s.awaken(ctx); err != nil && s.ws.Gone() == nil {
		if s.tracker != nil {
			err = errors.Join(err, s.tracker.Close())
		}
		return nil, errors.Join(err, s.ws.Close(), w.Close())
	}
	return s, nil
}

// awaken finishes what the last writer left, before anything is changed. It
// waits until the session's directories can be seen.
func (s *Session) awaken(ctx context.Context) error {
	if !s.asleep {
		return nil
	}
	if err := s.ws.Gone(); err != nil {
		return err
	}
	root, _, err := s.reg.agentDir(false)
	if err != nil {
		return storageError("the agent directory "+s.reg.dir+" cannot be used", err)
	}
	if s.tracking == Workspace && s.tracker == nil {
		if err := s.track(false); err != nil {
			return storageError("the workspace cannot be tracked", err)
		}
	}
	if err := s.resume(ctx, root); err != nil {
		return err
	}
	s.asleep = false
	return nil
}

// applyLine folds one line in. What is damaged, or does not fit, is noted and
// passed over: the session can still be shown.
func (st *state) applyLine(l journal.Line) error {
	err := l.Err
	if err == nil {
		var rec any
		if rec, err = skim(l.Object); err == nil {
			if _, ok := rec.(*rewoundRecord); !ok && st.pending != nil {
				// The log did not end in the middle of this rewind, so there is
				// nothing to complete, and what came of it is not known.
				st.noteDamage(l.Number, fmt.Errorf("before it, the outcome of rewind %s is missing", st.pending.ID))
			}
			err = st.apply(rec, l.Pos)
		}
	}
	if err != nil {
		st.noteDamage(l.Number, err)
	}
	return nil
}

// resume finishes what the last writer left: a rewind that was cut off, a fork
// that was not published, an open turn.
func (s *Session) resume(ctx context.Context, root disk.Root) error {
	release, err := s.blobs.Hold()
	if err != nil {
		return storageError("the blob store cannot be held", err)
	}
	defer release()
	if err := s.recover(ctx); err != nil {
		return err
	}
	if err := s.resumeChildren(root); err != nil {
		return err
	}
	if s.tracker != nil {
		return s.resumeTracked(ctx)
	}
	if err := s.resumeTurn(); err != nil {
		return err
	}
	s.remind(ctx, false)
	return nil
}

// resumeChildren publishes the staged forks that a finished rewind promised,
// and removes every other one of this session: it was never answered.
func (s *Session) resumeChildren(root disk.Root) error {
	files, err := disk.ReadDir(root, s.place.dir)
	if err != nil {
		return storageError("the sessions cannot be listed", err)
	}
	suffix := "." + s.id + stagedSuffix
	for _, f := range files {
		name, ok := strings.CutSuffix(f.Name(), suffix)
		if !ok {
			if strings.HasSuffix(f.Name(), suffix+".tmp") { // cut off while it was written
				if err := root.Remove(path.Join(s.place.dir, f.Name())); err != nil {
					return storageError("what a fork left that was cut off cannot be removed", err)
				}
			}
			continue
		}
		p := place{s.place.dir, name}
		if s.state.children[p.id()] {
			err = publishLog(root, p, s.id)
		} else {
			err = root.Remove(p.staged(s.id))
		}
		if err != nil {
			return storageError("the fork "+p.id()+" could not be finished", err)
		}
	}
	return nil
}

// publishLog gives a staged log its name.
func publishLog(root disk.Root, p place, parent string) error {
	if err := root.Rename(p.staged(parent), p.log()); err != nil {
		return err
	}
	return root.SyncDir(p.dir)
}

// sweep removes what a write that was cut off left.
func (s *Session) sweep(iv *interval) error {
	if iv.temp == "" || s.state.closed {
		return nil
	}
	var known []checkpoints.State
	for _, o := range s.state.paths[iv.path] {
		known = append(known, o.before, o.after)
	}
	kept, err := s.ws.Sweep(iv.path, iv.temp, iv.after, known)
	if err != nil {
		return storageError("a write that was cut off could not be cleaned up", err)
	}
	if kept != "" {
		s.emit("recovered", map[string]any{"done": []string{}, "failed": []checkpoints.Failure{{
			Path: iv.path, Code: checkpoints.CodeConflict,
			Message: "changed outside the session in the last instant of a write that was cut off; that is kept as " + kept,
		}}})
	}
	return nil
}

// resumeTurn lets an open turn go on. After a clean close, what changed in
// between is somebody else's, so it is a seam; after a crash it is the turn's.
func (s *Session) resumeTurn() error {
	t := s.state.open
	if t == nil {
		return nil
	}
	g := s.stage(t)
	for _, iv := range t.openIntervals() {
		if err := s.sweep(iv); err != nil {
			return err
		}
		now := s.ws.Look(iv.path).State
		switch {
		case s.state.closed && !breaks(iv.after, now):
			if !iv.written {
				g.fix(iv.path, nil, "")
			}
		case s.state.closed && iv.written:
			// The next write sees that it is another and opens a seam.
		case s.state.closed:
			if _, err := g.open(iv.path); err != nil {
				return err
			}
		case breaks(iv.after, now):
			g.fix(iv.path, &now, "")
		}
	}
	all := g.records()
	if s.state.closed {
		all = append(all, &reopenRecord{Type: "reopen", Turn: t.entry.id})
	}
	if len(all) == 0 {
		return nil
	}
	if err := s.syncBlobs(); err != nil {
		return err
	}
	return s.commit(all...)
}

// takeDirs makes additional the session's additional directories, if it is not
// nil and they are others.
func (s *Session) takeDirs(ctx context.Context, additional []string) error {
	s.mu.RLock()
	same := additional == nil || slices.Equal(additional, s.state.dirs)
	s.mu.RUnlock()
	if same {
		return nil
	}
	end, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	ws, err := s.reg.workspace(s.cwd, additional, s.blobs, false)
	if err != nil {
		return err
	}
	if err := s.leaveRoots(ctx); err != nil {
		return errors.Join(err, ws.Close())
	}
	if err := s.commit(&dirsRecord{Type: "dirs", AdditionalDirectories: additional}); err != nil {
		return errors.Join(err, ws.Close())
	}
	s.mu.Lock()
	s.retired = append(s.retired, s.ws) // a reader may be using it
	s.ws = ws
	s.mu.Unlock()
	s.claimAnew(ctx)
	return s.enterRoots(ctx)
}

// close closes the session, fixing the after states of an open turn unless its
// log is about to be deleted. Its lock is let go.
func (s *Session) close(ctx context.Context, fix bool) error {
	select {
	case s.op <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-s.op }()
	s.mu.Lock()
	closed := s.closed
	s.closed = true
	s.mu.Unlock()
	if closed {
		return nil
	}
	var errs []error
	if t := s.state.open; fix && !s.inMemory && t != nil && !s.state.closed && !s.asleep && s.log.Broken() == nil {
		release, err := s.blobs.Hold()
		if err == nil {
			err = s.endTurn(ctx, t, "close", true)
			release()
		}
		errs = append(errs, err)
	}
	s.reg.mu.Lock()
	delete(s.reg.open, s.id)
	done := make(chan struct{})
	s.reg.opening[s.id] = done // who wants it again waits until the lock is free
	s.reg.mu.Unlock()
	for _, ws := range append(s.retired, s.ws) {
		errs = append(errs, ws.Close())
	}
	s.first.end()
	if s.tracker != nil {
		errs = append(errs, s.tracker.Close())
	}
	s.leaveClaims(ctx)
	errs = append(errs, s.log.Close())
	if s.lock != nil {
		errs = append(errs, s.lock.Unlock())
	}
	s.reg.mu.Lock()
	delete(s.reg.opening, s.id)
	alone := len(s.reg.open) < 2
	s.reg.mu.Unlock()
	if alone {
		s.reg.neighbours.forget()
	}
	close(done)
	return errors.Join(errs...)
}
