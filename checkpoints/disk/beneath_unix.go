//go:build linux || darwin

package disk

import (
	"strings"

	"golang.org/x/sys/unix"
)

const beneath = unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC

// openSteps opens rel below fd name by name, each without following a link.
func openSteps(fd int, rel string, flags int) (int, error) {
	at := fd
	for name := range strings.SplitSeq(rel, "/") {
		next := -1
		err := again(func() (err error) {
			next, err = unix.Openat(at, name, flags|beneath, 0)
			return err
		})
		if at != fd {
			unix.Close(at)
		}
		if err != nil {
			return -1, err
		}
		at = next
	}
	return at, nil
}

// again repeats what a signal interrupts.
func again(f func() error) error {
	for {
		if err := f(); err != unix.EINTR {
			return err
		}
	}
}
