//go:build linux || darwin

package workspace

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/oino-dev/oinod/checkpoints/disk"
)

// osMachine is the real file system. It works with descriptors and names
// relative to them: going down from the root by name for each file, as os.Root
// does, costs several times what the file's own lstat does.
type osMachine struct{}

func (osMachine) openRoot(path string) (rootDir, error) {
	fd, err := again(func() (int, error) {
		return unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return &rootFD{fd: fd, listings: sync.Pool{New: func() any { b := make([]byte, 64<<10); return &b }}}, nil
}

// again repeats what a signal interrupted.
func again[T any](f func() (T, error)) (T, error) {
	for {
		v, err := f()
		if err != unix.EINTR {
			return v, err
		}
	}
}

type rootFD struct {
	fd       int
	listings sync.Pool // *[]byte, for names: one is enough for most directories
}

func (r *rootFD) close() { unix.Close(r.fd) }

func (r *rootFD) openDir(rel string) (dir, error) {
	if rel == "" {
		rel = "."
	}
	fd, err := disk.OpenBeneath(r.fd, rel, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: rel, Err: err}
	}
	return &dirFD{root: r, fd: fd}, nil
}

type dirFD struct {
	root *rootFD
	fd   int
}

func (d *dirFD) close() { unix.Close(d.fd) }

func (d *dirFD) ident() (ident, error) {
	var st unix.Stat_t
	if _, err := again(func() (struct{}, error) { return struct{}{}, unix.Fstat(d.fd, &st) }); err != nil {
		return ident{}, err
	}
	return ident{uint64(st.Dev), st.Ino}, nil
}

func (d *dirFD) lstat(name string) (stat, error) {
	var st unix.Stat_t
	for {
		err := unix.Fstatat(d.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW)
		if err == nil {
			return statOf(&st), nil
		}
		if err != unix.EINTR {
			return stat{}, err
		}
	}
}

func statOf(st *unix.Stat_t) stat {
	s := stat{
		mode:  uint32(st.Mode) & 0o7777,
		size:  st.Size,
		mtime: st.Mtim.Nano(),
		ctime: st.Ctim.Nano(),
		ino:   st.Ino,
	}
	switch uint32(st.Mode) & unix.S_IFMT {
	case unix.S_IFREG:
		s.kind = regular
	case unix.S_IFDIR:
		s.kind = directory
	case unix.S_IFLNK:
		s.kind = link
	default:
		s.kind = special
	}
	return s
}

func (d *dirFD) readlink(name string) (string, error) {
	for size := 256; ; size *= 2 {
		b := make([]byte, size)
		n, err := again(func() (int, error) { return unix.Readlinkat(d.fd, name, b) })
		if err == unix.EINVAL {
			return "", errKind
		}
		if err != nil {
			return "", err
		}
		if n < size {
			return string(b[:n]), nil
		}
	}
}

// open waits for nobody: a FIFO that took the file's place since it was seen
// is opened without blocking, found to be none, and closed.
func (d *dirFD) open(name string) (file, error) {
	fd, err := again(func() (int, error) {
		return unix.Openat(d.fd, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	})
	if errors.Is(err, unix.ELOOP) {
		return nil, errKind
	}
	if err != nil {
		return nil, err
	}
	f := &fileFD{fd: fd}
	if st, err := f.stat(); err != nil || st.kind != regular {
		f.close()
		if err == nil {
			err = errKind
		}
		return nil, err
	}
	return f, nil
}

type fileFD struct {
	fd int
}

func (f *fileFD) close() { unix.Close(f.fd) }

func (f *fileFD) Read(b []byte) (int, error) {
	n, err := again(func() (int, error) { return unix.Read(f.fd, b) })
	if err != nil {
		return 0, err
	}
	if n == 0 && len(b) > 0 {
		return 0, io.EOF
	}
	return n, nil
}

func (f *fileFD) Seek(offset int64, whence int) (int64, error) {
	return unix.Seek(f.fd, offset, whence)
}

func (f *fileFD) stat() (stat, error) {
	var st unix.Stat_t
	if _, err := again(func() (struct{}, error) { return struct{}{}, unix.Fstat(f.fd, &st) }); err != nil {
		return stat{}, err
	}
	return statOf(&st), nil
}

// identOfPath is which directory path is, links followed.
func identOfPath(path string) ident {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return ident{}
	}
	return ident{uint64(st.Dev), st.Ino}
}

// openRegular opens a file of a repository's own, links followed as git does,
// waiting for nobody.
func openRegular(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
}

// isLoop reports a link where a directory should be.
func isLoop(err error) bool { return errors.Is(err, unix.ELOOP) }
