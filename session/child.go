package session

import (
	"context"
	"errors"
	"path"
	"slices"

	"github.com/oino-dev/oinod/checkpoints"
	"github.com/oino-dev/oinod/checkpoints/disk"
)

// Branch lists the entries from the first to entryID ("": the leaf), oldest
// first, anywhere in the tree; content is not read.
func (s *Session) Branch(entryID string) ([]Entry, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	leaf := s.state.leaf
	if entryID != "" {
		if leaf = s.state.nodes[entryID]; leaf == nil {
			return nil, refuse(EntryNotFound, "session %s has no entry %q", s.id, entryID)
		}
	}
	var entries []Entry
	for _, n := range s.state.branch(leaf) {
		entries = append(entries, Entry{ID: n.id, ParentID: n.parentID, Role: n.role, CreatedAt: n.createdAt, ToolCallID: n.toolCallID, Status: n.status})
	}
	return entries, nil
}

// Ahead lists the paths that turns which the entries do not hold have changed
// since. Of turns that are evicted only what came of all together is known: a
// path that some of them changed, and not all of these are held, is listed.
func (s *Session) Ahead(entryIDs []string) []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	held := setOf(entryIDs)
	var ahead []string
	for _, p := range s.state.pathOrder {
		var first, last *interval
		part := false
		for _, iv := range s.state.paths[p] {
			newest := iv.last
			if iv.turn != nil {
				newest = iv.turn.entry
			}
			if iv.out || newest == nil || held[newest.id] {
				continue
			}
			if first == nil {
				first = iv
				part = iv.first != nil && held[iv.first.id]
			}
			last = iv
		}
		if first != nil && (part || checkpoints.ChangeOf(first.before, last.after) != "") {
			ahead = append(ahead, p)
		}
	}
	return ahead
}

// Child is a session that is written but not yet there: nobody finds it
// before Publish.
type Child struct {
	session *Session // with the log of an unpublished one closed
	parent  string
	root    disk.Root // nil in memory
	// done: it was published or discarded, or the intent of a rewind names it:
	// then what comes of it is what comes of the rewind, at the latest when the
	// parent is next opened.
	done bool
}

// Stage writes a new session that holds the entries (a branch from its first
// entry) with their ids, parents, times and whole turns, and everything their
// checkpoints need. The source's log is not written. additional are the
// child's directories, nil for the source's; a bad one is a
// *checkpoints.PathError, and nothing is written.
func (r *Registry) Stage(ctx context.Context, s *Session, entryIDs []string, additional []string) (*Child, error) {
	end, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	if err := r.CheckRoots(s.cwd, additional); err != nil {
		return nil, err
	}
	if additional == nil {
		additional = s.state.dirs
	}
	h := &headerRecord{
		Type: "session", Version: formatVersion, ID: r.newID(), Cwd: s.cwd, AdditionalDirectories: additional,
		CreatedAt: s.now(), App: r.app, Tracking: s.tracking, ParentSessionID: s.id, Agent: s.state.head.Agent,
	}
	st := s.state
	if t := st.open; t != nil && s.tracker != nil {
		// In the fork the turn has ended, with what is there.
		ended, err := s.ending(ctx, t, "fork", false, false)
		if err == nil {
			st, err = st.with(ended)
		}
		if err != nil {
			return nil, err
		}
	}
	records, err := s.copyRecords(ctx, st, entryIDs)
	if err != nil {
		return nil, err
	}
	if err := s.syncBlobs(); err != nil {
		return nil, err
	}
	records = append([]any{h}, records...)
	c := &Child{session: r.session(h), parent: s.id}
	c.session.blobs, c.session.inMemory = s.blobs, s.inMemory
	if s.inMemory {
		c.session.log = &memoryLog{}
		if err := c.session.commit(records...); err != nil {
			return nil, err
		}
		c.session.ws, err = r.workspace(h.Cwd, additional, s.blobs, false)
		return c, err
	}
	if c.root, _, err = r.agentDir(false); err != nil {
		return nil, storageError("the agent directory "+r.dir+" cannot be used", err)
	}
	// Beside its parent: there the parent's next open finds what a crash left.
	c.session.place = place{s.place.dir, newPlace(h).name}
	w, err := writeLog(c.root, c.session.place.staged(s.id), records, nil)
	if err != nil {
		return nil, storageError("the fork could not be written", err)
	}
	if err := w.Close(); err != nil {
		c.Discard()
		return nil, storageError("the fork could not be written", err)
	}
	return c, nil
}

// copyRecords are the records of a fork that holds the entries: the entries,
// then what their turns did, in the same order.
func (s *Session) copyRecords(ctx context.Context, st *state, entryIDs []string) ([]any, error) {
	var records []any
	forked := &forkedRecord{Type: "forked"}
	held := setOf(entryIDs)
	for _, id := range entryIDs {
		n := st.nodes[id]
		if n == nil {
			return nil, refuse(EntryNotFound, "session %s has no entry %q", s.id, id)
		}
		if d := st.damagedSince(n.order); d != nil && n.role == User {
			return nil, &Error{Kind: LogDamaged, Msg: "line " + itoa(d.line) + " of the log of session " + s.id + " is damaged, and a fork may need it", Err: d.err}
		}
		object, err := s.log.ReadAt(n.pos)
		if err != nil {
			return nil, &Error{Kind: LogDamaged, Msg: "entry " + id + " of session " + s.id + " cannot be read", Err: err}
		}
		rec, err := decodeRecord(object)
		if err != nil {
			return nil, err
		}
		records = append(records, rec)
		forked.Leaf = id
		if n.dropped {
			forked.Dropped = append(forked.Dropped, id)
		}
		if n.role == User && n.order < st.evicted {
			forked.Evicted = id
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	did, err := s.copyIntervals(st, entryIDs, forked.Evicted)
	if err != nil {
		return nil, err
	}
	records = slices.Concat(did.first, records, did.rest)
	forked.Boundary = did.boundary
	for _, id := range entryIDs {
		if m := st.nodes[id].messageID; m != "" {
			records = append(records, &messageRecord{Type: "message", Entry: id, MessageID: m})
		}
		if l := st.labels[id]; l != "" {
			records = append(records, &labelRecord{Type: "label", Entry: id, Label: l})
		}
		if rec := st.driver[id]; rec != nil {
			records = append(records, rec)
		}
	}
	if st.title != "" && len(held) > 0 {
		records = append(records, &titleRecord{Type: "title", Title: st.title})
	}
	return append(records, forked), nil
}

// ID names the session that Publish makes.
func (c *Child) ID() string { return c.session.id }

// Publish makes the staged session a session, durably.
func (c *Child) Publish(ctx context.Context) error {
	r := c.session.reg
	if c.root != nil {
		release, err := c.session.blobs.Hold() // Collect sees it under the one name or the other
		if err == nil {
			err = publishLog(c.root, c.session.place, c.parent)
			release()
		}
		if err != nil {
			return storageError("the fork could not be published", err)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c.done = true
	if c.root == nil {
		r.open[c.session.id] = c.session
	} else {
		r.places[c.session.id] = c.session.place
	}
	return nil
}

// Discard leaves nothing of it. After Publish, and once a rewind has promised
// it, it does nothing.
func (c *Child) Discard() error {
	if c.done {
		return nil
	}
	return c.remove()
}

func (c *Child) remove() error {
	c.done = true
	if c.root == nil {
		return c.session.ws.Close()
	}
	return errors.Join(c.root.Remove(c.session.place.staged(c.parent)), c.root.SyncDir(path.Dir(c.session.place.log())))
}
