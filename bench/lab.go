package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// lab is where measurements happen: a directory of its own, an environment
// without the user's settings, and the binary.
type lab struct {
	labConfig
	dir    string
	env    []string
	self   string // this program, for children
	closed sync.Once

	abilities *abilities
}

type labConfig struct {
	dir      string // where the lab's own directory is made
	binary   string // oinod; "": to be built
	quick    bool
	rounds   int
	progress io.Writer
}

func newLab(c labConfig) (*lab, error) {
	if c.rounds <= 0 {
		c.rounds = 5
		if c.quick {
			c.rounds = 3
		}
	}
	dir, err := os.MkdirTemp(c.dir, "oinod-bench-")
	if err != nil {
		return nil, err
	}
	l := &lab{labConfig: c, dir: dir}
	if err := l.prepare(); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

func (l *lab) prepare() (err error) {
	if l.self, err = os.Executable(); err != nil {
		return err
	}
	home := filepath.Join(l.dir, "home")
	if err := os.Mkdir(home, 0o700); err != nil {
		return err
	}
	l.env = []string{"HOME=" + home, "TMPDIR=" + l.dir, "LC_ALL=C", "PATH=" + os.Getenv("PATH")}
	for _, name := range []string{"SystemRoot", "TEMP", "TMP"} { // nothing starts on Windows without
		if v := os.Getenv(name); v != "" {
			l.env = append(l.env, name+"="+v)
		}
	}
	if l.labConfig.binary != "" {
		l.binary, err = filepath.Abs(l.binary)
		return err
	}
	l.binary = filepath.Join(l.dir, "oinod.exe")
	if out, err := exec.Command("go", "build", "-o", l.binary, "github.com/oino-dev/oinod/cmd/oinod").CombinedOutput(); err != nil {
		return fmt.Errorf("building oinod: %w\n%s", err, out)
	}
	return nil
}

// close removes everything.
func (l *lab) close() { l.closed.Do(func() { _ = os.RemoveAll(l.dir) }) }

func (l *lab) say(format string, args ...any) { fmt.Fprintf(l.progress, format+"\n", args...) }

// size is how much of something a row takes: full, or quick.
func (l *lab) size(full, quick int) int {
	if l.quick {
		return quick
	}
	return full
}

// temp makes a new directory in the lab. It is removed with the lab, and not
// earlier: after many files were removed, ext4 looks long for an inode that was
// not in use a minute ago, and who makes files next would pay for it.
func (l *lab) temp(name string) (dir string, err error) {
	return os.MkdirTemp(l.dir, name+"-")
}

// settle makes what anybody wrote so far durable, so that nobody pays for it
// who is measured next.
func (l *lab) settle() {
	_ = exec.Command("sync").Run() // where there is none, numbers are only noisier
}

// timed settles and measures f.
func (l *lab) timed(f func() error) (time.Duration, error) {
	l.settle()
	start := time.Now()
	err := f()
	return time.Since(start), err
}

// turns runs a and b in turns, l.rounds times: A B A B. Each gets the round's
// number and returns what it took.
func (l *lab) turns(u unit, a, b func(round int) (float64, error)) (ours, rival *sample, err error) {
	ours, rival = &sample{Unit: u}, &sample{Unit: u}
	for round := range l.rounds {
		for _, side := range []struct {
			s *sample
			f func(int) (float64, error)
		}{{ours, a}, {rival, b}} {
			v, err := side.f(round)
			if err != nil {
				return nil, nil, err
			}
			side.s.add(v)
		}
	}
	return ours, rival, nil
}

// command is a program run in the lab's environment.
func (l *lab) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Env = l.env
	cmd.Dir = l.dir
	return cmd
}

// serve starts oinod with an agent directory.
func (l *lab) serve(agentDir string) (*peer, error) {
	return startPeer(l.command(l.binary, "serve", "--agent-dir", agentDir))
}

// child starts this program in one of its modes for children.
func (l *lab) child(mode string, args ...string) *exec.Cmd {
	return l.command(l.self, append([]string{childArg, mode}, args...)...)
}

// abilities is what the binary says it can do.
type abilities struct {
	workspace, wrap bool
}

// can asks the binary, once.
func (l *lab) can() (*abilities, error) {
	if l.abilities != nil {
		return l.abilities, nil
	}
	dir, err := l.temp("ask")
	if err != nil {
		return nil, err
	}
	p, err := l.serve(filepath.Join(dir, "agent"))
	if err != nil {
		return nil, err
	}
	raw, err := p.initialize()
	if err != nil {
		return nil, err
	}
	if err := p.stop(); err != nil {
		return nil, err
	}
	var answer struct {
		AgentCapabilities struct {
			Meta struct {
				Oino struct {
					Tracking []string `json:"tracking"`
				} `json:"oino"`
			} `json:"_meta"`
		} `json:"agentCapabilities"`
	}
	if err := json.Unmarshal(raw, &answer); err != nil {
		return nil, err
	}
	a := &abilities{}
	for _, t := range answer.AgentCapabilities.Meta.Oino.Tracking {
		a.workspace = a.workspace || t == "workspace"
	}
	wrap := l.command(l.binary, "wrap", "--agent-dir", filepath.Join(dir, "agent"), "--", l.self, childArg, "agent")
	out, err := wrap.CombinedOutput() // its input ends at once
	a.wrap = err == nil || !strings.Contains(string(out), "unknown command")
	l.abilities = a
	return a, nil
}

func (l *lab) needWorkspace() error {
	if can, err := l.can(); err != nil {
		return err
	} else if !can.workspace {
		return &notBuilt{"workspace tracking"}
	}
	return nil
}

func (l *lab) needWrap() error {
	if can, err := l.can(); err != nil {
		return err
	} else if !can.wrap {
		return &notBuilt{"oinod wrap"}
	}
	return nil
}

// peakMemory is the largest resident set that a process has had, in bytes.
func peakMemory(pid int) (float64, error) {
	field := fieldOf(fmt.Sprintf("/proc/%d/status", pid), "VmHWM")
	kib, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(field, "kB")), 64)
	if err != nil {
		return 0, &notBuilt{"measuring memory without /proc"}
	}
	return kib * 1024, nil
}
