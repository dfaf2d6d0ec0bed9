package workspace

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/gofrs/flock"

	"github.com/oino-dev/oinod/checkpoints/disk"
)

// lockName is the name of a tree's lock in its directory.
const lockName = "lock"

// locker is a Root that locks its names itself, because it is no directory of
// the operating system: a test's.
type locker interface {
	Lock(name string, shared, wait bool) (unlock func() error, ok bool, err error)
}

// retryLock is how long a process waits before it asks again for a lock that
// another has. The operating system tells nobody that it came free.
const retryLock = 3 * time.Millisecond

// lockFile locks the file name of root alone, waiting until it is free. The
// lock ends with its process. An error of fs.ErrNotExist: there is no directory
// for it, any more.
func lockFile(ctx context.Context, root disk.Root, name string) (unlock func() error, err error) {
	for {
		if err := makeLock(root, name); err != nil {
			return nil, err
		}
		if l, ok := root.(locker); ok {
			unlock, _, err := l.Lock(name, false, true)
			return unlock, err
		}
		l := flockOf(root, name)
		_, err := l.TryLockContext(ctx, retryLock)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it was removed since it was made
		}
		if err != nil {
			return nil, err
		}
		if stillThere(l) {
			return l.Unlock, nil
		}
		_ = l.Unlock() // of a file whose name is gone: nobody else locks that
	}
}

// tryLockFile locks the file name of root, which is there, if nobody has it;
// else unlock is nil. Unlocking removes the file, if it is told to.
func tryLockFile(root disk.Root, name string) (unlock func(remove bool) error, err error) {
	if err := makeLock(root, name); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return nil, err
	}
	if l, ok := root.(locker); ok {
		release, ok, err := l.Lock(name, false, false)
		if err != nil || !ok {
			return nil, err
		}
		return func(remove bool) error {
			if remove {
				return errors.Join(root.Remove(name), release())
			}
			return release()
		}, nil
	}
	l := flockOf(root, name)
	ok, err := l.TryLock()
	if errors.Is(err, fs.ErrNotExist) || err == nil && !ok {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if !stillThere(l) {
		return nil, l.Unlock()
	}
	return func(remove bool) error {
		if !remove {
			return l.Unlock()
		}
		if runtime.GOOS == "windows" { // where an open file cannot be removed
			if err := l.Unlock(); err != nil {
				return err
			}
			_ = root.Remove(name) // or somebody else has it by now
			return nil
		}
		return errors.Join(root.Remove(name), l.Unlock())
	}, nil
}

func makeLock(root disk.Root, name string) error {
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(f.Chmod(0o600), f.Close())
}

func flockOf(root disk.Root, name string) *flock.Flock {
	return flock.New(filepath.Join(root.Name(), filepath.FromSlash(name)), flock.SetFlag(os.O_RDWR))
}

// stillThere reports whether what l has locked still has its name.
func stillThere(l *flock.Flock) bool {
	locked, err := l.Stat()
	if err != nil {
		return false
	}
	named, err := os.Lstat(l.Path())
	return err == nil && os.SameFile(locked, named)
}
