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
	if s.tracker == nil {
		_, err := claiming()
		return errors.Join(failed, err)
	}
	err := s.tracker.Claim(context.Background(), claiming)
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
	if s.tracker != nil {
		// A claim that cannot be written makes others see a change of nobody's:
		// they may keep what they need not. That is better than no rewind.
		_ = s.tracker.Claim(ctx, claiming)
	}
	if !ran {
		_, _ = claiming()
	}
	return o
}
