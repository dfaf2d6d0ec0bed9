package session

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/oino-dev/oinod/checkpoints/disk"
	"github.com/oino-dev/oinod/checkpoints/journal"
)

// View is a session as its log says, read without its lock: of one that is
// open in another process, or packed, or damaged. Nothing of it is changed.
type View struct {
	Info
	LeafID      string
	Checkpoints []Checkpoint // oldest first; without the text, which their entries have
	Damage      []Damage
	Packed      bool

	root   disk.Root
	stored *stored
}

// Damage is a line of a log that could not be read, or did not fit.
type Damage struct {
	Line    int    `json:"line,omitempty"` // 0: the log as a whole
	Message string `json:"message"`
}

// ViewEntry is an entry with what a listing says beside it.
type ViewEntry struct {
	Entry
	Left       bool        // on a branch that the conversation has left
	Label      string      // "" for none
	Checkpoint *Checkpoint // of a user entry that can be rewound to
}

// View reads the log of a session. id is a whole id.
func (r *Registry) View(ctx context.Context, id string) (*View, error) {
	root, p, err := r.find(id)
	if err != nil {
		return nil, err
	}
	st, packed, err := p.stat(root)
	if err != nil {
		return nil, storageError("the log of session "+id+" cannot be looked at", err)
	}
	s, err := p.read(root, nil)
	if err != nil {
		return nil, err
	}
	v := &View{Info: s.state.info(), Packed: packed, root: root, stored: s}
	v.Size = st.Size()
	if s.state.leaf != nil {
		v.LeafID = s.state.leaf.id
	}
	for _, n := range s.state.listed() {
		v.Checkpoints = append(v.Checkpoints, s.state.checkpoint(n))
	}
	v.Damage = s.state.damages()
	return v, ctx.Err()
}

func (st *state) damages() []Damage {
	var all []Damage
	for _, d := range st.damage {
		all = append(all, Damage{Line: d.line, Message: d.message()})
	}
	return all
}

// message is what is wrong, without the line where it is.
func (d damage) message() string {
	return strings.TrimPrefix(d.err.Error(), fmt.Sprintf("line %d: ", d.line))
}

// Each passes the entries of the active branch to f, oldest first; with all,
// also those of branches that the conversation has left, each where it was
// appended. It reads the log once more, and holds one entry at a time.
func (v *View) Each(ctx context.Context, all bool, f func(ViewEntry) error) error {
	st := v.stored.state
	active := map[*node]bool{}
	for _, n := range st.branch(st.leaf) {
		active[n] = true
	}
	var want []*node
	for _, n := range st.order {
		if all || active[n] {
			want = append(want, n)
		}
	}
	points := map[string]*Checkpoint{}
	for i := range v.Checkpoints {
		points[v.Checkpoints[i].EntryID] = &v.Checkpoints[i]
	}
	log, err := v.stored.place.open(v.root)
	if err != nil {
		return storageError("the log of session "+v.SessionID+" cannot be opened", err)
	}
	defer log.Close()
	errEnd := errors.New("no further entry is wanted")
	var stopped error
	_, err = journal.Scan(log, maxLine, func(l journal.Line) error {
		if len(want) == 0 {
			return errEnd
		}
		if stopped = ctx.Err(); stopped != nil {
			return stopped
		}
		n := want[0]
		if l.Err != nil || l.Pos.Offset != n.pos.Offset {
			return nil
		}
		want = want[1:]
		rec, err := decodeRecord(l.Object)
		if err != nil {
			stopped = err
			return err
		}
		e, ok := rec.(*entryRecord)
		if !ok {
			stopped = fmt.Errorf("the line of entry %s holds something else", n.id)
			return stopped
		}
		stopped = f(ViewEntry{Entry: e.entry(), Left: !active[n], Label: st.labels[n.id], Checkpoint: points[n.id]})
		return stopped
	})
	if stopped != nil {
		return stopped
	}
	if err != nil && !errors.Is(err, errEnd) && len(want) > 0 {
		return storageError("the log of session "+v.SessionID+" cannot be read", err)
	}
	return nil
}

// Messages is Each with the chunks of one message put together, as Replay does.
func (v *View) Messages(ctx context.Context, all bool, f func(ViewEntry) error) error {
	var first ViewEntry // of the message under way, if its entry is a chunk
	c := coalescer{next: func(e Entry) error {
		entry := first
		entry.Entry = e
		return f(entry)
	}}
	err := v.Each(ctx, all, func(e ViewEntry) error {
		if !c.continues(e.Entry) {
			if err := c.flush(); err != nil {
				return err
			}
			first = e
		}
		return c.add(e.Entry)
	})
	if err != nil {
		return err
	}
	return c.flush()
}

// AmbiguousError is a prefix that several sessions' ids begin with.
type AmbiguousError struct {
	Prefix string
	IDs    []string // sorted
}

func (e *AmbiguousError) Error() string {
	return fmt.Sprintf("%q begins the ids of %d sessions; give more of it", e.Prefix, len(e.IDs))
}

// Find returns the id of the one session whose id is prefix, or begins with
// it. Several are an *AmbiguousError. Ids are those of logs that are there; no
// name is made of a prefix.
func (r *Registry) Find(ctx context.Context, prefix string) (string, error) {
	if prefix == "" {
		return "", refuse(BadParams, "a session is named by its id, or the start of it")
	}
	root, _, err := r.agentDir(false)
	if errors.Is(err, fs.ErrNotExist) {
		return "", refuse(NotFound, "there is no session %q", prefix)
	}
	if err != nil {
		return "", storageError("the agent directory "+r.dir+" cannot be read", err)
	}
	places, err := logPlaces(root)
	if err != nil {
		return "", storageError("the sessions cannot be listed", err)
	}
	var ids []string
	for _, p := range places {
		switch id := p.id(); {
		case id == prefix:
			return id, nil
		case strings.HasPrefix(id, prefix):
			ids = append(ids, id)
		}
	}
	switch len(ids) {
	case 0:
		return "", refuse(NotFound, "there is no session %q", prefix)
	case 1:
		return ids[0], ctx.Err()
	}
	slices.Sort(ids)
	return "", &AmbiguousError{Prefix: prefix, IDs: ids}
}
