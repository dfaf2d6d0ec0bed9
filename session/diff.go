package session

import (
	"context"

	"github.com/oino-dev/oinod/checkpoints"
)

// DiffParams selects what Diff compares.
type DiffParams struct {
	EntryID string
	Paths   []string
	Context int // lines around a change
}

// Diff compares the checkpoint with now, for what a rewind would consider.
func (s *Session) Diff(ctx context.Context, p DiffParams) ([]checkpoints.FileDiff, error) {
	if s.watcher() != nil {
		return s.diffTracked(ctx, p)
	}
	s.mu.RLock()
	_, err := s.target(RewindParams{EntryID: p.EntryID})
	var touched []*touch
	if err == nil {
		touched = s.state.touched(span{order: s.state.targetOrder(p.EntryID)})
	}
	ws := s.ws
	s.mu.RUnlock()
	if err != nil {
		return nil, err
	}
	return diffOf(ctx, ws, touched, p)
}

// diffOf compares the targets of touched paths with what is there now.
func diffOf(ctx context.Context, ws *checkpoints.Workspace, touched []*touch, p DiffParams) ([]checkpoints.FileDiff, error) {
	touched, err := only(ws, touched, p.Paths)
	if err != nil {
		return nil, err
	}
	files := []checkpoints.FileDiff{}
	for _, t := range touched {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if t.quiet {
			continue
		}
		if d := ws.Diff(t.Path, t.Target, ws.Look(t.Path).State, p.Context); d.Change != "" {
			files = append(files, d)
		}
	}
	return files, nil
}

// diffTracked is Diff with what an open turn has changed up to now.
func (s *Session) diffTracked(ctx context.Context, p DiffParams) ([]checkpoints.FileDiff, error) {
	end, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	rp := RewindParams{EntryID: p.EntryID}
	if _, err := s.target(rp); err != nil {
		return nil, err
	}
	records, sp, err := s.sinceLast(ctx, rp)
	if err != nil {
		return nil, err
	}
	now, err := s.state.with(records)
	if err != nil {
		return nil, err
	}
	return diffOf(ctx, s.ws, now.touched(sp), p)
}
