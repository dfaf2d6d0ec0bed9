package workspace

import (
	"errors"
	"io"
	"io/fs"
	"syscall"

	"golang.org/x/sync/errgroup"
)

// kind is what the file system says a name is.
type kind uint8

const (
	noKind kind = iota // not told
	regular
	directory
	link
	special // a FIFO, a socket, a device
)

// stat is what the stat cache compares. Whatever changes a file's bytes, mode
// or kind changes one of these: ctime cannot be set back by anybody.
type stat struct {
	kind         kind
	mode         uint32 // permissions with setuid, setgid, sticky
	size         int64
	mtime, ctime int64 // nanoseconds
	ino          uint64
}

// ident says which directory of the machine something is; zero: not known.
type ident struct{ dev, ino uint64 }

// machine is the file system as a walk needs it, so that tests can put
// failures in its way. Nothing here follows a link below a root, opens what is
// no regular file or directory, waits for anybody, or writes.
type machine interface {
	openRoot(path string) (rootDir, error)
}

// rootDir is an open root.
type rootDir interface {
	// openDir opens the directory rel, slash-separated, "" for the root; a
	// link anywhere on the way is an error.
	openDir(rel string) (dir, error)
	close()
}

// dir is an open directory. One goroutine uses it.
type dir interface {
	// names calls f for every name but "." and "..", in any order. The bytes
	// are valid until f returns.
	names(f func(name []byte, k kind)) error
	lstat(name string) (stat, error)
	readlink(name string) (string, error)
	// open opens a regular file; errKind if it is something else by now.
	open(name string) (file, error)
	ident() (ident, error)
	close()
}

// file is an open regular file.
type file interface {
	io.ReadSeeker
	stat() (stat, error)
	close()
}

// errKind is a name that is not what it was a moment ago.
var errKind = errors.New("it became something else while it was looked at")

// missing reports an error that says there is no such name, or that a
// directory on the way to it is none.
func missing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// replaced reports that a directory is none any more.
func replaced(err error) bool { return missing(err) || errors.Is(err, errKind) || isLoop(err) }

// cause is what the disk said, without the operation and the name.
func cause(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}

// workers is how many goroutines walk and read: two keep two cores busy with
// what the kernel does for a stat, and more than a few only wait for its locks.
func workers(procs int) int { return max(2, min(procs, 8)) }

// parallel runs f n times, side by side.
func parallel(n int, f func() error) error {
	var g errgroup.Group
	for range n {
		g.Go(f)
	}
	return g.Wait()
}
