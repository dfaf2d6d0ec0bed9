//go:build unix

package workspace

import (
	"syscall"
	"time"
)

// processorTime is what this process, or the children it has waited for, has
// used. On a machine that does other work too, only that compares.
func processorTime(children bool) time.Duration {
	who := syscall.RUSAGE_SELF
	if children {
		who = syscall.RUSAGE_CHILDREN
	}
	var r syscall.Rusage
	if syscall.Getrusage(who, &r) != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
