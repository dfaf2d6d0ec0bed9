package fork

import (
	"context"
	"errors"
	"fmt"

	"github.com/oino-dev/oinod/session"
)

// point is where a conversation is cut.
type point struct {
	entryID  *string  // nil: nowhere, the whole of it
	position string   // before or at
	entries  []string // those that go along
	text     string   // of the named entry
	byUser   bool     // the named entry is a user entry
}

// pointOf finds where p cuts, and refuses what names no entry.
func pointOf(s *session.Session, p Params) (point, error) {
	switch p.Position {
	case "", Before, At:
	default:
		return point{}, &session.Error{Kind: session.BadParams,
			Msg: fmt.Sprintf("position is %q, want %q or %q", p.Position, Before, At)}
	}
	branch, err := s.Branch(p.EntryID)
	if err != nil {
		return point{}, err
	}
	if p.EntryID == "" {
		return point{position: At, entries: ids(branch)}, nil
	}
	position := p.Position
	if position == "" {
		position = Before
	}
	return cut(s, branch, position)
}

// targetOf is the point before the entry that a rewind goes to.
func targetOf(s *session.Session, entryID string) (point, error) {
	if entryID == session.Start {
		return point{entryID: &entryID, position: Before}, nil
	}
	branch, err := s.Branch(entryID)
	if err != nil {
		return point{}, err
	}
	return cut(s, branch, Before)
}

// cut is the point before or at the last entry of branch.
func cut(s *session.Session, branch []session.Entry, position string) (point, error) {
	if len(branch) == 0 {
		return point{}, errors.New("a branch that ends in an entry holds none") // session's promise, broken
	}
	last := branch[len(branch)-1]
	pt := point{entryID: &last.ID, position: position, byUser: last.Role == session.User}
	if pt.byUser {
		var err error
		if pt.text, err = s.EntryText(last.ID); err != nil {
			return point{}, err
		}
	}
	if position == Before {
		branch = branch[:len(branch)-1]
	}
	pt.entries = ids(branch)
	return pt, nil
}

func ids(entries []session.Entry) []string {
	out := make([]string, len(entries))
	for i, e := range entries {
		out[i] = e.ID
	}
	return out
}

// event is what handlers are told of the point, with no files yet.
func (pt point) event(s *session.Session, conversation string) Event {
	return Event{
		Type: BeforeFork, SessionID: s.ID(), EntryID: pt.entryID, Position: pt.position,
		Conversation: conversation, Cwd: s.Cwd(), Text: pt.text, Files: []session.PathChange{},
	}
}

func forked(e Event, newSessionID string) Forked {
	return Forked{
		Type: AfterFork, SessionID: e.SessionID, EntryID: e.EntryID, Position: e.Position,
		Conversation: e.Conversation, Cwd: e.Cwd, NewSessionID: newSessionID,
	}
}

// preview is what the rewind would change now, in the order of its diff. A
// path that it would only report is not in it.
func preview(ctx context.Context, s *session.Session, p session.RewindParams) ([]session.PathChange, error) {
	p.DryRun = true
	r, err := s.Rewind(ctx, p)
	if err != nil {
		return nil, err
	}
	return changes(r), nil
}

func changes(r session.RewindResult) []session.PathChange {
	touched := make(map[string]bool)
	for _, paths := range [][]string{r.Restored, r.Deleted, r.Merged} {
		for _, path := range paths {
			touched[path] = true
		}
	}
	files := []session.PathChange{}
	for _, d := range r.Files {
		if touched[d.Path] {
			files = append(files, session.PathChange{Path: d.Path, Change: d.Change})
		}
	}
	return files
}
