package rpc

import (
	"os"

	"golang.org/x/sys/unix"
)

// agentPipe is how many bytes an agent can be ahead of us: as many as Linux
// lets anyone have unless told otherwise (pipe(7)), and a sixty-fourth of what it lets
// one user's pipes hold. With the usual 64 KiB, agent and oinod wait for each
// other all the time, and a stream of updates passes a sixth slower.
const agentPipe = 1 << 20

// widen makes room in a pipe. Where the system refuses, it stays as it is.
func widen(pipe *os.File) {
	if c, err := pipe.SyscallConn(); err == nil {
		_ = c.Control(func(fd uintptr) { _, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, agentPipe) })
	}
}
