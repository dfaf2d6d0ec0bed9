package rivals

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
)

// Copy is cp -r from one directory to a new one. Nothing is synced.
func Copy(from, to string) error {
	if out, err := exec.Command("cp", "-r", from, to).CombinedOutput(); err != nil {
		return fmt.Errorf("cp -r: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}

// Pipe starts agent with one cat on the way to it and one on the way back,
// and returns the client's ends. stop waits for all three after in is closed.
func Pipe(agent *exec.Cmd) (in io.WriteCloser, out io.Reader, stop func() error, err error) {
	there, back := exec.Command("cat"), exec.Command("cat")
	if in, err = there.StdinPipe(); err != nil {
		return nil, nil, nil, err
	}
	if out, err = back.StdoutPipe(); err != nil {
		return nil, nil, nil, err
	}
	var ends []*os.File
	defer func() {
		for _, f := range ends {
			f.Close() // the children have their own
		}
	}()
	for _, p := range []struct {
		from, to *exec.Cmd
	}{{there, agent}, {agent, back}} {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, nil, nil, err
		}
		ends = append(ends, r, w)
		p.from.Stdout, p.to.Stdin = w, r
	}
	all := []*exec.Cmd{there, agent, back}
	for i, cmd := range all {
		if err := cmd.Start(); err != nil {
			for _, started := range all[:i] {
				_ = started.Process.Kill()
				_ = started.Wait()
			}
			return nil, nil, nil, err
		}
	}
	return in, out, func() error {
		var first error
		for _, cmd := range all {
			if err := cmd.Wait(); err != nil && first == nil {
				first = fmt.Errorf("%s: %w", cmd.Path, err)
			}
		}
		return first
	}, nil
}
