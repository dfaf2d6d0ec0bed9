// Package disk is the few file operations that oinod performs, behind one
// interface, so that a test can fail each of them and cut the power after each.
//
// A Root is one directory: the agent directory, or a root of a workspace.
// Names are slash-separated and relative to it, and no operation leaves it,
// whatever links lie below it: the real one is an os.Root, and on Linux a Dir of it goes
// by names in a directory that the Root has opened. Nothing in oinod writes a file in any
// other way.
//
// Durability is explicit. A File's bytes outlive a power cut after Sync; a
// name (made, renamed or removed) outlives it after SyncDir of the directory
// that holds it.
package disk

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// File is an open file of a Root.
type File interface {
	io.Reader
	io.ReaderAt
	io.Writer
	io.Seeker
	io.Closer
	Name() string
	Stat() (fs.FileInfo, error)
	ReadDir(n int) ([]fs.DirEntry, error)
	Chmod(mode fs.FileMode) error
	Truncate(size int64) error
	Sync() error
}

// Dir is a directory that no operation leaves. Its methods are those of os.Root,
// plus Exchange.
type Dir interface {
	// OpenFile follows links within a Root; with NoFollow in flag a link at
	// the end of name is an error, ELOOP.
	OpenFile(name string, flag int, perm fs.FileMode) (File, error)
	Lstat(name string) (fs.FileInfo, error)
	Readlink(name string) (string, error)
	Symlink(target, name string) error
	Link(oldname, newname string) error
	Rename(oldname, newname string) error
	// Exchange swaps what two names are of, as one thing. Where the system
	// cannot, it is errors.ErrUnsupported.
	Exchange(oldname, newname string) error
	Remove(name string) error
	Lchown(name string, uid, gid int) error
	Close() error
}

// Root is a Dir that takes the names of what lies below it at any depth.
type Root interface {
	Dir
	// Name is the directory's absolute path.
	Name() string
	Mkdir(name string, perm fs.FileMode) error
	// Chmod follows a link at the end of name, within the root.
	Chmod(name string, mode fs.FileMode) error
	// SyncDir makes the names in directory name outlive a power cut. A file
	// system that cannot sync directories is not an error.
	SyncDir(name string) error
}

// Open opens the directory dir, which must exist, as a Root.
func Open(dir string) (Root, error) {
	r, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return osRoot{r}, nil
}

type osRoot struct{ *os.Root }

// OpenDir opens directory name of r, for work on many names right in it: it takes
// those alone. On Linux no link is followed, neither on the way to the
// directory nor at the end of a name; elsewhere none that leads out. Opening directory
// after directory is most of the cost of an operation by a whole name. The
// error is errors.ErrUnsupported where r has no such thing.
func OpenDir(r Root, name string) (Dir, error) {
	o, ok := r.(osRoot)
	if !ok {
		return nil, errors.ErrUnsupported // a test's
	}
	return openDir(o.Root, name)
}

func (r osRoot) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	f, err := r.Root.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err // not f: a nil *os.File in a File is not nil
	}
	if NoFollow != 0 && flag&NoFollow != 0 && !r.names(name, f) {
		f.Close()
		return nil, &fs.PathError{Op: "openat", Path: name, Err: errLink}
	}
	return f, nil
}

// names reports whether name itself, not a link there, is the open file f: an
// os.Root takes NoFollow and follows all the same, within the root.
func (r osRoot) names(name string, f *os.File) bool {
	opened, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := r.Root.Lstat(name)
	return err == nil && os.SameFile(opened, named)
}

func (r osRoot) Exchange(oldname, newname string) error {
	from, err := r.Root.Open(path.Dir(oldname))
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := r.Root.Open(path.Dir(newname))
	if err != nil {
		return err
	}
	defer to.Close()
	if err := exchangeIn(from, path.Base(oldname), to, path.Base(newname)); err != nil {
		return &os.LinkError{Op: "exchange", Old: oldname, New: newname, Err: err}
	}
	return nil
}

func (r osRoot) SyncDir(name string) error {
	f, err := r.Root.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	return SyncOpen(f)
}

// SyncOpen is SyncDir for a directory that is open already.
func SyncOpen(f interface{ Sync() error }) error {
	if err := f.Sync(); err != nil && !errors.Is(err, errors.ErrUnsupported) && !unsyncable(err) {
		return err
	}
	return nil
}

// MkdirAll makes directory name and its missing parents with perm, whatever the
// umask, and syncs each new name.
func MkdirAll(r Root, name string, perm fs.FileMode) error {
	if name == "." || name == "" {
		return nil
	}
	parts := strings.Split(name, "/")
	for i := range parts {
		dir := strings.Join(parts[:i+1], "/")
		err := r.Mkdir(dir, perm)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err == nil {
			err = r.Chmod(dir, perm)
		}
		if err != nil {
			return err
		}
		if err := r.SyncDir(path.Dir(dir)); err != nil {
			return err
		}
	}
	return nil
}

// ReadFile reads the whole file name.
func ReadFile(r Root, name string) ([]byte, error) {
	f, err := r.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}

// ReadDir lists directory name, unsorted.
func ReadDir(r Root, name string) ([]fs.DirEntry, error) {
	f, err := r.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.ReadDir(-1)
}

// Publish makes data readable at name, whole or not at all, with mode perm
// whatever the umask. When it returns nil the file and its name outlive a power cut. The
// unfinished file lies beside name, under name plus ".tmp": one writer of
// name at a time.
func Publish(r Root, name string, data []byte, perm fs.FileMode) error {
	tmp := name + ".tmp"
	if err := r.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := r.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return err
	}
	if err = f.Chmod(perm); err == nil {
		_, err = f.Write(data)
	}
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = r.Rename(tmp, name)
	}
	if err != nil {
		r.Remove(tmp) // what is left of a failure is only space
		return err
	}
	return r.SyncDir(path.Dir(name))
}

// MakePrivate makes the directory dir (an absolute path, of this machine's
// form) and its missing parents, for its owner alone. One that exists is left
// as it is.
func MakePrivate(dir string) error {
	err := os.Mkdir(dir, 0o700)
	if errors.Is(err, fs.ErrNotExist) && filepath.Dir(dir) != dir {
		if err := MakePrivate(filepath.Dir(dir)); err != nil {
			return err
		}
		err = os.Mkdir(dir, 0o700)
	}
	if errors.Is(err, fs.ErrExist) {
		if info, err := os.Stat(dir); err != nil || info.IsDir() {
			return err
		}
	}
	if err != nil {
		return err
	}
	return os.Chmod(dir, 0o700) // whatever the umask took away
}
