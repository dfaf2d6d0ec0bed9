package journal

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strconv"

	"github.com/gofrs/flock"
)

// LockedError says who holds a lock.
type LockedError struct{ PID int }

func (e *LockedError) Error() string {
	if e.PID == 0 {
		return "locked by another process"
	}
	return fmt.Sprintf("locked by process %d", e.PID)
}

// Lock is an exclusive hold on a name, let go when its process ends.
type Lock struct {
	path  string
	flock *flock.Flock
}

// TryLock takes the lock file at path (absolute; made 0600, holding the
// owner's pid) or returns a *LockedError. Two holders in one process exclude
// each other as well.
func TryLock(path string) (*Lock, error) {
	for {
		if err := makeLockFile(path); err != nil {
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		f := flock.New(path, flock.SetFlag(os.O_RDWR))
		ok, err := f.TryLock()
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed since it was made
		}
		if err != nil {
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if !ok {
			return nil, &LockedError{PID: readPID(path)}
		}
		if !stillThere(path, f) {
			f.Unlock()
			continue
		}
		// The lock is held whether or not the pid can be written: a full disk
		// must not keep anybody from rewinding.
		_ = writePID(path, strconv.Itoa(os.Getpid())+"\n")
		return &Lock{path: path, flock: f}, nil
	}
}

// Unlock lets go. The file stays. A second call does nothing.
func (l *Lock) Unlock() error {
	if !l.flock.Locked() {
		return nil
	}
	_ = writePID(l.path, "") // so that it is not taken for the next owner's
	return l.flock.Unlock()
}

// Remove unlinks the file and lets go: for a log that was deleted. Whoever
// waits with the file open finds that its name is gone and starts afresh.
func (l *Lock) Remove() error {
	if !l.flock.Locked() {
		return nil
	}
	if runtime.GOOS == "windows" { // where an open file cannot be removed
		if err := l.flock.Unlock(); err != nil {
			return err
		}
		return os.Remove(l.path)
	}
	return errors.Join(os.Remove(l.path), l.flock.Unlock())
}

// makeLockFile makes sure that there is a lock file. Its first byte, a space,
// is what Windows locks and then lets nobody read; the pid follows it.
func makeLockFile(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Chmod(0o600); err != nil && runtime.GOOS != "windows" {
		return err
	}
	_, _ = f.WriteString(" ") // a lock needs no bytes, only its reader does
	return nil
}

// stillThere reports whether path leads to the file that f has locked.
func stillThere(path string, f *flock.Flock) bool {
	locked, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Lstat(path)
	return err == nil && os.SameFile(locked, named)
}

// writePID replaces what follows the first byte. A second handle is no danger
// to the lock, which belongs to the first.
func writePID(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Truncate(1); err != nil {
		return err
	}
	_, err = f.WriteAt([]byte(text), 1)
	return err
}

// readPID returns the pid in the lock file, 0 if there is none to be read.
func readPID(path string) int {
	f, err := os.Open(path)
	if err != nil {
		return 0
	}
	defer f.Close()
	b := make([]byte, 32)
	n, _ := f.ReadAt(b, 1)
	pid, err := strconv.Atoi(string(bytes.TrimSpace(b[:n])))
	if err != nil {
		return 0
	}
	return pid
}
