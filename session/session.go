package session

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/oino-dev/oinod/checkpoints"
	"github.com/oino-dev/oinod/checkpoints/blobs"
	"github.com/oino-dev/oinod/checkpoints/journal"
	"github.com/oino-dev/oinod/checkpoints/workspace"
)

// Tracking says which changes of a turn are seen.
type Tracking string

const (
	Files     Tracking = "files"     // paths named by tools
	Workspace Tracking = "workspace" // additionally every change under the roots
)

// Role is who an entry is from.
type Role string

const (
	User       Role = "user"
	Assistant  Role = "assistant"
	Tool       Role = "tool"
	Compaction Role = "compaction"
	Custom     Role = "custom"
)

// Entry is one message of a session.
type Entry struct {
	ID        string
	ParentID  string // "" for the first
	Role      Role
	CreatedAt int64           // epoch milliseconds
	Content   json.RawMessage // an array of ACP content blocks
	// Display is what a client shows instead of Content, also blocks; nil where the same.
	Display json.RawMessage
	// Of a tool entry: the tool call's id and status, and what else an ACP
	// tool call says of itself (title, kind, rawInput, locations …; an object or nil).
	ToolCallID string
	Status     string
	Tool       json.RawMessage
	// Of a compaction.
	Summary      string
	KeepFrom     string
	TokensBefore int64
	TokensAfter  int64
	// MessageID, of assistant entries one behind the other, says that they are
	// chunks of one message; see Replay. Without one an entry is a message. Where
	// an agent is wrapped it is what the agent calls the message, of user entries
	// too.
	MessageID string
	// Told, of a user entry that a wrapped agent was told together with words of
	// ours, is the fingerprint of all that text: what it has is not Content.
	Told string
}

// NewEntry is an entry to append. An empty ID is chosen here. ParentID and
// CreatedAt are ignored.
type NewEntry = Entry

// Checkpoint is the point before a user entry.
type Checkpoint struct {
	EntryID   string
	CreatedAt int64
	Files     []CheckpointFile // in first-change order
	Text      string           // of the user message
	Label     string
	Uncovered []Uncovered
}

// CheckpointFile is a path that the checkpoint's turn changed or recorded.
type CheckpointFile struct {
	Path    string `json:"path"`
	Existed bool   `json:"existed"`
}

// EntriesQuery selects entries of the active branch.
type EntriesQuery struct {
	Through string // of the branch that ends with this entry, active or not; "": the active one
	After   string // only those after this entry
	Limit   int    // 0: all
	Context bool   // as the model should see it
}

// EntriesPage is a part of the active branch, oldest first.
type EntriesPage struct {
	Entries  []Entry
	LeafID   string
	Revision int64 // grows with every record of the session
	More     bool
}

// Session is one conversation, open for writing in this process. Its methods
// are safe for concurrent use; what changes the session is done one at a time
// in call order. Methods return *Error for a refusal, *checkpoints.PathError
// for a path, and ctx's error when cancelled before anything was done.
type Session struct {
	id       string
	cwd      string
	tracking Tracking
	reg      *Registry
	inMemory bool

	log   log
	blobs *blobs.Store
	lock  *journal.Lock // nil in memory
	place place         // where the log lies; zero in memory

	// op is held by the one call that changes the session or its files.
	op chan struct{}

	mu     sync.RWMutex // never held across I/O
	state  *state       // changed only by commit
	ws     *checkpoints.Workspace
	closed bool
	// tracker sees every change of a tracked workspace; nil with tracking files,
	// and while the session is asleep. Set by whoever is inside begin, who may
	// read it without mu.
	tracker *workspace.Workspace
	// claimant is what a session with tracking files tells tracked ones with;
	// nil until it is needed.
	claimant *workspace.Claimant

	first firstLook

	// When intervals were opened, and the session, for Registry.neighbours.
	// Touched by whoever is inside begin.
	opened        map[int]int
	openedSession int

	retired []*checkpoints.Workspace // closed with the session
	// asleep: a root was not there when the session was opened. It can be read;
	// before anything else, what the last writer left is finished.
	asleep bool
}

// watcher is the tracker, for those who are not inside begin.
func (s *Session) watcher() *workspace.Workspace {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.tracker
}

// ID names the session.
func (s *Session) ID() string { return s.id }

// Cwd is the working directory as the client gave it.
func (s *Session) Cwd() string { return s.cwd }

// Tracking is what the session was made with.
func (s *Session) Tracking() Tracking { return s.tracking }

// Title is the set title, else the start of the first user message of the
// active branch.
func (s *Session) Title() string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.state.shownTitle()
}

func (st *state) shownTitle() string {
	if st.title != "" {
		return st.title
	}
	if st.leaf != nil {
		return st.leaf.firstMsg
	}
	return ""
}

// begin waits for its turn to change the session and returns what ends it.
func (s *Session) begin(ctx context.Context) (end func(), err error) {
	select {
	case s.op <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	end = func() { <-s.op }
	s.mu.RLock()
	closed := s.closed
	s.mu.RUnlock()
	if closed {
		end()
		return nil, refuse(NotFound, "session %s was closed; load it again", s.id)
	}
	if err := s.awaken(ctx); err != nil {
		end()
		return nil, err
	}
	if err := s.log.Broken(); err != nil {
		end()
		return nil, storageError("session "+s.id+" takes nothing more until it is closed and opened again", err)
	}
	release, err := s.blobs.Hold()
	if err != nil {
		end()
		return nil, storageError("the blob store cannot be held", err)
	}
	return func() { release(); <-s.op }, nil
}

// commit makes records durable, in one append, and folds them in. Contents
// that they name must be synced before. The caller is inside begin.
func (s *Session) commit(records ...any) error {
	if len(records) == 0 {
		return nil
	}
	objects := make([][]byte, len(records))
	for i, r := range records {
		o, err := encodeRecord(r)
		if err != nil {
			return err
		}
		objects[i] = o
	}
	pos, err := s.log.Append(objects...)
	if err != nil {
		return storageError("the log of session "+s.id+" could not be written", err)
	}
	if err := s.fold(records, pos); err != nil {
		return err
	}
	s.noteEnd(records)
	for _, r := range records {
		if e, ok := r.(*evictRecord); ok {
			s.emit("evicted", map[string]any{"entryId": e.Through})
		}
	}
	return nil
}

func (s *Session) fold(records []any, pos []journal.Pos) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, r := range records {
		if err := s.state.apply(r, pos[i]); err != nil {
			return fmt.Errorf("folding what session %s just wrote: %w", s.id, err)
		}
	}
	return nil
}

// syncBlobs makes the contents put so far durable.
func (s *Session) syncBlobs() error {
	if err := s.blobs.Sync(); err != nil {
		return storageError("contents could not be kept", err)
	}
	return nil
}

func (s *Session) now() int64 { return s.reg.now().UnixMilli() }

func (s *Session) emit(kind string, data map[string]any) {
	if s.reg.event != nil {
		s.reg.event(Event{SessionID: s.id, Type: kind, Data: data})
	}
}

// Checkpoints lists what can be rewound to, oldest first.
func (s *Session) Checkpoints(ctx context.Context) ([]Checkpoint, error) {
	s.mu.RLock()
	nodes := s.state.listed()
	list := make([]Checkpoint, len(nodes))
	for i, n := range nodes {
		list[i] = s.state.checkpoint(n)
	}
	s.mu.RUnlock()
	for i, n := range nodes {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		e, err := s.readEntry(n)
		if err != nil {
			return nil, err
		}
		list[i].Text = blocksText(e.Content)
	}
	return list, nil
}

// checkpoint describes a user entry and what its turn touched.
func (st *state) checkpoint(n *node) Checkpoint {
	c := Checkpoint{EntryID: n.id, CreatedAt: n.createdAt, Label: st.labels[n.id], Files: []CheckpointFile{}}
	t := st.turns[n.id]
	c.Uncovered = t.notSeen()
	for _, iv := range t.firstIntervals() {
		if iv.before.Kind == checkpoints.Uncovered {
			c.Uncovered = append(c.Uncovered, uncoveredOf(iv))
		}
		c.Files = append(c.Files, CheckpointFile{Path: iv.path, Existed: iv.before.Kind != checkpoints.Absent})
	}
	c.Uncovered = distinct(c.Uncovered)
	return c
}

func uncoveredOf(iv *interval) Uncovered {
	return Uncovered{Path: iv.path, Reason: iv.before.Reason, Error: iv.err}
}

// Label names an entry; "" clears.
func (s *Session) Label(ctx context.Context, entryID, label string) error {
	end, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	if s.state.nodes[entryID] == nil {
		return refuse(EntryNotFound, "session %s has no entry %q", s.id, entryID)
	}
	return s.commit(&labelRecord{Type: "label", Entry: entryID, Label: label, At: s.now()})
}

// SetTitle names the session; "" clears.
func (s *Session) SetTitle(ctx context.Context, title string) error {
	end, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	return s.commit(&titleRecord{Type: "title", Title: shorten(title, maxTitle), At: s.now()})
}

// entryOrLeaf is the entry with the id, or the leaf for "".
func (st *state) entryOrLeaf(session, id string) (*node, error) {
	if id == "" {
		if st.leaf == nil {
			return nil, refuse(EntryNotFound, "session %s has no entry yet", session)
		}
		return st.leaf, nil
	}
	if n := st.nodes[id]; n != nil {
		return n, nil
	}
	return nil, refuse(EntryNotFound, "session %s has no entry %q", session, id)
}
