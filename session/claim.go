package session

import (
	"context"
	"errors"

	"github.com/oino-dev/oinod/checkpoints"
	"github.com/oino-dev/oinod/checkpoints/workspace"
)

// claimed runs act, which changes files, and claims what it did, so that no
// other session's turn takes it for its own.
func (s *Session) claimed(act func() ([]workspace.Claim, error)) error {
	var failed error
	claiming := func() ([]workspace.Claim, error) {
		claims, err := act()
		if failed = err; err != nil {
			claims = nil
		}
		s.noteClaims(claims)
		return claims, nil
	}
	listens := s.listener()
	if listens == nil {
		_, err := claiming()
		return errors.Join(failed, err)
	}
	err := listens.Claim(context.Background(), claiming)
	if failed != nil {
		return failed
	}
	if err != nil {
		return storageError("what was changed could not be noted", err)
	}
	return nil
}

// act carries an intent out, and claims what it did.
func (s *Session) act(ctx context.Context, in checkpoints.Intent, recovering bool) checkpoints.Outcome {
	var o checkpoints.Outcome
	ran := false
	claiming := func() ([]workspace.Claim, error) {
		ran = true
		o = s.ws.Act(ctx, in, recovering)
		done := setOf(o.Done)
		var claims []workspace.Claim
		for _, step := range in.Steps {
			if done[step.Path] {
				claims = append(claims, workspace.Claim{Path: step.Path, Before: step.From, After: step.To})
			}
		}
		s.noteClaims(claims)
		return claims, nil
	}
	if listens := s.listener(); listens != nil {
		// A claim that cannot be written makes others see a change of nobody's:
		// they may keep what they need not. That is better than no rewind.
		_ = listens.Claim(ctx, claiming)
	}
	if !ran {
		_, _ = claiming()
	}
	return o
}

// listener is who is told what the session changes.
type listener interface {
	Claim(ctx context.Context, act func() ([]workspace.Claim, error)) error
}

// listener tells the journals of tracked workspaces; nil where there are none.
func (s *Session) listener() listener {
	if s.tracker != nil {
		return s.tracker
	}
	if c := s.claims(); c != nil {
		return c
	}
	return nil
}

// claims is what a session with tracking "files" tells those with tracking
// "workspace" with, where their roots overlap its own; nil without an agent
// directory.
func (s *Session) claims() *workspace.Claimant {
	if s.tracking == Workspace {
		return nil // its captures tell
	}
	s.mu.RLock()
	c, dirs, open := s.claimant, s.state.dirs, s.state.open != nil && !s.state.closed
	s.mu.RUnlock()
	if c != nil {
		return c
	}
	store, err := s.reg.tracking(false)
	if err != nil {
		return nil
	}
	c = store.Claimant(s.id, append([]string{s.cwd}, dirs...), open)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return nil
	case s.claimant == nil:
		s.claimant = c
	}
	return s.claimant
}

// tellTurn says that a turn begins or has ended, to those who track the
// workspace: a captured change that nobody claimed may be this turn's. Where
// that cannot be said, they may take it for theirs; what the session's tools do
// they do not. The error is ctx's alone.
func (s *Session) tellTurn(ctx context.Context, begin bool) error {
	c := s.claims()
	if c == nil {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, captureLimit)
	defer cancel()
	_ = c.Turn(limited, begin)
	return ctx.Err()
}

// remind tells of the open turn those who track the workspace only since then.
func (s *Session) remind(ctx context.Context) {
	if c := s.claims(); c != nil {
		limited, cancel := context.WithTimeout(ctx, captureLimit)
		defer cancel()
		_ = c.Remind(limited)
	}
}

// hearOthers makes the sessions of this process that track nothing tell of
// their turns, in journals that there may not have been when those began.
func (s *Session) hearOthers(ctx context.Context) {
	for _, o := range s.reg.others(s) {
		o.remind(ctx)
	}
}

// claimAnew tells of the directories that the session has now.
func (s *Session) claimAnew(ctx context.Context) {
	if s.tracking == Workspace {
		return
	}
	s.leaveClaims(ctx)
	s.remind(ctx)
}

// leaveClaims says that no turn goes on, and closes what was open for it.
func (s *Session) leaveClaims(ctx context.Context) {
	s.mu.Lock()
	c := s.claimant
	s.claimant = nil
	s.mu.Unlock()
	if c != nil {
		_ = c.Turn(ctx, false)
		_ = c.Close()
	}
}
