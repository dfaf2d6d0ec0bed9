package disk

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

func exchangeIn(from *os.File, oldname string, to *os.File, newname string) error {
	return exchange(int(from.Fd()), oldname, int(to.Fd()), newname)
}

func exchange(from int, oldname string, to int, newname string) error {
	err := unix.Renameat2(from, oldname, to, newname, unix.RENAME_EXCHANGE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		return errors.ErrUnsupported // by the file system, by the kernel
	}
	return err
}
