package session

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/oino-dev/oinod/checkpoints"
	"github.com/oino-dev/oinod/checkpoints/blobs"
	"github.com/oino-dev/oinod/checkpoints/disk"
	"github.com/oino-dev/oinod/checkpoints/journal"
	"github.com/oino-dev/oinod/checkpoints/workspace"
)

// Limits bound what a session keeps.
type Limits struct {
	MaxCheckpoints   int   `json:"maxCheckpoints"`
	MaxSnapshotBytes int64 `json:"maxSnapshotBytes"`
	MaxMessageBytes  int64 `json:"maxMessageBytes"`
}

// DefaultLimits are those of a settings.json that says nothing.
var DefaultLimits = Limits{MaxCheckpoints: 100, MaxSnapshotBytes: 16 << 20, MaxMessageBytes: 64 << 20}

// Event is news of a session for a client that asked for events.
type Event struct {
	SessionID string
	Type      string         // checkpoint, checkpoint_failed, rewound, redone, recovered, evicted, progress
	Data      map[string]any // what else the notification carries
}

// Options is what a Registry needs.
type Options struct {
	Dir      string // the agent directory; made when first needed
	Limits   Limits
	App      string                              // name and version, written in each log's first line
	Now      func() time.Time                    // nil: time.Now
	NewID    func() string                       // nil: UUID version 7
	Event    func(Event)                         // nil: none; called in the order of the records, never with a lock held
	OpenRoot func(dir string) (disk.Root, error) // nil: disk.Open
	// LockPatience is how long the opening of a session waits for its lock: the
	// process before may still be closing. 0: two seconds.
	LockPatience time.Duration

	Tracked TrackedOptions
}

// CreateParams is what a session is made with.
type CreateParams struct {
	Cwd                   string
	AdditionalDirectories []string
	Tracking              Tracking
	InMemory              bool   // persist:false
	Agent                 string // of a wrapped session
}

// Stats counts the sessions that a listing shows, and what the agent directory
// holds.
type Stats struct {
	Sessions    int   `json:"sessions"`
	Checkpoints int   `json:"checkpoints"` // of all these sessions
	Blobs       int   `json:"blobs"`
	Bytes       int64 `json:"bytes"`
}

// TrackedOptions say what tracking "workspace" covers.
type TrackedOptions struct {
	MaxFiles int      // of one root; 0: the default
	MaxBytes int64    // of one root; 0: the default
	Include  []string // lines as of a .gitignore, relative to each root
	Exclude  []string
	Home     string // the user's home directory, never tracked whole
}

// Registry is all sessions of an agent directory, and which of them are open
// here. It is safe for concurrent use.
type Registry struct {
	dir      string
	app      string
	limits   Limits
	now      func() time.Time
	newID    func() string
	event    func(Event)
	openRoot func(dir string) (disk.Root, error)
	tracked  TrackedOptions
	patience time.Duration // with a session's lock

	mu      sync.Mutex // never held across I/O but the first opening of the agent directory
	root    disk.Root  // the agent directory; nil until it is first needed
	store   *blobs.Store
	trees   *workspace.Store // nil until a tracked session is opened
	open    map[string]*Session
	opening map[string]chan struct{} // closed when the opening of the session has ended
	places  map[string]place         // where logs were last seen, by session id
	stopped bool

	summaries  summaries
	neighbours neighbours
}

// OpenRegistry returns the sessions of an agent directory. It reads nothing yet.
func OpenRegistry(o Options) (*Registry, error) {
	if o.Limits.MaxCheckpoints <= 0 || o.Limits.MaxSnapshotBytes <= 0 || o.Limits.MaxMessageBytes <= 0 {
		return nil, fmt.Errorf("limits must be positive: %+v", o.Limits)
	}
	r := &Registry{
		dir: o.Dir, app: o.App, limits: o.Limits, now: o.Now, newID: o.NewID, event: o.Event, openRoot: o.OpenRoot, tracked: o.Tracked, patience: o.LockPatience,
		open: map[string]*Session{}, opening: map[string]chan struct{}{}, places: map[string]place{},
	}
	if r.now == nil {
		r.now = time.Now
	}
	if r.patience == 0 {
		r.patience = 2 * time.Second
	}
	if r.newID == nil {
		r.newID = func() string { return uuid.Must(uuid.NewV7()).String() }
	}
	if r.openRoot == nil {
		r.openRoot = disk.Open
	}
	return r, nil
}

// agentDir opens the agent directory, making it when create is set. Without
// create, one that is not there is fs.ErrNotExist.
func (r *Registry) agentDir(create bool) (disk.Root, *blobs.Store, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.root != nil {
		return r.root, r.store, nil
	}
	if r.stopped {
		return nil, nil, errors.New("shutting down")
	}
	if create {
		if err := disk.MakePrivate(r.dir); err != nil {
			return nil, nil, err
		}
	}
	root, err := r.openRoot(r.dir)
	if err != nil {
		return nil, nil, err
	}
	r.root, r.store = root, blobs.Open(root)
	return r.root, r.store, nil
}

// tracking is the store of tracked trees, opened with the first use. Without
// create, an agent directory that is not there is fs.ErrNotExist.
func (r *Registry) tracking(create bool) (*workspace.Store, error) {
	root, store, err := r.agentDir(create)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.trees == nil {
		l := workspace.DefaultLimits
		l.MaxKept = r.limits.MaxSnapshotBytes
		if r.tracked.MaxFiles > 0 {
			l.MaxFiles = r.tracked.MaxFiles
		}
		if r.tracked.MaxBytes > 0 {
			l.MaxBytes = r.tracked.MaxBytes
		}
		r.trees = workspace.New(workspace.Config{
			Root: root, AgentDir: r.dir, Blobs: store, Home: r.tracked.Home, Limits: l,
			Include: r.tracked.Include, Exclude: r.tracked.Exclude, Now: r.now,
		})
	}
	return r.trees, nil
}

// alive reports whether a live process has the session open.
func (r *Registry) alive(id string) bool {
	r.mu.Lock()
	here := r.open[id] != nil
	r.mu.Unlock()
	if here {
		return true
	}
	root, p, err := r.find(id)
	if err != nil {
		return false
	}
	lock, err := takeLock(root, p)
	if err == nil {
		return lock.Unlock() != nil
	}
	e, ok := errors.AsType[*Error](err)
	return ok && e.Kind == Locked
}

// aliveOnce is alive for one operation, which asks for each session once: each
// question tries a lock, and a turn may share thousands of changes.
func (r *Registry) aliveOnce() func(id string) bool {
	known := map[string]bool{}
	return func(id string) bool {
		is, ok := known[id]
		if !ok {
			is = r.alive(id)
			known[id] = is
		}
		return is
	}
}

// Get returns the session, opening it (and taking its lock) if it is on disk
// and not open. id is a whole id.
func (r *Registry) Get(ctx context.Context, id string) (*Session, error) {
	for {
		r.mu.Lock()
		if s := r.open[id]; s != nil {
			r.mu.Unlock()
			return s, nil
		}
		if r.stopped {
			r.mu.Unlock()
			return nil, refuse(NotFound, "session %q is closed: the process is ending", id)
		}
		wait := r.opening[id]
		if wait == nil {
			break
		}
		r.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	done := make(chan struct{})
	r.opening[id] = done
	r.mu.Unlock()
	s, err := r.openSession(ctx, id)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.opening, id)
	close(done)
	if err != nil {
		return nil, err
	}
	r.open[id] = s
	return s, nil
}

// Load opens a session for a client that names its cwd, which must be the
// stored one, and takes new additional directories.
func (r *Registry) Load(ctx context.Context, id, cwd string, additional []string) (*Session, error) {
	s, err := r.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	if !checkpoints.SameDir(cwd, s.cwd) {
		return nil, refuse(BadParams, "session %s works in %s, not in %s", id, s.cwd, cwd)
	}
	return s, s.takeDirs(ctx, additional)
}

// find says where the log of a session lies. Ids are compared with names that
// are there; no name is made of an id.
func (r *Registry) find(id string) (disk.Root, place, error) {
	notFound := refuse(NotFound, "there is no session %q", id)
	root, _, err := r.agentDir(false)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, place{}, notFound
	}
	if err != nil {
		return nil, place{}, storageError("the agent directory "+r.dir+" cannot be read", err)
	}
	r.mu.Lock()
	p, ok := r.places[id]
	r.mu.Unlock()
	if ok {
		if _, _, err := p.stat(root); err == nil {
			return root, p, nil
		}
	}
	places, err := logPlaces(root)
	if err != nil {
		return nil, place{}, storageError("the sessions cannot be listed", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.places = map[string]place{}
	for _, p := range places {
		r.places[p.id()] = p
	}
	if p, ok := r.places[id]; ok {
		return root, p, nil
	}
	return nil, place{}, notFound
}

// Close closes an open session: after states are fixed, the turn stays open.
// Closing one that is not open but exists is no error.
func (r *Registry) Close(ctx context.Context, id string) error {
	r.mu.Lock()
	s := r.open[id]
	r.mu.Unlock()
	if s == nil {
		_, _, err := r.find(id)
		return err
	}
	return s.close(ctx, true)
}

// takeLock takes a session's lock or says who has it.
func takeLock(root disk.Root, p place) (*journal.Lock, error) {
	lock, err := journal.TryLock(path.Join(root.Name(), p.lock()))
	if l, ok := errors.AsType[*journal.LockedError](err); ok {
		e := refuse(Locked, "session %s is open in another process (%v); close it there first", p.id(), l)
		e.Data = map[string]any{"pid": l.PID}
		return nil, e
	}
	if err != nil {
		return nil, storageError("the lock of session "+p.id()+" cannot be taken", err)
	}
	return lock, nil
}

// Shutdown closes every open session and the stores. Nothing opens after it.
func (r *Registry) Shutdown(ctx context.Context) error {
	r.mu.Lock()
	r.stopped = true
	var open []*Session
	for _, s := range r.open {
		open = append(open, s)
	}
	r.mu.Unlock()
	var errs []error
	for _, s := range open {
		errs = append(errs, s.close(ctx, true))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.root != nil {
		errs = append(errs, r.store.Close(), r.root.Close())
		r.root, r.store, r.trees = nil, nil, nil
	}
	return errors.Join(errs...)
}

// Stats counts.
func (r *Registry) Stats(ctx context.Context) (Stats, error) {
	var st Stats
	if err := r.EachInfo(ctx, "", func(i Info) error {
		st.Sessions++
		st.Checkpoints += i.Checkpoints
		return nil
	}); err != nil {
		return st, err
	}
	_, store, err := r.agentDir(false)
	if errors.Is(err, fs.ErrNotExist) {
		return st, nil
	}
	if err != nil {
		return st, storageError("the agent directory "+r.dir+" cannot be read", err)
	}
	if st.Blobs, st.Bytes, err = store.Stats(); err != nil {
		return st, storageError("the kept contents cannot be counted", err)
	}
	return st, nil
}
