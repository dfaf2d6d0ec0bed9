package rpc

import (
	"context"

	"github.com/oino-dev/oinod/checkpoints"
	"github.com/oino-dev/oinod/protocol"
	"github.com/oino-dev/oinod/session"
)

// diffContext is how many lines around a change are shown unless asked otherwise.
const diffContext = 3

// record captures the paths of all waiting requests with one sync. A request
// that is wrong fails alone.
func (s *server) record(tasks []*task) []outcome {
	outcomes := make([]outcome, len(tasks))
	var (
		opened   *session.Session
		requests []session.RecordRequest
		whose    []int // the task of each request
	)
	for i, t := range tasks {
		var p protocol.RecordParams
		err := context.Cause(t.ctx)
		if err == nil {
			err = protocol.Decode(t.params, &p)
		}
		if err == nil && opened == nil {
			opened, err = s.session(t.ctx, p.SessionID)
		}
		if err != nil {
			outcomes[i].err = err
			continue
		}
		requests = append(requests, session.RecordRequest{Paths: p.Paths, EntryID: p.EntryID})
		whose = append(whose, i)
	}
	if len(requests) == 0 {
		return outcomes
	}
	// Not one of the tasks' contexts: a cancel of one must not undo the others.
	for n, r := range opened.Record(context.WithoutCancel(tasks[0].ctx), requests) {
		o := &outcomes[whose[n]]
		if o.err = r.Err; r.Err != nil {
			continue
		}
		o.result = protocol.RecordResult{
			EntryID: r.EntryID, Recorded: list(r.Recorded), Known: list(r.Known), Uncovered: list(uncovered(r.Uncovered)),
		}
	}
	return outcomes
}

func (s *server) write(ctx context.Context, _ *task, p *protocol.WriteParams) (any, error) {
	content, err := p.Bytes()
	if err != nil {
		return nil, err
	}
	opened, err := s.session(ctx, p.SessionID)
	if err != nil {
		return nil, err
	}
	r, err := opened.Write(ctx, p.Path, content)
	if err != nil {
		return nil, err
	}
	return protocol.WriteResult{EntryID: r.EntryID, Existed: r.Existed, Bytes: r.Bytes, Uncovered: uncovered(r.Uncovered)}, nil
}

func (s *server) edit(ctx context.Context, _ *task, p *protocol.EditParams) (any, error) {
	opened, err := s.session(ctx, p.SessionID)
	if err != nil {
		return nil, err
	}
	edits := make([]session.Replacement, len(p.Edits))
	for i, e := range p.Edits {
		edits[i] = session.Replacement{OldText: *e.OldText, NewText: *e.NewText, All: e.ReplaceAll}
	}
	r, err := opened.Edit(ctx, p.Path, edits)
	if err != nil {
		return nil, err
	}
	return protocol.EditResult{EntryID: r.EntryID, Replacements: r.Replacements}, nil
}

func (s *server) turnEnd(ctx context.Context, _ *task, p *protocol.SessionParams) (any, error) {
	opened, err := s.session(ctx, p.SessionID)
	if err != nil {
		return nil, err
	}
	r, err := opened.EndTurn(ctx)
	if err != nil {
		return nil, err
	}
	result := protocol.TurnEndResult{EntryID: r.EntryID, Changed: []protocol.PathChange{}, Uncovered: uncovered(r.Uncovered)}
	for _, c := range r.Changed {
		result.Changed = append(result.Changed, protocol.PathChange{Path: c.Path, Change: string(c.Change)})
	}
	return result, nil
}

func (s *server) checkpoints(ctx context.Context, _ *task, p *protocol.SessionParams) (any, error) {
	opened, err := s.session(ctx, p.SessionID)
	if err != nil {
		return nil, err
	}
	all, err := opened.Checkpoints(ctx)
	if err != nil {
		return nil, err
	}
	result := protocol.CheckpointsResult{Checkpoints: []protocol.Checkpoint{}}
	for _, c := range all {
		w := protocol.Checkpoint{
			EntryID: c.EntryID, CreatedAt: c.CreatedAt, Files: []protocol.CheckpointFile{},
			Text: c.Text, Label: c.Label, Uncovered: uncovered(c.Uncovered),
		}
		for _, f := range c.Files {
			w.Files = append(w.Files, protocol.CheckpointFile{Path: f.Path, Existed: f.Existed})
		}
		result.Checkpoints = append(result.Checkpoints, w)
	}
	return result, nil
}

func (s *server) diff(ctx context.Context, _ *task, p *protocol.DiffParams) (any, error) {
	opened, err := s.session(ctx, p.SessionID)
	if err != nil {
		return nil, err
	}
	lines := diffContext
	if p.Context != nil {
		lines = *p.Context
	}
	files, err := opened.Diff(ctx, session.DiffParams{EntryID: p.EntryID, Paths: p.Paths, Context: lines})
	if err != nil {
		return nil, err
	}
	return protocol.DiffResult{Files: fileDiffs(files)}, nil
}

func (s *server) rewind(ctx context.Context, t *task, p *protocol.RewindParams) (any, error) {
	opened, err := s.session(ctx, p.SessionID)
	if err != nil {
		return nil, err
	}
	rp := session.RewindParams{
		EntryID: p.EntryID, Conversation: session.KeepConversation, DryRun: p.DryRun,
		Paths: p.Paths, ScopeAll: p.Scope == "all", Context: diffContext,
	}
	if p.Conversation != "" {
		rp.Conversation = session.Conversation(p.Conversation)
	}
	rp.OnConflict, rp.Fail = onConflict(p.OnConflict)
	r, err := s.host.rewind(ctx, t, opened, rp)
	if err != nil {
		return nil, err
	}
	result := rewindResult(r)
	if p.DryRun {
		result.Files = new(fileDiffs(r.Files))
	}
	return result, nil
}

func (s *server) redo(ctx context.Context, t *task, p *protocol.RedoParams) (any, error) {
	opened, err := s.session(ctx, p.SessionID)
	if err != nil {
		return nil, err
	}
	var rp session.RewindParams
	rp.OnConflict, rp.Fail = onConflict(p.OnConflict)
	r, err := s.host.redo(ctx, t, opened, rp)
	if err != nil {
		return nil, err
	}
	result := rewindResult(r)
	result.Remaining = &r.Remaining
	return result, nil
}

// onConflict is what the session is told of the wire's four words.
func onConflict(word string) (on checkpoints.OnConflict, fail bool) {
	switch word {
	case "", "fail":
		return checkpoints.Keep, word == "fail"
	}
	return checkpoints.OnConflict(word), false
}

func rewindResult(r session.RewindResult) protocol.RewindResult {
	w := protocol.RewindResult{
		Restored: list(r.Restored), Deleted: list(r.Deleted), Merged: r.Merged,
		Uncovered: uncovered(r.Uncovered), Unchecked: r.Unchecked, OutsideMore: r.OutsideMore,
		SessionID: r.SessionID, Cancelled: r.Cancelled, Reason: r.Reason,
	}
	for _, f := range r.Failed {
		w.Failed = append(w.Failed, protocol.Failure{Path: f.Path, Error: f.Message, Code: string(f.Code)})
	}
	for _, o := range r.Outside {
		w.Outside = append(w.Outside, protocol.OutsideChange{Path: o.Path, Change: string(o.Change), SessionID: o.SessionID})
	}
	if !r.Cancelled {
		w.Turns = &r.Turns
	}
	if r.HasText {
		w.Text = &r.Text
	}
	return w
}

func uncovered(us []session.Uncovered) []protocol.Uncovered {
	var out []protocol.Uncovered
	for _, u := range us {
		out = append(out, protocol.Uncovered{Path: u.Path, Reason: string(u.Reason), Error: u.Error})
	}
	return out
}

func fileDiffs(files []checkpoints.FileDiff) []protocol.FileDiff {
	out := []protocol.FileDiff{}
	for _, f := range files {
		out = append(out, protocol.FileDiff{
			Path: f.Path, Change: string(f.Change), Additions: f.Additions, Deletions: f.Deletions,
			Binary: f.Binary, Patch: f.Patch,
		})
	}
	return out
}
