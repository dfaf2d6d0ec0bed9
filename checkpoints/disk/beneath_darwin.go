package disk

// OpenBeneath opens the directory rel below the directory fd with flags, and
// follows no link on the way.
func OpenBeneath(fd int, rel string, flags int) (int, error) { return openSteps(fd, rel, flags) }
