package workspace

import (
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

func (d *dirFD) names(f func(name []byte, k kind)) error {
	fd, err := unix.Dup(d.fd)
	if err != nil {
		return err
	}
	unix.CloseOnExec(fd)
	list := os.NewFile(uintptr(fd), "directory")
	defer list.Close()
	entries, err := list.ReadDir(-1)
	for _, e := range entries {
		f([]byte(e.Name()), kindOfMode(e.Type()))
	}
	return err
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
