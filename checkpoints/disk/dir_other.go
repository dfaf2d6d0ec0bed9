//go:build !linux

package disk

import (
	"errors"
	"io/fs"
	"os"
)

func openDir(r *os.Root, name string) (Dir, error) {
	dir, err := r.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	return openedDir{dir}, nil
}

type openedDir struct{ *os.Root }

func (d openedDir) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	f, err := d.Root.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err // not f: a nil *os.File in a File is not nil
	}
	return f, nil
}

func (d openedDir) Exchange(string, string) error { return errors.ErrUnsupported }
