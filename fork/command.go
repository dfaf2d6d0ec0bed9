package fork

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"time"
)

// DefaultTimeout is how long a Command may take when it does not say.
const DefaultTimeout = 30 * time.Second

// MaxOutput is how many bytes a Command may print on stdout, and on stderr.
const MaxOutput = 64 << 10

// pipeGrace is how long we wait for the pipes of a command that has ended
// but left a process behind that holds them open.
const pipeGrace = time.Second

// Command is a Handler that is a program of the user's.
//
// It is started without a shell, in the session's cwd, with the event as one
// line of JSON on stdin, which it need not read. What it answers with:
//
//	exit 0, nothing on stdout       go on
//	exit 0, an Answer as JSON       that
//	exit 2                          cancel; stderr is the reason
//	anything else                   cancel; the reason says what
//
// Anything else is: another exit, a signal, a program that cannot be started,
// a time-out, output that is no Answer, more output than MaxOutput. On a
// time-out it is ended with its whole process group. A process that it leaves
// behind when it ends in time is its own business: it may live on, but nobody
// waits for it.
//
// After a fork the exit and the output mean nothing but a line in the log.
type Command struct {
	On      string        // BeforeFork or AfterFork: the one event it is started for
	Argv    []string      // an absolute path, and its arguments
	Timeout time.Duration // 0: DefaultTimeout
	Env     []string      // nil: that of this process
}

// SessionBeforeFork asks the program, if it is one for this event.
func (c *Command) SessionBeforeFork(ctx context.Context, e Event) (Answer, error) {
	if c.On != BeforeFork {
		return Answer{}, nil
	}
	out, err := c.run(ctx, e.Cwd, e)
	if err != nil {
		return refusal(err)
	}
	out = bytes.TrimSpace(out)
	if len(out) == 0 {
		return Answer{}, nil
	}
	answer, err := parseAnswer(out)
	if err != nil {
		return Answer{}, c.errorf("answered something else than a JSON object {cancel, reason}: %v", err)
	}
	if answer.Cancel && answer.Reason == "" {
		answer.Reason = c.errorf("cancelled and gave no reason").Error()
	}
	return answer, nil
}

// refusal makes an exit 2 the answer that it is; other errors stay errors.
func refusal(err error) (Answer, error) {
	if r, ok := errors.AsType[*refused](err); ok {
		return Answer{Cancel: true, Reason: r.reason}, nil
	}
	return Answer{}, err
}

// SessionForked starts the program, if it is one for this event.
func (c *Command) SessionForked(ctx context.Context, e Forked) {
	_ = c.tell(ctx, e) // a Forker calls tell itself, and reports
}

func (c *Command) tell(ctx context.Context, e Forked) error {
	if c.On != AfterFork {
		return nil
	}
	_, err := c.run(ctx, e.Cwd, e)
	return err
}

// parseAnswer takes one JSON object. Another JSON value, null too, is no answer.
func parseAnswer(out []byte) (Answer, error) {
	var a Answer
	if out[0] != '{' {
		if !json.Valid(out) {
			return a, errors.New("not JSON")
		}
		return a, errors.New("not an object")
	}
	err := json.Unmarshal(out, &a)
	return a, err
}

// refused is a command's exit 2.
type refused struct{ reason string }

func (r *refused) Error() string { return r.reason }

var (
	errTimeout = errors.New("timed out")
	errBabble  = errors.New("printed too much")
)

// run starts the program with event on its stdin and returns its stdout. An
// exit 2 is a *refused; every other error names the command.
func (c *Command) run(ctx context.Context, cwd string, event any) ([]byte, error) {
	stdin, err := json.Marshal(event)
	if err != nil {
		return nil, c.errorf("cannot be told: %w", err)
	}
	timeout := c.Timeout
	if timeout == 0 {
		timeout = DefaultTimeout
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errTimeout)
	defer cancel()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)

	babble := func() { stop(errBabble) }
	stdout, stderr := capped{full: babble}, capped{full: babble}
	cmd := exec.CommandContext(ctx, c.Argv[0], c.Argv[1:]...)
	cmd.Dir = cwd
	if c.Env != nil {
		cmd.Env = append(c.Env[:len(c.Env):len(c.Env)], "PWD="+cwd)
	}
	cmd.Stdin = bytes.NewReader(append(stdin, '\n'))
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.WaitDelay = pipeGrace
	endTogether(cmd)

	if err := cmd.Start(); err != nil {
		return nil, c.notStarted(ctx, cwd, err)
	}
	err = cmd.Wait()
	if err == nil || errors.Is(err, exec.ErrWaitDelay) { // the latter: it ended well, and left somebody behind
		if stdout.over || stderr.over {
			return nil, c.errorf("printed more than %d KiB", MaxOutput>>10)
		}
		return stdout.buf.Bytes(), nil
	}
	return nil, c.failed(ctx, cmd, err, timeout, stderr.buf.String())
}

// notStarted says why the program did not start. The system's own word does
// not tell a missing program from a missing directory.
func (c *Command) notStarted(ctx context.Context, cwd string, err error) error {
	if ctx.Err() != nil {
		return c.errorf("was not started: %w", context.Cause(ctx))
	}
	if _, statErr := os.Stat(cwd); statErr != nil {
		return c.errorf("cannot be started in the session's directory: %w", statErr)
	}
	if p, ok := errors.AsType[*fs.PathError](err); ok { // whose words name the program again, and a system call
		err = p.Err
	}
	return c.errorf("cannot be started: %w", err)
}

// failed says how the program ended, when not well.
func (c *Command) failed(ctx context.Context, cmd *exec.Cmd, err error, timeout time.Duration, stderr string) error {
	said := strings.TrimSpace(strings.ToValidUTF8(stderr, "\uFFFD"))
	// What it did by itself comes first: the end of a time-out may fall
	// together with its own.
	exit := cmd.ProcessState
	switch cause := context.Cause(ctx); {
	case exit != nil && exit.ExitCode() == 2 && !errors.Is(cause, errBabble):
		if said == "" {
			said = c.errorf("cancelled (exit 2) and gave no reason").Error()
		}
		return &refused{said}
	case errors.Is(cause, errTimeout):
		return c.errorf("did not end within %v", timeout)
	case errors.Is(cause, errBabble):
		return c.errorf("printed more than %d KiB", MaxOutput>>10)
	case cause != nil:
		return c.errorf("was ended: %w", cause)
	case said != "":
		return c.errorf("failed: %w: %s", err, said)
	}
	return c.errorf("failed: %w", err)
}

// errorf is an error about this command, which it names.
func (c *Command) errorf(format string, args ...any) error {
	return fmt.Errorf("the %s hook %s "+format, append([]any{c.On, c.Argv[0]}, args...)...)
}

// capped keeps MaxOutput bytes and calls full when there are more. It never
// fails: a command that ignores a broken pipe would go on for ever.
type capped struct {
	buf  bytes.Buffer
	over bool
	full func()
}

func (w *capped) Write(p []byte) (int, error) {
	if n := MaxOutput - w.buf.Len(); len(p) <= n {
		w.buf.Write(p)
	} else {
		w.buf.Write(p[:n])
		if !w.over {
			w.over = true
			w.full()
		}
	}
	return len(p), nil
}
