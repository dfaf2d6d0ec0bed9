package checkpoints

import (
	"io/fs"
	"os"
	"syscall"
)

// fullErrors are what a disk says that takes no more.
var fullErrors = []error{syscall.Errno(39), syscall.Errno(112)} // ERROR_HANDLE_DISK_FULL, ERROR_DISK_FULL

const (
	openFile = os.O_RDONLY
	openDir  = os.O_RDONLY
)

func processUmask() uint32         { return 0o022 }
func identOf(fs.FileInfo) ident    { return ident{} }
func changeTime(fs.FileInfo) int64 { return 0 }
func ownerOf(fs.FileInfo) owner    { return nobody }

// keptMode is the mode that a file has after mode was set: there is one bit.
func keptMode(mode uint32) uint32 {
	if mode&0o200 != 0 {
		return 0o666
	}
	return 0o444
}

// noLinks reports an error of Link that means a file system without hard links.
func noLinks(err error) bool { return err != nil && !os.IsExist(err) }
