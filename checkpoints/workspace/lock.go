package workspace

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"

	"github.com/oino-dev/oinod/checkpoints/disk"
)

// locker is a Root that locks its names itself, because it is no directory of
// the operating system: a test's.
type locker interface {
	Lock(name string, shared, wait bool) (unlock func() error, ok bool, err error)
}

// retryLock is how long a process waits before it asks again for a lock that
// another has. The operating system tells nobody that it came free.
const retryLock = 3 * time.Millisecond

// lockFile locks the file name of root alone, waiting until it is free. The
// lock ends with its process; the file is never removed.
func lockFile(ctx context.Context, root disk.Root, name string) (unlock func() error, err error) {
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		err = errors.Join(f.Chmod(0o600), f.Close())
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	if l, ok := root.(locker); ok {
		unlock, _, err := l.Lock(name, false, true)
		return unlock, err
	}
	l := flock.New(filepath.Join(root.Name(), filepath.FromSlash(name)), flock.SetFlag(os.O_RDWR))
	if _, err := l.TryLockContext(ctx, retryLock); err != nil {
		return nil, err
	}
	return l.Unlock, nil
}
