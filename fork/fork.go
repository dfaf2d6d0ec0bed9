// Package fork knows how one conversation becomes two, and who may object.
//
// # Which entries go along
//
// A fork is a new session that holds the source's entries from the first one
// to a point: the leaf (no entry named: the whole conversation), an entry
// (position "at"), or the entry before it (position "before"). The point may
// lie anywhere in the tree. A turn goes along whole when its user entry does.
// What entries take with them, and how they get to disk, is session's secret
// (Registry.Stage); a fork never touches a file of the workspace.
//
// A rewind that forks takes the entries before its target, and is made by
// session in one go with the files: the staged child is published once the
// files are back.
//
// # Who may object
//
// Before the conversation forks or moves, each Handler is asked, one after
// the other, until one cancels:
//
//	Go handlers registered in the process, commands from the settings, the client
//
// Each is asked at most once, and all of them before any effect: nothing is
// staged, planned or changed while a handler thinks. Doubt cancels: an error,
// a panic, a command that fails, hangs or babbles (see Command). A cancelled
// fork or rewind leaves nothing behind, and says who cancelled and why.
//
// What cannot be done is refused before anybody is asked. A dry run, and a
// rewind that keeps the conversation, ask nobody.
//
// After success, and only then, each handler is told once. Nothing it does
// changes the result any more; what goes wrong there is for Forker.Report.
package fork

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/oino-dev/oinod/checkpoints"
	"github.com/oino-dev/oinod/session"
)

// The types of the two events.
const (
	BeforeFork = "session_before_fork"
	AfterFork  = "session_fork"
)

// The positions of a fork.
const (
	Before = "before" // the entries before the named one
	At     = "at"     // the named one too
)

// Event is what a session_before_fork handler is told, as JSON on the wire
// and on a command's stdin.
type Event struct {
	Type         string  `json:"type"` // session_before_fork
	SessionID    string  `json:"sessionId"`
	EntryID      *string `json:"entryId"` // null for the whole conversation
	Position     string  `json:"position"`
	Conversation string  `json:"conversation"` // of a rewind: rewind or fork; of a fork: fork
	Cwd          string  `json:"cwd"`
	Text         string  `json:"text"` // of the named entry, where it is the user's
	// Files is what a rewind would change, empty for a fork; Change is what
	// happened to the path since the checkpoint, which the rewind takes back.
	Files []session.PathChange `json:"files"`
}

// Answer is a handler's word. The zero value lets it go on.
type Answer struct {
	Cancel bool   `json:"cancel"`
	Reason string `json:"reason"`
}

// UnmarshalJSON takes what the exact names say: encoding/json by itself would
// take {"CANCEL":true} for an answer that cancels.
func (a *Answer) UnmarshalJSON(b []byte) error {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(b, &members); err != nil {
		return err
	}
	for name, to := range map[string]any{"cancel": &a.Cancel, "reason": &a.Reason} {
		if value, ok := members[name]; ok {
			if err := json.Unmarshal(value, to); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return nil
}

// Forked is what a session_fork handler is told, once, after success.
type Forked struct {
	Type         string  `json:"type"` // session_fork
	SessionID    string  `json:"sessionId"`
	EntryID      *string `json:"entryId"`
	Position     string  `json:"position"`
	Conversation string  `json:"conversation"`
	Cwd          string  `json:"cwd"`
	NewSessionID string  `json:"newSessionId,omitempty"` // of a fork
}

// Handler may object to a fork, and hears of those that were made. An error
// of SessionBeforeFork cancels, with the error as the reason.
type Handler interface {
	SessionBeforeFork(ctx context.Context, e Event) (Answer, error)
	SessionForked(ctx context.Context, e Forked)
}

// Forker makes forks, and rewinds that move the conversation.
type Forker struct {
	registry *session.Registry
	handlers []Handler

	// Report hears what went wrong in a handler after a fork was made, when no
	// answer can carry it. It is set before the first call; nil is nobody.
	Report func(error)
}

// New returns a Forker that asks handlers in order: Go handlers first, then
// commands. Each call may add the client as the last.
func New(r *session.Registry, handlers ...Handler) *Forker {
	return &Forker{registry: r, handlers: slices.Clone(handlers)}
}

// Params says where to fork.
type Params struct {
	EntryID               string   // "": the whole conversation
	Position              string   // before (default) or at
	AdditionalDirectories []string // nil: the source's
}

// Result is a fork that was made, or why not.
type Result struct {
	SessionID string
	Text      string // of the user entry that the fork stops before
	HasText   bool
	Cancelled bool
	Reason    string
	Ahead     []string // paths that are now in a later state than the fork knows
}

// Fork makes a new session from s. It never touches files. client may be nil.
func (f *Forker) Fork(ctx context.Context, s *session.Session, p Params, client Handler) (_ Result, err error) {
	at, err := pointOf(s, p)
	if err != nil {
		return Result{}, err
	}
	if err := f.registry.CheckRoots(s.Cwd(), p.AdditionalDirectories); err != nil {
		return Result{}, err
	}
	handlers := f.with(client)
	e := at.event(s, string(session.ForkConversation))
	answer, err := ask(ctx, handlers, e)
	if err != nil {
		return Result{}, err
	}
	if answer.Cancel {
		return Result{Cancelled: true, Reason: answer.Reason}, nil
	}
	child, err := f.registry.Stage(ctx, s, at.entries, p.AdditionalDirectories)
	if err != nil {
		return Result{}, err
	}
	defer discard(child, &err)
	if err := child.Publish(ctx); err != nil {
		return Result{}, err
	}
	r := Result{SessionID: child.ID(), Ahead: s.Ahead(at.entries)}
	if at.position == Before && at.byUser {
		r.Text, r.HasText = at.text, true
	}
	f.tell(ctx, handlers, forked(e, child.ID()))
	return r, nil
}

// Rewind rewinds s, asking the handlers first where the conversation moves,
// and staging the child of a fork. client may be nil.
func (f *Forker) Rewind(ctx context.Context, s *session.Session, p session.RewindParams, client Handler) (_ session.RewindResult, err error) {
	moves := p.Conversation == session.RewindConversation || p.Conversation == session.ForkConversation
	if !moves || p.DryRun {
		return s.Rewind(ctx, p)
	}
	if err := s.CheckRewind(p); err != nil {
		return session.RewindResult{}, err
	}
	at, err := targetOf(s, p.EntryID)
	if err != nil {
		return session.RewindResult{}, err
	}
	handlers := f.with(client)
	e := at.event(s, string(p.Conversation))
	if slices.ContainsFunc(handlers, asked) { // a preview nobody reads costs a walk over every path
		if e.Files, err = preview(ctx, s, p); err != nil {
			return session.RewindResult{}, err
		}
	}
	answer, err := ask(ctx, handlers, e)
	if err != nil {
		return session.RewindResult{}, err
	}
	if answer.Cancel {
		return session.RewindResult{Restored: []string{}, Deleted: []string{}, Cancelled: true, Reason: answer.Reason}, nil
	}
	if p.Conversation == session.ForkConversation {
		if p.Child, err = f.registry.Stage(ctx, s, at.entries, nil); err != nil {
			return session.RewindResult{}, err
		}
		defer discard(p.Child, &err)
	}
	r, err := s.Rewind(ctx, p)
	if err != nil {
		return r, err
	}
	if moved(p, r) {
		f.tell(ctx, handlers, forked(e, r.SessionID))
	}
	return r, nil
}

// discard leaves nothing of a child that was not published, and adds to err
// where that fails.
func discard(c *session.Child, err *error) {
	if left := c.Discard(); left != nil {
		*err = errors.Join(*err, fmt.Errorf("the unfinished fork %s could not be removed: %w", c.ID(), left))
	}
}

// moved reports whether the conversation went where p says: a path that
// really failed keeps it where it was.
func moved(p session.RewindParams, r session.RewindResult) bool {
	if p.Conversation == session.ForkConversation {
		return r.SessionID != ""
	}
	return !slices.ContainsFunc(r.Failed, func(x checkpoints.Failure) bool { return x.Code.Real() })
}
