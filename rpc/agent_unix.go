//go:build unix

package rpc

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// ownGroup makes cmd the leader of a process group.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
}

// signalGroup asks all that the agent has started to end, or makes it.
func (a *agent) signalGroup(kill bool) {
	s := syscall.SIGTERM
	if kill {
		s = syscall.SIGKILL
	}
	_ = syscall.Kill(-a.cmd.Process.Pid, s) // gone is as good
}

// groupGone reports whether nothing of the agent's group is left.
func (a *agent) groupGone() bool {
	return errors.Is(syscall.Kill(-a.cmd.Process.Pid, 0), syscall.ESRCH)
}

// pass passes a signal of ours on.
func (a *agent) pass(s os.Signal) {
	if s, ok := s.(syscall.Signal); ok {
		_ = syscall.Kill(-a.cmd.Process.Pid, s)
	}
}

// exitCode is that of a process, or what a shell makes of a signal.
func exitCode(s *os.ProcessState) int {
	if w, ok := s.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return 128 + int(w.Signal())
	}
	return s.ExitCode()
}
