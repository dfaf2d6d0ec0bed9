//go:build unix

package disk

import (
	"errors"

	"golang.org/x/sys/unix"
)

// NoFollow, in the flag of OpenFile, refuses a link at the end of the name.
const NoFollow = unix.O_NOFOLLOW

// errLink is what NoFollow says of a link.
const errLink = unix.ELOOP

// unsyncable reports that a file system says it cannot sync a directory.
func unsyncable(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTSUP)
}
