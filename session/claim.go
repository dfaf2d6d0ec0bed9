package session

import (
	"context"
	"time"

	"github.com/oino-dev/oinod/checkpoints"
	"github.com/oino-dev/oinod/checkpoints/workspace"
)

// claimLimit is how long a session with tracking "files" waits for those who
// track the workspace: what it does must not depend on them.
const claimLimit = 2 * time.Second

// beginLimit is that of a turn's begin. Who captures meanwhile will have done so
// by then, or hears of the turn with the first thing that it does.
const beginLimit = 10 * time.Second

// claimed runs act, which changes files, and claims what it did, so that no
// other session's turn takes it for its own.
func (s *Session) claimed(act func() ([]workspace.Claim, error)) error {
	var failed error
	err := s.claim(context.Background(), func() ([]workspace.Claim, error) {
		claims, err := act()
		if failed = err; err != nil {
			claims = nil
		}
		s.noteClaims(claims)
		return claims, nil
	})
	if failed != nil {
		return failed
	}
	if err != nil {
		return storageError("what was changed could not be noted", err)
	}
	return nil
}

// claim runs act and tells what it did. Without captures of its own a session
// runs it in any case, and does not say whom it could not tell: they may take
// the change for nobody's, or for theirs.
func (s *Session) claim(ctx context.Context, act func() ([]workspace.Claim, error)) error {
	if s.tracker != nil {
		return s.tracker.Claim(ctx, act)
	}
	c := s.claims()
	if c == nil {
		_, err := act()
		return err
	}
	limited, cancel := context.WithTimeout(ctx, claimLimit)
	defer cancel()
	_ = c.Claim(limited, act)
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
		claims := make([]workspace.Claim, 0, len(o.Done))
		for i := range in.Steps {
			if step := &in.Steps[i]; done[step.Path] {
				claims = append(claims, workspace.Claim{Path: step.Path, Before: step.From, After: step.To})
			}
		}
		s.noteClaims(claims)
		return claims, nil
	}
	// A claim that cannot be written makes others see a change of nobody's:
	// they may keep what they need not. That is better than no rewind.
	if _ = s.claim(ctx, claiming); !ran {
		_, _ = claiming()
	}
	return o
}

// claims is what a session with tracking "files" tells those with tracking
// "workspace" with, where their roots overlap its own; nil without an agent
// directory. Of a session in memory those of this process alone are told, since
// nothing of it is to be in that.
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
	claimant := store.Claimant
	if s.inMemory {
		claimant = store.ClaimantInMemory
	}
	c = claimant(s.id, append([]string{s.cwd}, dirs...), open)
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
	limit := claimLimit // of an end they learn later too
	if begin {
		limit = beginLimit
	}
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	_ = c.Turn(limited, begin)
	return ctx.Err()
}

// remind tells of the open turn those who track the workspace only since then.
// Who asks often is not heeded each time.
func (s *Session) remind(ctx context.Context, often bool) {
	if c := s.claims(); c != nil {
		limited, cancel := context.WithTimeout(ctx, claimLimit)
		defer cancel()
		_ = c.Remind(limited, often)
	}
}

// hearOthers makes the sessions of this process that track nothing tell of
// their turns, in journals that there may not have been when those began.
func (s *Session) hearOthers(ctx context.Context) {
	for _, o := range s.reg.others(s) {
		o.remind(ctx, false)
	}
}

// claimAnew tells of the directories that the session has now.
func (s *Session) claimAnew(ctx context.Context) {
	if s.tracking == Workspace {
		return
	}
	s.leaveClaims(ctx)
	s.remind(ctx, false)
}

// leaveClaims says that no turn goes on, and closes what was open for it.
func (s *Session) leaveClaims(ctx context.Context) {
	s.mu.Lock()
	c := s.claimant
	s.claimant = nil
	s.mu.Unlock()
	if c != nil {
		limited, cancel := context.WithTimeout(ctx, claimLimit)
		defer cancel()
		_ = c.Turn(limited, false)
		_ = c.Close()
	}
}
