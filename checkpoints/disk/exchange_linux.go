package disk

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

func exchange(from *os.File, oldname string, to *os.File, newname string) error {
	err := unix.Renameat2(int(from.Fd()), oldname, int(to.Fd()), newname, unix.RENAME_EXCHANGE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		return errors.ErrUnsupported // by the file system, by the kernel
	}
	return err
}
