package session

import (
	"context"
	"errors"
	"path"
	"strconv"

	"github.com/oino-dev/oinod/checkpoints"
	"github.com/oino-dev/oinod/checkpoints/blobs"
	"github.com/oino-dev/oinod/checkpoints/disk"
	"github.com/oino-dev/oinod/checkpoints/journal"
)

// Create makes a session and opens it. A bad cwd is a *checkpoints.PathError
// or BadParams.
func (r *Registry) Create(ctx context.Context, p CreateParams) (*Session, error) {
	switch {
	case p.Tracking == "":
		p.Tracking = Files
	case p.Tracking == Workspace && p.InMemory:
		return nil, refuse(TrackingUnavailable, "a session in memory cannot have tracking %q; use %q", p.Tracking, Files)
	case p.Tracking != Files && p.Tracking != Workspace:
		return nil, refuse(TrackingUnavailable, "there is no tracking %q; use %q or %q", p.Tracking, Files, Workspace)
	}
	h := &headerRecord{
		Type: "session", Version: formatVersion, ID: r.newID(), Cwd: p.Cwd, AdditionalDirectories: p.AdditionalDirectories,
		CreatedAt: r.now().UnixMilli(), App: r.app, Tracking: p.Tracking, Agent: p.Agent,
	}
	s := r.session(h)
	store := blobs.Memory()
	var root disk.Root
	if s.inMemory = p.InMemory; !s.inMemory {
		var err error
		if root, store, err = r.agentDir(true); err != nil {
			return nil, storageError("the agent directory "+r.dir+" cannot be used", err)
		}
	}
	s.blobs = store
	var err error
	if s.ws, err = r.workspace(p.Cwd, p.AdditionalDirectories, store, false); err != nil {
		return nil, err
	}
	if s.inMemory {
		s.log = &memoryLog{}
		if err := s.commit(h); err != nil {
			return nil, err
		}
	} else if err := s.createLog(root, h); err != nil {
		s.ws.Close()
		return nil, storageError("the session could not be made", err)
	}
	if p.Tracking == Workspace {
		if err := s.track(true); err != nil {
			return nil, storageError("the workspace cannot be tracked", errors.Join(err, s.close(ctx, false)))
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open[s.id] = s
	if !s.inMemory {
		r.places[s.id] = s.place
	}
	return s, nil
}

// session is a Session that is not open yet.
func (r *Registry) session(h *headerRecord) *Session {
	return &Session{id: h.ID, cwd: h.Cwd, tracking: h.Tracking, reg: r, op: make(chan struct{}, 1), state: newState(),
		opened: map[int]int{}, openedSession: r.neighbours.now()}
}

// CheckRoots reports why a session that works in cwd could not have the
// additional directories; nil is none.
func (r *Registry) CheckRoots(cwd string, additional []string) error {
	if additional == nil {
		return nil
	}
	ws, err := r.workspace(cwd, additional, blobs.Memory(), false)
	if err != nil {
		return err
	}
	return ws.Close()
}

// workspace opens the roots of a session. Those of a stored one may be gone:
// it can still be read.
func (r *Registry) workspace(cwd string, additional []string, store *blobs.Store, stored bool) (*checkpoints.Workspace, error) {
	return checkpoints.OpenWorkspace(checkpoints.Config{
		Roots: append([]string{cwd}, additional...), AgentDir: r.dir, Blobs: store, MaxKept: r.limits.MaxSnapshotBytes, OpenRoot: r.openRoot,
		MayBeGone: stored,
	})
}

// newPlace is where the log of a new session goes.
func newPlace(h *headerRecord) place {
	return place{
		dir:  path.Join("sessions", checkpoints.WorkspaceKey(h.Cwd)),
		name: strconv.FormatInt(h.CreatedAt, 10) + "_" + h.ID,
	}
}

// createLog takes the new session's lock and writes its log.
func (s *Session) createLog(root disk.Root, records ...any) error {
	s.place = newPlace(records[0].(*headerRecord))
	if err := disk.MkdirAll(root, s.place.dir, 0o700); err != nil {
		return err
	}
	lock, err := journal.TryLock(path.Join(root.Name(), s.place.lock()))
	if err != nil {
		return err
	}
	w, err := writeLog(root, s.place.log(), records, s.state)
	if err != nil {
		return errors.Join(err, lock.Remove())
	}
	s.log, s.lock = w, lock
	return nil
}

// writeLog writes a new log and folds it into st, unless st is nil.
func writeLog(root disk.Root, name string, records []any, st *state) (*journal.Writer, error) {
	objects := make([][]byte, len(records))
	for i, rec := range records {
		o, err := encodeRecord(rec)
		if err != nil {
			return nil, err
		}
		objects[i] = o
	}
	w, err := journal.Create(root, name, objects...)
	if err != nil || st == nil {
		return w, err
	}
	for _, rec := range records {
		if err := st.apply(rec, journal.Pos{}); err != nil {
			w.Close()
			return nil, err
		}
	}
	return w, nil
}
