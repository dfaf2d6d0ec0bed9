package session

import (
	"context"
	"errors"
	"io/fs"
)

// Delete removes a session. One that is open in another process is Locked.
func (r *Registry) Delete(ctx context.Context, id string) error {
	r.mu.Lock()
	s := r.open[id]
	r.mu.Unlock()
	if s != nil && s.inMemory {
		return s.close(ctx, false)
	}
	root, p, err := r.find(id)
	if err != nil {
		return err
	}
	if s != nil {
		if err := s.close(ctx, false); err != nil {
			return err
		}
	}
	h, err := readHeader(root, p)
	if err != nil {
		if e, ok := errors.AsType[*Error](err); ok && e.Kind == NewerVersion {
			return err // it is not ours to judge
		}
	}
	var tracked []string
	if s != nil {
		tracked = s.state.tracks()
	} else if h != nil && h.Tracking == Workspace {
		tracked = []string{h.Cwd}
		if stored, err := p.read(root, nil); err == nil {
			tracked = stored.state.tracks()
		}
	}
	lock, err := takeLock(root, p)
	if err != nil {
		return err
	}
	// The packed one first: it may be older than the plain one beside it.
	for _, name := range []string{p.packed(), p.log()} {
		if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return errors.Join(storageError("session "+id+" could not be deleted", err), lock.Unlock())
		}
	}
	if len(tracked) > 0 {
		r.release(ctx, id, tracked)
	}
	r.mu.Lock()
	delete(r.places, id)
	r.mu.Unlock()
	if err := errors.Join(root.SyncDir(p.dir), lock.Remove()); err != nil {
		return storageError("session "+id+" was deleted, but a power cut could bring it back", err)
	}
	return nil
}

// release lets the captures go that a deleted session still held of
// directories. A failure keeps them longer.
func (r *Registry) release(ctx context.Context, id string, dirs []string) {
	store, err := r.tracking(true)
	if err != nil {
		return
	}
	w, err := store.Open(id, dirs)
	if err != nil {
		return
	}
	_ = w.ReleaseAll(ctx)
	_ = w.Close()
}
