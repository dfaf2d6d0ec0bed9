package workspace

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"
)

// osMachine is the file system through os.Root: plain, and fast enough.
type osMachine struct{}

func (osMachine) openRoot(name string) (rootDir, error) {
	r, err := os.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	return &rootHandle{r}, nil
}

type rootHandle struct{ root *os.Root }

func (r *rootHandle) close() { r.root.Close() }

// openDir looks at each name on the way: os.Root would follow a link that
// stays below the root.
func (r *rootHandle) openDir(rel string) (dir, error) {
	at := "."
	for name := range strings.SplitSeq(rel, "/") {
		at = path.Join(at, name)
		info, err := r.root.Lstat(at)
		if err != nil {
			return nil, err
		}
		if !info.IsDir() {
			return nil, errKind
		}
	}
	return &dirHandle{r.root, at}, nil
}

type dirHandle struct {
	root *os.Root
	name string
}

func (d *dirHandle) close()                {}
func (d *dirHandle) ident() (ident, error) { return ident{}, nil }

func (d *dirHandle) names(f func(name []byte, k kind)) error {
	list, err := d.root.Open(d.name)
	if err != nil {
		return err
	}
	defer list.Close()
	entries, err := list.ReadDir(-1)
	for _, e := range entries {
		f([]byte(e.Name()), kindOfMode(e.Type()))
	}
	return err
}

func (d *dirHandle) lstat(name string) (stat, error) {
	info, err := d.root.Lstat(path.Join(d.name, name))
	if err != nil {
		return stat{}, err
	}
	return statOfInfo(info), nil
}

func (d *dirHandle) readlink(name string) (string, error) {
	return d.root.Readlink(path.Join(d.name, name))
}

func (d *dirHandle) open(name string) (file, error) {
	f, err := d.root.Open(path.Join(d.name, name))
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		f.Close()
		return nil, errors.Join(err, errKind)
	}
	return fileHandle{f}, nil
}

type fileHandle struct{ *os.File }

func (f fileHandle) close() { f.File.Close() }

func (f fileHandle) stat() (stat, error) {
	info, err := f.File.Stat()
	if err != nil {
		return stat{}, err
	}
	return statOfInfo(info), nil
}

// statOfInfo knows no ctime and no inode: what a change leaves alone there is
// taken for unchanged.
func statOfInfo(info fs.FileInfo) stat {
	s := stat{kind: kindOfMode(info.Mode()), size: info.Size(), mtime: info.ModTime().UnixNano()}
	if s.mode = 0o444; info.Mode().Perm()&0o200 != 0 {
		s.mode = 0o666
	}
	if s.kind == directory {
		s.mode = uint32(info.Mode().Perm())
	}
	return s
}

func kindOfMode(m fs.FileMode) kind {
	switch m.Type() {
	case 0:
		return regular
	case fs.ModeDir:
		return directory
	case fs.ModeSymlink:
		return link
	}
	return special
}

func identOfPath(string) ident { return ident{} }

func openRegular(name string) (*os.File, error) { return os.Open(name) }

func isLoop(error) bool { return false }
