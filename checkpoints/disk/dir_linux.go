package disk

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// openDir goes by the kernel's own calls: each takes an open directory and one
// name in it, and none follows a link. What os adds to them (asking whether a
// file can be waited for, finalizers, whole names) takes longer than they do,
// where files are small.
func openDir(r *os.Root, name string) (Dir, error) {
	top, err := r.Open(".")
	if err != nil {
		return nil, err
	}
	defer top.Close()
	fd, err := OpenBeneath(int(top.Fd()), name, unix.O_PATH) // may be one that cannot be listed
	if err != nil {
		return nil, &fs.PathError{Op: "openat", Path: r.Name() + "/" + name, Err: err}
	}
	return &openedDir{fd, r.Name() + "/" + name}, nil
}

type openedDir struct {
	fd   int
	path string
}

// at calls f with the directory and its names, until no signal interrupts it.
func (d *openedDir) at(f func(fd int) error, names ...string) error {
	for _, name := range names {
		if name == "" || name == "." || name == ".." || strings.IndexByte(name, '/') >= 0 {
			return fs.ErrInvalid
		}
	}
	return again(func() error { return f(d.fd) })
}

func (d *openedDir) fail(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: d.path + "/" + name, Err: err}
}

func (d *openedDir) failBoth(op, oldname, newname string, err error) error {
	if err == nil {
		return nil
	}
	return &os.LinkError{Op: op, Old: d.path + "/" + oldname, New: d.path + "/" + newname, Err: err}
}

func (d *openedDir) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	f := &rawFile{dir: d, name: name}
	err := d.at(func(fd int) (err error) {
		f.fd, err = unix.Openat(fd, name, flag|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NOCTTY, uint32(perm.Perm()))
		return err
	}, name)
	if err != nil {
		return nil, d.fail("openat", name, err)
	}
	return f, nil
}

func (d *openedDir) Lstat(name string) (fs.FileInfo, error) {
	var st unix.Stat_t
	err := d.at(func(fd int) error { return unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) }, name)
	if err != nil {
		return nil, d.fail("lstatat", name, err)
	}
	return newRawInfo(name, &st), nil
}

func (d *openedDir) Readlink(name string) (string, error) {
	for size := 256; ; size *= 2 {
		b, n := make([]byte, size), 0
		err := d.at(func(fd int) (err error) {
			n, err = unix.Readlinkat(fd, name, b)
			return err
		}, name)
		if err != nil {
			return "", d.fail("readlinkat", name, err)
		}
		if n < size {
			return string(b[:n]), nil
		}
	}
}

func (d *openedDir) Symlink(target, name string) error {
	return d.fail("symlinkat", name, d.at(func(fd int) error { return unix.Symlinkat(target, fd, name) }, name))
}

func (d *openedDir) Link(oldname, newname string) error {
	err := d.at(func(fd int) error { return unix.Linkat(fd, oldname, fd, newname, 0) }, oldname, newname)
	return d.failBoth("linkat", oldname, newname, err)
}

func (d *openedDir) Rename(oldname, newname string) error {
	err := d.at(func(fd int) error { return unix.Renameat(fd, oldname, fd, newname) }, oldname, newname)
	return d.failBoth("renameat", oldname, newname, err)
}

func (d *openedDir) Exchange(oldname, newname string) error {
	err := d.at(func(fd int) error { return exchange(fd, oldname, fd, newname) }, oldname, newname)
	return d.failBoth("exchange", oldname, newname, err)
}

func (d *openedDir) Remove(name string) error {
	err := d.at(func(fd int) error { return unix.Unlinkat(fd, name, 0) }, name)
	if errors.Is(err, unix.EISDIR) {
		err = d.at(func(fd int) error { return unix.Unlinkat(fd, name, unix.AT_REMOVEDIR) }, name)
	}
	return d.fail("unlinkat", name, err)
}

func (d *openedDir) Lchown(name string, uid, gid int) error {
	return d.fail("lchownat", name, d.at(func(fd int) error { return unix.Fchownat(fd, name, uid, gid, unix.AT_SYMLINK_NOFOLLOW) }, name))
}

func (d *openedDir) Close() error {
	if d.fd < 0 {
		return d.fail("close", "", fs.ErrClosed)
	}
	err := unix.Close(d.fd)
	d.fd = -1
	return d.fail("close", "", err)
}

// rawFile is an open file. One goroutine at a time uses it, and closes it.
type rawFile struct {
	dir  *openedDir
	name string
	fd   int
}

func (f *rawFile) Name() string { return f.dir.path + "/" + f.name }

func (f *rawFile) fail(op string, err error) error { return f.dir.fail(op, f.name, err) }

// move repeats a read or write that a signal interrupted.
func (f *rawFile) move(op string, call func() (int, error)) (n int, err error) {
	err = again(func() (err error) {
		n, err = call()
		return err
	})
	return max(n, 0), f.fail(op, err)
}

func (f *rawFile) Read(b []byte) (int, error) {
	n, err := f.move("read", func() (int, error) { return unix.Read(f.fd, b[:min(len(b), maxMove)]) })
	if n == 0 && err == nil && len(b) > 0 {
		return 0, io.EOF
	}
	return n, err
}

func (f *rawFile) ReadAt(b []byte, off int64) (int, error) {
	if off < 0 {
		return 0, f.fail("readat", fs.ErrInvalid)
	}
	done := 0
	for done < len(b) {
		n, err := f.move("read", func() (int, error) {
			return unix.Pread(f.fd, b[done:min(len(b), done+maxMove)], off+int64(done))
		})
		if err != nil {
			return done, err
		}
		if n == 0 {
			return done, io.EOF
		}
		done += n
	}
	return done, nil
}

func (f *rawFile) Write(b []byte) (int, error) {
	done := 0
	for done < len(b) {
		n, err := f.move("write", func() (int, error) { return unix.Write(f.fd, b[done:min(len(b), done+maxMove)]) })
		done += n
		if err != nil {
			return done, err
		}
		if n == 0 {
			return done, f.fail("write", io.ErrUnexpectedEOF)
		}
	}
	return done, nil
}

// maxMove is how many bytes are read or written with one call: some file
// systems do not take as many as fit an int.
const maxMove = 1 << 30

func (f *rawFile) Seek(offset int64, whence int) (int64, error) {
	n, err := unix.Seek(f.fd, offset, whence)
	return n, f.fail("seek", err)
}

func (f *rawFile) Close() error {
	if f.fd < 0 {
		return f.fail("close", fs.ErrClosed)
	}
	err := unix.Close(f.fd) // closed also where a signal interrupts it
	if f.fd = -1; errors.Is(err, unix.EINTR) {
		err = nil
	}
	return f.fail("close", err)
}

func (f *rawFile) Stat() (fs.FileInfo, error) {
	var st unix.Stat_t
	if err := again(func() error { return unix.Fstat(f.fd, &st) }); err != nil {
		return nil, f.fail("stat", err)
	}
	return newRawInfo(f.name, &st), nil
}

func (f *rawFile) ReadDir(int) ([]fs.DirEntry, error) {
	return nil, f.fail("readdir", fmt.Errorf("of what was opened as a file: %w", errors.ErrUnsupported))
}

func (f *rawFile) Chmod(mode fs.FileMode) error {
	return f.fail("chmod", again(func() error { return unix.Fchmod(f.fd, permOf(mode)) }))
}

func (f *rawFile) Truncate(size int64) error {
	return f.fail("truncate", again(func() error { return unix.Ftruncate(f.fd, size) }))
}

func (f *rawFile) Sync() error {
	return f.fail("sync", again(func() error { return unix.Fsync(f.fd) }))
}

// permOf is mode as chmod(2) takes it.
func permOf(mode fs.FileMode) uint32 {
	m := uint32(mode.Perm())
	for _, bit := range specialBits {
		if mode&bit.mode != 0 {
			m |= bit.stat
		}
	}
	return m
}

var specialBits = []struct {
	mode fs.FileMode
	stat uint32
}{{fs.ModeSetuid, unix.S_ISUID}, {fs.ModeSetgid, unix.S_ISGID}, {fs.ModeSticky, unix.S_ISVTX}}

// rawInfo is what the kernel says of a file. Its Sys is a *syscall.Stat_t, as
// that of os.
type rawInfo struct {
	name string
	stat syscall.Stat_t
}

func newRawInfo(name string, st *unix.Stat_t) *rawInfo {
	return &rawInfo{name, syscall.Stat_t{
		Dev: st.Dev, Ino: st.Ino, Mode: st.Mode, Nlink: st.Nlink, Uid: st.Uid, Gid: st.Gid, Rdev: st.Rdev,
		Size: st.Size, Blksize: st.Blksize, Blocks: st.Blocks,
		Atim: syscall.Timespec(st.Atim), Mtim: syscall.Timespec(st.Mtim), Ctim: syscall.Timespec(st.Ctim),
	}}
}

func (i *rawInfo) Name() string { return i.name }
func (i *rawInfo) Size() int64  { return i.stat.Size }
func (i *rawInfo) ModTime() time.Time {
	return time.Unix(int64(i.stat.Mtim.Sec), int64(i.stat.Mtim.Nsec))
}
func (i *rawInfo) IsDir() bool { return i.Mode().IsDir() }
func (i *rawInfo) Sys() any    { return &i.stat }

func (i *rawInfo) Mode() fs.FileMode {
	mode := fs.FileMode(i.stat.Mode & 0o777)
	for _, bit := range specialBits {
		if i.stat.Mode&bit.stat != 0 {
			mode |= bit.mode
		}
	}
	switch i.stat.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return mode
	case unix.S_IFDIR:
		return mode | fs.ModeDir
	case unix.S_IFLNK:
		return mode | fs.ModeSymlink
	case unix.S_IFIFO:
		return mode | fs.ModeNamedPipe
	case unix.S_IFSOCK:
		return mode | fs.ModeSocket
	case unix.S_IFCHR:
		return mode | fs.ModeDevice | fs.ModeCharDevice
	case unix.S_IFBLK:
		return mode | fs.ModeDevice
	}
	return mode | fs.ModeIrregular
}
