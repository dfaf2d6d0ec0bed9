package rpc

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// AgentCommand is the program that wrap puts itself before.
type AgentCommand struct {
	Args   []string // the program and its arguments
	Env    []string // its whole environment
	Stderr io.Writer
}

// StartError is an agent that could not be started.
type StartError struct {
	Program string
	Err     error
}

func (e *StartError) Error() string {
	return fmt.Sprintf("the agent %s could not be started: %v", e.Program, e.Err)
}

func (e *StartError) Unwrap() error { return e.Err }

// How an agent is ended.
const (
	agentGrace = 5 * time.Second // for an agent whose input ended, or that got a signal
	killGrace  = time.Second     // between the polite signal and the other
	pipeGrace  = time.Second     // for what an agent that has ended left in its pipe
)

// agent is the child process. Its group ends with it when it has to be ended:
// an agent is often a script that waits for what it has started.
type agent struct {
	cmd *exec.Cmd
	in  io.WriteCloser // its stdin
	out *os.File       // its stdout

	ended chan struct{} // closed when the process has been waited for
	code  int           // its exit code, then
	how   string        // and in words

	ending  sync.Once
	mu      sync.Mutex
	wasMade bool // we made it end
}

func startAgent(c AgentCommand) (*agent, error) {
	// Our own pipe, and not exec's, whose Wait closes it with what is in it.
	out, theirs, err := os.Pipe()
	if err != nil {
		return nil, &StartError{c.Args[0], err}
	}
	defer theirs.Close()
	cmd := exec.Command(c.Args[0], c.Args[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr = c.Env, theirs, c.Stderr
	cmd.WaitDelay = pipeGrace // a Stderr that is no file has a pipe too
	ownGroup(cmd)
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		_ = out.Close()
		var cause *exec.Error
		if errors.As(err, &cause) {
			err = cause.Err // it names the program once more
		}
		var path *os.PathError
		if errors.As(err, &path) {
			err = path.Err
		}
		return nil, &StartError{c.Args[0], err}
	}
	a := &agent{cmd: cmd, in: in, out: out, ended: make(chan struct{})}
	go a.wait() // ends with the process
	return a, nil
}

func (a *agent) wait() {
	_ = a.cmd.Wait() // the state says what there is to know
	a.code, a.how = exitCode(a.cmd.ProcessState), a.cmd.ProcessState.String()
	close(a.ended)
	// What it has said is in the pipe, unless a child of its own goes on.
	timer := time.NewTimer(pipeGrace)
	defer timer.Stop()
	<-timer.C
	_ = a.out.SetReadDeadline(time.Now())
}

// end ends the agent: it has some time to do so itself. It returns at once.
func (a *agent) end() {
	a.ending.Do(func() {
		go func() { // ends with the process
			if a.endsWithin(agentGrace) {
				return
			}
			a.mu.Lock()
			a.wasMade = true
			a.mu.Unlock()
			a.signalGroup(false)
			if !a.endsWithin(killGrace) {
				a.signalGroup(true)
			}
		}()
	})
}

func (a *agent) endsWithin(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-a.ended:
		return true
	case <-timer.C:
		return false
	}
}

// endedByUs reports whether the agent had to be ended.
func (a *agent) endedByUs() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.wasMade
}

// agentName is what an agent is called before it has said its name, and for
// good where it never does: its program, and of an interpreter the script.
func agentName(args []string) string {
	base := func(arg string) string {
		name := filepath.Base(arg)
		return strings.TrimSuffix(name, filepath.Ext(name))
	}
	switch name := base(args[0]); name {
	case "node", "npx", "bun", "bunx", "deno", "python", "python3", "uvx", "sh", "bash", "env":
		i := slices.IndexFunc(args[1:], func(arg string) bool { return !strings.HasPrefix(arg, "-") && !strings.Contains(arg, "=") })
		if i < 0 {
			return name
		}
		script := args[1+i]
		if at := strings.LastIndexByte(script, '@'); at > 0 { // a package's version
			script = script[:at]
		}
		return base(script)
	default:
		return name
	}
}
