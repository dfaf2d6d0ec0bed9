package blobs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/gofrs/flock"

	"github.com/oino-dev/oinod/checkpoints/disk"
)

// locker is a Root that locks its names itself, because it is no directory of
// the operating system: a test's.
type locker interface {
	Lock(name string, shared, wait bool) (unlock func() error, ok bool, err error)
}

// lockFile locks the file name of root, which is made (0600) if it is not
// there and never removed. Every call is another holder, in one process too.
func lockFile(root disk.Root, name string, shared, wait bool) (unlock func() error, ok bool, err error) {
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		err = errors.Join(f.Chmod(0o600), f.Close())
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, false, err
	}
	if l, has := root.(locker); has {
		return l.Lock(name, shared, wait)
	}
	l := flock.New(filepath.Join(root.Name(), filepath.FromSlash(name)), flock.SetFlag(os.O_RDWR))
	switch {
	case shared && wait:
		err, ok = l.RLock(), true
	case shared:
		ok, err = l.TryRLock()
	default:
		ok, err = l.TryLock()
	}
	if err != nil || !ok {
		return nil, false, err
	}
	return l.Unlock, true, nil
}

// holds is who keeps Collect away: the holders in this store share one file
// lock among them.
type holds struct {
	mu     sync.Mutex
	change sync.Cond // busy has ended
	n      int
	// busy is set while Collect runs, and while the first holder waits for
	// the file lock, which another process may keep for a while: without mu.
	busy   bool
	unlock func() error // while n > 0
}

// hold adds a holder. take gets the shared lock for the first one.
func (h *holds) hold(take func() (func() error, error)) (release func(), err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for h.busy {
		h.change.Wait()
	}
	if h.n == 0 {
		h.busy = true
		h.mu.Unlock()
		unlock, err := take()
		h.mu.Lock()
		h.notBusy()
		if err != nil {
			return nil, err
		}
		h.unlock = unlock
	}
	h.n++
	return sync.OnceFunc(h.release), nil
}

func (h *holds) notBusy() {
	h.busy = false
	h.change.Broadcast()
}

func (h *holds) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.n--; h.n == 0 {
		_ = h.letGo()
	}
}

func (h *holds) letGo() error {
	unlock := h.unlock
	h.unlock = nil
	if unlock == nil {
		return nil
	}
	return unlock()
}

// end lets the lock go, whoever still holds: the store is closed.
func (h *holds) end() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.letGo()
}

// exclude keeps holders away until the returned function is called; it fails
// with ErrInUse when there is one, or will be.
func (h *holds) exclude() (end func(), err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.n > 0 || h.busy {
		return nil, ErrInUse
	}
	h.busy = true
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.notBusy()
	}, nil
}
