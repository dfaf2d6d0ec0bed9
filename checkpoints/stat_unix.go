//go:build linux || darwin

package checkpoints

import (
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// fullErrors are what a disk says that takes no more.
var fullErrors = []error{unix.ENOSPC, unix.EDQUOT}

// Opening waits for nobody, whatever came under the name since it was looked
// at; whether it is still that is then asked of what was opened.
const (
	openFile = os.O_RDONLY | unix.O_NONBLOCK
	openDir  = os.O_RDONLY | unix.O_NONBLOCK | unix.O_NOFOLLOW | unix.O_DIRECTORY
)

// identOf says which file info is of.
func identOf(info fs.FileInfo) ident {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return ident{dev: uint64(st.Dev), ino: st.Ino}
	}
	return ident{}
}

// changeTime is the ctime of info, 0 where it is not known.
func changeTime(info fs.FileInfo) int64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return ctimeOf(st)
	}
	return 0
}

// ownerOf is who owns the file of info.
func ownerOf(info fs.FileInfo) owner {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return owner{int(st.Uid), int(st.Gid)}
	}
	return nobody
}

// keptMode is the mode that a file has after mode was set.
func keptMode(mode uint32) uint32 { return mode }

// noLinks reports an error of Link that means a file system without hard links.
func noLinks(err error) bool {
	switch errno, _ := errorNumber(err); errno {
	case unix.EPERM, unix.ENOTSUP, unix.ENOSYS, unix.EMLINK, unix.EXDEV, unix.EACCES:
		return true
	}
	return false
}

func errorNumber(err error) (syscall.Errno, bool) {
	for err != nil {
		switch e := err.(type) {
		case syscall.Errno:
			return e, true
		case interface{ Unwrap() error }:
			err = e.Unwrap()
		default:
			return 0, false
		}
	}
	return 0, false
}
