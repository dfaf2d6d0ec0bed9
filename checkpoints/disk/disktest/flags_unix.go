//go:build unix

package disktest

import "golang.org/x/sys/unix"

// directoryOnly is the flag that opens nothing but a directory.
const directoryOnly = unix.O_DIRECTORY
