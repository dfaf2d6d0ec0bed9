package disk

import "golang.org/x/sys/unix"

// OpenBeneath opens the directory rel below the directory fd with flags, and
// follows no link on the way: in one call where the kernel offers that, else name
// by name.
func OpenBeneath(fd int, rel string, flags int) (int, error) {
	got := -1
	err := again(func() (err error) {
		got, err = unix.Openat2(fd, rel, &unix.OpenHow{
			Flags: uint64(flags | beneath), Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_BENEATH,
		})
		return err
	})
	switch err {
	case unix.ENOSYS, unix.EPERM, unix.EINVAL, unix.E2BIG, unix.ENAMETOOLONG, unix.EAGAIN:
		// An old kernel, a sandbox, a path longer than a call takes.
		return openSteps(fd, rel, flags)
	}
	return got, err
}
