package session

import (
	"context"
	"errors"
)

// leaveRoots brings the log up to now before other directories are tracked: a
// new one may hold an old one, or an old one go. An open turn is as over a close.
func (s *Session) leaveRoots(ctx context.Context) error {
	if s.tracker == nil {
		return nil
	}
	if t := s.state.open; t != nil && !s.state.closed {
		return s.endTurn(ctx, t, "close", true)
	}
	now, err := s.look(ctx, false, false)
	if err != nil {
		return err
	}
	records, err := s.outsideSince(ctx, now)
	if err != nil {
		return err
	}
	return s.commit(records...)
}

// enterRoots tracks the directories that the session has now. The captures of
// those that it had before go on. An open turn goes on with all of them: it is
// seen what it does there from now on.
func (s *Session) enterRoots(ctx context.Context) error {
	if s.tracker == nil {
		return nil
	}
	s.first.end()
	old := s.tracker
	if err := s.track(s.state.open == nil); err != nil {
		return storageError("the new directories cannot be tracked", err)
	}
	return errors.Join(s.resumeTracked(ctx), old.Close())
}

// resumeTracked lets an open turn of a tracked session go on. After a clean
// close what changed in between is outside; after a crash it is the turn's,
// whose first capture is still held.
func (s *Session) resumeTracked(ctx context.Context) error {
	t := s.state.open
	if t == nil {
		return nil
	}
	for _, iv := range t.openIntervals() {
		if err := s.sweep(iv); err != nil {
			return err
		}
	}
	if !s.state.closed {
		return nil
	}
	now, err := s.look(ctx, true, false)
	if err != nil {
		return err
	}
	records, err := s.outsideSince(ctx, now)
	if err != nil {
		return err
	}
	for _, r := range records {
		r.(*outsideRecord).Turn = t.entry.id
	}
	reopen := &reopenRecord{Type: "reopen", Turn: t.entry.id, Mark: now.Mark, Unseen: now.unseen(s)}
	if now.err == nil && !now.Coverage.Complete {
		reopen.Unseen = append(reopen.Unseen, notWhole(now.Coverage))
	}
	if reopen.Rules, err = s.rulesOf(ctx, now.Mark); err != nil {
		return err
	}
	return s.commit(append(records, reopen)...)
}
