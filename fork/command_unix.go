//go:build unix

package fork

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// endTogether makes cmd the leader of a process group that ends as one when
// its context does. (A hook is often a shell, and what hangs is its child.)
func endTogether(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error {
		err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		if errors.Is(err, syscall.ESRCH) {
			return os.ErrProcessDone
		}
		return err
	}
}
