package disktest

import (
	"io"
	"io/fs"
	"os"
	"slices"
	"syscall"
)

// file is an open file or directory.
type file struct {
	fs   *FS
	node *node
	name string // as it was opened
	base string
	full string
	flag int

	offset int64
	listed []fs.DirEntry // what ReadDir has not given out yet
	begun  bool          // listed was made
	closed bool
}

func (f *file) Name() string { return f.full }

// do runs op as one operation on the open file.
func (f *file) do(kind string, write bool, op func() error) error {
	return f.try(kind, write, op, func() {})
}

// try is do; when the operation fails as the test wants, halfway is run.
func (f *file) try(kind string, write bool, op func() error, halfway func()) error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if f.closed {
		return &fs.PathError{Op: kind, Path: f.full, Err: fs.ErrClosed}
	}
	err := f.fs.begin(Op{kind, f.name, write})
	if err == nil {
		err = op()
	} else if err != ErrPowerCut {
		halfway()
	}
	if err == nil || err == io.EOF {
		return err
	}
	return &fs.PathError{Op: kind, Path: f.full, Err: err}
}

func (f *file) Read(b []byte) (n int, err error) {
	err = f.do("read", false, func() error {
		n, err = f.read(b, f.offset)
		f.offset += int64(n)
		return err
	})
	return n, err
}

func (f *file) ReadAt(b []byte, off int64) (n int, err error) {
	err = f.do("read", false, func() error {
		n, err = f.read(b, off)
		if err == nil && n < len(b) {
			err = io.EOF
		}
		return err
	})
	return n, err
}

func (f *file) read(b []byte, off int64) (int, error) {
	if f.node.mode.IsDir() {
		return 0, syscall.EISDIR
	}
	if f.flag&os.O_WRONLY != 0 {
		return 0, syscall.EBADF
	}
	if off >= int64(len(f.node.data)) {
		if len(b) == 0 {
			return 0, nil
		}
		return 0, io.EOF
	}
	return copy(b, f.node.data[off:]), nil
}

func (f *file) Write(b []byte) (n int, err error) {
	err = f.try("write", true, func() error {
		n, err = f.write(b)
		return err
	}, func() {
		n, _ = f.write(b[:len(b)/2])
	})
	return n, err
}

func (f *file) write(b []byte) (int, error) {
	if f.flag&(os.O_WRONLY|os.O_RDWR) == 0 {
		return 0, syscall.EBADF
	}
	n := f.node
	if f.flag&os.O_APPEND != 0 {
		f.offset = int64(len(n.data))
	}
	if grow := f.offset + int64(len(b)) - int64(len(n.data)); grow > 0 {
		n.data = append(n.data, make([]byte, grow)...)
	}
	f.offset += int64(copy(n.data[f.offset:], b))
	n.mtime = f.fs.clock
	return len(b), nil
}

func (f *file) Seek(offset int64, whence int) (int64, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	switch whence {
	case io.SeekCurrent:
		offset += f.offset
	case io.SeekEnd:
		offset += int64(len(f.node.data))
	}
	if offset < 0 {
		return 0, &fs.PathError{Op: "seek", Path: f.full, Err: syscall.EINVAL}
	}
	f.offset = offset
	return offset, nil
}

func (f *file) Stat() (fs.FileInfo, error) {
	var i fs.FileInfo
	err := f.do("stat", false, func() error {
		i = f.node.info(f.base)
		return nil
	})
	return i, err
}

func (f *file) ReadDir(n int) ([]fs.DirEntry, error) {
	var entries []fs.DirEntry
	err := f.do("readdir", false, func() error {
		if !f.node.mode.IsDir() {
			return syscall.ENOTDIR
		}
		if !f.begun {
			f.listed, f.begun = f.node.list(), true
		}
		k := len(f.listed)
		if n > 0 {
			if k == 0 {
				return io.EOF
			}
			k = min(k, n)
		}
		entries, f.listed = f.listed[:k], f.listed[k:]
		return nil
	})
	return entries, err
}

func (f *file) Chmod(mode fs.FileMode) error {
	return f.do("chmod", true, func() error {
		f.node.chmod(mode)
		return nil
	})
}

func (f *file) Truncate(size int64) error {
	return f.do("truncate", true, func() error {
		n := f.node
		if f.flag&(os.O_WRONLY|os.O_RDWR) == 0 || size < 0 {
			return syscall.EINVAL
		}
		if grow := size - int64(len(n.data)); grow > 0 {
			n.data = append(n.data, make([]byte, grow)...)
		}
		n.data = slices.Clip(n.data[:size])
		n.cut(size, f.fs.PageSize)
		n.mtime = f.fs.clock
		return nil
	})
}

func (f *file) Sync() error {
	return f.try("sync", true, func() error {
		if f.node.mode.IsDir() {
			f.fs.syncDir(f.node)
		} else {
			f.node.sync(f.fs.PageSize)
		}
		return nil
	}, f.node.failSync)
}

func (f *file) Close() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if f.closed {
		return &fs.PathError{Op: "close", Path: f.full, Err: fs.ErrClosed}
	}
	f.closed = true
	return nil
}
