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
	"sync/atomic"
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

// MaxLeaving is about how long Wrap goes on after its client has ended: whoever
// opens the same sessions then may have to wait for them as long.
const MaxLeaving = agentGrace + killGrace + 2*time.Second

// agent is the child process. Its group ends with it when it has to be ended:
// an agent is often a script that waits for what it has started.
type agent struct {
	cmd *exec.Cmd      // nil: it is somebody else's process, behind a proxy chain's conductor
	in  io.WriteCloser // its stdin
	out *os.File       // its stdout

	ended chan struct{} // closed when the process has been waited for
	code  int           // its exit code, then
	how   string        // and in words
	done  chan struct{} // closed when nothing more is wanted of it
	work  sync.WaitGroup

	ending sync.Once
	made   atomic.Bool // we made it end
	deaf   atomic.Bool // it has not read for long, and nobody waits for it any more
}

// agentInput is the agent's stdin. An agent that does not read holds up
// whoever writes, as it should, but not when the client has gone: that would
// never be seen.
type agentInput struct {
	*agent
	clientGone func() bool
}

// errDeaf is a write to an agent that does not read.
var errDeaf = errors.New("the agent does not read, and the client is gone")

func (a agentInput) Write(b []byte) (n int, err error) {
	f, ok := a.in.(interface{ SetWriteDeadline(time.Time) error })
	if !ok {
		return a.in.Write(b)
	}
	const often = time.Second
	for still := time.Duration(0); ; {
		if f.SetWriteDeadline(time.Now().Add(often)) != nil {
			m, err := a.in.Write(b[n:])
			return n + m, err
		}
		m, err := a.in.Write(b[n:])
		n += m
		if err == nil || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		if still += often; m > 0 {
			still = 0
		}
		if still >= agentGrace && a.clientGone() {
			a.deaf.Store(true)
			return n, errDeaf
		}
	}
}

func startAgent(c AgentCommand) (*agent, error) {
	// Our own pipe, and not exec's, whose Wait closes it with what is in it.
	out, theirs, err := os.Pipe()
	if err != nil {
		return nil, &StartError{c.Args[0], err}
	}
	defer theirs.Close()
	widen(out)
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
	a := &agent{cmd: cmd, in: in, out: out, ended: make(chan struct{}), done: make(chan struct{})}
	a.work.Go(a.wait)
	return a, nil
}

// close waits until the agent has ended and all that ends it.
func (a *agent) close() {
	<-a.ended
	close(a.done)
	a.work.Wait()
	_ = a.out.Close()
}

func (a *agent) wait() {
	_ = a.cmd.Wait() // the state says what there is to know
	a.code, a.how = exitCode(a.cmd.ProcessState), a.cmd.ProcessState.String()
	close(a.ended)
	// What it has said is in the pipe, unless a child of its own goes on.
	timer := time.NewTimer(pipeGrace)
	defer timer.Stop()
	select {
	case <-timer.C:
		_ = a.out.SetReadDeadline(time.Now())
	case <-a.done:
	}
}

// end ends the agent: it has some time to do so itself. It returns at once.
func (a *agent) end() {
	a.ending.Do(func() {
		if a.cmd == nil { // we only hear it no more
			_ = a.out.SetReadDeadline(time.Now())
			close(a.ended)
			return
		}
		select {
		case <-a.ended: // by itself: what it has left running is its own affair
			return
		default:
		}
		grace := agentGrace
		if a.deaf.Load() { // it has had that
			grace = 0
		}
		a.work.Go(func() {
			timer := time.NewTimer(grace)
			defer timer.Stop()
			select {
			case <-a.ended:
				// A child may outlive the one that was waited for.
				if a.groupGoneWithin(grace) {
					return
				}
			case <-timer.C:
				a.made.Store(true)
			}
			a.signalGroup(false)
			if !a.groupGoneWithin(killGrace) {
				a.signalGroup(true)
			}
		})
	})
}

// groupGoneWithin waits some time for the agent's group to end.
func (a *agent) groupGoneWithin(limit time.Duration) bool {
	const often = 50 * time.Millisecond
	look := time.NewTicker(often)
	defer look.Stop()
	for range limit / often {
		if a.groupGone() {
			return true
		}
		<-look.C
	}
	return a.groupGone()
}

// agentName is what an agent is called before it has said its name, and for
// good where it never does: its program, and of an interpreter the script.
func agentName(args []string) string {
	if len(args) == 0 {
		return "agent" // of a proxy chain
	}
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
