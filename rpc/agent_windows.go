package rpc

import (
	"os"
	"os/exec"
)

// ownGroup leaves cmd as it is: there are no groups to end. A child of the
// agent's may live on.
func ownGroup(*exec.Cmd) {}

// signalGroup ends the agent itself, for want of a polite way.
func (a *agent) signalGroup(bool) {
	_ = a.cmd.Process.Kill() // gone is as good
}

func (a *agent) groupGone() bool {
	select {
	case <-a.ended:
		return true
	default:
		return false
	}
}

// pass ends the agent: no other signal gets there.
func (a *agent) pass(os.Signal) { a.signalGroup(true) }

func exitCode(s *os.ProcessState) int { return s.ExitCode() }
