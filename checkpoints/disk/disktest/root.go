package disktest

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/oino-dev/oinod/checkpoints/disk"
)

// errEscapes is what an os.Root says of a name that leads out of it.
var errEscapes = errors.New("path escapes from parent")

// maxLinks is how many links one name may lead over.
const maxLinks = 40

// root is a directory of an FS, as a disk.Root.
type root struct {
	fs   *FS
	dir  *node
	name string
}

func (r *root) Name() string { return r.name }
func (r *root) Close() error { return nil }

// walk finds what name leads to: the directory that holds it, its name there,
// and what is there, nil for nothing. follow says whether a link at the end is
// followed, too.
func (r *root) walk(name string, follow bool) (dir *node, base string, n *node, err error) {
	if name == "" {
		return nil, "", nil, syscall.ENOENT
	}
	if strings.HasPrefix(name, "/") {
		return nil, "", nil, errEscapes
	}
	at := []*node{r.dir}
	rest := strings.Split(name, "/")
	for links := 0; len(rest) > 0; {
		part := rest[0]
		rest = rest[1:]
		dir = at[len(at)-1]
		if !dir.mode.IsDir() {
			return nil, "", nil, syscall.ENOTDIR
		}
		switch part {
		case "", ".":
			continue
		case "..":
			if len(at) == 1 {
				return nil, "", nil, errEscapes
			}
			at = at[:len(at)-1]
			continue
		}
		n = dir.entries[part]
		last := len(rest) == 0
		switch {
		case n == nil && last:
			return dir, part, nil, nil
		case n == nil:
			return nil, "", nil, syscall.ENOENT
		case n.mode.Type() == fs.ModeSymlink && (!last || follow):
			if links++; links > maxLinks {
				return nil, "", nil, syscall.ELOOP
			}
			if strings.HasPrefix(string(n.data), "/") {
				return nil, "", nil, errEscapes
			}
			rest = append(strings.Split(string(n.data), "/"), rest...)
		case last:
			return dir, part, n, nil
		default:
			at = append(at, n)
		}
	}
	n = at[len(at)-1]
	if !n.mode.IsDir() {
		return nil, "", nil, syscall.ENOTDIR
	}
	return n, ".", n, nil
}

// do runs f as one operation on name; n may be nil only where absent is set.
func (r *root) do(op Op, follow, absent bool, f func(dir *node, base string, n *node) error) error {
	r.fs.mu.Lock()
	defer r.fs.mu.Unlock()
	err := r.fs.begin(op)
	if err == nil {
		var dir, n *node
		var base string
		if dir, base, n, err = r.walk(op.Name, follow); err == nil {
			if n == nil && !absent {
				err = syscall.ENOENT
			} else {
				err = f(dir, base, n)
			}
		}
	}
	if err != nil {
		return &fs.PathError{Op: op.Kind, Path: op.Name, Err: err}
	}
	return nil
}

// make puts n at name, where nothing may be.
func (r *root) make(kind, name string, n *node) error {
	return r.do(Op{kind, name, true}, false, true, func(dir *node, base string, old *node) error {
		if old != nil {
			return syscall.EEXIST
		}
		n.mtime = r.fs.clock
		r.fs.set(change{{dir, base, n}})
		return nil
	})
}

func (r *root) Mkdir(name string, perm fs.FileMode) error {
	return r.make("mkdir", name, newNode(fs.ModeDir|perm))
}

func (r *root) Symlink(target, name string) error {
	n := newNode(fs.ModeSymlink | 0o777)
	n.data, n.synced = []byte(target), []byte(target)
	return r.make("symlink", name, n)
}

// Special puts a FIFO, a socket or a device (by its mode) at name.
func Special(r disk.Root, name string, mode fs.FileMode) error {
	return r.(*root).make("mknod", name, newNode(mode))
}

func (r *root) Lstat(name string) (fs.FileInfo, error) {
	var i fs.FileInfo
	err := r.do(Op{"lstat", name, false}, false, false, func(_ *node, base string, n *node) error {
		i = n.info(base)
		return nil
	})
	return i, err
}

func (r *root) Readlink(name string) (string, error) {
	target := ""
	err := r.do(Op{"readlink", name, false}, false, false, func(_ *node, _ string, n *node) error {
		if n.mode.Type() != fs.ModeSymlink {
			return syscall.EINVAL
		}
		target = string(n.data)
		return nil
	})
	return target, err
}

func (r *root) Chmod(name string, mode fs.FileMode) error {
	return r.do(Op{"chmod", name, true}, true, false, func(_ *node, _ string, n *node) error {
		n.chmod(mode)
		return nil
	})
}

func (n *node) chmod(mode fs.FileMode) {
	const bits = fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky
	n.mode = n.mode&^bits | mode&bits
}

func (r *root) Lchown(name string, uid, gid int) error {
	return r.do(Op{"lchown", name, true}, false, false, func(*node, string, *node) error { return nil })
}

func (r *root) Remove(name string) error {
	return r.do(Op{"remove", name, true}, false, false, func(dir *node, base string, n *node) error {
		if base == "." {
			return syscall.EINVAL
		}
		if len(n.entries) > 0 {
			return syscall.ENOTEMPTY
		}
		r.fs.set(change{{dir, base, nil}})
		return nil
	})
}

func (r *root) SyncDir(name string) error {
	return r.do(Op{"syncdir", name, true}, true, false, func(_ *node, _ string, n *node) error {
		if !n.mode.IsDir() {
			return syscall.ENOTDIR
		}
		r.fs.syncDir(n)
		return nil
	})
}

// two runs f as one operation on two names.
func (r *root) two(kind, oldname, newname string, f func(dir *node, base string, n, todir *node, tobase string, to *node) error) error {
	r.fs.mu.Lock()
	defer r.fs.mu.Unlock()
	err := r.fs.begin(Op{kind, newname, true})
	if err == nil {
		err = func() error {
			dir, base, n, err := r.walk(oldname, false)
			if err != nil {
				return err
			}
			todir, tobase, to, err := r.walk(newname, false)
			if err != nil {
				return err
			}
			if n == nil {
				return syscall.ENOENT
			}
			if base == "." || tobase == "." {
				return syscall.EBUSY
			}
			return f(dir, base, n, todir, tobase, to)
		}()
	}
	if err != nil {
		return &os.LinkError{Op: kind, Old: oldname, New: newname, Err: err}
	}
	return nil
}

func (r *root) Link(oldname, newname string) error {
	return r.two("link", oldname, newname, func(_ *node, _ string, n, todir *node, tobase string, to *node) error {
		if to != nil {
			return syscall.EEXIST
		}
		if n.mode.IsDir() {
			return syscall.EPERM
		}
		r.fs.set(change{{todir, tobase, n}})
		return nil
	})
}

func (r *root) Rename(oldname, newname string) error {
	return r.two("rename", oldname, newname, func(dir *node, base string, n, todir *node, tobase string, to *node) error {
		switch {
		case to != nil && to.mode.IsDir():
			return syscall.EEXIST // as an os.Root says, whatever is to go there
		case to == n:
			return nil
		case n.mode.IsDir() && n.holds(todir):
			return syscall.EINVAL
		case to != nil && n.mode.IsDir():
			return syscall.ENOTDIR
		}
		r.fs.set(change{{dir, base, nil}, {todir, tobase, n}})
		return nil
	})
}

func (r *root) Exchange(oldname, newname string) error {
	return r.two("exchange", oldname, newname, func(dir *node, base string, n, todir *node, tobase string, to *node) error {
		if to == nil {
			return syscall.ENOENT
		}
		r.fs.set(change{{dir, base, to}, {todir, tobase, n}})
		return nil
	})
}

// holds reports whether other is n or below it.
func (n *node) holds(other *node) bool {
	if n == other {
		return true
	}
	for _, child := range n.entries {
		if child.holds(other) {
			return true
		}
	}
	return false
}

func (r *root) OpenFile(name string, flag int, perm fs.FileMode) (disk.File, error) {
	write := flag&(os.O_WRONLY|os.O_RDWR) != 0
	op := Op{"openfile", name, flag&(os.O_CREATE|os.O_TRUNC) != 0}
	exclusive := flag&(os.O_CREATE|os.O_EXCL) == os.O_CREATE|os.O_EXCL
	noFollow := exclusive || disk.NoFollow != 0 && flag&disk.NoFollow != 0
	var f *file
	err := r.do(op, !noFollow, flag&os.O_CREATE != 0, func(dir *node, base string, n *node) error {
		switch {
		case n == nil:
			n = newNode(perm & fs.ModePerm)
			n.mtime = r.fs.clock
			r.fs.set(change{{dir, base, n}})
		case exclusive:
			return syscall.EEXIST
		case n.mode.Type() == fs.ModeSymlink:
			return syscall.ELOOP
		case n.mode.IsDir() && (write || flag&os.O_CREATE != 0):
			return syscall.EISDIR
		case directoryOnly != 0 && flag&directoryOnly != 0 && !n.mode.IsDir():
			return syscall.ENOTDIR
		case !n.mode.IsDir() && !n.mode.IsRegular():
			return ErrSpecial
		case flag&os.O_TRUNC != 0:
			n.data = nil
			n.mtime = r.fs.clock
		}
		f = &file{fs: r.fs, node: n, name: name, base: base, full: r.name + "/" + name, flag: flag}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return f, nil
}

// info is a fs.FileInfo and a fs.DirEntry.
type info struct {
	name  string
	size  int64
	mode  fs.FileMode
	mtime time.Time
}

func (n *node) info(name string) info {
	return info{name, int64(len(n.data)), n.mode, n.mtime}
}

func (i info) Name() string               { return i.name }
func (i info) Size() int64                { return i.size }
func (i info) Mode() fs.FileMode          { return i.mode }
func (i info) Type() fs.FileMode          { return i.mode.Type() }
func (i info) ModTime() time.Time         { return i.mtime }
func (i info) IsDir() bool                { return i.mode.IsDir() }
func (i info) Sys() any                   { return nil }
func (i info) Info() (fs.FileInfo, error) { return i, nil }

// list returns the directory's entries, sorted.
func (n *node) list() []fs.DirEntry {
	var entries []fs.DirEntry
	for name, child := range n.entries {
		entries = append(entries, child.info(name))
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries
}
